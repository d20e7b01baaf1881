"""Attempts: the groups of a step or an evaluation, one group to its ground, one attempt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from urllib.parse import urlencode

from starlette.responses import Response

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


class ListedGroup(NamedTuple):
    """A group in a list: its attempts, winners first, and where it is shown whole."""

    attempts: tuple[RecordedAttempt, ...]
    address: str
    question: str

    @property
    def problem(self) -> str:
        """The problem's id."""
        return self.attempts[0].problem

    @property
    def right(self) -> int:
        """How many attempts have the full reward."""
        return sum(one.is_right for one in self.attempts)


class Source(NamedTuple):
    """Attempts of one place: the pages that list them and that show a group, what both are asked
    with, and the run; None for an evaluation."""

    attempts: AttemptList
    listed: str
    group: str
    given: dict[str, str]
    run: Run | None


def _of_run(visit: Visit, run: Run, step: int) -> Source:
    attempts, name = run_attempts(visit.store, run, step=step), run.name
    return Source(attempts, f"/attempts/{name}", f"/group/{name}", {"step": str(step)}, run)


def _of_evaluation(visit: Visit, one: Evaluation) -> Source:
    attempts, path = evaluation_attempts(visit.store, one), f"{one.version}/{one.digest}"
    return Source(attempts, f"/evaluation/{path}", f"/evaluation-group/{path}", {}, None)


def listed(visit: Visit) -> Response:
    """Answers with the groups of a run's step."""
    store, run = visit.store, visit.store.runs.get(visit.path("run"))
    steps = [step_of(v) + 1 for v in versions_of(store, run)]
    under_way = max(steps, default=0) + 1
    if store.runs.rollouts(run, under_way - 1):
        steps.append(under_way)
    step = visit.number("step", max(steps, default=1))
    title = f"Attempts of run {run.name}, step {step}"
    return _list(visit, _of_run(visit, run, step), title=title, steps=steps, step=step)


def of_evaluation(visit: Visit) -> Response:
    """Answers with the groups of an evaluation."""
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
        ListedGroup(
            one,
            f"{source.group}?{urlencode({**given, 'problem': one[0].problem})}",
            attempts.text(one[0]).question if visit.content else "",
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
        apart=attempts.confirming,
        before=address(first - MOST) if first else None,
        after=address(first + MOST) if first + MOST < len(chosen) else None,
        first=first,
        **more,
    )


def _is_shown(group: Sequence[RecordedAttempt], show: str) -> bool:
    match show:
        case "mixed":
            return any(one.side for one in group)
        case "failed":
            return any(not one.is_right for one in group)
        case "truncated" | "unverifiable" | "error":
            return any(one.outcome == OUTCOMES[show] for one in group)
    return True


def group(visit: Visit) -> Response:
    """Answers with one group of a run, or with one attempt of it."""
    run = visit.store.runs.get(visit.path("run"))
    source = _of_run(visit, run, visit.number("step", 1))
    data = problems_of(visit, run.uid, lambda project: known_run_problems(project, run))
    return _group(visit, source, data)


def evaluation_group(visit: Visit) -> Response:
    """Answers with one group of an evaluation, or with one attempt of it."""
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
    if not visit.content:
        raise UnknownRevision("what was asked and said is not shown here")
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


ROUTES = (
    Route("/attempts/{run:path}", listed),
    Route("/group/{run:path}", group),
)
