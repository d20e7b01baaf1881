"""A local corpus: passages in a JSONL file, searched by BM25.

No network, no server, the same answers everywhere. The index is made when the corpus is opened
for the first time, and kept beside the store (`passage_index`).
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import NamedTuple

from tfgrpo.tools.passage_index import PassageIndex
from tfgrpo.tools.tool import ToolError


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
        self.digest = hashlib.sha256(raw).hexdigest()
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
        self._index = PassageIndex.open(words, self.digest, indexes)

    def search(self, query: str, count: int) -> list[Passage]:
        """The passages that fit a query best, best first. Titles weigh twice."""
        return [self._passages[number] for number in self._index.search(query, count)]

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
