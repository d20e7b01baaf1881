"""Options of a domain: after its name (`exact:case=ignore,space=ignore`), or in a TOML file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tfgrpo.domains.base import DomainInvalid
from tfgrpo.toml_text import parsed

if TYPE_CHECKING:
    from pydantic import BaseModel

T = TypeVar("T", bound="BaseModel")


def read_options(domain: str, options: str, choices: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Returns the options that are written, each checked against its values, if they are listed.
    Raises DomainError naming the first that is unknown, with all there are."""
    read: dict[str, Any] = {}
    for option in filter(None, (part.strip() for part in options.split(","))):
        name, _, value = (part.strip() for part in option.partition("="))
        if name not in choices or value not in (choices[name] or (value,)):
            known = "; ".join(f"{key}={'|'.join(values) or '…'}" for key, values in choices.items())
            raise DomainInvalid(
                f"{domain} takes no argument {option!r}", hint=f"write {domain}: and any of {known}"
            )
        read[name] = value
    return read


def read_toml(path: Path, shape: type[T]) -> tuple[T, str]:
    """Returns what a file says, and the SHA-256 of its bytes in hex. Raises DomainError."""
    from pydantic import ValidationError

    from tfgrpo.model.settings import first_error

    hint = "the file must be TOML"
    try:
        content = path.read_bytes()
        table = parsed(content)
        return shape(**table), hashlib.sha256(content).hexdigest()
    except OSError as error:
        raise DomainInvalid(f"{path}: {error.strerror}", hint=hint) from None
    except ValidationError as error:
        hint = "see docs/conversations.md for an example"
        raise DomainInvalid(f"{path}: {first_error(error, shape)}", hint=hint) from None
    except ValueError as error:
        raise DomainInvalid(f"{path}: {error}", hint=hint) from None
