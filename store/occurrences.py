"""Where a text lies in a store beside the events: in records of training, messages, names.

A text that went through a model is written down many times over: in the requests whose prompt
held it, in answers that quote it, in answers that are JSON and quote it escaped. What no
version's digest covers and no rule protects can be changed; everything else can only be pointed
at. Which is which is the port's affair; how a text is looked for and taken out is said here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import NamedTuple

from tfgrpo.store.canonical import canonical
from tfgrpo.store.records import REDACTED

ESCAPED = 3
"""How many times over a text may be escaped as JSON within JSON and still be found."""


class Occurrence(NamedTuple):
    """A place that holds the text: a column of a row. `kept` says why it stays, if it does."""

    table: str
    column: str
    row: int
    kept: str | None = None

    @property
    def where(self) -> str:
        """The place in words: `versions.message of row 3`."""
        return f"{self.table}.{self.column} of row {self.row}"


def forms(texts: Iterable[str]) -> tuple[str, ...]:
    """Returns every way in which texts may be written, longest first.

    As they are, on one line (as prompts have them), and escaped as JSON, with and without
    characters outside ASCII, up to three times over.
    """
    written = {form for text in texts for form in (text, " ".join(text.split()))}
    fresh = written
    for _ in range(ESCAPED):
        fresh = {
            json.dumps(f, ensure_ascii=a)[1:-1] for f in fresh for a in (True, False)
        } - written
        written = written | fresh
    return tuple(sorted(written, key=lambda form: (-len(form), form)))


def matcher(written: Iterable[str]) -> re.Pattern[str]:
    """Returns what finds any of these forms."""
    return re.compile("|".join(map(re.escape, written)))


def clean_json(value: str, pattern: re.Pattern[str]) -> str:
    """Returns JSON without the pattern, in whichever text of it that was."""
    try:
        content = json.loads(value)
    except ValueError:  # damaged: what it is worth as JSON is lost already
        return pattern.sub(REDACTED, value)
    return canonical(_clean(content, pattern)).decode()


def _clean(value: object, pattern: re.Pattern[str]) -> object:
    if isinstance(value, str):
        return pattern.sub(REDACTED, value)
    if isinstance(value, list):
        return [_clean(item, pattern) for item in value]
    if isinstance(value, dict):
        return {pattern.sub(REDACTED, k): _clean(v, pattern) for k, v in value.items()}
    return value


def mark_redacted(answer: str) -> str:
    """Says in an answer that it is no longer what the model said, so that none replays it."""
    content = json.loads(answer)
    if isinstance(content, dict):
        content["finish_reason"] = "redacted"
    return canonical(content).decode()
