"""Whether a family has something to learn: rules by a person and right examples beside nothing.

Each arm is a library on a branch of its own, scored by the product on the development problems;
test problems are not looked at. The whole library stands in each prompt, so that an arm says what
its texts are worth, and not how well they are found.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import tfgrpo
from benchmarks.families.family import Family
from benchmarks.families.lookup import given
from benchmarks.families.results import (
    Result,
    ResultFile,
    as_text,
    asked_from,
    code_digest,
    mean,
    rows_digest,
)
from tfgrpo.rendering.experience_texts import example_text

FILE = "headroom.jsonl"
ARMS = ("empty", "rules", "examples")
EXAMPLES = 8
ALIKE = ("problems", "samples", "code")
"""What is the same of all arms that are compared."""


def texts_of(family: Family, arm: str) -> list[str]:
    """Returns the library of an arm."""
    if arm == "rules":
        return list(family.rules)
    if arm == "examples":
        rows = random.Random(family.name).sample(family.draw("train"), EXAMPLES)
        return [example_text(row["problem"], given(family, row["answer"])) for row in rows]
    return []


def library_of(store: Path, arm: str, texts: Sequence[str]) -> str:
    """Writes a library on a branch of its own, once; returns its revision."""
    if not texts:
        return "v0"
    with tfgrpo.Store.init(store, author="benchmark") as opened:
        if not opened.has_branch(arm):
            opened.create_branch(arm, "v0")
        if not len(opened.library(arm)):
            adds = [tfgrpo.Operation("ADD", text=text) for text in texts]
            opened.commit(arm, adds, message=f"{arm} of a person")
    return arm


def measure(
    results: Path,
    family: Family,
    arm: str,
    *,
    problems: int,
    samples: int,
    model: Mapping[str, Any],
) -> Result:
    """Scores one arm on the first development problems, or reads what was scored before.

    Raises TfgrpoError; what is done stays done.
    """
    rows = family.draw("dev", count=problems)
    texts = texts_of(family, arm)
    key = {
        "family": family.name,
        "arm": arm,
        "model": str(model.get("model", "default")),
        "problems": rows_digest(rows, dict(family.settings), family.domain),
        "library": rows_digest(texts),
        "samples": samples,
        "code": code_digest(),
    }
    file = ResultFile(results / FILE)
    if (done := file.find(key)) is not None:
        return done
    asked = asked_from(results, model, "headroom", family.name, arm, rows_digest(key))
    store = asked["store"]
    tfgrpo.Store.init(store, author="benchmark").close()
    began = monotonic()
    scores = tfgrpo.evaluate_sync(
        [{**row, "answer": as_text(row["answer"])} for row in rows],
        library=library_of(store, arm, texts),
        samples=samples,
        temperature=0.7,
        top_k=0,
        domain=family.domain,
        **{**family.settings, **asked},
    )
    tries = scores.libraries[0].samples
    result = {
        **key,
        "score": scores.mean,
        "interval": list(scores.interval),
        "by_kind": by_kind(rows, [(one.problem, one.reward) for one in tries]),
        "seconds": round(monotonic() - began, 1),
    }
    file.add(result)
    return result


def by_kind(
    rows: Sequence[Mapping[str, Any]], tries: Sequence[tuple[str, float | None]]
) -> dict[str, float]:
    """Returns the mean reward of each kind of problem."""
    kinds = {row["id"]: row["kind"] for row in rows}
    rewards: dict[str, list[float]] = {}
    for problem, reward in tries:
        if reward is not None:
            rewards.setdefault(kinds[problem], []).append(reward)
    return {kind: round(mean(values), 3) for kind, values in rewards.items()}


def latest(results: Path) -> dict[tuple[str, str], dict[str, Result]]:
    """Returns the last result of each arm, by family and model, all measured as the last one."""
    found: dict[tuple[str, str], dict[str, Result]] = {}
    for one in ResultFile(results / FILE).read():
        arms = found.setdefault((one["family"], one["model"]), {})
        if any(other[name] != one[name] for other in arms.values() for name in ALIKE):
            arms.clear()
        arms[one["arm"]] = one
    return found


def table(results: Path) -> str:
    """Returns the headroom of all that was measured, as Markdown."""
    lines = [
        "| family | model | empty | rules by hand | 8 right examples | rules − empty |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for (family, model), arms in sorted(latest(results).items()):
        scores = [f"{arms[arm]['score']:.3f}" if arm in arms else "–" for arm in ARMS]
        gain = "–"
        if {"empty", "rules"} <= arms.keys():
            gain = f"{arms['rules']['score'] - arms['empty']['score']:+.3f}"
        lines.append(f"| {family} | {model} | {' | '.join(scores)} | {gain} |")
    return "\n".join(lines)
