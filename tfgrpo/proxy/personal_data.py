"""Personal data in words that are kept: what a regular expression finds, numbers of telephones as
Google's library of their plans knows them, and addresses of machines.

Names of people are none of it: nothing finds them without a model. Name them with `--redact`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from ipaddress import ip_address
from types import ModuleType
from typing import Protocol

from tfgrpo.store.errors import SettingsError, install_hint

LONGEST = 64 << 10
"""Letters of a text that are read by the plans of numbers, which takes some 30 µs each at the
worst; of a longer one every number that may be one is taken out."""
_digits = re.compile(r"\+?\(?\d(?:[ ()./-]{0,3}\d){6,17}")
_addresses = re.compile(
    r"(?<![A-Za-z0-9_.:])(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7})"
    r"(?![A-Za-z0-9_:]|\.[A-Za-z0-9_])"
)


class Finder(Protocol):
    """What finds texts to be taken out: a regular expression does."""

    def search(self, text: str, /) -> object | None:
        """Returns something where there is one."""

    def sub(self, replacement: str, text: str, /) -> str:
        """Returns the text without them."""

    def subn(self, replacement: str, text: str, /) -> tuple[str, int]:
        """Returns the text without them, and how many there were."""


class PersonalData:
    """Finds what a pattern finds, telephones and machines. `regions` are the countries (`DE`) whose
    numbers are known as they are written there; international ones are known always."""

    def __init__(self, pattern: re.Pattern[str], regions: Sequence[str]) -> None:
        """Raises SettingsError."""
        self._pattern = pattern
        self._library = plans()
        self._regions = checked_regions(regions) or (None,)

    def search(self, text: str, /) -> object | None:
        return self._pattern.search(text) or next(self._spans(text), None)

    def sub(self, replacement: str, text: str, /) -> str:
        return self.subn(replacement, text)[0]

    def subn(self, replacement: str, text: str, /) -> tuple[str, int]:
        text, count = self._pattern.subn(replacement, text)
        pieces, at = [], 0
        for start, end in sorted(self._spans(text)):
            if end <= at:
                continue
            pieces += [text[at : max(at, start)], replacement] if start >= at else []
            at, count = end, count + 1
        return "".join([*pieces, text[at:]]), count

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        for match in _addresses.finditer(text):
            if _is_address(match[0]):
                yield match.span()
        if not _digits.search(text):
            return
        if len(text) > LONGEST:
            yield from (match.span() for match in _digits.finditer(text))
            return
        for region in self._regions:
            for number in self._library.PhoneNumberMatcher(text, region):
                yield number.start, number.end


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
