"""What each level of a shared store may do, by its tables, and how a refusal is told."""

from __future__ import annotations

import re

from tfgrpo.store.errors import StoreError
from tfgrpo.store.port import LEVELS, Level, Work

OF_VERSIONS = ("versions", "events", "lanes", "snapshots", "reflog")
OF_CALLS = ("texts", "journal", "evaluations", "scores")
OF_RUNS = ("runs", "run_states", "rollouts")
INSERTED: dict[Level, tuple[str, ...]] = {
    "reader": (),
    "trainer": (*OF_VERSIONS, *OF_CALLS, *OF_RUNS, "decisions"),
    "reviewer": (*OF_VERSIONS, *OF_CALLS, "decisions", "redactions"),
    "owner": (
        *(*OF_VERSIONS, *OF_CALLS, *OF_RUNS),
        *("decisions", "redactions", "remotes", "members"),
    ),
}
"""The tables to which each level may append; of decisions a trainer those of `may_decide`."""
REPLACED: dict[Level, tuple[str, ...]] = {
    "reader": (),
    "trainer": ("snapshots",),
    "reviewer": ("snapshots",),
    "owner": ("snapshots", "remotes", "members"),
}
"""The tables of which rows may go or change: what is derived, and settings."""
REDACTING: tuple[Level, ...] = ("reviewer", "owner")
FUNCTIONS = (
    "blank_event(bigint)",
    "put_redacted(text, text[], text)",
    "put_redacted_request(bytea, bytea, text)",
)
FUNCTION_NAMES = {name.partition("(")[0] for name in FUNCTIONS}
DECIDING: tuple[Level, ...] = ("reviewer", "owner")
WORDS: dict[str, str] = {
    **dict.fromkeys(OF_VERSIONS, "record versions"),
    **dict.fromkeys(OF_CALLS, "record calls"),
    **dict.fromkeys(OF_RUNS, "record runs"),
    "reflog": "move names",
    "decisions": "decide",
    "redactions": "redact",
    "remotes": "change remotes",
    "members": "say who is a member",
}
"""What appending to a table is, in words."""
GUARDED = {"reflog": "move a protected name", "decisions": "decide about production"}
"""What rows of a table are, in words, that not everybody may append who may append others."""
WORK: dict[Work, tuple[str, tuple[Level, ...]]] = {
    "train": ("record runs", ("trainer", "owner")),
    "decide": (GUARDED["decisions"], DECIDING),
}
ON_A_TABLE = re.compile(r"permission denied for (?:table|function) (\w+)")
OF_A_ROW = re.compile(r'row-level security policy[^"]* for table "(\w+)"')


def refused(place: str, what: str, levels: tuple[Level, ...]) -> StoreError:
    """The error for a user of a place who may not do something that these levels may."""
    takes = " or ".join(f"{'an' if level == 'owner' else 'a'} {level}" for level in levels)
    return StoreError(
        f"{place}: you may not {what}; that takes {takes}",
        hint="`tfgrpo store members` lists who is what; an owner grants more with `tfgrpo store "
        f"grant USER --as {levels[0]}`",
    )


def refusal_of(place: str, message: str) -> StoreError:
    """The error for what the database refuses for want of a privilege, from its message."""
    row, table = OF_A_ROW.search(message), ON_A_TABLE.search(message)
    if row is not None and row[1] in GUARDED:
        return refused(place, GUARDED[row[1]], DECIDING)
    if table is not None and table[1] in FUNCTION_NAMES:
        return refused(place, WORDS["redactions"], REDACTING)
    if table is not None and table[1] in WORDS:
        levels = tuple(level for level in LEVELS if table[1] in INSERTED[level])
        return refused(place, WORDS[table[1]], levels)
    return StoreError(
        f"{place}: you may not do this",
        hint="`tfgrpo store members` lists who may do what; an owner grants more with `tfgrpo "
        "store grant USER --as LEVEL`",
    )
