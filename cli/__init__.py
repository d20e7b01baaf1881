"""The command line: parses, calls, prints; decides nothing. `main.py` loads a verb's file when
it is called."""
