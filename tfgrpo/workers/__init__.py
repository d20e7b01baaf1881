"""Workers: processes on any machine that roll out the groups of runs in a shared store."""
