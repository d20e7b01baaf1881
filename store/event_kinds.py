"""The kinds of events: what an operation, and its record, can do to an experience."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

Op: TypeAlias = Literal["ADD", "MODIFY", "DELETE", "KEEP"]
OPS: tuple[Op, ...] = get_args(Op)
