"""pytest imports every file to look for doctests, but one here is for other processes: it changes its own."""

collect_ignore = ["no_posix"]
