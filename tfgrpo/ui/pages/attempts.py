"""Attempts: the groups of a step or an evaluation, one group to its ground, one attempt; and all of
a problem, over runs and evaluations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from starlette.responses import Response

from tfgrpo.rollout.attempt import CONFIRMING
from tfgrpo.runs.attempts import (
    AttemptList,
    RecordedAttempt,
    evaluation_attempts,
    known_evaluation_problems,
    known_run_problems,
    run_attempts,
)
from tfgrpo.runs.group_details import group_view
from tfgrpo.runs.run_versions import step_of, versions_of
from tfgrpo.store.activity.runs import Evaluation, Run
from tfgrpo.store.errors import UnknownRevision
from tfgrpo.store.store import Store
from tfgrpo.ui.page_visit import Route, Visit
from tfgrpo.ui.shown_project import KnownProblems, problems_of
from tfgrpo.ui.sortable_tables import Column, table

SHOW = {
    "": "all",
    "mixed": "with winners and losers",
    "failed": "with less than the full reward",
    "truncated": "cut off at the token limit",
    "unverifiable": "that could not be judged",
    "error": "that never arrived",
}
"""Which groups are listed, and how that is said."""
SHOW_SCORES = {name: SHOW[name] for name in ("", "mixed", "failed", "unverifiable")}
"""The same for an evaluation: a score says what an answer was worth, and neither whether it was cut
off nor what never arrived."""
OUTCOMES = {"truncated": "truncated", "unverifiable": "unverifiable", "error": "failed"}
MOST = 100
"""Groups on a page: 500 attempts where a group has five."""


LOOKED_AT = 200
"""The last runs and evaluations that are looked at for a problem, of each."""


class Source(NamedTuple):
    """Attempts of one place: the pages that list them and that show a group, what both are asked
    with, and the run; None for an evaluation."""

    attempts: AttemptList
    listed: str
    group: str
    given: dict[str, str]
    run: Run | None


class Try(NamedTuple):
    """The attempts at a problem in a step or an evaluation, which has no step: how many, of these
    with a reward, their mean, and the version that they were made under. `time` is microseconds."""

    time: int
    where: str
    address: str
    step: int | None
    version: int
    attempts: int
    scored: int
    mean: float | None


COLUMNS: tuple[Column[Try], ...] = (
    Column("where", "Where", lambda one: one.where, False),
    Column("step", "Step", lambda one: one.step),
    Column("version", "Version", lambda one: one.version),
    Column("attempts", "Attempts", lambda one: one.attempts),
    Column("scored", "With a reward", lambda one: one.scored),
    Column("mean", "Mean reward", lambda one: one.mean),
)


def _of_run(visit: Visit, run: Run, step: int) -> Source:
    attempts, name = run_attempts(visit.store, run, step=step), run.name
    return Source(attempts, f"/attempts/{name}", f"/group/{name}", {"step": str(step)}, run)


def _of_evaluation(visit: Visit, one: Evaluation) -> Source:
    attempts, path = evaluation_attempts(visit.store, one), f"{one.version}/{one.digest}"
    return Source(attempts, f"/evaluation/{path}", f"/evaluation-group/{path}", {}, None)


def listed(visit: Visit) -> Response:
    store, run = visit.store, visit.store.runs.get(visit.path("run"))
    steps = [step_of(v) + 1 for v in versions_of(store, run)]
    under_way = max(steps, default=0) + 1
    if store.runs.rollouts(run, under_way - 1):
        steps.append(under_way)
    step = visit.number("step", max(steps, default=1))
    title = f"Attempts of run {run.name}, step {step}"
    return _list(visit, _of_run(visit, run, step), title=title, steps=steps, step=step)


def of_evaluation(visit: Visit) -> Response:
    one = _evaluation(visit)
    title = f"Attempts of v{one.version} on {one.dataset}"
    return _list(visit, _of_evaluation(visit, one), title=title, steps=[], step=None)


def _list(visit: Visit, source: Source, **more: Any) -> Response:
    show, attempts, given = visit.query("show"), source.attempts, source.given
    choices = SHOW if source.run else SHOW_SCORES
    show = show if show in choices else ""
    chosen = [one for one in attempts.groups() if _is_shown(one, show)]
    first = min(visit.number("from", 0), max(0, len(chosen) - 1)) // MOST * MOST
    groups = [
        (
            one,
            f"{source.group}?{urlencode({**given, 'problem': one[0].problem})}",
            attempts.text(one[0]).question if visit.content else "",
            sum(attempt.is_right for attempt in one),
        )
        for one in chosen[first : first + MOST]
    ]

    def address(at: int) -> str:
        return f"{source.listed}?{urlencode({**given, 'show': show, 'from': str(at)})}"

    return visit.render(
        "attempts.html",
        run=source.run,
        address=source.listed,
        given=given,
        show=show,
        choices=choices,
        groups=groups,
        total=len(chosen),
        count=sum(len(one) for one in chosen),
        apart=list(attempts.of_no_group()),
        before=address(first - MOST) if first else None,
        after=address(first + MOST) if first + MOST < len(chosen) else None,
        first=first,
        **more,
    )


def _is_shown(group: Sequence[RecordedAttempt], show: str) -> bool:
    if show == "mixed":
        return any(one.side for one in group)
    if show == "failed":
        return any(not one.is_right for one in group)
    return not show or any(one.outcome == OUTCOMES[show] for one in group)


def group(visit: Visit) -> Response:
    run = visit.store.runs.get(visit.path("run"))
    source = _of_run(visit, run, visit.number("step", 1))
    data = problems_of(visit, run.uid, lambda project: known_run_problems(project, run))
    return _group(visit, source, data)


def evaluation_group(visit: Visit) -> Response:
    one = _evaluation(visit)
    data = problems_of(
        visit,
        f"{one.version}/{one.digest}",
        lambda project: known_evaluation_problems(visit.store, project, one),
    )
    return _group(visit, _of_evaluation(visit, one), data)


def _group(visit: Visit, source: Source, data: KnownProblems) -> Response:
    known, missing = data
    attempts = replace(source.attempts, known=known, missing=missing)
    visit.require_content()
    problem, sample = visit.query("problem"), visit.query("sample")
    number = visit.number("sample", 0) if sample else None
    problems = list(dict.fromkeys(one.problem for one in attempts.attempts))
    if problem not in problems:
        raise UnknownRevision(f"{attempts.title} has no attempt at {problem[:80]!r}")
    chosen = attempts.of(problem=problem)
    if number is not None and not chosen.of(sample=number).attempts:
        raise UnknownRevision(f"there is no attempt {number} at {problem[:80]!r}")
    at = problems.index(problem)

    def address(other: str, **extra: int) -> str:
        return f"{source.group}?{urlencode({**source.given, 'problem': other, **extra})}"

    view = group_view(visit.store, chosen, source.run, sample=number)
    return visit.render(
        "group.html",
        title=f"{problem[:80]}: {view.right} of {len(view.attempts)} right",
        view=view,
        run=source.run,
        sample=number,
        whole=address(problem),
        attempt=lambda one: address(problem, sample=one),
        above=source.listed + (f"?{urlencode(source.given)}" if source.given else ""),
        before=address(problems[at - 1]) if at else None,
        after=address(problems[at + 1]) if at + 1 < len(problems) else None,
        place=f"{at + 1} of {len(problems)}",
    )


def _evaluation(visit: Visit) -> Evaluation:
    return evaluation_of(visit.store, visit.path("version"), visit.path("digest"))


def evaluation_of(store: Store, version: str, digest: str) -> Evaluation:
    """Returns the evaluation of a version under conditions with that digest. Raises
    UnknownRevision."""
    number = int(version) if version.isdecimal() and version.isascii() and len(version) < 12 else -1
    evaluation = store.runs.evaluation(number, digest) if number >= 0 else None
    if evaluation is None:
        raise UnknownRevision(f"there is no such evaluation of v{version[:20]}")
    return evaluation


def show_problem(visit: Visit) -> Response:
    id = visit.query("id")
    tries = sorted((*_in_runs(visit, id), *_in_evaluations(visit, id)), key=lambda one: -one.time)
    if not tries:
        raise UnknownRevision(f"no attempt at {id[:80]!r} is on record")
    shown = table(visit, tries, COLUMNS, "problem")
    return visit.render("problem.html", title=f"Problem {id}", id=id, tries=shown)


def _in_runs(visit: Visit, id: str) -> Iterator[Try]:
    runs = visit.store.runs
    for run in runs.listed()[-LOOKED_AT:]:
        rows = [row for row in runs.rollouts(run, problem=id) if row.sample < CONFIRMING]
        for step in sorted({row.step for row in rows}):
            here = [row for row in rows if row.step == step]
            query = urlencode({"step": step + 1, "problem": id})
            yield _try(
                (here[0].time, f"run {run.name}", f"/group/{quote(run.name)}?{query}"),
                step + 1,
                here[0].version,
                [row.reward for row in here],
            )


def _in_evaluations(visit: Visit, id: str) -> Iterator[Try]:
    runs = visit.store.runs
    for one in runs.all_evaluations()[-LOOKED_AT:]:
        rewards = [score.reward for score in runs.scores(one) if score.problem == id]
        if rewards:
            address = f"/evaluation-group/{one.version}/{one.digest}?{urlencode({'problem': id})}"
            yield _try((one.time, f"{one.dataset}", address), None, one.version, rewards)


def _try(
    place: tuple[int, str, str], step: int | None, version: int, rewards: Iterable[float | None]
) -> Try:
    every = list(rewards)
    known = [reward for reward in every if reward is not None]
    mean = sum(known) / len(known) if known else None
    return Try(*place, step, version, len(every), len(known), mean)


ROUTES = (
    Route("/attempts/{run:path}", listed),
    Route("/group/{run:path}", group),
    Route("/problem", show_problem),
)
