"""Who signs versions where nobody says so, and with which key."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from tfgrpo.store import child_processes
from tfgrpo.store.errors import SettingsError
from tfgrpo.wording import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfgrpo.store.signing import Pending, Signer

AUTHOR = "TFGRPO_AUTHOR"
PATIENCE = 5
"""Seconds to wait for git's answer."""
SETTING = "author"
"""The key of `tfgrpo.toml` that stands above its tables."""
COMMIT = "commit"
"""The table that says whether versions are signed (`sign`), and with which key (`key`)."""


def default_author(root: str | None = None) -> str:
    """$TFGRPO_AUTHOR, else `author` of the tfgrpo.toml in `root` (of which [commit] is checked,
    and nothing else), else git's user.name, else the login name. Raises SettingsError."""
    if os.environ.get(AUTHOR):
        return os.environ[AUTHOR]
    author: str = _settings(root or os.getcwd()).get(SETTING, "").strip()
    return author or os.environ.get("GIT_AUTHOR_NAME") or _config(root, "user.name") or _login()


def signing_key(root: str) -> str:
    """The key of [commit] in `root`'s tfgrpo.toml, else git's user.signingkey. Raises
    SettingsError."""
    key = _settings(root).get(COMMIT, {}).get("key") or _config(root, "user.signingkey")
    if not isinstance(key, str) or not key:
        raise SettingsError(
            "no key to sign with is known",
            hint='key = "~/.ssh/id_ed25519.pub" in [commit] of tfgrpo.toml names one, '
            "or git's user.signingkey",
        )
    return key


def default_signer(root: str) -> Signer:
    """What signs versions with `signing_key`, where `sign` in [commit] of the tfgrpo.toml in
    `root` is true, and else signs nothing. Settings are read when something is to be signed."""

    def sign(message: bytes) -> Pending | None:
        if not _settings(root).get(COMMIT, {}).get("sign", False):
            return None
        from tfgrpo.store.signing import signer

        return signer(signing_key(root))(message)

    return sign


def file_signer(root: str, *, is_tagged: bool) -> Signer | None:
    """What signs a file about a library: the key that [commit] of `root`'s tfgrpo.toml names, or
    git's where versions are signed or the library is tagged so (`is_tagged`). None signs nothing.
    Raises SettingsError."""
    from tfgrpo.store.signing import signer

    commit = _settings(root).get(COMMIT, {})
    if commit.get("sign") or commit.get("key"):
        return signer(signing_key(root))
    key = _config(root, "user.signingkey") if is_tagged else ""
    return signer(key) if key else None


def _settings(root: str) -> dict[str, Any]:
    path = os.path.join(root, "tfgrpo.toml")
    try:
        with open(path, "rb") as file:
            from tfgrpo.toml_text import parsed  # which loads more than a checkout needs

            settings = parsed(file.read())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", error)
        raise SettingsError(f"{path}: {why}", hint="the file must be TOML") from None
    check_signing(settings, path)
    return settings


def check_signing(settings: Mapping[str, Any], path: object) -> None:
    """Raises SettingsError where `author` or [commit] of a file's settings cannot be used."""
    author, commit = settings.get(SETTING, ""), settings.get(COMMIT, {})
    if not isinstance(author, str):
        raise SettingsError(f"{path}: author is a name", hint='write author = "ann"')
    takes = f"{path}: [commit] takes only sign and key"
    if not isinstance(commit, dict):
        raise SettingsError(takes, hint="sign = true")
    for name in sorted(commit.keys() - {"sign", "key"}):
        meant = did_you_mean(name, ("sign", "key"), after=" ")
        raise SettingsError(f"{takes}, and no {name}", hint=f"{meant}sign = true")
    if not isinstance(commit.get("sign", False), bool):
        raise SettingsError(f"{path}: sign in [commit] is true or false", hint="write sign = true")
    if not isinstance(commit.get("key", ""), str):
        raise SettingsError(f"{path}: key in [commit] is a text", hint='write key = "id.pub"')


def _config(root: str | None, key: str) -> str:
    """What git's settings say, within `PATIENCE` seconds; nothing where they say nothing."""
    from subprocess import DEVNULL, PIPE, TimeoutExpired

    command = ["git", *(["-C", root] if root else []), "config", key]
    streams = {"stdout": PIPE, "stderr": DEVNULL}
    try:
        environment = child_processes.without_keys("GIT_")
        with child_processes.start(command, environment, **streams) as process:
            try:
                output, _ = process.communicate(timeout=PATIENCE)
            except TimeoutExpired:
                process.kill()
                return ""
    except OSError:
        return ""
    return str(output.decode(errors="replace")).strip() if process.returncode == 0 else ""


def _login() -> str:
    for name in ("LOGNAME", "USER"):  # as getpass has it, which is not loaded for them
        if os.environ.get(name):
            return os.environ[name]
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no such user, as in some containers
        return "unknown"
