"""How fast Tailwise is, and how near the optimum, beside what else there is: `python -m benchmarks.speed`."""
