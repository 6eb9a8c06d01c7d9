"""Learners: labelled arrays in, a model that gives one probability per class out, the number of classes fixed."""
