"""Scores of a library, comparisons of two, and the statistics behind both."""
