"""What is shown of a store, computed once for the terminal, for JSON and for the pages.

A command draws these records as lines, `--json` prints them as objects and `tfgrpo ui` puts them
into a template; none of them computes anything of its own.
"""
