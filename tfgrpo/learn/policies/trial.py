"""The policy `trial`: what is in a library is shown to a random half of attempts, and measured.

Nothing is learned. The version that such a run begins with says which versions are on trial: one
whose experiences are to be proved, or two whose experiences are to be merged. Experiences that
these have and the run's base has not are its candidates (`learn/pool.py`); a text that a side
changed is a candidate too, in the place of the old text (`learn/rivals.py`). Every attempt is on
record with what belonged to its problem and what it was shown (`learn/assign.py`). A run with one
version on trial ends as soon as everything is decided (`evaluation/pair_verdicts.py`), and skips
problems to which only decided items belong. A run with two makes all its attempts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any, ClassVar, NamedTuple

from tfgrpo.evaluation.pair_verdicts import Judged, Pair, Verdict, judge
from tfgrpo.learn.advantage import Advantages, Effect
from tfgrpo.learn.assign import fitting
from tfgrpo.learn.collector import Batch, Collector
from tfgrpo.learn.groups import RunParts
from tfgrpo.learn.measure import Attempt, attempts, in_trial
from tfgrpo.learn.policies.protocol import Learned, Step
from tfgrpo.learn.pool import Pool, append_to_pool, open_pool
from tfgrpo.learn.rivals import challenger, of_name, replaced
from tfgrpo.runs.run_versions import pool_branch, pool_versions
from tfgrpo.store.activity.runs import Run
from tfgrpo.store.canonical import derived_id
from tfgrpo.store.damaged_values import mapping, text, texts
from tfgrpo.store.errors import SettingsError
from tfgrpo.store.history.merge import change, side, three_way
from tfgrpo.store.records import Library, Operation, Version
from tfgrpo.store.signing import recordings
from tfgrpo.store.store import Store

TRIAL = "trial"
"""In the meta of the version that a run begins with: the `versions` on trial, by digest."""


INSTEAD = "instead"
"""In the evidence of a candidate: the experience whose text a side changed to this one."""


class Trial:
    """The policy. See `Policy`."""

    prompts: ClassVar[tuple[str, ...]] = ()
    settings: ClassVar[tuple[str, ...]] = ()

    def __init__(self, parts: RunParts, collector: Collector) -> None:
        self._store, self._run, self._collector = parts.session.store, parts.run, collector
        self._size = parts.settings.group_size
        self._attempts: list[Attempt] = []
        self._measured = 0

    async def learn(self, step: Step) -> Learned:
        """Makes the attempts of a step that something undecided belongs to."""
        pool = self._pool(step)
        self._read(step.number - 1)
        called = effect_names(self._store, pool)
        tried = {
            p.id: tuple(called[id] for id in fitting(pool.candidates, p.problem))
            for p in step.batch
        }
        is_proof = len(on_trial(self._store, self._run)) == 1
        names = list(called.values())
        batch = step.batch
        if is_proof:
            coming = step.attempts_left + len(step.batch) * self._size
            undecided = self._undecided(names, coming)
            batch = [p for p in step.batch if undecided.intersection(tried[p.id])]
        groups = await self._collector.groups(
            Batch(step.number, batch, pool.library, step.is_last, step.base.number, tried)
        )
        self._read(step.number)
        over = is_proof and not self._undecided(names, step.attempts_left)
        return Learned(tuple(groups), is_over=over)

    def _read(self, step: int) -> None:
        while self._measured <= step:
            self._attempts += attempts(self._store, self._run, self._measured)
            self._measured += 1

    def _undecided(self, names: Sequence[str], left: int) -> set[str]:
        judged = verdicts(self._attempts, names, left)
        return {name for name, one in judged.items() if one.verdict == "undecided"}

    def _pool(self, step: Step) -> Pool:
        store, run = self._store, self._run
        if pool_branch(run) not in store.branches():
            store.runs.row_id(run)  # a pool belongs to a run on record
            append_to_pool(store, run, step.base, candidates(store, run), "what is on trial")
        return open_pool(store, run, step.base)


def on_trial(store: Store, run: Run) -> list[Version]:
    """The versions that are on trial in a run. Raises SettingsError for another run."""
    digests = texts(mapping(store.version(run.base).meta.get(TRIAL)).get("versions"))
    if not digests:
        raise SettingsError(
            f"nothing is on trial in run {run.name}",
            hint="`tfgrpo prove` and `tfgrpo merge --measure` make such runs",
        )
    return [store.resolve(digest) for digest in digests]


def candidates(store: Store, run: Run) -> list[Operation]:
    """The operations from a run's base to the library on trial: that of one version, or of two
    merged, where texts that both sides changed are as in the first."""
    versions = on_trial(store, run)
    base = {e.id: e.text for e in store.library(store.version(run.base))}
    first = store.library(versions[0])
    goal = {e.id: e.text for e in first.readable}
    source = dict.fromkeys(goal, versions[0])
    for theirs in versions[1:]:
        library = store.library(theirs)
        root = store.library(store.version(run.base))
        for operation in three_way(root, first, library, resolve=side("ours")).operations:
            id = str(operation.experience)
            if operation.text is None:
                goal.pop(id, None)
            elif not (id in library.by_id and library.by_id[id].redacted):
                goal[id], source[id] = operation.text, theirs
    changes = (change(id, base.get(id), goal.get(id)) for id in dict.fromkeys((*base, *goal)))
    operations = []
    for one in changes:
        if one is not None:
            id = str(one.experience)
            evidence = {"of": source.get(id, versions[0]).digest.hex()}
            if one.op == "MODIFY":
                evidence[INSTEAD] = id
                one = Operation("ADD", derived_id(TRIAL, id, one.text), one.text)
            operations.append(one._replace(evidence=evidence))
    return operations


def effect_names(store: Store, pool: Pool) -> dict[str, str]:
    """What the effects of a trial's candidates are called, by factor: of a text that a side
    changed, with what it stands in for."""
    rows = {e.row: e.id for e in pool.candidates}
    evidence = {rows[row]: event.evidence or {} for row, event in store.events_at(rows).items()}
    places = {id: text(one.get(INSTEAD)) for id, one in evidence.items()}
    there = pool.in_force.by_id
    return {
        factor: challenger(factor, place, there[place].text)
        if (place := places.get(factor, "")) in there
        else factor
        for factor in pool.names[0]
    }


def verdicts(given: Sequence[Attempt], names: Sequence[str], left: int) -> dict[str, Judged]:
    """The verdict on each item from the attempts, by its name; `left` attempts may still come. What
    helps must have half of that effect where attempts that could not be judged count as 0: an item
    may make what is wrong unreadable. Attempts are taken by step, problem and number, in whatever
    order they came: so a run that looks as it goes, a resumed run, and a reader of the record see
    the same."""
    pairs: dict[tuple[int, str, int], list[Attempt]] = {}
    for one in sorted(given, key=lambda a: (a.step, a.problem, a.sample)):
        pairs.setdefault((one.step, one.problem, one.sample // 2), []).append(one)
    differences: dict[str, list[Pair]] = {name: [] for name in names}
    at_worst: dict[str, list[float]] = {name: [] for name in names}
    for (step, problem, _), pair in pairs.items():
        if len(pair) == 2:
            for name in differences.keys() & set(pair[0].belongs) & set(pair[1].belongs):
                hidden = [of_name(name) in one.without for one in pair]
                if hidden[0] == hidden[1]:
                    continue
                shown, other = pair if hidden[1] else pair[::-1]
                if replaced(name) in other.without:  # neither wording was there
                    continue
                at_worst[name].append((shown.reward or 0.0) - (other.reward or 0.0))
                if shown.reward is not None and other.reward is not None:
                    differences[name].append(Pair(problem, step, shown.reward - other.reward))
    coming = left / len(given) if given else math.inf
    judged = {
        name: judge(values, len(values) * coming if given else left)
        for name, values in differences.items()
    }
    undecided: Verdict = "undecided" if left > 0 else "too small"
    return {
        name: one._replace(verdict=undecided)
        if one.verdict == "helps" and fmean(at_worst[name]) < one.effect / 2
        else one
        for name, one in judged.items()
    }


class Tried(NamedTuple):
    """The result of a trial for one item: its name, its ids in a library, its text, the verdict
    with the effect from pairs of attempts, and the effect by the learner's estimator (None where it
    was in no attempt)."""

    name: str
    ids: tuple[str, ...]
    text: str
    judged: Judged
    belief: Effect | None

    @property
    def figures(self) -> dict[str, Any]:
        """What an event about it says in its evidence."""
        values = (self.judged.effect, self.judged.low, self.judged.high)
        belief = self.belief
        return {
            "verdict": self.judged.verdict,
            "effect": [round(value, 6) for value in values],
            "pairs": self.judged.pairs,
            "chance": round(belief.chance, 6) if belief else 0.0,
            "attempts": [belief.shown, belief.hidden] if belief else [0, 0],
        }


def results(store: Store, run: Run) -> list[Tried]:
    """What a trial that is over came to, in library order."""
    advantages = Advantages()
    advantages.add(in_trial(store, run))
    beliefs = advantages.effects()
    pool = _first_pool(store, run)
    called = effect_names(store, pool)
    judged = verdicts(list(attempts(store, run)), list(called.values()), 0)
    there = pool.library.by_id
    tried = []
    for factor, name in called.items():
        words = " / ".join(there[id].text for id in pool.factors[factor])
        place = replaced(name)
        ids = pool.factors[factor] if place is None else (place,)
        tried.append(Tried(name, ids, words, judged[name], beliefs.get(name)))
    return tried


def _first_pool(store: Store, run: Run) -> Pool:
    """A run's pool as it began: later versions lack what was given up."""
    versions, base = pool_versions(store, run), store.version(run.base)
    in_force: Library = store.library(base)
    library = store.library(versions[0]) if versions else in_force
    return Pool(pool_branch(run), base, in_force, library)


def conclude(store: Store, run: Run, model: str) -> tuple[Version, list[Tried]]:
    """Records the result of a proof, once: items that help as ADDs on the run's branch, the rest as
    DELETEs on its branch of candidates, each with its figures. Returns that version."""
    tried = results(store, run)
    tip = store.tip(run.branch)
    if "proof" in tip.meta:
        return tip, tried
    pool = _first_pool(store, run)
    events = store.events_at(e.row for e in pool.candidates)
    origin = {"run": run.name, "model": model, "candidates": pool.name}
    adds, gone = [], []
    for one in tried:
        evidence = {**origin, **one.figures}
        reason = f"its effect on the reward of {model}: {one.judged}"
        for id in one.ids:
            source = events[pool.library.by_id[id].row].evidence or {}
            grounds = {**source, **evidence}
            if one.judged.verdict == "helps":
                text = pool.library.by_id[id].text
                adds.append(Operation("ADD", id, text, reason, grounds))
            else:
                gone.append(Operation("DELETE", id, None, reason, grounds))
    helps = sum(one.judged.verdict == "helps" for one in tried)
    message = f"proof: {helps} of {len(tried)} help {model}"
    meta: dict[str, Any] = {
        "run": run.name,
        "proof": {
            "of": store.version(run.base).meta[TRIAL]["versions"],
            "model": model,
            "data": run.config["data"],
            "data_digest": run.config["data_digest"],
            "attempts": len(in_trial(store, run)),
        },
    }
    for recording in recordings(store, message):
        with recording:
            version = store.commit(run.branch, adds, message=message, expected=tip, meta=meta)
            append_to_pool(store, run, version, gone, message)
    return version, tried
