"""The exit codes of commands (docs/exit-codes.md). An error of ours has one as `exit_code`."""

FAILED = 1
NOT_BEGUN = 2
"""The command line or a setting is wrong."""
STOPPED = 3
"""A run was stopped, and can be resumed."""
BUSY = 75
"""Another process is at work on the same; try again later."""
INTERRUPTED = 130
"""Somebody pressed Ctrl-C (128 and the number of the signal)."""
UNREAD = 141
"""Whoever read the output went away, as `head` does."""
