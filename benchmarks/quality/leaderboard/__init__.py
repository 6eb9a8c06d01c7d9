"""The leaderboard: every strategy on ten long-tailed pools, with few labels and with more."""
