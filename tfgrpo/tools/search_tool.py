"""The search tool, over whatever searches: a local corpus or an HTTP provider."""

from __future__ import annotations

import asyncio
from typing import Protocol

from tfgrpo.tools.corpus import Corpus, Passage
from tfgrpo.tools.tool import Arguments, Result, Tool, ToolFailure, ToolSpec, cut, text_argument

SNIPPET = 500
SPEC = ToolSpec(
    name="search",
    description="Searches and returns titles, addresses and the beginning of each result.",
    parameters={
        "type": "object",
        "properties": {"query": {"type": "string", "description": "A few words to look for."}},
        "required": ["query"],
        "additionalProperties": False,
    },
)


class SearchBackend(Protocol):
    """Something that can be searched."""

    @property
    def name(self) -> str:
        """What tells it from others in the record: its kind, and a digest of what it is made of."""

    async def search(self, query: str, count: int) -> list[Passage]:
        """Returns results, best first. Raises ToolFailure when it cannot."""


class CorpusBackend:
    """A local corpus as a backend."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus

    @property
    def name(self) -> str:
        """The corpus's digest: another file gives other answers."""
        return f"corpus {self._corpus.digest[:16]}"

    async def search(self, query: str, count: int) -> list[Passage]:
        """The best passages."""
        return await asyncio.to_thread(self._corpus.search, query, count)


class Search(Tool):
    """The search tool. `count` is how many results a query gives, in so many characters."""

    spec = SPEC

    def __init__(self, backend: SearchBackend, *, count: int = 5, characters: int = 8000) -> None:
        self._backend = backend
        self._count = count
        self._characters = characters

    @property
    def state(self) -> str:
        """What is searched, and how many results are given."""
        return f"{self._backend.name} {self._count}"

    async def call(self, arguments: Arguments) -> Result:
        """Searches for `query`."""
        query = text_argument(arguments, "query")
        if query is None:
            return Result("search takes one argument, query, as a text", failed=True)
        try:
            passages = await self._backend.search(query, self._count)
        except ToolFailure as failure:
            return Result(f"search failed: {failure}", failed=True)
        listed = "\n\n".join(map(_format_passage, range(1, len(passages) + 1), passages))
        return Result(cut(listed, self._characters) or "no results")


def _format_passage(number: int, passage: Passage) -> str:
    text = " ".join(passage.text.split())
    if len(text) > SNIPPET:
        text = text[:SNIPPET].rsplit(" ", 1)[0] + " …"
    return f"{number}. {passage.title or passage.url} <{passage.url}>\n{text}"
