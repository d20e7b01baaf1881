"""The command line: parses, calls, prints; decides nothing.

One file for a verb or a small family. `main.py` loads them lazily, so that `tfgrpo log` starts
as fast as git feels; `text.py` has what they print with, `context.py` what they find.
"""
