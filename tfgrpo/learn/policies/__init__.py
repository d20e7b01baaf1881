"""The ways in which a step can learn, one file for each, and their protocol."""
