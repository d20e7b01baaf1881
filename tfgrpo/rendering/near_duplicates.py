"""Texts that are alike, by the runs of two to four characters that they share, normalised (NFKC,
case and white space folded), in any language: a library is ranked by BM25 over them (Robertson and
Zaragoza 2009; McNamee and Mayfield 2004), two texts by their shared part.

Texts that say the same, or nearly: what a merge doubles, and what a run says again. Two repeat one
another where they are the same words in the same cyclic order, except for case, punctuation and up
to two letters at the end of a word (a plural), where letters have a case. Another word (a negation
is one), digit, operator, sign or unit makes them different, which n-grams alone cannot tell.
"""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Mapping
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tfgrpo.store.records import Library

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Terms: TypeAlias = NDArray[np.uint64]
    Counts: TypeAlias = NDArray[np.int64]


ALIKE = 0.6
"""The similarity by n-grams from which on texts of the same words are nearly the same."""
ENDING = 2
"""How many letters more a word may have at its end, to be another form of a word."""
STEM = 3
"""How many letters a word has at least that has other forms."""
QUOTES = "\"'`"
"""Quotes that Unicode does not tell from other punctuation."""
MOST_BEGINNINGS = 64
"""At how many places a text is tried to begin, before it is taken for another one."""


class NearDuplicate(NamedTuple):
    """An experience that came or changed, one that says nearly the same, and how nearly (%)."""

    new: str
    there: str
    likeness: float


def near_duplicates(before: Library, after: Library) -> list[NearDuplicate]:
    """Of each experience that came or changed, the nearest that was there; each pair once."""
    old = {e.id: e.text for e in before}
    texts = {e.id: e.text for e in after.readable if e.id in old}
    pairs: dict[frozenset[str], NearDuplicate] = {}
    for experience in after.readable:
        if old.get(experience.id) == experience.text:
            continue
        others = {id: text for id, text in texts.items() if id != experience.id}
        for there, likeness in repeats(experience.text, others)[:1]:
            pair = NearDuplicate(experience.id, there, 100 * likeness)
            pairs.setdefault(frozenset(pair[:2]), pair)
    return list(pairs.values())


def repeats(text: str, texts: Mapping[str, str]) -> list[tuple[str, float]]:
    """The ids of the texts that a text repeats, and how much alike they are, in (0, 1], best
    first; of those that are equally alike, the first ones first."""
    own = _Read(text)
    likeness = {id: own.likeness(_Read(other)) for id, other in texts.items()}
    return sorted((pair for pair in likeness.items() if pair[1]), key=lambda pair: -pair[1])


class _Read:
    def __init__(self, text: str) -> None:
        self._text = normalised(text)
        self._words = _words(self._text)
        self._raw = text

    def likeness(self, other: _Read) -> float:
        """How much alike two texts are that repeat one another; 0 for any others."""
        if len(self._words) != len(other._words):  # the cheapest first
            return 0.0
        if self._text != other._text and not _turned(self._words, other._words):
            return 0.0
        if _exact(self._raw) != _exact(other._raw):
            return 0.0
        alike = similarity(self._text, other._text)
        return alike if alike >= ALIKE else 0.0


def _words(text: str) -> list[str]:
    return ["".join(run) for kind, run in groupby(text, _kind) if kind]


def _kind(sign: str) -> str:
    if sign.isdecimal():
        return "digit"
    return "letter" if sign.isalnum() or unicodedata.category(sign)[0] == "M" else ""


def _turned(words: list[str], others: list[str]) -> bool:
    """Whether words are others in the same order, wherever that begins."""
    counts = Counter(words)
    rarest = min(range(len(words)), key=lambda at: counts[words[at]], default=0)
    starts = [at - rarest for at, other in enumerate(others) if _is_form(words[rarest], other)]
    return any(
        all(map(_is_form, words, (*others[at:], *others[:at]))) for at in starts[:MOST_BEGINNINGS]
    )


def _is_form(word: str, other: str) -> bool:
    """Whether two words are the same, or one is the other with an ending."""
    if word == other:
        return True
    short, long = sorted((word, other), key=len)
    return (
        len(short) >= STEM
        and len(long) - len(short) <= ENDING
        and long.startswith(short)
        and all(unicodedata.category(sign) == "Ll" for sign in long[len(short) :])
    )


def _exact(text: str) -> Counter[str]:
    """What has to be the same whatever the words are: runs of digits, and signs that reckon,
    compare or name a unit. Digits are read as written too: 10² is not 102."""
    plain = unicodedata.normalize("NFKC", text)
    return Counter([*_digits(text), *_digits(plain), *_operators(plain)])


def _digits(text: str) -> list[str]:
    return [
        "".join(str(unicodedata.decimal(sign)) for sign in run)
        for is_digits, run in groupby(text, str.isdecimal)
        if is_digits
    ]


def _operators(text: str) -> list[str]:
    """The signs of a text that are more than punctuation: symbols, percent and degrees, and
    those of ASCII between two words (`a/b`), before one (`-7`) or alone."""
    return [
        sign
        for before, sign, after in zip(f" {text}", text, f"{text[1:]} ", strict=False)
        if not sign.isalnum() and not sign.isspace() and _is_operator(before, sign, after)
    ]


def _is_operator(before: str, sign: str, after: str) -> bool:
    kind = unicodedata.category(sign)
    if kind in ("Sm", "Sc", "So") or unicodedata.bidirectional(sign) == "ET":
        return True
    if kind not in ("Po", "Pd", "Sk") or not sign.isascii() or sign in QUOTES:
        return False
    if any(unicodedata.east_asian_width(beside) in "WF" for beside in (before, after)):
        return False
    if after.isalnum():
        return not before.isalnum() or kind != "Pd"
    return before.isspace() and after.isspace()


SIZES = (2, 3, 4)
"""How many characters a term has."""
SATURATION = 1.2
"""BM25's k1: how soon a further occurrence of a term in a text counts no more."""
LENGTH = 0.75
"""BM25's b: how much the length of a text takes from its terms."""
MIX = 0x9E3779B97F4A7C15
"""An odd number without a pattern (2^64 divided by the golden ratio): what terms are hashed by."""
DECIMALS = 9
"""Scores that are the same up to here are equal: sums in another order differ behind it."""


def normalised(text: str) -> str:
    """A text without what is only a matter of writing it: case, width, white space."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(unicodedata.normalize("NFKC", folded).split())


def similarity(one: str, other: str) -> float:
    """How much alike two texts are, in [0, 1]: Dice's coefficient over their terms."""
    import numpy as np

    (terms, counts), (others, other_counts) = _terms(one), _terms(other)
    _, here, there = np.intersect1d(terms, others, assume_unique=True, return_indices=True)
    both = int(np.minimum(counts[here], other_counts[there]).sum())
    return 2 * both / int(counts.sum() + other_counts.sum())


class PlainIndex:
    """The same as `NgramIndex` without numpy, for a copy of the reading part alone: slower."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        """`texts` are those of ids, in the order in which equal ones are to come."""
        self._counts = {id: _plain_terms(text) for id, text in texts.items()}
        lengths = {id: sum(counts.values()) for id, counts in self._counts.items()}
        mean = sum(lengths.values()) / max(1, len(lengths))
        self._norms = {
            id: SATURATION * (1 - LENGTH + LENGTH * length / mean) for id, length in lengths.items()
        }
        self._holders = Counter(term for counts in self._counts.values() for term in counts)

    def ranked(self, text: str) -> list[str]:
        """The ids of all texts, those that fit a text best first, then in their order."""
        wanted, size = _plain_terms(text), len(self._counts) + 1
        scores = {
            id: sum(
                math.log1p((size - self._holders[term] + 0.5) / (self._holders[term] + 0.5))
                * counts[term]
                / (counts[term] + self._norms[id])
                for term in wanted
                if term in counts
            )
            for id, counts in self._counts.items()
        }
        return sorted(scores, key=lambda id: -round(scores[id], DECIMALS))


def _plain_terms(text: str) -> Counter[str]:
    written = f" {normalised(text)} "
    return Counter(
        written[at : at + size] for size in SIZES for at in range(len(written) - size + 1)
    )


class NgramIndex:
    """Texts, ready to be ranked by how well they fit another one."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        """`texts` are those of ids, in the order in which equal ones are to come."""
        import numpy as np

        self._ids = list(texts)
        read = [_terms(text) for text in ("", *texts.values())]  # so that there is one
        sizes = [len(terms) for terms, _ in read]
        lengths = np.array([counts.sum() for _, counts in read])
        terms = np.concatenate([terms for terms, _ in read])
        order = np.argsort(terms, kind="stable")
        counts = np.concatenate([counts for _, counts in read])[order]
        self._texts = np.repeat(np.arange(len(read)), sizes)[order]
        self._terms, self._starts, self._holders = np.unique(
            terms[order], return_index=True, return_counts=True
        )
        rarity = np.log1p((len(read) - self._holders + 0.5) / (self._holders + 0.5))
        norms = (
            SATURATION * (1 - LENGTH + LENGTH * lengths / lengths[1:].mean()) if texts else lengths
        )
        self._weights = np.repeat(rarity, self._holders) * counts / (counts + norms[self._texts])

    def ranked(self, text: str) -> list[str]:
        """The ids of all texts, those that fit a text best first, then in their order."""
        import numpy as np

        wanted, _ = _terms(text)
        at = np.searchsorted(self._terms, wanted)
        at = at[at < len(self._terms)]
        known = at[self._terms[at] == wanted[: len(at)]]
        starts, holders = self._starts[known], self._holders[known]
        ends = np.cumsum(holders)
        entries = np.arange(holders.sum()) + np.repeat(starts - ends + holders, holders)
        scores = np.bincount(
            self._texts[entries], self._weights[entries], len(self._ids) + 1
        ).round(DECIMALS)
        return [self._ids[number] for number in np.argsort(-scores[1:], kind="stable")]


def _terms(text: str) -> tuple[Terms, Counts]:
    """A text's distinct terms as ascending numbers, and how often each; its ends count as
    blanks."""
    import numpy as np

    written = f" {normalised(text)} ".encode("utf-32-le", "surrogatepass")
    signs = np.frombuffer(written, "<u4").astype(np.uint64) + np.uint64(1)
    of_sizes = []
    rolled = np.zeros(len(signs), np.uint64)
    for size in range(1, min(max(SIZES), len(signs)) + 1):
        mixed = (rolled[: len(signs) - size + 1] ^ signs[size - 1 :]) * np.uint64(MIX)
        rolled = mixed ^ (mixed >> np.uint64(32))
        if size in SIZES:
            of_sizes.append(rolled)
    terms, counts = np.unique(np.concatenate(of_sizes), return_counts=True)
    return terms, counts
