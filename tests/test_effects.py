"""Credit from sums: what it comes to beside matrices of all attempts, and what a step is told."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tfgrpo.evaluation.credit import Observation, RecordedAttempts, estimate_effects, unit
from tfgrpo.evaluation.presence_effects import Credit
from tfgrpo.evaluation.statistics import APART, t_quantile
from tfgrpo.rollout.attempt import CONFIRMING
from tfgrpo.store import Operation, Store
from tfgrpo.store.activity.runs import RolloutRow


def by_matrices(seen: list[Observation], level: float) -> dict[str, tuple[float, ...]]:
    """Returns effects by the textbook, from all attempts at once."""
    ids = sorted({id for one in seen for id in one.library})
    x = np.array([[float(i in one.library and i not in one.without) for i in ids] for one in seen])
    y = np.array([one.reward for one in seen])
    _, strata = np.unique([one.stratum for one in seen], return_inverse=True)
    names, problems = np.unique([one.problem for one in seen], return_inverse=True)
    there = np.zeros((len(names), len(ids)), dtype=bool)
    for stratum in range(strata.max() + 1):
        here = strata == stratum
        x[here] -= x[here].mean(axis=0)
        there[problems[here][0]] |= (x[here] ** 2).sum(axis=0) > 1e-9
        y[here] -= y[here].mean()
    varied = np.flatnonzero((x**2).sum(axis=0) > 1e-9)
    x = x[:, varied]
    bread = np.linalg.pinv(x.T @ x)
    beta = bread @ x.T @ y
    left = x * (y - x @ beta)[:, None]
    scores = np.array([left[problems == n].sum(axis=0) for n in range(len(names))])
    freedom = max(1, len(y) - x.shape[1] - strata.max() - 1)
    clusters = there.sum(axis=0)[varied]
    known = clusters > 1
    beta, bread, varied, clusters = beta[known], bread[known], varied[known], clusters[known]
    scale = clusters / (clusters - 1) * len(y) / freedom
    sampled = scale * (bread @ scores.T @ scores @ bread.T).diagonal()
    spread = max(0.0, float(np.mean(beta**2 - sampled)))
    error = np.sqrt(sampled + APART / clusters**2)
    t = [t_quantile(0.5 + level / 2, int(one) - 1) for one in clusters]
    return {
        ids[i]: (
            beta[k],
            beta[k] - t[k] * error[k],
            beta[k] + t[k] * error[k],
            beta[k] * spread / (spread + error[k] ** 2),
        )
        for k, i in enumerate(varied)
    }


def same(credits: list[Credit], expected: dict[str, tuple[float, ...]]) -> bool:
    found = {one.experience: one[1:5] for one in credits}
    assert found.keys() == expected.keys()
    return all(found[id] == pytest.approx(expected[id], abs=1e-9) for id in found)


def recorded(store: Store, dice: random.Random) -> list[tuple[RolloutRow, list[str]]]:
    """Records attempts of six steps, of which two have the same library; returns those that count,
    each with its library."""
    run = store.runs.create("run", "5" * 32, "main", 0, {"policy": "probation"}, "tests")
    rows, listed = [], []
    for step in range(6):
        if step not in (3, 5):
            said = [Operation("ADD", None, f"lesson {step} {n}") for n in range(3 if step else 5)]
            changed = (
                [Operation("MODIFY", store.experience_id("G0"), f"now {step}")] if step else []
            )
            meta = {"run": "run", "step": step}
            store.commit("main", [*said, *changed], message="m", meta=meta)
        # the last step is drawn under the library of the second
        version = store.version(2 if step == 5 else store.tip("main").number)
        library = store.library(version)
        for problem in range(9):
            for sample in [*range(4), CONFIRMING]:
                out = sorted(e.id for e in library if dice.random() < 0.3)
                verdict: dict[str, Any] = {"kind": "even" if problem % 2 == 0 else "odd"}
                verdict |= {"without": out} if out else {}
                reward = dice.choice([0.0, 0.25, 1.0, None])
                row = RolloutRow(
                    run.id, step, f"p{problem}", sample, version.number, (), "answered", reward,
                    verdict, 1,
                )  # fmt: skip
                rows.append(row)
                if sample < CONFIRMING and reward is not None:
                    listed.append((row, [unit(e) for e in library]))
    dice.shuffle(rows)
    writer = store.port.records.writer()
    writer.append([], [(*r[:5], "[]", *r[6:8], json.dumps(r.verdict), r.time) for r in rows])
    writer.close()
    return listed


def observations(listed: list[tuple[RolloutRow, list[str]]]) -> list[Observation]:
    return [
        Observation(
            f"{row.version}/{row.problem}",
            row.problem,
            library,
            frozenset(u for u in library if u.split("@")[0] in row.verdict.get("without", ())),
            row.reward or 0.0,
        )
        for row, library in listed
    ]


def test_sums_over_what_is_read_twice_are_what_matrices_of_all_attempts_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfgrpo.evaluation.credit.AT_ONCE", 7)
    with Store.init(tmp_path / "s.db", author="tests") as store:
        listed = recorded(store, random.Random(3))
        attempts = RecordedAttempts(store, store.tip("main"))
        steps = [one.step for one in attempts.steps]
        assert steps == [0, 1, 2, 3, 4, 5]
        found = attempts.estimates([2, 4, 6])[""]
        for end, known in zip((2, 4, 6), found, strict=True):
            seen = observations([one for one in listed if one[0].step < end])
            assert known.problems == 9
            assert same(known.credits, by_matrices(seen, 0.95))
            counts = {one.experience: one[5:] for one in known.credits}
            for id, (present, absent) in counts.items():
                had = [one for one in seen if id in one.library]
                assert absent == sum(id in one.without for one in had)
                assert present + absent == len(had)
        whole = observations(listed)
        assert same(estimate_effects(whole), by_matrices(whole, 0.95))
        kinds = attempts.estimates(by="kind")
        for kind, (known,) in kinds.items():
            seen = observations([one for one in listed if one[0].verdict["kind"] == kind])
            assert same(known.credits, by_matrices(seen, 0.95))
            assert known.problems == (5 if kind == "even" else 4)
        assert sorted(kinds) == ["even", "odd"]
