"""Who signs versions where nobody says so."""

from __future__ import annotations

import os

AUTHOR = "TFGRPO_AUTHOR"


def default_author() -> str:
    """Returns $TFGRPO_AUTHOR, else the login name."""
    for name in (AUTHOR, "LOGNAME", "USER"):  # the last two as getpass has it, not loaded for them
        if os.environ.get(name):
            return os.environ[name]
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no such user, as in some containers
        return "unknown"
