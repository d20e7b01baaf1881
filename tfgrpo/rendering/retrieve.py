"""Retrieval: the experiences that fit a problem best, by BM25 in SQLite's FTS5.

The usual way is to inject the whole library: every prompt then begins alike, which providers'
prompt caches pay for, and nothing that helps is missed. A library of hundreds of experiences may
be better served in part. Ranking is deterministic: by BM25 over stemmed words, then by library
order, and experiences that share no word with the problem come last.
"""

from __future__ import annotations

import re
import sqlite3
import weakref
from collections.abc import Collection, Mapping
from functools import cached_property, lru_cache

from tfgrpo.rendering.examples import is_example
from tfgrpo.store.records import Library

WORD = re.compile(r"\w+", re.UNICODE)
MOST_WORDS = 256
"""Distinct words of a problem that are searched for."""


class Part(Library):
    """A part of a library, in its order and with its labels."""

    def __init__(self, whole: Library, ids: Collection[str]) -> None:
        super().__init__(whole.version, tuple(e for e in whole if e.id in ids))
        self._whole = whole

    @cached_property
    def labels(self) -> Mapping[str, str]:
        """Label → experience id, as in the whole library."""
        return {label: id for label, id in self._whole.labels.items() if id in self.by_id}


class Index:
    """The readable experiences of a library, in memory, ready to be searched."""

    def __init__(self, library: Library) -> None:
        self._ids = [e.id for e in library.readable]
        self._db = sqlite3.connect(":memory:", check_same_thread=False)
        weakref.finalize(self, self._db.close)
        self._db.execute(
            "create virtual table experiences using fts5(text, content = '',"
            " tokenize = 'porter unicode61 remove_diacritics 2')"
        )
        rows = [(row, e.text) for row, e in enumerate(library.readable)]
        self._db.executemany("insert into experiences (rowid, text) values (?, ?)", rows)

    def ranked(self, text: str) -> list[str]:
        """Returns the ids of all experiences, those that fit a text best first."""
        words = list(dict.fromkeys(WORD.findall(text.casefold())))[:MOST_WORDS]
        rows = self._db.execute(
            "select rowid from experiences where experiences match ?"
            " order by bm25(experiences), rowid",
            (" OR ".join(f'"{word}"' for word in words) or '""',),
        )
        matching = [self._ids[row] for (row,) in rows]
        matched_ids = set(matching)
        return [*matching, *(id for id in self._ids if id not in matched_ids)]


@lru_cache(maxsize=8)
def index(library: Library) -> Index:
    """Returns the index of a library; those used last are kept."""
    return Index(library)


def relevant(
    library: Library, problem: str, top_k: int | None, *, always: Collection[str] = ()
) -> Library:
    """Returns the `top_k` experiences that fit a problem best, in library order and with the
    labels that they have in the whole library, which comes back as it is where `top_k` is None
    or covers it. The experiences in `always` are among them. Examples come beside them, all of
    them: they are turns of their own, and have a largest size of their own.
    """
    if top_k is None:
        return library
    examples = {e.id for e in library.readable if is_example(e.text)}
    if len(library.readable) - len(examples) <= top_k:
        return library
    first = [id for id in always if id in library.by_id]
    ranked = [id for id in index(library).ranked(problem) if id not in examples.union(first)]
    return Part(library, {*examples, *first, *ranked[: max(0, top_k - len(first))]})
