"""The words of an answer that are kept: those of the answer, and all of them or a mark."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from providers import Provider, ProxyThread
from proxy_fixtures import answer
from proxy_fixtures import counting_provider as provider
from test_traffic import ask, recorded, run, settings, store

from tfgrpo.improvement.exchange import Exchange, Unread, of_traffic
from tfgrpo.proxy.proxy_settings import ProxySettings
from tfgrpo.store import Store
from tfgrpo.store.activity.traffic import CUT_OFF, CallFilter, traffic_path
from tfgrpo.store.opening import open_traffic

__all__ = ["provider", "settings", "store"]

PADDING = {"id": "chatcmpl-" + "x" * 29, "object": "chat.completion.chunk", "model": "m" * 80}
QUESTION = {"messages": [{"role": "user", "content": "How much?"}], "stream": True}


def chunks(*words: str) -> bytes:
    """A stream of chat completions, its events some fifty times as long as their words."""
    events: list[Any] = [{**PADDING, "choices": [{"delta": {"role": "assistant"}}]}]
    events += [{**PADDING, "choices": [{"index": 0, "delta": {"content": w}}]} for w in words]
    return (
        b"".join(b"data: %s\nid: 7\n\n" % json.dumps(one).encode() for one in events)
        + b"data: [DONE]"
    )


def exchange(store: Store) -> Exchange | Unread:
    with closing(open_traffic(traffic_path(store.path))) as traffic:
        (one,) = of_traffic(traffic, CallFilter(), every=True)
    return one


def shown(store: Store, id: str) -> str:
    return str(json.loads(run(store, "traffic", id, "--json"))["content"]["answer"])


@pytest.mark.parametrize("words", [10, 1500, 8000])
def test_a_long_stream_is_kept_whole_as_its_text(
    settings: ProxySettings, provider: Provider, store: Store, words: int
) -> None:
    said = [f"w{number}é " for number in range(words)]
    provider.answer = answer(chunks(*said), b"text/event-stream")
    with ProxyThread(replace(settings, record="content")) as proxy:
        id = ask(proxy, QUESTION)
    assert shown(store, id) == "".join(said)
    kept = exchange(store)
    assert isinstance(kept, Exchange)
    assert kept.answer == "".join(said).strip()


@pytest.mark.parametrize("kind", ["stream", "body"])
def test_an_answer_that_is_too_long_says_so_and_is_no_ground_truth(
    settings: ProxySettings, provider: Provider, store: Store, kind: str
) -> None:
    said = ["word " * 2000] * 40
    body = json.dumps({"choices": [{"message": {"content": "".join(said)}}]}).encode()
    is_stream = kind == "stream"
    type = b"text/event-stream" if is_stream else b"application/json"
    provider.answer = answer(chunks(*said) if is_stream else body, type)
    with ProxyThread(replace(settings, record="content")) as proxy:
        id = ask(proxy, QUESTION)
    assert 200_000 < len(shown(store, id)) < 300_000
    assert shown(store, id).endswith(CUT_OFF)
    kept = exchange(store)
    assert isinstance(kept, Unread)
    assert kept.why == "its answer is too long to have been kept whole"
    (call,) = recorded(store)
    assert call.status == 200


CODINGS = (
    (b"gzip, deflate, br, zstd", b"gzip, deflate"),
    (b"br;q=1.0, gzip;q=0.8, *;q=0.1", b"gzip;q=0.8"),
    (b"br", b"identity"),
    (b"*", b"identity"),
    (b"br, *;q=0", b"identity"),
    (b"zstd, gzip, *;q=0", b"gzip"),
    (b"GZIP ,identity;q=0", b"GZIP ,identity;q=0"),
)


def test_a_provider_is_asked_for_what_the_record_can_read(
    settings: ProxySettings, provider: Provider
) -> None:
    with ProxyThread(settings) as proxy:
        for accepted, wanted in CODINGS:
            ask(proxy, None, b"Accept-Encoding: " + accepted)
            assert provider.received[-1].header(b"accept-encoding") == wanted, accepted


def packed(body: bytes, coding: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: %b\r\nContent-Length: %d\r\n\r\n"
    return head % (coding, len(body)) + body


@pytest.mark.parametrize(
    ("coding", "body", "why"),
    [
        (b"br", b"\x0b\x02\x80{}\x03", "it came packed as br"),
        (b"gzip", b"{}", "it is not gzip, as it says"),
        (b"gzip", bytes(300_000), "it is too long for one that is packed"),
    ],
)
def test_an_answer_that_cannot_be_read_says_so_on_the_record(
    settings: ProxySettings, provider: Provider, store: Store, coding: bytes, body: bytes, why: str
) -> None:
    provider.answer = packed(body, coding)
    with ProxyThread(replace(settings, record="content")) as proxy:
        id = ask(proxy, QUESTION)
    (call,) = recorded(store)
    assert (call.status, call.prompt_tokens, call.completion_tokens) == (200, None, None)
    assert "0+0" not in run(store, "traffic")
    output = " ".join(run(store, "traffic", id).split())
    assert f"error the answer is not read: {why}" in output
    assert "its tokens are not known" in output
    assert exchange(store) == Unread(id, call.error or "")


def test_an_answer_that_says_that_it_is_not_packed_is_read(
    settings: ProxySettings, provider: Provider, store: Store
) -> None:
    provider.answer = packed(b'{"usage":{"prompt_tokens":7}}', b"Identity")
    with ProxyThread(settings) as proxy:
        ask(proxy)
    assert recorded(store)[0].prompt_tokens == 7


THOUGHTS = {
    "responses": [
        {"type": "response.reasoning_summary_text.delta", "delta": "I should count."},
        {"type": "response.reasoning_text.delta", "delta": "Eight days."},
        {"type": "response.function_call_arguments.delta", "delta": '{"days": 8}'},
        {"type": "response.output_text.delta", "delta": "40 "},
        {"type": "response.output_text.delta", "delta": "euros"},
        {"type": "response.output_text.done", "text": "40 euros"},
    ],
    "messages": [
        {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "Count."}},
        {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": "{"}},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "40 euros"}},
    ],
    "chat": [
        {"choices": [{"index": 0, "delta": {"reasoning_content": "I should count."}}]},
        {"choices": [{"index": 1, "delta": {"content": "35 euros"}}]},
        {"choices": [{"index": 0, "delta": {"content": "40 euros"}}]},
        {"choices": []},
        ["surprise"],
    ],
}


def test_what_a_model_thinks_is_no_answer(
    settings: ProxySettings, provider: Provider, store: Store
) -> None:
    ids = {}
    with ProxyThread(replace(settings, record="content")) as proxy:
        for route, events in THOUGHTS.items():
            stream = b"".join(b"data: %s\n\n" % json.dumps(one).encode() for one in events)
            provider.answer = answer(stream, b"text/event-stream")
            ids[route] = ask(proxy, QUESTION)
    assert {route: shown(store, id) for route, id in ids.items()} == dict.fromkeys(ids, "40 euros")
