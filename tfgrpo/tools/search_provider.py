"""HTTP search providers, described by a template instead of code.

A template says what is sent and where the results stand in the JSON that comes back. Those of
Serper, Tavily, Brave and SearXNG are here by name; any other is a table in `tfgrpo.toml`
(docs/agents.md).

A `$NAME` in the address, a parameter, a header or the body is read from the environment when a
request is made; it is in no record, and error texts are scrubbed of it. A secret that is written
out is refused, as it would be in the record of every run.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import quote_plus, urlencode

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tfgrpo.model import secrets
from tfgrpo.store.canonical import digest
from tfgrpo.tools.corpus import Passage
from tfgrpo.tools.http_fetch import FetchError, fetch
from tfgrpo.tools.tool import ToolFailure

FILLED = {"url", "params", "headers", "body"}
"""The parts of a template that may name variables."""


class SearchTemplate(BaseModel):
    """How a provider is asked, and how its answer is read. `results` is a dotted path."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str
    params: dict[str, str] = Field(default_factory=dict)
    headers: dict[str, str] = Field(default_factory=dict)
    body: dict[str, Any] | None = None
    results: str
    fields: dict[str, str] = Field(
        default_factory=lambda: {"url": "url", "title": "title", "text": "snippet"}
    )
    private: bool = False
    """Whether the provider may stand at a private address, as a SearXNG of one's own does."""

    @model_validator(mode="after")
    def _no_secrets(self) -> Self:
        """A key belongs in the environment: what is written here would be kept."""
        secrets.check_settings(self.url, params=self.params, headers=self.headers, body=self.body)
        return self

    @property
    def variables(self) -> list[str]:
        """The environment variables that it names."""
        return secrets.variables(self.model_dump(include=FILLED))


PROVIDERS = {
    "serper": SearchTemplate(
        url="https://google.serper.dev/search",
        headers={"X-API-KEY": "$SERPER_API_KEY"},
        body={"q": "{query}", "num": "{count}"},
        results="organic",
        fields={"url": "link", "title": "title", "text": "snippet"},
    ),
    "tavily": SearchTemplate(
        url="https://api.tavily.com/search",
        headers={"Authorization": "Bearer $TAVILY_API_KEY"},
        body={"query": "{query}", "max_results": "{count}"},
        results="results",
        fields={"url": "url", "title": "title", "text": "content"},
    ),
    "brave": SearchTemplate(
        url="https://api.search.brave.com/res/v1/web/search",
        params={"q": "{query}", "count": "{count}"},
        headers={"X-Subscription-Token": "$BRAVE_API_KEY", "Accept": "application/json"},
        results="web.results",
        fields={"url": "url", "title": "title", "text": "description"},
    ),
    "searxng": SearchTemplate(
        url="http://localhost:8080/search",
        params={"q": "{query}", "format": "json"},
        results="results",
        fields={"url": "url", "title": "title", "text": "content"},
        private=True,
    ),
}


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider as a source. `environment` is where `$NAME`s are looked up."""

    template: SearchTemplate
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    seconds: float = 20

    @property
    def name(self) -> str:
        """The digest of the template, keys not among it."""
        return f"provider {digest(self.template.model_dump()).hex()[:16]}"

    async def search(self, query: str, count: int) -> list[Passage]:
        """The provider's results. Raises ToolFailure when it gives none."""
        template, keys = self.template, self._keys()
        values: dict[str, str | int] = {"query": query, "count": count}

        def filled(value: Any) -> Any:
            return _each_text(value, lambda text: _fill(secrets.fill(text, keys), values))

        url = secrets.fill(template.url, keys)
        if template.params:
            params = {name: str(value) for name, value in filled(template.params).items()}
            url += ("&" if "?" in url else "?") + urlencode(params)
        body = None if template.body is None else json.dumps(filled(template.body))
        headers = {name: secrets.fill(value, keys) for name, value in template.headers.items()}
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            page = await asyncio.to_thread(
                fetch,
                url,
                body=None if body is None else body.encode(),
                headers=headers,
                seconds=self.seconds,
                private=template.private,
            )
            answer = secrets.scrub(json.loads(page.body.decode("utf-8", "replace")))
            return list(_passages(answer, template))[:count]
        except FetchError as error:
            quoted = map(quote_plus, keys.values())  # as an address has them
            raise ToolFailure(secrets.scrub(str(error), *keys.values(), *quoted)) from None
        except (ValueError, RecursionError):
            raise ToolFailure("the provider's answer is not JSON") from None

    def _keys(self) -> dict[str, str]:
        names = self.template.variables
        missing = sorted(name for name in names if not self.environment.get(name, "").strip())
        if missing:
            raise ToolFailure(f"the environment has no {', '.join(missing)}")
        keys = {name: secrets.know(self.environment[name].strip(), name) for name in names}
        for name, key in keys.items():  # HTTP would quote such a key in what it says of it
            if not (key.isascii() and key.isprintable()):
                raise ToolFailure(f"{name} in the environment contains invalid characters")
        return keys


def _each_text(value: Any, change: Callable[[str], Any]) -> Any:
    if isinstance(value, dict):
        return {name: _each_text(inner, change) for name, inner in value.items()}
    if isinstance(value, list):
        return [_each_text(inner, change) for inner in value]
    return change(value) if isinstance(value, str) else value


def _fill(text: str, values: Mapping[str, str | int]) -> str | int:
    for name, filling in values.items():
        if text == f"{{{name}}}":
            return filling  # a number stays one
        text = text.replace(f"{{{name}}}", str(filling))
    return text


def _passages(answer: object, template: SearchTemplate) -> list[Passage]:
    rows = _value_at(answer, template.results)
    if not isinstance(rows, list):
        return []
    places = template.fields
    return [
        Passage(*(str(_value_at(row, places.get(name, name)) or "") for name in Passage._fields))
        for row in rows
        if isinstance(row, dict)
    ]


def _value_at(value: object, path: str) -> object:
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value
