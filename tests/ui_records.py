"""The demonstration's store with every kind of record that a page shows."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from scripted import ScriptedEndpoint
from ui_demo import RUN, add_attempts, demo
from ui_rig import Visitor

from tfgrpo.hand_edits import arrange_library
from tfgrpo.improvement.proposal_comments import ask, comment
from tfgrpo.improvement.proposal_reopening import reopen
from tfgrpo.improvement.proposals import accept, list_proposals, reject
from tfgrpo.learn.pool import append_to_pool
from tfgrpo.production.by_day import Bounds, set_bounds
from tfgrpo.production.experiment import ExperimentPlan, change_share, promote, roll_back, start
from tfgrpo.production.experiment import stop as stop_experiment
from tfgrpo.production.rollback import rollback
from tfgrpo.runs.live_run import EndpointHealth, LiveFigures, live_path
from tfgrpo.store import Operation, Store
from tfgrpo.store.activity.key_ledger import KeyLimits, VirtualKey, ledger_path, parse_budget
from tfgrpo.store.activity.runs import Run
from tfgrpo.store.activity.traffic import (
    CallContent,
    CallFilter,
    CallRecord,
    Feedback,
    traffic_path,
)
from tfgrpo.store.canonical import canonical
from tfgrpo.store.history import bisect
from tfgrpo.store.history.name_moves import protect
from tfgrpo.store.opening import open_ledger, open_traffic
from tfgrpo.store.redact import Target, redact

METRICS = ("score", "score:till", "errors", "latency", "tokens")
AT_WORK = "at-work"
"""The run that has candidates, and that `at_work` holds."""
CANDIDATES = ("It has entered.", "It was given up.", "It is on probation.", "It is new.")
BLANK = CallRecord(*[None] * len(CallRecord._fields))._replace(
    worker="w", route="/v1/messages", streamed=1, stale=0, added=90
)


def every_record(folder: Path, *, now: int) -> Path:
    """Makes the store in a folder; returns its file."""
    path = demo(folder, now=now)
    with Store.open(path, author="ben") as store:
        library = list(store.library("main"))
        store.commit("main", [Operation("DELETE", library[-1].id, None, "of no use")], message="-")
        store.commit("main", [Operation("ADD", text="A key: sk-123.", reason="-")], message="leak")
        leaked = list(store.library("main"))[-1]
        redact(store, Target(leaked.id), reason="a key")
        order = [e.id for e in store.library("main")][::-1]
        arrange_library(store, "main", order, onto=store.tip("main"), reason="most used first")
        by_age = sorted(list_proposals(store), key=lambda one: one.made)
        reject(store, by_age[0].id, why="not so in this shop")
        reopen(store, by_age[0].id, why="it is so")
        accept(store, by_age[1].id, why="right")
        reject(store, by_age[2].id, why="the till rounds")
        for state in ("failed", "stopped", "interrupted"):
            config = {"models": {"model": "m"}, "data": "hires.jsonl", "domain": "math"}
            run = store.runs.create(f"it-{state}", state.ljust(32, "0"), "main", 1, config, "ana")
            store.runs.note(run, state, "the budget was reached")
        store.create_branch("try", "v2")
        protect(store, "branch", "web")
        for n, metric in enumerate(METRICS):
            name, branch = f"test-{n}", f"arm-{n}"
            store.create_branch(branch, "v2")
            guards = tuple((m, 0.1) for m in ("errors", "latency", "tokens") if m != metric)
            plan = ExperimentPlan(metric, guards, "call")
            start(store, name, (branch, "main"), 0.5, plan, why="to see")
            add_arm_calls(store, name, metric == "score:till")
            if n == 1:
                change_share(store, name, 0.6, why="more of it")
                promote(store, name, why="better")
            if n == 2:
                stop_experiment(store, name, why="enough")
            if n == 3:
                roll_back(store, name, why="slower")
        rollback(store, "try", to="v1", why="incident 214")
        talked_about = by_age[0]
        comment(store, talked_about.id, "The till says <so>.")
        comment(store, talked_about.id, "Which season?", talked_about.changes[0].experience)
        ask(store, talked_about.id, "ana")
        brought = next(one for one in by_age[1].changes if one.after)
        later = Operation("MODIFY", brought.experience, "Name the list of prices.", "shorter")
        store.commit("main", [later], message="in other words than the proposal's")
        set_bounds(store, Bounds(0.001, 0.999, 0.001, 0.001), seen=0)
        add_tool_calls(store)
        add_keys(store)
        add_candidates(store)
        while (tested := bisect.progress(store, bisect.load(store)).next) is not None:
            bisect.mark(store, store.version(tested), "good", "ran it")
    return path


def add_keys(store: Store) -> None:
    """Makes a key with limits that has spent something, and one without."""
    limits = KeyLimits(parse_budget("5/day"), 60, ("gpt-5*", "o4"), ("default",))
    now = time.time_ns() // 1000
    with closing(open_ledger(ledger_path(store.file), create=True)) as ledger:
        for name, may in (("shop & co", limits), ("till", KeyLimits())):
            ledger.add_key(VirtualKey(0, name, name.encode().ljust(32), "ana", now, None, may))
        today = time.strftime("%Y-%m-%d", time.gmtime())
        ledger.spend("ab", {"call-1": {("key:shop & co", today): 1.25}})


def add_tool_calls(store: Store) -> None:
    """Records a call whose conversation and answer have calls of tools."""
    called = {"id": "1", "type": "function"}
    called["function"] = {"name": "price", "arguments": '{"days": 3}'}  # type: ignore[assignment]
    turn = {"role": "assistant", "content": None, "tool_calls": [called]}
    result = {"role": "tool", "tool_call_id": "1", "content": "36"}
    asked = json.dumps({"messages": [{"role": "user", "content": "Three days?"}, turn, result]})
    call = BLANK._replace(id="with-tools", status=200, latency=9000, model="m")
    call = call._replace(route="/v1/chat/completions", prompt_tokens=100, completion_tokens=10)
    with closing(open_traffic(traffic_path(store.path))) as traffic:
        call = call._replace(time=traffic.calls(CallFilter(), 1)[0].call.time + 1)
        answer = json.dumps({"choices": [{"message": turn}]})
        traffic.add([call], [CallContent(call.id, asked, answer)])


def add_candidates(store: Store) -> None:
    """Records a run with a candidate of each state, attempts that were shown some of them, and
    where it tells that it is."""
    base = store.tip("main")
    config = RUN | {"models": {"model": "m", "reflection_model": None}}
    run = store.runs.create(AT_WORK, "8" * 32, "main", base.number, config, "ana")
    add_attempts(store, run, 0, [e.id for e in store.library("main")])
    taught = {"run": run.name, "step": 0, "problem": "hire-0"}
    ids = [letter * 12 for letter in "abcd"]
    adds = [
        Operation("ADD", id, text, "so said the right ones", taught)
        for id, text in zip(ids, CANDIDATES, strict=True)
    ]
    append_to_pool(store, run, base, adds, "candidates of step 1")
    figures = {"effect": [0.2, 0.1, 0.3], "chance": 0.99, "attempts": [40, 41]}
    meta = {"run": run.name, "step": 0}
    adds = [Operation("ADD", ids[0], CANDIDATES[0], "it helps", {**taught, **figures})]
    version = store.commit("main", adds, message="step 1 of 4: one lesson", meta=meta)
    store.create_tag(f"{run.name}/step_1", version)
    worse = {"effect": [-0.2, -0.3, -0.1], "chance": 0.01, "attempts": [30, 30]}
    down = [Operation("DELETE", ids[1], None, "it harms", {**taught, **worse})]
    append_to_pool(store, run, version, down, "decided in step 1")
    add_step(store, run, 1)
    live = LiveFigures(
        time=time.time_ns() // 1000,
        step=2,
        steps=4,
        epoch=0,
        epochs=1,
        phase="rollouts",
        stopping=False,
        groups=12,
        groups_done=3,
        teaching=0,
        attempts=192,
        attempts_done=40,
        reflected=0,
        lessons=0,
        decided=0,
        mean_reward=0.5,
        library=7,
        fraction=0.6,
        seconds_left=90.0,
        dollars_left=0.2,
        in_flight=3,
        retries=2,
        trouble="status 429, slow down",
        endpoints=(EndpointHealth("m", 3, 4, 8, "slowed down", "http://127.0.0.1:1", 90, 900, 9),),
    )
    live_path(store.runs, run).parent.mkdir(mode=0o700, exist_ok=True)
    live_path(store.runs, run).write_text(json.dumps(asdict(live)))


def add_step(store: Store, run: Run, step: int) -> None:
    """Records a step of the run: attempts of which half were shown the candidate on probation, who
    are right more often, and its version."""
    rows, tip, tried = [], store.tip("main"), ["c" * 12]
    for n in range(12 * 16):
        problem, sample = divmod(n, 16)
        is_shown = (problem + sample) % 2 == 0
        without: list[str] = [] if is_shown else tried
        verdict = {"answer": "36", "reason": "", "belongs": tried, "without": without}
        place = (run.id, step, f"hire-{problem}", sample, tip.number, "[]", "answered")
        reward = float(is_shown or sample % 4 == 1)
        rows.append((*place, reward, canonical(verdict).decode(), time.time_ns() // 1000))
    writer = store.port.records.writer()
    writer.append([], rows)
    writer.close()
    again = [Operation("KEEP", "a" * 12, None, "it came up again", {"run": run.name, "step": step})]
    meta = {"run": run.name, "step": step}
    version = store.commit("main", again, message=f"step {step + 1} of 4", meta=meta)
    store.create_tag(f"{run.name}/step_{step + 1}", version)


@contextmanager
def at_work(path: Path) -> Iterator[None]:
    """Holds the run `AT_WORK` as its process does."""
    with Store.open(path) as store:
        lock = store.runs.lock_path(store.runs.get(AT_WORK))
        with store.runs.hold(lock) as is_ours:
            assert is_ours
            yield


class Answer(NamedTuple):
    """A page that only a form leads to: the template that it is of, where it is, and its HTML."""

    template: str
    path: str
    page: str


def by_forms(path: Path) -> list[Answer]:
    """Sends the forms of a store of `every_record` that lead to pages of their own; returns those.
    A text is redacted by that."""
    go = threading.Event()

    def script(request: dict[str, Any]) -> str:
        assert go.wait(240)
        return "36 <euros>"

    visitor = Visitor(path)
    with Store.open(path, author="ana") as store:
        accepted = next(one for one in list_proposals(store) if one.state == "accepted")
        kept = store.commit(
            "main", [Operation("ADD", text="Ask Mr Key 5.")], message="Ask Mr Key 5."
        )
        (event,) = store.events(kept)
    fields = {"id": accepted.id, "seen": accepted.decisions}
    answers = [Answer("undo", "/review/undo", visitor.post("/review/undo", fields, status=409))]
    redacted = f"/experience/{event.experience}/redact"
    fields = {"reason": "a name", "sure": event.experience}
    answers.append(Answer("redacted", redacted, visitor.post(redacted, fields, status=400)))
    with ScriptedEndpoint(script) as server:
        settings = f'[model]\nmodel = "m"\nbase_url = "{server.base_url}"\n'
        (path.parent.parent / "tfgrpo.toml").write_text(settings)
        asked = {"prompt": "Three days?", "system": "Be short.", "a": "none", "b": "HEAD"}
        page = visitor.post("/playground", asked)
        live = page.partition('data-live="')[2].partition('"')[0]
        trial = live.replace("playground-live", "playground")
        answers.append(Answer("trial", trial, page))
        go.set()
        assert "event: over" in visitor.client.get(live).text
        answers.append(Answer("trial", trial, visitor.get(trial)))
    return answers


def add_arm_calls(store: Store, name: str, labelled: bool) -> None:
    """Records calls in both arms of an experiment, with scores that are numbers and right or
    wrong, failures, and calls without a library, a model or words."""
    from tfgrpo.production.experiment import experiment

    running = experiment(store, name)
    traffic = open_traffic(traffic_path(store.path), create=True)
    begin = time.time_ns() // 1000 + 1_000_000
    try:
        for n in range(40):
            side, arm = ("control", running.control) if n % 2 else ("candidate", running.candidate)
            call = BLANK._replace(
                id=f"{name}-{n:08x}",
                time=begin + n,
                library="default",
                version=arm.revision,
                digest=arm.digest[:16],
                arm=f"{name}/{side}",
                subject=f"s{n}",
                model=None if n == 4 else "m",
                status=599 if n % 13 == 3 else 200,
                error="broken off" if n % 13 == 3 else None,
                latency=200_000 + 1000 * n,
                prompt_tokens=None if n == 6 else 100 + n,
                completion_tokens=None if n == 6 else 10,
            )
            traffic.add([call], [CallContent(call.id, '{"messages": []}', "36")] if n % 3 else [])
            score = float(n % 2) if labelled else round(0.2 + 0.01 * n, 3)
            told = Feedback(call.id, begin + n, "till", score, "till" if labelled else None)
            if n % 5:
                traffic.add_feedback(told)
            elif n % 10:
                traffic.add_feedback(told._replace(score=None, comment="too long", correct="36"))
        traffic.add([BLANK._replace(id=f"{name}-none", time=begin, status=0, latency=0)], [])
    finally:
        traffic.close()
