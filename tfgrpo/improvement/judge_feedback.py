"""A judge's scores of calls on record, kept as its feedback, one for each call."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from tfgrpo.data.problems import Problem
from tfgrpo.domains.base import Context, Sampling, Trajectory, Verdict
from tfgrpo.evaluation.eval_setup import eval_settings
from tfgrpo.improvement.exchange import Exchange, of_traffic
from tfgrpo.learn.run_estimate import Calls, Conditions, RunEstimate, estimate_calls
from tfgrpo.model.budget import open_budget
from tfgrpo.model.gather import gather_all
from tfgrpo.notices import OnProgress, WarningNotice, ignore
from tfgrpo.one_writer import lock_of
from tfgrpo.project import Project
from tfgrpo.proxy.proxy_file import withheld_beside
from tfgrpo.proxy.telemetry import record_feedback
from tfgrpo.proxy.withheld_words import Finder, clean_feedback
from tfgrpo.rendering.token_count import count_tokens
from tfgrpo.rollout.attempt import judge
from tfgrpo.session import open_session, options_of
from tfgrpo.store import process_lock
from tfgrpo.store.activity.traffic import CallFilter, Feedback, Traffic, traffic_path
from tfgrpo.store.errors import SettingsError
from tfgrpo.store.opening import open_traffic
from tfgrpo.store.store import Store

REASON = 500
"""Characters of a verdict's reason that are kept."""


@dataclass(frozen=True, slots=True)
class JudgeRequest:
    """Which calls are judged, and by what: the name of a domain that needs no ground truth, such as
    `rubric:style.toml`. `settings` name the model that a judge asks; `budget` is the most that it
    may spend; `redact` has expressions whose matches are taken out of its reasons, beside those of
    `proxy.toml`."""

    domain: str
    which: CallFilter = field(default_factory=CallFilter)
    settings: dict[str, Any] = field(default_factory=dict)
    budget: str | None = None
    redact: tuple[str, ...] = ()

    @property
    def author(self) -> str:
        return f"judge {self.domain}"


def estimate_judging(store: Store, project: Project, request: JudgeRequest) -> RunEstimate | str:
    """Estimates what scores of the calls that are not judged yet take, or says that there are none.
    Raises TfgrpoError."""
    given = {**request.settings, "domain": request.domain}
    settings, _ = eval_settings(store, project, [store.head.version], given)
    with closing(open_traffic(traffic_path(store.path))) as traffic:
        unjudged = unjudged_calls(traffic, request)
    if not unjudged:
        return "nothing to do: every call is judged"

    def add(calls: Calls) -> None:
        for one in unjudged:
            calls.add_judgements(judged_problem(one), count_tokens(one.answer), 1)

    domain, prices = project.domain(request.domain), project.prices(settings.models)
    estimate = estimate_calls(store, Conditions(settings, domain, prices), add)
    return replace(estimate, about=f"{len(unjudged)} calls")


async def judge_calls(
    store: Store, project: Project, request: JudgeRequest, *, on_progress: OnProgress = ignore
) -> int:
    """Judges the calls that this judge has not, and returns how many got a score. Raises
    SettingsError for a domain that needs a ground truth, and where another process is judging, and
    TfgrpoError."""
    with process_lock.held(lock_of(store, request.author)) as free:
        if not free:
            raise SettingsError(
                f"another process is judging calls of this store by {request.domain}",
                hint="`tfgrpo collect` takes its scores when it is done",
            )
        return await _judge_calls(store, project, request, on_progress)


async def _judge_calls(
    store: Store, project: Project, request: JudgeRequest, on_progress: OnProgress
) -> int:
    withheld = withheld_beside(project.root, request.redact)
    given = {**request.settings, "domain": request.domain}
    domain = project.domain(request.domain)
    if domain.ground_truth:
        raise SettingsError(
            f"{request.domain} compares with a right answer, and calls have none",
            hint="a rubric judges without: --judge rubric:style.toml",
        )
    settings, notes = eval_settings(store, project, [store.head.version], given)
    for note in notes:
        on_progress(WarningNotice(note))
    prices, endpoints = project.prices(settings.models), project.endpoints(settings.models)
    budget = open_budget(request.budget, prices)
    options = options_of(settings, prices, budget, on_progress, endpoints=endpoints)
    with closing(open_traffic(traffic_path(store.path))) as traffic:
        unjudged = unjudged_calls(traffic, request)
        if not unjudged:
            return 0
        async with open_session(store, settings.models, options) as session:
            policy, reflection = session.model_calls(f"{request.author} {domain.identity}")
            sampling = Sampling(0.0, settings.max_tokens, settings.seed)

            async def verdict(one: Exchange) -> Verdict:
                context = Context(
                    problem=judged_problem(one),
                    messages=one.messages,
                    calls=policy,
                    judge=reflection,
                    verifier=session.verifier,
                    sampling=sampling,
                    sample=0,
                    call_path=(one.id,),
                )
                given = await judge(domain, context, Trajectory(one.answer))
                if given.reward is not None:
                    now, label = time.time_ns() // 1000, domain.name.partition(":")[0]
                    why, author = given.reason, request.author
                    feedback = Feedback(one.id, now, author, given.reward, label, why)
                    _record(traffic, feedback, withheld)
                return given

            try:
                verdicts = await gather_all(verdict(one) for one in unjudged)
            finally:
                await policy.finish_in_flight()
                await reflection.finish_in_flight()
    return sum(one.reward is not None for one in verdicts)


def _record(traffic: Traffic, given: Feedback, withheld: Finder) -> None:
    """Puts a verdict on record. Its reason is cut when nothing is left in it that is withheld: of
    a word cut in two, no expression finds a half."""
    clean = clean_feedback(given, withheld)
    short = clean._replace(comment=(clean.comment or "")[:REASON] or None)
    record_feedback(traffic, short, traffic.call(given.call))


def unjudged_calls(traffic: Traffic, request: JudgeRequest) -> list[Exchange]:
    """The calls with words and an answer that a judge has given no score."""
    return [
        one
        for one in of_traffic(traffic, request.which, every=True)
        if isinstance(one, Exchange)
        and one.answer
        and all(known.author != request.author for known in traffic.feedback(one.id))
    ]


def judged_problem(one: Exchange) -> Problem:
    """A call as the problem that a judge is told of."""
    text = "\n\n".join(f"{role}: {words}" for role, words in one.messages)
    alone = len(one.messages) == 1
    return Problem(one.id, one.messages[0][1] if alone else text, "", () if alone else one.messages)
