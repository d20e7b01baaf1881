"""Comparing libraries: paired, honest about what is inconclusive, over models and datasets."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import Cli, one_line_error, problems
from scripted import LESSON, ScriptedEndpoint, teachable

from tfgrpo.cli.main import tfgrpo
from tfgrpo.evaluation.comparison import Power
from tfgrpo.evaluation.statistics import problems_needed, spread_of


def contrary(request: dict[str, Any]) -> str:
    """The teachable model, beside one named `spoilt` that a lesson makes wrong always."""
    if request["model"] == "spoilt" and LESSON in request["messages"][0]["content"]:
        return "\\boxed{0}"
    return teachable(request)


@pytest.fixture
def folder(tmp_path: Path, cli: Cli) -> Path:
    """v1 holds the lesson; two datasets of twelve problems."""
    (tmp_path / "a.jsonl").write_text(problems(range(12)))
    (tmp_path / "b.jsonl").write_text(problems(range(20, 32)))
    cli("init")
    cli("add", LESSON)
    return tmp_path


def compare(cli: Cli, endpoint: ScriptedEndpoint, *more: str) -> Any:
    base = ("a.jsonl", "--library", "v1", "--base-url", endpoint.base_url, "--samples", "4")
    return json.loads(cli("compare", *base, "--json", *more).stdout)


def test_a_library_that_helps_is_better_with_interval_and_permutation_test(
    cli: Cli, folder: Path, endpoint: ScriptedEndpoint
) -> None:
    (found,) = compare(cli, endpoint, "--model", "m")
    assert found["verdict"] == "better"
    assert found["mean"] == 1.0
    difference = found["difference"]
    assert difference["mean"] == pytest.approx(1.0 - found["control_mean"])
    assert 0 < difference["low"] < difference["mean"] < difference["high"]
    assert found["p"] < 0.01
    assert len(endpoint.requests) == 2 * 12 * 4


def test_scores_stick_to_the_versions_and_are_not_made_twice(
    cli: Cli, folder: Path, endpoint: ScriptedEndpoint
) -> None:
    first = compare(cli, endpoint, "--model", "m")
    asked = len(endpoint.requests)
    assert compare(cli, endpoint, "--model", "m") == first
    assert len(endpoint.requests) == asked
    assert "mean@4 1.000" in cli("log", "-n", "1").stdout
    assert "mean@4 1.000" in cli("show", "v1").stdout


def test_a_library_against_itself_is_inconclusive(
    cli: Cli, folder: Path, endpoint: ScriptedEndpoint
) -> None:
    cli("keep", "G0")
    arguments = ("--base-url", endpoint.base_url, "--model", "m", "--samples", "2")
    said = cli("compare", "a.jsonl", "--library", "v2", "--against", "v1", *arguments).stdout
    assert re.search(r"v2 - v1: \+0\.000 \[-(0\.\d+), \+\1\], permutation p 1$", said, re.MULTILINE)
    assert said.splitlines()[-1] == "inconclusive"
    both = ("compare", "a.jsonl", "b.jsonl", "--library", "v2", "--against", "v1", *arguments)
    assert "would decide" not in cli(*both).stdout
    asked = len(endpoint.requests)
    one_line_error(cli("compare", "b.jsonl", "gone.jsonl", *arguments, ok=False), "gone.jsonl")
    assert len(endpoint.requests) == asked, "all is checked before anything is asked"


def test_two_models_show_where_a_library_transfers_and_where_it_harms(
    cli: Cli, folder: Path
) -> None:
    with ScriptedEndpoint(contrary) as server:
        more = ("b.jsonl", "--model", "m", "--model", "spoilt")
        found = compare(cli, server, *more)
        said = cli(
            *("compare", "a.jsonl", "b.jsonl", "--base-url", server.base_url, "--samples", "4"),
            *("--model", "m", "--model", "spoilt"),
        ).stdout
    verdicts = {(one["dataset"], one["model"]): one["verdict"] for one in found}
    assert verdicts == {
        (data, model): "better" if model == "m" else "worse"
        for data in ("a.jsonl", "b.jsonl")
        for model in ("m", "spoilt")
    }
    assert said.splitlines()[1].startswith("settings: 4 samples each, temperature ")
    assert said.splitlines()[2].split() == [
        *("dataset", "model", "control", "mean", "difference", "p", "verdict")
    ]
    assert max(map(len, said.splitlines())) <= 80


def test_power_reads_what_was_recorded_and_asks_no_model(
    cli: Cli, folder: Path, endpoint: ScriptedEndpoint
) -> None:
    missing = cli("power", "a.jsonl", ok=False)
    one_line_error(missing, "not evaluated on the same problems", "tfgrpo compare a.jsonl")
    (compared,) = compare(cli, endpoint, "--model", "m")
    asked = len(endpoint.requests)
    found = json.loads(cli("power", "a.jsonl", "--json").stdout)
    assert found["difference"] == pytest.approx(compared["difference"]["mean"])
    assert len(endpoint.requests) == asked
    smaller = cli("power", "a.jsonl", "--difference", "0.01", "--samples", "4", "--json").stdout
    assert json.loads(smaller)["decided_by"][0]["problems"] > 100


def test_more_samples_need_fewer_problems_and_nothing_shows_a_difference_of_zero() -> None:
    needed = [problems for _, problems in Power(0.03, 0.1, 0.45).table()]
    assert needed == sorted(needed, reverse=True)
    assert len(set(needed)) > 4
    assert Power(0.03, 0.1, 0.45).problems(8) == problems_needed(0.03, spread_of(0.1, 0.45, 8))
    assert Power(0.0, 0.1, 0.45).table() == []
    assert Power(3e-17, 0.1, 0.45).table() == [], "it is what rounding left"
    assert Power(0.5, 0.0, 0.05).problems(2) == 6, "the permutation test needs as many"


def test_power_from_numbers_needs_all_three(cli: Cli, folder: Path) -> None:
    done = cli("power", "--difference", "0.03", ok=False)
    assert done.returncode == 2
    assert "--within" in done.stderr


def test_samples_that_could_not_be_judged_are_counted_beside_a_comparison(
    folder: Path, endpoint: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A judge that cannot judge some problems."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    (folder / "strict.py").write_text(
        "from tfgrpo.domains import Domain, Verdict\n"
        "def verify(problem, response):\n"
        "    right = 0.0 if problem.id > '5' else 1.0\n"
        "    return Verdict(None if problem.problem.startswith('What is 1') else right, '', '')\n"
        "DOMAIN = Domain(name='strict', verify=verify)\n"
    )
    base = ("a.jsonl", "--library", "v1", "--base-url", endpoint.base_url, "--model", "m")
    asked = ("compare", *base, "--samples", "2", "--domain", "strict:DOMAIN")
    limited = (*asked, "--verify-timeout", "60")
    said = CliRunner().invoke(tfgrpo, limited).output
    (found,) = json.loads(CliRunner().invoke(tfgrpo, [*asked, "--json"]).output)
    assert found["unscored"]["control"] == found["unscored"]["version"] > 0
    count = found["unscored"]["version"]
    assert f"v1: {count} samples could not be judged and do not count" in " ".join(said.split())
