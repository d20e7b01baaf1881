"""What pages remember for a moment: figures that take long and may be some seconds old."""

from __future__ import annotations

import math
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

    def is_shown(self, now: float) -> bool:
        """Returns whether it may be shown, if only while another is computed."""
        return now < self.computed + OLDEST


NOTHING = Remembered(-math.inf, -math.inf, None)


class Memory:
    """Values by key, each for a number of seconds, as a clock counts them. Threads may share it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._values: dict[Hashable, Remembered] = {}
        self._lock = threading.Lock()
        self._under_way: set[Hashable] = set()

    def get(self, key: Hashable, seconds: float, compute: Callable[[], T]) -> T:
        """Returns the value of a key, computed where there is none or it is too old."""
        now = self._clock()
        with self._lock:
            known = self._values.get(key, NOTHING)
        if known.until > now:
            result: T = known.value
            return result
        result = compute()
        with self._lock:
            self._values.pop(key, None)
            self._values[key] = Remembered(now, now + seconds, result)
            while len(self._values) > MOST:
                del self._values[next(iter(self._values))]
        return result

    def has(self, key: Hashable) -> bool:
        """Returns whether there is a value of a key that is not too old to be shown once more."""
        with self._lock:
            return self._values.get(key, NOTHING).is_shown(self._clock())

    def fresh(self, key: Hashable, seconds: float, compute: Callable[[], T]) -> T:
        """Returns the value of a key at once, where there is one. One that is too old is shown once
        more, while a thread computes another: nobody waits but who asks first, or after minutes in
        which nobody did. `compute` must not need anything of the thread that asks."""
        now = self._clock()
        with self._lock:
            known = self._values.get(key, NOTHING)
            is_there = known.is_shown(now)
            is_due = is_there and known.until <= now and key not in self._under_way
            if is_due:
                self._under_way.add(key)
        if not is_there:
            return self.get(key, seconds, compute)
        if is_due:
            threading.Thread(target=self._renew, args=(key, seconds, compute), daemon=True).start()
        result: T = known.value
        return result

    def _renew(self, key: Hashable, seconds: float, compute: Callable[[], object]) -> None:
        now = self._clock()
        try:
            value = compute()
            with self._lock:
                self._values[key] = Remembered(now, now + seconds, value)
        except TfgrpoError:  # who asks next is told
            with self._lock:
                self._values.pop(key, None)
        finally:
            with self._lock:
                self._under_way.discard(key)
