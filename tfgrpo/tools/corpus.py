"""A local corpus: passages in a JSONL file, searched by BM25.

No network, no server, the same answers everywhere. `bm25s` (arXiv 2407.03618) weighs each word when
the index is made: when the corpus is opened for the first time. It is kept beside the store, by the
passages' digest; one that does not fit them is made anew. Words count without case and accents, by
their English stems; scripts without blanks sign by sign and by pairs of signs.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
import unicodedata
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from tfgrpo.tools.tool import ToolError

FORMAT = "1"
MOST_TERMS = 64
WORD = re.compile(r"[^\W_]+")
UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+")
"""Scripts without blanks between words: Chinese and Japanese."""
Stem: TypeAlias = Callable[[str], str]
FIXED = {"backend": "numpy", "csc_backend": "numpy", "auto_compile": False}


class CorpusError(ToolError):
    """A corpus that cannot be read; the message names the file and the line."""


class Passage(NamedTuple):
    """One document: where it is (`url`, else its id), its title and its text."""

    url: str
    title: str
    text: str


class Corpus:
    """The passages of a JSONL file. Rows hold `text`, and `title`, `url` and `id` where known. Its
    index is kept in the folder `indexes`, if there is one. Opening it may take a minute for a
    million passages, and belongs in a thread."""

    def __init__(self, path: Path, indexes: Path | None = None) -> None:
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise CorpusError(
                f"cannot read {path}: {error.strerror}", hint="give a JSONL file of passages"
            ) from None
        digest = hashlib.sha256(raw).hexdigest()
        self.name = f"corpus {digest[:16]}"
        """What tells it from others in the record: another file gives other answers."""
        self._passages = [
            _passage(path, n, line) for n, line in enumerate(raw.split(b"\n"), 1) if line.strip()
        ]
        if not self._passages:
            raise CorpusError(f"{path} contains no passages", hint='write {"title": …, "text": …}')
        self._by_url: dict[str, list[Passage]] = {}
        self._by_title: dict[str, Passage] = {}
        for passage in self._passages:
            self._by_url.setdefault(passage.url, []).append(passage)
            self._by_title.setdefault(passage.title, passage)
        words = [(passage.title, passage.text) for passage in self._passages]
        self._retriever = _opened(words, digest, indexes)

    def search(self, query: str, count: int) -> list[Passage]:
        """The passages that fit a query best, best first. Titles weigh twice."""
        return [self._passages[number] for number in _ranked(self._retriever, query, count)]

    def page_at(self, url: str) -> Passage | None:
        """The passage of that address, id or title; those of one address are one page."""
        pages = self._by_url.get(url)
        if pages is None:
            return self._by_title.get(url)
        return pages[0]._replace(text="\n\n".join(page.text for page in pages))


def _passage(path: Path, number: int, line: bytes) -> Passage:
    try:
        row = json.loads(line)
        text = row["text"]
        title = row.get("title") or ""
        addresses = (row.get(name) for name in ("url", "id", "title"))
        url = next(
            (str(address) for address in addresses if address not in (None, "")),
            f"passage-{number}",
        )
        if not isinstance(text, str):
            raise TypeError
        passage = Passage(url, str(title), text)
        "".join(passage).encode()  # half a character cannot be kept
        return passage
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise CorpusError(
            f"{path}:{number}: no passage", hint='a row is {"title": …, "text": …, "url": …}'
        ) from None


def _opened(passages: Sequence[tuple[str, str]], digest: str, folder: Path | None) -> Any:
    """A retriever of titles and texts: that of `digest` in a folder, or a new one, kept there. May
    take seconds."""
    path = folder / f"{digest[:32]}-{FORMAT}" if folder is not None else None
    retriever = _load(path, len(passages)) if path is not None else None
    if retriever is None:
        retriever = _build(passages)
        if path is not None:
            with suppress(OSError):
                _save(retriever, path)
    return retriever


def _ranked(retriever: Any, query: str, count: int) -> list[int]:
    """The numbers of the passages that fit a query best, best first. Of those that fit equally
    well the first ones come first; those that share no word with it are never among them."""
    import numpy as np

    vocabulary = retriever.vocab_dict
    stem = _stemmer()
    wanted = (_terms(stem, word, of_query=True) for word in _words(query))
    terms = dict.fromkeys(chain.from_iterable(wanted))
    term_ids = [vocabulary[term] for term in islice(terms, MOST_TERMS) if term in vocabulary]
    if not term_ids:
        return []
    scores = retriever.get_scores_from_ids(term_ids)
    fitting = np.flatnonzero(scores > 0)
    if len(fitting) > count:
        least = np.partition(scores[fitting], -count)[-count]
        fitting = fitting[scores[fitting] >= least]
    best = fitting[np.lexsort((fitting, -scores[fitting]))][:count]
    return [int(number) for number in best]


def _stemmer() -> Stem:
    """Returns what gives the stem of a word. For one thread alone."""
    import Stemmer

    stem: Stem = Stemmer.Stemmer("english").stemWord
    return stem


def _terms(stem: Stem, word: str, *, of_query: bool = False) -> list[str]:
    """What a word of a passage is found by, or, `of_query`, what a word of a query asks for."""
    word = _strip_accents(word)
    terms = [stem(part) for part in UNSPACED.sub(" ", word).split()]
    for run in UNSPACED.findall(word):
        pairs = [a + b for a, b in pairwise(run)]
        terms += pairs if of_query and pairs else [*run, *pairs]
    return terms


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

    stem = _stemmer()
    vocabulary: dict[str, int] = {}
    term_ids: dict[str, list[int]] = {}  # a word → the numbers of its terms

    def numbers(word: str) -> list[int]:
        term_ids[word] = numbered = [
            vocabulary.setdefault(term, len(vocabulary)) for term in _terms(stem, word)
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
        os.rename(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
