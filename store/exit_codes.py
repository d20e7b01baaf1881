"""The exit codes that errors carry; `docs/exit-codes.md` says what they mean."""

FAILED = 1
NOT_BEGUN = 2
"""The command line or a setting is wrong."""
STOPPED = 3
"""A run was stopped, and can be resumed."""
BUSY = 75
"""Another process is at work on the same; try again later."""
