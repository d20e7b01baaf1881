"""Spans and events of calls, as a collector receives them."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from providers import Provider, ProxyThread, Received, post
from proxy_fixtures import CHAT_USAGE, Choice, answer, make
from test_proxy import CHAT
from test_traffic import KEY, ask
from waiting import until

from tfgrpo.production.webhook import post_webhook
from tfgrpo.proxy.proxy_settings import ProxySettings, parse_upstream
from tfgrpo.proxy.telemetry import CALL_SECONDS, TOKENS, Telemetry, exposition
from tfgrpo.store import Store
from tfgrpo.store.activity.traffic import CallRecord

PATHS = {b"/v1/traces", b"/v1/logs"}


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
        monkeypatch.setenv(
            "OTEL_EXPORTER_OTLP_HEADERS", "x-team=a, x-key = b=c,x-auth=Bearer%20k%2C1"
        )
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=till%2F2,x=1")
        upstream = parse_upstream(provider.url)
        settings = ProxySettings({"d": Choice(store.path)}, "d", upstream, upstream, port=0)
        with ProxyThread(replace(settings, record="content")) as proxy:
            id = ask(proxy, {"user": "anna", "messages": [{"role": "user", "content": "secret"}]})
            body = json.dumps({"call": id, "score": True, "label": "ok"}).encode()
            assert proxy.ask(post("/feedback", body, KEY)).startswith(b"HTTP/1.1 201 ")
            provider.answer = answer(b"{}", status=b"500 Oops")
            ask(proxy)
            until(lambda: b"".join(g.body for g in collector.received).count(b'"chat m"') == 2)
        for got in collector.received:
            assert got.header(b"x-team") == b"a"
            assert got.header(b"x-key") == b"b=c"
            assert got.header(b"x-auth") == b"Bearer k,1"
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
    named = {"deployment.environment.name": "till/2", "x": "1"}
    assert resource == {"service.name": "tfgrpo-proxy", **named}
    proto = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    from google.protobuf import json_format

    for trace in traces:  # the collector's own schema: no field is unknown to it
        json_format.Parse(json.dumps(trace), proto.ExportTraceServiceRequest())


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


def reachable(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def unpacked(got: Received) -> bytes:
    return gzip.decompress(got.body) if got.header(b"content-encoding") == b"gzip" else got.body


def test_a_real_collector_takes_spans_and_events_and_passes_them_on(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rotel, an OpenTelemetry collector, between the proxy and a backend, which gets everything in
    the binary form that collectors speak among each other."""
    rotel = importlib.util.find_spec("rotel")
    if rotel is None or rotel.origin is None:
        pytest.skip("no collector: `pip install 'rotel>=0.0.1a15'` has one")
    trace_service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    logs_service = pytest.importorskip("opentelemetry.proto.collector.logs.v1.logs_service_pb2")
    read_traces = trace_service.ExportTraceServiceRequest.FromString
    read_logs = logs_service.ExportLogsServiceRequest.FromString
    port = free_port()
    with Provider(answer(CHAT_USAGE)) as provider, Provider(answer(b"")) as backend:
        command = [os.path.join(os.path.dirname(rotel.origin), "rotel-agent"), "start"]
        command += ["--otlp-http-endpoint", f"127.0.0.1:{port}", "--batch-timeout", "20ms"]
        command += ["--otlp-grpc-endpoint", f"127.0.0.1:{free_port()}", "--exporter", "otlp"]
        command += ["--otlp-exporter-protocol", "http"]
        command += ["--otlp-exporter-endpoint", backend.url.removesuffix("/v1")]
        collector = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            until(lambda: reachable(port))
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
            upstream = parse_upstream(provider.url)
            settings = ProxySettings({"d": Choice(store.path)}, "d", upstream, upstream, port=0)
            with ProxyThread(settings) as proxy:
                id = ask(proxy)
                body = json.dumps({"call": id, "score": 0.5, "label": "ok"}).encode()
                assert proxy.ask(post("/feedback", body, KEY)).startswith(b"HTTP/1.1 201 ")
            until(lambda: {g.line.split()[1] for g in backend.received} >= PATHS)
        finally:
            collector.terminate()
            collector.wait(240)
    (span,) = (
        span
        for got in backend.received
        if got.line.split()[1] == b"/v1/traces"
        for resource in read_traces(unpacked(got)).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    )
    assert (span.name, span.kind, span.trace_id.hex()) == ("chat m", 3, id[5:])
    assert span.end_time_unix_nano > span.start_time_unix_nano > 10**18
    found = {one.key: one.value for one in span.attributes}
    assert found["gen_ai.prompt.version"].string_value == store.version(1).digest.hex()[:16]
    assert found["gen_ai.usage.input_tokens"].int_value == 70
    (event,) = (
        event
        for got in backend.received
        if got.line.split()[1] == b"/v1/logs"
        for resource in read_logs(unpacked(got)).resource_logs
        for scope in resource.scope_logs
        for event in scope.log_records
    )
    assert event.trace_id.hex() == id[5:]
    found = {one.key: one.value for one in event.attributes}
    assert found["gen_ai.evaluation.score.value"].double_value == 0.5
    assert found["gen_ai.evaluation.score.label"].string_value == "ok"


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
            until(lambda: "telemetry is not sent" in caplog.text)
    assert caplog.text.count("telemetry is not sent") == 1


@pytest.mark.parametrize(
    ("named", "why"),
    [
        (
            {"HEADERS": "authorization=Bearer%20hunter2%0A-of-the-collector"},
            "OTEL_EXPORTER_OTLP_HEADERS",
        ),
        ({"HEADERS": "authorization=Bearer%20hunter2-%E2%80%9C"}, "OTEL_EXPORTER_OTLP_HEADERS"),
        ({"ENDPOINT": "ada:hunter2@127.0.0.1:9"}, "unknown url type: ada"),
        ({"ENDPOINT": "ada-hunter2"}, "OTEL_EXPORTER_OTLP_ENDPOINT"),
    ],
)
def test_what_cannot_be_sent_to_a_collector_is_named_and_not_quoted(
    named: dict[str, str], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    for name, value in named.items():
        monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{name}", value)
    complaints: list[str] = []
    telemetry = Telemetry.of_environment(complaints.append)
    assert telemetry is not None
    telemetry._send("traces", "Spans", {"spans": []})
    until(lambda: complaints)
    telemetry.close()
    assert why in complaints[0]
    assert "hunter2" not in complaints[0]


def test_white_space_around_a_header_of_a_collector_is_none_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    complaints: list[str] = []
    with Provider(answer(b"{}")) as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-auth=Bearer%20k%0A")
        telemetry = Telemetry(collector.url.removesuffix("/v1"), complaints.append)
        telemetry._send("traces", "Spans", {"spans": []})
        until(lambda: collector.received or complaints)
        telemetry.close()
        assert complaints == []
        assert collector.received[0].header(b"x-auth") == b"Bearer k"


def test_sums_are_told_to_the_last_digit() -> None:
    """The rate of a counter is what its last digits say."""
    sums = {(TOKENS, json.dumps({"type": "input"})): 12_345_678_901.0, (CALL_SECONDS, "{}"): 0.1}
    lines = exposition(sums, {}).splitlines()
    assert f'{TOKENS}{{type="input"}} 12345678901' in lines


def test_what_answers_no_http_is_told_and_the_next_message_is_sent() -> None:
    """A collector's port for gRPC answers so, and a webhook may."""
    said: list[str] = []
    blank = CallRecord(*[None] * len(CallRecord._fields))  # type: ignore[arg-type]
    call = blank._replace(
        id="call-1", time=1, latency=1, first=1, added=0, status=200, model="m", route="/v1/x"
    )
    with Provider(b"\x00\x00\x12\x04\x00\x00\x00\x00\x00\r\n") as other:
        why = post_webhook(f"http://127.0.0.1:{other.port}/a-secret", {"event": "x"})
        assert why == "what answers is no HTTP (BadStatusLine)"
        telemetry = Telemetry(f"http://127.0.0.1:{other.port}", said.append)
        for sent in (2, 3):
            telemetry.send_calls([call])
            until(lambda sent=sent: len(other.received) == sent and bool(said))
    assert len(said) == 1
    assert "no HTTP" in said[0]
