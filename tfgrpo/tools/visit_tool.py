"""The visit tool: the readable text of a page, or of a passage of the local corpus."""

from __future__ import annotations

import asyncio

from tfgrpo.tools.corpus import Corpus
from tfgrpo.tools.http_fetch import FetchError, Page, fetch
from tfgrpo.tools.tool import Arguments, Result, Tool, ToolSpec, cut, text_argument

SPEC = ToolSpec(
    name="visit",
    description="Returns the readable text of the page at an address.",
    parameters={
        "type": "object",
        "properties": {"url": {"type": "string", "description": "An address that search gave."}},
        "required": ["url"],
        "additionalProperties": False,
    },
)


class Visit(Tool):
    """The visit tool. With a corpus, its passages are what can be visited, and nothing else."""

    spec = SPEC

    def __init__(
        self, corpus: Corpus | None = None, *, characters: int = 8000, private: bool = False
    ) -> None:
        self._corpus = corpus
        self._characters = characters
        self._private = private

    @property
    def state(self) -> str:
        """What is visited, and how much of it is given."""
        where = f"corpus {self._corpus.digest[:16]}" if self._corpus else "web"
        return f"{where} {self._characters}"

    async def call(self, arguments: Arguments) -> Result:
        """The text at `url`, cut to the limit."""
        url = text_argument(arguments, "url")
        if url is None:
            return Result("visit takes one argument, url, as a text", failed=True)
        url = url.strip().strip("<>")
        if self._corpus is not None:
            passage = self._corpus.page_at(url)
            if passage is None:
                return Result(f"there is no page {url!r}; use an address that search gave", True)
            return Result(cut(f"{passage.title}\n\n{passage.text}".strip(), self._characters))
        try:
            page = await asyncio.to_thread(fetch, url, private=self._private)
            return Result(cut(await asyncio.to_thread(readable, page), self._characters))
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
