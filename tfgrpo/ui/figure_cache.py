"""What pages remember for a moment: figures that take long and may be some seconds old."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, TypeVar

from tfgrpo.store.errors import TfgrpoError

T = TypeVar("T")
MOST = 100
OLDEST = 300.0
"""Seconds since it was computed after which no value is shown."""


class Remembered(NamedTuple):
    """A value: when it was computed, until when it is as good as new (seconds of a clock)."""

    computed: float
    until: float
    value: Any


class Memory:
    """Values by key, each for a number of seconds, as a clock counts them. Threads may share it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._values: dict[Hashable, Remembered] = {}
        self._lock = threading.Lock()
        self._under_way: set[Hashable] = set()

    def get(self, key: Hashable, seconds: float, compute: Callable[[], T]) -> T:
        """Returns the value of a key, computed where there is none or it is too old."""
        known = self._values.get(key)
        if known is not None and known.until > self._clock():
            result: T = known.value
            return result
        return self._put(key, seconds, compute)

    def _put(self, key: Hashable, seconds: float, compute: Callable[[], T]) -> T:
        now, value = self._clock(), compute()
        with self._lock:
            self._values.pop(key, None)
            self._values[key] = Remembered(now, now + seconds, value)
            gone = [one for one in self._values if not self.has(one)]
            for one in gone or [*self._values][:-MOST]:
                del self._values[one]
        return value

    def has(self, key: Hashable) -> bool:
        """Returns whether there is a value of a key that is not too old to be shown once more."""
        known, now = self._values.get(key), self._clock()
        return known is not None and now < max(known.computed + OLDEST, known.until)

    def fresh(self, key: Hashable, seconds: float, compute: Callable[[], T]) -> T:
        """Returns the value of a key at once, where there is one. One that is too old is shown once
        more, while a thread computes another: nobody waits but who asks first, or after minutes in
        which nobody did. `compute` must not need anything of the thread that asks."""
        known = self._values.get(key)
        if known is None or not self.has(key):
            return self._put(key, seconds, compute)
        with self._lock:
            is_due = known.until <= self._clock() and key not in self._under_way
            if is_due:
                self._under_way.add(key)
        if is_due:
            threading.Thread(target=self._renew, args=(key, seconds, compute), daemon=True).start()
        result: T = known.value
        return result

    def _renew(self, key: Hashable, seconds: float, compute: Callable[[], object]) -> None:
        try:
            self._put(key, seconds, compute)
        except TfgrpoError:  # who asks next is told
            with self._lock:
                self._values.pop(key, None)
        finally:
            self._under_way.discard(key)
