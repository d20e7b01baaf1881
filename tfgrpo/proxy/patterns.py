"""What is taken out of words before they are kept."""

from __future__ import annotations

import json
import re

from tfgrpo.store.records import REDACTED

PATTERNS = (
    r"\b[\w.+-]+@[\w-]+\.[\w.-]+\b",
    r"\b(?:sk|pk|rk|ghp|gho|xox[abp]|AKIA|AIza)[-_A-Za-z0-9]{12,}",
    r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*",
    r"\b\d(?:[ -]?\d){12,18}\b",
    r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2}"
    r"(?: ?[A-Z0-9]{3}|(?: ?[A-Z0-9]{4})+(?: ?[A-Z0-9]{1,3})?)\b",
)
"""What is taken out of words before they are kept: addresses of mail, keys, tokens, numbers of
cards and of accounts."""


def without_secrets(text: str, pattern: re.Pattern[str]) -> str:
    """Returns a body without what a pattern finds. JSON stays JSON: where a long number would
    leave none, a float stays as it is (a speed that a server measured has as many digits as a
    card), and a whole number becomes a string."""
    cleaned = pattern.sub(REDACTED, text)
    if cleaned == text or not _is_json(text) or _is_json(cleaned):
        return cleaned

    def clean(value: object) -> object:
        if isinstance(value, str):
            return pattern.sub(REDACTED, value)
        if isinstance(value, int) and not isinstance(value, bool):
            return REDACTED if pattern.search(str(value)) else value
        if isinstance(value, list):
            return [clean(one) for one in value]
        if isinstance(value, dict):
            return {pattern.sub(REDACTED, name): clean(one) for name, one in value.items()}
        return value

    try:
        return json.dumps(clean(json.loads(text)), ensure_ascii=False)
    except RecursionError:
        return cleaned


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
