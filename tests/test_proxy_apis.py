"""Gemini's own route and Bedrock's converse: where the library goes, whom it is asked of, and what
is on record of the answer. Their own clients are in test_proxy_clients.py."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from amazon_frames import framed
from hypothesis import given, settings
from hypothesis import strategies as st
from providers import OK, Provider, ProxyThread, post
from proxy_fixtures import answer, provider, store
from proxy_fixtures import settings as served
from test_proxy_examples import NEW, RULES, WHOLE
from test_proxy_splice import bodies, values
from test_traffic import recorded, run
from wire_answers import frames

from tfgrpo.cli.proxy_key import proxy as proxy_command
from tfgrpo.cli.proxy_key import settings_of
from tfgrpo.cli.start_context import App
from tfgrpo.improvement.exchange import answered, asked
from tfgrpo.proxy.proxy_file import read_file
from tfgrpo.proxy.proxy_settings import Provider as Listed
from tfgrpo.proxy.proxy_settings import (
    ProxySettings,
    parse_upstream,
    upstreams,
    with_keys,
)
from tfgrpo.rendering.json_splice import RepeatedKey, document, edited
from tfgrpo.rendering.request_placement import (
    KEYS,
    Place,
    api_of,
    named_by,
    place_in_converse,
    place_in_gemini,
)
from tfgrpo.store import Store
from tfgrpo.store.activity.traffic import traffic_path
from tfgrpo.store.errors import SettingsError
from tfgrpo.store.opening import open_traffic
from tfgrpo.trust.permissions import of_proxy
from tfgrpo.ui.call_conversation import answer_turns, turns_of

__all__ = ["provider", "served", "store"]  # fixtures

GEMINI, CONVERSE = "/v1beta/models/g-1:generateContent", "/model/us.a.c-1/converse"
STREAM, CONVERSE_STREAM = "/v1beta/models/g-1:streamGenerateContent?alt=sse", CONVERSE + "-stream"
ASKED = {
    GEMINI: {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
    CONVERSE: {"messages": [{"role": "user", "content": [{"text": "Hi"}]}]},
}
ASKED |= {STREAM: ASKED[GEMINI], CONVERSE_STREAM: ASKED[CONVERSE]}
PAIR = [("user", 'My "card"?'), ("assistant", "Label: late")]


# where it goes:


def placed(place: Place, body: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(body)
    found: dict[str, Any] = json.loads(
        edited(text.encode(), text, place(text, document(text, KEYS), NEW))
    )
    return found


def test_examples_are_turns_before_the_first() -> None:
    body = placed(place_in_gemini, ASKED[GEMINI])
    assert body["systemInstruction"] == {"parts": [{"text": RULES}]}
    turns = [
        {"role": role.replace("assistant", "model"), "parts": [{"text": t}]} for role, t in PAIR
    ]
    assert body["contents"] == [*turns, *ASKED[GEMINI]["contents"]]
    body = placed(place_in_converse, ASKED[CONVERSE])
    assert body["system"] == [{"text": RULES}]
    turns = [{"role": role, "content": [{"text": text}]} for role, text in PAIR]
    assert body["messages"] == [*turns, *ASKED[CONVERSE]["messages"]]
    assert (
        placed(place_in_gemini, {"contents": []})["systemInstruction"]["parts"][0]["text"] == WHOLE
    )
    assert placed(place_in_converse, {"messages": []})["system"] == [{"text": WHOLE}]
    cached = placed(place_in_gemini, {"cachedContent": "c/1", **ASKED[GEMINI]})
    assert cached["contents"][0] == {"role": "user", "parts": [{"text": WHOLE}]}
    assert "systemInstruction" not in cached


@settings(deadline=None)
@given(bodies, values, st.sampled_from([place_in_gemini, place_in_converse]))
def test_whatever_is_sent_stays_json_and_has_all_that_it_had(
    body: dict[str, Any], turns: Any, place: Place
) -> None:
    text = json.dumps({**body, "contents": turns, "messages": turns})
    try:
        edits = place(text, document(text, KEYS), NEW)
    except RepeatedKey:
        assert {"systemInstruction", "system_instruction"} <= set(body)
        return
    changed = json.loads(edited(text.encode(), text, edits))
    added = {"systemInstruction", "system"}
    assert set(changed) - {*body, "contents", "messages"} <= added
    for key, value in json.loads(text).items():
        if not key.startswith(("system", "contents", "messages")):
            assert changed[key] == value


def test_both_spellings_at_once_are_refused(served: ProxySettings, provider: Provider) -> None:
    both = {"systemInstruction": {"parts": []}, "system_instruction": {"parts": []}}
    with ProxyThread(served) as proxy:
        sent = json.dumps({**both, **ASKED[GEMINI]}).encode()
        assert proxy.ask(post(GEMINI, sent)).startswith(b"HTTP/1.1 400 ")
    assert provider.received == []


# whom it is asked of:


@pytest.mark.parametrize(
    ("path", "headers", "api"),
    [
        ("/v1/chat/completions", (), "openai"),
        ("/v1/models/gpt-5", (), "openai"),
        ("/v1beta/openai/chat/completions", (b"x-goog-api-key",), "openai"),
        ("/v1/messages", (), "anthropic"),
        ("/v1/models", (b"anthropic-version",), "anthropic"),
        (GEMINI, (), "gemini"),
        ("/v1/models/g-1:generateContent", (), "gemini"),
        ("/v1/models/g-1:countTokens", (b"x-goog-api-key",), "gemini"),
        ("/v1beta1/projects/p/locations/l/publishers/google/models/g:countTokens", (), "gemini"),
        (CONVERSE, (), "bedrock"),
        ("/model/m/invoke", (), "bedrock"),
    ],
)
def test_a_request_goes_to_the_provider_of_its_api(
    path: str, headers: tuple[bytes, ...], api: str
) -> None:
    assert api_of(path, headers) == api


def test_a_path_names_the_model() -> None:
    assert named_by(GEMINI) == ("g-1", False)
    assert named_by("/v1beta/models/g-1:streamGenerateContent/") == ("g-1", True)
    assert named_by("/model/us.a%3A0/converse-stream") == ("us.a:0", True)
    assert named_by("/v1beta/models/g-1:countTokens") is None


def test_each_api_has_its_provider_and_its_key(
    store: Store, provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Provider() as google, Provider() as amazon:
        base = google.url.removesuffix("/v1")
        (tmp_path / "proxy.toml").write_text(
            f'upstream = "{provider.url}"\ngemini = "{base}/v1beta"\ngemini_key_env = "G_KEY"\n'
            f'bedrock = "{amazon.url.removesuffix("/v1")}"\nbedrock_key_env = "B_KEY"\n'
            '[libraries.d]\nstore = "."\n'
        )
        monkeypatch.setenv("G_KEY", "goog-secret")
        monkeypatch.setenv("B_KEY", "amazon-secret")
        made = ProxySettings(default="d", port=0, **read_file(tmp_path / "proxy.toml"))
        team = run(store, "key", "new", "team", "--model", "g-*", "--model", "us.*").split()[-1]
        headers = (b"x-goog-api-key: " + team.encode(), b"Authorization: Bearer " + team.encode())
        with ProxyThread(made) as proxy:
            for path, header in ((GEMINI, headers[0]), (CONVERSE, headers[1])):
                got = proxy.ask(post(path, json.dumps(ASKED[path]).encode(), header))
                assert got.startswith(b"HTTP/1.1 200 "), got
            other = GEMINI.replace("g-1", "other")
            refused = proxy.ask(post(other, json.dumps(ASKED[GEMINI]).encode(), headers[0]))
            assert refused.startswith(b"HTTP/1.1 403 "), "the key may not ask this model"
        (asked,), (said,) = google.received, amazon.received
        assert asked.line == b"POST %b HTTP/1.1" % GEMINI.encode()
        assert asked.header(b"x-goog-api-key") == b"goog-secret"
        assert asked.header(b"authorization") is None
        assert said.header(b"authorization") == b"Bearer amazon-secret"
    assert provider.received == []
    assert {call.key for call in recorded(store)} == {"team"}


def test_an_option_names_one_provider_and_the_file_keeps_its_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfgrpo.trust.trusted_folders.require", lambda *_: None)
    for name in ("O_KEY", "A_KEY", "G_KEY"):
        monkeypatch.setenv(name, f"sk-{name}")
    file, app = tmp_path / "proxy.toml", App(str(tmp_path / ".tfgrpo/store.db"))
    text = 'upstream = "http://o.example"\ngemini = "http://g.example"\n'
    options = [one.name for one in proxy_command.params if one.name not in ("workers", "config")]
    nothing: dict[str, Any] = {**dict.fromkeys(map(str, options)), "keep": "30d"}

    def named(text: str, **flags: str) -> dict[str, tuple[str, str]]:
        file.write_text(text)
        settings = settings_of(app, file, nothing | flags)
        return {api: (one.name, one.key) for api, one in settings.upstreams.items()}

    keys = 'key_env = "O_KEY"\ngemini_key_env = "G_KEY"\n'
    there = named(text + keys, anthropic="http://a.example", anthropic_key_env="A_KEY")
    assert there["openai"] == ("http://o.example", "sk-O_KEY")
    assert there["anthropic"] == ("http://a.example", "sk-A_KEY")
    assert there["gemini"] == ("http://g.example", "sk-G_KEY")
    assert there["bedrock"] == ("http://o.example", "")
    there = named(text + "[timeouts]\ntotal = 9\n", upstream="http://n.example")
    assert there["openai"] == there["anthropic"] == ("http://n.example", "")
    assert there["gemini"] == ("http://g.example", "")
    for wrong, flags in (
        (text + keys, {"upstream": "http://n.example"}),
        (text + 'bedrock_key_env = "A_KEY"\n', {"upstream": "http://n.example"}),
        ('[[providers]]\nurl = "http://o.example"\n', {"key_env": "O_KEY"}),
    ):
        with pytest.raises(SettingsError, match=r"another provider|lists the providers"):
            named(wrong, **flags)


def test_what_a_file_names_beside_an_option_needs_trust(tmp_path: Path) -> None:
    tables = {"upstream": "http://o.example", "anthropic": "http://a.example"}
    needed = of_proxy(tmp_path / "proxy.toml", tables, ["anthropic"]).needed
    assert [one.key for one in needed] == ["upstream"]


def test_no_key_of_another_company_goes_to_one_that_nobody_named(tmp_path: Path) -> None:
    found = upstreams({})
    assert found["others"]["gemini"].host == "generativelanguage.googleapis.com"
    assert "bedrock" not in found["others"], "each region has another address"
    with pytest.raises(SettingsError, match="bedrock"):
        with_keys(found, {"bedrock": "PATH"})
    file = tmp_path / "proxy.toml"
    file.write_text(
        '[libraries.d]\nstore = "."\n[[providers]]\nurl = "http://127.0.0.1:1"\napi = "gemini"\n'
        'models = { a = "b" }\n'
    )
    with pytest.raises(SettingsError, match="path names the model"):
        read_file(file)


def test_an_api_that_nobody_serves_and_a_signed_request_are_refused(
    served: ProxySettings, provider: Provider
) -> None:
    signed = (
        b"Authorization: AWS4-HMAC-SHA256 Credential=AK/20260101/us-east-1/bedrock/aws4_request"
    )
    body = json.dumps(ASKED[CONVERSE]).encode()
    with ProxyThread(served) as proxy:
        answered = proxy.ask(post(CONVERSE, body, signed))
        assert answered.startswith(b"HTTP/1.1 400 ")
        assert b"API key" in answered
        assert json.loads(answered.partition(b"\r\n\r\n")[2])["message"], "as AWS's clients read it"
    with ProxyThread(replace(served, others={})) as proxy:
        for path in (GEMINI, CONVERSE):
            assert proxy.ask(post(path, json.dumps(ASKED[path]).encode())).startswith(
                b"HTTP/1.1 404 "
            )
    assert provider.received == []


# what is on record:

USAGE = {"promptTokenCount": 70, "candidatesTokenCount": 20, "thoughtsTokenCount": 10}
USAGE |= {"cachedContentTokenCount": 64, "totalTokenCount": 100}
AMAZON = {"inputTokens": 6, "outputTokens": 30, "cacheReadInputTokens": 64}


def gemini(text: str, reason: str | None = "STOP", **more: Any) -> dict[str, Any]:
    content = {"role": "model", "parts": [{"text": "hm", "thought": True}, {"text": text}]}
    candidate = {"content": content, "index": 0, **({"finishReason": reason} if reason else {})}
    return {"candidates": [candidate], **more}


def converse(text: str, *end: tuple[str, Any]) -> bytes:
    pieces = [
        ("contentBlockDelta", {"delta": {"text": one}, "p": "abc"}) for one in text.split("|")
    ]
    return framed(("messageStart", {"role": "assistant"}), *pieces, *end)


STOP = ("messageStop", {"stopReason": "end_turn"})
METADATA = ("metadata", {"usage": AMAZON, "metrics": {"latencyMs": 7}})
MESSAGE = {"message": {"role": "assistant", "content": [{"text": "12 nights."}]}}
LONG = "word |" * 3000
ANSWERS: dict[str, tuple[str, bytes, int | None]] = {
    "gemini": (GEMINI, json.dumps(gemini("12 nights.", usageMetadata=USAGE)).encode(), None),
    "gemini's stream": (
        STREAM,
        frames(gemini("12 ", None), gemini("nights.", usageMetadata=USAGE)),
        None,
    ),
    "gemini's list": (
        STREAM,
        json.dumps([gemini("12 ", None), gemini("nights.", usageMetadata=USAGE)]).encode(),
        None,
    ),
    "gemini's long stream": (
        STREAM,
        frames(*[gemini("word ", None)] * 3000, gemini("12 nights.", usageMetadata=USAGE)),
        None,
    ),
    "a prompt that gemini blocks": (
        GEMINI,
        json.dumps({"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": USAGE}).encode(),
        None,
    ),
    "gemini's error in a stream": (
        STREAM,
        frames(gemini("12 ", None), {"error": {"code": 503, "status": "UNAVAILABLE"}}),
        503,
    ),
    "gemini's error in a list": (
        STREAM,
        json.dumps([gemini("12", None), {"error": {"code": 429, "message": "no"}}]).encode(),
        429,
    ),
    "gemini's stream without an end": (STREAM, frames(gemini("12 ", None)), 599),
    "gemini's long stream without an end": (STREAM, frames(*[gemini("a ", None)] * 3000), 599),
    "converse": (
        CONVERSE,
        json.dumps({"output": MESSAGE, "stopReason": "end_turn", "usage": AMAZON}).encode(),
        None,
    ),
    "converse's stream": (CONVERSE_STREAM, converse("12 |nights.", STOP, METADATA), None),
    "converse's long stream": (
        CONVERSE_STREAM,
        converse(LONG + "12 nights.", STOP, METADATA),
        None,
    ),
    "a guardrail": (
        CONVERSE_STREAM,
        converse("12 |nights.", ("messageStop", {"stopReason": "guardrail_intervened"}), METADATA),
        None,
    ),
    "an exception in a stream": (
        CONVERSE_STREAM,
        converse("12 |", ("!throttlingException", {"message": "Too many tokens"})),
        429,
    ),
    "an exception in a long stream": (
        CONVERSE_STREAM,
        converse(LONG, ("!serviceUnavailableException", {"message": "went away"})),
        503,
    ),
    "an exception that stands for no status": (
        CONVERSE_STREAM,
        converse("12 |", ("!modelStreamErrorException", {"message": "went away"})),
        599,
    ),
    "a stream without an end": (CONVERSE_STREAM, converse("12 |nights."), 599),
    "a long stream without an end": (CONVERSE_STREAM, converse(LONG), 599),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_goes_through_and_its_tokens_and_words_are_on_record(
    name: str, served: ProxySettings, provider: Provider, store: Store
) -> None:
    path, body, failed = ANSWERS[name]
    provider.answer = answer(body, b"x/y")
    with ProxyThread(replace(served, record="content")) as proxy:
        got = proxy.ask(post(path, json.dumps(ASKED[path]).encode()))
    assert got.partition(b"\r\n\r\n")[2] == body
    (call,) = recorded(store)
    assert (call.status, call.model) == (failed or 200, "g-1" if "v1beta" in path else "us.a.c-1")
    assert bool(call.error) == bool(failed)
    assert bool(call.streamed) == ("tream" in path)
    if failed:
        return
    assert (call.prompt_tokens, call.cached_tokens, call.completion_tokens) == (70, 64, 30)
    with closing(open_traffic(traffic_path(store.path))) as traffic:
        content = traffic.content(call.id)
    assert content is not None
    assert asked(json.loads(content.request)) == (("user", "Hi"),)
    assert [turn.text for turn in turns_of(json.loads(content.request)) or ()] == ["Hi"]
    if "block" not in name:
        assert answered(content.answer).endswith("12 nights.")
        assert "hm" not in answered(content.answer)
        assert answer_turns(content.answer)[-1].role == "assistant"


def test_a_request_without_a_path_of_these_is_counted_as_one_without_a_library(
    served: ProxySettings,
) -> None:
    with ProxyThread(served) as proxy:
        proxy.ask(post("/model/m/invoke", b"{}"))
        proxy.ask(post("/v1beta/models/m:countTokens", b"{}"))
        assert proxy.proxy.passed == {"/model/m/invoke": 1}


def test_a_list_of_providers_has_those_of_other_apis(
    store: Store, provider: Provider, served: ProxySettings
) -> None:
    base = provider.url.removesuffix("/v1")
    with Provider(OK) as other:
        listed = (
            Listed(parse_upstream(provider.url)),
            Listed(parse_upstream(other.url.removesuffix("/v1"), "gemini"), 1.0, {"g-1": "g-1"}),
            Listed(parse_upstream(base, "bedrock")),
        )
        found = {one.upstream.api: one.upstream for one in listed}
        others = {api: found[api] for api in ("gemini", "bedrock")}
        with ProxyThread(replace(served, providers=listed, others=others)) as proxy:
            for path in (GEMINI, CONVERSE):
                got = proxy.ask(post(path, json.dumps(ASKED[path]).encode()))
                assert got.startswith(b"HTTP/1.1 200 "), got
        assert [one.line.split()[1] for one in other.received] == [GEMINI.encode()]
        assert [one.line.split()[1] for one in provider.received] == [CONVERSE.encode()]
