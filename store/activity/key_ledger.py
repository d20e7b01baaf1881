"""Virtual keys and spending, in a file of their own beside the store (`ledger.db`). Only the digest
of a key is kept; since a key is 32 random bytes, it needs no slow hash."""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from tfgrpo.store.address import FILE
from tfgrpo.store.errors import InvalidOperation
from tfgrpo.store.exit_codes import NOT_BEGUN

if TYPE_CHECKING:
    from pathlib import Path

LEDGER = "ledger.db"
PREFIX = "tfk-"
"""What a virtual key begins with."""
PERIODS = ("day", "month", "total")
"""What a budget is for; days and months are those of UTC."""
Spent: TypeAlias = Mapping[tuple[str, str], float]
"""(scope, day as 2026-11-25) → US dollars. A scope is `all`, `library:NAME` or `key:NAME`."""
Owed: TypeAlias = Mapping[str, Spent]
"""What batches of calls came to that may not be in the ledger yet, by the batch."""


class Budget(NamedTuple):
    """US dollars for a period."""

    dollars: float
    per: str = "month"

    def __str__(self) -> str:
        return f"${self.dollars:g}" + ("" if self.per == "total" else f"/{self.per}")

    def began(self, today: str) -> str:
        """The first day whose spending counts, seen from a day such as 2026-11-25."""
        return {"day": today, "month": today[:8] + "01", "total": ""}[self.per]


class KeyLimits(NamedTuple):
    """What a key may: spend, ask in a minute, which models, libraries and paths (patterns; None:
    all models and libraries, no other path), until when (microseconds)."""

    budget: Budget | None = None
    rate: int | None = None
    models: tuple[str, ...] | None = None
    libraries: tuple[str, ...] | None = None
    paths: tuple[str, ...] = ()
    expires: int | None = None


class VirtualKey(NamedTuple):
    """A key as it is on record; times are microseconds since 1970."""

    number: int
    name: str
    digest: bytes
    author: str
    created: int
    revoked: int | None
    limits: KeyLimits


class Ledger(Protocol):
    """The file. One instance belongs to one thread."""

    def close(self) -> None:
        """Closes the file."""

    def changes(self) -> int:
        """A number that changes after anybody else has written."""

    def virtual_keys(self) -> list[VirtualKey]:
        """All keys, oldest first."""

    def add_key(self, key: VirtualKey) -> None:
        """Records a new key. Raises InvalidOperation where a key in use has that name."""

    def change_key(self, name: str, limits: KeyLimits) -> None:
        """Gives a key other limits. Raises InvalidOperation where none has that name."""

    def revoke_key(self, name: str, time: int, number: int | None = None) -> None:
        """Revokes a key. Raises InvalidOperation where none has that name and, if given, that
        number."""

    def spend(self, worker: str, owed: Owed) -> None:
        """Adds to the spending. A batch that was already added, as one that the worker's calls owed
        the last time, is not added again. Raises StoreError."""

    def spent(self, since: str) -> Spent:
        """The spending from a day on."""

    def notes(self) -> set[str]:
        """The lines that were told already."""

    def note(self, line: str) -> None:
        """Records that something was told."""


def ledger_path(store: Path | str) -> str:
    """The path of a store's ledger."""
    folder, name = os.path.split(os.path.abspath(store))
    stem = "" if name == FILE else f"{os.path.splitext(name)[0]}-"
    return os.path.join(folder, stem + LEDGER)


def new_key() -> str:
    """A new key, which is shown once and never kept."""
    return PREFIX + secrets.token_urlsafe(32)


def key_digest(key: str | bytes) -> bytes:
    """The part of a key that is kept: its digest."""
    return hashlib.sha256(key.encode() if isinstance(key, str) else key).digest()


def allows(patterns: tuple[str, ...] | None, name: str) -> bool:
    """Whether a name is one of those that patterns allow."""
    return patterns is None or any(fnmatchcase(name, pattern) for pattern in patterns)


def today() -> str:
    """The day of UTC."""
    return time.strftime("%Y-%m-%d", time.gmtime())


def spent_of(scope: str, budget: Budget | None, spent: Spent) -> float:
    """The spending of a scope in a budget's period, or in all, in US dollars."""
    began = "" if budget is None else budget.began(today())
    return sum(dollars for (of, day), dollars in spent.items() if of == scope and day >= began)


def spent_by(key: VirtualKey, spent: Spent) -> float:
    """The spending of a key in its budget's period, or in all, in US dollars."""
    return spent_of(f"key:{key.name}", key.limits.budget, spent)


class BadBudget(InvalidOperation):
    """A text that is no budget of a key or a library."""

    exit_code = NOT_BEGUN


def parse_budget(given: str) -> Budget:
    """A budget as it is typed: 5, 5/day, 100/month, 20/total. Raises BadBudget."""
    amount, _, per = given.strip().removeprefix("$").partition("/")
    try:
        dollars = float(amount)
    except ValueError:
        dollars = -1.0
    if not 0 <= dollars < 1e12 or (per or "month") not in PERIODS:
        raise BadBudget(f"{given!r} is no budget", hint="write 5/day, 100/month or 20/total")
    return Budget(dollars, per or "month")
