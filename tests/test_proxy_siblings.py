"""What is next to faults that were found: other names, shapes, paths and times of the same kind."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from listening import Listener
from providers import Provider, ProxyThread, Received, post
from proxy_fixtures import Choice, answer, store
from proxy_fixtures import counting_provider as provider
from test_proxy import ASK, CHAT, listen, text_of
from test_proxy_keys import EACH, PRICES
from test_traffic import KEY, ask, bytes_beside, recorded, run
from waiting import until

from tfgrpo.proxy.proxy_settings import ProxySettings, SpendLimit, upstreams, with_keys
from tfgrpo.store import Operation, Store
from tfgrpo.store.activity.key_ledger import Budget, ledger_path
from tfgrpo.store.activity.traffic import traffic_path
from tfgrpo.store.opening import open_ledger, open_traffic

__all__ = ["provider", "store"]  # fixtures


@pytest.fixture
def settings(store: Store, provider: Provider, monkeypatch: pytest.MonkeyPatch) -> ProxySettings:
    monkeypatch.setenv("OWN_KEY", "sk-own-of-the-provider")
    named = upstreams({"openai": provider.url})
    with_keys(named, {"openai": "OWN_KEY"})
    return ProxySettings({"d": Choice(store.path)}, "d", **named, port=0, prices=PRICES)


# whom a call is for:


WHOM = {
    "prompt_cache_key": {"prompt_cache_key": "anna-1"},
    "in other letters": {"userId": "anna-1", "UserID": "anna-2", "safetyIdentifier": "anna-3"},
    "of a session": {"session_id": "anna-1", "sessionId": "anna-2", "end_user": "anna-3"},
    "of a customer": {"customer_id": "anna-1", "metadata": {"customerId": "anna-2"}},
    "a number": {"user": 4117733, "metadata": {"user_id": 4117734}},
    "in metadata": {"metadata": {"user": "anna-1", "user_name": "anna-2", "end_user_id": "anna-3"}},
    "bedrock's": {"requestMetadata": {"userId": "anna-1"}},
}


@pytest.mark.parametrize("name", WHOM)
def test_whoever_a_request_names_is_a_digest_in_its_words(
    name: str, settings: ProxySettings, store: Store
) -> None:
    with ProxyThread(replace(settings, record="content")) as proxy:
        ask(proxy, {**WHOM[name], "messages": [{"role": "user", "content": "Hi, I am here."}]})
    kept = bytes_beside(store)
    assert b"I am here" in kept
    assert b"anna-" not in kept
    assert b"41177" not in kept


ECHOES = {
    "responses": {"user": "anna-1", "safety_identifier": "anna-2", "prompt_cache_key": "anna-3"},
    "a conversation": {"conversation": {"id": "anna-1"}, "metadata": {"user_id": "anna-2"}},
}


@pytest.mark.parametrize("name", ECHOES)
def test_whoever_an_answer_names_is_too(
    name: str, settings: ProxySettings, provider: Provider, store: Store
) -> None:
    whole = {"object": "response", "status": "completed", "output": [], **ECHOES[name]}
    provider.answer = answer(json.dumps(whole).encode())
    with ProxyThread(replace(settings, record="content")) as proxy:
        assert proxy.ask(post("/v1/responses", b'{"input":"Hi"}', KEY))
    (call,) = recorded(store)
    with closing(open_traffic(traffic_path(store.path))) as traffic:
        content = traffic.content(call.id)
    assert content is not None
    assert "completed" in content.answer
    assert b"anna-" not in bytes_beside(store)


def test_what_a_path_says_of_people_and_keys_is_taken_out(
    settings: ProxySettings, store: Store, tmp_path: Path
) -> None:
    log = tmp_path / "access.log"
    made = replace(settings, access_log=str(log), redact=("anna-[0-9]+",))
    paths = ("/u/anna@example.com/v1/chat/completions", "/u/anna-7/v1/chat/completions")
    with ProxyThread(made) as proxy:
        for path in (*paths, "/k/sk-abcdefabcdefabcdef/v1/files"):
            proxy.ask(post(path, ASK))
    for kept in (bytes_beside(store), log.read_bytes()):
        for word in (b"anna", b"sk-abcdef"):
            assert word not in kept
    assert all("chat/completions" in call.route for call in recorded(store)[1:])


# paths:


NEARLY = (
    "/v1/chat/complet%69ons",
    "/v1/chat%2Fcompletions",
    "/v1/%63hat/completions",
    "/openai/deployments/a%20b/chat/completions",
    "/v1/./chat/completions",
    "/api/v1/chat/completions",
    "/anthropic/v1/messages",
    "//v1//messages//",
    "/v1/chat/completions/",
    "/openai/deployments/g/chat/completions?api-version=1",
    "/openai/v1/responses",
    "/v1/responses/",
    "/openai/responses",
)


def test_a_path_that_a_server_reads_as_a_route_gets_the_library(
    settings: ProxySettings, provider: Provider
) -> None:
    with ProxyThread(settings) as proxy:
        for path in NEARLY:
            body = b'{"model":"m","input":"hi"}' if "responses" in path else ASK
            assert proxy.ask(post(path, body)).startswith(b"HTTP/1.1 200 "), path
            assert b"Count both days." in provider.received[-1].body, path
            assert provider.received[-1].line.split()[1].decode() == path, "the path itself stays"
        assert proxy.proxy.passed == {}


OTHERS = (
    *("/V1/Chat/Completions", "/api/chat", "/api/generate", "/v1/completions"),
    *("/v1/responses/compact", "/v1beta/models/g:predict", "/model/m/invoke"),
    *("/v1/messages/batches", "/v1/chat/completions;v=2", "/v1/publishers/a/models/c:rawPredict"),
)


def test_what_looks_like_a_chat_on_another_path_is_counted(
    settings: ProxySettings, provider: Provider
) -> None:
    with ProxyThread(settings) as proxy:
        for count, path in enumerate(OTHERS, 1):
            proxy.ask(post(path, ASK))
            assert sum(proxy.proxy.passed.values()) == count, path


# errors inside a 200:


ERRORS: dict[str, tuple[Any, int]] = {
    "a list of errors": ({"errors": [{"message": "went away", "code": 502}]}, 502),
    "a list of words": ({"errors": ["went away"]}, 599),
    "success is false": ({"success": False, "errors": [{"code": 10000, "message": "no"}]}, 599),
    "error_msg": ({"error_code": 18, "error_msg": "qps limit reached"}, 599),
    "error_message": ({"error_message": "went away"}, 599),
    "base_resp": ({"base_resp": {"status_code": 1002, "status_msg": "rate limit"}}, 599),
    "object is error": ({"object": "error", "message": "no", "code": 404}, 404),
    "a status that is one": ({"status": 503, "title": "Unavailable", "detail": "later"}, 503),
    "details of a form": (
        {"detail": [{"loc": ["body"], "msg": "missing", "type": "missing"}]},
        599,
    ),
    "capitals": ({"Error": {"Message": "went away", "Code": "ThrottlingException"}}, 429),
    "aws": ({"__type": "com.amazon#ThrottlingException", "message": "slow down"}, 429),
}


def test_an_error_under_another_name_is_a_failed_call(
    settings: ProxySettings, provider: Provider, store: Store
) -> None:
    statuses = {}
    with ProxyThread(settings) as proxy:
        for body, status in ERRORS.values():
            sent = json.dumps(body).encode()
            for form in (sent, b"data: %b\n\ndata: [DONE]\n\n" % sent):
                provider.answer = answer(form)
                statuses[ask(proxy)] = status
    calls = recorded(store)
    assert {call.id: call.status for call in calls} == statuses
    assert all(call.error for call in calls)


GOOD: dict[str, Any] = {
    "no errors": {"choices": [{"message": {"content": "4"}}], "errors": [], "success": True},
    "fine base_resp": {
        "choices": [{"message": {"content": "4"}}],
        "base_resp": {"status_code": 0, "status_msg": ""},
    },
    "embeddings": {"object": "list", "data": [{"embedding": [1]}], "errors": None},
    "a file": {"object": "file", "status": "error", "status_details": "bad", "id": "f"},
    "moderation": {"results": [{"flagged": False}], "message": ""},
    "errors in an answer": {
        "choices": [{"message": {"content": '{"errors": ["a"], "error_msg": "b"}'}}]
    },
    "a recording in words": b"[music] Twelve nights.",
}


def test_an_answer_that_speaks_of_errors_is_one(
    settings: ProxySettings, provider: Provider, store: Store
) -> None:
    with ProxyThread(settings) as proxy:
        for name, body in GOOD.items():
            provider.answer = answer(body if isinstance(body, bytes) else json.dumps(body).encode())
            ask(proxy, {"model": name})
    failed = [call.model for call in recorded(store) if call.status != 200 or call.error]
    assert (failed, len(recorded(store))) == ([], len(GOOD))


# keys and budgets:


def test_a_budget_of_a_library_holds_however_a_request_names_it(
    settings: ProxySettings, store: Store
) -> None:
    store.create_branch("prod")
    limits = (SpendLimit(Budget(EACH / 2, "day"), "d", stop=True),)
    with ProxyThread(replace(settings, budgets=limits)) as proxy:
        ask(proxy, None, b"x-tfgrpo-library: d@prod")
        until(lambda: _spent(store, "library:d") > 0)
        for name in (b"d", b"d@prod", b"@prod", b"d@v1"):
            header = b"x-tfgrpo-library: " + name
            assert proxy.ask(post(CHAT, ASK, KEY, header)).startswith(b"HTTP/1.1 402 "), name
        assert proxy.ask(post(CHAT, b'{"model":"d@prod/m","messages":[]}', KEY)).startswith(
            b"HTTP/1.1 402 "
        )


def _spent(store: Store, scope: str) -> float:
    with closing(open_ledger(ledger_path(store.path))) as ledger:
        return sum(v for (of, _), v in ledger.spent("").items() if of == scope)


def test_a_key_in_any_header_is_the_proxys_own_and_goes_no_further(
    settings: ProxySettings, provider: Provider, store: Store
) -> None:
    key = run(store, "key", "new", "team").split()[-1].encode()
    with ProxyThread(replace(settings, require_key=True)) as proxy:
        for header in (b"Authorization: Bearer ", b"authorization: bearer  ", b"x-api-key: "):
            assert b" 200 " in proxy.ask(post(CHAT, ASK, header + key))[:20], header
        for header in (b"api-key: ", b"x-goog-api-key: "):
            assert b" 200 " in proxy.ask(post(CHAT, ASK, header + key))[:20], header
        both = (b"Authorization: Bearer sk-foreign", b"x-api-key: " + key)
        proxy.ask(post(CHAT, ASK, *both))
    assert all(key not in repr(request).encode() for request in provider.received)
    assert provider.received[0].header(b"authorization") == b"Bearer sk-own-of-the-provider"


PLACES = (
    (b"Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.%b",),
    (b"Cookie: key=%b",),
    (b"Authorization: Bearer sk-foreign", b"x-api-key: %b"),
    (b"Authorization: Basic %b",),
)


def test_a_key_in_another_place_goes_no_further(
    settings: ProxySettings, provider: Provider, store: Store
) -> None:
    key = run(store, "key", "new", "team").split()[-1].encode()
    with ProxyThread(settings) as proxy:
        for path in (CHAT, "/v1/realtime", "/v1beta/models/g:generateContent"):
            for headers in PLACES:
                placed = [one.replace(b"%b", key) for one in headers]
                assert proxy.ask(post(path, ASK, *placed)).startswith(b"HTTP/1.1 401 "), headers
            asked = proxy.ask(post(f"{path}?key={key.decode()}", ASK))
            assert asked.startswith(b"HTTP/1.1 401 ")
            assert key not in asked
            assert b" 200 " in proxy.ask(post(f"{path}?key=tfk-1", ASK, b"X-Release: tfk-2"))[:20]
    assert all(key not in repr(request).encode() for request in provider.received)


def test_thirty_two_at_once_cross_a_budget_by_no_more_than_they_are(
    settings: ProxySettings, provider: Provider, store: Store
) -> None:
    key = run(store, "key", "new", "team", "--budget", f"{EACH * 3}/day").split()[-1].encode()
    with ProxyThread(settings) as proxy, ThreadPoolExecutor(32) as pool:
        for _ in range(3):
            header = b"Authorization: Bearer " + key
            asked = [pool.submit(proxy.ask, post(CHAT, ASK, header)) for _ in range(32)]
            answers = [one.result() for one in asked]
            assert all(one[9:12] in (b"200", b"402") for one in answers)
            through = len(provider.received)
            until(lambda: _spent(store, "key:team") >= EACH * (len(provider.received) - 0.5))
        assert 3 <= through <= 32
        assert len(provider.received) == through
    assert _spent(store, "key:team") == pytest.approx(EACH * through)


def test_a_rate_holds_for_thirty_two_at_once(
    settings: ProxySettings, provider: Provider, store: Store
) -> None:
    key = run(store, "key", "new", "team", "--rate", "10").split()[-1].encode()
    header = b"Authorization: Bearer " + key
    with ProxyThread(settings) as proxy, ThreadPoolExecutor(32) as pool:
        asked = [pool.submit(proxy.ask, post(CHAT, ASK, header)) for _ in range(32)]
        answers = [one.result()[9:12] for one in asked]
    assert answers.count(b"200") in (10, 11)  # one may have come back meanwhile
    assert answers.count(b"429") == 32 - answers.count(b"200")


def test_a_key_that_is_revoked_in_a_stream_ends_with_it(
    settings: ProxySettings, provider: Provider, store: Store
) -> None:
    key = run(store, "key", "new", "team").split()[-1].encode()
    goes_on = threading.Event()

    def slowly(connection: socket.socket, request: Received) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\ndata")
        goes_on.wait(240)
        connection.sendall(b": 1\n")

    provider.answer = slowly
    header = b"Authorization: Bearer " + key
    with (
        ProxyThread(settings) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), timeout=240) as client,
    ):
        client.sendall(post(CHAT, ASK, header).replace(b"Connection: close\r\n", b""))
        got = b""
        while not got.endswith(b"data"):
            got += client.recv(4096)
        run(store, "key", "revoke", "team")
        goes_on.set()
        assert client.recv(4096) == b": 1\n", "what was begun is brought to its end"
        client.sendall(post(CHAT, ASK, header))
        assert client.recv(4096).startswith(b"HTTP/1.1 401 ")
    (refused, ended) = recorded(store)
    assert (ended.status, ended.key, refused.status) == (200, "team", 401)


# what hangs:


class Dripping:
    """A server that takes a request, and answers a byte at a time for ever: who waits for the end
    of it waits for ever."""

    def __enter__(self) -> Dripping:
        self.asked, self._end = 0, threading.Event()
        self._listener = Listener(self._drip)
        self.url = f"http://127.0.0.1:{self._listener.port}/hook"
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._listener.close()

    def _drip(self, connection: socket.socket) -> None:
        self.asked += 1
        with connection:
            try:
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
                while not self._end.wait(0.2):
                    connection.sendall(b"x")
            except OSError:
                return


def test_a_webhook_that_hangs_holds_up_neither_the_record_nor_the_budgets(
    settings: ProxySettings, store: Store
) -> None:
    limits = (
        SpendLimit(Budget(EACH / 2, "day")),
        SpendLimit(Budget(EACH * 2.5, "total"), stop=True),
    )
    with Dripping() as hook:
        made = replace(settings, budgets=limits, webhook=hook.url)
        with ProxyThread(made) as proxy:
            ask(proxy)
            until(lambda: hook.asked > 0)
            for calls in (2, 3):
                ask(proxy)
                until(lambda calls=calls: len(recorded(store)) == calls)  # type: ignore[misc]
            until(lambda: _spent(store, "all") > EACH * 2.5)
            assert proxy.ask(post(CHAT, ASK, KEY)).startswith(b"HTTP/1.1 402 ")


def test_a_collector_that_hangs_holds_up_neither_the_record_nor_feedback(
    settings: ProxySettings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Dripping() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        with ProxyThread(settings) as proxy:
            for calls in range(1, 6):
                last = ask(proxy)
                until(lambda calls=calls: len(recorded(store)) == calls)  # type: ignore[misc]
            until(lambda: collector.asked > 0)
            said = json.dumps({"call": last, "score": 1}).encode()
            assert proxy.ask(post("/feedback", said, KEY)).startswith(b"HTTP/1.1 201 ")


# reload:


BROKEN = {
    "no TOML": "[libraries",
    "an unknown setting": 'librarys = 1\n[libraries.d]\nstore = "."\n',
    "a store that is not there": '[libraries.d]\nstore = "nowhere"\n',
    "a revision that is not there": '[libraries.d]\nstore = "."\nrevision = "nowhere"\n',
    "no default": 'default = "x"\n[libraries.d]\nstore = "."\n',
    "a rule without a library": (
        '[libraries.d]\nstore = "."\n[[rules]]\nheader = "a"\nequals = "b"\n'
    ),
    "a rule that is no pattern": (
        '[libraries.d]\nstore = "."\n[[rules]]\nheader = "a"\nmatches = "("\nlibrary = "d"\n'
    ),
    "a rule of another library": (
        '[libraries.d]\nstore = "."\n[[rules]]\nheader = "a"\nequals = "b"\nlibrary = "x"\n'
    ),
    "a key that is not there": 'key_env = "NO_SUCH_KEY"\n[libraries.d]\nstore = "."\n',
    "keys that begin": 'key_env = "PATH"\n[libraries.d]\nstore = "."\n',
    "a time of no seconds": '[libraries.d]\nstore = "."\n[timeouts]\nconnect = "x"\n',
    "an unknown time": '[libraries.d]\nstore = "."\n[timeouts]\nread = 5\n',
    "no sample": 'sample = 7\n[libraries.d]\nstore = "."\n',
    "a budget of nothing": '[libraries.d]\nstore = "."\n[[budgets]]\nper = "day"\n',
    "bytes that are no text": "\xff",
    "an empty file's libraries": "[libraries.d]\n",
}


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_reload_with_any_broken_file_changes_nothing(
    workers: str, provider: Provider, store: Store, tmp_path: Path
) -> None:
    file = tmp_path / "proxy.toml"
    fine = '[libraries.d]\nstore = "."\nrevision = "main"\n'
    file.write_text(fine)
    arguments = ["--config", str(file), "--upstream", provider.url, "--workers", workers]
    process, port = listen(arguments, tmp_path)
    assert process.stderr is not None
    try:
        for name, text in BROKEN.items():
            file.write_bytes(text.encode("latin-1"))
            os.kill(process.pid, signal.SIGHUP)
            line = next(line for line in process.stderr if "reloaded" in line)
            assert "not reloaded: " in line, name
            with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
                client.sendall(post(CHAT, ASK))
                assert client.recv(4096).startswith(b"HTTP/1.1 200 "), name
            assert "Count both days." in text_of(provider), name
        file.unlink()
        os.kill(process.pid, signal.SIGHUP)
        line = next(line for line in process.stderr if "reloaded" in line)
        assert "not reloaded: " in line
    finally:
        process.terminate()
        process.communicate(timeout=120)


def test_no_signal_is_lost_to_the_process_that_watches_workers_nor_ends_it_badly(
    provider: Provider, store: Store, tmp_path: Path
) -> None:
    file = tmp_path / "proxy.toml"
    file.write_text('[libraries.d]\nstore = "."\nrevision = "main"\n')
    arguments = ["--config", str(file), "--upstream", provider.url, "--workers", "2"]
    process, _ = listen(arguments, tmp_path)
    assert process.stderr is not None
    file.write_text("[")
    for _ in range(500):
        os.kill(process.pid, signal.SIGHUP)
        assert "not reloaded: " in process.stderr.readline()
    process.terminate()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(process.stderr.read)
        while process.poll() is None:
            process.send_signal(signal.SIGHUP)
            time.sleep(0.0005)
    assert process.returncode == 0


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_reload_says_what_waits_for_a_restart_and_takes_the_rest(
    workers: str, provider: Provider, store: Store, tmp_path: Path
) -> None:
    file = tmp_path / "proxy.toml"
    library = '[libraries.d]\nstore = "."\nrevision = "main"\n'
    file.write_text("drain = 30\n" + library)
    arguments = ["--config", str(file), "--upstream", provider.url, "--workers", workers]
    process, _ = listen(arguments, tmp_path)
    assert process.stderr is not None
    try:
        file.write_text(f'drain = 1\nrecord = "content"\nredact = "x"\n{library}')
        os.kill(process.pid, signal.SIGHUP)
        line = next(line for line in process.stderr if "reloaded" in line)
        assert "record, redact" in line
        assert "drain" not in line
    finally:
        process.terminate()
        process.communicate(timeout=120)


# the store's library is the same for a request that is packed or comes in pieces:


def test_what_is_committed_between_two_pieces_of_a_body_is_in_it(
    settings: ProxySettings, provider: Provider, store: Store
) -> None:
    with (
        ProxyThread(settings) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), timeout=240) as client,
    ):
        sent = post(CHAT, ASK)
        client.sendall(sent[:-10])
        store.commit("main", [Operation("ADD", text="Give units.")], message="add")
        client.sendall(sent[-10:])
        while client.recv(4096):
            pass
    assert "Give units." in text_of(provider)
