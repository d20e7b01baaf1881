"""A local corpus: passages in a JSONL file, searched by BM25 in SQLite's FTS5.

No network, no server, the same answers everywhere: the index is made once in memory from the
file (a second for ten thousand passages) and thrown away with the process.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from pathlib import Path
from typing import NamedTuple

from tfgrpo.tools.tool import ToolError

WORD = re.compile(r"\w+", re.UNICODE)


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
                f"cannot read {path}: {error.strerror}", hint="name a JSONL file of passages"
            ) from None
        self.digest = hashlib.sha256(raw).hexdigest()
        self._db = sqlite3.connect(":memory:", check_same_thread=False)
        self._db.execute(
            "create virtual table passages using fts5(title, text, url unindexed,"
            " tokenize = 'porter unicode61 remove_diacritics 2')"
        )
        rows = [
            _passage(path, n, line) for n, line in enumerate(raw.split(b"\n"), 1) if line.strip()
        ]
        if not rows:
            raise CorpusError(f"{path} holds no passages", hint='write {"title": …, "text": …}')
        self._db.executemany("insert into passages (url, title, text) values (?, ?, ?)", rows)
        self._db.execute("create table places (url text primary key, row integer)")
        self._db.execute("insert or ignore into places select url, rowid from passages")

    def search(self, query: str, count: int) -> list[Passage]:
        """Returns the passages that fit a query best, best first. Titles weigh twice."""
        words = WORD.findall(query)[:64]
        if not words:
            return []
        found = self._db.execute(
            "select url, title, text from passages where passages match ?"
            " order by bm25(passages, 2.0, 1.0), rowid limit ?",
            (" OR ".join(f'"{word}"' for word in words), count),
        )
        return [Passage._make(row) for row in found]

    def at(self, url: str) -> Passage | None:
        """Returns the passage of that address, id or title."""
        found = self._db.execute(
            "select p.url, p.title, p.text from places join passages p on p.rowid = places.row"
            " where places.url = ?",
            (url,),
        ).fetchone()
        if found is None:
            query = "select url, title, text from passages where title = ? limit 1"
            found = self._db.execute(query, (url,)).fetchone()
        return None if found is None else Passage._make(found)

    def close(self) -> None:
        """Lets go of the index."""
        self._db.close()


def _passage(path: Path, number: int, line: bytes) -> Passage:
    try:
        row = json.loads(line)
        text = row["text"]
        title = row.get("title") or ""
        url = row.get("url") or row.get("id") or title or f"passage-{number}"
        if not isinstance(text, str):
            raise TypeError
        return Passage(str(url), str(title), text)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CorpusError(
            f"{path}:{number}: no passage", hint='a row is {"title": …, "text": …, "url": …}'
        ) from None
