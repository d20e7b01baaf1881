"""Said at once: a run whose first attempts leave nothing to learn stops, and can be resumed."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli
from scripted import Reply, ScriptedEndpoint, comparison_of, stage, teachable, write_problems

import tfgrpo
from tfgrpo.data.problems import Problem
from tfgrpo.learn.nothing_to_learn import StoppedEarly, look, missing_work
from tfgrpo.model.endpoint import EndpointError
from tfgrpo.notices import NothingToLearn, Notice, StepFinished, WarningNotice
from tfgrpo.rollout.attempt import Group, Rollout
from tfgrpo.settings import TrainSettings
from tfgrpo.store import Store

LABELS = ("billing", "delivery", "returns")


def settings(**values: Any) -> TrainSettings:
    return TrainSettings(data="d", **values)


def attempts(
    response: str,
    count: int = 50,
    reward: float | None = 0.0,
    answer: str | None = None,
    **more: Any,
) -> tuple[list[Rollout], list[Problem]]:
    problems = [Problem(f"p{n}", "?", LABELS[n % 3]) for n in range(count // 5)]
    return [
        Rollout(problem, n, response, more.get("outcome", "answered"), reward, answer, "why")
        for problem in problems
        for n in range(5)
    ], problems


def test_bare_labels_without_a_box_lead_to_the_domain_choice() -> None:
    notice = look(*attempts("It is late.\nLabel: delivery"), settings())
    assert notice is not None
    assert notice.text == "50 of 50 wrong: no answer in a box; 50 end with a bare label"
    assert notice.advice == "try `--domain choice`"
    assert notice.quote == "p0 was answered 'It is late. Label: delivery'; right is 'billing'"


@pytest.mark.parametrize(
    ("response", "more", "said"),
    [
        ("", {}, "the model answers nothing"),
        ("It goes on and", {"outcome": "truncated"}, "raise --max-tokens"),
        ('{"label": "x"}', {}, "try `--domain json`"),
        ("I cannot tell.", {}, "ask for a box"),
    ],
)
def test_other_causes_are_named(response: str, more: dict[str, Any], said: str) -> None:
    notice = look(*attempts(response, **more), settings())
    assert notice is not None
    assert said in str(notice)


def test_all_right_all_wrong_and_unjudged_are_told_apart() -> None:
    right = look(*attempts("x", reward=1.0, answer="x"), settings())
    assert right is not None
    assert right.text == "50 of 50 right: nothing to learn here"
    unjudged = look(*attempts("x", reward=None), settings())
    assert unjudged is not None
    assert unjudged.text == "50 of 50 could not be judged: why"
    few = look(*attempts("x", 5, reward=None), settings(), whole=True)
    assert few is not None
    assert few.text == "5 of 5 could not be judged: why"
    assert look(*attempts("x", 5, reward=None), settings()) is None
    wrong = attempts("x", answer="x")
    hundred = attempts("x", 100, answer="x")
    assert look(*wrong, settings(), whole=True) is None  # the ground truth tells what was missed
    assert look(*hundred, settings()) is None
    for untold in (settings(policy="paper"), settings(ground_truth=False)):
        assert look(*wrong, untold) is None  # hard problems get twice as many
        assert look(*wrong, untold, whole=True) is not None
        assert look(*hundred, untold) is not None


@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_attempts_that_could_not_be_judged_are_not_counted_with_the_others(reward: float) -> None:
    alike, problems = attempts("x", reward=reward, answer="x")
    lost = [replace(one, reward=None, reason="broken") for one in alike]
    for count, text in ((2, f"48 of 50 {'right' if reward else 'wrong'}"), (20, "20 of 50 could")):
        found = look(
            [*lost[:count], *alike[count:]], problems, settings(policy="paper"), whole=True
        )
        assert found is not None
        assert found.text.startswith(text)
        assert found.finding == ("unjudged" if count == 20 else "right" if reward else "wrong")


def test_a_run_tells_of_attempts_without_a_reward(tmp_path: Path) -> None:
    data = write_problems(tmp_path / "p.jsonl", 8)
    notices: list[Notice] = []
    calls = itertools.count()

    def verify(problem: Problem, response: str) -> float:
        number = next(calls)  # the first is the rehearsal
        if number % 3 == 1:
            raise KeyError("the till")
        return float(number % 2)

    with ScriptedEndpoint() as server:
        where = {"model": "m", "base_url": server.base_url, "store": tmp_path, "verify": verify}
        tfgrpo.train_sync(
            str(data), epochs=1, batch_size=8, group_size=3, on_progress=notices.append, **where
        )
    told = [one.text for one in notices if isinstance(one, WarningNotice)]
    assert any(re.match(r"step 1: 8 of 24 attempts have no reward.*the till", one) for one in told)
    with Store.open(tmp_path / ".tfgrpo/store.db") as store:
        assert ", 8 of 24 attempts without a reward" in next(iter(store.log("HEAD"))).message


def test_too_few_or_mixed_attempts_say_nothing() -> None:
    assert look(*attempts("x", 45), settings()) is None
    assert look(*attempts("x", 15), settings(), whole=True) is None
    rollouts, problems = attempts("x")
    mixed = [*rollouts[:-1], attempts("x", 5, reward=1.0, answer="x")[0][0]]
    assert look(mixed, problems, settings()) is None
    assert look(*attempts("x", reward=0.5), settings()) is None


@pytest.mark.parametrize(
    ("response", "right", "more", "is_told"),
    [
        ("\\boxed{returns}", 3, {}, True),
        ("returns", 3, {"domain": "exact"}, True),
        ("returns", 30, {"domain": "exact"}, False),
        ("It was sent back, so the label is returns.", 3, {"domain": "exact"}, False),
        ("returns", 3, {"domain": "choice"}, False),
        ("returns", 3, {"mode": "agent"}, False),
    ],
)
def test_answers_alone_that_are_wrong_are_told(
    response: str, right: int, more: dict[str, Any], is_told: bool, tmp_path: Path
) -> None:
    rollouts, problems = attempts(response)
    rewarded = [
        replace(one, reward=float(n < right), answer="returns") for n, one in enumerate(rollouts)
    ]
    groups = [Group(p, tuple(r for r in rewarded if r.problem is p)) for p in problems]
    with Store.init(tmp_path / "store.db") as store:
        warning = missing_work(groups, settings(**more), store)
        assert (warning is not None) is is_told
        assert missing_work(groups[:3], settings(**more), store) is None, "too few"


def test_a_run_tells_of_answers_alone_once(cli: Cli, tmp_path: Path) -> None:
    write_problems(tmp_path / "p.jsonl", 16)

    def curt(request: dict[str, Any]) -> str:
        if stage(request) == "rollout" and request["seed"] % 4:
            return "\\boxed{0}"
        return teachable(request).removeprefix("Thinking. ")

    with ScriptedEndpoint(curt) as server:
        where = ("--model", "m", "--base-url", server.base_url, "--batch-size", "8")
        done = cli("train", "p.jsonl", *where, "--epochs", "1", timeout=240)
    assert (done.stdout + done.stderr).count("an answer and no working, and ") == 1


def tickets(path: Path, count: int) -> None:
    rows = [f"ticket {n} about {LABELS[n % 3]},{LABELS[n % 3]}\n" for n in range(count)]
    path.write_text("text,label\n" + "".join(rows))


def bare(request: dict[str, Any]) -> str:
    """Names the label that the text is about, or in half of the cases the next, and no box."""
    if stage(request) == "comparison":
        return json.dumps(comparison_of([]))
    if stage(request) != "rollout":
        return "It chose."
    said = request["messages"][-1]["content"].rpartition(" ")[2]
    return LABELS[(LABELS.index(said) + request["seed"] % 2) % 3]


def test_a_run_in_the_wrong_domain_stops_early_says_why_and_can_go_on(
    cli: Cli, tmp_path: Path
) -> None:
    tickets(tmp_path / "tickets.csv", 40)
    with ScriptedEndpoint(bare) as server:
        where = ("--model", "m", "--base-url", server.base_url, "--concurrency", "8")
        done = cli("train", "tickets.csv", *where, "--epochs", "1", ok=False, timeout=240)
        assert done.returncode == 3
        assert "wrong: no answer in a box" in done.stdout
        assert "end with a bare label: try `--domain choice`" in done.stdout
        assert "was answered '" in done.stdout
        assert "error: stopped after " in done.stderr
        assert "--resume tickets --keep-going" in done.stderr
        asked = len(server.requests)
        assert asked == 50  # and not 200
        (run,) = json.loads(cli("runs", "--json").stdout)
        assert run["state"] == "stopped"
        again = cli("train", "--resume", "tickets", ok=False, timeout=240)
        assert again.returncode == 3
        assert len(server.requests) == asked  # what is on record says so too
        went = cli("train", "--resume", "tickets", "--keep-going", timeout=240)
        assert len(server.requests) == 200
        assert "\nlearned nothing: every one of 200 attempts was wrong" in went.stdout
        better = cli(
            "train", "tickets.csv", *where, "--epochs", "1", "--domain", "choice", timeout=240
        )
        assert "try" not in better.stdout


def test_python_gets_a_notice_and_an_error(tmp_path: Path) -> None:
    data, notices = write_problems(tmp_path / "p.jsonl", 10), list[Notice]()
    with ScriptedEndpoint(lambda request: "no box") as server:
        where = {"model": "m", "base_url": server.base_url, "epochs": 1, "store": tmp_path}
        with pytest.raises(StoppedEarly) as caught:
            tfgrpo.train_sync(str(data), on_progress=notices.append, **where)
        (notice,) = [notice for notice in notices if isinstance(notice, NothingToLearn)]
        assert caught.value.notice == notice
        assert "`tfgrpo train --resume p --keep-going`" in str(caught.value.hint)
        assert notice.finding == "unreadable"
        result = tfgrpo.train_sync(str(data), keep_going=True, **where)
    assert result.nothing_learned is not None
    assert str(result).splitlines()[0].startswith("run p: learned nothing: every one of 50")


@pytest.mark.parametrize("is_resumed", [False, True])
def test_steps_of_few_attempts_are_looked_at_together(is_resumed: bool, tmp_path: Path) -> None:
    data = write_problems(tmp_path / "p.jsonl", 24)
    options: dict[str, Any] = {"model": "m", "epochs": 1, "batch_size": 4, "group_size": 3}

    def verify(problem: Problem, response: str) -> bool:
        return True

    def interrupt(notice: Notice) -> None:
        if isinstance(notice, StepFinished):
            raise KeyboardInterrupt

    with ScriptedEndpoint() as server:
        options |= {"base_url": server.base_url, "store": tmp_path, "verify": verify}
        if is_resumed:
            with pytest.raises(KeyboardInterrupt):
                tfgrpo.train_sync(str(data), on_progress=interrupt, **options)
            assert server.stages["rollout"] == 12
        with pytest.raises(StoppedEarly, match="24 of 24 right"):
            tfgrpo.train_sync(str(data), **options)
        assert server.stages["rollout"] == 24  # and not 72


def test_a_step_in_which_none_is_judged_ends_the_run_however_small_it_is(tmp_path: Path) -> None:
    data = write_problems(tmp_path / "p.jsonl", 8)

    def verify(problem: Problem, response: str) -> bool:
        raise KeyError("the till")

    with ScriptedEndpoint() as server:
        where = {"model": "m", "base_url": server.base_url, "store": tmp_path, "verify": verify}
        with pytest.raises(StoppedEarly, match=r"12 of 12 could not be judged: .*the till") as stop:
            tfgrpo.train_sync(str(data), epochs=1, batch_size=4, group_size=3, **where)
        again = "`tfgrpo.train(…, resume='p', keep_going=True)`"
        assert again in str(stop.value.hint), "a command has no function of this program"
        assert server.stages["rollout"] == 12


def test_a_step_in_which_all_fail_has_the_number_that_the_progress_shows(tmp_path: Path) -> None:
    data = write_problems(tmp_path / "p.jsonl", 4)
    with ScriptedEndpoint(lambda request: Reply({"error": {"message": "no"}}, 400)) as server:
        where = {"model": "m", "base_url": server.base_url, "epochs": 1, "store": tmp_path}
        with pytest.raises(EndpointError, match="every attempt in step 1 failed"):
            tfgrpo.train_sync(str(data), **where)
