"""Who signs versions where nobody says so."""

from __future__ import annotations

import os

from tfgrpo.store import children

AUTHOR = "TFGRPO_AUTHOR"
PATIENCE = 5
"""Seconds to wait for git's answer."""
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
    try:
        with open(os.path.join(root, "tfgrpo.toml"), "rb") as file:
            import tomllib  # which takes as long to load as all that a checkout needs

            author = tomllib.load(file).get(SETTING)
    except (OSError, ValueError, RecursionError):
        return ""
    return author.strip() if isinstance(author, str) else ""


def _git(root: str | None) -> str:
    """Returns what `git commit` would sign with, if git is here and knows."""
    if os.environ.get("GIT_AUTHOR_NAME"):
        return os.environ["GIT_AUTHOR_NAME"]
    command = ["git", *(["-C", root] if root else []), "config", "user.name"]
    try:
        return (_spawned if hasattr(os, "posix_spawnp") else _run)(command)
    except OSError:
        return ""


def _spawned(command: list[str]) -> str:
    """Returns what a command says that succeeds within `PATIENCE` seconds, else nothing.

    Without `subprocess`, which takes as long to load as git does to answer. Raises OSError.
    """
    import select

    reading, writing = os.pipe()
    with open(reading, "rb") as pipe:
        try:
            actions = [
                (os.POSIX_SPAWN_DUP2, writing, 1),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            ]
            process = children.spawned(command, _environment(), actions)
        finally:
            os.close(writing)
        in_time = bool(select.select([pipe], [], [], PATIENCE)[0])
        if not in_time:
            os.kill(process, 9)
        output = pipe.read() if in_time else b""
        _, status = os.waitpid(process, 0)
    return output.decode(errors="replace").strip() if status == 0 else ""


def _run(command: list[str]) -> str:
    """Does what `_spawned` does, where processes cannot be spawned so."""
    import subprocess

    try:
        with children.start(command, _environment(), stdout=subprocess.PIPE) as process:
            output, _ = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        return ""
    return str(output.decode(errors="replace")).strip() if process.returncode == 0 else ""


def _environment() -> dict[str, str]:
    """Returns what git needs to find its settings."""
    return children.without_keys("GIT_")


def _login() -> str:
    for name in ("LOGNAME", "USER"):  # as getpass has it, which is not loaded for them
        if os.environ.get(name):
            return os.environ[name]
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no such user, as in some containers
        return "unknown"
