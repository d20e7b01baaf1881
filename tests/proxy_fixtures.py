"""What tests of the proxy begin with: a store, a provider on loopback, and settings for both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from providers import Provider

from tfgrpo.proxy.proxy_settings import LibraryChoice as Choice
from tfgrpo.proxy.proxy_settings import ProxySettings, parse_upstream, upstreams
from tfgrpo.store import Operation, Store

CHAT_USAGE = (
    b'{"choices":[{"message":{"content":"Call 555-0142-77, \\"usage\\": {"}}],'
    b'"usage":{"prompt_tokens":70,"completion_tokens":30,"prompt_tokens_details":{"cached_tokens":64}}}'
)


def make(path: Path, *texts: str) -> Store:
    store = Store.init(path, author="tester")
    for text in texts:
        store.commit("main", [Operation("ADD", text=text)], message=text)
    return store


def answer(body: bytes, kind: bytes = b"application/json", status: bytes = b"200 OK") -> bytes:
    head = b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n"
    return head % (status, kind, len(body)) + body


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A library of one experience."""
    with make(tmp_path / ".tfgrpo/store.db", "Count both days.") as made:
        yield made


@pytest.fixture
def prod_store(tmp_path: Path) -> Iterator[Store]:
    """The same, with a branch `prod`: what a test takes it for is called `store` there."""
    with make(tmp_path / ".tfgrpo/store.db", "Count both days.") as made:
        made.create_branch("prod")
        yield made


@pytest.fixture
def provider() -> Iterator[Provider]:
    """A provider that answers `{}`."""
    with Provider() as running:
        yield running


@pytest.fixture
def counting_provider() -> Iterator[Provider]:
    """A provider whose answers tell tokens."""
    with Provider(answer(CHAT_USAGE)) as running:
        yield running


@pytest.fixture
def prod_settings(store: Store, provider: Provider) -> ProxySettings:
    """The library is `support` at a branch `prod`; the provider has the routes of two APIs."""
    upstream = parse_upstream(provider.url)
    libraries = {"support": Choice(store.path, "prod")}
    return ProxySettings(libraries, "support", upstream, upstream, port=0)


@pytest.fixture
def settings(store: Store, provider: Provider) -> ProxySettings:
    """The library is `d` at HEAD, and the provider has OpenAI's routes alone."""
    named = upstreams({"openai": provider.url})
    return ProxySettings({"d": Choice(store.path)}, "d", **named, port=0)
