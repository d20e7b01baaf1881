"""Who may do what in a store that is shared: members of a library, each with a level."""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol, TypeAlias, get_args

Level: TypeAlias = Literal["reader", "trainer", "reviewer", "owner"]
LEVELS: tuple[Level, ...] = get_args(Level)


class Member(NamedTuple):
    """A user of the database, and what they may do in a library."""

    name: str
    level: Level


class Members(Protocol):
    """The members of a library.

    A reader reads. A trainer also appends: runs, their calls and attempts, versions, and moves of
    names that are not protected. A reviewer moves protected names as well, decides and redacts,
    and has no runs. An owner does all of it and says who may do what. None of them may change or
    delete what is recorded.
    """

    def all(self) -> list[Member]:
        """Returns the members, names ascending."""

    def grant(self, name: str, level: Level) -> None:
        """Lets a user of the database do what `level` may, and nothing more. Raises StoreError."""

    def revoke(self, name: str) -> None:
        """Takes away whatever a user may do. Raises StoreError for somebody who is no member."""
