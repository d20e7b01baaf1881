"""`tfgrpo model check`: what an endpoint can do, in about ten calls."""

from __future__ import annotations

import asyncio
import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from documented import STAND_INS
from standins import Server, StandIn

from tfgrpo.cli.main import tfgrpo
from tfgrpo.connect import check_model
from tfgrpo.model.endpoint import EndpointError
from tfgrpo.model.endpoint_check import EndpointReport
from tfgrpo.model.settings import ModelSettings


def checked(stand_in: StandIn, prices: Any = None, **more: Any) -> EndpointReport:
    with Server(stand_in, key="") as server:
        path = stand_in.path if "/chat" not in stand_in.path else "/v1"
        layers = [{"base_url": server.address + path, **more}]
        report, _ = asyncio.run(check_model(layers, {}, prices or {}))
    assert report.calls == len(server.served.bodies) - sum(server.served.refused.values())
    assert report.calls <= 10
    assert report.model == "one-model"
    return report


def verdicts(report: EndpointReport) -> dict[str, str]:
    return {one.name: one.verdict for one in report.findings}


def test_an_endpoint_that_can_do_everything() -> None:
    prices = {"one-model": {"prompt": 1.0, "completion": 2.0}}
    report = checked(StandIn(), prices)
    found = verdicts(report)
    speed = found.pop("speed")
    assert speed.endswith("tokens a second")
    assert found == {
        "list of models": "yes",
        "answers": "yes",
        "thinking": "no",
        "schema": "yes",
        "seed": "yes",
        "tools": "yes",
        "log probabilities": "yes",
        "long prompts": "yes",
        "caching": "no",
        "limits": "none told",
        "price": "known",
    }
    spent = report.prompt_tokens * 1.0 + report.completion_tokens * 2.0
    assert report.dollars == pytest.approx(spent / 1e6)


def test_what_an_endpoint_lacks_is_told_and_how_to_live_with_it() -> None:
    found = {one.name: one for one in checked(STAND_INS["anthropic"]).findings}
    assert (found["schema"].verdict, "ignored" in found["schema"].detail) == ("in words", True)
    assert "8,192" in found["limits"].detail
    assert "[prices]" in found["price"].detail
    found = {one.name: one for one in checked(STAND_INS["deepseek"]).findings}
    assert (found["schema"].verdict, "refused" in found["schema"].detail) == ("in words", True)
    assert found["thinking"].verdict == "yes"
    found = {one.name: one for one in checked(STAND_INS["gemini"]).findings}
    assert found["seed"].verdict == "no"
    assert "refused" in found["seed"].detail


def test_a_context_that_cuts_prompts_is_found_out() -> None:
    found = {one.name: one for one in checked(StandIn(context=4096)).findings}
    assert found["long prompts"].verdict == "cut"
    assert "4,096 of about" in found["long prompts"].detail


def test_the_settings_that_it_prints_are_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "TFGRPO_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with Server(replace(STAND_INS["openai-reasoning"], models=("gpt-x",)), key="") as server:
        address = f"{server.address}/v1"
        given = f'[model]\nbase_url = "{address}"\nreasoning_effort = "high"\n'
        (tmp_path / "tfgrpo.toml").write_text(given)
        shown = CliRunner().invoke(tfgrpo, ["model", "check"])
        asked = CliRunner().invoke(tfgrpo, ["model", "check", "--base-url", address, "--json"])
    assert shown.exit_code == 0, shown.output
    table = tomllib.loads(shown.stdout[shown.stdout.index("[model]") :])["model"]
    assert table == {
        "model": "gpt-x",
        "base_url": address,
        "reasoning_effort": "high",
        "reflection_reasoning_effort": "low",
    }
    assert ModelSettings(**table).reflects_apart
    assert "serves one model" in shown.stderr
    found = json.loads(asked.stdout)
    assert found["findings"]["thinking"]["verdict"] == "yes"
    assert found["settings"] == table


@pytest.mark.parametrize("named", [True, False])
def test_of_listed_endpoints_the_first_is_tried_with_its_own_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "TFGRPO_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OWN_KEY", "sk-right")
    with Server(replace(StandIn(), models=("there",)), key="sk-right") as server:
        address = f"{server.address}/v1"
        (tmp_path / "tfgrpo.toml").write_text(f"""
[model]
{'model = "here"' if named else ""}
reasoning_effort = "low"
[[endpoints]]
base_url = "{address}"
api_key_env = "OWN_KEY"
price = {{ prompt = 1.0, completion = 2.0 }}
{'model = "there"' if named else ""}
[[endpoints]]
base_url = "http://127.0.0.1:9/v1"
""")
        done = CliRunner().invoke(tfgrpo, ["model", "check", "--json"])
    assert done.exit_code == 0, done.output
    assert f"of [[endpoints]], {address} is tried" in done.stderr
    found = json.loads(done.stdout)
    assert (found["model"], found["base_url"]) == ("there", address)
    assert found["findings"]["list of models"]["detail"] == "1, there there"
    assert found["findings"]["price"]["verdict"] == "known"
    assert found["settings"]["model"] == ("here" if named else "there")
    assert not {"base_url", "api_key_env", "endpoints"} & found["settings"].keys()


def test_an_endpoint_that_cannot_be_asked_is_an_error_not_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Server(StandIn(), key="sk-right") as server:
        layers = [{"base_url": f"{server.address}/v1", "model": "m"}]
        with pytest.raises(EndpointError, match="refused the key"):
            asyncio.run(check_model(layers, {"TFGRPO_API_KEY": "sk-wrong"}))
    nothing = CliRunner().invoke(tfgrpo, ["model", "check"])
    assert nothing.exit_code == 2
    assert "--base-url" in nothing.stderr
