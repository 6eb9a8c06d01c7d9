"""The pictures of the labelling page in docs/images: drawn leaves, a campaign of three people, a browser."""
