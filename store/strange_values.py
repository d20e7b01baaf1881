"""JSON that a stranger wrote, as far as it is of the kind that was expected."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

MOST = 1 << 53
"""No number that is counted is as large."""


def listed(value: object) -> list[Any]:
    """A list; an empty one for anything else."""
    return value if isinstance(value, list) else []


def mapping(value: object) -> Mapping[str, Any]:
    """A mapping; an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}


def texts(value: object) -> tuple[str, ...]:
    """The texts of a list."""
    return tuple(one for one in listed(value) if isinstance(one, str))


def text(value: object) -> str:
    """A text; "" for anything else."""
    return value if isinstance(value, str) else ""


def whole(value: object) -> int | None:
    """A whole number; None for anything else, and for one that is too large to be counted."""
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= MOST:
        return None
    return value


def number(value: object) -> float | None:
    """A finite number; None for anything else."""
    try:
        given = float(value) if isinstance(value, int | float) else None
    except OverflowError:
        return None
    return given if given is not None and isfinite(given) else None
