"""Who signs versions where nobody says so."""

from __future__ import annotations

import os

AUTHOR = "TFGRPO_AUTHOR"
SETTING = "author"
"""The key of `tfgrpo.toml` that stands above its tables."""


def default_author(root: str | None = None) -> str:
    """Returns $TFGRPO_AUTHOR, else `author` of the tfgrpo.toml in `root` (by default the working
    folder), else git's user.name, else the login name.

    Only the key is read here: a settings file with another mistake in it is no reason not to sign.
    """
    if os.environ.get(AUTHOR):
        return os.environ[AUTHOR]
    return _set(root or os.getcwd()) or _git(root) or _login()


def _set(root: str) -> str:
    import tomllib

    try:
        with open(os.path.join(root, "tfgrpo.toml"), "rb") as file:
            author = tomllib.load(file).get(SETTING)
    except (OSError, ValueError):
        return ""
    return author.strip() if isinstance(author, str) else ""


def _git(root: str | None) -> str:
    """Returns what `git commit` would sign with, if git is here and knows."""
    import subprocess  # a log has no need of it

    if os.environ.get("GIT_AUTHOR_NAME"):
        return os.environ["GIT_AUTHOR_NAME"]
    try:
        done = subprocess.run(
            ["git", "config", "user.name"], cwd=root, capture_output=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else ""


def _login() -> str:
    for name in ("LOGNAME", "USER"):  # as getpass has it, which is not loaded for them
        if os.environ.get(name):
            return os.environ[name]
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no such user, as in some containers
        return "unknown"
