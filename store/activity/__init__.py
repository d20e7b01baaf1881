"""Records beside versions: runs, calls, decisions, traffic, spending."""
