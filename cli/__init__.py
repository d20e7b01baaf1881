"""The command line: parses, calls, prints; decides nothing. `main.py` loads a verb's file."""
