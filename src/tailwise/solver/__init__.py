"""Choosing a batch: the program of the paper solved to a certified gap, and greedy and covering methods beside it."""
