"""The demonstration's store with every kind of record that a page shows."""

from __future__ import annotations

import time
from pathlib import Path

from ui_demo import demo

from tfgrpo.hand_edits import arrange_library
from tfgrpo.improvement.proposal_reopening import reopen
from tfgrpo.improvement.proposals import accept, list_proposals, reject
from tfgrpo.production.experiment import ExperimentPlan, change_share, promote, roll_back, start
from tfgrpo.production.experiment import stop as stop_experiment
from tfgrpo.production.rollback import rollback
from tfgrpo.store import Operation, Store
from tfgrpo.store.activity.traffic import CallContent, CallRecord, Feedback, traffic_path
from tfgrpo.store.history.name_moves import protect
from tfgrpo.store.opening import open_traffic
from tfgrpo.store.redact import Target, redact

METRICS = ("score", "score:till", "errors", "latency", "tokens")


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
    return path


def add_arm_calls(store: Store, name: str, labelled: bool) -> None:
    """Records calls in both arms of an experiment, with scores that are numbers and right or
    wrong, failures, and calls without a library, a model or words."""
    from tfgrpo.production.experiment import experiment

    running = experiment(store, name)
    blank = CallRecord(*[None] * len(CallRecord._fields))._replace(
        worker="w", route="/v1/messages", streamed=1, stale=0, added=90
    )
    traffic = open_traffic(traffic_path(store.path), create=True)
    begin = time.time_ns() // 1000 + 1_000_000
    try:
        for n in range(40):
            side, arm = ("control", running.control) if n % 2 else ("candidate", running.candidate)
            call = blank._replace(
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
        traffic.add([blank._replace(id=f"{name}-none", time=begin, status=0, latency=0)], [])
    finally:
        traffic.close()
