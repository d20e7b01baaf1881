"""The tools `search`, over a local corpus or an HTTP provider, and `visit`, the readable text of a
page or of a passage of the corpus."""

from __future__ import annotations

import asyncio
from dataclasses import KW_ONLY, dataclass

from tfgrpo.tools.corpus import Corpus, Passage
from tfgrpo.tools.http_fetch import FetchError, Page, fetch
from tfgrpo.tools.search_provider import Provider
from tfgrpo.tools.tool import Arguments, Result, Tool, ToolFailure, cut, text_argument, text_spec

SNIPPET = 500


@dataclass(eq=False)
class Search(Tool):
    """The search tool. `count` is how many results a query gives, in so many characters."""

    spec = text_spec(
        "search",
        "Searches and returns titles, addresses and the beginning of each result.",
        "query",
        "A few words to look for.",
    )

    source: Corpus | Provider
    _: KW_ONLY
    count: int = 5
    characters: int = 8000

    @property
    def state(self) -> str:
        """What is searched, and how many results are given."""
        return f"{self.source.name} {self.count}"

    async def call(self, arguments: Arguments) -> Result:
        """Searches for `query`."""
        query, source = text_argument(arguments, "query"), self.source
        if query is None:
            return Result("search takes one argument, query, as a text", failed=True)
        try:
            if isinstance(source, Corpus):
                passages = await asyncio.to_thread(source.search, query, self.count)
            else:
                passages = await source.search(query, self.count)
        except ToolFailure as failure:
            return Result(f"search failed: {failure}", failed=True)
        listed = "\n\n".join(map(_format_passage, range(1, len(passages) + 1), passages))
        return Result(cut(listed, self.characters) or "no results")


def _format_passage(number: int, passage: Passage) -> str:
    text = " ".join(passage.text.split())
    if len(text) > SNIPPET:
        text = text[:SNIPPET].rsplit(" ", 1)[0] + " …"
    return f"{number}. {passage.title or passage.url} <{passage.url}>\n{text}"


@dataclass(eq=False)
class Visit(Tool):
    """The visit tool. With a corpus, its passages are what can be visited, and nothing else."""

    spec = text_spec(
        "visit",
        "Returns the readable text of the page at an address.",
        "url",
        "An address that search gave.",
    )

    corpus: Corpus | None = None
    _: KW_ONLY
    characters: int = 8000
    private: bool = False

    @property
    def state(self) -> str:
        """What is visited, and how much of it is given."""
        return f"{self.corpus.name if self.corpus else 'web'} {self.characters}"

    async def call(self, arguments: Arguments) -> Result:
        """The text at `url`, cut to the limit."""
        url = text_argument(arguments, "url")
        if url is None:
            return Result("visit takes one argument, url, as a text", failed=True)
        url = url.strip().strip("<>")
        if self.corpus is not None:
            passage = self.corpus.page_at(url)
            if passage is None:
                return Result(f"there is no page {url!r}; use an address that search gave", True)
            return Result(cut(f"{passage.title}\n\n{passage.text}".strip(), self.characters))
        try:
            page = await asyncio.to_thread(fetch, url, private=self.private)
            return Result(cut(await asyncio.to_thread(readable, page), self.characters))
        except FetchError as error:
            return Result(f"visit failed: {error}", failed=True)


def readable(page: Page) -> str:
    """What a person would read on a page. Raises FetchError when that is nothing."""
    if page.type in ("text/plain", "text/markdown", "application/json"):
        return page.body.decode("utf-8", "replace")
    if page.type not in ("text/html", "application/xhtml+xml"):
        raise FetchError(f"{page.url} is {page.type}, which has no text to read")
    import trafilatura

    text = trafilatura.extract(
        page.body, url=page.url, output_format="markdown", with_metadata=False
    )
    if not text:
        raise FetchError(f"{page.url} holds no text to read")
    return text
