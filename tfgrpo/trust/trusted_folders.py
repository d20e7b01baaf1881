"""What was trusted, kept in the user's own state, for the user alone; and the one gate that
everything passes which a folder would run or send. Without a function in `asking`, what is not
trusted is refused, with the command that trusts it.

An entry is a file named by the SHA-256 of a folder's real path and a digest of permissions, so a
folder that is copied, moved or changed has none.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from tfgrpo.store import atomic_write
from tfgrpo.store.errors import TfgrpoError
from tfgrpo.trust.permissions import Permissions

VARIABLE = "TFGRPO_TRUST"
"""Names folders that are trusted with all that lies in them, separated as in PATH."""


class LedgerError(TfgrpoError):
    """Trust cannot be kept: there is no place for it that is the user's alone."""


def ledger_folder() -> Path:
    """Where trust is kept. Raises LedgerError where the user has no such folder."""
    state = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):
        state = os.path.join(os.path.expanduser("~"), ".local", "state")
    if not os.path.isabs(state):
        raise LedgerError("there is no home folder to keep trust in", hint="set XDG_STATE_HOME")
    return Path(state, "tfgrpo", "trust")


def is_trusted(permissions: Permissions) -> bool:
    """Whether all that is needed was allowed. Raises LedgerError where others could have written
    that it was."""
    if not permissions.needed or _named(permissions.folder):
        return True
    try:
        folder = ledger_folder()
    except LedgerError:
        return False
    if not (folder / _entry(permissions)).is_file():
        return False
    _check(folder)
    return True


def remember(*all_permissions: Permissions) -> None:
    """Keeps that these are allowed. Raises LedgerError."""
    for permissions in all_permissions:
        if not permissions.needed or is_trusted(permissions):
            continue
        folder = ledger_folder()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check(folder)
            entry = {
                "folder": str(permissions.folder),
                "source": permissions.source,
                "allows": permissions.words,
            }
            content = json.dumps(entry, indent=2) + "\n"
            atomic_write.write(folder / _entry(permissions), content)
        except OSError as error:
            raise LedgerError(
                f"cannot keep trust in {folder}: {error.strerror}",
                hint="check its permissions, or set XDG_STATE_HOME",
            ) from None


def remember_own(permissions: Permissions) -> None:
    """Keeps, where it can, that what this user typed, or trusted before, is allowed."""
    with suppress(LedgerError):
        remember(permissions)


def revoke(folder: Path) -> int:
    """Takes back all trust in a folder; returns how many entries that were. Raises LedgerError."""
    where, entries, ledger = str(folder.resolve()), 0, ledger_folder()
    for path in sorted(ledger.iterdir()) if ledger.is_dir() else ():
        try:
            entry = json.loads(path.read_bytes())
        except (OSError, ValueError):
            continue  # no entry of ours
        if isinstance(entry, dict) and entry.get("folder") == where:
            path.unlink(missing_ok=True)
            entries += 1
    return entries


def _named(folder: Path) -> bool:
    """Whether the user's environment names a folder, or one above it, as trusted."""
    named = os.environ.get(VARIABLE, "").split(os.pathsep)
    return any(folder.is_relative_to(Path(one).resolve()) for one in named if os.path.isabs(one))


def _entry(permissions: Permissions) -> str:
    key = f"{permissions.folder}\0{permissions.digest}"
    return hashlib.sha256(os.fsencode(key)).hexdigest()


def _check(folder: Path) -> None:
    """Raises LedgerError for a folder that others can write to."""
    if not hasattr(os, "getuid"):
        return
    there = folder.stat()
    if there.st_uid != os.getuid() or there.st_mode & 0o022:
        raise LedgerError(
            f"others can write to {folder}, where trust is kept",
            hint=f"chmod 700 {folder}, or set XDG_STATE_HOME",
        )


FILES = ("tfgrpo.toml", "proxy.toml")
"""What `tfgrpo trust` looks at in a folder without being told its name."""
Ask: TypeAlias = Callable[[Permissions], bool]
_ask: list[Ask] = []


class NotTrusted(TfgrpoError):
    """A folder needs to be allowed what nobody has allowed yet. `permissions` are those."""

    def __init__(self, permissions: Permissions) -> None:
        covered = permissions.place.name in FILES or permissions.place == permissions.folder
        here = covered and permissions.folder == Path.cwd().resolve()
        place = "" if here else f" {shlex.quote(str(permissions.place))}"
        super().__init__(
            "\n".join([describe(permissions), *(f"  {line}" for line in permissions.words)]),
            hint=f"if you trust it, say `tfgrpo trust{place}`",
        )
        self.permissions = permissions


def describe(permissions: Permissions) -> str:
    """Which source is not trusted, as the line above what it would do."""
    return f"{permissions.source} in {permissions.folder} is not trusted yet; it"


def asking(ask: Ask | None) -> None:
    """Has `ask` decide from now on where something is not trusted; None refuses it."""
    _ask[:] = [] if ask is None else [ask]


def require(permissions: Permissions) -> None:
    """Returns if everything is trusted, or is now. Raises NotTrusted and LedgerError."""
    if is_trusted(permissions):
        return
    if not (_ask and _ask[0](permissions)):
        raise NotTrusted(permissions)
    remember(permissions)
