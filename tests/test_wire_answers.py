"""An error inside a 200 is none of the model's answers: for the proxy, and for whoever trains."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from providers import ProxyThread
from scripted import Reply, ScriptedEndpoint, opened_calls
from test_traffic import (  # noqa: F401
    KEY,
    answer,
    ask,
    post,
    provider,
    settings,
    store,
)
from wire_answers import CHAT, EVENTS, Wire, chunk, completion, failed, frames, good, rewritten

from tfgrpo.model.client import CallFailed
from tfgrpo.model.endpoint import Endpoint, EndpointError, Request, Transient
from tfgrpo.proxy.proxy_settings import ProxySettings
from tfgrpo.store import Store
from tfgrpo.store.activity.traffic import ALL, CallFilter, traffic_path
from tfgrpo.store.opening import open_traffic

REQUEST = Request("rollout", (("user", "What is 2+2?"),), 0, 64)
WORDS = b"provider went away"


def call(proxy: ProxyThread, wire: Wire) -> None:
    body = json.dumps({"model": "m", "messages": [], "stream": wire.kind == EVENTS}).encode()
    assert b" 200 " in proxy.ask(post(wire.route, body, KEY))[:20]


def streams(wires: list[Wire]) -> list[Wire]:
    """Adds to streams the same ones as other servers write them."""
    return wires + [
        one._replace(name=f"{one.name}, {how}", body=body)
        for one in wires
        if one.kind == EVENTS and len(one.body) < 50_000
        for how, body in rewritten(one.body)
    ]


def test_the_proxy_has_a_failed_call_on_record_where_an_answer_is_an_error(
    settings: ProxySettings,  # noqa: F811
    provider: Any,  # noqa: F811
    store: Store,  # noqa: F811
) -> None:
    wires = streams([*failed(), *good()])
    with ProxyThread(settings) as proxy:
        for wire in wires:
            provider.answer = answer(wire.body, wire.kind.encode())
            call(proxy, wire)
    traffic = open_traffic(traffic_path(store.path))
    try:
        calls = [one.call for one in reversed(traffic.calls(CallFilter(), ALL))]
    finally:
        traffic.close()
    assert len(calls) == len(wires)
    wrong = [
        (wire.name, seen.status, seen.error)
        for wire, seen in zip(wires, calls, strict=True)
        if (seen.status, bool(seen.error))
        != ((wire.status or 599, True) if wire.failed else (200, False))
    ]
    assert not wrong, f"{len(wrong)} of {len(wires)}: {wrong[:20]}"
    kept = b"".join(path.read_bytes() for path in store.path.parent.glob("traffic.db*"))
    assert WORDS not in kept, "what a provider says may quote the request"


def test_no_error_inside_a_200_is_an_answer_to_whoever_trains() -> None:
    wires = [one for one in (*failed(), *good()) if one.route == CHAT and one.kind != EVENTS]
    told: dict[str, tuple[bool, str]] = {}

    async def run(endpoint: Endpoint) -> None:
        for wire in wires:
            current.append(wire)
            try:
                found = await endpoint.ask(REQUEST)
            except (Transient, CallFailed, EndpointError) as error:
                told[wire.name] = True, f"{type(error).__name__}: {error}"
            else:
                told[wire.name] = False, found.content
        await endpoint.close()

    current: list[Wire] = []

    def script(_: dict[str, Any]) -> Reply:
        return Reply(current[-1].body, headers={"Content-Type": current[-1].kind})

    with ScriptedEndpoint(script) as server:
        asyncio.run(run(Endpoint("m", server.base_url)))
    wrong = [(one.name, told[one.name]) for one in wires if told[one.name][0] != one.failed]
    assert not wrong, f"{len(wrong)} of {len(wires)}: {wrong[:20]}"


@pytest.mark.parametrize(
    "body",
    [
        completion("", "error", error={"message": "rate limited upstream", "code": 429}),
        completion("\\boxed{5}", "error", error={"message": "went away", "code": 502}),
        completion("\\boxed{5", None),
        completion("\\boxed{5", "abort"),
    ],
    ids=["limit", "half", "null", "abort"],
)
def test_a_call_whose_answer_is_an_error_is_made_again(
    tmp_path: Path, body: dict[str, Any]
) -> None:
    sent = []

    def script(request: dict[str, Any]) -> Reply:
        sent.append(request)
        usage = {"prompt_tokens": 7, "completion_tokens": 3}
        told = completion("\\boxed{4}") if len(sent) > 1 else body
        return Reply({**told, "usage": usage})

    async def run() -> str:
        got = await calls.ask(REQUEST)
        return got.answer.content

    with ScriptedEndpoint(script) as server, opened_calls(tmp_path, server.base_url) as calls:
        assert asyncio.run(run()) == "\\boxed{4}"
        assert (len(sent), calls.meter.retries, calls.meter.completion_tokens) == (2, 1, 6)


def test_what_a_stream_says_is_read_however_its_events_are_written(
    settings: ProxySettings,  # noqa: F811
    provider: Any,  # noqa: F811
    store: Store,  # noqa: F811
) -> None:
    usage = {"choices": [], "usage": {"prompt_tokens": 70, "completion_tokens": 30}}
    plain = frames(chunk("Twelve "), chunk("nights."), chunk("", "stop"), usage, done=True)
    ways = dict(rewritten(plain), plain=plain)
    ids = {}
    with ProxyThread(replace(settings, record="content")) as proxy:
        for name, body in ways.items():
            provider.answer = answer(body, EVENTS.encode())
            ids[name] = ask(proxy, {"stream": True})
    traffic = open_traffic(traffic_path(store.path))
    try:
        found = {}
        for name, id in ids.items():
            content, row = traffic.content(id), traffic.call(id)
            assert content is not None
            found[name] = content.answer, row.prompt_tokens, row.completion_tokens
    finally:
        traffic.close()
    wrong = {name: one for name, one in found.items() if one != ("Twelve nights.", 70, 30)}
    assert not wrong, f"{len(wrong)} of {len(ways)}: {wrong}"
