"""An index of passages by their words, for BM25: made once, kept in a folder, loaded the next time.

`bm25s` (arXiv 2407.03618) weighs each word when the index is made. Words count without case and
accents, by their English stems; scripts without blanks sign by sign and by pairs of signs. A kept
index goes by its passages' digest; one that does not fit them is made anew.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

FORMAT = "1"
MOST_TERMS = 64
WORD = re.compile(r"[^\W_]+")
UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+")
"""Scripts without blanks between words: Chinese and Japanese."""
FIXED = {"backend": "numpy", "csc_backend": "numpy", "auto_compile": False}


class PassageIndex:
    """Finds passages by their words. Opening one may take seconds: it belongs in a thread."""

    def __init__(self, retriever: Any) -> None:
        self._retriever = retriever

    @classmethod
    def open(
        cls, passages: Sequence[tuple[str, str]], digest: str, folder: Path | None
    ) -> PassageIndex:
        """An index of titles and texts: that of `digest` in a folder, or a new one, kept there."""
        path = folder / f"{digest[:32]}-{FORMAT}" if folder is not None else None
        loaded = _load(path, len(passages)) if path is not None else None
        if loaded is None:
            loaded = _build(passages)
            if path is not None:
                with suppress(OSError):
                    _save(loaded, path)
        return cls(loaded)

    def search(self, query: str, count: int) -> list[int]:
        """The numbers of the passages that fit a query best, best first. Of those that fit equally
        well the first ones come first; those that share no word with it are never among them."""
        import numpy as np

        vocabulary = self._retriever.vocab_dict
        of_query = _Terms().of_query
        terms = dict.fromkeys(term for word in _words(query) for term in of_query(word))
        term_ids = [vocabulary[term] for term in islice(terms, MOST_TERMS) if term in vocabulary]
        if not term_ids:
            return []
        scores = self._retriever.get_scores_from_ids(term_ids)
        fitting = np.flatnonzero(scores > 0)
        if len(fitting) > count:
            least = np.partition(scores[fitting], -count)[-count]
            fitting = fitting[scores[fitting] >= least]
        best = fitting[np.lexsort((fitting, -scores[fitting]))][:count]
        return [int(number) for number in best]


class _Terms:
    """Gives words the terms that they are found by, each word once. For one thread alone."""

    def __init__(self) -> None:
        import Stemmer

        self._stem = Stemmer.Stemmer("english").stemWord

    def of_passage(self, word: str) -> list[str]:
        """What a word of a passage is found by."""
        word = _strip_accents(word)
        return [self._stem(part) for part in UNSPACED.sub(" ", word).split()] + [
            term
            for run in UNSPACED.findall(word)
            for term in (*run, *(a + b for a, b in pairwise(run)))
        ]

    def of_query(self, word: str) -> list[str]:
        """What a word of a query asks for."""
        word = _strip_accents(word)
        return [self._stem(part) for part in UNSPACED.sub(" ", word).split()] + [
            term
            for run in UNSPACED.findall(word)
            for term in ((a + b for a, b in pairwise(run)) if len(run) > 1 else run)
        ]


def _words(text: str) -> list[str]:
    """The words of a text, without case; accents are signs of words here."""
    if text.isascii():
        return WORD.findall(text.lower())
    return WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def _strip_accents(word: str) -> str:
    if word.isascii():
        return word
    apart = unicodedata.normalize("NFKD", word)
    stripped = "".join(sign for sign in apart if not unicodedata.combining(sign))
    return unicodedata.normalize("NFC", stripped)


def _build(passages: Sequence[tuple[str, str]]) -> Any:
    """A retriever of passages. A word in a title counts as two in a text."""
    import bm25s
    from bm25s.tokenization import Tokenized

    terms = _Terms()
    vocabulary: dict[str, int] = {}
    term_ids: dict[str, list[int]] = {}  # a word → the numbers of its terms

    def numbers(word: str) -> list[int]:
        term_ids[word] = numbered = [
            vocabulary.setdefault(term, len(vocabulary)) for term in terms.of_passage(word)
        ]
        return numbered

    ids = []
    for title, text in passages:
        words = [*_words(title) * 2, *_words(text)]
        ids.append([n for word in words for n in term_ids.get(word) or numbers(word)])
    retriever = bm25s.BM25(**FIXED)
    if vocabulary:
        retriever.index(Tokenized(ids, vocabulary), create_empty_token=False, show_progress=False)
    else:
        retriever.vocab_dict = {}
    return retriever


def _load(path: Path, count: int) -> Any | None:
    """The retriever that is kept at a path, or None if none of so many passages is."""
    import bm25s

    if not path.is_dir():
        return None
    try:
        retriever = bm25s.BM25.load(path, override_params=FIXED, show_progress=False)
        scores, vocabulary = retriever.scores, retriever.vocab_dict
        data, rows, ends = scores["data"], scores["indices"], scores["indptr"]
        valid = (
            scores["num_docs"] == count
            and data.ndim == rows.ndim == ends.ndim == 1
            and (data.dtype, rows.dtype.kind, ends.dtype.kind) == ("float32", "i", "i")
            and len(ends) == len(vocabulary) + 1
            and ends[0] == 0
            and ends[-1] == len(rows) == len(data)
            and bool((ends[1:] >= ends[:-1]).all())
            and bool(((rows >= 0) & (rows < count)).all())
            and set(vocabulary.values()) == set(range(len(vocabulary)))
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, EOFError):
        return None
    return retriever if valid else None


def _save(retriever: Any, path: Path) -> None:
    """Writes an index beside its path and renames it, so that it is there whole or not at all."""
    if not retriever.vocab_dict:
        return
    path.parent.mkdir(mode=0o700, exist_ok=True)
    shutil.rmtree(path, ignore_errors=True)  # one that could not be read
    temporary = tempfile.mkdtemp(prefix=".index-", dir=path.parent)
    try:
        retriever.save(temporary, show_progress=False)
        for name in os.listdir(temporary):
            with open(os.path.join(temporary, name), "rb+") as file:
                os.fsync(file.fileno())
        os.rename(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
