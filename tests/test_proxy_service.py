"""The proxy as a service: how it is, ends and reloads, who may name what, what it repeats."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from providers import OK, Provider, ProxyThread, Received, post
from proxy_fixtures import Choice, make, provider
from proxy_fixtures import prod_settings as settings
from proxy_fixtures import prod_store as store
from test_proxy import ASK, CHAT, listen, text_of
from waiting import until

from tfgrpo.production.experiment import start
from tfgrpo.proxy.proxy_file import read_file
from tfgrpo.proxy.proxy_settings import ProxySettings, parse_upstream, upstreams
from tfgrpo.store import Operation, Store
from tfgrpo.store.activity.traffic import CallFilter, CallRecord, traffic_path
from tfgrpo.store.errors import SettingsError
from tfgrpo.store.opening import open_traffic

__all__ = ["provider", "settings", "store"]  # fixtures


def get(proxy: ProxyThread, path: str) -> tuple[int, dict[str, Any]]:
    request = b"GET %b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % path.encode()
    answer = proxy.ask(request)
    return int(answer[9:12]), json.loads(answer.partition(b"\r\n\r\n")[2])


def recorded(store: Store) -> list[CallRecord]:
    traffic = open_traffic(traffic_path(store.path))
    try:
        return [one.call for one in traffic.calls(CallFilter(), 1000)]
    finally:
        traffic.close()


# how it is:


def test_nobody_holds_a_health_check_down_by_naming_a_branch_that_goes(
    settings: ProxySettings,
    store: Store,
) -> None:
    store.create_branch("trial", "prod")
    with ProxyThread(settings) as proxy:
        named = b"x-tfgrpo-library: support@trial"
        assert proxy.ask(post(CHAT, ASK, named)).startswith(b"HTTP/1.1 200 ")
        store.delete_branch("trial")
        assert proxy.ask(post(CHAT, ASK, named)).startswith(b"HTTP/1.1 200 ")
        for path in ("/livez", "/readyz", "/healthz", "/stale"):
            assert get(proxy, path)[0] == 200, path
        assert set(get(proxy, "/healthz")[1]["libraries"]) == {"support"}


def test_what_is_stale_or_unrecorded_takes_no_replica_out(
    settings: ProxySettings,
    store: Store,
) -> None:
    with ProxyThread(settings) as proxy:
        folder = store.path.parent
        folder.rename(folder.with_name("away"))
        assert get(proxy, "/stale")[0] == 503
        assert get(proxy, "/stale")[1]["status"] == "stale"
        for path in ("/livez", "/readyz", "/healthz"):
            assert get(proxy, path)[0] == 200, path
        assert get(proxy, "/healthz")[1]["status"] == "stale"
        proxy.proxy.stopping = True
        assert get(proxy, "/livez")[0] == 200
        assert get(proxy, "/readyz")[0] == 503
        assert get(proxy, "/healthz")[0] == 503


# who may name what:


def test_beyond_loopback_requests_name_only_what_is_allowed(
    settings: ProxySettings,
    provider: Provider,
    store: Store,
) -> None:
    beyond = replace(settings, host="0.0.0.0", token="a long secret token")
    token = b"x-tfgrpo-token: a long secret token"
    store.create_branch("trial", "prod")

    def status(proxy: ProxyThread, name: str, body: bytes = ASK) -> int:
        header = b"x-tfgrpo-library: " + name.encode()
        return int(proxy.ask(post(CHAT, body, token, *([header] if name else [])))[9:12])

    by_model = ASK.replace(b'"model":"', b'"model":"support@trial/')
    assert by_model != ASK
    with ProxyThread(beyond) as proxy:
        for name in ("@trial", "support@v0", "support@main"):
            assert status(proxy, name) == 404, name
        assert status(proxy, "", by_model) == 404
        for name in ("", "support", "support@prod", "none"):
            assert status(proxy, name) == 200, name
    allowing = Choice(store.path, "prod", allow=("trial",))
    with ProxyThread(replace(beyond, libraries={"support": allowing})) as proxy:
        assert status(proxy, "@trial") == status(proxy, "", by_model) == 200
        assert status(proxy, "@main") == 404
    with ProxyThread(replace(settings, libraries={"support": allowing})) as proxy:
        assert status(proxy, "@main") == 404, "a list counts on loopback too"
    with ProxyThread(settings) as proxy:
        assert status(proxy, "@main") == 200


def test_a_list_of_revisions_stands_in_the_file_and_a_short_token_is_refused(
    settings: ProxySettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tfgrpo.trust.trusted_folders.require", lambda *_: None)
    file = tmp_path / "proxy.toml"
    file.write_text('[libraries.support]\nstore = "s"\nallow = ["prod", "v2"]\n')
    assert read_file(file)["libraries"]["support"].allow == ("prod", "v2")
    file.write_text('[libraries.support]\nstore = "s"\nallow = "prod"\n')
    with pytest.raises(SettingsError, match="allow is a list"):
        read_file(file)
    for token in ("x", "eleven-char"):
        with pytest.raises(SettingsError, match="can be guessed"):
            replace(settings, token=token)


# where requests go:


@pytest.mark.parametrize(
    ("base", "chat", "messages"),
    [
        ("http://h", "/v1/chat/completions", "/v1/messages"),
        ("http://h/v1/", "/v1/chat/completions", "/v1/messages"),
        ("http://h/v1beta/openai/", "/v1beta/openai/chat/completions", None),
        ("http://h/api/paas/v4", "/api/paas/v4/chat/completions", None),
        ("http://h/api/v1", "/api/v1/chat/completions", "/api/v1/messages"),
        ("http://h/anthropic", None, "/anthropic/v1/messages"),
        ("http://h/openai/v1?api-version=1", "/openai/v1/chat/completions?api-version=1", None),
    ],
)
def test_a_base_url_is_what_the_providers_own_client_takes(
    base: str, chat: str | None, messages: str | None
) -> None:
    found = upstreams({"openai": base})
    openai, anthropic = found["openai"], found["anthropic"]
    if chat is not None:
        assert openai.target(b"/v1/chat/completions").decode() == chat
        assert openai.shown("/v1/chat/completions") == f"http://h{chat.partition('?')[0]}"
    if messages is not None:
        assert anthropic.target(b"/v1/messages").decode() == messages
    mine = parse_upstream("http://h/v1?a=1").target(b"/v1/models?b=2")
    assert mine == b"/v1/models?b=2&a=1"


def test_the_path_of_the_base_url_and_its_query_are_on_the_wire(
    settings: ProxySettings,
    provider: Provider,
) -> None:
    url = provider.url.removesuffix("/v1") + "/v1beta/openai?key=1"
    with ProxyThread(replace(settings, openai=parse_upstream(url))) as proxy:
        for _ in range(2):
            proxy.ask(post(CHAT, ASK))
        proxy.ask(b"GET /v1/models?x=2 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert [one.line for one in provider.received] == [
        *[b"POST /v1beta/openai/chat/completions?key=1 HTTP/1.1"] * 2,
        b"GET /v1beta/openai/models?x=2&key=1 HTTP/1.1",
    ]


def test_what_looks_like_a_chat_and_gets_no_library_is_counted_and_shown(
    settings: ProxySettings,
    provider: Provider,
    caplog: pytest.LogCaptureFixture,
) -> None:
    legacy = "/v1/engines/gpt-3/completions"
    with ProxyThread(settings) as proxy:
        for path in (legacy, legacy, "/v1/threads/t1/messages", "/v1/embeddings", "/v1/files"):
            assert proxy.ask(post(path, ASK)).startswith(b"HTTP/1.1 200 ")
            assert provider.received[-1].body == ASK
        shown = get(proxy, "/healthz")[1]["without_library"]
        assert shown == {legacy: 2, "/v1/threads/t1/messages": 1}
        request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        assert b'tfgrpo_requests_without_library{path="' + legacy.encode() in proxy.ask(request)
    assert caplog.text.count("gets no library") == 2


# what is repeated:


@pytest.mark.parametrize(("headers", "times"), [((), 1), ((b"Idempotency-Key: 7",), 2)])
def test_a_post_that_may_have_been_read_is_sent_once(
    headers: tuple[bytes, ...],
    times: int,
    settings: ProxySettings,
    provider: Provider,
) -> None:
    def once_then_gone(connection: socket.socket, request: Received) -> None:
        if len(provider.received) == 2:
            connection.shutdown(socket.SHUT_RDWR)  # it was read, and perhaps done
        else:
            connection.sendall(OK)

    provider.answer = once_then_gone
    with ProxyThread(settings) as proxy:
        assert proxy.ask(post(CHAT, ASK)).startswith(b"HTTP/1.1 200 ")
        second = proxy.ask(post(CHAT, ASK, *headers))
    assert second.startswith(b"HTTP/1.1 200 " if times == 2 else b"HTTP/1.1 502 ")
    assert len(provider.received) == 1 + times


def test_a_head_that_is_too_long_is_refused_however_it_comes(
    settings: ProxySettings,
) -> None:
    with ProxyThread(settings) as proxy:
        answer = proxy.ask(post(CHAT, ASK, b"X-A: " + b"a" * (66 << 10)))
        assert answer.startswith(b"HTTP/1.1 431 ")


def half_closed(port: int, request: bytes, closed: threading.Event) -> bytes:
    """What a client that sends no more after its request is answered; `closed` is set then."""
    closed.clear()
    with socket.create_connection(("127.0.0.1", port), timeout=120) as client:
        client.sendall(request)
        client.shutdown(socket.SHUT_WR)
        closed.set()
        answer = b""
        while piece := client.recv(65536):
            answer += piece
    return answer


def test_a_client_that_sends_no_more_gets_its_answers(
    settings: ProxySettings,
    provider: Provider,
    store: Store,
) -> None:
    closed = threading.Event()

    def late(connection: socket.socket, request: Received) -> None:
        assert closed.wait(240)
        connection.sendall(OK)

    provider.answer = late
    one = post(CHAT, ASK).replace(b"Connection: close\r\n", b"")
    with ProxyThread(settings) as proxy:
        for request, times in ((post(CHAT, ASK), 1), (one, 1), (one + one, 2)):
            answer = half_closed(proxy.port, request, closed)
            assert answer.replace(b"HTTP/1.1 100 Continue\r\n\r\n", b"").count(b"200 OK") == times
        half = half_closed(proxy.port, post(CHAT, ASK)[:-5], closed)
        assert b" 200 " not in half
    assert {call.status for call in recorded(store)} == {200}


@pytest.mark.parametrize("begun", [False, True])
def test_a_client_that_is_gone_is_told_from_one_that_only_sends_no_more(
    begun: bool,
    settings: ProxySettings,
    provider: Provider,
    store: Store,
) -> None:
    asked, taken_back, over = threading.Event(), threading.Event(), threading.Event()

    def silent(connection: socket.socket, request: Received) -> None:
        if begun:
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        asked.set()
        with contextlib.suppress(OSError):
            connection.recv(1)  # until the proxy closes its side
        taken_back.set()
        over.wait(60)

    provider.answer = silent
    with ProxyThread(settings) as proxy:
        with socket.create_connection(("127.0.0.1", proxy.port)) as client:
            client.sendall(post(CHAT, ASK))
            assert asked.wait(240)
            if begun:
                assert client.recv(10_000)
        assert taken_back.wait(240)
        until(lambda: proxy.proxy.open == 0)
        over.set()
    assert [call.status for call in recorded(store)] == [499]


# whom a request is for:


def test_a_conversation_keeps_its_arm_from_turn_to_turn_without_a_subject(
    settings: ProxySettings,
    store: Store,
) -> None:
    store.commit("main", [Operation("ADD", text="Give units.")], message="units")
    start(store, "e", ("prod", "main"), 0.5)
    arms: set[str] = set()
    with ProxyThread(settings) as proxy:
        for number in range(20):
            turns = [{"role": "user", "content": f"Question {number}"}]
            of_one = set()
            for turn in range(3):
                body = json.dumps({"model": "m", "messages": turns}).encode()
                found = re.search(rb"X-Tfgrpo-Arm: (\S+)", proxy.ask(post(CHAT, body)))
                assert found
                of_one.add(found[1].decode())
                turns = [
                    *turns,
                    {"role": "assistant", "content": "Yes."},
                    {"role": "user", "content": f"And {turn}?"},
                ]
            assert len(of_one) == 1
            arms |= of_one
    assert arms == {"e/control", "e/candidate"}
    assert len({call.subject for call in recorded(store)}) == 20


# how it ends and reloads:


@pytest.fixture
def slow(provider: Provider) -> Iterator[threading.Event]:
    """A provider whose answers go on until the event."""
    release = threading.Event()

    def held(connection: socket.socket, request: Received) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        release.wait(120)
        connection.sendall(b"1\r\nb\r\n0\r\n\r\n")

    provider.answer = held
    yield release
    release.set()


def begin(port: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=120)
    client.sendall(post(CHAT, ASK))
    assert client.recv(10_000)
    return client


def rest(client: socket.socket) -> bytes:
    answer = b""
    with client:
        while piece := client.recv(10_000):
            answer += piece
    return answer


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_stream_ends_in_the_time_that_is_set_and_what_is_cut_is_not_the_clients_doing(
    workers: str,
    slow: threading.Event,
    provider: Provider,
    store: Store,
    tmp_path: Path,
) -> None:
    arguments = ["--library", "prod", "--upstream", provider.url, "--port", "0"]
    arguments += ["--workers", workers]
    process, port = listen([*arguments, "--drain", "100"], tmp_path)
    client = begin(port)
    process.terminate()
    until(lambda: not _listens(port), 60)
    slow.set()
    assert rest(client).endswith(b"0\r\n\r\n")
    process.communicate(timeout=120)
    assert [call.status for call in recorded(store)] == [200]
    slow.clear()
    process, port = listen([*arguments, "--drain", "0.2"], tmp_path)
    client = begin(port)
    process.terminate()
    process.communicate(timeout=120)
    client.close()
    cut = recorded(store)[0]
    assert (cut.status, cut.error) == (599, cut.error)
    assert "told to end" in str(cut.error)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=120).close()
    except ConnectionRefusedError:  # and not one that nobody takes
        return False
    return True


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_reload_takes_the_file_anew_under_a_stream_and_wrong_files_change_nothing(
    workers: str,
    slow: threading.Event,
    provider: Provider,
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make(tmp_path / "other/store.db", "Give units.").close()
    file, log = tmp_path / ".tfgrpo/../proxy.toml", tmp_path / "access.log"

    def write(library: str) -> None:
        file.write_text(f'[libraries.support]\nstore = "{library}"\nrevision = "main"\n')

    def until(words: str) -> None:
        assert process.stderr is not None
        count = 0
        for line in process.stderr:
            count += words in line
            if count == int(workers):
                return
        raise AssertionError(words)

    write(".tfgrpo/store.db")
    arguments = ["--config", str(file), "--upstream", provider.url, "--port", "0"]
    arguments += ["--workers", workers, "--access-log", str(log)]
    process, port = listen(arguments, tmp_path)
    try:
        client = begin(port)
        assert "Count both days." in text_of(provider)
        write("other/store.db")
        os.kill(process.pid, signal.SIGHUP)
        until("reloaded")
        slow.set()
        assert rest(client).endswith(b"0\r\n\r\n")
        rest(begin(port))
        assert "Give units." in text_of(provider)
        log.rename(tmp_path / "old.log")
        file.write_text("[libraries")
        os.kill(process.pid, signal.SIGHUP)
        assert process.stderr is not None
        assert "not reloaded" in next(line for line in process.stderr if "reloaded" in line)
        rest(begin(port))
        assert "Give units." in text_of(provider)
    finally:
        process.terminate()
        process.communicate(timeout=120)


def test_a_reload_while_workers_start_reaches_each_of_them(
    provider: Provider,
    store: Store,
    tmp_path: Path,
) -> None:
    file = tmp_path / "proxy.toml"
    file.write_text('[libraries.support]\nstore = ".tfgrpo/store.db"\nrevision = "main"\n')
    arguments = ["--config", str(file), "--upstream", provider.url, "--port", "0"]
    process, _ = listen([*arguments, "--workers", "4"], tmp_path)
    late = threading.Timer(120, process.kill)  # its workers end with it, and so does what they say
    late.start()
    try:
        os.kill(process.pid, signal.SIGHUP)  # they are forked, and have loaded nothing yet
        told: list[str] = []
        for line in process.stderr or ():
            told += [line]
            if sum("reloaded" in one for one in told) == 4:
                break
        assert [line.strip() for line in told] == ["reloaded"] * 4
    finally:
        late.cancel()
        process.terminate()
        process.communicate(timeout=120)


def test_every_request_is_in_the_access_log_and_502_too(
    settings: ProxySettings,
    provider: Provider,
    tmp_path: Path,
) -> None:
    log = tmp_path / "access.log"
    with ProxyThread(replace(settings, access_log=str(log))) as proxy:
        proxy.ask(post(CHAT, ASK))
        provider.answer = b"SSH-2.0\r\n"
        proxy.ask(post(CHAT, ASK, b"Authorization: Bearer sk-secret"))
    first, second = map(json.loads, log.read_text().splitlines())
    assert (first["status"], first["library"], first["path"]) == (200, "support", CHAT)
    assert second["status"] == 502
    assert second["error"]
    assert "sk-secret" not in log.read_text()
    assert log.stat().st_mode & 0o077 == 0
    with pytest.raises(SettingsError, match="access_log"):
        ProxyThread(replace(settings, access_log=str(tmp_path / "no/folder"))).__enter__()
