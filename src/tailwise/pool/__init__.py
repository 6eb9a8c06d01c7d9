"""Where images come from, and how a pool is made long-tailed: plain arrays and indices, nothing that knows a model."""
