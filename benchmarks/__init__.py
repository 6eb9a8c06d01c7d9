"""What Tailwise is measured with; no part of the installed package."""
