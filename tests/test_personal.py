"""Personal data that is taken out of words before they are kept."""

from __future__ import annotations

import re
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from providers import ProxyThread, post
from proxy_fixtures import CHAT_USAGE, Choice, answer, make
from test_traffic import CHAT, KEY, Provider, ask, bytes_beside, recorded, run
from ui_demo import BEGIN, demo
from ui_rig import Visitor
from waiting import until

from tfgrpo.cli.main import tfgrpo
from tfgrpo.proxy.keys_and_limits import Desk
from tfgrpo.proxy.proxy_file import withheld_beside
from tfgrpo.proxy.proxy_settings import ProxySettings, parse_upstream
from tfgrpo.proxy.withheld_words import Finder, clean_feedback, without_secrets
from tfgrpo.serving.library_server import Lookups
from tfgrpo.store.activity.traffic import Feedback, FeedbackRefused, traffic_path
from tfgrpo.store.address import project_root
from tfgrpo.store.errors import SettingsError
from tfgrpo.store.opening import open_traffic
from tfgrpo.store.records import REDACTED

TAKEN = (
    "+49 30 901820",
    "030 901820",
    "(030) 90 18 20",
    "+44 20 7946 0958",
    "0151 12345678",
    "192.168.7.12",
    "8.8.8.8",
    "2001:4860:4860::8888",
    "fe80::1ff:fe23:4567:890a",
    "anna@example.com",
    "DE89 3704 0044 0532 0130 00",
    "4111 1111 1111 1111",
)
LEFT = (
    "2026-11-25",
    "12:30:45",
    "3.14159",
    "version 1.2.3",
    "order 1234",
    "127.0.0.1",
    "std::vector",
    "1,234,567 words",
    "999.1.1.1",
    "5 to 12 June",
)


@pytest.mark.parametrize("text", TAKEN)
def test_what_is_personal_is_taken_out(text: str) -> None:
    found = Finder((), ("DE",))
    for around in ("Write {}.", '{{"content": "call {} now"}}', "电话{}。", '{{"cut": "off {} '):
        kept = without_secrets(around.format(text), found)
        assert REDACTED in kept, around
        assert text not in kept, around


@pytest.mark.parametrize("text", LEFT)
def test_what_is_not_is_left(text: str) -> None:
    assert without_secrets(f"It is {text}, and so on.", Finder((), ("DE",))) == (
        f"It is {text}, and so on."
    )


def test_numbers_of_another_country_are_known_as_its_own(tmp_path: Path) -> None:
    british = "020 7946 0958"
    assert Finder((), ("GB",)).sub("x", f"Ring {british}.") == "Ring x."
    with pytest.raises(SettingsError, match="no country is 'XX'"):
        Finder((), ("XX",))


def test_each_expression_is_read_by_itself() -> None:
    several = (r"(?i)jane", r"(\w)-\1", r"(\d):\1", "(?P<it>q)9", "(?P<it>z)8", "")
    assert Finder(several).sub("_", "JANE a-a 4:4 q9 z8, a-b") == "_ _ _ _ _, a-b"
    with pytest.raises(SettingsError, match="redact: 5 is no text"):
        Finder((5,))  # type: ignore[arg-type]
    for wrong in ("(", "x{99999999999}"):
        with pytest.raises(SettingsError, match=re.escape(f"redact: {wrong!r}: ")):
            Finder(("fine", wrong))


def test_a_long_text_takes_a_time_in_proportion_and_loses_every_number() -> None:
    found = Finder((), ("DE",))
    began = time.process_time()
    for text in ("12 34 " * 60_000, "(((" * 100_000, "1-" * 130_000, ":" * 260_000, "1." * 130_000):
        found.sub("x", text)
    assert time.process_time() - began < 20
    assert "901820" not in found.sub("x", "word " * 20_000 + "030 901820")


def test_words_and_feedback_lose_it_on_their_way_to_the_record(tmp_path: Path) -> None:
    with (
        make(tmp_path / ".tfgrpo/store.db", "Count both days.") as store,
        Provider(answer(CHAT_USAGE)) as provider,
    ):
        upstream = parse_upstream(provider.url)
        settings = ProxySettings(
            *({"d": Choice(store.path)}, "d", upstream, upstream),
            port=0,
            record="content",
            personal=("DE",),
        )
        with ProxyThread(settings) as proxy:
            said = "Ring 030 901820 or ask 192.168.7.12"
            call = ask(proxy, {"messages": [{"role": "user", "content": said}]})
            body = f'{{"call": "{call}", "comment": "was 030 901820"}}'.encode()
            assert proxy.ask(post("/feedback", body, KEY)).startswith(b"HTTP/1.1 201 ")
        kept = bytes_beside(store)
    assert b"Ring [redacted] or ask [redacted]" in kept
    assert not re.search(rb"901820|192\.168", kept)
    feedback = Feedback("c", 1, "a", comment="030 901820")
    assert clean_feedback(feedback, Finder((), ("DE",))).comment == REDACTED


def test_nothing_that_a_proxy_tells_of_a_call_has_what_is_taken_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not its path, its model, its tags, why it was refused, or what feedback on it is called: in
    the record, its sums, spans, the log of accesses and the proxy's own pages."""
    log = tmp_path / "access.jsonl"
    with (
        make(tmp_path / ".tfgrpo/store.db", "Count both days.") as store,
        Provider(answer(CHAT_USAGE)) as provider,
        Provider(answer(b"{}")) as collector,
    ):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url.removesuffix("/v1"))
        settings = ProxySettings(
            *({"d": Choice(store.path)}, "d"),
            *(replace(parse_upstream(provider.url), key="sk-own"),) * 2,
            port=0,
            record="content",
            redact=(r"acct_\w+",),
            personal=("DE",),
            access_log=str(log),
        )
        own = run(store, "key", "new", "shop").split()[-1]
        with ProxyThread(settings) as proxy:
            tags = b"x-tfgrpo-tags: acct_name=1,who=acct_value,030 901820=2"
            call = ask(proxy, {"model": "m-acct_model"}, tags)
            ask(proxy, {"model": "anna@example.com"})
            for label in ("acct_label", "030 901820", "anna@example.com"):
                body = f'{{"call": "{call}", "score": 0.5, "label": "{label}"}}'.encode()
                assert proxy.ask(post("/feedback", body, KEY)).startswith(b"HTTP/1.1 201 ")
            with_key = f"Authorization: Bearer {own}".encode()
            for path, status in (("acct_path", 200), ("+49-30-901820", 200), ("a@b.example", 200)):
                got = proxy.ask(post(f"/v1/customers/{path}/messages", b"{}", KEY))
                assert got.startswith(b"HTTP/1.1 %d " % status)
                got = proxy.ask(post(f"/v1/files/{path}", b"{}", with_key))
                assert got.startswith(b"HTTP/1.1 403 ")
            got = proxy.ask(post(CHAT, b"{}", KEY, b"x-tfgrpo-library: acct_library"))
            assert got.startswith(b"HTTP/1.1 404 ")
            with monkeypatch.context() as broken:
                broken.setattr(Desk, "admit", lambda *_: 1 / 0)
                proxy.ask(post("/v1/customers/acct_failed/030-901820", b"{}", KEY))
            until(lambda: len(recorded(store)) == 10)
            pages = b"".join(
                proxy.ask(b"GET %b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % page)
                for page in (b"/metrics", b"/healthz")
            )
            until(lambda: b"".join(g.body for g in collector.received).count(b'"spanId"') >= 13)
        spans = b"".join(got.body for got in collector.received)
        kept = bytes_beside(store)
    told = {"pages": pages, "spans": spans, "record": kept, "accesses": log.read_bytes()}
    for where, text in {**told, "log": caplog.text.encode()}.items():
        assert b"[redacted]" in text, where
        assert not re.findall(rb"acct_\w+|901820|anna@|a@b", text), where


def test_a_date_in_the_name_of_a_model_is_no_number_of_some_country() -> None:
    found = Finder((r"acct_\w+",), ("DK", "LU"))
    for model in ("claude-3-5-sonnet-20241022", "gpt-4o-2024-08-06"):
        assert found.search(model)
        assert not found.of_names().search(model)
    assert found.of_names().sub("x", "m-acct_7 8.8.8.8 anna@example.com") == "m-x x x"


def test_a_label_that_is_taken_out_takes_its_scale_along(tmp_path: Path) -> None:
    store, call = demo(tmp_path, now=BEGIN), "call-000000000001"
    (project_root(store) / "proxy.toml").write_text('redact = "acct_[0-9]+"')
    run = ["--store", str(store), "feedback"]
    assert CliRunner().invoke(tfgrpo, [*run, "--scale", "acct_7=1..5"]).exit_code == 0
    done = CliRunner().invoke(tfgrpo, [*run, call, "--score", "4", "--label", "acct_7"])
    assert isinstance(done.exception, FeedbackRefused), "it is on record under another label"
    assert CliRunner().invoke(tfgrpo, [*run, call, "--score=1", "--label=acct_7"]).exit_code == 0
    with closing(open_traffic(traffic_path(store))) as traffic:
        assert traffic.feedback(call)[-1].label == REDACTED


def test_words_that_pass_no_proxy_lose_what_its_file_takes_out(tmp_path: Path) -> None:
    store, call = demo(tmp_path, now=BEGIN), "call-000000000001"
    given = "Jane Doe: 030 901820 at shop 7-7 or K-12"
    (project_root(store) / "proxy.toml").write_text(
        'redact = ["(?i)jane doe", "(.)-\\\\1"]\npersonal = ["DE"]\nupstream = "http://else.example"'
    )
    run = ["--store", str(store), "feedback", call]
    done = CliRunner().invoke(tfgrpo, [*run, "--comment", given, "--correct", given])
    assert done.exit_code == 0, done.output
    Visitor(store).post(f"/call/{call}", {"comment": given})
    lookups = Lookups(store, pattern=withheld_beside(project_root(store), ["K-12"]))
    lookups.add_feedback({"call": call, "comment": given})
    with closing(open_traffic(traffic_path(store))) as traffic:
        *_, first, second, third = traffic.feedback(call)
    kept = "[redacted]: [redacted] at shop [redacted] or K-12"
    assert (first.comment, first.correct, second.comment) == (kept, kept, kept)
    assert third.comment == kept.replace("K-12", "[redacted]")
    (project_root(store) / "proxy.toml").write_text('redact = "("')
    done = CliRunner().invoke(tfgrpo, [*run, "--comment", given])
    assert isinstance(done.exception, SettingsError)
    assert "redact" in Visitor(store).post(f"/call/{call}", {"comment": given}, status=400)
    with closing(open_traffic(traffic_path(store))) as traffic:
        assert traffic.feedback(call)[-1] == third, "nothing is recorded with what it should lose"
