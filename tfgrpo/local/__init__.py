"""Models that run on this machine."""
