"""What is shown and kept of a result: tables, figures and files. matplotlib loads with the figures alone."""
