"""The optimisation problem of the paper, solved to a certified gap; covering and transport programs for strategies."""
