"""Credit: what the presence of each experience does to the reward.

Training with dropout leaves a random part of the library out of each rollout's prompt. Who was
left out is chance, so the difference an experience makes can be read off the rollouts that were
paid for anyway: rewards are regressed on presence within strata (the rollouts of one problem
under one library), which takes out how hard a problem is. Intervals are robust to rewards of
one problem being alike (cluster-robust covariance, CR1, Student's t with problems - 1 degrees
of freedom; Cameron and Miller, 2015). Estimates are also shrunk towards their common mean 0 by
empirical Bayes, so that a ranking of many experiences is not led by the noisiest one.

What is credited is an experience with the text it has at a version: what an earlier text of it
did is not held for or against it. Attempts under a strategy, and those that confirm a lesson,
had other prompts, and count for nothing here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from tfgrpo.data.problems import KIND
from tfgrpo.evaluation.statistics import t_quantile
from tfgrpo.rollout.attempt import CONFIRMING
from tfgrpo.store.canonical import digest
from tfgrpo.store.history import first_parents
from tfgrpo.store.records import Experience, Library, Version
from tfgrpo.store.runs import Run
from tfgrpo.store.store import Store

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]

Verdict: TypeAlias = Literal["helpful", "harmful", "inconclusive"]


class Observation(NamedTuple):
    """One rollout, as the estimator sees it.

    `stratum` names the problem and library it was drawn under, `problem` its problem alone;
    `library` are the ids that were in force, `without` those that were left out of the prompt;
    `kind` is what its problem's row says of its kind.
    """

    stratum: str
    problem: str
    library: Sequence[str]
    without: frozenset[str]
    reward: float
    kind: str = ""


class Credit(NamedTuple):
    """The effect of one experience's presence on the reward, in units of reward.

    `effect` with its 95 % interval is the plain estimate, `shrunk` the one to rank by. `present`
    and `absent` count rollouts.
    """

    experience: str
    effect: float
    low: float
    high: float
    shrunk: float
    present: int
    absent: int

    @property
    def verdict(self) -> Verdict:
        """Helpful or harmful when the interval leaves 0 out, else inconclusive."""
        return "helpful" if self.low > 0 else "harmful" if self.high < 0 else "inconclusive"

    def __str__(self) -> str:
        interval = f"[{self.low:+.3f}, {self.high:+.3f}]"
        return f"{self.effect:+.3f} {interval}, {self.verdict}"


@dataclass(frozen=True, slots=True)
class Credited:
    """An experience of a library with its label and its credit; None where nothing is known."""

    label: str
    experience: Experience
    credit: Credit | None

    def __str__(self) -> str:
        return "nothing known" if self.credit is None else str(self.credit)

    @property
    def in_prompt(self) -> str:
        """The same as the controller's prompt words it, which the journal's keys cover."""
        return str(self).replace("inconclusive", "undecided")


def left_out(
    library: Sequence[str], rate: float, seed: int, call_path: tuple[str | int, ...]
) -> frozenset[str]:
    """Returns the ids that one rollout goes without: each with chance `rate`, by a coin of its own.

    The coins follow from seed, call path and place in the library, so a run that is resumed
    throws the same ones, and so does another run with the same seed.
    """
    limit = int(rate * 2**32)
    return frozenset(
        id
        for place, id in enumerate(library)
        if int.from_bytes(digest(["tfgrpo.dropout", seed, *call_path, place])[:4], "big") < limit
    )


def credits(
    store: Store, version: Version, *, upto: tuple[Run, int] | None = None
) -> list[Credited]:
    """Returns the credit of each experience of a version's library, best first, the unknown last.

    With `upto`, a run at work and its step, that run counts too, up to that step.
    """
    return _credited(store.library(version), list(_observations(store, version, upto)))


def credits_by_kind(
    store: Store, version: Version, *, upto: tuple[Run, int] | None = None
) -> dict[str, list[Credited]]:
    """Returns the same for each kind of problems by itself, kinds in the order of their names.

    Kinds are what the field says that a run was told of as `kind`; without one there are none.
    An experience may help one kind and harm another, which the effect over all of them hides.
    """
    library = store.library(version)
    by_kind: dict[str, list[Observation]] = {}
    for one in _observations(store, version, upto):
        if one.kind:
            by_kind.setdefault(one.kind, []).append(one)
    return {kind: _credited(library, by_kind[kind]) for kind in sorted(by_kind)}


def unconfirmed(store: Store, version: Version) -> dict[str, int]:
    """Returns for each experience of a version's library how many steps of runs have passed since
    one added, changed or kept it."""
    left = {experience.id for experience in store.library(version)}
    ages: dict[str, int] = {}
    steps = 0
    for ancestor in first_parents(store, version):
        if not left:
            break
        for event in store.events(ancestor):
            if event.experience in left:
                left.discard(event.experience)
                ages[event.experience] = steps
        steps += "step" in ancestor.meta
    return ages | dict.fromkeys(left, steps)


def _credited(library: Library, observations: Sequence[Observation]) -> list[Credited]:
    known = {credit.experience: credit for credit in estimate_effects(observations)}
    listed = [
        Credited(label, library.by_id[id], known.get(unit(library.by_id[id])))
        for label, id in library.labels.items()
    ]
    return sorted(listed, key=lambda one: -one.credit.shrunk if one.credit else math.inf)


def _observations(
    store: Store, version: Version, upto: tuple[Run, int] | None
) -> Iterator[Observation]:
    return (one.observation for one in recorded_observations(store, version, upto=upto))


class RecordedObservation(NamedTuple):
    """An observation with the run, the step (from 0) and the version it was drawn under."""

    run: str
    step: int
    version: int
    observation: Observation


def recorded_observations(
    store: Store, version: Version, *, upto: tuple[Run, int] | None = None
) -> Iterator[RecordedObservation]:
    """Yields what the credit of a version's library is read from: the rollouts of the runs in its
    history that had dropout, by run and step."""
    libraries: dict[int, Library] = {}
    names = {ancestor.meta.get("run") for ancestor in first_parents(store, version)}
    if upto is not None:
        names.add(upto[0].name)
    for run in (run for run in store.runs.all() if run.name in names):
        if not run.config.get("dropout"):
            continue
        for row in store.runs.rollouts(run):
            if upto is not None and upto[0].uid == run.uid and row.step > upto[1]:
                continue
            if row.reward is None or row.sample >= CONFIRMING or "hint" in row.verdict:
                continue
            if row.version not in libraries:
                libraries[row.version] = store.library(store.version(row.version))
            library = libraries[row.version]
            without = set(row.verdict.get("without", ()))
            observation = Observation(
                stratum=f"{run.name}/{row.version}/{row.problem}",
                problem=row.problem,
                library=[unit(experience) for experience in library],
                without=frozenset(unit(e) for e in library if e.id in without),
                reward=row.reward,
                kind=str(row.verdict.get(KIND, "")),
            )
            yield RecordedObservation(run.name, row.step, row.version, observation)


def unit(experience: Experience) -> str:
    """Returns what is credited: an experience with the event that gave it its text."""
    return f"{experience.id}@{experience.row}"


def estimate_effects(observations: Sequence[Observation], *, level: float = 0.95) -> list[Credit]:
    """Returns the credit of each experience that was both present and absent, best first.

    An experience that was never left out while others of its stratum held it cannot be told
    apart from its problems, and has no estimate. With fewer than two problems there is none.
    """
    return estimates_upto(observations, [len(observations)], level=level)[0]


def estimates_upto(
    observations: Sequence[Observation], ends: Sequence[int], *, level: float = 0.95
) -> list[list[Credit]]:
    """Returns the same for the first so many observations, for each of some numbers of them.

    They are laid out once for all, which takes most of the time.
    """
    design = _laid_out(observations)
    return [_estimates(design.first(end), level) for end in ends]


class _Design(NamedTuple):
    """Observations as matrices: a row for each, a column for each of `ids`. `known` says whether
    the library had it, `present` whether the prompt did."""

    ids: list[str]
    known: Floats
    present: Floats
    rewards: Floats
    strata: NDArray[np.intp]
    problems: NDArray[np.intp]

    def first(self, count: int) -> _Design:
        """Returns the first rows, which are views of all."""
        return _Design(
            self.ids,
            self.known[:count],
            self.present[:count],
            self.rewards[:count],
            self.strata[:count],
            self.problems[:count],
        )


def _laid_out(observations: Sequence[Observation]) -> _Design:
    import numpy as np

    ids = sorted({id for one in observations for id in one.library})
    column = {id: i for i, id in enumerate(ids)}
    present = np.zeros((len(observations), len(ids)))
    known = np.zeros((len(observations), len(ids)))
    for row, one in enumerate(observations):
        there = [column[id] for id in one.library]
        known[row, there] = present[row, there] = 1.0
        present[row, [column[id] for id in one.without if id in column]] = 0.0
    return _Design(
        ids,
        known,
        present,
        np.array([one.reward for one in observations]),
        _codes([one.stratum for one in observations]),
        _codes([one.problem for one in observations]),
    )


def _estimates(design: _Design, level: float) -> list[Credit]:
    import numpy as np

    ids, known, present, rewards = design.ids, design.known, design.present, design.rewards
    strata, clusters = _codes(design.strata), _codes(design.problems)
    problems = len(set(clusters.tolist()))
    if not ids or problems < 2:
        return []
    x, y = _within(present, strata), _within(rewards[:, None], strata)[:, 0]
    varied = np.flatnonzero((x**2).sum(axis=0) > 1e-9)
    if not len(varied):
        return []
    x = x[:, varied]
    bread: Floats = np.linalg.pinv(x.T @ x).astype(np.float64)
    beta = bread @ (x.T @ y)
    absorbed = int(strata.max()) + 1
    error = np.sqrt(_covariance(x, y - x @ beta, clusters, bread, absorbed).diagonal())
    t = t_quantile(0.5 + level / 2, problems - 1)
    shrink = _shrinkage(beta, error)
    credits = [
        Credit(
            experience=ids[i],
            effect=float(beta[k]),
            low=float(beta[k] - t * error[k]),
            high=float(beta[k] + t * error[k]),
            shrunk=float(beta[k] * shrink[k]),
            present=int(present[:, i].sum()),
            absent=int((known[:, i] - present[:, i]).sum()),
        )
        for k, i in enumerate(varied)
    ]
    return sorted(credits, key=lambda credit: (-credit.shrunk, credit.experience))


def _codes(names: Sequence[str] | NDArray[np.intp]) -> NDArray[np.intp]:
    import numpy as np

    return np.unique(np.asarray(names), return_inverse=True)[1]


def _within(values: Floats, strata: NDArray[np.intp]) -> Floats:
    """Returns the values less the mean of their stratum, column by column."""
    import numpy as np

    sums = np.zeros((strata.max() + 1, values.shape[1]))
    np.add.at(sums, strata, values)
    counts = np.bincount(strata)[:, None]
    centred: Floats = values - (sums / counts)[strata]
    return centred


def _covariance(
    x: Floats, residuals: Floats, clusters: NDArray[np.intp], bread: Floats, absorbed: int
) -> Floats:
    """Returns the cluster-robust covariance of least squares; `absorbed` are the strata's means."""
    import numpy as np

    n, k = x.shape
    groups = int(clusters.max()) + 1
    scores = np.zeros((groups, k))
    np.add.at(scores, clusters, x * residuals[:, None])
    freedom = max(1, n - k - absorbed)
    scale = groups / (groups - 1) * n / freedom if groups > 1 else math.inf
    covariance: Floats = scale * bread @ (scores.T @ scores) @ bread
    return covariance


def _shrinkage(beta: Floats, error: Floats) -> Floats:
    """Returns the factor of each estimate: the share of its variance that is not noise.

    True effects are taken to be normal around 0, their variance by the method of moments.
    """
    import numpy as np

    spread = max(0.0, float(np.mean(beta**2 - error**2)))
    noise = error**2
    factor: Floats = np.divide(spread, spread + noise, out=np.zeros_like(noise), where=noise > 0)
    return factor
