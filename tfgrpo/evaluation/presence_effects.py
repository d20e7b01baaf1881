"""The effect of presence on the reward: least squares within strata, with intervals robust to
attempts at one problem being alike (CR1). An interval is wider the fewer problems there are at
which some attempts had the experience and others had not.

Attempts are read twice, for sums and for residuals. Memory grows with the square of the number of
experiences, with that number times the problems, and with the open strata, not with the attempts.
The store cannot add up residuals, which need whole rows.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tfgrpo.evaluation.statistics import APART, NOISE, t_quantile
from tfgrpo.wording import with_bounds

Floats: TypeAlias = NDArray[np.float64]
Places: TypeAlias = NDArray[np.intp]
Flags: TypeAlias = NDArray[np.bool_]

Verdict: TypeAlias = Literal["helpful", "harmful", "inconclusive"]


class Credit(NamedTuple):
    """The effect of one experience's presence, in units of reward, with its 95 % interval; `shrunk`
    is the one to rank by. `present` and `absent` count rollouts."""

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
        return f"{with_bounds(self.effect, self.low, self.high)}, {self.verdict}"


class Chunk(NamedTuple):
    """Some attempts. `columns` are the experiences of `present`'s columns, `known` counts the
    attempts whose library had each. Strata are named within a `lot`, estimates made for each
    `group`; `part` is the first estimate that attempts count for, and parts ascend."""

    group: str
    part: int
    lot: Hashable
    columns: Places
    present: Floats
    known: Floats
    strata: Sequence[str]
    problems: Sequence[str]
    rewards: Floats


class LotEnd(NamedTuple):
    """A mark that no later chunk has attempts of a lot."""

    lot: Hashable


class Estimate(NamedTuple):
    """The credits that attempts give, best first, and at how many problems they were."""

    problems: int
    credits: list[Credit]


def estimate(
    ids: Sequence[str],
    read: Callable[[], Iterable[Chunk | LotEnd]],
    *,
    parts: int = 1,
    level: float = 0.95,
) -> dict[str, list[Estimate]]:
    """Each group's estimates from the attempts of its first part, its first two, and so on, for
    experiences that varied at two problems. `read` is called twice, with the same attempts."""
    groups: dict[str, _Group] = {}
    for item in read():
        if isinstance(item, LotEnd):
            for group in groups.values():
                group.end(item.lot)
            continue
        if item.group not in groups:
            groups[item.group] = _Group(len(ids), parts)
        groups[item.group].sum(item)
    for group in groups.values():
        group.solve()
    if any(solution is not None for group in groups.values() for solution in group.solved):
        for item in read():
            if isinstance(item, LotEnd):
                for group in groups.values():
                    group.end(item.lot)
            else:
                groups[item.group].score(item)
    return {name: group.estimates(ids, level) for name, group in groups.items()}


@dataclass(slots=True)
class _Lot:
    """The strata of a lot: the place of each, its problem's, and its sums of presence, attempts and
    what is taken of each attempt (a column for each)."""

    columns: Places
    places: dict[str, int] = field(default_factory=dict)
    problems: list[int] = field(default_factory=list)
    present: list[Floats] = field(default_factory=list)
    count: list[float] = field(default_factory=list)
    taken: list[Floats] = field(default_factory=list)

    def add(self, chunk: Chunk, codes: dict[str, int], values: Floats) -> None:
        for stratum, problem in zip(chunk.strata, chunk.problems, strict=True):
            if stratum not in self.places:
                self.places[stratum] = len(self.places)
                self.problems.append(codes[problem])
        at = np.array([self.places[stratum] for stratum in chunk.strata], dtype=np.intp)
        there, at = np.unique(at, return_inverse=True)
        counts = np.bincount(at, minlength=len(there))
        sums, taken = _summed(at, chunk.present, len(there)), _summed(at, values, len(there))
        for n, place in enumerate(there.tolist()):
            if place == len(self.count):
                self.present.append(sums[n])
                self.count.append(float(counts[n]))
                self.taken.append(taken[n])
            else:
                self.present[place] = self.present[place] + sums[n]
                self.count[place] += float(counts[n])
                self.taken[place] = self.taken[place] + taken[n]

    def sums(self) -> tuple[Floats, Floats, Floats]:
        """The sums of presence, of what is taken, and the attempts, a row a stratum."""
        count = np.array(self.count)[:, None]
        return np.array(self.present), np.array(self.taken), count


class _Solution(NamedTuple):
    """Effects (0 for what did not vary) of some attempts, and what their covariance needs.
    `problems` counts those at which each of the `varied` did."""

    varied: Places
    bread: Floats
    effects: Floats
    attempts: int
    strata: int
    problems: Places
    present: Floats
    known: Floats


class _Group:
    """The sums of one group of attempts: first for its effects, then for their covariance."""

    def __init__(self, size: int, parts: int) -> None:
        self._parts, self._part = parts, 0
        self._codes: dict[str, int] = {}
        self._lots: dict[Hashable, _Lot] = {}
        self._gram = np.zeros((size, size))
        self._moment = np.zeros(size)
        self._present, self._known = np.zeros(size), np.zeros(size)
        self._varied = np.zeros((0, size), dtype=bool)
        self._attempts = self._strata = 0
        self._counts: list[int] = []
        self.solved: list[_Solution | None] = []
        self._scores: list[Floats | None] = []
        self._whole: list[Floats | None] = []

    # effects:

    def sum(self, chunk: Chunk) -> None:
        """Adds attempts to what the effects are worked out from."""
        while self._part < chunk.part:
            self._solve_part()
        for problem in chunk.problems:
            self._codes.setdefault(problem, len(self._codes))
        x, y = chunk.present, chunk.rewards
        square = np.ix_(chunk.columns, chunk.columns)
        self._gram[square] += x.T @ x
        self._moment[chunk.columns] += x.T @ y
        self._present[chunk.columns] += x.sum(axis=0)
        self._known[chunk.columns] += chunk.known
        self._attempts += len(y)
        lot = self._lots.setdefault(chunk.lot, _Lot(chunk.columns))
        lot.add(chunk, self._codes, y[:, None])

    def end(self, name: Hashable) -> None:
        """Subtracts the means of a lot's strata, which are complete, in either reading."""
        lot = self._lots.pop(name, None)
        if lot is not None and self._scores:
            for part in range(self._part, self._parts):
                _take_means(lot, part, self._scores[part])
        elif lot is not None:
            self._varied = self._seen(self._varied)
            _centre(lot, self._gram, self._moment, self._varied)
            self._strata += len(lot.places)

    def solve(self) -> None:
        """Ends the first reading."""
        while self._part < self._parts:
            self._solve_part()
        self._lots, self._part = {}, 0
        size = len(self._codes), len(self._present)
        self._scores = [None if s is None else np.zeros(size) for s in self.solved]
        self._whole = [None for _ in self.solved]

    def _solve_part(self) -> None:
        self._part += 1
        gram, moment, seen = self._gram.copy(), self._moment.copy(), self._seen(self._varied)
        for lot in self._lots.values():
            _centre(lot, gram, moment, seen)
        self._counts.append(len(self._codes))
        varied = np.flatnonzero(gram.diagonal() > 1e-9)
        if not len(varied) or len(self._codes) < 2:
            self.solved.append(None)
            return
        bread: Floats = np.linalg.pinv(gram[np.ix_(varied, varied)]).astype(np.float64)
        effects = np.zeros(len(moment))
        effects[varied] = bread @ moment[varied]
        strata = self._strata + sum(len(lot.places) for lot in self._lots.values())
        self.solved.append(
            _Solution(
                varied,
                bread,
                effects,
                self._attempts,
                strata,
                seen.sum(axis=0)[varied],
                self._present.copy(),
                self._known.copy(),
            )
        )

    def _seen(self, varied: Flags) -> Flags:
        """A copy of where experiences varied, with a row for each problem."""
        return np.pad(varied, ((0, len(self._codes) - len(varied)), (0, 0)))

    # their covariance:

    def score(self, chunk: Chunk) -> None:
        """Adds the residuals of attempts, by problem."""
        while self._part < chunk.part:
            self._end_part()
        x, y = chunk.present, chunk.rewards
        problems = np.array([self._codes[problem] for problem in chunk.problems], dtype=np.intp)
        there, at = np.unique(problems, return_inverse=True)
        left = np.zeros((len(y), self._parts))
        for part, solution in enumerate(self.solved):
            scores = self._scores[part]
            if part < chunk.part or solution is None or scores is None:
                continue
            left[:, part] = y - x @ solution.effects[chunk.columns]
            sums = _summed(at, x * left[:, part, None], len(there))
            scores[np.ix_(there, chunk.columns)] += sums
        lot = self._lots.setdefault(chunk.lot, _Lot(chunk.columns))
        lot.add(chunk, self._codes, left)

    def _end_part(self) -> None:
        """Has the scores of a part whole: strata that are open go on for the later ones."""
        scores = self._scores[self._part]
        for lot in self._lots.values():
            _take_means(lot, self._part, scores)
        self._whole[self._part], self._scores[self._part] = scores, None
        self._part += 1

    def estimates(self, ids: Sequence[str], level: float) -> list[Estimate]:
        """Ends the second reading; returns the estimates."""
        while self._part < self._parts:
            self._end_part()
        return [
            Estimate(count, [] if s is None or w is None else _credits(s, w, ids, level))
            for count, s, w in zip(self._counts, self.solved, self._whole, strict=True)
        ]


def _centre(lot: _Lot, gram: Floats, moment: Floats, varied: Flags) -> None:
    """Takes the means of a lot's strata off sums, and notes at which problems there was a
    difference."""
    present, rewards, count = lot.sums()
    gram[np.ix_(lot.columns, lot.columns)] -= (present / count).T @ present
    moment[lot.columns] -= present.T @ (rewards / count)[:, 0]
    rows, columns = np.nonzero((present > 0) & (present < count))
    varied[np.array(lot.problems, dtype=np.intp)[rows], lot.columns[columns]] = True


def _take_means(lot: _Lot, part: int, scores: Floats | None) -> None:
    if scores is None:
        return
    present, left, count = lot.sums()
    there, at = np.unique(np.array(lot.problems, dtype=np.intp), return_inverse=True)
    sums = _summed(at, present * (left[:, part, None] / count), len(there))
    scores[np.ix_(there, lot.columns)] -= sums


def _summed(at: Places, values: Floats, size: int) -> Floats:
    sums = np.empty((size, values.shape[1]))
    for column in range(values.shape[1]):
        sums[:, column] = np.bincount(at, values[:, column], size)
    return sums


def _credits(solution: _Solution, scores: Floats, ids: Sequence[str], level: float) -> list[Credit]:
    """Effects with intervals from the cluster-robust covariance, strata's means counted in."""
    varied, bread, problems = solution.varied, solution.bread, solution.problems
    attempts, beta = solution.attempts, solution.effects[solution.varied]
    beta = np.where(np.abs(beta) > NOISE, beta, 0.0)  # equal rewards leave rounding
    left = max(1, attempts - len(varied) - solution.strata)
    freedom = np.maximum(problems - 1, 1)
    scores = scores[:, varied]
    covariance: Floats = attempts / left * bread @ (scores.T @ scores) @ bread
    variance = np.maximum(covariance.diagonal(), 0.0)  # rounding may take it below zero
    sampled = variance * (1 + 1 / freedom)
    error = np.sqrt(sampled + APART / np.maximum(problems, 1) ** 2)
    t = {n: t_quantile(0.5 + level / 2, n) for n in set(freedom.tolist())}
    wide = error * [t[n] for n in freedom.tolist()]
    known = problems > 1  # one problem leaves nothing unexplained
    shrink = np.zeros_like(beta)
    shrink[known] = _shrinkage(beta[known], sampled[known], error[known] ** 2)
    absent = solution.known - solution.present
    credits = [
        Credit(
            experience=ids[i],
            effect=float(beta[k]),
            low=float(beta[k] - wide[k]),
            high=float(beta[k] + wide[k]),
            shrunk=float(beta[k] * shrink[k]),
            present=round(solution.present[i]),
            absent=round(absent[i]),
        )
        for k, i in enumerate(varied)
        if known[k]
    ]
    return sorted(credits, key=lambda credit: (-credit.shrunk, credit.experience))


def _shrinkage(beta: Floats, sampled: Floats, noise: Floats) -> Floats:
    """Shares of variance that are no noise: true effects normal around 0, with a spread by the
    method of moments, for which the `sampled` variance counts alone."""
    spread = max(0.0, float(np.sum(beta**2 - sampled) / max(len(beta), 1)))
    return spread / (spread + noise)
