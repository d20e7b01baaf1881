"""Versions and libraries: replay, diff, merge, blame, names and revisions."""
