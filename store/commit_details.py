"""What a commit can be told beside its operations and its message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypedDict

from tfgrpo.store.records import Json, Version


class CommitDetails(TypedDict, total=False):
    """What `Store.commit` can be told beside the operations and the message.

    `author` signs the version, in place of the store's. `meta` is kept in the version and its
    digest. With `expected`, the branch must still stand at that version. With `onto`, the
    operations were made for that version, and apply to wherever the branch stands if no
    experience that they change has been changed since. With neither they are applied to wherever
    it stands. `merged` is the second parent. `order` has ids in the order that the library is to
    have; what it leaves out follows as it did. `tags` are put on the version. `also` is called
    inside the transaction, for records that must land with the version.
    """

    author: str | None
    meta: Json | None
    expected: str | Version | None
    onto: Version | None
    merged: Version | None
    order: Sequence[str] | None
    tags: Sequence[str]
    also: Callable[[Version], None] | None
