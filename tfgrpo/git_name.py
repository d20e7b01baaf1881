"""The name that git would sign with, read from its files where they are plain enough.

Asking git is a process of its own, which takes longer than all else that a checkout does. Git's
files are read here only where nothing else could change the answer: on Linux, with git where the
system puts it, no settings of git in the environment, and no file that includes another one. In
every other case git itself is asked.
"""

from __future__ import annotations

import os
import sys

SYSTEM = "/etc/gitconfig"
PLACES = ("/usr/bin/git", "/bin/git")
"""Where a git lies whose own file is `SYSTEM`."""
SETTINGS = ("GIT_CONFIG", "GIT_DIR", "GIT_COMMON", "GIT_CEILING", "GIT_DISCOVERY", "GIT_WORK")
"""How variables begin that say which files git reads."""


def plain_name(folder: str) -> str | None:
    """Returns `user.name` as git has it in a folder, "" where git knows none or is not there;
    None where that is not to be told without git."""
    if sys.platform != "linux" or any(name.startswith(SETTINGS) for name in os.environ):
        return None
    command = _command()
    if command not in PLACES:
        return None if command else ""
    own = _repository(folder)
    home = os.environ.get("HOME")
    if own is None:
        return None
    files = [SYSTEM]
    if home:
        settings = os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
        files += [os.path.join(settings, "git", "config"), os.path.join(home, ".gitconfig")]
    elif os.environ.get("XDG_CONFIG_HOME"):
        return None
    name = ""
    for file in (*files, own):  # the last one that says something counts
        try:
            with open(file, "rb") as opened:
                user = _name_in(opened.read())
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            return None
        if user is None:
            return None
        name = user or name
    return name


def _command() -> str:
    """Returns which git a shell would start, or ""."""
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(folder, "git")
        if os.access(path, os.X_OK):
            return path
    return ""


def _repository(folder: str) -> str | None:
    """Returns the settings of the repository that a folder is in, which need not exist; None for
    one that git may see in another way."""
    folder = os.path.realpath(folder)
    while True:
        if os.path.lexists(os.path.join(folder, "HEAD")):  # perhaps a bare one
            return None
        inside = os.path.join(folder, ".git")
        if os.path.lexists(inside):
            owned = os.path.isdir(inside) and os.stat(inside).st_uid == os.geteuid()
            worktree = os.path.join(inside, "config.worktree")
            return (
                os.path.join(inside, "config") if owned and not os.path.exists(worktree) else None
            )
        above = os.path.dirname(folder)
        if above == folder:
            return os.path.join(inside, "config")
        folder = above


def _name_in(content: bytes) -> str | None:
    """Returns the `user.name` that a file of git's settings has, "" where it has none, and None
    where it takes git to read it."""
    name, section = "", ""
    try:
        lines = content.decode().split("\n")
    except UnicodeDecodeError:
        return None
    for line in lines:
        line = line.strip()
        if line.startswith("["):
            section, _, rest = line[1:].partition("]")
            section = section.strip().lower()
            if section.startswith("include") or rest.strip():
                return None
        elif line.endswith("\\"):
            return None
        elif section == "user" and line.partition("=")[0].strip().lower() == "name":
            _, equals, value = line.partition("=")
            if not equals or set(value) & set('"\\#;'):
                return None
            name = value.strip()
    return name
