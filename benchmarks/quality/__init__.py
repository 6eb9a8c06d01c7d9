"""Quality: which strategies learn fastest from a long-tailed pool, and what balance adds. `make bench-quality`."""
