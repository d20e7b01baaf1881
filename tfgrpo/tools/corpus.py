"""A local corpus: passages in a JSONL file, searched by BM25 in SQLite's FTS5.

No network, no server, the same answers everywhere: the index is made once in memory from the
file (a second for ten thousand passages) and thrown away with the process. Scripts without blanks
between words are indexed sign by sign, and found by each two that follow one another.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple

from tfgrpo.tools.tool import ToolError

WORD = re.compile(r"\w+", re.UNICODE)
UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
"""Signs of scripts without blanks between words: Chinese and Japanese."""
MOST_TERMS = 64


class CorpusError(ToolError):
    """A corpus that cannot be read; the message names the file and the line."""


class Passage(NamedTuple):
    """One document: where it is (`url`, else its id), its title and its text."""

    url: str
    title: str
    text: str


class Corpus:
    """The passages of a JSONL file. Rows hold `text`, and `title`, `url` and `id` where known."""

    def __init__(self, path: Path) -> None:
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise CorpusError(
                f"cannot read {path}: {error.strerror}", hint="give a JSONL file of passages"
            ) from None
        self.digest = hashlib.sha256(raw).hexdigest()
        rows = [
            _passage(path, n, line) for n, line in enumerate(raw.split(b"\n"), 1) if line.strip()
        ]
        if not rows:
            raise CorpusError(f"{path} contains no passages", hint='write {"title": …, "text": …}')
        self._db = sqlite3.connect(":memory:", check_same_thread=False)
        self._db.execute(
            "create virtual table found using fts5(title, text, content = '',"
            " tokenize = 'porter unicode61 remove_diacritics 2')"
        )
        self._db.execute("create table passages (url text, title text, text text)")
        self._db.executemany("insert into passages values (?, ?, ?)", rows)
        self._db.executemany(
            "insert into found (rowid, title, text) values (?, ?, ?)",
            ((n, _apart(row.title), _apart(row.text)) for n, row in enumerate(rows, 1)),
        )
        self._db.execute("create index by_url on passages (url)")
        self._db.execute("create index by_title on passages (title)")

    def search(self, query: str, count: int) -> list[Passage]:
        """Returns the passages that fit a query best, best first. Titles weigh twice."""
        terms = list(islice(_terms(query), MOST_TERMS))
        if not terms:
            return []
        rows = self._db.execute(
            "select p.url, p.title, p.text from found join passages p on p.rowid = found.rowid"
            " where found match ? order by bm25(found, 2.0, 1.0), found.rowid limit ?",
            (" OR ".join(f'"{term}"' for term in terms), count),
        )
        return [Passage._make(row) for row in rows]

    def page_at(self, url: str) -> Passage | None:
        """Returns the passage of that address, id or title; those of one address are one page."""
        query = "select url, title, text from passages where url = ? order by rowid"
        rows = self._db.execute(query, (url,)).fetchall()
        if not rows:
            query = "select url, title, text from passages where title = ? order by rowid limit 1"
            rows = self._db.execute(query, (url,)).fetchall()
        if not rows:
            return None
        first, *_ = pages = [Passage._make(row) for row in rows]
        return first._replace(text="\n\n".join(page.text for page in pages))

    def close(self) -> None:
        """Lets go of the index."""
        self._db.close()


def _terms(query: str) -> Iterator[str]:
    """Yields the words of a query; of a script without blanks, each two signs that follow."""
    for word in WORD.findall(query):
        yield from UNSPACED.sub(" ", word).split()
        for run in re.findall(f"{UNSPACED.pattern}+", word):
            yield from (f"{a} {b}" for a, b in pairwise(run)) if len(run) > 1 else run


def _apart(text: str) -> str:
    """Returns a text in which each sign of a script without blanks is a word."""
    return text if text.isascii() else UNSPACED.sub(r" \g<0> ", text)


def _passage(path: Path, number: int, line: bytes) -> Passage:
    try:
        row = json.loads(line)
        text = row["text"]
        title = row.get("title") or ""
        known = (row.get(name) for name in ("url", "id", "title"))
        url = next((str(place) for place in known if place not in (None, "")), f"passage-{number}")
        if not isinstance(text, str):
            raise TypeError
        passage = Passage(url, str(title), text)
        "".join(passage).encode()  # half a character cannot be kept
        return passage
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise CorpusError(
            f"{path}:{number}: no passage", hint='a row is {"title": …, "text": …, "url": …}'
        ) from None
