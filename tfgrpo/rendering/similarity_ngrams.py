"""How much alike texts are by the runs of two to four characters that they share, normalised
(NFKC, case and white space folded), in any language: a library is ranked by BM25 over them
(Robertson and Zaragoza 2009; McNamee and Mayfield 2004), two texts by their shared part."""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Terms: TypeAlias = NDArray[np.uint64]
    Counts: TypeAlias = NDArray[np.int64]

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
