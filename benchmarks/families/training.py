"""One run of the product on a family, and what its library is worth on the test problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import tfgrpo
from benchmarks.families.family import Family, Given, Row
from benchmarks.families.results import (
    Result,
    ResultFile,
    as_text,
    asked_from,
    code_digest,
    mean,
    rows_digest,
)
from tfgrpo.evaluation.statistics import interval
from tfgrpo.learn.fitted_defaults import LOCAL_TOP_K, ONE_ANSWER, local_sizes
from tfgrpo.settings import LOCAL_TOKENS, SHORT_ANSWERS

FILE = "trained.jsonl"


@dataclass(frozen=True, slots=True)
class Cell:
    """A family, or given problems, and a seed, which draws the problems and seeds the run.

    `arm` is `default` or `paper`; `gated` says whether the development problems are the run's
    gate. `train`, `test` and `samples` are how many problems and attempts there are. `is_local`
    says that the endpoint's model gets the settings of a local one.
    """

    family: Family | Given
    seed: int
    arm: str = "default"
    gated: bool = False
    train: int | None = None
    test: int | None = None
    samples: int = 2
    model: Mapping[str, Any] = field(default_factory=dict)
    is_local: bool = False

    @property
    def fitted(self) -> dict[str, Any]:
        """What the product chooses for a local model (`tfgrpo/learn/fitted_defaults.py`)."""
        if not self.is_local or self.arm != "default":
            return {}
        rows = self.rows("train", self.train)
        return {**local_sizes(len(rows), 0, self.family.domain), **self.shown}

    @property
    def shown(self) -> dict[str, Any]:
        """What of that an attempt at a test problem has too."""
        if not self.is_local:
            return {}
        kind = self.family.domain.partition(":")[0]
        top_k = {"top_k": LOCAL_TOP_K} if kind in ONE_ANSWER else {}
        return {"max_tokens": SHORT_ANSWERS.get(kind, LOCAL_TOKENS), **top_k}

    def rows(self, part: Any, count: int | None = None) -> list[Row]:
        """Returns problems with their answers as texts."""
        drawn = self.family.draw(part, self.seed, count)
        return [{**row, "answer": as_text(row["answer"])} for row in drawn]

    def key(self) -> Result:
        """Returns all that decides its result. The model's address does not: as in the product,
        what was begun goes on at another."""
        train, test = self.rows("train", self.train), self.rows("test", self.test)
        return {
            "family": self.family.name,
            "seed": self.seed,
            "arm": f"{self.arm}{', gated' if self.gated else ''}",
            "model": str(self.model.get("model", "default")),
            "problems": rows_digest(train, test, self.rows("dev") if self.gated else []),
            "domain": self.family.domain,
            "settings": dict(self.family.settings),
            "sizes": [len(train), len(test)],
            "samples": self.samples,
            "local": self.is_local,
            "code": code_digest(),
        }


def run_cell(results: Path, cell: Cell) -> Result:
    """Trains and scores one cell, or what is left of it, or reads its result.

    Raises TfgrpoError; the same call goes on where it was cut off.
    """
    key, file = cell.key(), ResultFile(results / FILE)
    if (done := file.find(key)) is not None:
        return done
    parts = (cell.family.name, cell.seed, key["arm"], rows_digest(key))
    settings: dict[str, Any] = {
        **cell.family.settings,
        "domain": cell.family.domain,
        **asked_from(results, cell.model, *parts),
    }
    chosen: dict[str, Any] = {} if cell.arm == "default" else {"preset": cell.arm}
    if cell.gated:
        chosen["gate"] = cell.rows("dev")
    began = monotonic()
    learned = tfgrpo.train_sync(
        cell.rows("train", cell.train),
        run="cell",
        seed=cell.seed,
        keep_going=True,
        **cell.fitted,
        **settings,
        **chosen,
    )
    trained = monotonic() - began
    tests = cell.rows("test", cell.test)
    asked = {"samples": cell.samples, "temperature": 0.7, **cell.shown, **settings}
    scores = tfgrpo.evaluate_sync(tests, library="HEAD", against="v0", **asked)
    by_version = {one.version.number: by_problem(one.samples) for one in scores.libraries}
    empty = by_version[0]
    found = by_problem(scores.libraries[0].samples)
    gains = {problem: found[problem] - empty[problem] for problem in found if problem in empty}
    estimate = interval(list(gains.values()))
    usage = learned.cost.usage
    result = {
        **key,
        "empty": mean(list(empty.values())),
        "learned": mean(list(found.values())),
        "gain": [estimate.mean, estimate.low, estimate.high],
        "gains": {problem: round(gain, 4) for problem, gain in gains.items()},
        "library": [experience.text for experience in learned.library],
        "calls": usage.calls,
        "tokens": usage.prompt_tokens + usage.completion_tokens,
        "seconds": [round(trained, 1), round(monotonic() - began - trained, 1)],
    }
    file.add(result)
    return result


def by_problem(samples: Sequence[Any]) -> dict[str, float]:
    """Returns each problem's mean reward; samples that could not be judged are left out."""
    rewards: dict[str, list[float]] = {}
    for sample in samples:
        if sample.reward is not None:
            rewards.setdefault(sample.problem, []).append(sample.reward)
    return {problem: mean(values) for problem, values in rewards.items()}
