"""Options of a domain as they stand after its name: `exact:case=ignore,space=ignore`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tfgrpo.domains.base import DomainError


def read_options(domain: str, options: str, choices: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Returns the options that are written, each checked against its values.

    Raises DomainError naming the first that is unknown, with all there are.
    """
    read: dict[str, Any] = {}
    for option in filter(None, (part.strip() for part in options.split(","))):
        name, _, value = (part.strip() for part in option.partition("="))
        if value not in choices.get(name, ()):
            known = "; ".join(f"{key}={'|'.join(values)}" for key, values in choices.items())
            raise DomainError(
                f"{domain} takes no argument {option!r}", hint=f"write {domain}: and any of {known}"
            )
        read[name] = value
    return read
