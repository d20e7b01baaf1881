"""HTTP search providers, described by a template instead of code.

A template says what is sent and where the results stand in the JSON that comes back. Those of
Serper, Tavily, Brave and SearXNG are here by name; any other is a table in `tfgrpo.toml`:

    [tools.search]
    url = "https://search.example/api"
    params = { q = "{query}", n = "{count}" }
    headers = { X-Key = "$EXAMPLE_KEY" }
    results = "data.items"
    fields = { url = "link", title = "name", text = "summary" }

A value `$NAME` is read from the environment when a request is made; it is in no record, and
error texts are scrubbed of it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from pydantic import BaseModel, ConfigDict, Field, field_validator

from tfgrpo.store.canonical import digest
from tfgrpo.tools.corpus import Passage
from tfgrpo.tools.fetch import FetchError, fetch
from tfgrpo.tools.tool import ToolFailure

LONG = 12
"""Characters from which on a key in a provider's answer is the key, and no word of a result."""
SECRET = re.compile(r"\$([A-Z_][A-Z0-9_]*)")


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

    @field_validator("headers")
    @classmethod
    def _no_keys(cls, headers: dict[str, str]) -> dict[str, str]:
        """A key belongs in the environment: what is written here would be kept."""
        for name, value in headers.items():
            if re.search(r"key|token|auth|secret", name, re.IGNORECASE) and not SECRET.search(
                value
            ):
                raise ValueError(f"{name}: write $NAME of an environment variable, not the key")
        return headers


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


class Provider:
    """A provider as a source. `environment` is where `$NAME`s are looked up."""

    def __init__(
        self,
        template: SearchTemplate,
        *,
        environment: Mapping[str, str] = os.environ,
        seconds: float = 20,
    ) -> None:
        self._template = template
        self._environment = environment
        self._seconds = seconds

    @property
    def name(self) -> str:
        """The digest of the template, keys not among it."""
        return f"provider {digest(self._template.model_dump()).hex()[:16]}"

    async def search(self, query: str, count: int) -> list[Passage]:
        """Returns the provider's results. Raises ToolFailure when it gives none."""
        template, secrets = self._template, self._secrets()
        values: dict[str, str | int] = {"query": query, "count": count}
        url = template.url
        if template.params:
            filled = {name: str(_fill(value, values)) for name, value in template.params.items()}
            url += ("&" if "?" in url else "?") + urlencode(filled)
        body = None if template.body is None else json.dumps(_fill(template.body, values))
        headers = {
            name: SECRET.sub(lambda found: secrets[found[1]], value)
            for name, value in template.headers.items()
        }
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            page = await asyncio.to_thread(
                fetch,
                url,
                body=None if body is None else body.encode(),
                headers=headers,
                seconds=self._seconds,
                private=template.private,
            )
            long = {name: key for name, key in secrets.items() if len(key) >= LONG}
            answer = json.loads(_scrub(page.body.decode("utf-8", "replace"), long))
            return list(_passages(answer, template))[:count]
        except FetchError as error:
            raise ToolFailure(_scrub(str(error), secrets)) from None
        except (ValueError, RecursionError):
            raise ToolFailure("the provider's answer is not JSON") from None

    def _secrets(self) -> dict[str, str]:
        names = {
            name for value in self._template.headers.values() for name in SECRET.findall(value)
        }
        missing = sorted(name for name in names if not self._environment.get(name))
        if missing:
            raise ToolFailure(f"the environment has no {', '.join(missing)}")
        keys = {name: self._environment[name].strip() for name in names}
        for name, key in keys.items():  # HTTP would quote such a key in what it says of it
            if not (key.isascii() and key.isprintable()):
                raise ToolFailure(f"{name} in the environment contains invalid characters")
        return keys


def _fill(value: Any, values: Mapping[str, str | int]) -> Any:
    if isinstance(value, dict):
        return {name: _fill(inner, values) for name, inner in value.items()}
    if isinstance(value, list):
        return [_fill(inner, values) for inner in value]
    if isinstance(value, str):
        for name, filling in values.items():
            if value == f"{{{name}}}":
                return filling  # a number stays one
            value = value.replace(f"{{{name}}}", str(filling))
    return value


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


def _scrub(text: str, secrets: Mapping[str, str]) -> str:
    for secret in secrets.values():
        text = text.replace(secret, "***")
    return text
