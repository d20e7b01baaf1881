"""Virtual keys and spending, in a file of their own beside the store (`ledger.db`). Only the digest
of a key is kept; since a key is 32 random bytes, it needs no slow hash."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tfgrpo.store.address import FILE
from tfgrpo.store.errors import InvalidOperation
from tfgrpo.store.exit_codes import NOT_BEGUN
from tfgrpo.store.opening import open_ledger
from tfgrpo.store.records import REDACTED
from tfgrpo.store.text_occurrences import matcher

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


def ledger_path(store: Path | str) -> str:
    """The path of a store's ledger."""
    return path_beside(store, LEDGER)


def path_beside(store: Path | str, file: str) -> str:
    """The path of a file of its own beside a store's."""
    folder, name = os.path.split(os.path.abspath(store))
    stem = "" if name == FILE else f"{os.path.splitext(name)[0]}-"
    return os.path.join(folder, stem + file)


def new_key() -> str:
    """A new key, which is shown once and never kept."""
    return PREFIX + secrets.token_urlsafe(32)


def key_digest(key: str | bytes) -> bytes:
    """The part of a key that is kept: its digest."""
    return hashlib.sha256(key.encode() if isinstance(key, str) else key).digest()


def allows(patterns: tuple[str, ...] | None, name: str) -> bool:
    """Whether a name is one of those that patterns allow."""
    return patterns is None or any(fnmatchcase(name, pattern) for pattern in patterns)


def scope_without(pattern: re.Pattern[str], scope: str, renamed: Mapping[str, str]) -> str:
    """A scope of spending, once a pattern is taken out and keys have their new names."""
    kind, colon, name = scope.partition(":")
    if kind == "key" and name in renamed:
        return kind + colon + renamed[name]
    return kind + colon + pattern.sub(REDACTED, name)  # what kind it is of is no user's word


def names_without(store: Path | str, written: Iterable[str]) -> dict[str, str]:
    """The names that keys beside a store get where they hold a text, in any of these forms: the
    same ones until the ledger is redacted. Raises StoreError."""
    path = ledger_path(store)
    if not os.path.isfile(path):
        return {}
    with closing(open_ledger(path)) as ledger:
        return ledger.names_without(matcher(written))


def redact_ledger(store: Path | str, written: Iterable[str], *, dry_run: bool = False) -> int:
    """Takes texts, in any of these forms, out of the keys and the spending beside a store; returns
    from how many rows. With `dry_run` it only counts them. Raises StoreError."""
    path, pattern = ledger_path(store), matcher(written)
    if not os.path.isfile(path):
        return 0
    with closing(open_ledger(path)) as ledger:
        return ledger.redact(pattern, ledger.names_without(pattern), dry_run=dry_run)


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
