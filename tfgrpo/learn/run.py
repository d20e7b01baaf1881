"""A run from its first call to its last: the lock, the training, the comparison at the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tfgrpo.costs.accounts import Total, costs, total
from tfgrpo.evaluation.comparison import Comparison, compared
from tfgrpo.evaluation.scores import Scores, read_scores
from tfgrpo.evaluation.scoring import EvalProgress, EvalTask, evaluate
from tfgrpo.learn.best_version import Choice, choose_version, final_version, read_choice
from tfgrpo.learn.groups import Makers, RunParts
from tfgrpo.learn.loop import Training, plan_steps, trial_task
from tfgrpo.learn.run_setup import ReadyRun, count_spent, put_on_record
from tfgrpo.model.budget import LARGER, BudgetReached
from tfgrpo.model.endpoint import EndpointError
from tfgrpo.model.rate_limits import RESUMPTION
from tfgrpo.notices import (
    Notice,
    OnProgress,
    RunStarted,
    ScoresReady,
    SettingsChosen,
    WarningNotice,
    ignore,
)
from tfgrpo.rendering.render import examples_of
from tfgrpo.result_tables import View, Viewed
from tfgrpo.runs.live_run import LiveReport, RunStopped
from tfgrpo.runs.run_issues import nothing_learned, report, resumption
from tfgrpo.runs.run_record import unseal
from tfgrpo.runs.run_versions import Gain, recorded_gain, step_stats, versions_of
from tfgrpo.session import Session, ToolFunction, open_session, options_of
from tfgrpo.settings import TrainSettings
from tfgrpo.store.activity.runs import Run, RunBudget
from tfgrpo.store.address import is_address
from tfgrpo.store.errors import InvalidOperation, StoreError
from tfgrpo.store.records import Library, Version
from tfgrpo.store.store import Store
from tfgrpo.wording import sampled

if TYPE_CHECKING:
    from tfgrpo.project import Project
    from tfgrpo.runs.run_issues import RunReport

HandOut: TypeAlias = Callable[[RunParts, Makers], Makers]
"""From a run's parts, and who makes groups in this process, to who makes them instead."""
LOOK_SECONDS = 1.0
"""How often a run looks whether its store is still there, and tells where it is."""


@dataclass(frozen=True, slots=True)
class TrainResult(Viewed):
    """The result of a run: its versions, oldest first, scores on held-out and on sealed problems
    where it has them, its cost over all sessions, and what went wrong. `library` is the one that
    the run leaves in force: of the version that was `chosen` on the gate's problems, where there
    was a choice, else of the last. `comparison` says whether it is better than the empty one on the
    held-out problems, or where there are none on the sealed ones; where nothing else tells, `gain`
    is what the run gains at its own problems. `seconds` is the time of this session, and
    `nothing_learned` says why the run has changed nothing in the library, where it has not."""

    run: Run
    versions: tuple[Version, ...]
    library: Library
    chosen: Choice | None
    heldout: Scores | None
    sealed: Scores | None
    comparison: Comparison | None
    cost: Total
    report: RunReport
    seconds: float
    nothing_learned: str | None = None
    gain: Gain | None = None

    def view(self) -> View:
        steps = len(self.versions)
        title = f"run {self.run.name}: {steps} version{'s' * (steps != 1)}"
        if self.nothing_learned is not None:
            title = f"run {self.run.name}: learned nothing: {self.nothing_learned}"
        rows = [(version.name, version.message) for version in self.versions]
        notes = [f"{len(self.library)} experiences"]
        notes += [f"[{label}] {self.library.by_id[id].text}" for label, id in self.labels.items()]
        notes += [str(one) for one in (self.chosen, self.comparison) if one is not None]
        notes += [] if self.gain is None else [str(self.gain)]
        return View(title, ("version", "message"), rows, notes)

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of the library's experiences, each with its id."""
        return self.library.labels


async def run_to_end(
    store: Store,
    project: Project,
    ready: ReadyRun,
    *,
    functions: Sequence[ToolFunction] = (),
    on_progress: OnProgress = ignore,
    hand_out: HandOut | None = None,
) -> TrainResult:
    """Does the rest of a run, and the comparison at its end. One process at a time works on a run.
    When cancelled, it records what is in flight and can be resumed. For a finished run no model is
    opened and no call is made. With `hand_out` groups are made elsewhere, as `tfgrpo.workers` does.
    Raises InvalidOperation where the run is at work elsewhere, and TfgrpoError."""
    started = time.monotonic()
    run, plan = ready.run, ready.plan
    if store.runs.state(run) == "finished":
        return _result(store, project, ready, started)
    budget = None if ready.budget is None else ready.budget.on_record
    with _at_work(store, run, budget) as live:
        if live is None:  # another process has finished it, since it was looked at
            return _result(store, project, ready, started)
        if ready.budget is not None:
            count_spent(store, project, ready.budget, run)
        settings = plan.settings
        for text in plan.warnings:
            on_progress(WarningNotice(text))
        on_progress(
            RunStarted(
                run.name,
                ready.resumed,
                len(plan.problems.train),
                len(plan_steps(plan.problems.train, settings)),
                settings.batch_size,
                settings.group_size,
                settings.models.model,
            )
        )
        if plan.chosen and not ready.resumed:
            on_progress(SettingsChosen(plan.chosen))
        more = {"functions": functions, "shared": hand_out is not None, "endpoints": plan.endpoints}
        options = options_of(settings, plan.prices, ready.budget, on_progress, **more)
        async with _named(store, ready), open_session(store, settings.models, options) as session:
            training = Training(
                session,
                run,
                plan.problems,
                domain=plan.domain,
                prompts=plan.prompts,
                on_progress=on_progress,
                keep_going=ready.keep_going,
            )
            if hand_out is not None:
                training.hand_out(hand_out)
            on_progress(training.progress)
            live.watch(training)

            def tell(notice: Notice) -> None:
                if isinstance(notice, EvalProgress):
                    live.watch_evaluation(notice)
                on_progress(notice)

            async def work() -> None:
                await training.run(finish=False)
                if settings.gate:
                    await choose_version(session, run, _task(ready, "gate"), on_progress=tell)
                for kind in _compared_kinds(settings):
                    await _compare_at_end(session, ready, kind, tell)
                store.runs.note(run, "finished")

            await _while_there(store, run, training, live, work)
    return _result(store, project, ready, started)


@asynccontextmanager
async def _named(store: Store, ready: ReadyRun) -> AsyncIterator[None]:
    """Has the hint of what stops a run name what goes on with it: with --new, the same command
    would begin another one. Of a run that is not on record nothing goes on."""
    try:
        yield
    except (BudgetReached, EndpointError) as error:
        larger = resumption(ready.run, budget="…")
        hints = {
            LARGER: f"every answer is saved; {larger}, a larger one, goes on",
            RESUMPTION: f"every answer is saved; {ready.again or resumption(ready.run)} goes on",
        }
        if error.hint in hints and store.runs.is_on_record(ready.run):
            error.hint = hints[error.hint]
        raise


@contextmanager
def _at_work(store: Store, run: Run, budget: RunBudget | None) -> Iterator[LiveReport | None]:
    """Holds a run's lock, and while it is not on record its name's; what fails before the first
    answer leaves neither run nor lock behind. Yields what tells where the run is and hears who asks
    it to stop, from the lock on; None where it is finished. Raises InvalidOperation where it is at
    work."""
    runs = store.runs
    new = not runs.is_on_record(run)
    paths = [runs.lock_path(run), *([runs.starting_path(run.name)] if new else [])]
    if new:

        def record() -> None:
            put_on_record(store, run)
            runs.note(run, "started")
            runs.note_budget(run, budget)

        runs.defer(run, record)
    with ExitStack() as stack:
        for path in paths:
            if not stack.enter_context(runs.hold(path)):
                raise InvalidOperation(
                    f"run {run.name} is running in another process", hint="see `tfgrpo status`"
                )
        live = stack.enter_context(LiveReport(runs, run))
        try:
            states = [] if new else runs.states(run)
            is_finished = bool(states) and states[-1].state == "finished"
            if not (new or is_finished):
                runs.note_budget(run, budget)
            yield None if is_finished else live
        finally:
            for path in paths if runs.is_pending(run) else paths[1:]:
                with suppress(OSError):  # where a file that is open cannot go
                    path.unlink()


async def _while_there(
    store: Store,
    run: Run,
    training: Training,
    live: LiveReport,
    work: Callable[[], Coroutine[Any, Any, None]],
) -> None:
    """Does work, tells where it is, and ends it when somebody asks for that, or when the store's
    file is taken away: nothing more would be kept, and every further call be paid for nothing. A
    database has no such file; but while it was out of reach another process, on any machine, may
    have gone on with the run. Raises RunStopped, StoreError and InvalidOperation then."""
    word = live.look()
    if word is not None:  # who asked while the session opened: no call is made
        store.runs.note(run, "interrupted", word)
        raise RunStopped(run, word)
    path = None if is_address(store.location) else Path(store.path)
    inode = 0 if path is None else path.stat().st_ino
    task = asyncio.create_task(work())
    try:
        while not (await asyncio.wait({task}, timeout=LOOK_SECONDS))[0]:
            word = live.look()
            if word is not None:
                training.progress.stopping, training.progress.stopped_by = True, word
                live.look()  # which tells of it
                raise RunStopped(run, word)
            if path is not None and not _is_file(path, inode):
                raise StoreError(
                    f"the store {path} is gone: somebody moved or deleted it",
                    hint="put it back, and the same command resumes",
                )
            if path is None and not await _is_ours(store, run):
                raise InvalidOperation(
                    f"run {run.name} is running in another process, which began with it"
                    " while this one did not reach the database",
                    hint="see `tfgrpo status`",
                )
    except BaseException:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise
    await task


async def _is_ours(store: Store, run: Run) -> bool:
    try:
        return await asyncio.to_thread(store.runs.is_ours, store.runs.lock_path(run))
    except StoreError:
        return True


def _is_file(path: Path, inode: int) -> bool:
    try:
        return path.stat().st_ino == inode
    except OSError:
        return False


def _result(store: Store, project: Project, ready: ReadyRun, started: float) -> TrainResult:
    run = ready.run
    versions = tuple(versions_of(store, run))
    final, settings = final_version(store, run), ready.plan.settings
    is_chosen = settings.gate
    tasks = {kind: _task(ready, kind) for kind in _compared_kinds(settings)}
    scores = {
        kind: read_scores(store, [final, store.version(0)], task) for kind, task in tasks.items()
    }
    heldout = scores.get("heldout")
    ends = heldout or scores.get("sealed")
    comparison = None
    if ends is not None:  # the empty library is the last
        evaluations = [one.evaluation for one in (ends.libraries[-1], ends.libraries[0])]
        (comparison,) = compared(store, evaluations)
    learned_nothing = nothing_learned(store, run)
    is_unscored = ends is None and not is_chosen and learned_nothing is None
    return TrainResult(
        run,
        versions,
        store.library(final),
        read_choice(store, run, _task(ready, "gate")) if is_chosen else None,
        heldout,
        scores.get("sealed"),
        comparison,
        total(costs(store, project.table("prices"), run)),
        report(store, run),
        time.monotonic() - started,
        learned_nothing,
        recorded_gain(store, run) if is_unscored else None,
    )


def _compared_kinds(settings: TrainSettings) -> list[str]:
    return [kind for kind in ("heldout", "sealed") if getattr(settings, kind)]


def _task(ready: ReadyRun, kind: str) -> EvalTask:
    """What a run is evaluated on at its end. On the gate's problems, by which its libraries are
    chosen, a seed makes the attempts other ones than the gate's."""
    plan, seed = ready.plan, 1 if kind == "gate" else 0
    return trial_task(plan.settings, plan.problems, kind, plan.domain, plan.prompts, seed)


async def _compare_at_end(
    session: Session, ready: ReadyRun, kind: str, on_progress: OnProgress
) -> None:
    store = session.store
    if kind == "sealed":
        unseal(store, ready.run)
    versions = [final_version(store, ready.run), store.version(0)]
    task, progress = _task(ready, kind), EvalProgress.announced(on_progress)
    await evaluate(session, versions, task, run=ready.run, progress=progress)
    on_progress(ScoresReady(read_scores(store, versions, task)))


def next_steps(result: TrainResult) -> Iterator[str]:
    """Yields what to do next, the most telling first, each with the command that does it."""
    run, branch = result.run.name, result.run.branch
    attempts = f"`tfgrpo rollouts {run} --failed` shows the attempts that went wrong, and why"
    rewards = {step_stats(version).reward for version in result.versions}
    if rewards == {1.0}:
        attempts = f"`tfgrpo rollouts {run}` shows the attempts"
    if result.nothing_learned is not None or not len(result.library):
        yield attempts
        return
    comparison = result.comparison
    if comparison is None:
        yield (
            "does it help? `tfgrpo compare HELDOUT` tells, on problems that were not trained on; "
            "--heldout does at the end of a run"
        )
        yield f"`tfgrpo blame {branch}` shows what taught each experience"
        return
    samples = int(comparison.conditions["samples"])
    pair = f"`tfgrpo rollouts --eval {branch} --against v{comparison.control.number}`"
    if comparison.verdict == "better" and examples_of(result.library):
        yield (
            f"it helps: `tfgrpo proxy --library {branch}` puts it into an application's requests, "
            "`tfgrpo.library()` in Python into your prompts: examples as turns, as they were tried"
        )
    elif comparison.verdict == "better":
        yield (
            f"it helps: `tfgrpo export {branch} --format prompt -o prompt.txt` writes it for your "
            "prompts, `tfgrpo.library()` reads it from Python"
        )
    elif comparison.verdict == "worse":
        yield f"it hurts: {pair} shows where; `tfgrpo reset {run}/step_0` goes back, on record"
        yield attempts
        return
    else:
        needed = comparison.difference.problems_needed
        many = f"about {sampled(needed, samples)}" if needed else "more problems"
        yield (
            f"not decided: {many} would decide; `tfgrpo compare MORE` scores it on them, and "
            "`tfgrpo power` counts them for other numbers of samples"
        )
    yield f"{pair} shows which problems it won and lost"
