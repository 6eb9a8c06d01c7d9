"""Experiments: which pools, learners, strategies and seeds; run them, go on after a crash, keep every number."""
