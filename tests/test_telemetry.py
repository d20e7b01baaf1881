"""Spans and events of calls, as a collector receives them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from providers import Provider, ProxyThread, post
from test_proxy import CHAT, Choice, make, wait
from test_traffic import CHAT_USAGE, KEY, answer, ask

from tfgrpo.proxy.settings import ProxySettings, parse_upstream
from tfgrpo.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with make(tmp_path / ".tfgrpo/store.db", "Count both days.") as made:
        yield made


def values(attributes: list[dict[str, Any]]) -> dict[str, Any]:
    """Attributes as a collector reads them: each has one value, of its own type."""
    found = {}
    for one in attributes:
        ((kind, value),) = one["value"].items()
        found[one["key"]] = {"intValue": int, "doubleValue": float, "stringValue": str}[kind](value)
    return found


def test_a_collector_gets_a_span_for_each_call_and_an_event_for_feedback(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Provider(answer(CHAT_USAGE)) as provider, Provider(answer(b"{}")) as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url.removesuffix("/v1"))
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=a, x-key = b=c")
        upstream = parse_upstream(provider.url)
        settings = ProxySettings({"d": Choice(store.path)}, "d", upstream, upstream, port=0)
        with ProxyThread(replace(settings, record="content")) as proxy:
            id = ask(proxy, {"user": "anna", "messages": [{"role": "user", "content": "secret"}]})
            body = json.dumps({"call": id, "score": True, "label": "ok"}).encode()
            assert proxy.ask(post("/feedback", body, KEY)).startswith(b"HTTP/1.1 201 ")
            provider.answer = answer(b"{}", status=b"500 Oops")
            ask(proxy)
            wait(lambda: b"".join(g.body for g in collector.received).count(b'"chat m"') == 2)
        for got in collector.received:
            assert got.header(b"x-team") == b"a"
            assert got.header(b"x-key") == b"b=c"
            assert got.header(b"content-type") == b"application/json"
            assert b"secret" not in got.body
            assert b"anna" not in got.body
        traces = [json.loads(g.body) for g in collector.received if b"/v1/traces" in g.line]
        (logs,) = (json.loads(g.body) for g in collector.received if b"/v1/logs" in g.line)
    spans = [
        span
        for trace in traces
        for resource in trace["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]
    good, bad = spans
    assert (good["name"], good["kind"], good["traceId"]) == ("chat m", 3, id[5:])
    assert good["spanId"] == id[5:21]
    assert int(good["endTimeUnixNano"]) > int(good["startTimeUnixNano"]) > 10**18
    found = values(good["attributes"])
    assert found["gen_ai.operation.name"] == "chat"
    assert found["gen_ai.prompt.name"] == "d"
    assert found["gen_ai.prompt.version"] == store.version(1).digest.hex()[:16]
    assert found["gen_ai.usage.input_tokens"] == 70
    assert found["gen_ai.usage.output_tokens"] == 30
    assert found["tfgrpo.call.id"] == id
    assert bad["status"] == {"code": 2}
    assert values(bad["attributes"])["error.type"] == "500"
    (record,) = logs["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    assert record["eventName"] == "gen_ai.evaluation.result"
    assert record["traceId"] == id[5:]
    assert values(record["attributes"])["gen_ai.evaluation.score.value"] == 1.0
    resource = values(logs["resourceLogs"][0]["resource"]["attributes"])
    assert resource == {"service.name": "tfgrpo-proxy"}
    proto = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    from google.protobuf import json_format

    for trace in traces:  # the collector's own schema: no field is unknown to it
        json_format.Parse(json.dumps(trace), proto.ExportTraceServiceRequest())


def test_a_collector_that_is_gone_delays_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    with Provider() as provider:
        upstream = parse_upstream(provider.url)
        settings = ProxySettings({"d": Choice(store.path)}, "d", upstream, upstream, port=0)
        with ProxyThread(settings) as proxy:
            for _ in range(3):
                assert proxy.ask(post(CHAT, b'{"messages":[]}')).startswith(b"HTTP/1.1 200 ")
            wait(lambda: "telemetry is not sent" in caplog.text)
    assert caplog.text.count("telemetry is not sent") == 1
