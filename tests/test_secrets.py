"""Secrets neither enter a record through a setting nor come back in through an answer."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, problems
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scripted import Reply, ScriptedEndpoint, restless, stage

import tfgrpo
from tfgrpo import AgentContext, Attempt
from tfgrpo.connect import CallLimits, named_models, open_endpoints
from tfgrpo.data.problems import Problem
from tfgrpo.domains.base import Domain, Verdict, describe_error
from tfgrpo.domains.function import read_outcome
from tfgrpo.domains.verifier import Verifier
from tfgrpo.model import secrets
from tfgrpo.model.endpoint import CallFailed, Endpoint, EndpointError, Request, Transient
from tfgrpo.model.http_connection import Connection, ModelsUnknown, models_at
from tfgrpo.model.settings import ModelSettings
from tfgrpo.proxy.proxy_settings import parse_upstream
from tfgrpo.rollout.attempt import RenderFailed, rendered
from tfgrpo.store import ROOT, address
from tfgrpo.store.address import parse_address
from tfgrpo.store.errors import SettingsError
from tfgrpo.store.records import Library
from tfgrpo.tools.mcp_tools import Server, connected
from tfgrpo.tools.search_provider import PROVIDERS, Provider, SearchTemplate
from tfgrpo.tools.tool import ToolFailure

KEY = "zq-7f3Kd0Vb9sX2mWq81"
SEARCH: dict[str, Any] = {"url": "https://search.example/api", "results": "r"}
LITERAL: dict[str, dict[str, Any]] = {
    "a password in an address": {"url": "https://ada:hunter2@search.example/api"},
    "a user in an address": {"url": "https://ab12cd@search.example/api"},
    "a key in a query": {"url": "https://search.example/api?api_key=abc"},
    "a key in a path": {"url": "https://search.example/s/a1b2c3d4e5f60718293a4b5c6d7e8f90/sse"},
    "a parameter": {"params": {"q": "{query}", "key": "abc"}},
    "a subscription": {"params": {"subscription-key": "abc"}},
    "a header": {"headers": {"X-API-KEY": "abc"}},
    "a cookie": {"headers": {"Cookie": "session=abc"}},
    "a bearer under any name": {"headers": {"X-Upstream": "Bearer abc"}},
    "a body": {"body": {"q": "{query}", "auth": {"user": "abc"}}},
    "a list in a body": {"body": {"tokens_of": [{"password": "abc"}]}},
    "a well-known form": {"params": {"x": "sk-proj-abc"}},
}
ARGUMENTS = {
    "a flag and its value": ["--token", "abc"],
    "a flag with its value": ["--api-key=abc"],
    "a variable": ["GITHUB_TOKEN=abc"],
    "a header": ["--header", "Authorization: Bearer abc"],
    "a database": ["postgresql://ada:hunter2@db/experiences"],
    "a well-known form": ["ghp_abcdefgh"],
    "letters and digits at random": ["A1b2C3d4E5f6G7h8I9j0"],
}


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other tests of the process have read as a secret is none here."""
    for name, empty in (("_seen", set()), ("_keys", set())):
        monkeypatch.setattr(secrets, name, empty)
    for name, none in (("_passwords", set()), ("_secrets", {})):
        monkeypatch.setattr(address, name, none)


@pytest.mark.parametrize("given_", LITERAL.values(), ids=LITERAL)
def test_a_search_with_a_secret_written_out_is_refused(given_: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=r"looks like a secret: write \$NAME"):
        SearchTemplate(**{**SEARCH, **given_})


@pytest.mark.parametrize("arguments", ARGUMENTS.values(), ids=ARGUMENTS)
def test_a_server_with_a_secret_written_out_is_refused(arguments: list[str]) -> None:
    with pytest.raises(ValidationError, match=r"looks like a secret: write \$NAME"):
        Server(command="serve", args=tuple(arguments))


def test_other_places_of_a_secret_are_refused_too() -> None:
    with pytest.raises(ValidationError, match="looks like a secret"):
        Server(url="https://ada:hunter2@mcp.example/sse")
    with pytest.raises(ValidationError, match="names of environment variables"):
        Server(command="serve", env=("GITHUB_TOKEN=abc",))
    with pytest.raises(ValidationError, match="looks like a secret"):
        ModelSettings(extra_body={"provider": {"api_key": "abc"}})


def test_what_is_no_secret_is_taken() -> None:
    for template in PROVIDERS.values():
        SearchTemplate(**template.model_dump())
    SearchTemplate(
        **SEARCH | {"url": "https://search.example/v1/$ACCOUNT?format=json"},
        params={"key": "$SEARCH_KEY", "q": "{query}", "max_tokens": "512"},
        headers={"Accept": "application/json", "Authorization": "Bearer $SEARCH_KEY"},
        body={"auth": {"token": "$SEARCH_KEY"}, "count": "{count}"},
    )
    Server(command="npx", args=("-y", "@scope/server-filesystem@2025.8.21", "/home/ada/notes"))
    Server(command="serve", args=("--token", "$GITHUB_TOKEN", "--max-tokens", "512"))
    Server(command="docker", args=("run", "-i", "--rm", "-e", "GITHUB_TOKEN", "image:v1.2.3"))


@given(st.sampled_from(["--token", "--api-key", "password", "X-Auth-Token"]), st.text(min_size=1))
def test_whatever_stands_after_the_name_of_a_secret_is_one(name: str, value: str) -> None:
    named = value.strip() and not secrets.VARIABLE.search(value)
    small = secrets.SMALL.fullmatch(value)
    found = secrets.literal("x", {name: value})
    assert (found is not None) or not named or small


def test_a_template_is_filled_from_the_environment_when_it_is_asked() -> None:
    template = SearchTemplate(
        url="https://search.invalid/$ACCOUNT",
        params={"key": "$SEARCH_KEY"},
        results="r",
    )
    for environment in ({}, {"ACCOUNT": " ", "SEARCH_KEY": "\n"}):
        with pytest.raises(ToolFailure, match="the environment has no ACCOUNT, SEARCH_KEY"):
            asyncio.run(Provider(template, environment=environment).search("x", 1))
    provider = Provider(template, environment={"ACCOUNT": "acme", "SEARCH_KEY": KEY + "+/"})
    with pytest.raises(ToolFailure) as told:
        asyncio.run(provider.search("x", 1))
    assert KEY not in str(told.value)


# answers:


def poisoned(value: Any) -> Any:
    """Returns a value with the key in each text of it, names of fields apart."""
    if isinstance(value, dict):
        return {name: poisoned(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [poisoned(inner) for inner in value]
    return f"{value} {KEY}" if isinstance(value, str) else value


CALL = {"id": "c" * 245, "type": "function", "function": {"name": "f", "arguments": '{"a": "b"}'}}
BODY = {
    "id": "x",
    "model": "m",
    "object": "chat.completion",
    "system_fingerprint": "fp",
    "service_tier": "default",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "message": {
                "role": "assistant",
                "content": "\\boxed{5}",
                "refusal": "no",
                "reasoning_content": "so",
                "tool_calls": [
                    CALL,
                    {**CALL, "id": "", "function": {"name": "g", "arguments": {}}},
                ],
            },
            "logprobs": {"content": [{"token": "x", "top_logprobs": [{"logprob": -0.1}]}]},
        }
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1},
}


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield str(name)
            yield from texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from texts(inner)
    elif isinstance(value, str):
        yield value


REQUEST = Request("rollout", (("user", "?"),), 0.0, 10)


def test_no_field_of_an_answer_holds_the_key() -> None:
    answer = Endpoint("m", None, KEY)._read(poisoned(BODY), REQUEST, 1.0)
    kept = list(texts(answer.journal_fields()))
    assert any("***" in text for text in kept)
    assert [text for text in kept if KEY[:8] in text] == [], "nor the part that a cut leaves of it"


@settings(deadline=None)
@given(
    st.recursive(
        st.sampled_from([KEY, f"a{KEY}b", KEY * 2, "no", 1, None]),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    )
)
def test_a_secret_is_taken_out_of_values_of_any_shape(value: Any) -> None:
    assert KEY not in json.dumps(secrets.scrub(value, KEY))


def test_a_key_read_for_one_endpoint_is_taken_out_of_all_others_answers() -> None:
    secrets.know(KEY + "-elsewhere", "REFLECTION_KEY")
    answer = Endpoint("m")._read(
        {"choices": [{"message": {"content": f"it is {KEY}-elsewhere"}}]}, REQUEST, 1.0
    )
    assert answer.content == "it is ***"


@pytest.mark.parametrize("status", [200, 400, 401, 404, 429, 500])
def test_no_error_of_an_endpoint_tells_the_key(status: int) -> None:
    body = {"error": {"message": f"no {KEY}", "code": KEY, "type": KEY, "param": KEY}}
    with ScriptedEndpoint(lambda request: Reply(body, status=status)) as server:

        async def ask() -> str:
            endpoint = Endpoint("m", server.base_url, KEY)
            try:
                await endpoint.ask(REQUEST)
            except (Transient, CallFailed, EndpointError) as error:
                return f"{error!r} {error} {getattr(error, 'hint', '')} {vars(error)}"
            finally:
                await endpoint.close()
            return "answered"

        told = asyncio.run(ask())
    assert told != "answered"
    assert KEY not in told


def test_a_key_in_every_field_of_every_answer_reaches_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TFGRPO_API_KEY", KEY)
    Path("p.jsonl").write_text('{"problem": "What is 1 op 3?", "answer": 5}\n')
    with ScriptedEndpoint(lambda request: Reply(poisoned(BODY))) as server:
        tfgrpo.Store.init(tmp_path / ".tfgrpo" / "store.db").close()
        options = {"model": "m", "base_url": server.base_url, "samples": 1}
        tfgrpo.evaluate_sync("p.jsonl", store=tmp_path, **options)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(b"boxed" in path.read_bytes() for path in written)
    assert [path for path in written if KEY.encode() in path.read_bytes()] == []


HIDDEN = "hunter2-of-the-proxy"
WHERE = f"//ada:{HIDDEN}@127.0.0.1:9"


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("log", {"TFGRPO_STORE": f"mysql:{WHERE}/db"}),
        (f"--store postgresql+psycopg:{WHERE}/db log", {}),
        (f"proxy --port 0 --upstream http:{WHERE}/v1", {}),
        (f"proxy --port 0 --upstream http:{WHERE}x/v1", {}),
        ("model check --model m", {"OPENAI_BASE_URL": f"http:{WHERE}/v1"}),
        ("verify cases.jsonl --domain rubric", {"OPENAI_BASE_URL": f"http:{WHERE}/v1"}),
        ("model get smollm2-135m", {"HF_ENDPOINT": f"http:{WHERE}"}),
        ("model get smollm2-135m", {"HF_ENDPOINT": f"http://127.0.0.1:9/?token={HIDDEN}"}),
        ("train p.jsonl", {}),
        ("trust --show", {}),
    ],
)
def test_a_password_in_an_address_is_never_printed(
    cli: Cli, tmp_path: Path, command: str, named: dict[str, str]
) -> None:
    cli("init")
    toml = f'[model]\nmodel = "m"\nbase_url = "http:{WHERE}/v1"\n'
    if not named and "--" not in command.removesuffix("--show"):
        (tmp_path / "tfgrpo.toml").write_text(toml)
    (tmp_path / "p.jsonl").write_text('{"problem": "1 + 1?", "answer": 2}\n')
    (tmp_path / "cases.jsonl").write_text('{"gold": "5", "pred": "5"}\n')
    (tmp_path / "models").mkdir()
    env = {"PIP_NO_INDEX": "1", "TFGRPO_MODELS": str(tmp_path / "models"), **named}
    done = cli(*command.split(), ok=False, env=env)
    assert HIDDEN not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert command == "trust --show" or done.returncode


def test_an_address_of_a_store_without_a_scheme_of_ours_is_told_without_its_password() -> None:
    with pytest.raises(tfgrpo.TfgrpoError) as caught:
        tfgrpo.evaluate_sync("p.jsonl", store=f"mysql:{WHERE}/db")
    assert HIDDEN not in f"{caught.value}{caught.value.hint}"


# what programs of the user's say:

CUT = KEY[:8]
"""What a cut through the key would leave of it."""


def says_the_key(problem: Problem, context: AgentContext) -> Attempt:
    """An agent that says the key wherever it can."""
    client = context.openai()
    asked = [{"role": "user", "content": f"My key is {KEY}. {problem.problem}"}]
    made = client.chat.completions.create(model="m", messages=asked, seed=context.seed)
    context.record(f"elsewhere {KEY}", prompt_tokens=1, messages=[("user", f"by {KEY}")])
    if "3 op" in problem.problem:
        raise RuntimeError(f"{'x' * 170} {KEY}")
    thought = {"role": "assistant", "content": "y" * 15_990 + KEY + "y" * 30_000}
    text = str(made.choices[0].message.content)
    return Attempt(f"{text} {KEY}", messages=[thought, {"role": "tool", "content": KEY}])


def judges_by_the_key(problem: Problem, response: str) -> Verdict:
    if "5 op" in problem.problem:
        raise ValueError(f"{'z' * 170} {KEY}")
    right = f"{problem.answer}" in response
    return Verdict(float(right), f"a {KEY}", f"because {KEY}", {"why": {KEY: [KEY]}})


def test_what_an_agent_and_a_verifier_say_is_without_the_key_wherever_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TFGRPO_API_KEY", KEY)
    Path("p.jsonl").write_text(problems((2, 3, 5, 8)))
    options = {"model": "m", "epochs": 2, "batch_size": 4, "group_size": 3, "run": "r"}
    options |= {"keep_going": True, "policy": "paper", "agent": says_the_key}
    libraries, seen = [], []
    for name, refused in (("whole", 0), ("resumed", 3)):
        Path(name).mkdir()
        tfgrpo.Store.init(tmp_path / name / ".tfgrpo" / "store.db").close()
        reflected = count(1)

        def script(request: dict[str, Any], refused: int = refused, number: Any = reflected) -> Any:
            ends = stage(request) != "rollout" and next(number) == refused
            return Reply({"error": {"message": "no"}}, status=401) if ends else restless(request)

        with ScriptedEndpoint(script) as server:
            where = {"base_url": server.base_url, "store": name, "verify": judges_by_the_key}
            if refused:
                with pytest.raises(EndpointError):
                    tfgrpo.train_sync("p.jsonl", **where, **options)
            result = tfgrpo.train_sync("p.jsonl", **where, **options)
            assert server.keys[0] == f"Bearer {KEY}"
            seen.append({json.dumps(request) for request in server.requests})
        assert [request for request in seen[-1] if CUT in request] == []
        reflected_on = [r for r in server.requests if stage(r) != "rollout"]
        assert any("***" in json.dumps(request) for request in reflected_on)
        libraries.append([experience.text for experience in result.library])
        with tfgrpo.Store.open(tmp_path / name) as store:
            rows = store.rollouts("r")
        assert any("ValueError: zzz" in row.verdict["reason"] for row in rows)
        assert any("***" in row.verdict["response"] for row in rows)
    assert seen[0] == seen[1], "a run that goes on asks the very same"
    assert libraries[0] == libraries[1] != []
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(b"because ***" in path.read_bytes() for path in written)
    assert [path for path in written if CUT.encode() in path.read_bytes()] == []


def raises_the_key(problem: Problem, response: str) -> Verdict:
    raise ValueError(f"{'z' * 180}{KEY}")


def gives_the_key(problem: Problem, response: str) -> Any:
    return [f"{'z' * 160}{KEY}"]


def test_what_a_verifier_gives_before_a_run_is_told_of_without_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    key = f"key-that-no-test-has-read-{os.getpid()}"
    monkeypatch.setenv("OWN_KEY", key)
    where = {"model": "m", "base_url": "http://127.0.0.1:9/v1", "api_key_env": "OWN_KEY"}
    rows = [{"problem": "What is 1 op 3?", "answer": "5"}]
    with pytest.raises(SettingsError, match=re.escape("'***'")) as caught:
        tfgrpo.estimate_sync(rows, verify=lambda problem, response: [key], **where)
    assert key not in str(caught.value)


def test_an_error_of_a_users_code_is_cut_where_the_key_is_out_of_it(verifier: Verifier) -> None:
    secrets.know(KEY, "SOME_KEY")
    problem = Problem("p", "What is 1 op 3?", "5")
    by_worker = asyncio.run(verifier.verdict(problem, "5", raises_the_key))
    assert by_worker.reason.endswith("z***")
    assert read_outcome(gives_the_key(problem, "5")).reason.endswith("z***']")
    assert describe_error(RuntimeError("z" * 180 + KEY)).endswith("z***")


def test_a_render_of_a_users_own_is_told_of_without_the_key() -> None:
    secrets.know(KEY, "SOME_KEY")

    def render(*_: object) -> Any:
        return [f"{'z' * 70}{KEY}"]

    domain = Domain(name="own", verify=raises_the_key, render=render)
    template = domain.template("rollout")
    with pytest.raises(RenderFailed) as caught:
        rendered(domain, template, Library(ROOT, ()), Problem("p", "?", "5"), "")
    assert "zzz" in str(caught.value)
    assert CUT not in str(caught.value)


# keys of the environment that HTTP cannot send:

NAMED = ({"api_key_env": "MY_KEY"}, {"extra_headers": {"x-gw-auth": "env:MY_KEY"}})
"""Settings that have a variable sent."""


@pytest.mark.parametrize("named", NAMED, ids=["a key", "a header"])
def test_white_space_around_a_key_is_none_of_it(
    named: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with ScriptedEndpoint(lambda request: "5") as server:
        models = ModelSettings(model="m", base_url=server.base_url, **named)
        variables = {"MY_KEY": f" {KEY}\n", "TFGRPO_API_KEY": f"{KEY}-of-any-host\r\n"}

        async def answered() -> None:
            with open_endpoints(models, CallLimits(), variables) as endpoints:
                await endpoints.policy.ask(REQUEST)
                await endpoints.close()

        asyncio.run(answered())
        (headers,) = server.headers
    is_key = "api_key_env" in named
    assert headers["authorization"] == f"Bearer {KEY if is_key else KEY + '-of-any-host'}"
    assert headers.get("x-gw-auth") == (None if is_key else KEY)


@pytest.mark.parametrize("named", NAMED, ids=["a key", "a header"])
@pytest.mark.parametrize("key", [f"{KEY}\n{KEY}", f"{KEY}\x00", f"{KEY}\u200b", f"\u201c{KEY}"])
def test_a_key_that_no_header_can_carry_is_refused_by_the_name_of_its_variable(
    named: dict[str, Any], key: str
) -> None:
    layers = [{"base_url": "http://127.0.0.1:9/v1", **named}]
    with pytest.raises(EndpointError, match="MY_KEY contains invalid characters") as refused:
        named_models(layers, {"MY_KEY": key})
    assert KEY not in f"{refused.value!r} {refused.value.hint}"


@pytest.mark.parametrize("blank", ["\n", " \r\n"])
def test_a_variable_of_white_space_has_no_key(blank: str) -> None:
    layers = [{"base_url": "http://127.0.0.1:9/v1", "api_key_env": "MY_KEY"}]
    with pytest.raises(EndpointError, match="variable MY_KEY is not set"):
        named_models(layers, {"MY_KEY": blank})


@pytest.mark.parametrize("ending", ["", "\n", "\r", "\x00", " \n"])
def test_a_key_is_in_no_error_of_a_list_of_models(ending: str) -> None:
    with ScriptedEndpoint() as server:
        for connection in (
            Connection(server.base_url, f"{KEY}{ending}"),
            Connection(server.base_url, "no key", {"x-gw-auth": f"{KEY}-gw{ending}"}),
        ):
            with pytest.raises(ModelsUnknown) as caught:
                models_at(connection)
            assert KEY not in str(caught.value)


@pytest.mark.parametrize("ending", ["", "\n", "\r\n", "\x00", "\\"])
def test_a_secret_is_taken_out_of_a_text_in_the_forms_that_messages_give_it(ending: str) -> None:
    key = f"{KEY}-{len(ending)}{ending}"
    for text in (key, key.strip(), repr(key), repr(key.encode()), f"Bearer {key}"):
        assert KEY not in secrets.scrub(text, key)


def test_a_program_gets_no_variable_whose_key_was_read_without_its_white_space() -> None:
    Endpoint("m", None, "brief-key")
    before = {"SHORT": "brief-key\n", "OTHER": "brief"}
    assert secrets.without_secrets(before) == {"OTHER": "brief"}


def test_a_program_gets_no_password_of_a_database_that_was_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address = "postgresql://ada:s3cr%2Ft-of-the-team@db/team"
    parse_address(address)
    parse_address("postgresql://ada@db/team?sslpassword=tiny")
    monkeypatch.setenv("PGPASSWORD", "short")
    before = {
        "TFGRPO_STORE": address,
        "MINE": f"{address}?password=another",
        "DSN": "host=db password=s3cr/t-of-the-team",
        "PGPASSWORD": "short",
        "KEY_PASSWORD": "tiny\n",
    }
    after = {
        "OTHER": "postgresql://ada:another@elsewhere/x",
        "PGUSER": "ada",
        "SAYS": "a tiny short word",
        "PLAIN": "postgresql://ada@db/team",
    }
    assert secrets.without_secrets({**before, **after}) == after


def test_a_variable_that_a_setting_names_is_filled_in_without_the_white_space_around_it() -> None:
    filled = secrets.fill("https://mcp.example/$TOKEN/sse", {"TOKEN": f"{KEY}-mcp\n"})
    assert filled == f"https://mcp.example/{KEY}-mcp/sse"


ODD = {
    "a slash": "http://ada:hunter2/x@127.0.0.1:9/v1",
    "a number sign": "http://ada:hunter2#x@127.0.0.1:9/v1",
    "a blank": "http://ada:hunter2 x@127.0.0.1:9/v1",
    "a bracket": "http://ada:hunter2[x@127.0.0.1:9/v1",
    "a port": "http://127.0.0.1:hunter2/v1",
    "no scheme": "ada:hunter2 x@127.0.0.1/v1",
    "another scheme": "ftp://ada:hunter2@127.0.0.1:9",
}
"""Addresses of which a parser takes some part of the password for something else."""


@pytest.mark.parametrize("url", ODD.values(), ids=ODD)
def test_the_address_of_a_provider_that_cannot_be_read_is_not_repeated(url: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_upstream(url)
    assert "hunter2" not in f"{caught.value}{caught.value.hint}"


READABLE = ("a blank", "a bracket", "no scheme")
"""What a client takes for a proxy's address all the same."""
PROXIES = {name: url for name, url in ODD.items() if name not in READABLE}


@pytest.mark.parametrize("url", PROXIES.values(), ids=PROXIES)
def test_an_outbound_proxy_whose_address_cannot_be_read_is_not_repeated(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, url)

    async def tools() -> None:
        async with connected("docs", Server(url="http://mcp.invalid/x")):
            pass

    async def asked() -> None:
        await Endpoint("m", "http://model.invalid/v1", KEY).ask(REQUEST)

    def listed() -> None:
        models_at(Connection("http://model.invalid/v1", KEY))

    for use in (lambda: asyncio.run(tools()), lambda: asyncio.run(asked()), listed):
        with pytest.raises(tfgrpo.TfgrpoError) as caught:
            use()
        assert "hunter2" not in f"{caught.value}{caught.value.hint}"
