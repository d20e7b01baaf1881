"""The record of traffic: what is kept of a call, feedback on it, and what becomes of it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import TFGRPO, environment
from providers import Provider, ProxyThread, Received, post
from proxy_fixtures import CHAT_USAGE, Choice, answer, make
from proxy_fixtures import counting_provider as provider
from test_proxy import CHAT, listen
from waiting import until

from tfgrpo.cli.main import tfgrpo
from tfgrpo.proxy import own_routes
from tfgrpo.proxy.proxy_settings import ProxySettings, parse_upstream
from tfgrpo.proxy.recorder import Recorder
from tfgrpo.proxy.telemetry import Labels
from tfgrpo.store import Operation, Store, TfgrpoError
from tfgrpo.store.activity.traffic import (
    CallContent,
    CallFilter,
    CallRecord,
    Feedback,
    traffic_path,
)
from tfgrpo.store.activity.traffic_figures import by_dimension
from tfgrpo.store.opening import open_traffic
from tfgrpo.store.sqlite.side_files import SqliteTraffic

__all__ = ["provider"]  # fixtures

KEY = b"Authorization: Bearer sk-caller-1"
USAGES = {
    "chat": (b"application/json", CHAT_USAGE, (70, 64, 30)),
    "responses": (
        b"text/event-stream",
        b'event: response.completed\ndata: {"response":{"usage":{"input_tokens":7,'
        b'"input_tokens_details":{"cached_tokens":0},"output_tokens":3}}}\n\n',
        (7, 0, 3),
    ),
    "messages": (
        b"text/event-stream",
        b'event: message_start\ndata: {"message":{"usage":{"input_tokens":9,'
        b'"cache_read_input_tokens":4,"cache_creation_input_tokens":2,"output_tokens":1}}}\n\n'
        + b": filler\n" * 4000
        + b'event: message_delta\ndata: {"usage":{"output_tokens":33}}\n\n'
        + b"event: message_stop\ndata: {}\n\n",
        (15, 4, 33),
    ),
    "none": (b"application/json", b'{"usage":null}', (None, None, None)),
    "below nothing": (
        b"application/json",
        b'{"usage":{"prompt_tokens":-7,"input_tokens":8,"completion_tokens":true,'
        b'"cache_read_input_tokens":-5,"cache_creation_input_tokens":-9}}',
        (8, None, None),
    ),
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with make(tmp_path / ".tfgrpo/store.db", "Count both days.", "Give units.") as made:
        yield made


@pytest.fixture
def settings(store: Store, provider: Provider) -> ProxySettings:
    upstream = parse_upstream(provider.url)
    return ProxySettings({"support": Choice(store.path)}, "support", upstream, upstream, port=0)


def ask(proxy: ProxyThread, body: dict[str, Any] | None = None, *headers: bytes) -> str:
    """Makes a call, and returns its id."""
    sent = json.dumps({"model": "m", "messages": [], **(body or {})}).encode()
    got = proxy.ask(post(CHAT, sent, KEY, *headers))
    found = re.search(rb"X-Tfgrpo-Call: (\S+)", got)
    assert found, got
    return found[1].decode()


def health(proxy: ProxyThread) -> tuple[bytes, dict[str, Any]]:
    got = proxy.ask(b"GET /stale HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    return got[9:12], json.loads(got.partition(b"\r\n\r\n")[2])


def run(store: Store, *arguments: str) -> str:
    done = CliRunner().invoke(tfgrpo, ["--store", str(store.path), "--no-pager", *arguments])
    if isinstance(done.exception, TfgrpoError):
        raise done.exception
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


def recorded(store: Store, which: CallFilter | None = None) -> list[CallRecord]:
    traffic = open_traffic(traffic_path(store.path))
    try:
        return [one.call for one in traffic.calls(which or CallFilter(), 1000)]
    finally:
        traffic.close()


def bytes_beside(store: Store) -> bytes:
    return b"".join(path.read_bytes() for path in store.path.parent.glob("traffic.db*"))


@pytest.mark.parametrize("name", USAGES)
def test_counts_are_kept_of_each_call_and_nothing_that_was_said(
    name: str, settings: ProxySettings, provider: Provider, store: Store
) -> None:
    kind, body, tokens = USAGES[name]
    provider.answer = answer(body, kind)
    with ProxyThread(settings) as proxy:
        id = ask(proxy, {"user": "anna@example.com", "messages": [], "x": "my secret words"})
    (call,) = recorded(store)
    assert call.id == id
    assert (call.prompt_tokens, call.cached_tokens, call.completion_tokens) == tokens
    assert (call.library, call.version, call.status, call.model) == ("support", "v2", 200, "m")
    assert call.digest == store.version(2).digest.hex()[:16]
    assert abs(call.time / 1e6 - time.time()) < 100
    assert call.latency >= call.first >= call.added >= 0
    kept = bytes_beside(store)
    for word in (b"anna@", b"my secret", b"sk-caller", b"555-0142"):
        assert word not in kept
    assert not list(store.path.parent.glob("*worker*"))


def test_what_goes_wrong_is_on_record_too(
    settings: ProxySettings, provider: Provider, store: Store
) -> None:
    def cut(connection: socket.socket, request: Received) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
        connection.shutdown(socket.SHUT_RDWR)

    with ProxyThread(settings) as proxy:
        provider.answer = answer(b"{}", status=b"429 Slow")
        ask(proxy)
        provider.answer = cut
        ask(proxy)
        proxy.ask(post(CHAT, b"{}", b"x-tfgrpo-library: nowhere"))
        ask(proxy, None, b"x-tfgrpo-library: none")
        provider.answer = answer(
            b'{"usage":{"prompt_tokens":1' + b"0" * 30 + b"}}", status=b"400 No"
        )
        ask(proxy, {"model": "half a pair: \ud800", "user": "\udc00"})
    by_status = {call.status: call for call in recorded(store)}
    assert sorted(by_status) == [400, 404, 429, 599]
    assert by_status[400].model == "half a pair: ?"
    assert by_status[429].version == "v2"
    assert [call.library for call in recorded(store)].count(None) == 2
    assert len(recorded(store, CallFilter(failed=True))) == 5


def test_words_are_kept_where_that_was_asked_for_less_what_a_pattern_finds(
    settings: ProxySettings, provider: Provider, store: Store
) -> None:
    stream = b"".join(
        b'data: {"choices":[{"delta":{"content":"%b"}}]}\n\n' % piece
        for piece in (b"Write to ", b"anna@exa", b"mple.com", b" or K-77", b"41 soon")
    )
    provider.answer = answer(stream, b"text/event-stream")
    with ProxyThread(replace(settings, record="content", redact=(r"K-\d+",))) as proxy:
        question = "I am bob@example.org, K-1234, card 4111 1111 1111 1111"
        id = ask(proxy, {"stream": True, "messages": [{"role": "user", "content": question}]})
    shown = json.loads(run(store, "traffic", id, "--json"))["content"]
    assert shown["answer"] == "Write to [redacted] or [redacted] soon"
    asked = json.loads(shown["request"])["messages"]
    assert asked == [{"role": "user", "content": "I am [redacted], [redacted], card [redacted]"}]
    assert b"4111" not in bytes_beside(store)


def test_an_answer_that_loses_a_long_number_is_still_one(
    settings: ProxySettings, provider: Provider, store: Store
) -> None:
    said = {
        "choices": [{"message": {"content": "35 euros, card 4111 1111 1111 1111"}}],
        "timings": {"predicted_per_token_ms": 172.07780952380952},
        "created_ms": 1795369690123,
        "accounts": ["DE89 3704 0044 0532 0130 00", "DE89370400440532013000", "NO9386011117947"],
    }
    provider.answer = answer(json.dumps(said).encode())
    with ProxyThread(replace(settings, record="content")) as proxy:
        id = ask(proxy)
    kept = json.loads(json.loads(run(store, "traffic", id, "--json"))["content"]["answer"])
    assert kept == {
        "choices": [{"message": {"content": "35 euros, card [redacted]"}}],
        "timings": said["timings"],
        "created_ms": "[redacted]",
        "accounts": ["[redacted]"] * 3,
    }


def test_a_call_of_this_moment_is_waited_for(
    settings: ProxySettings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfgrpo.store.activity.traffic.WAIT", 60.0)
    with ProxyThread(settings) as proxy:
        id = ask(proxy)
    path = traffic_path(store.path)
    (call,) = recorded(store)
    with closing(open_traffic(path)) as traffic:
        traffic.delete_before(call.time + 1)

    asked, ask_again = threading.Event(), SqliteTraffic.call

    def looked_up(self: SqliteTraffic, id: str) -> CallRecord:
        try:
            return ask_again(self, id)
        finally:
            asked.set()

    monkeypatch.setattr(SqliteTraffic, "call", looked_up)

    def write() -> None:
        assert asked.wait(240)
        with closing(open_traffic(path)) as traffic:
            traffic.add([call], [])

    writer = threading.Thread(target=write)
    writer.start()
    given = ["--store", str(store.path), "feedback", id, "--score", "true"]
    done = CliRunner().invoke(tfgrpo, given)
    writer.join()
    assert (done.exit_code, done.output) == (0, f"recorded feedback on {id}\n")


def test_feedback_comes_from_whoever_made_the_call_and_from_nobody_else(
    settings: ProxySettings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def send(call: str, *headers: bytes, **given: Any) -> tuple[bytes, str]:
        body = json.dumps({"call": call, **given}).encode()
        got = proxy.ask(post("/feedback", body, *headers))
        return got[9:12], got.partition(b"\r\n\r\n")[2].decode()

    with ProxyThread(settings) as proxy:
        mine = ask(proxy)
        assert send(mine, KEY, score=True)[0] == b"201", "at once"
        assert send(mine, KEY, score=0.25, comment="late", label="x", correct="40 euros")[0] == (
            b"201"
        )
        for headers in ((), (b"Authorization: Bearer other",), (b"x-api-key: sk-caller-1",)):
            status, said = send(mine, *headers, score=0)
            assert status == b"403"
            assert "the key that the call was made with" in said
        looks, take = [], own_routes.take_feedback
        monkeypatch.setattr(
            own_routes, "take_feedback", lambda *given: (looks.append(1), take(*given))[1]
        )
        assert send("call-" + "0" * 32, KEY, score=1)[0] == b"404"
        assert len(looks) == own_routes.LOOKS == 10, "within two seconds on an idle machine"
        assert send(mine[:12], KEY, score=1)[0] == b"404", "an id is not to be guessed bit by bit"
        for wrong in ({}, {"score": "good"}, {"score": None}, {"stars": 5}, {"comment": 5}):
            assert send(mine, KEY, **wrong)[0] == b"400", wrong
        for body in (b"[", b"\xff", b"[" * 100_000, b'{"call": "a", "call": "a", "score": 1}'):
            assert proxy.ask(post("/feedback", body, KEY)).startswith(b"HTTP/1.1 400 ")
        for twice in ('"score": 1, "score": 0', '"score": 1, "sc\\u006fre": 1', '"score": NaN'):
            body = f'{{"call": "{mine}", {twice}}}'.encode()
            assert proxy.ask(post("/feedback", body, KEY))[9:12] == b"400", twice
        get = b"GET /feedback HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        assert proxy.ask(get).startswith(b"HTTP/1.1 405 ")
    run(store, "feedback", mine[:14], "--score", "false", "--correct", "35 euros")
    found = json.loads(run(store, "traffic", mine, "--json"))["feedback"]
    assert [one["score"] for one in found] == [1.0, 0.25, 0.0]
    assert found[1]["correct"] == "40 euros"
    assert found[0]["author"].startswith("caller ")
    whole, (listed, *_) = (json.loads(run(store, "traffic", *of, "--json")) for of in ([mine], []))
    for moment in (whole["time"], listed["time"], *(one["time"] for one in found)):
        assert datetime.fromisoformat(moment).utcoffset() == timedelta(0)
    with pytest.raises(TfgrpoError, match="no call"):
        run(store, "feedback", "call-zz", "--score", "1")


def test_a_record_of_the_first_schema_is_brought_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "traffic.db")
    with monkeypatch.context() as first:
        first.setattr(SqliteTraffic, "migrations", SqliteTraffic.migrations[:1])
        SqliteTraffic(path, create=True).close()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("insert into feedback (call, time, author, score) values ('call-1', 1, 'a', 1)")
    for _ in range(2):
        with closing(SqliteTraffic(path)) as traffic:
            (one,) = traffic.feedback("call-1")
            assert traffic.withdraw_feedback("call-1", one.key) == one
            assert traffic.withdraw_feedback("call-1", one.key) is None
            assert traffic.feedback("call-1") == []
            assert traffic.withdraw_feedback("call-1", one.key, back=True) == one
    with closing(sqlite3.connect(path)) as db:
        newest = len(SqliteTraffic.migrations)
        assert db.execute("pragma user_version").fetchone() == (newest,)


def test_odd_feedback_is_answered(settings: ProxySettings, store: Store) -> None:
    with ProxyThread(settings) as proxy:
        call = {"call": ask(proxy)}
        for given, status in (
            ({"call": "call-\ud800", "score": 1}, b"404"),
            ({"score": 1, "comment": "\ud800"}, b"400"),
            ({"score": 10**400}, b"400"),
        ):
            body = json.dumps({**call, **given}).encode()
            assert proxy.ask(post("/feedback", body, KEY))[9:12] == status, given


def test_what_fails_in_the_proxy_itself_is_answered_and_in_its_log(
    settings: ProxySettings,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("a shelf broke")

    monkeypatch.setattr("tfgrpo.proxy.own_routes.metrics", fail)
    with ProxyThread(settings) as proxy:
        got = proxy.ask(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    assert got[9:12] == b"500"
    assert "a shelf broke" in caplog.text


def test_a_record_that_is_taken_away_is_begun_anew(settings: ProxySettings, store: Store) -> None:
    with ProxyThread(settings) as proxy:
        ask(proxy)
        until(lambda: len(recorded(store)) == 1)
        for path in store.path.parent.glob("traffic.db*"):
            if "worker" not in path.name:
                path.unlink()
        call = ask(proxy)
        until(lambda: traffic_path(store.path) and os.path.exists(traffic_path(store.path)))
        body = json.dumps({"call": call, "score": 1}).encode()
        assert proxy.ask(post("/feedback", body, KEY))[9:12] == b"201"
    assert [one.id for one in recorded(store)] == [call]


def test_a_file_that_another_worker_makes_at_this_moment_is_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, connect = str(tmp_path / "traffic.db"), sqlite3.connect

    class Slow:
        """A connection before whose first look at the tables another one makes them."""

        def __init__(self, db: sqlite3.Connection) -> None:
            self._db = db

        def __getattr__(self, name: str) -> Any:
            return getattr(self._db, name)

        def execute(self, sql: str, *given: Any) -> Any:
            if "sqlite_master" in sql:
                monkeypatch.setattr(sqlite3, "connect", connect)
                open_traffic(path, create=True).close()
            return self._db.execute(sql, *given)

    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: Slow(connect(*a, **k)))
    open_traffic(path, create=True).close()


def test_a_file_that_others_are_in_is_opened_once_they_are_out(tmp_path: Path) -> None:
    """SQLite makes a write-ahead log at once or not at all, however long a connection would wait:
    of four workers that began together one in 33 was refused."""
    path = str(tmp_path / "traffic.db")
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("begin immediate")
        timer = threading.Timer(0.3, other.execute, ["rollback"])
        timer.start()
        open_traffic(path, create=True).close()
        timer.join()


def test_calls_are_listed_filtered_and_shown_in_figures(
    settings: ProxySettings, provider: Provider, store: Store
) -> None:
    store.create_branch("old", "v1")
    with ProxyThread(settings) as proxy:
        calls = [
            ask(proxy, {"user": "anna"}),
            ask(proxy),
            ask(proxy, None, b"x-tfgrpo-library: @old"),
        ]
        provider.answer = answer(b"{}", status=b"500 Oops")
        ask(proxy, {"model": "other"})
    run(store, "feedback", calls[0], "--score", "1")
    run(store, "feedback", calls[2], "--score", "0")

    def ids(*flags: str) -> set[str]:
        return {one["id"] for one in json.loads(run(store, "traffic", "--json", *flags))}

    assert len(ids()) == 4
    assert len(ids("-n", "3")) == 3
    assert ids("--subject", "anna") == {calls[0]}
    assert ids("--feedback") == {calls[0], calls[2]}
    assert ids("--below", "0.5") == {calls[2]}
    assert ids("--version", "v1") == {calls[2]}
    assert ids("--version", store.version(1).digest.hex()[:8]) == {calls[2]}
    assert len(ids("--failed", "--model", "other")) == 1
    assert ids("--since", "2000-01-01", "--library", "@old") == {calls[2]}
    assert "70+30" in run(store, "traffic")
    live = json.loads(run(store, "traffic", "--figures", "--json"))
    figures = {one["name"]: one for one in live["versions"]}
    assert (figures["support v2"]["calls"], figures["support v2"]["errors"]) == (3, 1)
    assert figures["support v2"]["score"] == 1.0
    assert figures["@old v1"]["completion_tokens"] == 30
    first, second = (e.id for e in store.library("HEAD"))
    by_id = {one["name"]: one for one in live["experiences"]}
    assert (by_id[first]["calls"], by_id[second]["calls"]) == (4, 3)
    assert (by_id[first]["score"], by_id[second]["score"]) == (0.5, 1.0)
    assert "Count both days." in run(store, "traffic", "--figures")


def test_redaction_reaches_the_record(
    settings: ProxySettings, provider: Provider, store: Store
) -> None:
    rule = Operation("ADD", text="Never promise refund RX-4711-QZ.")
    store.commit("main", [rule], message="a rule")
    with ProxyThread(replace(settings, record="content")) as proxy:
        id = ask(proxy, {"messages": [{"role": "user", "content": 'I am "Zoë Quux".'}]})
        plain = ask(
            proxy,
            {
                "messages": [
                    {"role": "user", "content": "Is it refund? Never promise refund RX-4711-QZ."}
                ]
            },
        )
    run(store, "feedback", id, "--comment", "Zoë Quux was angry")
    dry = json.loads(run(store, "redact", "--text", "Zoë Quux", "--dry-run", "--json"))
    assert dry["traffic"] == 2
    assert "Zo" in bytes_beside(store).decode(errors="replace")
    said = run(store, "redact", "--text", "Zoë Quux", "-r", "a name", "--yes")
    assert "2 rows of the record of traffic" in said
    kept = bytes_beside(store)
    assert b"Quux" not in kept
    run(store, "redact", "G2", "-r", "wrong", "--yes")
    assert b"RX-4711-QZ" not in bytes_beside(store)
    assert json.loads(run(store, "traffic", plain, "--json"))["content"]["request"].count(
        "[redacted]"
    )


@pytest.mark.parametrize(
    "written", ["Ren\\u00C9 O\\u0027Neill\\/Jr", "Ren\u00c9 O'Neill/Jr", "Ren\\u00c9 O'Neill\\/Jr"]
)
def test_redaction_knows_texts_as_clients_escape_them(
    settings: ProxySettings, provider: Provider, store: Store, written: str
) -> None:
    secret = "Ren\u00c9 O'Neill/Jr"
    body = (
        f'{{"model": "{written}", "messages": [{{"role": "user", "content": "I am {written}."}}]}}'
    )
    with ProxyThread(replace(settings, record="content")) as proxy:
        answer = proxy.ask(post(CHAT, body.encode()))
        proxy.ask(
            b"GET /v1/files/Zoe-Quux HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )
    call = re.search(rb"X-Tfgrpo-Call: (\S+)", answer)
    assert call
    run(store, "redact", "--text", secret, "-r", "a name", "--yes")
    run(store, "redact", "--text", "Zoe-Quux", "-r", "a name", "--yes")
    kept = bytes_beside(store)
    for gone in (b"Neill", b"Quux"):
        assert gone not in kept
    shown = json.loads(run(store, "traffic", call[1].decode(), "--json"))
    assert json.loads(shown["content"]["request"])["messages"][-1]["content"] == "I am [redacted]."
    with closing(open_traffic(traffic_path(store.path))) as traffic:
        labels = [json.loads(labels) for _, labels in traffic.totals()]
    assert {one["model"] for one in labels if "model" in one} == {"[redacted]", ""}


def test_prometheus_reads_sums_that_outlive_calls_and_workers(
    settings: ProxySettings, provider: Provider, store: Store
) -> None:
    get = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"

    def read() -> dict[str, float]:
        text = proxy.ask(get).partition(b"\r\n\r\n")[2].decode()
        for line in text.splitlines():
            assert re.fullmatch(
                r'# (HELP|TYPE) \w+ .+|\w+(\{(\w+="(\\.|[^"\\])*",?)*\})? [-+.\de]+', line
            ), line
        return {
            line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
            for line in text.splitlines()
            if not line.startswith("#")
        }

    where = 'library="support",version="v2"'
    for round in range(2):
        with ProxyThread(settings) as proxy:
            id = ask(proxy, {"model": 'gpt"\\\n5'})
            ask(proxy)
            until(lambda many=2 * round + 2: len(recorded(store)) == many)
            run(store, "feedback", id, "--score", "0.5")
            found = read()
    chat = f'{where},model="m",route="{CHAT}",status="200"'
    assert found[f"tfgrpo_calls_total{{{chat}}}"] == 2
    odd = 'model="gpt\\"\\\\\\n5"'
    assert found[f'tfgrpo_tokens_total{{{where},{odd},type="input"}}'] == 140
    assert found[f"tfgrpo_call_duration_seconds_count{{{where}}}"] == 4
    assert found[f'tfgrpo_call_duration_seconds_bucket{{{where},le="+Inf"}}'] == 4
    assert found[f"tfgrpo_feedback_score_sum{{{where}}}"] == 1.0
    assert found["tfgrpo_calls_lost_total"] == 0
    assert found['tfgrpo_library_stale{library="support"}'] == 0
    buckets = [v for k, v in found.items() if k.startswith("tfgrpo_proxy_added_seconds_bucket")]
    assert buckets == sorted(buckets)


def test_labels_that_callers_choose_are_few() -> None:
    labels = Labels()
    values = {labels.value("model", f"m{n}") for n in range(1000)}
    assert len(values) == 101
    assert labels.value("model", "m5") == "m5"
    assert labels.value("model", "new") == "other"


def test_old_calls_are_deleted_with_all_that_is_known_of_them(store: Store) -> None:
    traffic = open_traffic(traffic_path(store.path), create=True)
    blank = CallRecord(*[None] * len(CallRecord._fields))
    numbers = {"status": 200, "streamed": 0, "latency": 1, "added": 0, "stale": 0}
    rows = [
        blank._replace(id=f"call-{n}", time=n, worker="x", route="x", **numbers) for n in range(10)
    ]
    traffic.add(rows, [])
    traffic.add_feedback(Feedback("call-1", 1, "me", 1.0))
    assert traffic.delete_before(5) == 5
    assert [one.call.time for one in traffic.calls(CallFilter(), 99)] == [9, 8, 7, 6, 5]
    assert traffic.feedback("call-1") == []
    assert traffic.recorded("x").calls == 10
    assert by_dimension(traffic.measured(0), "version")[0].calls == 5
    traffic.close()


def test_a_record_that_cannot_be_written_stops_no_call(
    settings: ProxySettings, provider: Provider, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    path = Path(traffic_path(store.path))
    path.write_bytes(b"this is no database" * 100)
    with ProxyThread(settings) as proxy:
        ask(proxy)
        assert "not recorded" in caplog.text
        status, report = health(proxy)
        assert (status, report["status"]) == (b"503", "unrecorded")
        assert "file is not a database" in report["libraries"]["support"]["unrecorded"]
        path.unlink()
        until(lambda: health(proxy)[0] == b"200")
        ask(proxy)
        for one in path.parent.glob("traffic.db*"):
            if "worker" not in one.name:
                one.unlink()
        path.write_bytes(b"this is no database" * 100)
        ask(proxy)
        until(lambda: health(proxy)[1]["status"] == "unrecorded")
        path.unlink()
        until(lambda: health(proxy)[1]["status"] == "ok")
    assert caplog.text.count("recorded again") == 2


def test_a_worker_that_is_killed_loses_no_call_that_was_answered(
    store: Store, provider: Provider, tmp_path: Path
) -> None:
    made = 0
    for _ in range(3):
        process, port = listen(["--upstream", provider.url], tmp_path)
        with socket.create_connection(("127.0.0.1", port), timeout=240) as client:
            body = b'{"messages":[]}'
            request = post(CHAT, body).replace(b"Connection: close\r\n", b"")
            for _ in range(30):
                client.sendall(request)
                got = b""
                while not got.endswith(CHAT_USAGE):
                    got += client.recv(65536)
                made += 1
            os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    until(lambda: not list(store.path.parent.glob("*worker*")))
    live = json.loads(run(store, "traffic", "--figures", "--json"))
    assert (sum(one["calls"] for one in live["versions"]), live["lost"]) == (made, 0)


def stopped_recorder(proxy: ProxyThread, store: Store) -> tuple[Recorder, subprocess.Popen[bytes]]:
    """Stops the process that records, where one call is on record and three are not yet."""
    (recorder,) = {id(one): one for one in proxy.proxy.recorders.values()}.values()
    ask(proxy)
    until(lambda: len(recorded(store)) == 1)
    process = recorder.process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    for _ in range(3):
        ask(proxy)
    return recorder, process


def test_a_killed_recorder_loses_nothing_and_another_takes_its_place(
    settings: ProxySettings, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    with ProxyThread(settings) as proxy:
        recorder, process = stopped_recorder(proxy, store)
        process.kill()
        until(lambda: recorder.process not in (None, process))
        for _ in range(2):
            ask(proxy)
    live = json.loads(run(store, "traffic", "--figures", "--json"))
    assert (live["versions"][0]["calls"], live["lost"]) == (6, 0)
    assert not list(store.path.parent.glob("*worker*"))
    assert "starting another" in caplog.text


@pytest.mark.parametrize("seen", [True, False])
def test_a_recorder_that_is_killed_before_the_end_loses_nothing(
    settings: ProxySettings, store: Store, monkeypatch: pytest.MonkeyPatch, seen: bool
) -> None:
    for pause in ("AT_ONCE", "AGAIN"):  # none takes its place until the end
        monkeypatch.setattr(f"tfgrpo.proxy.recorder.{pause}", 600.0)
    with ProxyThread(settings) as proxy:
        recorder, process = stopped_recorder(proxy, store)
        if seen:
            process.kill()
            until(lambda: recorder.process is None)
            ask(proxy)
        else:
            threading.Timer(1.0, process.kill).start()  # in the end itself
    live = json.loads(run(store, "traffic", "--figures", "--json"))
    assert (live["versions"][0]["calls"], live["lost"]) == (5 if seen else 4, 0)
    assert not list(store.path.parent.glob("*worker*"))


def test_what_a_killed_worker_had_handed_over_is_recorded(
    store: Store, provider: Provider, tmp_path: Path
) -> None:
    process, port = listen(["--upstream", provider.url], tmp_path)
    request = post(CHAT, b'{"messages":[]}')
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
            client.sendall(request)
            while client.recv(65536):
                pass
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    until(lambda: not list(store.path.parent.glob("*worker*")))
    live = json.loads(run(store, "traffic", "--figures", "--json"))
    assert (sum(one["calls"] for one in live["versions"]), live["lost"]) == (20, 0)


def test_a_record_is_only_its_owners(settings: ProxySettings, store: Store) -> None:
    with ProxyThread(settings) as proxy:
        ask(proxy)
        until(lambda: recorded(store))
        for path in store.path.parent.glob("traffic.db*"):
            assert path.stat().st_mode & 0o077 == 0, path


def test_without_a_record_there_is_a_hint(store: Store) -> None:
    done = subprocess.run(
        [TFGRPO, "--store", store.path, "traffic"],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "tfgrpo proxy" in done.stderr


def test_whom_a_call_is_for_is_a_digest_in_its_words_too(
    settings: ProxySettings, provider: Provider, store: Store
) -> None:
    names = {"user": "anna-1", "safety_identifier": "anna-2", "conversation": {"id": "anna-3"}}
    body = {**names, "metadata": {"user_id": 'anna-"4"'}, "messages": []}
    said = {"role": "user", "content": 'my "user": "stays" here'}
    with ProxyThread(replace(settings, record="content")) as proxy:
        first = ask(proxy, {**body, "messages": [said]})
        ask(proxy, {**body, "messages": [said, {"role": "user", "content": "x" * 300_000}]})
        words = {"comment": "mail anna@example.com", "correct": "call sk-abcdefabcdefabcdef"}
        said_of_it = json.dumps({"call": first, **words}).encode()
        assert proxy.ask(post("/feedback", said_of_it, KEY)).startswith(b"HTTP/1.1 201 ")
    kept = bytes_beside(store)
    for word in (b"anna-", b"anna@", b"sk-abcdef"):
        assert word not in kept, word
    with closing(open_traffic(traffic_path(store.path))) as traffic:
        content = traffic.content(first)
        assert content is not None
        sent = json.loads(content.request or "")
        assert sent["user"] != sent["safety_identifier"]
        assert sent["conversation"]["id"] == recorded(store)[0].subject
        assert sent["messages"] == [said]
        (feedback,) = traffic.feedback(first)
    assert feedback.comment == "mail [redacted]"
    assert feedback.correct == "call [redacted]"


def test_what_is_too_old_leaves_the_log_of_writes_too(store: Store) -> None:
    with closing(open_traffic(traffic_path(store.path), create=True)) as traffic:
        blank = dict.fromkeys(CallRecord._fields, 0)
        for id in ("call-a", "call-b"):
            row = CallRecord(**blank | {"id": id, "worker": "w", "route": "/"})  # type: ignore[arg-type]
            traffic.add([row], [CallContent(id, f"the words of {id}", "said")])
        assert b"the words of call-a" in bytes_beside(store)
        assert traffic.delete_before(1) == 2
        assert b"the words of" not in bytes_beside(store)
        assert traffic.delete_before(1) == 0


def test_tokens_that_nobody_said_are_not_shown_as_none(
    settings: ProxySettings, provider: Provider, store: Store
) -> None:
    provider.answer = answer(b'{"usage":{"prompt_tokens":5}}')
    with ProxyThread(settings) as proxy:
        ask(proxy)
    assert " 5+? " in run(store, "traffic")
    (figures,) = json.loads(run(store, "traffic", "--figures", "--json"))["versions"]
    assert (figures["prompt_tokens"], figures["completion_tokens"]) == (5, None)


def test_a_request_says_that_it_is_not_kept_and_words_are_sampled(
    settings: ProxySettings, store: Store
) -> None:
    def kept_words() -> int:
        with closing(open_traffic(traffic_path(store.path))) as traffic:
            return sum(
                traffic.content(one.call.id) is not None for one in traffic.calls(CallFilter(), 500)
            )

    body = {"messages": [{"role": "user", "content": "the words"}]}
    with ProxyThread(replace(settings, record="content")) as proxy:
        off = ask(proxy, body, b"x-tfgrpo-record: off")
        counts = ask(proxy, body, b"x-tfgrpo-record: counts")
        assert b"400 " in proxy.ask(post(CHAT, b"{}", b"x-tfgrpo-record: no"))[:15]
    assert [call.id for call in recorded(store)] == [counts]
    assert off != counts
    assert kept_words() == 0
    assert b"the words" not in bytes_beside(store)
    with ProxyThread(replace(settings, record="content", sample=0.5)) as proxy:
        for _ in range(60):
            ask(proxy, body)
    assert 10 < kept_words() < 50


def test_several_patterns_are_taken_out(store: Store, provider: Provider, tmp_path: Path) -> None:
    provider.answer = answer(b'{"choices":[]}')
    arguments = ["--upstream", provider.url, "--record", "content", "--redact", r"K-\d+|Q\d+"]
    process, port = listen([*arguments, "--redact", "blue"], tmp_path)
    sent = json.dumps({"model": "m", "messages": [{"role": "user", "content": "K-7 Q8 blue red"}]})
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(post(CHAT, sent.encode()))
        assert client.recv(1000)
    process.terminate()
    process.communicate(timeout=120)
    with closing(open_traffic(traffic_path(store.path))) as traffic:
        content = traffic.content(recorded(store)[0].id)
    assert content is not None
    words = json.loads(content.request or "")["messages"][0]["content"]
    assert words == "[redacted] [redacted] [redacted] red"
