"""Predictions for a whole pool: a saved learner and shards of images in, shards of probabilities out."""
