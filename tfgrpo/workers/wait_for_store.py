"""The store of a worker that starts: in a database that may be away, and is waited for."""

from __future__ import annotations

import time
from collections.abc import Callable

from tfgrpo.store.errors import StoreAway
from tfgrpo.store.store import Store

PAUSE = 2.0
"""Seconds before a database that is away is tried again."""
STEP = 0.2
"""Seconds between two looks whether it is still wanted."""


def store_when_there(
    location: str,
    author: str | Callable[[], str],
    on_note: Callable[[str], None],
    is_wanted: Callable[[], bool] = lambda: True,
) -> Store | None:
    """Opens the store at a location, as soon as its database answers; None where `is_wanted` said
    before that nobody waits any more.

    `on_note` is told once that it is waited for, and why. Raises StoreError for what waiting does
    not mend: an address without a machine, a password, a library that is not there.
    """
    is_waiting = False
    while is_wanted():
        try:
            return Store.open(location, author=author)
        except StoreAway as error:
            if not is_waiting:
                on_note(f"{error}; it is waited for")
            is_waiting = True
        until = time.monotonic() + PAUSE
        while is_wanted() and time.monotonic() < until:
            time.sleep(STEP)
    return None
