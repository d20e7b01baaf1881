"""Which model is asked where, and which key is sent to which host."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from documented import STAND_INS
from scripted import ScriptedEndpoint, write_problems
from standins import Server, StandIn

import tfgrpo
from tfgrpo.cli.main import tfgrpo as tfgrpo_cli
from tfgrpo.connect import check_endpoints, named_models
from tfgrpo.costs.prices import model_prices
from tfgrpo.model.endpoint import EndpointError
from tfgrpo.model.http_connection import Connection, ModelsUnknown, models_at, open_client
from tfgrpo.model.providers import key_for, own_variable, unsent_key
from tfgrpo.model.settings import ModelSettings
from tfgrpo.notices import Notice
from tfgrpo.settings import TrainSettings, build
from tfgrpo.store.errors import SettingsError

OPENAI = {"OPENAI_API_KEY": "sk-openai"}
HOSTS = [
    (None, OPENAI, "sk-openai"),
    ("https://api.openai.com/v1", OPENAI, "sk-openai"),
    ("https://eu.api.openai.com/v1", OPENAI, "sk-openai"),
    ("https://llm.example.com/v1", OPENAI, None),
    ("https://api.openai.com.example.com/v1", OPENAI, None),
    ("http://127.0.0.1:8000/v1", OPENAI, None),
    ("https://llm.example.com/v1", {"TFGRPO_API_KEY": "k"}, "k"),
    ("https://api.deepseek.com", {**OPENAI, "DEEPSEEK_API_KEY": "d"}, "d"),
    ("https://openrouter.ai/api/v1", {"OPENROUTER_API_KEY": "o"}, "o"),
    (
        "https://llm.example.com/v1/",
        {**OPENAI, "OPENAI_BASE_URL": "https://llm.example.com/v1"},
        "sk-openai",
    ),
    ("https://other.com/v1", {**OPENAI, "OPENAI_BASE_URL": "https://llm.example.com/v1"}, None),
]


@pytest.mark.parametrize(("base_url", "environment", "key"), HOSTS)
def test_a_key_goes_to_the_host_that_it_belongs_to(
    base_url: str | None, environment: dict[str, str], key: str | None
) -> None:
    assert key_for(base_url, None, environment) == key


@pytest.mark.parametrize("named", [None, "http://127.0.0.1:1/v1"])
def test_what_the_environment_has_for_openai_goes_to_no_other_host(
    monkeypatch: pytest.MonkeyPatch, named: str | None
) -> None:
    headers = "Authorization: Bearer sk-real-openai\nX-Gateway-Token: a-token\nX-Ours: theirs"
    for name, value in {
        "OPENAI_CUSTOM_HEADERS": headers,
        "OPENAI_ORG_ID": "org-mine",
        "OPENAI_PROJECT_ID": "proj-mine",
        "OPENAI_BASE_URL": named or "",
    }.items():
        monkeypatch.setenv(name, value)

    async def ask(base_url: str) -> None:
        where = Connection(base_url, "k-other", headers={"X-Ours": "ours"})
        async with open_client(where, 10.0) as client:
            body = {"model": "m", "messages": [{"role": "user", "content": "?"}]}
            await client.post("/chat/completions", body=body, cast_to=object)

    with ScriptedEndpoint(lambda _: "yes") as server:
        asyncio.run(ask(server.base_url))
    (sent,) = server.headers
    assert (sent["authorization"], sent["x-ours"]) == ("Bearer k-other", "ours")
    secret = ("sk-real", "a-token", "org-mine", "proj-mine")
    assert not any(word in json.dumps(sent) for word in secret)


@pytest.mark.parametrize("base_url", ["http://[x", "http://127.0.0.1:port/v1", "none", "//"])
def test_what_is_no_address_has_no_key_of_its_own(base_url: str) -> None:
    assert own_variable(base_url, OPENAI) is None
    assert key_for(base_url, None, OPENAI) is None


def test_a_key_that_is_named_goes_where_it_is_named_for() -> None:
    assert key_for("https://llm.example.com/v1", "OPENAI_API_KEY", OPENAI) == "sk-openai"
    with pytest.raises(EndpointError, match="OTHER is not set"):
        key_for("https://llm.example.com/v1", "OTHER", OPENAI)


def test_a_provider_without_its_key_is_told_which_variable_has_it() -> None:
    with pytest.raises(EndpointError) as caught:
        key_for("https://api.deepseek.com", None, OPENAI)
    assert "api.deepseek.com" in str(caught.value)
    assert "DEEPSEEK_API_KEY" in str(caught.value.hint)


def test_a_key_that_is_kept_back_is_said() -> None:
    said = unsent_key("https://llm.example.com/v1", OPENAI) or ""
    assert "llm.example.com" in said
    assert "--api-key-env OPENAI_API_KEY" in said
    assert unsent_key("http://127.0.0.1:1/v1", OPENAI) is None
    _, notes = named_models([{"model": "m", "base_url": "https://llm.example.com/v1"}], OPENAI)
    assert notes == (said,)


def test_the_key_of_one_host_is_not_sent_to_anothers_reflection_model() -> None:
    models = ModelSettings(
        model="m",
        base_url="https://a.example.com/v1",
        api_key_env="A_KEY",
        reflection_model="r",
        reflection_base_url="https://api.mistral.ai/v1",
    )
    with pytest.raises(EndpointError, match=r"api\.mistral\.ai"):
        check_endpoints(models, {"A_KEY": "a"})
    check_endpoints(models, {"A_KEY": "a", "MISTRAL_API_KEY": "m"})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "TFGRPO_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    write_problems(tmp_path / "problems.jsonl", 2)
    return tmp_path


def test_an_address_without_a_model_is_asked_which_one_it_serves(folder: Path) -> None:
    notices: list[Notice] = []
    small: dict[str, Any] = {"epochs": 1, "batch_size": 2, "group_size": 2}
    with Server(StandIn(models=("served-here",)), key="") as server:
        base_url = f"{server.address}/v1"
        result = tfgrpo.train_sync(
            "problems.jsonl", base_url=base_url, on_progress=notices.append, **small
        )
    assert result.run.config["models"]["model"] == "served-here"
    assert {body["model"] for body in server.served.bodies} == {"served-here"}
    assert any("serves one model" in str(n) and "served-here" in str(n) for n in notices)


def test_an_address_with_several_models_names_them_and_nothing_is_begun(folder: Path) -> None:
    with Server(StandIn(models=("small", "large")), key="") as server:
        with pytest.raises(ModelsUnknown) as caught:
            tfgrpo.train_sync("problems.jsonl", base_url=f"{server.address}/v1")
        assert "large, small" in str(caught.value)
        assert "--model" in str(caught.value.hint)
        assert not (folder / ".tfgrpo").exists()
        named, _ = named_models([{"base_url": f"{server.address}/v1", "model": "large"}], {})
        assert named == {}


def test_a_server_that_lists_nothing_is_no_reason_for_the_local_model(folder: Path) -> None:
    with Server(StandIn(path="/elsewhere"), key="") as server:
        with pytest.raises(ModelsUnknown, match="404"):
            named_models([{"base_url": f"{server.address}/v1"}], {})
        local = {"model": "local:qwen2.5-coder-1.5b"}
        with pytest.raises(ModelsUnknown, match="404"):
            named_models([{"base_url": f"{server.address}/v1"}, local], {})
        assert named_models([local, {"base_url": f"{server.address}/v1"}], {}) == ({}, ())


def test_a_reflection_address_without_a_model_is_asked_too(folder: Path) -> None:
    with Server(StandIn(models=("judge",)), key="") as server:
        reflection = {"reflection_base_url": f"{server.address}/v1"}
        found, (note,) = named_models([reflection], {})
        assert found == {"reflection_model": "judge"}
        assert "judge" in note
        assert named_models([{**reflection, "reflection_model": "r"}], {}) == ({}, ())


def test_an_address_beside_a_local_model_is_said_to_be_of_no_use() -> None:
    both = {"model": "local:smollm2-135m", "base_url": "http://127.0.0.1:1/v1"}
    found, (note,) = named_models([both], {})
    assert found == {}
    assert "is not used" in note


@pytest.mark.parametrize("base_url", ["nonsense", "http://u:p@h/v1", "ftp://h/v1"])
def test_what_is_no_address_is_said_in_the_words_of_the_settings(
    base_url: str, folder: Path
) -> None:
    with pytest.raises(SettingsError, match="base_url"):
        tfgrpo.train_sync("problems.jsonl", base_url=base_url)
    asked = CliRunner().invoke(tfgrpo_cli, ["model", "check", "--base-url", base_url])
    assert isinstance(asked.exception, SettingsError)


def test_no_address_is_openais_whatever_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    client = open_client(Connection(None, "k"), 5.0)
    assert str(client.base_url) == "https://api.openai.com/v1/"


def test_ollama_is_warned_of() -> None:
    _, (note,) = named_models([{"model": "m", "base_url": "http://127.0.0.1:11434/v1"}], {})
    assert "OLLAMA_CONTEXT_LENGTH" in note
    assert named_models([{"model": "m", "base_url": "http://127.0.0.1:8000/v1"}], {}) == ({}, ())


def test_the_key_is_in_no_error_of_a_list_of_models(folder: Path) -> None:
    with Server(StandIn(), key="sk-right") as server:
        where = Connection(f"{server.address}/v1", "sk-wrong-secret")
        with pytest.raises(ModelsUnknown) as caught:
            models_at(where)
        assert "sk-wrong-secret" not in f"{caught.value}{where!r}"
        assert models_at(Connection(f"{server.address}/v1", "sk-right")) == [{"id": "one-model"}]


def test_an_address_from_the_environment_is_said_recorded_and_not_priced_as_openai(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Server(STAND_INS["openai"], key="sk-proxy") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.address}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-proxy")
        notices: list[Notice] = []
        result = tfgrpo.train_sync(
            "problems.jsonl",
            model="gpt-4.1-mini",
            epochs=1,
            batch_size=2,
            group_size=2,
            on_progress=notices.append,
        )
    address = f"{server.address}/v1"
    assert result.run.config["models"]["base_url"] == address
    assert f"warning: OPENAI_BASE_URL is set: requests go to {address}" in map(str, notices)
    assert result.cost.unknown == ("gpt-4.1-mini",)
    assert model_prices(ModelSettings(model="gpt-4.1-mini"), {}).policy is not None


def test_settings_that_are_not_set_are_in_no_record() -> None:
    before = build(TrainSettings, {"data": "d", "model": "m"})
    names = set(before.model_dump(mode="json")["models"])
    assert not {name for name in names if "extra" in name or "effort" in name}
    assert TrainSettings(**before.model_dump(mode="json")) == before
    given = {"reasoning_effort": "low", "reflection_extra_body": {"a": {"b": 1}}}
    after = build(TrainSettings, {"data": "d", "model": "m", **given})
    assert TrainSettings(**json.loads(after.model_dump_json())) == after
    assert after.models.manner() == {"reasoning_effort": "low"}
    assert after.models.manner(reflection=True) == {
        "reasoning_effort": "low",
        "extra_body": {"a": {"b": 1}},
    }


def test_reflection_at_another_address_takes_no_headers_of_the_attempts() -> None:
    models = ModelSettings(
        model="m", extra_headers={"X-A": "1"}, reflection_base_url="https://b.example.com/v1"
    )
    assert models.manner() == {"extra_headers": {"X-A": "1"}}
    assert models.manner(reflection=True) == {}


REFUSED = [
    ({"extra_headers": {"Authorization": "Bearer sk-1"}}, "env:NAME"),
    ({"extra_headers": {"X-Api-Key": "sk-1"}}, "env:NAME"),
    ({"extra_headers": {"X-T": "a\nb"}}, "no header"),
    ({"extra_headers": {"X-Key": "env:"}}, "name of an environment variable"),
    ({"extra_body": {"messages": []}}, "messages is made here"),
    ({"max_completion_tokens": 0}, "max_completion_tokens"),
    ({"base_url": "https://h.example.com/v1?sig=secret"}, "query"),
]


@pytest.mark.parametrize(("values", "words"), REFUSED)
def test_settings_that_would_keep_a_secret_or_change_the_question_are_refused(
    values: dict[str, Any], words: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        build(TrainSettings, {"data": "d", "model": "m", **values})
    assert words in str(caught.value)
