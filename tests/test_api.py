"""The public calls, from a running event loop and from a script: what a notebook meets."""

from __future__ import annotations

import asyncio
import json
import math
import re
import signal
import subprocess
import sys
import threading
import urllib.request
import uuid
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from conftest import Cli, environment
from rich.console import Console
from scripted import (
    LESSON,
    Reply,
    ScriptedEndpoint,
    completion,
    stage,
    teachable,
    write_problems,
)
from store_helpers import child, killed
from waiting import until, until_so

import tfgrpo
from tfgrpo import api
from tfgrpo.costs.accounts import cost_report
from tfgrpo.data import datasets
from tfgrpo.data.problems import Problem
from tfgrpo.data.readers import DatasetError, row_lines
from tfgrpo.domains import find
from tfgrpo.domains.base import DomainError
from tfgrpo.learn.nothing_to_learn import StoppedEarly
from tfgrpo.learn.progress import Progress
from tfgrpo.notices import Notice, RunStarted, StepFinished, WarningNotice
from tfgrpo.redaction import redact_everywhere
from tfgrpo.rendering.render import prompt_text
from tfgrpo.store.errors import InvalidOperation, SettingsError
from tfgrpo.store.redact import Target
from tfgrpo.tools.toolbox import function_tools

GRADING = b'{"model": "m", "messages": [{"role": "user", "content": "What is 1 op 4?"}]}'
EVALUATED = ("model", "base_url", "store", "verify", "samples")
SMALL = {"epochs": 1, "batch_size": 4, "group_size": 3, "model": "m", "policy": "paper"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Eight problems to learn from and six others, in the working folder."""
    write_problems(tmp_path / "problems.jsonl", 8)
    write_problems(tmp_path / "heldout.jsonl", 6, start=20)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def where(endpoint: ScriptedEndpoint, **more: Any) -> dict[str, Any]:
    return {**SMALL, "base_url": endpoint.base_url, "store": ".", **more}


def test_a_run_is_a_call_in_a_running_loop_that_prints_nothing(
    folder: Path, endpoint: ScriptedEndpoint, capfd: pytest.CaptureFixture[str]
) -> None:
    seen: list[Notice] = []

    async def cell() -> tfgrpo.TrainResult:
        return await tfgrpo.train(
            "problems.jsonl",
            heldout="heldout.jsonl",
            heldout_samples=4,
            on_progress=seen.append,
            **where(endpoint),
        )

    result = asyncio.run(cell())
    assert [version.name for version in result.versions] == ["v1", "v2"]
    assert [e.text for e in result.library] == [LESSON]
    assert result.comparison is not None
    assert result.comparison.verdict == "better"
    assert result.cost.usage.calls == len(endpoint.requests)
    assert result.cost.dollars is None, "nobody knows what this model costs"
    assert {type(notice) for notice in seen} >= {RunStarted, Progress, StepFinished}
    assert all(str(notice) for notice in seen)
    assert capfd.readouterr() == ("", "")
    assert tfgrpo.library(store=folder).prompt() == f"[G0] {LESSON}"


def test_the_command_line_and_the_library_make_the_same_run(
    folder: Path, endpoint: ScriptedEndpoint, cli: Cli
) -> None:
    result = tfgrpo.train_sync("problems.jsonl", **where(endpoint))
    (run,) = json.loads(cli("runs", "--json").stdout)
    assert run["name"] == result.run.name == "problems"
    assert run["state"] == "finished"
    scores = tfgrpo.evaluate_sync("heldout.jsonl", against="v0", samples=2, store=folder)
    asked = len(endpoint.requests)
    said = cli("eval", "heldout.jsonl", "--against", "v0", "--samples", "2").stdout
    assert len(endpoint.requests) == asked  # it reads what is on record
    assert str(scores).splitlines()[0] in said
    assert f"{scores.mean:.3f}" in said


def test_libraries_are_compared_and_scores_are_a_table(
    folder: Path, endpoint: ScriptedEndpoint
) -> None:
    pandas = pytest.importorskip("pandas")
    tfgrpo.train_sync("problems.jsonl", **where(endpoint))

    async def cell() -> tuple[Any, Any]:
        verdict = await tfgrpo.compare("v0", "HEAD", "heldout.jsonl", samples=4, store=folder)
        scores = await tfgrpo.evaluate("heldout.jsonl", samples=4, store=folder)
        return verdict, scores

    verdict, scores = asyncio.run(cell())
    assert (verdict.verdict, verdict.mean) == ("better", 1.0)
    frame = scores.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert set(frame.columns) == {"version", "problem", "sample", "reward", "answer"}
    assert len(frame) == 2 * 6 * 4
    with tfgrpo.Store.open(folder / ".tfgrpo/store.db") as store:
        rollouts = store.rollouts("problems")
        assert len(rollouts) == 8 * 3
        assert len(rollouts.to_pandas()) == 8 * 3
        assert {row.step for row in rollouts} == {1, 2}
        assert len(store.rollouts("problems", 1)) == 4 * 3
        assert {row.step for row in store.rollouts("problems", 2)} == {2}


def test_results_show_themselves_in_a_terminal_and_a_notebook(
    folder: Path, endpoint: ScriptedEndpoint
) -> None:
    (folder / "<b>.jsonl").write_text((folder / "heldout.jsonl").read_text())
    result = tfgrpo.train_sync("problems.jsonl", heldout="<b>.jsonl", **where(endpoint))
    console = Console(record=True, width=120)
    for shown in (result, result.heldout, result.comparison):
        console.print(shown)
        html = shown._repr_html_()  # type: ignore[union-attr]
        assert "<table>" in html
        assert "<b>.jsonl" not in html
    assert LESSON[:40] in console.export_text()


def test_a_second_call_is_refused_while_a_run_is_at_work(folder: Path) -> None:
    async def cell(endpoint: ScriptedEndpoint) -> list[object]:
        calls = [tfgrpo.train("problems.jsonl", **where(endpoint)) for _ in range(2)]
        return list(await asyncio.gather(*calls, return_exceptions=True))

    with ScriptedEndpoint(delay=0.02) as endpoint:
        tfgrpo.Store.init(folder / ".tfgrpo/store.db").close()
        outcomes = asyncio.run(cell(endpoint))
    refused = [one for one in outcomes if isinstance(one, InvalidOperation)]
    assert len(refused) == 1, outcomes
    assert "running" in str(refused[0])


EVALUATING = """
import sys
import tfgrpo
base_url, store = sys.argv[1:]
given = {"store": store, "base_url": base_url, "model": "m", "samples": 2}
print(tfgrpo.evaluate_sync("heldout.jsonl", **given).mean)
"""


def evaluated_at_once(how: str, given: dict[str, Any]) -> list[float]:
    """The means of one evaluation that is begun five times at once, and of a comparison with the
    same library in it."""
    if how == "processes":
        base_url = given["base_url"]
        processes = [child(EVALUATING, base_url, Path.cwd()) for _ in range(3)]
        return [float(process.communicate(timeout=240)[0]) for process in processes]

    async def cell() -> list[float]:
        one = partial(tfgrpo.evaluate, "heldout.jsonl", **given)
        comparison = tfgrpo.compare("v0", "HEAD", "heldout.jsonl", **given)
        results = await asyncio.gather(comparison, *(one() for _ in range(5)))
        return [result.mean for result in results[1:]]

    async def in_threads() -> list[float]:
        one = partial(tfgrpo.evaluate_sync, "heldout.jsonl", **given)
        return [
            scores.mean
            for scores in await asyncio.gather(*(asyncio.to_thread(one) for _ in range(5)))
        ]

    return asyncio.run(in_threads() if how == "threads" else cell())


@pytest.mark.parametrize("how", ["gather", "threads", "processes"])
def test_an_evaluation_that_is_begun_several_times_at_once_is_paid_once(
    folder: Path, how: str
) -> None:
    with ScriptedEndpoint(delay=0.05) as endpoint:
        given = {"store": folder, "base_url": endpoint.base_url, "model": "m", "samples": 2}
        with tfgrpo.Store.init(folder) as store:
            store.commit("main", [tfgrpo.Operation("ADD", text=LESSON)], message="the lesson")
        assert set(evaluated_at_once(how, given)) == {1.0}
        asked = [json.dumps(request, sort_keys=True) for request in endpoint.requests]
        assert len(asked) == len(set(asked)) == 6 * 2 * (2 if how == "gather" else 1)
        with tfgrpo.Store.open(folder) as store:
            assert cost_report(store, {}).total.usage.calls == len(asked)


def test_an_evaluation_waits_for_one_that_is_killed_and_goes_on(folder: Path) -> None:
    tfgrpo.Store.init(folder).close()
    shown: list[str] = []
    gone = threading.Event()

    def silent(request: dict[str, Any]) -> str | Reply:
        gone.wait(240)
        return teachable(request)

    with ScriptedEndpoint(silent) as endpoint:
        given = {"store": folder, "base_url": endpoint.base_url, "model": "m", "samples": 2}
        given["on_progress"] = lambda notice: shown.append(str(notice))

        async def cell(first: subprocess.Popen[str]) -> None:
            await until_so(lambda: endpoint.requests)
            again = asyncio.create_task(tfgrpo.evaluate("heldout.jsonl", **given))
            await until_so(lambda: any("waiting" in text for text in shown) or again.done())
            assert not again.done()
            first.kill()
            gone.set()
            await again

        with killed(child(EVALUATING, endpoint.base_url, folder)) as first:
            asyncio.run(cell(first))
    assert "evaluating 12/12" in "".join(shown)


def test_a_cancelled_run_is_recorded_and_resumes_without_asking_again(folder: Path) -> None:
    async def cut(endpoint: ScriptedEndpoint) -> None:
        running = asyncio.create_task(tfgrpo.train("problems.jsonl", **where(endpoint)))
        await until_so(lambda: len(endpoint.requests) >= 10)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    with ScriptedEndpoint(delay=0.05) as endpoint:
        asyncio.run(cut(endpoint))
        with tfgrpo.Store.open(folder / ".tfgrpo/store.db") as store:
            (run,) = store.runs.all()
            assert store.runs.state(run) == "interrupted"
        endpoint.delay = 0.0
        result = tfgrpo.train_sync(resume="problems", store=folder)
    assert [version.name for version in result.versions] == ["v1", "v2"]
    assert len(endpoint.requests) == len({json.dumps(r) for r in endpoint.requests})


def test_an_estimate_says_that_it_cannot_count_what_ones_own_verifier_asks(
    folder: Path, endpoint: ScriptedEndpoint, cli: Cli
) -> None:
    model = ("--model", "m", "--base-url", endpoint.base_url)

    def asks(problem: Problem, response: str) -> bool:
        request = urllib.request.Request(f"{endpoint.base_url}/chat/completions", GRADING)
        with urllib.request.urlopen(request) as answer:
            return bool(json.load(answer)["choices"])

    estimate = tfgrpo.estimate_sync("problems.jsonl", **where(endpoint, verify=asks))
    assert any("your own verifier makes to a model" in one for one in estimate.unseen)
    (folder / "counting.py").write_text(
        "from tfgrpo.domains.base import Domain, Verdict\n"
        "def verify(problem, response):\n    return Verdict(1.0, None, 'so')\n"
        "DOMAIN = Domain(name='counting', verify=verify)\n"
    )
    cli("init")
    for own in (("--domain", "counting:DOMAIN"), ("--reward", "echo 1")):
        said = cli("train", "problems.jsonl", *own, *model, "--estimate").stdout
        assert "your own verifier makes to a model" in " ".join(said.split())
        said = cli("eval", "problems.jsonl", *own, *model, "--estimate", "--json").stdout
        assert json.loads(said)["unseen"]
    for ours in ("math", "exact"):
        said = cli("train", "problems.jsonl", "--domain", ours, *model, "--estimate").stdout
        assert "your own verifier" not in said


def test_a_plain_function_judges(folder: Path, endpoint: ScriptedEndpoint) -> None:
    def ends_right(problem: Problem, response: str) -> float:
        return float(response.endswith(f"\\boxed{{{problem.answer}}}"))

    options = where(endpoint, verify=ends_right)
    estimate = tfgrpo.estimate_sync("problems.jsonl", **options)
    assert "judge" not in {one.stage for one in (*estimate.expected, *estimate.most)}
    assert not estimate.left_out
    result = tfgrpo.train_sync("problems.jsonl", **options)
    assert [e.text for e in result.library] == [LESSON]
    scores = tfgrpo.evaluate_sync(
        "heldout.jsonl", samples=2, store=folder, verify=ends_right, model="m"
    )
    assert scores.mean == 1.0
    with pytest.raises(tfgrpo.TfgrpoError, match="ends_right is a Python object") as refused:
        tfgrpo.train_sync(resume="problems", store=folder)
    assert "pass it again" in str(refused.value.hint)


def test_another_verifier_of_the_same_name_makes_another_run(
    folder: Path, endpoint: ScriptedEndpoint
) -> None:
    def verifier(least: float) -> Any:
        def judge(problem: Problem, response: str) -> bool:
            return response.endswith(f"\\boxed{{{problem.answer}}}") and least < 1

        return judge

    def trained(least: float, **more: Any) -> str:
        more |= {"verify": verifier(least), "keep_going": True}
        return tfgrpo.train_sync("problems.jsonl", **where(endpoint, **more)).run.name

    assert [trained(0.0), trained(0.0), trained(0.5), trained(0.5)] == [
        *("problems", "problems"),
        *("problems-2", "problems-2"),
    ]
    resumed = tfgrpo.train_sync(resume="problems", store=folder, verify=verifier(0.5))
    assert resumed.run.name == "problems"


def test_a_function_that_fails_is_unverifiable_and_never_wrong(
    folder: Path, endpoint: ScriptedEndpoint
) -> None:
    def breaks(problem: Problem, response: str) -> float:
        raise KeyError("no such thing")

    with pytest.raises(StoppedEarly, match="24 of 24 could not be judged: unverifiable: KeyError"):
        tfgrpo.train_sync("problems.jsonl", **where(endpoint, verify=breaks, batch_size=8))
    with tfgrpo.Store.open(folder / ".tfgrpo/store.db") as store:
        rows = store.rollouts("problems")
        assert {row.outcome for row in rows} == {"unverifiable"}
        assert all("KeyError" in row.verdict["reason"] for row in rows)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_function_that_exits_is_unverifiable_and_ends_no_program(
    folder: Path, endpoint: ScriptedEndpoint, is_async: bool
) -> None:
    def exits(problem: Problem, response: str) -> float:
        sys.exit("no licence")

    async def exits_later(problem: Problem, response: str) -> float:
        sys.exit("no licence")

    verify = exits_later if is_async else exits
    with pytest.raises(StoppedEarly, match="could not be judged: unverifiable: SystemExit: no lic"):
        tfgrpo.train_sync("problems.jsonl", **where(endpoint, verify=verify, batch_size=8))


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_tool_that_exits_is_a_failed_result(is_async: bool, kind: type[BaseException]) -> None:
    def exits() -> str:
        """Ends the program."""
        raise kind("no licence")

    async def exits_later() -> str:
        """Ends the program."""
        raise kind("no licence")

    functions = [exits_later if is_async else exits]
    (tool,) = function_tools(functions, seconds=20, characters=1_000)
    result = asyncio.run(tool.call({}))
    assert result.failed
    assert result.text == f"{kind.__name__}: no licence"


def test_a_tool_is_another_one_when_what_it_reads_is_another() -> None:
    def prices(table: dict[str, int]) -> Any:
        def price(of: str) -> int:
            """Looks a price up."""
            return table[of]

        return price

    tables = [{"salt": 1}, {"salt": 2}, {"salt": 1}]
    (one, other, same) = (
        function_tools([prices(table)], seconds=20, characters=1_000)[0].state for table in tables
    )
    assert one == same != other


class Awaited:
    """A verifier whose call is `async`."""

    async def __call__(self, problem: Problem, response: str) -> float:
        await asyncio.sleep(0)
        return float(response.endswith(f"\\boxed{{{problem.answer}}}"))


@pytest.mark.parametrize(
    "verify",
    [
        Awaited(),
        Awaited().__call__,
        partial(Awaited()),
        lambda problem, response: Awaited()(problem, response),
    ],
    ids=["object", "method", "partial", "lambda"],
)
def test_a_verifier_is_awaited_whatever_its_kind(
    folder: Path, endpoint: ScriptedEndpoint, verify: Any
) -> None:
    options = where(endpoint, verify=verify, samples=2)
    tfgrpo.Store.init(folder / ".tfgrpo/store.db").close()
    scores = tfgrpo.evaluate_sync("heldout.jsonl", **{k: options[k] for k in EVALUATED})
    assert 0 < scores.mean < 1


@pytest.mark.parametrize("kind", ["bool", "float32", "int64", "array"])
def test_numbers_of_numpy_are_rewards(folder: Path, endpoint: ScriptedEndpoint, kind: str) -> None:
    numpy = pytest.importorskip("numpy")

    def judge(problem: Problem, response: str) -> Any:
        right = response.endswith(f"\\boxed{{{problem.answer}}}")
        return numpy.array(right) if kind == "array" else numpy.dtype(kind).type(right)

    tfgrpo.Store.init(folder / ".tfgrpo/store.db").close()
    options = where(endpoint, verify=judge, samples=2)
    scores = tfgrpo.evaluate_sync("heldout.jsonl", **{k: options[k] for k in EVALUATED})
    assert 0 < scores.mean < 1


@pytest.mark.parametrize("outcome", ["good", "1", [1.0], {"reward": 1}, 7, -1.0, math.nan, b"1"])
@pytest.mark.parametrize("agent", [None, lambda problem, context: "12"])
def test_what_is_no_reward_is_an_error_before_a_paid_call(
    folder: Path, endpoint: ScriptedEndpoint, outcome: object, agent: object
) -> None:
    options = where(endpoint, verify=lambda problem, response: outcome, batch_size=8)
    with pytest.raises(tfgrpo.TfgrpoError, match="the function gave") as refused:
        tfgrpo.train_sync("problems.jsonl", **options, **({"agent": agent} if agent else {}))
    assert "correct the verifier" in str(refused.value.hint)
    assert not endpoint.requests


def test_what_is_no_reward_is_the_functions_fault(folder: Path, endpoint: ScriptedEndpoint) -> None:
    numpy = pytest.importorskip("numpy")
    tfgrpo.Store.init(folder / ".tfgrpo/store.db").close()
    options = where(endpoint, verify=lambda problem, response: numpy.zeros(2), samples=2)
    with pytest.raises(tfgrpo.TfgrpoError, match=r"the function gave array") as refused:
        tfgrpo.evaluate_sync("heldout.jsonl", **{k: options[k] for k in EVALUATED})
    assert "correct the verifier" in str(refused.value.hint)


HANGING = """
import time, tfgrpo
def hangs(*_):
    while True: time.sleep(1)
def tool(seconds: int) -> int:
    "Waits."
    return hangs()
options = dict(model="m", base_url={base_url!r}, store=".", epochs=1, batch_size=2, group_size=2)
try:
    tfgrpo.train_sync("problems.jsonl", {more}, **options)
except tfgrpo.TfgrpoError as error:
    print(error)
print("returned")
"""


@pytest.mark.parametrize("more", ["verify=hangs, verify_timeout=1", "tools=[tool], turns=2"])
def test_a_function_that_hangs_holds_up_neither_the_run_nor_the_program(
    folder: Path, more: str
) -> None:
    def script(request: dict[str, Any]) -> Any:
        if "tools" not in request:
            return "\\boxed{5}"
        body = completion("")
        function = {"name": "tool", "arguments": '{"seconds": 1}'}
        call = {"id": "c", "type": "function", "function": function}
        body["choices"][0]["message"]["tool_calls"] = [call]
        return Reply(body)

    write_problems(folder / "problems.jsonl", 2)
    (folder / "tfgrpo.toml").write_text("[tools]\nseconds = 1\n")
    with ScriptedEndpoint(script) as endpoint:
        (folder / "script.py").write_text(HANGING.format(base_url=endpoint.base_url, more=more))
        done = subprocess.run(
            [sys.executable, folder / "script.py"],
            cwd=folder,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=240,
        )
    assert done.stdout.endswith("returned\n"), done.stderr
    with tfgrpo.Store.open(folder / ".tfgrpo/store.db") as store:
        verdicts = [row.verdict for row in store.rollouts("problems")]
    assert len(verdicts) == 4
    reason = "no verdict in 1 s" if "verify" in more else "no result in 1 s"
    assert all(reason in json.dumps(verdict) for verdict in verdicts)


def test_a_plain_function_is_an_agents_tool(folder: Path) -> None:
    asked: list[tuple[int, int]] = []

    def op(a: int, b: int) -> int:
        """Joins two numbers by op."""
        asked.append((a, b))
        return a + b + 1

    def script(request: dict[str, Any]) -> Any:
        if stage(request) != "rollout":
            return teachable(request)
        last = request["messages"][-1]
        if last["role"] == "tool":
            return f"\\boxed{{{last['content']}}}"
        a, b = re.search(r"What is (\d+) op (\d+)\?", last["content"]).groups()  # type: ignore[union-attr]
        function = {"name": "op", "arguments": json.dumps({"a": int(a), "b": int(b)})}
        body = completion("")
        body["choices"][0]["message"]["tool_calls"] = [
            {"id": "c", "type": "function", "function": function}
        ]
        return Reply(body)

    with ScriptedEndpoint(script) as endpoint:
        more = {"tools": [op], "batch_size": 8, "keep_going": True}
        tfgrpo.train_sync("problems.jsonl", **where(endpoint, **more))
    with tfgrpo.Store.open(folder / ".tfgrpo/store.db") as store:
        assert {row.reward for row in store.rollouts("problems")} == {1.0}
    assert len(asked) == 8, "the same call in every attempt is made once"


def test_rows_are_a_dataset(folder: Path, endpoint: ScriptedEndpoint) -> None:
    rows = [json.loads(line) for line in (folder / "problems.jsonl").read_text().splitlines()]
    first = tfgrpo.train_sync(rows, **where(endpoint))
    assert first.run.config["data"].startswith(".tfgrpo/data/rows-")
    again = tfgrpo.train_sync(rows, new=True, **where(endpoint))
    assert again.run.config["data"] == first.run.config["data"]


def test_rows_of_pandas_are_what_they_say(folder: Path, endpoint: ScriptedEndpoint) -> None:
    numpy, pandas = pytest.importorskip("numpy"), pytest.importorskip("pandas")
    turns = numpy.array([{"role": "user", "content": "What is 1 op 4?"}], dtype=object)
    rows = [
        {"id": numpy.int64(7), "problem": turns, "answer": numpy.array(["6", "six"])},
        {"id": uuid.UUID(int=1), "problem": "What is 2 op 5?", "answer": numpy.float32(8)},
        {"id": pandas.Timestamp("2024-05-01"), "problem": "What is 3 op 6?", "answer": Decimal(10)},
        {"id": pandas.NA, "problem": "What is 4 op 7?", "answer": Path("12")},
    ]
    result = tfgrpo.train_sync(rows, **where(endpoint, keep_going=True))
    read = datasets.load(str(folder / result.run.config["data"]))
    assert [(one.problem, one.ground_truths) for one in read] == [
        ("What is 1 op 4?", ("6", "six")),
        ("What is 2 op 5?", ("8.0",)),
        ("What is 3 op 6?", ("10",)),
        ("What is 4 op 7?", ("12",)),
    ]
    assert [one.id for one in read][2:] == ["2024-05-01 00:00:00", "line-4"]
    asked = {request["messages"][-1]["content"] for request in endpoint.requests}
    assert "What is 1 op 4?" in asked
    times = numpy.array(["2024-05-01", "2024-05-02"], dtype="datetime64[ns]")
    assert "2024-05-02T00" in row_lines([{"times": times}])[0]
    assert "2024-05-01T00" in row_lines([{"time": times[0]}])[0]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"6", "row 2, field 'answer': a value of the type bytes"),
        ({"6"}, "row 2, field 'answer': a value of the type set"),
        ([object()], "row 2, field 'answer': a value of the type object"),
        ({(1, 2): 3}, "row 2, field 'answer': keys must be"),
        ("\ud800", "row 2, field 'answer': .*lone surrogate"),
    ],
    ids=["bytes", "set", "object", "key", "surrogate"],
)
def test_a_row_that_json_has_nothing_for_is_named(
    folder: Path, endpoint: ScriptedEndpoint, value: object, words: str
) -> None:
    rows = [{"problem": "What is 1 op 4?", "answer": "6"}, {"problem": "?", "answer": value}]
    with pytest.raises(DatasetError, match=words) as refused:
        tfgrpo.train_sync(rows, **where(endpoint))
    assert refused.value.hint
    with pytest.raises(DatasetError, match="row 1 is a str"):
        tfgrpo.train_sync(["What is 1 op 4?"], **where(endpoint))
    assert not endpoint.requests
    assert not (folder / ".tfgrpo").exists()


def test_warnings_are_notices(folder: Path, endpoint: ScriptedEndpoint) -> None:
    seen: list[Notice] = []
    tfgrpo.train_sync(
        "problems.jsonl", heldout="problems.jsonl", on_progress=seen.append, **where(endpoint)
    )
    assert [n for n in seen if isinstance(n, WarningNotice)]


def test_an_estimate_asks_nothing_and_writes_nothing(
    folder: Path, endpoint: ScriptedEndpoint
) -> None:
    tfgrpo.Store.init(folder / ".tfgrpo/store.db").close()
    estimate = tfgrpo.estimate_sync("problems.jsonl", **where(endpoint))
    assert sum(one.calls for one in estimate.most) > 8 * 3
    assert not endpoint.requests
    with tfgrpo.Store.open(folder / ".tfgrpo/store.db") as store:
        assert not store.runs.all()


@pytest.mark.parametrize("is_there", [False, True])
def test_an_estimate_of_rows_writes_nothing(
    folder: Path, endpoint: ScriptedEndpoint, is_there: bool
) -> None:
    rows = [{"problem": f"What is {n} op 2?", "answer": str(n + 3)} for n in range(8)]
    if is_there:
        tfgrpo.Store.init(folder / ".tfgrpo/store.db").close()
    before = set(folder.rglob("*"))
    assert tfgrpo.estimate_sync(rows, **where(endpoint)).most
    assert set(folder.rglob("*")) == before
    tfgrpo.train_sync(rows, **where(endpoint))
    before = set(folder.rglob("*"))
    assert tfgrpo.estimate_sync(rows, **where(endpoint)).most
    assert set(folder.rglob("*")) == before


def test_rows_that_cannot_be_written_are_an_error_with_a_hint(
    folder: Path, endpoint: ScriptedEndpoint
) -> None:
    rows = [{"problem": "a", "answer": "1"}]
    (folder / "file").touch()
    with pytest.raises(tfgrpo.TfgrpoError, match="cannot write the rows to") as caught:
        tfgrpo.train_sync(rows, **{**where(endpoint), "store": folder / "file/store.db"})
    assert caught.value.hint
    circle: dict[str, object] = {"problem": "a"}
    circle["answer"] = circle
    for row, words in (({"problem": "\ud800", "answer": "1"}, "half a char"), (circle, "Circular")):
        with pytest.raises(tfgrpo.TfgrpoError, match=f"row 2.*{words}"):
            tfgrpo.train_sync([*rows, row], **where(endpoint))
    assert not endpoint.requests


def test_rows_are_those_that_are_given_whatever_became_of_their_file(
    folder: Path, endpoint: ScriptedEndpoint
) -> None:
    rows = [json.loads(line) for line in (folder / "problems.jsonl").read_text().splitlines()]
    for row in rows:
        row["problem"] += " Anna asks."
    first = tfgrpo.train_sync(rows, **where(endpoint))
    file = folder / first.run.config["data"]
    with tfgrpo.Store.open(folder / ".tfgrpo/store.db") as store:
        redact_everywhere(store, Target(texts=("Anna",)), reason="a customer")
    assert "Anna" not in file.read_text()
    endpoint.requests.clear()
    tfgrpo.evaluate_sync(rows, samples=1, store=".")
    assert all("Anna asks." in r["messages"][-1]["content"] for r in endpoint.requests)
    assert endpoint.requests
    file.write_text(file.read_text().replace('"6"', '"7"'))
    before = file.read_bytes()
    tfgrpo.estimate_sync(rows, **where(endpoint))
    assert file.read_bytes() == before, "an estimate writes nothing"
    again = tfgrpo.train_sync(rows, new=True, **where(endpoint))
    assert [json.loads(line) for line in file.read_text().splitlines()] == rows
    assert again.run.config["data_digest"] == first.run.config["data_digest"]


def test_a_first_call_that_fails_takes_nothing_from_another_one(
    folder: Path, endpoint: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [json.loads(line) for line in (folder / "problems.jsonl").read_text().splitlines()]
    ready_run, done = api.ready_run, []

    def overtaken(*arguments: Any, **more: Any) -> Any:
        monkeypatch.setattr(api, "ready_run", ready_run)
        done.append(tfgrpo.train_sync(rows, **where(endpoint)))
        raise InvalidOperation("no")

    monkeypatch.setattr(api, "ready_run", overtaken)
    with pytest.raises(InvalidOperation, match="no"):
        tfgrpo.train_sync(rows, **where(endpoint))
    assert (folder / done[0].run.config["data"]).is_file()
    (folder / "file").touch()
    with pytest.raises(SettingsError, match="group_size"):  # and before any row is written
        tfgrpo.train_sync(rows, **where(endpoint, group_size=-1, store=folder / "file/store.db"))


LONG = "a" * 5000
"""More characters than the name of a file may have."""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epochs": "many"}, "epochs"),
        ({"no_such_thing": 1}, "no_such_thing"),
        ({"tools": ["python"]}, "Python functions"),
        ({"verify": "math"}, "function"),
        ({"domain": 3}, "domain: 3"),
        ({"fields": 3}, "fields: 3"),
        ({"fields": [3]}, "3 is not OURS=THEIRS"),
        ({"fields": ["answer="]}, "'answer=' is not OURS=THEIRS"),
        ({"policy": "a:b:c"}, "no policy 'a:b:c'"),
        ({"policy": ":b"}, "no policy ':b'"),
        ({"prompts": LONG}, "no folder a"),
        ({"heldout": LONG}, "no file or known dataset called a"),
        ({"heldout": f"{LONG}.jsonl"}, "too long"),
        ({"heldout": "a\0.jsonl"}, "cannot read a"),
        ({"config": "."}, "Is a directory"),
        ({"config": "a\0"}, "null"),
        ({"config": LONG}, "too long"),
        ({"config": "domain.toml"}, "domain: .* is no name"),
    ],
)
def test_what_cannot_be_is_an_error_before_anything_is_asked(
    folder: Path, endpoint: ScriptedEndpoint, options: dict[str, Any], words: str
) -> None:
    (folder / "domain.toml").write_text('[train]\ndomain = ["a"]\n')
    with pytest.raises(tfgrpo.TfgrpoError, match=words):
        tfgrpo.train_sync("problems.jsonl", **where(endpoint, **options))
    assert not endpoint.requests


@pytest.mark.parametrize("problems", [-1, 0, True, "2", 1.5])
def test_a_number_of_problems_is_one_or_more(
    folder: Path, endpoint: ScriptedEndpoint, problems: object
) -> None:
    with tfgrpo.Store.init(folder / ".tfgrpo/store.db"):
        pass
    with pytest.raises(tfgrpo.TfgrpoError, match="problems: "):
        tfgrpo.evaluate_sync("problems.jsonl", problems=problems, **where(endpoint))
    for options in ({"least": problems}, {"heldout_samples": problems}, {"below": "x"}):
        with pytest.raises(tfgrpo.TfgrpoError, match=next(iter(options))):
            tfgrpo.improve_sync("main", **options)
    assert not endpoint.requests


def test_a_script_needs_no_main_guard_and_a_sync_call_runs_beside_a_loop(
    folder: Path, endpoint: ScriptedEndpoint
) -> None:
    script = folder / "script.py"
    script.write_text(
        "import asyncio, tfgrpo\n"
        "print('begun')\n"
        f"where = dict(model='m', base_url={endpoint.base_url!r}, epochs=1, batch_size=8)\n"
        "async def main():\n"
        "    return tfgrpo.train_sync('problems.jsonl', **where)\n"
        "print(asyncio.run(main()).versions[-1].name)\n"
    )
    done = subprocess.run(
        [sys.executable, script],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.stdout, done.returncode) == ("begun\nv1\n", 0), done.stderr


def test_what_is_no_revision_store_or_problem_is_an_error_with_a_hint(
    folder: Path, endpoint: ScriptedEndpoint
) -> None:
    tfgrpo.Store.init(folder / ".tfgrpo/store.db").close()
    data, options = "problems.jsonl", where(endpoint)
    anything: Any = tfgrpo
    given = {name: value for name, value in options.items() if name != "store"}
    with tfgrpo.Store.open(folder / ".tfgrpo/store.db") as store:
        calls: list[Callable[[], object]] = [
            lambda: anything.evaluate_sync(data, library=None, **options),
            lambda: anything.compare_sync(None, "HEAD", data, **options),
            lambda: anything.library(2),
            lambda: anything.library(None),
            lambda: anything.live(2),
            lambda: anything.library(store=5),
            lambda: anything.Store.open(5),
            lambda: anything.Store.init(5),
            *(
                partial(call, **{argument: text})
                for text in ("a\0b", "a\ud83d", LONG)
                for argument, call in (
                    ("store", anything.library),
                    ("store", anything.live),
                    ("path", anything.Store.open),
                    ("path", anything.Store.init),
                    ("store", partial(anything.train_sync, data, **given)),
                )
            ),
            lambda: anything.train_sync(LONG, **options),
            lambda: anything.prove_sync(LONG, data, **options),
            lambda: anything.prove_sync(3, data, **options),
            lambda: anything.improve_sync("main", store=".", since=3),
            lambda: anything.train_sync(data, **options | {"store": 5}),
            lambda: anything.estimate_sync(data, **options | {"store": 5}),
            lambda: store.log(cast("Any", 2)),
            lambda: anything.library().render(5),
            lambda: anything.library().render({"question": 5.5j}),
            lambda: anything.library().render([]),
        ]
        for call in calls:
            with pytest.raises(tfgrpo.TfgrpoError) as caught:
                call()
            assert caught.value.hint
    assert not endpoint.requests


def test_a_row_and_messages_are_rendered_as_the_problem_is(folder: Path) -> None:
    tfgrpo.Store.init(folder / ".tfgrpo/store.db").close()
    library = tfgrpo.library()
    plain = library.render("What is 1 op 2?")
    assert library.render({"problem": "What is 1 op 2?", "answer": "4", "id": 7}) == plain
    assert library.render({"question": "What is 1 op 2?"}) == plain
    assert library.render([{"role": "user", "content": "What is 1 op 2?"}]) == plain
    live = tfgrpo.live()
    assert live.render({"problem": "What is 1 op 2?"}) == plain
    live.close()
    turns = [{"role": role, "content": role} for role in ("user", "assistant", "user")]
    assert library.render(turns)[-3:] == turns


def rendered(template: Any, library: Any, problem: Problem, objective: str) -> Any:
    return (("user", f"OWN {prompt_text(library)} Q: {problem.problem}"),)


def ranked(library: Any, problem: str) -> list[str]:
    return [experience.id for experience in library][::-1]


@pytest.mark.parametrize("part", ["prompts", "render", "retrieve", "none"])
def test_a_domain_that_was_an_object_renders_as_in_training_or_says_that_it_cannot(
    folder: Path, endpoint: ScriptedEndpoint, part: str
) -> None:
    (folder / "own").mkdir()
    (folder / "own/rollout.md").write_text("<!-- user -->\nOWN {{library}} Q: {{problem}}\n")
    parts = {"prompts": folder / "own", "render": rendered, "retrieve": ranked}
    own = {name: value for name, value in parts.items() if name == part}
    domain = replace(find("math"), name="mine", **own)  # type: ignore[arg-type]
    tfgrpo.train_sync("problems.jsonl", domain=domain, top_k=1, **where(endpoint))
    asked = [r["messages"] for r in endpoint.requests if stage(r) == "rollout"]
    again = asked[-1]
    question = again[-1]["content"].partition("Q: ")[2] or again[-1]["content"]
    for library in (tfgrpo.library("HEAD~", store="."), tfgrpo.live("HEAD~", store=".")):
        if part == "none":
            assert library.render(question) == again
            continue
        with pytest.raises(DomainError, match="mine") as caught:
            library.render(question)
        assert "domain=" in str(caught.value.hint)
    for call in (tfgrpo.library, tfgrpo.live):
        assert call("HEAD~", store=".", domain=domain).render(question) == again
    with pytest.raises(DomainError):
        tfgrpo.library(store=".", domain="math")  # type: ignore[arg-type]


CALLS = (
    "train_sync('problems.jsonl', store='other', **where)",
    "evaluate_sync('problems.jsonl', store='.', samples=3, concurrency=2)",
    "compare_sync('v0', 'HEAD', 'problems.jsonl', store='.', samples=3, concurrency=2)",
)


@pytest.mark.parametrize("runner", ["asyncio.new_event_loop().run_until_complete", "asyncio.run"])
def test_an_interrupt_of_a_sync_call_beside_a_loop_ends_the_call(folder: Path, runner: str) -> None:
    script = folder / "script.py"
    with ScriptedEndpoint() as endpoint:
        tfgrpo.train_sync("problems.jsonl", **where(endpoint))
        endpoint.delay = 0.5
        script.write_text(
            "import asyncio, sys, time, tfgrpo\n"
            f"where = dict(model='m', base_url={endpoint.base_url!r}, epochs=5, concurrency=2)\n"
            "async def cell(call):\n"
            "    try:\n"
            "        call()\n"
            "    except (KeyboardInterrupt, asyncio.CancelledError):\n"
            "        print('interrupted', flush=True)\n"
            "        time.sleep(1.2)\n"  # nothing goes on in the background
            f"for call in ({''.join(f'lambda: tfgrpo.{call}, ' for call in CALLS)}):\n"
            "    sys.stdin.readline()\n"
            "    try:\n"
            f"        {runner}(cell(call))\n"
            "    except KeyboardInterrupt:\n"
            "        pass\n"
            "    print('ended', flush=True)\n"
        )
        child = subprocess.Popen(
            [sys.executable, script],
            cwd=folder,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        assert child.stdin is not None
        assert child.stdout is not None
        for _ in CALLS:
            before = len(endpoint.requests)
            child.stdin.write(b"\n")
            until(lambda n=before: len(endpoint.requests) >= n + 3 or child.poll() is not None)
            child.send_signal(signal.SIGINT)
            assert child.stdout.readline() == b"interrupted\n"
            endpoint.settle()
            asked = len(endpoint.requests)
            assert child.stdout.readline() == b"ended\n"
            assert len(endpoint.requests) == asked < before + 12
        assert child.wait(timeout=240) == 0
