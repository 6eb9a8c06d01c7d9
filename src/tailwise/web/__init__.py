"""The labelling page: a small server around one campaign, its API, its images and its static files."""
