"""What an application says of its calls: traces and tags; and what calls cost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from providers import Provider, ProxyThread, post
from proxy_fixtures import CHAT_USAGE, Choice, answer, make
from test_telemetry import values
from test_traffic import KEY, ask, recorded, run
from waiting import until

from tfgrpo.proxy.proxy_file import read_file
from tfgrpo.proxy.proxy_settings import ProxySettings, parse_upstream
from tfgrpo.store import Store
from tfgrpo.store.errors import SettingsError

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with make(tmp_path / ".tfgrpo/store.db", "Count both days.") as made:
        yield made


@pytest.fixture
def settings(store: Store) -> Iterator[ProxySettings]:
    with Provider(answer(CHAT_USAGE)) as provider:
        upstream = parse_upstream(provider.url)
        yield ProxySettings({"d": Choice(store.path)}, "d", upstream, upstream, port=0)


def header(flags: str = "01") -> bytes:
    return f"traceparent: 00-{TRACE}-{PARENT}-{flags}".encode()


def test_a_call_is_in_the_trace_that_its_caller_names(
    settings: ProxySettings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Provider(answer(b"{}")) as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url.removesuffix("/v1"))
        with ProxyThread(settings) as proxy:
            ids = [ask(proxy, None, header(flags)) for flags in ("01", "00")]
            wrong = f"traceparent: 00-{'0' * 32}-{PARENT}-01".encode()
            ids += [ask(proxy, None, wrong), ask(proxy)]
            body = json.dumps({"call": ids[0], "score": True}).encode()
            assert proxy.ask(post("/feedback", body, KEY)).startswith(b"HTTP/1.1 201 ")
            until(lambda: b"".join(g.body for g in collector.received).count(b'"chat m"') == 3)
        sent = [json.loads(g.body) for g in collector.received if b"/v1/traces" in g.line]
        (logs,) = (json.loads(g.body) for g in collector.received if b"/v1/logs" in g.line)
    spans = {
        values(span["attributes"])["tfgrpo.call.id"]: span
        for trace in sent
        for span in trace["resourceSpans"][0]["scopeSpans"][0]["spans"]
    }
    assert set(spans) == {ids[0], ids[2], ids[3]}, "what its caller does not sample is not sent"
    span = spans[ids[0]]
    assert (span["traceId"], span["parentSpanId"]) == (TRACE, PARENT)
    assert span["spanId"] == ids[0][5:21]
    assert spans[ids[2]]["traceId"] == ids[2][5:]
    assert "parentSpanId" not in spans[ids[2]]
    event = logs["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0]
    assert (event["traceId"], event["spanId"]) == (TRACE, ids[0][5:21])
    listed = json.loads(run(store, "traffic", "--trace", TRACE, "--json"))
    assert {one["id"] for one in listed} == set(ids[:2])


def test_tags_are_dimensions_of_traffic_and_figures(settings: ProxySettings, store: Store) -> None:
    settings = replace(settings, tags=("workflow",))
    blue = b"x-tfgrpo-tags: team=blue, feature=a%2Cb"
    metadata: dict[str, Any] = {"metadata": {"workflow": "refund", "secret": "x"}}
    with ProxyThread(settings) as proxy:
        first = ask(proxy, None, blue)
        second = ask(proxy, metadata, b"x-tfgrpo-tags: team=red,mail=anna@example.com")
        ask(proxy, {"metadata": ["odd"]}, b"x-tfgrpo-tags: no tags,=x")
    tags = {call.id: json.loads(call.tags or "{}") for call in recorded(store)}
    assert tags[first] == {"team": "blue", "feature": "a,b"}
    assert tags[second] == {"team": "red", "workflow": "refund", "mail": "[redacted]"}
    for wanted, found in (
        (["team=blue"], {first}),
        (["team=red", "workflow=refund"], {second}),
        (["team=blue", "workflow=refund"], set()),
    ):
        given = [part for tag in wanted for part in ("--tag", tag)]
        listed = json.loads(run(store, "traffic", "--json", *given))
        assert {one["id"] for one in listed} == found
    groups = json.loads(run(store, "traffic", "--by", "team", "--json"))
    assert {one["name"]: one["calls"] for one in groups} == {"blue": 1, "red": 1}
    whole = json.loads(run(store, "traffic", "--figures", "--tag", "team=red", "--json"))
    assert [one["calls"] for one in whole["versions"]] == [1]
    assert "team=red" in run(store, "traffic", second)
    assert "team" in run(store, "traffic", "--by", "team")


def test_calls_have_a_price_by_call_user_version_arm_and_day(
    settings: ProxySettings, store: Store
) -> None:
    toml = store.path.parent.parent / "tfgrpo.toml"
    toml.write_text('[prices]\n"m" = {prompt = 10.0, completion = 100.0, cached = 1.0}\n')
    with ProxyThread(settings) as proxy:
        for user in ("anna", "anna", "ben"):
            ask(proxy, {"user": user})
        ask(proxy, {"model": "never-heard-of-it"})
    each = (6 * 10 + 64 * 1 + 30 * 100) / 1e6
    listed = json.loads(run(store, "traffic", "--json"))
    assert sorted(one["dollars"] or 0 for one in listed) == pytest.approx([0, each, each, each])
    for dimension, costs in (
        ("user", [each, 2 * each]),
        ("version", [3 * each]),
        ("day", [3 * each]),
        ("model", [3 * each]),
    ):
        groups = json.loads(run(store, "traffic", "--by", dimension, "--json"))
        known = [one["dollars"] for one in groups if one["dollars"] is not None]
        assert sorted(known) == pytest.approx(costs), dimension
        assert len(groups) - len(known) == (dimension == "model"), "a price is not known"
    assert "+ 1 unknown" in run(store, "traffic", "--figures")


def test_tags_that_are_no_names_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "proxy.toml"
    file.write_text('tags = "team"\n')
    with pytest.raises(SettingsError, match="tags is a list of names"):
        read_file(file)
