"""What a run will cost, costs and has cost: estimates that hold, budgets that are kept, figures."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, one_line_error
from hypothesis import given
from hypothesis import strategies as st
from scripted import (
    Numbered,
    Reply,
    ScriptedEndpoint,
    completion,
    opened_calls,
    restless,
    stage,
    write_problems,
)
from test_training import UID, Desk, identity, libraries

from tfgrpo.costs import accounts
from tfgrpo.data import datasets, problems
from tfgrpo.domains.verifier import Verifier
from tfgrpo.learn import run as running
from tfgrpo.learn.run import run_to_end
from tfgrpo.learn.run_setup import RunChoice, ready_run
from tfgrpo.model.budget import Budget, BudgetInvalid, BudgetReached, parse
from tfgrpo.model.endpoint import Request
from tfgrpo.project import open_project
from tfgrpo.rendering.token_count import count_tokens
from tfgrpo.runs.run_status import run_figures
from tfgrpo.settings import TrainSettings, build
from tfgrpo.store import Store

PRICES = {"scripted": {"prompt": 1.0, "completion": 2.0, "cached": 0.5}}
SMALL = ("--epochs", "1", "--batch-size", "6", "--max-tokens", "64")


def settings(folder: Path, **more: Any) -> TrainSettings:
    data = write_problems(folder / "problems.jsonl", 8)
    values = {"epochs": 2, "batch_size": 4, "group_size": 4, "max_tokens": 64, "data": str(data)}
    values["policy"] = "paper"
    return build(TrainSettings, {"model": "scripted", **values, **more})


# budgets:


@pytest.mark.parametrize(
    ("text", "limit", "in_tokens"),
    [
        ("5", 5.0, False),
        ("$0.50", 0.5, False),
        ("200000tok", 200_000, True),
        ("1.5Mtok", 1_500_000, True),
        ("20k tokens", 20_000, True),
    ],
)
def test_a_budget_is_in_dollars_or_tokens(text: str, limit: float, in_tokens: bool) -> None:
    found = parse(text)
    assert (found.limit, found.in_tokens) == (limit, in_tokens)


@pytest.mark.parametrize("text", ["", "five", "-5", "0", "5 euros", "tok", "5.00.1", "nan"])
def test_what_is_no_budget_is_refused(text: str) -> None:
    with pytest.raises(BudgetInvalid, match="is not a budget") as caught:
        parse(text)
    assert caught.value.hint


@given(
    calls=st.lists(st.tuples(st.integers(1, 400), st.integers(0, 1000)), max_size=40),
    limit=st.integers(1, 5000),
)
def test_no_order_of_calls_crosses_a_budget(calls: list[tuple[int, int]], limit: int) -> None:
    """Each call reserves its worst case and costs some thousandths of it, a while later."""
    budget = Budget(limit, in_tokens=True)
    stopped = Counter[str]()

    async def one(most: int, share: int) -> None:
        request = Request("rollout", (("user", "x" * most),), 0.7, most)
        try:
            reserved = await budget.reserve(request, None)
        except BudgetReached:
            stopped["yes"] += 1
            return
        await asyncio.sleep(0)
        budget.settle(reserved, reserved.amount * share // 1000)
        assert budget.spent <= limit

    async def run() -> None:
        await asyncio.gather(*(one(*call) for call in calls))

    asyncio.run(run())
    assert budget.spent <= limit
    assert budget._reserved == 0
    worst = max(
        (budget.most(Request("", (("", "x" * n),), 0, n), None) for n, _ in calls), default=0
    )
    assert not stopped or budget.spent + worst > limit


@pytest.mark.parametrize("concurrency", [1, 16])
def test_calls_stop_before_the_one_that_could_cross_the_budget(
    tmp_path: Path, concurrency: int
) -> None:
    def script(sent: dict[str, Any]) -> Reply:
        body = completion("fine")
        body["usage"] = {"prompt_tokens": 19, "completion_tokens": sent["max_tokens"]}
        return Reply(body)

    budget = Budget(2_000, in_tokens=True)
    with (
        ScriptedEndpoint(script, delay=0.002) as server,
        opened_calls(tmp_path, server.base_url, budget=budget, concurrency=concurrency) as calls,
    ):

        async def ask() -> list[Any]:
            asking = [Request("rollout", (("user", f"{n:03}"),), 0.5, 64) for n in range(60)]
            try:
                return await asyncio.gather(*map(calls.ask, asking), return_exceptions=True)
            finally:
                await calls.finish_in_flight()
                await calls.endpoint.close()

        found = asyncio.run(ask())
        answered = [one for one in found if not isinstance(one, BaseException)]
        stopped = [one for one in found if isinstance(one, BudgetReached)]
        assert len(answered) + len(stopped) == 60
        assert len(answered) == len(server.requests) == 2_000 // 83
        assert budget.spent == 83 * len(answered)
        assert "the budget of 2,000 tokens is reached: 1,992 tokens spent" in str(stopped[0])


def test_a_run_that_its_budget_stopped_goes_on_with_a_larger_one_and_ends_alike(
    cli: Cli, tmp_path: Path
) -> None:
    asked = settings(tmp_path)
    script = Numbered(restless)
    with ScriptedEndpoint(script) as server:
        found = asked.model_copy(
            update={
                "data_digest": problems.digest(datasets.load(str(tmp_path / "problems.jsonl"))),
                "models": asked.models.model_copy(update={"base_url": server.base_url}),
            }
        )
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            Desk(tmp_path / name, None, found).prepare()  # type: ignore[arg-type]
        go_on = ("train", "--resume", "run")
        cli("--store", "b/store.db", *go_on)
        before = len(script.requests)
        spent = 0
        for limit in (4_000, 9_000, 16_000):
            done = cli("--store", "a/store.db", *go_on, "--budget", f"{limit}tok", ok=False)
            one_line_error(done, f"the budget of {limit:,} tokens is reached", "--budget")
            with Store.open(tmp_path / "a/store.db") as store:
                run = store.runs.get("run")
                assert store.runs.state(run) == "stopped"
                now = accounts.spent(store, run, {}, in_tokens=True)
                assert spent < now <= limit
                spent = now
        cli("--store", "a/store.db", *go_on, "--budget", "1Mtok")
        made = [identity(request) for request in script.requests[before:]]
    assert len(made) == len(set(made))
    assert libraries(tmp_path / "a/store.db") == libraries(tmp_path / "b/store.db")


def test_a_budget_in_dollars_needs_prices_and_is_refused_before_a_run_is_made(
    cli: Cli, tmp_path: Path, endpoint: ScriptedEndpoint
) -> None:
    write_problems(tmp_path / "problems.jsonl", 6)
    arguments = ("train", "problems.jsonl", *SMALL, "--model", "scripted")
    more = ("--base-url", endpoint.base_url, "--budget", "0.01")
    one_line_error(cli(*arguments, *more, ok=False), "price", "[prices]", code=2)
    assert not (tmp_path / ".tfgrpo").exists()
    (tmp_path / "tfgrpo.toml").write_text("[prices]\nscripted = {prompt = 9, completion = 90}\n")
    done = cli(*arguments, *more, ok=False)
    one_line_error(done, "the budget of $0.01 is reached")
    assert json.loads(cli("cost", "--json").stdout)["total"]["dollars"] <= 0.01


def test_a_budget_below_the_worst_case_of_one_call_is_spent_all_the_same(
    cli: Cli, tmp_path: Path, endpoint: ScriptedEndpoint
) -> None:
    """An answer of 16,384 tokens would cost ten times the budget; these have ten."""
    write_problems(tmp_path / "problems.jsonl", 20)
    (tmp_path / "tfgrpo.toml").write_text("[prices]\nm = {prompt = 10, completion = 60}\n")
    flags = ("--model", "m", "--base-url", endpoint.base_url, "--epochs", "1")
    done = cli("train", "problems.jsonl", *flags, "--budget", "0.1", ok=False)
    one_line_error(done, "the budget of $0.10 is reached: $0.0")
    assert 0.09 < json.loads(cli("cost", "--json").stdout)["total"]["dollars"] <= 0.1


def test_an_evaluation_keeps_its_budget_too(
    cli: Cli, tmp_path: Path, endpoint: ScriptedEndpoint
) -> None:
    write_problems(tmp_path / "problems.jsonl", 6)
    cli("init")
    flags = ("--model", "scripted", "--base-url", endpoint.base_url, "--max-tokens", "64")
    evaluate = ("eval", "problems.jsonl", *flags, "--samples", "4")
    one_line_error(cli(*evaluate, "--budget", "1200tok", ok=False), "1,200 tokens is reached")
    assert 0 < len(endpoint.requests) < 24
    assert "mean@4" in cli(*evaluate, "--budget", "9000tok").stdout
    assert len(endpoint.requests) == 24
    assert "evaluations" in cli("cost").stdout


def test_runs_and_cost_tell_the_same_totals_by_stage(
    cli: Cli, tmp_path: Path, endpoint: ScriptedEndpoint
) -> None:
    write_problems(tmp_path / "problems.jsonl", 6)
    write_problems(tmp_path / "heldout.jsonl", 4, start=50)
    flags = ("--model", "m", "--base-url", endpoint.base_url)
    cli("train", "problems.jsonl", *SMALL, *flags, "--heldout", "heldout.jsonl")
    by_stage = Counter[str]()
    for row in json.loads(cli("cost", "problems", "--json").stdout)["calls"]:
        by_stage[row["stage"]] += row["calls"]
    usage = json.loads(cli("runs", "problems", "--json").stdout)["usage"]
    assert {stage: sums["calls"] for stage, sums in usage.items()} == by_stage
    assert by_stage["evaluation"] > 0
    assert by_stage.total() == len(endpoint.requests)


def test_a_run_whose_server_tells_no_usage_has_a_cost_all_the_same_and_says_so(
    cli: Cli, tmp_path: Path
) -> None:
    def script(sent: dict[str, Any]) -> Reply:
        body = completion(restless(sent))
        del body["usage"]
        return Reply(body)

    write_problems(tmp_path / "problems.jsonl", 6)
    (tmp_path / "tfgrpo.toml").write_text("[prices]\nm = {prompt = 1, completion = 2}\n")
    with ScriptedEndpoint(script) as server:
        flags = ("--model", "m", "--base-url", server.base_url, "--budget", "3000tok")
        one_line_error(cli("train", "problems.jsonl", *SMALL, *flags, ok=False), "3,000 tokens")
        asked = len(server.requests)
    total = json.loads(cli("cost", "--json").stdout)["total"]
    assert total["calls"] == total["estimated_calls"] == asked > 0
    assert 2_500 < total["prompt_tokens"] + total["completion_tokens"] <= 3_000
    assert total["dollars"] > 0.002
    assert f"did not report token usage for {asked} calls" in " ".join(cli("cost").stdout.split())


# estimates:


def test_an_estimate_spends_nothing_and_makes_no_run(
    cli: Cli, tmp_path: Path, endpoint: ScriptedEndpoint
) -> None:
    write_problems(tmp_path / "problems.jsonl", 6)
    write_problems(tmp_path / "heldout.jsonl", 4, start=50)
    arguments = (
        "train",
        "problems.jsonl",
        *SMALL,
        "--model",
        "scripted",
        "--estimate",
        "--details",
    )
    more = ("--base-url", endpoint.base_url, "--heldout", "heldout.jsonl")
    said = cli(*arguments, *more).stdout
    assert "unknown" in said
    (tmp_path / "tfgrpo.toml").write_text("[prices]\nscripted = {prompt = 1, completion = 2}\n")
    said = cli(*arguments, *more).stdout
    lines = said.splitlines()
    assert "unknown" not in said
    stages = ["rollout", "summary", "comparison", "plan", "evaluation", "total"]
    assert [line.split()[0] for line in lines[1:7]] == stages
    assert "nothing has been spent" in lines[-1]
    assert all(len(line) <= 80 for line in lines)
    assert not endpoint.requests
    cli("init")
    assert cli(*arguments, *more).stdout == said
    assert json.loads(cli("runs", "--json").stdout) == []


def test_an_estimate_counts_of_a_library_what_prompts_get(cli: Cli, tmp_path: Path) -> None:
    write_problems(tmp_path / "problems.jsonl", 6)
    cli("init")
    for n in range(12):
        cli("add", f"Lesson {n} about numbers, " + "which is told at length " * 20, "-r", "r")

    def prompt_tokens(*more: str) -> float:
        estimate = cli("train", "problems.jsonl", *SMALL, "--model", "m", "--estimate", *more)
        return sum(one["prompt_tokens"] for one in json.loads(estimate.stdout)["expected"])

    whole, part = prompt_tokens("--json"), prompt_tokens("--json", "--top-k", "2")
    assert part < whole / 2


@given(st.text(), st.text())
def test_tokens_of_a_text_are_no_more_than_its_bytes_and_grow_with_it(a: str, b: str) -> None:
    assert 0 <= count_tokens(a) <= len(a.encode())
    assert count_tokens(a) <= count_tokens(f"{a}\n{b}") <= count_tokens(a) + count_tokens(b) + 1


# costs:


def test_costs_are_told_by_stage_model_and_step_with_what_is_unknown(
    tmp_path: Path, verifier: Verifier
) -> None:
    def script(sent: dict[str, Any]) -> Reply:
        body = completion(restless(sent))
        body["usage"]["prompt_tokens_details"] = {"cached_tokens": 20}
        body["usage"]["completion_tokens_details"] = {"reasoning_tokens": 3}
        return Reply(body)

    desk = Desk(tmp_path, verifier, settings(tmp_path))
    desk.prepare()
    with ScriptedEndpoint(script) as server:
        training = desk.train(server)
        made = Counter(stage(request) for request in server.requests)
    with Store.open(desk.path) as store:
        run = store.runs.get("run")
        assert run.uid == UID
        found = accounts.costs(store, PRICES, run)
        unknown = accounts.total(accounts.costs(store, {}, run))
        spent = accounts.spent(store, run, PRICES, in_tokens=True)
    each = (30 * 1.0 + 20 * 0.5 + 10 * 2.0) / 1e6
    stages = accounts.group_by(found, lambda one: one.stage)
    assert {name: sums.usage.calls for name, sums in stages.items()} == made
    for sums in stages.values():
        assert sums.dollars == pytest.approx(each * sums.usage.calls)
        assert sums.usage.cached_tokens == 20 * sums.usage.calls
        assert sums.usage.reasoning_tokens == 3 * sums.usage.calls
        assert sums.usage.seconds > 0
    assert set(accounts.group_by(found, lambda one: one.step)) == {0, 1, 2, 3}
    assert (unknown.dollars, unknown.priced, unknown.unknown) == (None, 0.0, ("scripted",))
    meter = training.progress.meter
    total = accounts.total(found)
    assert (meter.calls, meter.cached_tokens) == (total.usage.calls, total.usage.cached_tokens)
    assert spent == 60 * total.usage.calls


def test_one_model_at_two_addresses_costs_what_each_takes_wherever_it_is_told(
    cli: Cli, tmp_path: Path
) -> None:
    write_problems(tmp_path / "problems.jsonl", 6)
    with ScriptedEndpoint(restless) as attempts, ScriptedEndpoint(restless) as reflects:
        prices = {attempts.base_url: (1, 2), reflects.base_url: (10, 20)}
        table = {at: {"prompt": p, "completion": c} for at, (p, c) in prices.items()}
        lines = (f'"{at}" = {{prompt = {p}, completion = {c}}}\n' for at, (p, c) in prices.items())
        (tmp_path / "tfgrpo.toml").write_text("[prices]\n" + "".join(lines))
        where = ("--base-url", attempts.base_url, "--reflection-base-url", reflects.base_url)
        options = ("--policy", "paper", "--group-size", "3", "--run", "run")
        cli("train", "problems.jsonl", "--model", "m", *where, *SMALL, *options)
        each = (50 * 1 + 10 * 2) / 1e6
        paid = each * (len(attempts.requests) + 10 * len(reflects.requests))
        assert len(reflects.requests) > 2
    found = json.loads(cli("cost", "run", "--json").stdout)
    assert found["total"]["dollars"] == pytest.approx(paid)
    (there,) = found["endpoints"]
    assert there["endpoint"] == reflects.base_url
    assert there["dollars"] == pytest.approx(each * 10 * len(reflects.requests))
    with Store.open(tmp_path) as store:
        run = store.runs.get("run")
        assert accounts.spent(store, run, table, in_tokens=False) == pytest.approx(paid)
        (day,) = accounts.cost_by_day(store, table, run).values()
        figures = run_figures(store, run, table)
    assert day.dollars == pytest.approx(paid)
    assert figures.spent.dollars == pytest.approx(paid)
    (step,) = figures.steps
    assert step.spent.dollars == pytest.approx(paid)


def test_the_costs_of_a_run_hold_its_held_out_comparison(
    cli: Cli, tmp_path: Path, endpoint: ScriptedEndpoint
) -> None:
    write_problems(tmp_path / "problems.jsonl", 6)
    write_problems(tmp_path / "heldout.jsonl", 4, start=50)
    (tmp_path / "tfgrpo.toml").write_text("[prices]\nm = {prompt = 1, completion = 2}\n")
    flags = ("--model", "m", "--base-url", endpoint.base_url)
    cli("train", "problems.jsonl", *SMALL, *flags, "--heldout", "heldout.jsonl")
    cli("eval", "heldout.jsonl", "--samples", "3")
    rows = json.loads(cli("cost", "--json").stdout)["calls"]
    runs = Counter({(r["run"], r["stage"]): r["calls"] for r in rows})
    assert runs["problems", "evaluation"] == 4 * 2 * 2
    assert runs[None, "evaluation"] == 4 * 3
    assert sum(r["calls"] for r in rows) == len(endpoint.requests)
    assert sum(r["dollars"] for r in rows) == pytest.approx(len(endpoint.requests) * 70 / 1e6)
    said = cli("cost", "problems").stdout
    rows = [line.split()[0] for line in said.splitlines() if re.match("step [0-9]|eval", line)]
    assert rows[-2:] == ["step", "evaluation"], "what belongs to no step comes after the steps"
    assert all(len(line) <= 80 for line in said.splitlines())


def test_a_store_without_calls_says_so(cli: Cli) -> None:
    cli("init")
    assert cli("cost").stdout == "no call has been made\n"


def test_a_run_that_is_taken_up_counts_what_another_process_spent_since_it_was_planned(
    cli: Cli, tmp_path: Path
) -> None:
    write_problems(tmp_path / "problems.jsonl", 8)
    flags = ("--epochs", "2", "--batch-size", "4", "--group-size", "4", "--max-tokens", "64")
    with ScriptedEndpoint(restless) as server:
        where = ("--run", "r", "--model", "scripted", "--base-url", server.base_url)
        command = ("train", "problems.jsonl", *flags, *where, "--budget")
        cli(*command, "3000tok", ok=False)
        with Store.open(tmp_path) as store:
            project, choice = open_project(tmp_path), RunChoice(resume="r", budget="5000tok")
            ready = ready_run(store, project, {}, choice)
            cli(*command, "5000tok", ok=False)
            with pytest.raises(BudgetReached):
                asyncio.run(run_to_end(store, project, ready))
            spent = accounts.spent(store, store.runs.get("r"), {}, in_tokens=True)
    assert 3_000 < spent <= 5_000


def test_a_run_that_ends_as_another_process_waits_for_it_stays_finished(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_problems(tmp_path / "problems.jsonl", 4)
    flags = ("--epochs", "1", "--batch-size", "4", "--group-size", "3", "--run", "r")
    script = Numbered(restless)
    with ScriptedEndpoint(script) as server:
        where = ("--model", "scripted", "--base-url", server.base_url)
        command = ("train", "problems.jsonl", *flags, *where)
        cli(*command, "--budget", "600tok", ok=False)
        plain = running._at_work

        def late(*of: Any) -> Any:
            cli(*command, "--budget", "1Mtok")
            script.requests.clear()
            return plain(*of)

        monkeypatch.setattr(running, "_at_work", late)
        with Store.open(tmp_path) as store:
            project = open_project(tmp_path)
            ready = ready_run(store, project, {}, RunChoice(resume="r", budget="2Mtok"))
            result = asyncio.run(run_to_end(store, project, ready))
            states = [one.state for one in store.runs.states(result.run)]
        assert states.index("finished") == len(states) - 1, "nothing follows"
        assert script.requests == []
