"""What a store hands to a journal, and what the members of a shared one may do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol, TypeAlias, get_args

Level: TypeAlias = Literal["reader", "trainer", "reviewer", "owner"]
LEVELS: tuple[Level, ...] = get_args(Level)


Work: TypeAlias = Literal["train", "decide"]
"""What not every member of a shared store may do: record runs, decide about production."""


CallValues: TypeAlias = tuple[
    bytes, int | None, str, int | None, str, str, str, int, int, int, int, int, float, int
]
"""What a `Call` has, in its order, its answer as canonical JSON."""

RolloutValues: TypeAlias = tuple[int, int, str, int, int, str, str, float | None, str, int]
"""What a `RolloutRow` has, in its order, its calls as a JSON list and its verdict as canonical
JSON. Whoever hands rows in makes the JSON: what is none is an error before it is in a batch."""


class JournalWriter(Protocol):
    """Appends to the journal. Belongs to the thread that appends and closes."""

    def append(self, calls: Sequence[CallValues], rollouts: Sequence[RolloutValues]) -> None:
        """Appends rows, all or none, durably; those that are there stay as they are. Raises
        RowRefused where a row breaks a rule, StoreError where nothing can be written."""

    def close(self) -> None:
        """Releases what was opened."""


class Member(NamedTuple):
    """A user of the database, and what they may do in a library."""

    name: str
    level: Level
