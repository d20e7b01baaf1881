"""What is taken out of words before they are kept: secrets, what a regular expression finds, and
personal data: numbers of telephones as Google's library of their plans knows them, and addresses of
machines. Names of people are none of it: nothing finds them without a model. Name them with
`--redact`.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from ipaddress import ip_address
from types import ModuleType

from tfgrpo.store.activity.traffic import Feedback
from tfgrpo.store.errors import SettingsError, install_hint
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
_secrets = re.compile("|".join(PATTERNS))
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
LONGEST = 64 << 10
"""Letters of a text that are read by the plans of numbers, which takes some 30 µs each at the
worst; of a longer one every number that may be one is taken out."""
_digits = re.compile(r"\+?\(?\d(?:[ ()./-]{0,3}\d){6,17}")
_addresses = re.compile(
    r"(?<![A-Za-z0-9_.:])(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7})"
    r"(?![A-Za-z0-9_:]|\.[A-Za-z0-9_])"
)
FEW = 3
"""Letters that a text may end with by chance."""


class Finder:
    """Finds secrets, what the regular expressions `redact` find and, where `regions` are given,
    personal data. They are the countries (`DE`) whose telephones are known as they are written
    there; international ones are known always."""

    def __init__(self, redact: tuple[str, ...] = (), regions: Sequence[str] | None = None) -> None:
        """Raises SettingsError."""
        self._patterns = (_secrets, *map(_expression, filter(None, redact)))
        self._values: tuple[str, ...] = ()
        self._finds_numbers = regions is not None
        self._regions: tuple[str | None, ...] = ()
        if regions is not None:
            self._plans = plans()
            self._regions = checked_regions(regions) or (None,)

    @classmethod
    def of(cls, values: Iterable[bytes]) -> Finder:
        """Returns one that finds these texts alone."""
        alone = cls().beside(values)
        alone._patterns = ()
        return alone

    def beside(self, values: Iterable[bytes]) -> Finder:
        """Returns one that finds these texts too, before all else: an expression may find a part of
        one. Nothing keeps them but what is returned."""
        other = copy.copy(self)
        texts = {value.decode(errors="replace") for value in values}
        other._values = tuple(sorted(texts, key=len, reverse=True))
        return other

    def without_half(self, text: str) -> str:
        """Returns a text that was cut off without the beginning of one of these texts at its end,
        where that is more than a few letters."""
        for value in self._values:
            for length in range(len(value) - 1, FEW, -1):
                if text.endswith(value[:length]):
                    return text[:-length] + REDACTED
        return text

    def of_names(self) -> Finder:
        """Returns one for names of models, which finds all but numbers of telephones: a date in a
        name looks like one of some country's."""
        other = copy.copy(self)
        other._finds_numbers = False
        return other

    def search(self, text: str) -> bool:
        """Whether there is anything in a text."""
        return self.subn("", text)[1] > 0

    def sub(self, replacement: str, text: str) -> str:
        """A text with a replacement for all that is found."""
        return self.subn(replacement, text)[0]

    def subn(self, replacement: str, text: str) -> tuple[str, int]:
        """What `sub` returns, and how often something was found."""
        count, pieces, at = 0, [], 0
        for value in self._values:
            count += text.count(value)
            text = text.replace(value, replacement)
        for pattern in self._patterns:
            text, more = pattern.subn(replacement, text)
            count += more
        for start, end in sorted(self._spans(text)):
            if end <= at:
                continue
            pieces += [text[at : max(at, start)], replacement] if start >= at else []
            at, count = end, count + 1
        return "".join([*pieces, text[at:]]), count

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        if not self._regions:
            return
        for match in _addresses.finditer(text):
            if _is_address(match[0]):
                yield match.span()
        if not self._finds_numbers or not _digits.search(text):
            return
        if len(text) > LONGEST:
            yield from (match.span() for match in _digits.finditer(text))
            return
        for region in self._regions:
            for number in self._plans.PhoneNumberMatcher(text, region):
                yield number.start, number.end


def _expression(written: str) -> re.Pattern[str]:
    if not isinstance(written, str):
        raise SettingsError(f"redact: {written!r} is no text", hint="a regular expression")
    try:
        return re.compile(written)
    except (re.error, OverflowError, RecursionError) as error:
        raise SettingsError(f"redact: {written!r}: {error}", hint="a regular expression") from None


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


def clean_feedback(feedback: Feedback, pattern: Finder) -> Feedback:
    """Returns feedback without what a pattern finds, in its label, its comment and its right
    answer."""
    label, comment, correct = feedback.label, feedback.comment, feedback.correct
    return feedback._replace(
        label=label and pattern.sub(REDACTED, label),
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


def plans() -> ModuleType:
    """Returns the library of telephone numbers. Raises SettingsError."""
    try:
        import phonenumbers
    except ModuleNotFoundError:
        raise SettingsError("personal needs phonenumbers", hint=install_hint("privacy")) from None
    return phonenumbers


def checked_regions(regions: Sequence[str]) -> tuple[str, ...]:
    """Returns countries in capitals. Raises SettingsError."""
    known = plans().SUPPORTED_REGIONS
    named = tuple(region.upper() for region in regions)
    for region in named:
        if region not in known:
            raise SettingsError(f"personal: no country is {region!r}", hint="two letters, as DE")
    return named


def _is_address(text: str) -> bool:
    """Returns whether a text is the address of a machine; one's own is nobody's."""
    try:
        address = ip_address(text)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified)
