"""Training: batches of problems in, versions of the library out.

    problem → rollout → reward → semantic advantage → operation → event → version

A step takes a batch and lets the run's policy learn from it (`learn/policies/protocol.py`):
attempts are made, groups compared, and operations decided. Then one version is appended, tagged
`<run>/step_N`. Every call is journalled, every rollout recorded as it is judged, and a version
lands whole, so a run that was killed goes on from the call it was in. What is decided follows from
the answers in the order of the batch, never from the order in which they came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from tfgrpo import domains
from tfgrpo.data.problems import Problem, batches
from tfgrpo.domains import math
from tfgrpo.domains.base import Domain
from tfgrpo.evaluation.scoring import EvalProgress, EvalTask
from tfgrpo.learn.collector import Collector
from tfgrpo.learn.gate import Gate, Trial, side_branch
from tfgrpo.learn.groups import Makers, RunParts
from tfgrpo.learn.library_draft import refusal, split_fitting, still_apply
from tfgrpo.learn.nothing_to_learn import lost_words
from tfgrpo.learn.payable import Payable
from tfgrpo.learn.policies.protocol import Learned, Step, find_policy
from tfgrpo.learn.pool import append_to_pool
from tfgrpo.learn.progress import Progress
from tfgrpo.learn.reflection import Reflection, StepOrigin, manner_of
from tfgrpo.model.caller_functions import contained
from tfgrpo.notices import OnProgress, StepFinished, WarningNotice, ignore
from tfgrpo.rendering.render import AGENT_OBJECTIVE
from tfgrpo.rollout.agent_loop import equipped
from tfgrpo.rollout.attempt import Group, mean_reward
from tfgrpo.runs.run_problems import RunProblems
from tfgrpo.runs.run_versions import GAIN, OVER, gain_record, pool_branch, read_gate
from tfgrpo.session import Session
from tfgrpo.settings import PAPER, EvalSettings, TrainSettings
from tfgrpo.store.activity.runs import Run
from tfgrpo.store.address import project_root
from tfgrpo.store.errors import StaleVersion, StoreError, TfgrpoError
from tfgrpo.store.history.name_moves import check_branch
from tfgrpo.store.records import Version
from tfgrpo.store.signing import recordings
from tfgrpo.tools.tool_call_record import ToolRecord


def plan_steps(
    dataset: Sequence[Problem], settings: TrainSettings
) -> list[tuple[int, tuple[Problem, ...]]]:
    """The run's steps: the epoch (from 1) and the batch of each."""
    return [
        (epoch, batch)
        for epoch in range(1, settings.epochs + 1)
        for batch in batches(dataset, settings.batch_size, epoch=epoch, seed=settings.seed)
    ]


def _rendering(settings: TrainSettings) -> dict[str, Any]:
    """How a library is put into prompts where that is not the usual way: a clone has no record of
    the run, and reads it from the version."""
    usual: dict[str, Any] = {
        "domain": domains.DEFAULT,
        "domain_renders": False,
        "agent_objective": AGENT_OBJECTIVE,
        "top_k": 0,
    }
    values = {name: getattr(settings, name) for name in usual}
    return {name: value for name, value in values.items() if value != usual[name]}


def reflection_of(settings: TrainSettings, domain: Domain, prompts: Path | None) -> Reflection:
    """How a run with these settings reflects; `prompts` is a folder of other prompts."""
    return Reflection(
        summary=domain.template("summary", prompts),
        comparison=domain.template("comparison", prompts),
        lesson=domain.template("lesson", prompts),
        plan=domain.template("plan", prompts),
        agent_objective=settings.agent_objective,
        learning_objective=settings.learning_objective,
        ground_truth=settings.ground_truth,
        manner=manner_of(settings),
        seed=settings.seed,
        reconcile=domain.template("reconcile", prompts) if domain.reconcile else None,
        shared_answers=domain.shared_answers,
    )


def trial_task(
    settings: TrainSettings,
    problems: RunProblems,
    kind: str,
    domain: Domain,
    prompts: Path | None,
    seed: int = 0,
) -> EvalTask:
    """What a run's libraries are tried on: its problems of a kind, with a seed so much later."""
    how = EvalSettings.of_run(settings, kind, settings.heldout_samples)
    changes = {"prompts": str(prompts) if prompts else None, "seed": settings.seed + seed}
    most = None if kind == "sealed" else settings.heldout_problems
    return EvalTask(problems.of(kind)[:most], how.model_copy(update=changes), domain)


class Training:
    """One run at work. `run()` does what is left of it and returns the versions it made."""

    def __init__(
        self,
        session: Session,
        run: Run,
        data: RunProblems,
        *,
        domain: Domain = math.DOMAIN,
        prompts: Path | None = None,
        on_progress: OnProgress = ignore,
        keep_going: bool = True,
    ) -> None:
        self.settings = TrainSettings(**run.config)
        self.steps = plan_steps(data.train, self.settings)
        self._on_progress = on_progress
        self.progress = Progress(
            run.name,
            len(self.steps),
            self.settings.epochs,
            meter=session.meter,
            on_change=None if on_progress is ignore else on_progress,
        )
        self._session, self._store, self._run = session, session.store, run
        self._domain = domain
        if prompts is None and self.settings.prompts:
            prompts = Path(self.settings.prompts)
        self._gate: Gate | None = None
        if self.settings.gate is not None:
            task = trial_task(self.settings, data, "gate", domain, prompts)
            self._gate = Gate(session, run, task, self.settings)
        self._policy, self._reflector = session.model_calls(run.uid, run)
        self.calls = [self._policy, self._reflector]
        parts = RunParts(
            session,
            run,
            self.settings,
            domain,
            domain.template("rollout", prompts),
            reflection_of(self.settings, domain, prompts),
            self._policy,
            self._reflector,
            self.progress,
            keep_going,
            on_progress,
            prompts,
            data.train,
            data.gate,
        )
        self._parts, self._collector = parts, Collector(parts)
        self._payable = Payable(parts, data)
        policy = find_policy(self.settings.policy, project_root(self._store.path))
        self._learner = policy(parts, self._collector)

    def hand_out(self, makers: Callable[[RunParts, Makers], Makers]) -> None:
        """Has the run's groups made by others than this process: workers on other machines."""
        self._collector.hand_out(partial(makers, self._parts))

    async def run(self, *, finish: bool = True) -> list[Version]:
        """Does the steps that are left. The run's last state says how it ended, whatever comes.
        Without `finish` it is left to the caller to note that the run is finished, after the
        comparison that still belongs to it."""
        runs, run = self._store.runs, self._run
        check_branch(self._store, run.branch)  # before a call is paid for
        self.progress.first = self._done()
        runs.note(run, "resumed" if runs.states(run) else "started")
        try:
            async with equipped(
                self._domain,
                self.settings,
                ToolRecord(
                    self._session.journal, runs, scope=run.uid, run=run, shared=self._session.shared
                ),
                folder=self._session.folder,
                functions=self._session.functions,
            ) as (domain, agent):
                self._collector.here.equip(domain, agent)
                done = self._done()
                await self._collector.recall([batch for _, batch in self.steps[:done]])
                left = range(done, len(self.steps))
                versions: list[Version] = []
                while left and self._done() <= left[0]:
                    versions.append(await self._step(left[0]))
                    left = left[1:]
        except BaseException as error:
            reason = str(error) if isinstance(error, TfgrpoError) else None
            self.progress.stopping = True
            await asyncio.gather(*(calls.finish_in_flight() for calls in self.calls))
            state = "stopped" if reason is not None else "interrupted"
            with suppress(StoreError):  # the disk may be full; `error` is what matters
                runs.note(run, state, reason or self.progress.stopped_by)
            raise
        if finish:
            runs.note(run, "finished")
        self.progress.enter("finished")
        return versions

    def _done(self) -> int:
        """The number of steps that are done: all, where the last says that none has to follow."""
        name, tags, steps = self._run.name, self._store.tags(), len(self.steps)
        done = next(n for n in range(steps + 1) if f"{name}/step_{n + 1}" not in tags)
        last = self._store.version(tags[f"{name}/step_{done}"]) if done else None
        return steps if last is not None and OVER in last.meta else done

    async def _step(self, step: int) -> Version:
        epoch, batch = self.steps[step]
        progress = self.progress
        base = self._in_force(step)
        library = self._store.library(base)
        progress.step, progress.epoch, progress.library = step, epoch, len(library)
        progress.reflected = progress.lessons = progress.decided = 0
        if self._gate is not None:
            progress.trial = EvalProgress(
                0, meter=progress.meter, on_change=lambda _: progress.announce()
            )
        origin = StepOrigin(self._run.uid, step, self._evidence(step))
        left, is_short = self._left(step)
        this = Step(step, batch, base, library, origin, left, is_short)
        with contained():
            learned = await self._learner.learn(this)
        groups = learned.groups
        if (text := lost_words(groups)) is not None:
            self._on_progress(WarningNotice(f"step {step + 1}: {text}"))
        progress.enter("gate")
        trial = None
        if self._gate is not None:
            trial = await self._gate.trial(library, learned.operations, progress.trial)
        for rollout in (r for group in groups for r in group.rollouts if r.outcome == "failed"):
            await self._collector.here.record(step, rollout, library)
        version = self._commit(this, learned, trial)
        if learned.is_over and this.is_last and step + 1 < len(self.steps):
            text = f"step {step + 1} was the last: the rest of the budget pays for no further one"
            self._on_progress(WarningNotice(text))
        progress.enter("rollouts")
        progress.step = step + 1
        return version

    def _left(self, step: int) -> tuple[int, bool]:
        """The attempts that come after a step, and whether the budget is short: none where it does
        not pay for those of the next step."""
        size = self.settings.group_size
        sizes = [len(batch) * size for _, batch in self.steps[step + 1 :]]
        planned, pays = sum(sizes), self._payable.after(step, self.steps[step][1], size)
        if not sizes or pays >= planned:
            return planned, pays == inf and self._session.budget is not None
        return int(pays) if pays >= sizes[0] else 0, True

    def _in_force(self, step: int) -> Version:
        """The library this step works under, and makes sure that `step_N` names it. A person may
        have moved the branch since the last step; their version is then the one that this step is
        about, unless the step had already begun."""
        tag = f"{self._run.name}/step_{step}"
        if self._store.runs.is_pending(self._run):  # it begins with the first answer
            return self._store.version(self._run.base)
        if tag not in self._store.tags():  # somebody deleted the name
            self._store.create_tag(tag, self._store.version(self._run.base))
        tagged = self._store.version(self._store.tags()[tag])
        tip = self._store.tip(self._run.branch)
        if tagged.number != tip.number and not self._store.runs.rollouts(self._run, step):
            return self._store.create_tag(tag, tip, force=True)
        return tagged

    def _commit(self, this: Step, learned: Learned, trial: Trial | None) -> Version:
        """Appends the step's version. When somebody else has moved the branch meanwhile, operations
        that no longer apply are refused on record, and the others go onto what is there now. A
        candidate that the gate rejects goes onto a side branch, and the step's version has no
        events."""
        store, run, step, base = self._store, self._run, this.number, this.base
        store.runs.row_id(run)  # a step that asks for nothing may be its first
        failed = [*(f for c in learned.comparisons for f in c.failures), *learned.failures]
        failures = [asdict(failure) for failure in failed]
        refused = [asdict(refusal) for refusal in learned.refused]
        while True:
            tip = store.tip(run.branch)
            operations = list(learned.operations)
            lost: list[dict[str, Any]] = []
            if tip.number != base.number:
                there = store.library(tip)
                operations, lost = still_apply(operations, store.library(base), there)
                cap = self.settings.library_tokens
                operations, crowded = split_fitting(operations, there, cap)
                reason = f"no room under {cap} tokens: another writer has just filled it"
                lost += [refusal(one, reason) for one in crowded]
            meta: dict[str, Any] = {
                "run": run.name,
                "step": step,
                "epoch": self.steps[step][0],
                "stats": self._stats(learned.groups),
            }
            more = {
                "rendering": _rendering(self.settings),
                OVER: learned.is_over and step + 1 < len(self.steps),
                GAIN: learned.gain and gain_record(learned.gain),
                "refused": refused + lost,
                "failed": failures,
                "repaired": learned.repaired + sum(c.repaired for c in learned.comparisons),
            }
            meta |= {name: value for name, value in more.items() if value}
            message = _message(f"step {step + 1} of {len(self.steps)}", learned.groups)
            message += "" if operations else "; nothing learned"
            if trial is not None and self._gate is not None:
                meta["gate"] = self._gate.record(trial)
                message += f"; {read_gate(meta['gate'])}"
            author = f"tfgrpo ({self._reflector.endpoint.model})"
            try:
                for recording in recordings(store, f"commit: {message}"):
                    with recording:
                        brought, details, rejected = operations, meta, None
                        if trial is not None and trial.verdict == "rejected":
                            side = side_branch(store, run, step)
                            store.create_branch(side, tip)
                            rejected = store.commit(
                                side, operations, message=message, author=author, meta=meta
                            )
                            here = {"branch": side, "candidate": rejected.digest.hex()}
                            details = {**meta, "gate": {**meta["gate"], **here}}
                            brought = []
                        version = store.commit(
                            run.branch,
                            brought,
                            message=message,
                            author=author,
                            meta=details,
                            expected=tip,
                            tags=[f"{run.name}/step_{step + 1}"],
                        )
                        changed = {one.experience for one in brought if one.op != "KEEP"}
                        after = [one for id, one in learned.following if id in changed]
                        of_pool = (*after, *learned.candidates)
                        if of_pool or (changed and store.has_branch(pool_branch(run))):
                            append_to_pool(store, run, version, of_pool, message)
                        if trial is not None and self._gate is not None:
                            self._gate.keep(trial, [version, *([rejected] if rejected else [])])
            except StaleVersion:
                continue
            self.progress.library = len(store.library(version))
            self._on_progress(StepFinished(version))
            return version

    def _evidence(self, step: int) -> dict[str, Any]:
        parts, reflection = self._parts, self._parts.reflection
        lesson = reflection.comparison if parts.settings.policy == PAPER else reflection.lesson
        used = (parts.template, reflection.summary, lesson)
        return {
            "run": self._run.name,
            "step": step,
            "model": parts.policy.endpoint.model,
            "reflection_model": self._reflector.endpoint.model,
            "prompts": {template.name: template.digest[:16] for template in used},
        }

    def _stats(self, groups: Sequence[Group]) -> dict[str, Any]:
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        counts = {
            outcome: sum(rollout.outcome == outcome for rollout in rollouts)
            for outcome in ("truncated", "unverifiable", "failed")
        }
        mean = mean_reward(groups)
        return {
            "problems": len(groups),
            "rollouts": len(rollouts),
            "mixed": sum(group.mixed for group in groups),
            "mean_reward": None if mean is None else round(mean, 6),
        } | {name: count for name, count in counts.items() if count}


def _message(place: str, groups: Sequence[Group]) -> str:
    mean, mixed = mean_reward(groups), sum(group.mixed for group in groups)
    scored = "nothing could be scored" if mean is None else f"mean reward {mean:.2f}"
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    lost = sum(rollout.reward is None for rollout in rollouts)
    missing = f", {lost} of {len(rollouts)} attempts without a reward" if lost else ""
    return f"{place}: {scored}, {mixed} of {len(groups)} groups mixed{missing}"
