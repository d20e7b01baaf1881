"""Waits for what happens in its own time: a file, a request, an end of a process, a state."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(condition: Callable[[], T], seconds: float = 240, pause: float = 0.01) -> T:
    """Returns what is found at the first look at which something is so. A look is taken every
    `pause` seconds, and after so many seconds in vain the test fails."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"not so in {seconds:g} s"
        time.sleep(pause)
    return found


async def until_so(condition: Callable[[], T], seconds: float = 240) -> T:
    """Does as `until`, beside the other work of an event loop."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"not so in {seconds:g} s"
        await asyncio.sleep(0.01)
    return found
