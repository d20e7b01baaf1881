"""Domains: found by name, made of one object, and trained and evaluated like math."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Cli, environment, one_line_error
from desk import made as made_desk
from scripted import (
    Numbered,
    Reply,
    ScriptedEndpoint,
    opened_calls,
    restless,
    stage,
    teachable,
    write_problems,
)
from test_training import identity

import tfgrpo
from tfgrpo import domains
from tfgrpo.data import problems
from tfgrpo.data.problems import Problem
from tfgrpo.domains import math
from tfgrpo.domains.base import (
    Context,
    Domain,
    DomainError,
    Sampling,
    Trajectory,
    Verdict,
    answer_once,
    problem_messages,
)
from tfgrpo.domains.prompt_library import PromptLibrary
from tfgrpo.domains.verifier import Verifier
from tfgrpo.evaluation.scoring import conditions
from tfgrpo.model.endpoint import CallFailed, EndpointError
from tfgrpo.rendering.prompt_templates import load
from tfgrpo.rollout.attempt import Rollout, attempt
from tfgrpo.settings import EvalSettings, TrainSettings, build
from tfgrpo.store import ROOT as FIRST
from tfgrpo.store import Library as StoredLibrary
from tfgrpo.store.errors import TfgrpoError

PAGE = ROOT / "docs" / "domains.md"
EMPTY = StoredLibrary(FIRST, ())

CASE = """
from tfgrpo.domains import Domain, Verdict

def verify(problem, response):
    return Verdict(float(response.isupper()), response, "upper case or not")

DOMAIN = Domain(name="shouting", verify=verify, ground_truth=False)

def made(argument):
    return Domain(name="made", verify=verify, identity=argument)
"""


def shouts(problem: Problem, response: str) -> Verdict:
    return Verdict(float(response.isupper()), response, "")


def too_much(problem: Problem, response: str) -> Verdict:
    return Verdict(7.0, None, "")


@pytest.fixture
def module(tmp_path: Path) -> Iterator[str]:
    """A module of the user's in `tmp_path`, which is not yet where modules are looked for."""
    (tmp_path / "shouting_case.py").write_text(CASE)
    path = list(sys.path)
    yield "shouting_case"
    sys.path[:] = path
    sys.modules.pop("shouting_case", None)


# how one is found:


def test_math_is_what_is_meant_when_nothing_is_said() -> None:
    assert domains.find() is domains.find("math") is math.DOMAIN


def test_an_object_is_imported_from_the_folders_named(tmp_path: Path, module: str) -> None:
    assert domains.find(f"{module}:DOMAIN", (tmp_path,)).name == "shouting"


def test_a_package_installs_a_domain_by_an_entry_point(tmp_path: Path, module: str) -> None:
    info = tmp_path / "shouting-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shouting\nVersion: 1.0\n")
    points = f"[{domains.GROUP}]\nshouting = {module}:DOMAIN\nmade = {module}:made\n"
    (info / "entry_points.txt").write_text(points)
    sys.path.append(str(tmp_path))
    assert domains.find("shouting").name == "shouting"
    assert domains.find("made:of this").identity == "of this"
    with pytest.raises(DomainError, match="needs an argument") as caught:
        domains.find("made")
    assert "made:" in str(caught.value.hint)


def test_a_package_that_is_installed_while_a_process_runs_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    os.utime(tmp_path, (1, 1))
    assert "later" not in domains.names()
    info = tmp_path / "later-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: later\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[{domains.GROUP}]\nlater = tfgrpo.domains.math:DOMAIN\n"
    )
    assert domains.find("later") is math.DOMAIN


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("maths", "did you mean math"),
        ("nothing.there:DOMAIN", "nothing"),
        ("shouting_case:NOT", "NOT"),
        ("shouting_case:CASE", "not a domain"),
        ("os:path", "not a domain"),
        (":", "cannot load"),
        ("math:5", "takes no argument"),
    ],
)
def test_what_is_no_domain_is_an_error_with_a_hint(
    spec: str, said: str, tmp_path: Path, module: str
) -> None:
    (tmp_path / "shouting_case.py").write_text(CASE + "\nCASE = 'text'\n")
    with pytest.raises(DomainError, match=said) as caught:
        domains.find(spec, (tmp_path,))
    assert caught.value.hint


def test_a_verifier_that_no_worker_process_can_import_is_refused_when_it_is_made() -> None:
    with pytest.raises(DomainError, match="cannot import its verifier"):
        Domain(name="x", verify=lambda problem, response: Verdict(1.0, None, ""))


MAIN = """
import functools
from tfgrpo.domains import Domain, DomainError, Verdict
from tfgrpo.domains import exact

def judge(problem, response): return Verdict(1.0, None, "")
def check(problem): return None
class Judge:
    def __call__(self, problem, response): return judge(problem, response)

for parts in (
    {"verify": judge},
    {"verify": functools.partial(judge)},
    {"verify": Judge()},
    {"verify": exact.DOMAIN.verify, "check": check},
):
    try:
        Domain(name="x", **parts)
    except DomainError as error:
        print(error, "|", error.hint)
"""


def test_functions_of_a_script_are_refused_as_no_worker_process_has_them(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(MAIN)
    done = subprocess.run(
        [sys.executable, tmp_path / "script.py"],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 4, done.stdout
    cannot = "domain x: a worker process cannot import its"
    assert all(line.startswith(f"{cannot} verifier: ") for line in lines[:3])
    assert all("pass it as verify= to tfgrpo.train" in line for line in lines[:3])
    assert lines[3].startswith(f"{cannot} check: it is defined in __main__")


# what it changes, and what it leaves as it was:


def test_records_of_the_default_domain_are_what_they_were_before_there_were_others() -> None:
    dataset = [Problem("a", "q", "1")]
    settings = build(EvalSettings, {"data": "d"})
    assert build(TrainSettings, {"data": "d"}).model_dump(mode="json")["domain"] == "math"
    assert set(conditions(dataset, settings)) == {
        *("dataset", "problems", "model", "prompt", "agent_objective"),
        *("samples", "temperature", "max_tokens", "seed"),
    }
    assert problems.digest(dataset) == (
        "7227847374d901a9602894e0d56f739cace988b874cc12d991d36a023cfa6f9b"
    )
    other = Domain(name="other", verify=shouts, identity="i")
    found = conditions(dataset, settings, other)
    assert (found["domain"], found["identity"]) == ("other", "i")


def test_objectives_that_nobody_names_are_the_domains(tmp_path: Path, module: str) -> None:
    text = CASE.replace("ground_truth=False", "agent_objective='Shout.'")
    (tmp_path / "shouting_case.py").write_text(text)
    domains.find(f"{module}:DOMAIN", (tmp_path,))
    settings = build(TrainSettings, {"data": "d", "domain": f"{module}:DOMAIN"})
    assert settings.agent_objective == "Shout."
    assert settings.model_dump(mode="json")["domain"] == f"{module}:DOMAIN"
    named = build(TrainSettings, {"data": "d"}, {"domain": f"{module}:DOMAIN"})
    assert named.agent_objective == "Shout."
    mine = {"data": "d", "domain": f"{module}:DOMAIN", "agent_objective": "Whisper."}
    assert build(TrainSettings, mine).agent_objective == "Whisper."


def test_a_domain_with_shared_answers_reflects_as_labels_do(tmp_path: Path) -> None:
    from tfgrpo.domains import choice

    name, own = "comparison", Domain(name="own", verify=shouts, shared_answers=True)
    assert own.template(name) == choice.DOMAIN.template(name) != load(name)
    (tmp_path / f"{name}.md").write_text("<!-- user -->\nthe user's\n")
    assert own.template(name, tmp_path).parts == (("user", "the user's"),)


def test_a_domains_prompts_stand_between_the_users_and_ours(tmp_path: Path) -> None:
    theirs, users = tmp_path / "theirs", tmp_path / "users"
    for folder, text in ((theirs, "theirs"), (users, "the user's")):
        folder.mkdir()
        (folder / "rollout.md").write_text(
            f"<!-- user -->\n{text} {{{{library}}}}: {{{{problem}}}}\n"
        )
    (theirs / "summary.md").write_text("<!-- user -->\ntheir summary\n")
    domain = Domain(name="x", verify=shouts, prompts=theirs)
    assert domain.template("rollout", users).parts == (
        ("user", "the user's {{library}}: {{problem}}"),
    )
    assert domain.template("summary", users).parts == (("user", "their summary"),)
    assert domain.template("comparison", users) == load("comparison")
    assert PromptLibrary(EMPTY, domain=domain).render("q") == [
        {"role": "user", "content": "theirs (none yet): q"}
    ]


def test_extra_fields_go_into_meta_and_answers_may_be_missing(tmp_path: Path) -> None:
    file = tmp_path / "d.jsonl"
    said = (("user", "Hello."), ("assistant", "Yes?"), ("user", "A pen."))
    turns = [{"role": role, "content": content} for role, content in said]
    rows = [{"problem": turns, "who": "a clerk", "level": 3}, {"problem": "q", "answer": "5"}]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    domain = Domain(name="x", verify=shouts, extra=("persona", "level"), ground_truth=False)
    talk, plain = domain.problems(str(file), {"persona": "who"})
    assert talk.meta == {"persona": "a clerk", "level": 3}
    assert talk.messages == said
    assert (talk.problem, talk.answer) == ("user: Hello.\n\nassistant: Yes?\n\nuser: A pen.", "")
    assert plain == Problem("line-2", "q", "5")
    system, *rest = problem_messages(load("rollout"), EMPTY, talk, "Be kind.")
    assert system[0] == "system"
    assert tuple(rest) == talk.messages


# how attempts are made and judged:


def attempted(folder: Path, verifier: Verifier, domain: Domain, answer: str = "LOUD") -> Rollout:
    def script(request: dict[str, Any]) -> str:
        return "0.25" if "How loud" in request["messages"][0]["content"] else answer

    with ScriptedEndpoint(script) as server, opened_calls(folder, server.base_url) as calls:

        async def run() -> Rollout:
            try:
                problem = Problem("p", "q")
                sampling = Sampling(seed=3)
                prompt = (("user", "q"),)
                return await attempt(
                    domain, Context(problem, prompt, calls, calls, verifier, sampling, 0, (1, "p"))
                )
            finally:
                await calls.endpoint.close()

        return asyncio.run(run())


def test_a_plain_verifier_runs_in_a_worker_process(tmp_path: Path, verifier: Verifier) -> None:
    found = attempted(tmp_path, verifier, Domain(name="x", verify=shouts))
    assert (found.reward, found.answer, found.outcome) == (1.0, "LOUD", "answered")


async def asked(context: Context, trajectory: Trajectory) -> Verdict:
    question = [("user", f"How loud is {trajectory.response}?")]
    recorded = await context.ask(question, stage="judge", model=context.judge, temperature=0.0)
    reward = float(recorded.answer.content)
    return Verdict(reward, None, "judged", {"loudness": reward})


def test_an_async_verifier_asks_a_model_and_its_details_are_kept(
    tmp_path: Path, verifier: Verifier
) -> None:
    found = attempted(tmp_path, verifier, Domain(name="x", verify=asked))
    assert (found.reward, found.details) == (0.25, {"loudness": 0.25})


async def unreachable(context: Context, trajectory: Trajectory) -> Verdict:
    raise CallFailed("the judge is out")


def test_a_judge_that_cannot_answer_leaves_the_attempt_unverifiable(
    tmp_path: Path, verifier: Verifier
) -> None:
    found = attempted(tmp_path, verifier, Domain(name="x", verify=unreachable))
    assert (found.reward, found.outcome) == (None, "unverifiable")
    assert "the judge is out" in found.reason


async def exits(*_: object) -> Any:
    raise SystemExit(0)


async def cancels(*_: object) -> Any:
    raise asyncio.CancelledError


@pytest.mark.parametrize("ends", [exits, cancels])
def test_a_judge_or_rollout_that_would_end_the_program_spoils_its_attempt_alone(
    tmp_path: Path, verifier: Verifier, ends: Any
) -> None:
    assert attempted(tmp_path, verifier, Domain(name="x", verify=ends)).outcome == "unverifiable"
    found = attempted(tmp_path, verifier, Domain(name="x", verify=shouts, rollout=ends))
    assert found.outcome == "failed"


def test_a_reward_out_of_range_is_the_domains_error(tmp_path: Path, verifier: Verifier) -> None:
    with pytest.raises(DomainError, match="reward 7"):
        attempted(tmp_path, verifier, Domain(name="x", verify=too_much))


def no_verdict(problem: Problem, response: str) -> Verdict:
    return 1.0  # type: ignore[return-value]


def not_a_number(problem: Problem, response: str) -> Verdict:
    return Verdict(float("nan"), None, "")


def no_json(problem: Problem, response: str) -> Verdict:
    return Verdict(1.0, None, "", {"words": {"a", "b"}})


@pytest.mark.parametrize("verify", [no_verdict, not_a_number, no_json])
def test_a_verdict_that_cannot_be_kept_is_the_domains_error(
    tmp_path: Path, verifier: Verifier, verify: Any
) -> None:
    with pytest.raises(DomainError, match=r"domain x gave .* which cannot be kept"):
        attempted(tmp_path, verifier, Domain(name="x", verify=verify))


def test_verify_says_so_before_a_run_is_paid_for(cli: Cli, tmp_path: Path) -> None:
    verifiers = CASE.replace(
        'Verdict(float(response.isupper()), response, "upper case or not")', "{}"
    )
    cases = tmp_path / "cases.jsonl"
    cases.write_text('{"pred": "x"}\n')
    for number, given in enumerate(
        ("1.0", "Verdict(7, None, '')", "Verdict(float('nan'), None, '')")
    ):
        (tmp_path / f"wrong_case_{number}.py").write_text(verifiers.format(given))
        told = cli("verify", str(cases), "--domain", f"wrong_case_{number}:DOMAIN", ok=False)
        assert "domain shouting gave" in told.stderr
        one_line_error(told)
    one_line_error(cli("verify", str(cases), "--timeout", "0", ok=False), code=2)


async def detailed(context: Context, trajectory: Trajectory) -> Verdict:
    found = await math_verdict(context, trajectory)
    return found._replace(details={"zeal": found.reward, "answer": found.answer})


async def math_verdict(context: Context, trajectory: Trajectory) -> Verdict:
    return await context.verifier.verdict(context.problem, trajectory.response, math.verify)


async def with_a_call(context: Context) -> Trajectory:
    recorded = await context.ask(context.messages)
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    said = (
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "assistant", "content": recorded.answer.content},
    )
    return Trajectory(recorded.answer.content, (recorded.key,), messages=said)


def test_a_run_that_goes_on_shows_models_the_same_of_its_attempts(
    tmp_path: Path, verifier: Verifier
) -> None:
    domain = Domain(name="x", verify=detailed, rollout=with_a_call)
    counted = [Numbered(restless), Numbered(restless)]

    def dies(request: dict[str, Any]) -> str | Reply:
        return Reply(status=401) if stage(request) == "summary" else counted[1](request)

    whole, parts = (made_desk(tmp_path, verifier, name, epochs=1) for name in ("whole", "parts"))
    for there, scripts in ((whole, [counted[0]]), (parts, [dies, counted[1]])):
        there.prepare()
        for script in scripts:
            with ScriptedEndpoint(script) as server, suppress(EndpointError):
                there.train(server, domain=domain)
    asked, again = (Counter(map(identity, one.requests)) for one in counted)
    assert any("zeal" in request for request in asked), "details are shown to the reflection model"
    assert asked == again


async def twice(context: Context) -> Trajectory:
    first = await context.ask(context.messages)
    again = (*context.messages, ("assistant", first.answer.content), ("user", "Again!"))
    second = await context.ask(again, turn=1)
    messages = tuple({"role": role, "content": content} for role, content in again[1:])
    return Trajectory(second.answer.content, (first.key, second.key), messages=messages)


def test_a_rollout_of_several_calls_keeps_them_all_and_its_messages(
    tmp_path: Path, verifier: Verifier
) -> None:
    found = attempted(tmp_path, verifier, Domain(name="x", verify=shouts, rollout=twice))
    assert len(found.calls) == 2
    assert found.call == found.calls[1] != found.calls[0]
    assert found.transcript == "assistant: LOUD\n\nuser: Again!"


TWICE = """
from tfgrpo.domains import Domain, Trajectory, Verdict

async def rollout(context):
    first = await context.ask(context.messages)
    second = await context.ask((*context.messages, ("assistant", first.answer.content)), turn=1)
    said = ({"role": "tool", "content": "TOOL-SAID"},)
    return Trajectory("final " + second.answer.content, (first.key, second.key), messages=said)

async def verify(context, trajectory):
    asked = await context.ask((("user", "JUDGE " + trajectory.response),), stage="judge")
    reward = 0.75 if context.sample % 2 else 0.5
    return Verdict(reward, trajectory.response, "judged", {"tone": f"TONE-{reward}"})

DOMAIN = Domain(name="twice", verify=verify, rollout=rollout, ground_truth=False)
"""


def test_a_domain_of_ones_own_is_trained_and_evaluated(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "twice_domain.py").write_text(TWICE)
    rows = [{"id": f"p{n}", "problem": f"What is {n} op 1?"} for n in range(2)]
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with ScriptedEndpoint(reflecting) as server:
        model = ("--model", "m", "--base-url", server.base_url)
        domain = ("--domain", "twice_domain:DOMAIN")
        once = ("--epochs", "1", "--batch-size", "2", "--group-size", "2")
        estimate = cli("train", "d.jsonl", *domain, *once, *model, "--estimate", "--json")
        assert "judge of an attempt after its first" in json.loads(estimate.stdout)["left_out"][-1]
        cli("train", "d.jsonl", *domain, *once, *model)
        told = [r["messages"][-1]["content"] for r in server.requests if stage(r) == "summary"]
        assert len(told) == 4
        assert all("tool: TOOL-SAID" in text for text in told)
        assert sum("TONE-0.75" in text and "75 % right" in text for text in told) == 2
        compared = [
            r["messages"][-1]["content"] for r in server.requests if stage(r) == "comparison"
        ]
        assert all("tone: TONE-0.5" in text and "(not given)" in text for text in compared)
        record = json.loads(cli("runs", "d", "--json").stdout)
        assert "twice_domain:DOMAIN" in json.dumps(record)
        done = cli("eval", "d.jsonl", "--samples", "2", "--json", "--base-url", server.base_url)
        (first, *_) = json.loads(done.stdout)["evaluations"]
        assert first["mean"]["mean"] == 0.625
        assert (first["conditions"]["domain"], first["conditions"]["judge"]) == ("twice", "m")
        asked = len(server.requests)
        cli("eval", "d.jsonl", "--samples", "2", "--base-url", server.base_url)
        assert len(server.requests) == asked


def test_a_rollout_of_several_calls_is_gone_on_with_as_it_was(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "twice_domain.py").write_text(TWICE)
    (tmp_path / "d.jsonl").write_text('{"problem": "q"}\n')

    def stopping(request: dict[str, Any]) -> str | Reply:
        refused = Reply({"error": {"message": "later"}}, status=401)
        return refused if stage(request) == "summary" else reflecting(request)

    command = ("train", "d.jsonl", "--domain", "twice_domain:DOMAIN", "--model", "m")
    command += ("--epochs", "1", "--group-size", "2", "--base-url")
    with ScriptedEndpoint(stopping) as server:
        cli(*command, server.base_url, ok=False)
        address = server.base_url
        server.script = reflecting
        before = len(server.requests)
        cli(*command, address)
        since = server.requests[before:]
    assert not [request for request in since if stage(request) == "rollout"]
    told = [r["messages"][-1]["content"] for r in since if stage(r) == "summary"]
    assert len(told) == 2
    assert all("tool: TOOL-SAID" in text and "tone: TONE-" in text for text in told)


def reflecting(request: dict[str, Any]) -> str:
    return teachable(request) if stage(request) != "rollout" else "done"


def test_the_domain_on_the_page_works_as_the_page_says(cli: Cli, tmp_path: Path) -> None:
    page = PAGE.read_text()
    files = re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", page, re.DOTALL)
    assert [name for name, _ in files] == ["haiku.py", "poems.jsonl", "tries.jsonl"]
    for name, content in files:
        (tmp_path / name).write_text(content)
    assert len(files[0][1].splitlines()) <= 40, "adding a domain takes at most a page"
    commands = re.search(r"<!-- run -->\n```console\n(.*?)```", page, re.DOTALL)
    assert commands is not None

    def script(request: dict[str, Any]) -> str:
        lines = ["one two three four five", "one two three four five six seven", "one two three"]
        good = request.get("seed", 0) % 2
        poem = "\n".join(lines[:2] + lines[: 1 if good else 3][-1:])
        return poem if stage(request) == "rollout" else teachable(request)

    with ScriptedEndpoint(script) as server:
        settings = f'[model]\nmodel = "m"\nbase_url = "{server.base_url}"\n'
        (tmp_path / "tfgrpo.toml").write_text(settings)
        said = [
            cli(*shlex.split(line.removeprefix("$ tfgrpo "))).stdout
            for line in commands[1].splitlines()
        ]
        systems = {r["messages"][0]["content"] for r in server.requests if stage(r) == "rollout"}
    assert "learned 1 experience" in said[0]
    assert re.search(r"^v1 .* –\s*$", said[1], re.MULTILINE), "no answer, so there is no maj@k"
    assert all(text.startswith("Write three lines") for text in systems)
    assert "mean@2" in said[1]
    assert "agreement 2 of 2" in said[2]


def test_a_domain_that_does_not_exist_is_said_before_anything_is_asked(
    cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "d.jsonl").write_text('{"problem": "q", "answer": "1"}\n')
    done = cli("train", "d.jsonl", "--domain", "mth", ok=False)
    one_line_error(done, "did you mean math?", code=2)


# a domain whose code raises, or is of the wrong kind:


class Breaking:
    """Parts of a domain that raise for the problems with these ids, or for all."""

    def __init__(self, *ids: str) -> None:
        self._ids = ids

    def _check(self, problem: Problem) -> None:
        if not self._ids or problem.id in self._ids:
            raise KeyError("no such thing")

    async def rollout(self, context: Context) -> Trajectory:
        self._check(context.problem)
        return await answer_once(context)

    async def verify(self, context: Context, trajectory: Trajectory) -> Verdict:
        self._check(context.problem)
        return await math_verdict(context, trajectory)

    def render(self, template: Any, library: Any, problem: Problem, objective: str) -> Any:
        self._check(problem)
        return problem_messages(template, library, problem, objective)


BROKEN = {"rollout": "failed", "verify": "unverifiable", "render": "failed"}


def trained(folder: Path, domain: Domain, **more: Any) -> None:
    small = {"model": "m", "epochs": 1, "batch_size": 4, "group_size": 3, "patience": "3s"}
    data = str(write_problems(folder / "p.jsonl", 4))
    with ScriptedEndpoint() as server:
        options = {**small, "base_url": server.base_url, "store": folder, **more}
        tfgrpo.train_sync(data, domain=domain, **options)


@pytest.mark.parametrize("part", BROKEN)
def test_what_the_code_of_a_domain_raises_ends_the_attempt_and_not_the_run(
    tmp_path: Path, part: str
) -> None:
    parts = {"verify": math_verdict, part: getattr(Breaking("p2"), part)}
    trained(tmp_path, Domain(name="x", **parts))
    with tfgrpo.Store.open(tmp_path / ".tfgrpo/store.db") as store:
        rows = store.rollouts("p")
        assert len(rows) == 12
        for row in rows:
            broken = row.problem == "p2"
            assert row.outcome == (BROKEN[part] if broken else "answered")
            assert ("KeyError: 'no such thing'" in row.verdict["reason"]) is broken


@pytest.mark.parametrize("part", BROKEN)
def test_code_of_a_domain_that_always_raises_stops_a_run_and_an_evaluation(
    tmp_path: Path, part: str
) -> None:
    parts = {"verify": math_verdict, part: getattr(Breaking(), part)}
    domain = Domain(name="x", **parts)
    with pytest.raises(TfgrpoError, match="KeyError: 'no such thing'") as stopped:
        trained(tmp_path, domain, epochs=3)
    assert stopped.value.hint
    with ScriptedEndpoint() as server:
        where = {"model": "m", "base_url": server.base_url, "store": tmp_path, "samples": 1}
        with pytest.raises(TfgrpoError, match="KeyError: 'no such thing'"):
            tfgrpo.evaluate_sync(str(tmp_path / "p.jsonl"), domain=domain, **where)


async def gives_nothing(context: Context) -> Any:
    return None


async def gives_text(context: Context) -> Any:
    return "an answer"


async def gives_no_text(context: Context) -> Any:
    return Trajectory(None)  # type: ignore[arg-type]


async def gives_no_json(context: Context) -> Any:
    return Trajectory("4", messages=({"role": "assistant", "content": {"a", "b"}},))


def is_not_async(context: Context) -> Any:
    return Trajectory("4")


@pytest.mark.parametrize(
    ("rollout", "words"),
    [
        (gives_nothing, "the rollout of domain x gave None, and no Trajectory"),
        (gives_text, "the rollout of domain x gave 'an answer', and no Trajectory"),
        (gives_no_text, "and no Trajectory"),
        (gives_no_json, "messages that cannot be kept"),
        (is_not_async, "the rollout of domain x is not async"),
    ],
)
def test_a_rollout_of_the_wrong_kind_is_a_clear_error(
    tmp_path: Path, rollout: Any, words: str
) -> None:
    with pytest.raises(DomainError, match=words) as refused:
        trained(tmp_path, Domain(name="x", verify=math_verdict, rollout=rollout))
    assert refused.value.hint


def test_a_render_that_gives_no_messages_is_a_clear_error(tmp_path: Path) -> None:
    domain = Domain(name="x", verify=math_verdict, render=lambda *_: "a prompt")  # type: ignore
    with pytest.raises(TfgrpoError, match="render of domain x gave 'a' as a message"):
        trained(tmp_path, domain)
    with pytest.raises(TfgrpoError, match="render of domain x gave 'a' as a message"):
        tfgrpo.estimate_sync(
            str(tmp_path / "p.jsonl"), domain=domain, store=tmp_path / "new", model="m"
        )


HOMES = {
    "data.compressed_files": {"DatasetError"},
    "data.problems": {"Problem"},
    "domains.base": {"Context", "Domain", "DomainError", "Sampling", "Trajectory", "Verdict"}
    | {"answer_once", "problem_messages"},
    "domains.conversation": {"converse"},
    "domains.registry": {"find", "names"},
    "domains.prompt_library": {"PromptLibrary"},
    "domains.verifier": {"Killed"},
    "model.endpoint": {"CallFailed", "Request"},
}


def test_what_code_of_the_users_is_made_of_stays_where_it_is() -> None:
    """The identity of a judge, which scores on record hang on, has the modules of what it names."""
    from tfgrpo import domains

    homes: dict[str, set[str]] = {}
    for name in domains.__all__:
        home = getattr(getattr(domains, name), "__module__", "")
        if home:  # a text has none
            homes.setdefault(home.removeprefix("tfgrpo."), set()).add(name)
    assert homes == HOMES
