"""What is read of runs: attempts, groups, where a run is, what went wrong in it."""
