"""What pages remember for a moment: figures that take long and may be some seconds old."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from tfgrpo.store.errors import TfgrpoError

T = TypeVar("T")
MOST = 100


class Memory:
    """Values by key, each for a number of seconds. Threads may share it."""

    def __init__(self) -> None:
        self._values: dict[Hashable, tuple[float, Any]] = {}
        self._lock = threading.Lock()
        self._under_way: set[Hashable] = set()

    def get(self, key: Hashable, seconds: float, compute: Callable[[], T]) -> T:
        """Returns the value of a key, computed where there is none or it is too old."""
        now = time.monotonic()
        with self._lock:
            until, value = self._values.get(key, (0.0, None))
        if until > now:
            result: T = value
            return result
        result = compute()
        with self._lock:
            self._values.pop(key, None)
            self._values[key] = (now + seconds, result)
            while len(self._values) > MOST:
                del self._values[next(iter(self._values))]
        return result

    def has(self, key: Hashable) -> bool:
        """Returns whether there is a value of a key, however old."""
        with self._lock:
            return key in self._values

    def fresh(self, key: Hashable, seconds: float, compute: Callable[[], T]) -> T:
        """Returns the value of a key at once, where there is one. One that is too old is shown once
        more, while a thread computes another: nobody waits but who asks first. `compute` must not
        need anything of the thread that asks."""
        with self._lock:
            until, value = self._values.get(key, (0.0, None))
            is_there = key in self._values
            is_due = until <= time.monotonic() and key not in self._under_way
            if is_there and is_due:
                self._under_way.add(key)
        if not is_there:
            return self.get(key, seconds, compute)
        if is_due:
            threading.Thread(target=self._renew, args=(key, seconds, compute), daemon=True).start()
        result: T = value
        return result

    def _renew(self, key: Hashable, seconds: float, compute: Callable[[], object]) -> None:
        try:
            value = compute()
            with self._lock:
                self._values[key] = (time.monotonic() + seconds, value)
        except TfgrpoError:  # who asks next is told
            with self._lock:
                self._values.pop(key, None)
        finally:
            with self._lock:
                self._under_way.discard(key)
