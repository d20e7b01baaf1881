"""Signing while nobody waits: a key may ask a person for a passphrase or a touch.

A transaction that comes to a version to be signed ends there, and nothing of it is recorded. The
version is signed outside, and the transaction begins again: the same version has its signature
then, another one, because others wrote meanwhile, is signed in its turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tfgrpo.store.canonical import new_id, new_salts
from tfgrpo.store.records import Operation, Version

if TYPE_CHECKING:
    from tfgrpo.store.store import Store

Pending: TypeAlias = Callable[[], str]
"""Makes a signature: it may take as long as a person takes."""
Signer: TypeAlias = Callable[[bytes], Pending | None]
"""Returns at once what signs a payload, or None where nothing is to be signed."""


class Unsigned(Exception):
    """A transaction that has to end because one of its versions is not signed yet."""


class Draft(NamedTuple):
    """What is drawn for a version: the time, the ids of new experiences, the salts of texts."""

    on: bytes
    given: Sequence[Operation]
    time: int
    operations: Sequence[Operation]
    salts: bytes


class SigningTurns:
    """The attempts at one transaction: what is drawn for its versions, and their signatures."""

    def __init__(self) -> None:
        self._drafts: list[Draft] = []
        self._signatures: dict[bytes, str] = {}
        self._pending: tuple[bytes, Pending] | None = None
        self._at = 0
        self.is_done = False

    def begin(self) -> None:
        """Signs what the attempt before came to, and starts with the first version again."""
        self._at = 0
        if self._pending is not None:
            payload, pending = self._pending
            self._signatures[payload] = pending()
            self._pending = None

    def draft(self, on: bytes, operations: Sequence[Operation], now: Callable[[], int]) -> Draft:
        """What was drawn for the next version if it is the same one, on the version with the digest
        `on`; else what is drawn now."""
        known = self._drafts[self._at :][:1]
        if not known or (known[0].on, known[0].given) != (on, operations):
            named = [
                one._replace(experience=new_id())
                if one.op == "ADD" and one.experience is None
                else one
                for one in operations
            ]
            known = [Draft(on, operations, now(), named, new_salts(len(named)))]
            self._drafts[self._at :] = known
        self._at += 1
        return known[0]

    def signature(self, payload: bytes, pending: Pending) -> str:
        """The signature of a payload. Raises Unsigned where there is none yet."""
        if payload not in self._signatures:
            self._pending = payload, pending
            raise Unsigned
        return self._signatures[payload]


def recordings(store: Store, action: str | None = None) -> Iterator[AbstractContextManager[None]]:
    """Attempts at one transaction of a store, an operation where it has a name. It begins again
    for each version in it that had to be signed first:

        for recording in recordings(store, "…"):
            with recording:
                …
    """
    if store.signer is None or store.port.in_transaction:
        yield _whole(store, action)
        return
    turns = SigningTurns()
    while not turns.is_done:
        turns.begin()
        yield _recording(store, action, turns)


def _whole(store: Store, action: str | None) -> AbstractContextManager[None]:
    return store.port.transaction() if action is None else store.operation(action)


@contextmanager
def _recording(store: Store, action: str | None, turns: SigningTurns) -> Iterator[None]:
    store.turns, turns.is_done = turns, True
    try:
        with _whole(store, action):
            yield
    except Unsigned:
        turns.is_done = False
        store.forget()  # it may be of what was just rolled back
    finally:
        store.turns = None


def drawn(store: Store, on: Version, operations: Sequence[Operation]) -> Draft:
    """What is drawn for a version on top of another: the same in each recording of it."""
    if store.turns is not None:
        return store.turns.draft(on.digest, operations, store.now)
    return Draft(on.digest, operations, store.now(), operations, new_salts(len(operations)))


def signature(store: Store, payload: bytes) -> str | None:
    """What signs a payload; None where nothing is to be signed. In a transaction that was not begun
    by `recordings` it is made while others wait. Raises TfgrpoError."""
    pending = None if store.signer is None else store.signer(payload)
    if pending is None or store.turns is None:
        return None if pending is None else pending()
    return store.turns.signature(payload, pending)
