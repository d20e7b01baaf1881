"""What is on record beside versions: runs, calls, decisions, traffic, spending."""
