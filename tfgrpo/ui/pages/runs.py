"""Runs: the list of them; one as it goes, live, with its dynamics, its stop and its resume; and two
side by side."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from itertools import zip_longest
from pathlib import Path
from subprocess import DEVNULL, STDOUT
from typing import TypeAlias

from starlette.responses import Response, StreamingResponse

from tfgrpo import wording
from tfgrpo.evaluation.scores import score_curves
from tfgrpo.learn.measure import OnProbation
from tfgrpo.runs.live_run import ask_to_stop
from tfgrpo.runs.run_issues import nothing_learned
from tfgrpo.runs.run_record import Candidate, ListedRun, lessons, listed_runs, run_record
from tfgrpo.runs.run_status import RunFigures, StepFigures, run_figures
from tfgrpo.runs.run_versions import versions_of
from tfgrpo.store import child_processes
from tfgrpo.store.activity.runs import Run
from tfgrpo.store.address import is_address, project_root, with_password
from tfgrpo.store.errors import InvalidOperation
from tfgrpo.store.store import Store
from tfgrpo.ui.charts import CurvePoint, chart, on_one_scale, run_charts
from tfgrpo.ui.figure_cache import Memory
from tfgrpo.ui.page_visit import Route, Visit, event
from tfgrpo.ui.shown_project import project_of
from tfgrpo.ui.sortable_tables import Column, Table, table, unsorted
from tfgrpo.ui.template_environment import in_words
from tfgrpo.ui.watched_runs import watched
from tfgrpo.ui.without_content import opened
from tfgrpo.wording import plural

SHOWN = 4_000
"""The characters of what a process said that a page shows."""
BEGINNING = 15.0
"""Seconds that are waited for a process to be at work: it loads models' clients first."""
ALIVE = ("running", "finished")
REMEMBERED = 3600.0
"""Seconds for which what was read of a run's attempts is not read again."""


def output_path(store: Store, run: Run) -> Path:
    """Returns the file of what the process said that last went on with a run from a page."""
    return store.runs.lock_path(run).with_suffix(".said")


def go_on(store: Store, run: Run, author: str) -> int:
    """Begins a process that goes on with a run, in the name of `author`; returns its number once it
    is at work, has ended well, or takes its time. Raises InvalidOperation where the run is at work
    or finished, or the process has failed already, and OSError."""
    state = store.runs.state(run)
    if state in ALIVE:
        raise InvalidOperation(f"run {run.name} is {state}: there is nothing to go on with")
    path = Path(store.path).absolute()
    opens = with_password(str(path))  # a password is no part of a command line: `ps` shows it
    main = "from tfgrpo.cli.main import main; main()"
    named = [] if is_address(opens) else ["--store", opens]
    command = child_processes.python("-c", main, *named, "train", "--resume", run.name)
    output = output_path(store, run)
    output.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)
    handle = os.open(output, flags, 0o600)
    try:
        process = child_processes.start(
            command,
            child_processes.whole(TFGRPO_STORE=opens, TFGRPO_AUTHOR=author, NO_COLOR="1"),
            cwd=project_root(path),
            stdin=DEVNULL,
            stdout=handle,
            stderr=STDOUT,
            start_new_session=True,
        )
    finally:
        os.close(handle)
    threading.Thread(target=process.wait, daemon=True).start()  # so that none is left behind
    until = time.monotonic() + BEGINNING
    while time.monotonic() < until and process.poll() is None:
        if store.runs.state(run) == "running":
            break
        time.sleep(0.05)
    if process.poll():  # it may have failed before it was at work: then nothing tells of it
        words = last_words(store, run) or process.returncode
        raise InvalidOperation(f"run {run.name} has stopped at once: {words}")
    return process.pid


def last_words(store: Store, run: Run) -> str | None:
    """Returns the end of what that process said; None where there is nothing."""
    try:
        text = output_path(store, run).read_text(errors="replace")
    except OSError:
        return None
    return text.strip()[-SHOWN:] or None


COLUMNS: tuple[Column[ListedRun], ...] = (
    Column("run", "Run", lambda one: one.run.name, False),
    Column("state", "State", lambda one: one.state, False),
    Column("versions", "Versions", lambda one: one.versions),
    Column("model", "Model", lambda one: one.model, False),
    Column("branch", "Branch", lambda one: one.run.branch, False),
    Column("started", "Started", lambda one: wording.iso(one.run.time), False),
)
STEPS: tuple[Column[StepFigures], ...] = (
    Column("step", "Step", lambda one: one.step),
    Column("version", "Version", lambda one: one.learned and one.learned.version.number),
    Column("reward", "Reward", lambda one: one.reward and one.reward.mean),
    Column("mixed", "Mixed groups", lambda one: one.mixed),
    Column("attempts", "Attempts", lambda one: one.attempts),
    Column("changes", "Changes", lambda one: one.learned and sum(one.learned.events.values())),
    Column("library", "Library", lambda one: one.library),
    Column("gate", "Gate", lambda one: one.learned and one.learned.gate, False),
    Column("refused", "Refused", lambda one: one.refused),
    Column("tokens", "Tokens", lambda one: tokens(one)),
    Column("dollars", "Cost", lambda one: one.spent.dollars),
)
STEPS_MORE: tuple[Column[StepFigures], ...] = (
    Column("low", "From", lambda one: one.reward and one.reward.low),
    Column("high", "to", lambda one: one.reward and one.reward.high),
    Column("groups", "Groups", lambda one: one.groups),
)
"""Columns of a file beside those of the page, here and below."""
CANDIDATES: tuple[Column[Candidate], ...] = (
    Column("text", "Candidate", lambda one: one.text, False),
    Column("state", "State", lambda one: one.state, False),
    Column("effect", "Effect on the reward", lambda one: _of(one, "effect"), drawn=True),
    Column("chance", "Chance that it helps", lambda one: _of(one, "chance")),
    Column("shown", "Attempts with, without", lambda one: _of(one, "shown")),
    Column("version", "Version", lambda one: one.version.number),
)
CANDIDATES_MORE: tuple[Column[Candidate], ...] = (
    Column("id", "Experience", lambda one: one.experience, False),
    Column("low", "From", lambda one: _of(one, "low")),
    Column("high", "to", lambda one: _of(one, "high")),
    Column("hidden", "Attempts without", lambda one: _of(one, "hidden")),
)


def tokens(step: StepFigures) -> int:
    return step.spent.usage.prompt_tokens + step.spent.usage.completion_tokens


def _of(candidate: Candidate, name: str) -> float | None:
    return None if candidate.measured is None else getattr(candidate.measured, name)


def _gated(steps: Table[StepFigures]) -> Table[StepFigures]:
    """Returns the table without its column of the gate, where there was none."""
    gated = any(one.learned and one.learned.gate for one in steps.rows)
    return steps if gated else steps.without("gate")


def listed(visit: Visit) -> Response:
    runs = listed_runs(visit.store, removed=visit.query("removed") == "yes")[::-1]
    return visit.render("runs.html", title="Runs", runs=table(visit, runs, COLUMNS, "runs"))


def show(visit: Visit) -> Response:
    store = visit.store
    run = store.runs.get(visit.path("run"))
    figures = run_figures(store, run, project_of(visit).table("prices"))
    record = run_record(store, run)
    steps, tried = figures.steps[::-1], _candidates(visit.site.memory, store, figures)
    shown = table(visit, steps, STEPS, "steps", STEPS_MORE)
    candidates = table(visit, tried, CANDIDATES, "candidates", CANDIDATES_MORE)
    curves = [
        chart(
            f"{curve.dataset}, {plural(curve.samples, 'sample')} a problem",
            [CurvePoint(p.version.name, *p.mean) for p in curve.points],
            "{:.2f}".format,
            1.0,
        )
        for curve in score_curves(store, [store.version(run.base), *versions_of(store, run)])
    ]
    return visit.render(
        "run.html",
        title=f"Run {run.name}",
        figures=figures,
        run=run,
        record=record,
        gain=None if record.gain is None else str(record.gain),
        nothing=nothing_learned(store, run) if figures.state == "finished" else None,
        charts=run_charts(figures),
        steps=_gated(unsorted(steps, STEPS) if figures.is_running else shown),
        files=shown,
        candidates=unsorted(tried, CANDIDATES) if figures.is_running else candidates,
        candidate_files=candidates,
        curves=[curve for curve in curves if curve is not None],
        said=last_words(store, run) if visit.content and not figures.is_running else None,
    )


def _candidates(memory: Memory, store: Store, figures: RunFigures) -> list[Candidate]:
    known = memory.get(("candidates", figures.run.uid), REMEMBERED, OnProbation)
    done = [one.step - 1 for one in figures.steps if one.learned is not None]
    return known.candidates(store, figures.run, done)


async def follow(visit: Visit) -> Response:
    """Answers with a stream: the live part of a run's page whenever it has changed."""
    run: Run = await visit.in_store(lambda store: store.runs.get(visit.path("run")))

    template, memory = visit.site.templates.get_template("run_live.html"), visit.site.memory

    def part(store: Store, figures: RunFigures) -> str:
        return template.render(
            figures=figures,
            run=figures.run,
            charts=run_charts(figures),
            steps=_gated(unsorted(figures.steps[::-1], STEPS)),
            candidates=unsorted(_candidates(memory, store, figures), CANDIDATES),
        )

    prices, settings = project_of(visit).table("prices"), visit.site.settings
    opening = partial(opened, settings.store, content=settings.content)
    watch = watched(visit.site.watched, opening, run.name, prices, part)

    async def events() -> AsyncIterator[str]:
        async for one in watch.parts():
            yield ": nothing new\n\n" if one is None else event("part", one)
        yield event("over", "")

    return StreamingResponse(events(), media_type="text/event-stream")


def stop(visit: Visit) -> Response:
    run = visit.store.runs.get(visit.path("run"))
    ask_to_stop(visit.store, run, visit.who)
    return visit.done(f"/run/{run.name}", "The run was asked to stop: it records what is in flight")


def resume(visit: Visit) -> Response:
    run = visit.store.runs.get(visit.path("run"))
    go_on(visit.store, run, visit.who)
    return visit.done(f"/run/{run.name}", "The run goes on in a process of its own")


StepOfBoth: TypeAlias = tuple[int, StepFigures | None, StepFigures | None]
"""A step, counted from 1, of both runs; None of one that has no such step."""


def _both_columns(a: str, b: str) -> tuple[Column[StepOfBoth], ...]:
    def both(
        name: str, words: str, pick: Callable[[StepFigures], float | None]
    ) -> tuple[Column[StepOfBoth], ...]:
        def of(step: StepFigures | None) -> float | None:
            return pick(step) if step else None

        return (
            Column(f"{name}_a", f"{words} of {a}", lambda one: of(one[1])),
            Column(f"{name}_b", f"of {b}", lambda one: of(one[2])),
        )

    return (
        Column("step", "Step", lambda one: one[0]),
        *both("reward", "Reward", lambda step: step.reward and step.reward.mean),
        *both("library", "Library", lambda step: step.library),
        *both("dollars", "Cost", lambda step: step.spent.dollars),
    )


def compare(visit: Visit) -> Response:
    """Answers with two runs, or with the form that chooses them."""
    store = visit.store
    names = [run.name for run in store.runs.listed()][::-1]
    chosen = [visit.query("a") or (names[1] if len(names) > 1 else ""), visit.query("b")]
    chosen[1] = chosen[1] or (names[0] if names else "")
    if not all(chosen):
        return visit.render("compare_runs.html", title="Compare runs", names=names, a="", b="")
    first, second = (store.runs.get(name) for name in chosen)
    prices = project_of(visit).table("prices")
    figures = [run_figures(store, run, prices) for run in (first, second)]
    before, after = (run_record(store, run).settings for run in (first, second))
    settings = [
        (name, before.get(name), after.get(name))
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]
    setting_columns: tuple[Column[tuple[str, object, object]], ...] = (
        Column("setting", "Setting", lambda one: one[0], False),
        Column("a", first.name, lambda one: in_words(one[1]), False),
        Column("b", second.name, lambda one: in_words(one[2]), False),
    )
    both = zip_longest(figures[0].steps, figures[1].steps)
    steps = [(number, *one) for number, one in enumerate(both, 1)]
    columns = _both_columns(first.name, second.name)
    own, others = lessons(store, first), lessons(store, second)
    return visit.render(
        "compare_runs.html",
        title=f"{first.name} and {second.name}",
        names=names,
        a=first.name,
        b=second.name,
        charts=on_one_scale(*figures),
        steps=table(visit, steps, columns, "steps"),
        sums=[one.spent for one in figures],
        settings=table(visit, settings, setting_columns, "settings"),
        only_a=[(id, text) for text, id in own.items() if text not in others],
        only_b=[(id, text) for text, id in others.items() if text not in own],
        both=sum(text in others for text in own),
    )


ROUTES = (
    Route("/runs", listed),
    Route("/compare-runs", compare),
    Route("/run/{run:path}", show),
    Route("/run-live/{run:path}", follow, live=True),
    Route("/run-stop/{run:path}", stop, "POST"),
    Route("/run-resume/{run:path}", resume, "POST"),
)
