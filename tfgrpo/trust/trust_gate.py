"""The one gate that everything passes which a folder would run or send. Without a function in
`asking`, what is not trusted is refused, with the command that trusts it."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from tfgrpo.store.errors import TfgrpoError
from tfgrpo.trust.permissions import Permissions
from tfgrpo.trust.trusted_folders import is_trusted, remember

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
