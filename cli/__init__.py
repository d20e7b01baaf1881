"""The command line: parses, calls, prints; decides nothing.

One file for a verb or a small family. `main.py` loads them lazily, so that `tfgrpo log` starts
as fast as git feels; `printing.py` has what they print with, `start_context.py` what they find.
"""
