"""Keys of the proxy's own: who may ask for what, what it comes to, and what is told of it."""

from __future__ import annotations

import gzip
import json
import multiprocessing
import socket
import stat
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from providers import OK, Provider, ProxyThread, Received, post
from proxy_fixtures import Choice, answer, store
from proxy_fixtures import counting_provider as provider
from test_traffic import recorded, run
from waiting import until

from tfgrpo.costs.accounts import Dollars
from tfgrpo.model.wire_formats import streamed_text
from tfgrpo.proxy.keys_and_limits import LEVELS, Rates, Spending, SpendingSettings
from tfgrpo.proxy.proxy_file import read_file
from tfgrpo.proxy.proxy_settings import (
    ProxySettings,
    SpendLimit,
    parse_upstream,
    with_key,
)
from tfgrpo.proxy.withheld_keys import KeyFilter, WithheldKeys
from tfgrpo.store import Store
from tfgrpo.store.activity.key_ledger import Budget, ledger_path
from tfgrpo.store.activity.traffic import CallRecord, traffic_path
from tfgrpo.store.errors import InvalidOperation, SettingsError
from tfgrpo.store.history.log_filter import UnknownTime
from tfgrpo.store.opening import open_ledger, open_traffic

__all__ = ["provider", "store"]  # fixtures

CHAT = "/v1/chat/completions"
OWN = "sk-the-providers-own"
EACH = (6 * 10 + 64 * 1 + 30 * 100) / 1e6
"""Dollars of a call."""
PRICES = {"m": {"prompt": 10.0, "completion": 100.0, "cached": 1.0}}


@pytest.fixture
def settings(store: Store, provider: Provider, monkeypatch: pytest.MonkeyPatch) -> ProxySettings:
    monkeypatch.setenv("PROVIDER_KEY", OWN)
    openai = with_key(parse_upstream(provider.url), "PROVIDER_KEY")
    anthropic = with_key(parse_upstream(provider.url, "anthropic"), "PROVIDER_KEY")
    libraries = {"d": Choice(store.path)}
    return ProxySettings(libraries, "d", openai, anthropic, port=0, prices=PRICES)


def new(store: Store, name: str, *limits: str) -> str:
    return run(store, "key", "new", name, *limits).split()[-1]


def ask(
    proxy: ProxyThread, key: str | None, path: str = CHAT, model: str = "m", *headers: bytes
) -> int:
    """Asks with a key; returns the status."""
    body = json.dumps({"model": model, "messages": []}).encode()
    sent = [] if key is None else [f"Authorization: Bearer {key}".encode()]
    got = proxy.ask(post(path, body, *sent, *headers))
    return int(got[9:12])


def get(proxy: ProxyThread, key: str, path: str) -> int:
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    return int(proxy.ask(f"{head}Authorization: Bearer {key}\r\n\r\n".encode())[9:12])


def spent(store: Store, scope: str) -> float:
    with closing(open_ledger(ledger_path(store.path))) as ledger:
        return sum(v for (of, _), v in ledger.spent("").items() if of == scope)


def test_a_key_of_ours_goes_on_as_the_providers_and_is_kept_nowhere(
    settings: ProxySettings, store: Store, provider: Provider
) -> None:
    key = new(store, "shop")
    with ProxyThread(settings) as proxy:
        for _ in range(2):
            assert ask(proxy, key) == 200
            sent = dict(provider.received[-1].headers)
            assert sent[b"Authorization"] == b"Bearer " + OWN.encode()
        kept_open = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nx-api-key: {key}\r\n"
        kept_open += "anthropic-version: 1\r\nContent-Length: 2\r\n"
        both = f"{kept_open}\r\n{{}}" + f"{kept_open}Connection: close\r\n\r\n{{}}"
        got = proxy.ask(both.encode())
        assert got.count(b"200 OK") == 2
        for received in provider.received[-2:]:
            assert received.header(b"x-api-key") == OWN.encode()
            assert received.header(b"authorization") is None
        assert ask(proxy, "sk-somebodys") == 200, "a caller with a key of its own"
        assert provider.received[-1].header(b"authorization") == b"Bearer sk-somebodys"
        page = b"Origin: http://shop.example"
        assert ask(proxy, key, CHAT, "m", page) == 200, "the key says who it is"
        assert ask(proxy, "sk-somebodys", CHAT, "m", page) == 403
        assert ask(proxy, key + "x") == 401
        assert ask(proxy, "tfk-nothing") == 401
        run(store, "key", "revoke", "shop")
        assert ask(proxy, key) == 401
    assert all(key.encode() not in repr(got.headers).encode() for got in provider.received)
    assert {call.key for call in recorded(store)} == {"shop", None}
    for file in store.path.parent.rglob("*"):
        if file.is_file():
            assert key.encode() not in file.read_bytes(), file
            assert OWN.encode() not in file.read_bytes(), file
    path = Path(ledger_path(store.path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_key_reaches_what_it_may_and_nothing_else_of_the_providers(
    settings: ProxySettings, store: Store, provider: Provider
) -> None:
    store.create_branch("prod")
    settings = replace(settings, libraries={"d": Choice(store.path), "e": Choice(store.path)})
    plain = new(store, "plain")
    narrow = new(store, "narrow", "--model", "gpt-*", "--library", "d", "--path", "/v1/embeddings")
    with ProxyThread(settings) as proxy:
        for path in ("/v1/embeddings", "/v1/files", "/v1/fine_tuning/jobs"):
            assert ask(proxy, plain, path) == 403, path
        assert get(proxy, plain, "/v1/models") == 200
        assert get(proxy, plain, "/v1/files/abc/content") == 403
        for path in ("/v1/models/../files/a", "/v1/models/%2e%2e/files/a", "/v1//models"):
            assert get(proxy, plain, path) == 403, path
        assert ask(proxy, narrow, CHAT, "gpt-5") == 200
        assert ask(proxy, narrow, CHAT, "d@HEAD/gpt-5") == 200
        assert ask(proxy, narrow, CHAT, "m") == 403
        assert ask(proxy, narrow, "/v1/embeddings") == 200
        assert ask(proxy, narrow, CHAT, "gpt-5", b"x-tfgrpo-library: e") == 403
        assert ask(proxy, narrow, CHAT, "gpt-5", b"x-tfgrpo-library: none") == 403
        got = proxy.ask(post(CHAT, b"\xff{}", f"Authorization: Bearer {narrow}".encode()))
        assert got.startswith(b"HTTP/1.1 403 "), "a body that only the provider can read"
        run(store, "key", "change", "narrow", "--model", "m")
        assert ask(proxy, narrow, CHAT, "m") == 200
        assert ask(proxy, narrow, "/v1/embeddings") == 200, "what is not named stays"
    reached = {got.line.split()[1] for got in provider.received}
    assert reached == {CHAT.encode(), b"/v1/models", b"/v1/embeddings"}


def test_a_proxy_beyond_this_machine_takes_keys_of_its_own_alone(
    settings: ProxySettings, store: Store
) -> None:
    with pytest.raises(SettingsError, match="needs a token"):
        replace(settings, host="0.0.0.0")
    settings = replace(settings, host="0.0.0.0", require_key=True)
    key = new(store, "shop")
    with ProxyThread(settings) as proxy:
        assert ask(proxy, key) == 200
        assert ask(proxy, "sk-somebodys") == 401
        assert ask(proxy, None) == 401
        assert get(proxy, key, "/metrics") in (403, 200)
    with pytest.raises(SettingsError, match="require_key needs"):
        replace(
            settings,
            openai=replace(settings.openai, key=""),
            anthropic=replace(settings.anthropic, key=""),
        )


def test_a_rate_holds_for_all_workers(
    settings: ProxySettings, store: Store, tmp_path: Path
) -> None:
    key = new(store, "slow", "--rate", "3")
    with ProxyThread(settings) as one, ProxyThread(settings) as other:
        statuses = [ask(proxy, key) for proxy in (one, other, one, other, one)]
        assert sorted(statuses) == [200, 200, 200, 429, 429]
        body = post(CHAT, b"{}", f"Authorization: Bearer {key}".encode())
        assert b"\r\nRetry-After: " in one.ask(body)
    path = str(tmp_path / "rates")

    def take(found: Any) -> None:
        rates = Rates(path)
        found.put(sum(not rates.wait(700, 1000) for _ in range(600)))
        rates.close()

    context = multiprocessing.get_context("fork")
    found = context.Queue()
    workers = [context.Process(target=take, args=(found,)) for _ in range(3)]
    for worker in workers:
        worker.start()
    taken = sum(found.get(timeout=120) for _ in workers)
    for worker in workers:
        worker.join()
    assert 1000 <= taken <= 1000 + 1000 / 60 * 60, "no request is let through twice"
    assert taken < 1800


def test_a_budget_of_a_key_ends_it_until_it_is_raised(
    settings: ProxySettings, store: Store
) -> None:
    key = new(store, "shop", "--budget", f"{EACH * 1.5}/day")
    with ProxyThread(settings) as proxy:
        for calls in (1, 2):
            assert ask(proxy, key) == 200
            until(lambda calls=calls: spent(store, "key:shop") > EACH * (calls - 0.5))  # type: ignore[misc]
        assert ask(proxy, key) == 402
        (listed,) = json.loads(run(store, "key", "list", "--json"))
        assert listed["spent"] == pytest.approx(2 * EACH)
        assert "of $0.004" in run(store, "key", "list")
        run(store, "key", "change", "shop", "--budget", "5/month")
        assert ask(proxy, key) == 200
    assert spent(store, "all") == pytest.approx(3 * EACH)


def test_budgets_alert_once_at_the_webhook_and_stop(settings: ProxySettings, store: Store) -> None:
    with Provider(answer(b"{}")) as hook:
        limits = (
            SpendLimit(Budget(EACH * 1.1, "day")),
            SpendLimit(Budget(EACH * 1.5, "month"), "d", stop=True),
            SpendLimit(Budget(EACH * 0.1, "total"), "other", stop=True),
        )
        settings = replace(settings, budgets=limits, webhook=f"{hook.url}/secret-path")
        with ProxyThread(settings) as proxy:
            assert ask(proxy, "sk-own") == 200
            until(lambda: len(hook.received) == 1)
            assert ask(proxy, "sk-own") == 200
            until(lambda: len(hook.received) == 4)
            assert ask(proxy, "sk-own") == 402
            assert ask(proxy, "sk-own", CHAT, "m", b"x-tfgrpo-library: none") == 200
            until(lambda: spent(store, "library:none") > 0)
        events = [json.loads(got.body) for got in hook.received]
    assert [(one["scope"], one["per"]) for one in events].count(("all", "day")) == 2
    assert len(events) == 4, "each once"
    assert all("budget of" in one["text"] for one in events)


def test_of_several_workers_one_tells_of_a_budget(tmp_path: Path) -> None:
    def slow(connection: socket.socket, _: object) -> None:
        time.sleep(0.2)  # so that the others come while it is being told
        connection.sendall(OK)

    call = CallRecord(*[None] * len(CallRecord._fields))._replace(
        id="call-1", time=time.time_ns() // 1000, model="gpt-5-mini", prompt_tokens=10**9
    )
    call = call._replace(completion_tokens=0, provider="https://api.openai.com")
    lines: list[str] = []
    with Provider(slow) as hook:
        budgets = [("all", 1.0, "day")]
        path = ledger_path(tmp_path / "store.db")
        about = SpendingSettings(path, {}, budgets, f"{hook.url}/told", "d")
        workers = [Spending(about, lines.append) for _ in range(4)]
        owed = [(f"worker {number}", one.owed([call])) for number, one in enumerate(workers)]
        each = zip(workers, owed, strict=True)
        threads = [threading.Thread(target=one.settle, args=about) for one, about in each]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for one in workers:
            one.close()
    assert len(hook.received) == len(LEVELS), "each level once"
    assert len(lines) == len(LEVELS)


def test_a_budget_that_stops_holds_on_every_path(settings: ProxySettings, store: Store) -> None:
    limits = (SpendLimit(Budget(EACH / 2, "day"), stop=True),)
    with ProxyThread(replace(settings, budgets=limits)) as proxy:
        assert ask(proxy, "sk-own") == 200
        until(lambda: spent(store, "all") > 0)
        for path in (CHAT, "/v1/embeddings", "/v1/files", "/v1/realtime"):
            assert ask(proxy, "sk-own", path) == 402, path
        upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        head = f"GET /v1/realtime HTTP/1.1\r\nHost: localhost\r\n{upgrade}"
        keyed = f"{head}Sec-WebSocket-Key: eA==\r\nAuthorization: Bearer sk-own\r\n\r\n"
        assert proxy.ask(keyed.encode())[9:12] == b"402", "a socket costs most"


@pytest.mark.parametrize("default", ["d@main", "none"])
def test_keys_are_beside_a_store_whatever_the_default_library_is(
    settings: ProxySettings, store: Store, default: str
) -> None:
    key = new(store, "shop")
    with ProxyThread(replace(settings, default=default)) as proxy:
        assert ask(proxy, key) == 200
        until(lambda: spent(store, "key:shop") > 0)


def test_a_webhook_that_is_away_is_told_later(
    settings: ProxySettings, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    limits = (SpendLimit(Budget(EACH / 2, "day")),)
    settings = replace(settings, budgets=limits, webhook="http://127.0.0.1:9/secret-path")
    with ProxyThread(settings) as proxy:
        assert ask(proxy, "sk-own") == 200
        until(lambda: "the webhook was not told" in caplog.text)
    assert "secret-path" not in caplog.text
    with closing(open_ledger(ledger_path(store.path))) as ledger:
        assert ledger.notes() == set(), "so it is told again"


def test_keys_are_made_under_a_name_each_and_refused_where_they_make_no_sense(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = new(store, "shop", "--expires", "30d")
    with pytest.raises(InvalidOperation, match="there is a key"):
        new(store, "shop")
    run(store, "key", "revoke", "shop")
    assert new(store, "shop") != first
    for arguments in (("revoke", "other"), ("change", "other", "--rate", "1")):
        with pytest.raises(InvalidOperation, match="there is no key"):
            run(store, "key", *arguments)
    with pytest.raises(InvalidOperation, match="is no budget"):
        new(store, "x", "--budget", "much")
    listed = json.loads(run(store, "key", "list", "--all", "--json"))
    assert len(listed) == 2
    times = [
        t for one in listed for t in (one["created"], one["revoked"], one["limits"]["expires"])
    ]
    assert {datetime.fromisoformat(time).utcoffset() for time in times if time} == {timedelta(0)}
    assert [one["revoked"] is None for one in listed] == [False, True]
    assert first not in run(store, "key", "list", "--all")
    file = tmp_path / "proxy.toml"
    monkeypatch.setattr("tfgrpo.trust.trusted_folders.require", lambda *_: None)
    for text, why in (
        ('key_env = "NOWHERE"\n', "NOWHERE has no key"),
        ('webhook = "file:///etc/passwd"\n', "no URL"),
        ("[[budgets]]\ndollars = -1\n", "no budget"),
        ('[[budgets]]\ndollars = 1\nper = "week"\n', "no budget"),
        ("[[budgets]]\neuros = 1\n", "euros"),
    ):
        file.write_text(text)
        with pytest.raises(SettingsError, match=why):
            read_file(file)


def test_a_file_that_would_send_a_key_or_tell_an_address_needs_trust(tmp_path: Path) -> None:
    from tfgrpo.trust.permissions import of_proxy

    tables = {"key_env": "OPENAI_API_KEY", "webhook": "https://example.com/x"}
    needed = {one.key for one in of_proxy(tmp_path / "proxy.toml", tables).needed}
    assert needed == {"key_env", "webhook"}


def test_a_reload_lets_no_key_in_that_nobody_checks(settings: ProxySettings, store: Store) -> None:
    plain = replace(settings.openai, key="")
    anthropic = replace(settings.anthropic, key="")
    with ProxyThread(replace(settings, openai=plain, anthropic=anthropic)) as proxy:
        with pytest.raises(SettingsError, match="restart"):
            proxy.proxy.reload(settings)
        assert ask(proxy, "tfk-anything") == 200, "which the provider judges"


@pytest.mark.parametrize(
    "time", ["yesterday", "today", "2 days ago", "1h ago", "2020-01-01", "1969-12-31", "0d"]
)
def test_no_key_is_made_that_is_over_already(store: Store, time: str) -> None:
    with pytest.raises(UnknownTime, match="is over already"):
        new(store, "old", "--expires", time)
    new(store, "trial", "--expires", "30d")
    with pytest.raises(UnknownTime, match="is over already"):
        run(store, "key", "change", "trial", "--expires", time)
    (key,) = json.loads(run(store, "key", "list", "--json"))
    assert datetime.fromisoformat(key["limits"]["expires"]) > datetime.now(UTC)


def test_an_expired_key_is_refused(settings: ProxySettings, store: Store) -> None:
    key = new(store, "trial", "--expires", "30d")
    with ProxyThread(settings) as proxy:
        assert ask(proxy, key) == 200
        with closing(open_ledger(ledger_path(store.path))) as ledger:
            (one,) = ledger.virtual_keys()
            ledger.change_key("trial", one.limits._replace(expires=1))
        assert ask(proxy, key) == 401


def test_a_request_that_only_reads_takes_no_tokens_and_costs_nothing(
    settings: ProxySettings, store: Store
) -> None:
    with ProxyThread(replace(settings, require_key=False)) as proxy:
        get(proxy, "sk-own", "/v1/models")
        ask(proxy, "sk-own", model="unpriced")
    one, two = recorded(store)
    listed, paid = (one, two) if one.model is None else (two, one)
    assert (listed.prompt_tokens, listed.cached_tokens, listed.completion_tokens) == (0, 0, 0)
    cost = Dollars(PRICES).of
    assert cost(listed) == 0.0
    assert cost(paid) is None
    assert cost(paid._replace(model=None)) is None
    assert cost(paid._replace(model=None, prompt_tokens=None, completion_tokens=None)) is None


def test_who_is_counted_by_no_budget_is_told_once_for_each_model(tmp_path: Path) -> None:
    said: list[str] = []
    path = tmp_path / "ledger.db"
    spending = Spending(SpendingSettings(str(path), {}, [], None, "support"), said.append)
    blank = CallRecord(*[None] * len(CallRecord._fields))  # type: ignore[arg-type]
    streamed = blank._replace(
        time=1, status=200, model="gpt-4o", provider="https://api.openai.com/v1", key="shop"
    )
    counted = streamed._replace(prompt_tokens=1000, completion_tokens=1000)
    unpriced = counted._replace(model="nobody-knows-me")
    listed = streamed._replace(model=None)
    for calls in ([listed], [streamed] * 3, [counted, unpriced], [streamed, unpriced]):
        spending.settle("ab", spending.owed(calls))
    spending.close()
    tokens, price = said
    assert "gpt-4o" in tokens
    assert "stream_options.include_usage" in tokens
    assert "the price of nobody-knows-me" in price
    with closing(open_ledger(str(path))) as ledger:
        assert 0 < ledger.spent("")["key:shop", "1970-01-01"] < 0.1


PLAIN_KEY = "d41d8cd98f00b204e9800998ecf8427eQQ"
CALLERS = "customers-own-0123456789"


def quoting(form: str, status: bytes) -> Callable[[socket.socket, Received], None]:
    """A provider that quotes the key that it was sent, under this status: as it is, in JSON within
    JSON, written with escapes, packed, in pieces, in a header, or letter by letter in a stream."""

    def say(connection: socket.socket, request: Received) -> None:
        key = (request.header(b"authorization") or b"").decode()
        more, plain = b"", json.dumps({"message": f"wrong: {key}", "n": 1.50})
        if form == "escapes":
            plain = plain.replace(key, "".join(f"\\u{ord(sign):04x}" for sign in key))
        elif form == "JSON in JSON":
            plain = json.dumps({"raw": plain, "of": [plain, {key: 1}]})
        elif form == "twice":
            plain = f'{{"message": "{key}", "message": "no"}}'
        elif form == "cut off":
            plain = plain[:-9]
        elif form == "text":
            plain = f"wrong: {key}\n"
        elif form == "stream":
            pieces = (json.dumps({"choices": [{"delta": {"content": x}}]}) for x in key)
            plain = "".join(f"data: {piece}\n\n" for piece in pieces)
        body = plain.encode()
        if form == "packed":
            body, more = gzip.compress(body), b"Content-Encoding: gzip\r\n"
        elif form == "header":
            more = b'WWW-Authenticate: Bearer error="%b"\r\n' % key.encode()
        head = b"HTTP/1.1 %b\r\n%bContent-Type: application/json\r\n" % (status, more)
        if form == "chunks":
            chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
            connection.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")
        else:
            connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)

    return say


FORMS = ("whole", "escapes", "JSON in JSON", "twice", "cut off", "text", "packed", "header")


@pytest.mark.parametrize(
    ("form", "status"),
    [
        *((form, status) for form in (*FORMS, "chunks") for status in (b"401 No", b"200 OK")),
        ("stream", b"200 OK"),
    ],
)
def test_a_key_that_an_answer_quotes_is_on_no_record_and_goes_to_nobody_with_a_key_of_ours(
    form: str, status: bytes, settings: ProxySettings, store: Store, provider: Provider
) -> None:
    keyed = replace(settings.openai, key=PLAIN_KEY)
    settings = replace(settings, openai=keyed, record="content")
    key, provider.answer = new(store, "shop"), quoting(form, status)
    body = b'{"model": "m", "messages": [], "mine": "%b"}' % CALLERS.encode()
    with ProxyThread(settings) as proxy:
        own = proxy.ask(post(CHAT, body, b"Authorization: Bearer " + CALLERS.encode()))
        got = proxy.ask(post(CHAT, body, b"Authorization: Bearer " + key.encode()))
    if form != "stream":
        assert got.startswith(b"HTTP/1.1 " + status)
        head, _, clean = got.partition(b"\r\n\r\n")
        if form == "chunks" and status == b"200 OK":
            clean = b"".join(clean.split(b"\r\n")[1::2])
        else:
            assert f"Content-Length: {len(clean)}\r\n".encode() in head + b"\r\n"
        assert b"[redacted]" in (head if form == "header" else clean)
        assert PLAIN_KEY.encode() not in got
        for again in (clean, *(one.encode() for one in strings_of(clean))):
            assert PLAIN_KEY.encode() not in again
        if form in ("whole", "text", "header", "twice"):
            assert CALLERS.encode() in own, "to others an answer goes as it came"
    else:
        events = got.partition(b"\r\n\r\n")[2]
        assert streamed_text(events).decode() == "Bearer " + "*" * len(PLAIN_KEY)
    with closing(open_traffic(traffic_path(store.path))) as traffic:
        contents = [traffic.content(call.id) for call in recorded(store)]
        assert len(contents) == 2
        for content in contents:
            assert content is not None
            for text in (content.request, content.answer, *strings_of(content.answer.encode())):
                assert PLAIN_KEY not in text
                assert CALLERS not in text or content.request == text
        (mine,) = (one for one in contents if one is not None and "[redacted]" in one.request)
        assert CALLERS not in mine.request
    for file in store.path.parent.rglob("*"):
        assert not file.is_file() or PLAIN_KEY.encode() not in file.read_bytes(), file


def strings_of(body: bytes) -> list[str]:
    """All texts in a body, those of JSON in them too."""
    try:
        value = json.loads(body)
    except ValueError:
        return []
    several, texts = [value], list[str]()
    while several:
        one = several.pop()
        if isinstance(one, str):
            texts += [one, *strings_of(one.encode())]
        elif isinstance(one, dict | list):
            several += [*one, *one.values()] if isinstance(one, dict) else one
    return texts


def test_an_error_without_a_key_goes_on_as_it_came_and_one_that_cannot_be_read_is_ours(
    settings: ProxySettings, store: Store, provider: Provider
) -> None:
    settings = replace(settings, openai=replace(settings.openai, key=PLAIN_KEY))
    sent = b"Authorization: Bearer " + new(store, "shop").encode()
    packed = gzip.compress(b'{"error":  "busy", "n": 1.50}')
    head = b"HTTP/1.1 400 No\r\nContent-Encoding: %b\r\nContent-Length: %d\r\nX-A: b\r\n\r\n%b"
    with ProxyThread(settings) as proxy:
        provider.answer = head % (b"gzip", len(packed), packed)
        got = proxy.ask(post(CHAT, b"{}", sent))
        assert got.endswith(b"\r\n\r\n" + packed)
        assert b"Content-Encoding: gzip\r\n" in got
        provider.answer = head % (b"br", 3, b"abc")
        got = proxy.ask(post(CHAT, b"{}", sent))
        assert got.startswith(b"HTTP/1.1 400 ")
        assert b"X-A: b\r\n" in got
        assert b"Content-Encoding" not in got
        assert b"is not read here" in got
        long = b'{"a": "%b"}' % (b"x" * (1 << 20))
        provider.answer = answer(long, status=b"400 No")
        assert b"is not read here" in proxy.ask(post(CHAT, b"{}", sent))
        assert long in proxy.ask(post(CHAT, b"{}"))
        provider.answer = lambda connection, _: (
            connection.sendall(b"HTTP/1.1 400 No\r\nContent-Length: 9\r\n\r\nabc"),
            connection.shutdown(socket.SHUT_RDWR),
        )
        got = proxy.ask(post(CHAT, b"{}", sent))
        assert got.startswith(b"HTTP/1.1 502 "), "one that breaks off is not begun"


def test_what_is_packed_waits_until_it_is_whole_and_is_not_asked_for(
    settings: ProxySettings, store: Store, provider: Provider
) -> None:
    settings = replace(settings, openai=replace(settings.openai, key=PLAIN_KEY))
    sent = b"Authorization: Bearer " + new(store, "shop").encode()
    asked = post(CHAT, b"{}", sent, b"Accept-Encoding: gzip")
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: %b\r\nContent-Length: %d\r\nX-A: b\r\n\r\n%b"
    with ProxyThread(settings) as proxy:
        packed = gzip.compress(b'{"choices":  [], "n": 1.50}')
        provider.answer = head % (b"gzip", len(packed), packed)
        got = proxy.ask(asked)
        assert got.startswith(b"HTTP/1.1 200 OK\r\n")
        assert got.endswith(b"\r\n\r\n" + packed), "as it came"
        assert provider.received[-1].header(b"accept-encoding") == b"identity"
        twice = packed + gzip.compress(PLAIN_KEY.encode())
        for packing, body in ((b"br", b"abc"), (b"gzip", twice), (b"gzip", b"none")):
            provider.answer = head % (packing, len(body), body)
            got = proxy.ask(asked)
            assert got.startswith(b"HTTP/1.1 502 "), "what cannot be read is an error of ours"
            assert b"is not read here" in got


@pytest.mark.parametrize("written", [PLAIN_KEY, "".join(f"\\u{ord(x):04X}" for x in PLAIN_KEY)])
def test_a_key_that_is_cut_anywhere_is_overwritten_and_all_else_goes_on_at_once(
    written: str,
) -> None:
    withheld = WithheldKeys([PLAIN_KEY.encode(), b"sk-another/one+of=them"])
    before, key, after = b'{"a": "', written.encode(), b'\\n \\u00e9"}\n'
    whole = before + key + after
    cuts = ((whole[:cut], whole[cut:]) for cut in range(len(whole)))
    for pieces in (*cuts, [b"%c" % byte for byte in whole]):
        filtered = KeyFilter(withheld)
        got = b"".join([*map(filtered.passed, pieces), filtered.rest()])
        assert len(got) == len(whole)
        assert got.startswith(before)
        assert got.endswith(after)
        assert key[4:] not in got
    filtered = KeyFilter(withheld, streamed=False)
    for piece in (b"data: d\n\n", b"a d", b"", b"sk-", b"sk-anothe", b"r one", key[:9], b"Q\\"):
        waits = piece.endswith((b"sk-anothe", key[:9]))
        assert filtered.passed(piece).endswith(piece) != waits or not piece
    assert filtered.rest() == b""
    filtered = KeyFilter(withheld)
    assert filtered.passed(key[:-1]) == b""
    assert key[:-1] not in filtered.rest(), "an answer that ends in a key"


def test_a_key_that_events_bring_by_letters_is_overwritten_and_what_is_none_goes_on() -> None:
    def event(text: str, name: str = "content") -> bytes:
        return b"data: %b\n\n" % json.dumps({"id": "c1", "delta": {name: text}}).encode()

    def passed(*texts: str) -> list[bytes]:
        filtered = KeyFilter(WithheldKeys([PLAIN_KEY.encode()]))
        return [*map(filtered.passed, map(event, texts)), filtered.rest()]

    assert passed("d", "41", "d8", "", "x") == [
        *(event("d"), event("41"), b"", b"", event("d8") + event("") + event("x")),
        b"",
    ], "it waits where enough of a key has come, and goes on where it is none"
    whole = b"".join(passed("a d", PLAIN_KEY[1:4], *PLAIN_KEY[4:], " b\u00e9"))
    assert streamed_text(whole).decode() == "a d" + "*" * (len(PLAIN_KEY) - 1) + " b\u00e9"
    assert PLAIN_KEY[:20] not in streamed_text(b"".join(passed(*PLAIN_KEY[:20]))).decode()
    filtered = KeyFilter(WithheldKeys([PLAIN_KEY.encode()]), streamed=True)
    pieces = event(f"\n{PLAIN_KEY[:9]}") + event("other", "thought") + event(PLAIN_KEY[9:] + "!")
    got = b"".join(filtered.passed(b"%c" % byte) for byte in pieces) + filtered.rest()
    assert len(got) == len(pieces)
    assert streamed_text(got).decode() == "\n" + "*" * len(PLAIN_KEY) + "!"
