"""What is taken out of words before they are kept."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

from tfgrpo.proxy.personal_data import Finder, PersonalData
from tfgrpo.store.activity.traffic import Feedback
from tfgrpo.store.records import REDACTED

START = r"(?:(?<![A-Za-z0-9_])|(?<=\\[bfnrt])|(?<=\\u[0-9a-fA-F]{4}))"
"""Where a word of ASCII begins: behind letters of a script without blanks too, and behind what
stands for a line break in a JSON string."""
END = r"(?![A-Za-z0-9_])"
PATTERNS = (
    START + r"[\w.+-]{1,254}@[\w-]+\.[\w.-]+\b",
    START + r"(?:sk|pk|rk|tfk|ghp|gho|xox[abp]|AKIA|AIza)[-_A-Za-z0-9]{12,}",
    START + r"eyJ[\w-]{8,4000}\.[\w-]{8,}\.[\w-]*",
    START + r"\d(?:[ -]?\d){12,18}" + END,
    START + r"[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2}"
    r"(?: ?[A-Z0-9]{3}|(?: ?[A-Z0-9]{4})+(?: ?[A-Z0-9]{1,3})?)" + END,
)
"""What is taken out of words before they are kept: addresses of mail, keys, tokens, numbers of
cards and of accounts. What may begin at many places is bounded: it would be read over at each."""
WITHIN = 3
"""How deep strings of JSON stand in strings of JSON that was cut off."""
_identities = re.compile(
    r'("(?:(?:end_?)?user(?:_?(?:id|name))?|(?:customer|session|account|client)_?id'
    r"|safety_?identifier|prompt_?cache_?key|conversation(?:_?id)?)"
    r'"\s*:\s*(?:\{\s*"id"\s*:\s*)?)(?:"((?:[^"\\]|\\.)*)(?:"|\Z)|(-?\d+(?:\.\d+)?))',
    re.DOTALL | re.IGNORECASE,
)
"""The keys that say whom a request is for, each with its value, a text or a number."""
_escapes = re.compile(r"(?:\\(?:u[0-9a-fA-F]{4}|[\"\\/bfnrt]))+")


def finder(redact: str = "", regions: Sequence[str] | None = None) -> Finder:
    """Returns what finds secrets, what the regular expression `redact` finds and, where `regions`
    are given, personal data. Raises SettingsError."""
    pattern = re.compile("|".join(filter(None, (*PATTERNS, redact))))
    return pattern if regions is None else PersonalData(pattern, regions)


def without_secrets(text: str, pattern: Finder) -> str:
    """Returns a body without what a pattern finds in its texts. JSON stays JSON: a float stays as
    it is (a speed that a server measured has as many digits as a card), and a whole number becomes
    a string. JSON that was cut off is cleaned as the text that it stands for."""
    try:
        value = json.loads(text)
        cleaned = _clean(value, pattern)
        return text if cleaned == value else json.dumps(cleaned, ensure_ascii=False)
    except (ValueError, RecursionError):
        return _clean_cut_off(text, pattern) if _is_begun(text) else pattern.sub(REDACTED, text)


def clean_feedback(
    feedback: Feedback, redact: str = "", regions: Sequence[str] | None = None
) -> Feedback:
    """Returns feedback without what a `finder` finds, in its comment and its right answer."""
    pattern = finder(redact, regions)
    comment, correct = feedback.comment, feedback.correct
    return feedback._replace(
        comment=comment and pattern.sub(REDACTED, comment),
        correct=correct and pattern.sub(REDACTED, correct),
    )


def without_identities(text: str, digest: Callable[[str], str]) -> str:
    """Returns the JSON of a request or an answer, cut off or not, with digests in the place of whom
    it says that it is for: such keys with a value, wherever they stand outside of strings."""

    def digested(match: re.Match[str]) -> str:
        try:
            value = match[3] or str(json.loads(f'"{match[2]}"'))
        except ValueError:
            return f'{match[1]}"{REDACTED}"'
        return f'{match[1]}"{digest(value)}"'

    return _identities.sub(digested, text)


def _clean(value: object, pattern: Finder) -> object:
    if isinstance(value, str):  # which may be JSON itself, as the arguments of a tool are
        within = _is_begun(value)
        return without_secrets(value, pattern) if within else pattern.sub(REDACTED, value)
    if isinstance(value, int) and not isinstance(value, bool):
        return REDACTED if pattern.search(str(value)) else value
    if isinstance(value, list):
        return [_clean(one, pattern) for one in value]
    if isinstance(value, dict):
        return {pattern.sub(REDACTED, name): _clean(one, pattern) for name, one in value.items()}
    return value


def _clean_cut_off(text: str, pattern: Finder) -> str:
    """Returns JSON without its end as the text that it stands for, less what a pattern finds in
    it, or in JSON within its strings; as it is where that is nothing."""
    written, count = pattern.subn(REDACTED, text)
    for _ in range(WITHIN):
        written, more = pattern.subn(REDACTED, _escapes.sub(_written_out, written))
        count += more
    return written if count else text


def _is_begun(text: str) -> bool:
    return text.lstrip()[:1] in ("{", "[")


def _written_out(escapes: re.Match[str]) -> str:
    """Returns what escapes of a JSON string stand for; half of a surrogate pair is no letter."""
    letters: str = json.loads(f'"{escapes[0]}"')
    return letters.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
