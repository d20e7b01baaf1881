"""Domains that are made from a TOML file."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from tfgrpo.domains.base import DomainError

T = TypeVar("T", bound=BaseModel)
HINT = "see docs/conversations.md for an example"


def read(path: Path, shape: type[T]) -> tuple[T, str]:
    """Returns what a file says, and the SHA-256 of its bytes in hex. Raises DomainError."""
    try:
        content = path.read_bytes()
        return shape(**tomllib.loads(content.decode("utf-8-sig"))), hashlib.sha256(
            content
        ).hexdigest()
    except OSError as error:
        raise DomainError(f"{path}: {error.strerror}", hint="the file must be TOML") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DomainError(f"{path}: {error}", hint="the file must be TOML") from None
    except ValidationError as error:
        raise DomainError(f"{path}: {first_error(error)}", hint=HINT) from None


def first_error(error: ValidationError) -> str:
    """Returns the first thing that is wrong, in a line."""
    first: Mapping[str, Any] = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg'].removeprefix('Value error, ')}".removeprefix(": ")
