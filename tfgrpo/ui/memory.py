"""What pages remember for a moment: figures that take long and may be some seconds old."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")
MOST = 100


class Memory:
    """Values by key, each for a number of seconds. Threads may share it."""

    def __init__(self) -> None:
        self._values: dict[Hashable, tuple[float, Any]] = {}
        self._lock = threading.Lock()

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
