"""Scores and intervals as JSON objects with named fields, as every `--json` gives them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tfgrpo.wording import plural, sampled

if TYPE_CHECKING:
    from tfgrpo.evaluation.statistics import Difference


def interval_object(mean: float, low: float | None, high: float | None) -> dict[str, float | None]:
    """A mean with the bounds of its interval, None for a bound that is not finite."""
    bounds = {"low": low, "high": high}
    finite = {k: v if v is not None and math.isfinite(v) else None for k, v in bounds.items()}
    return {"mean": mean, **finite}


def summary_object(summary: Mapping[str, Any]) -> dict[str, Any]:
    """An evaluation's recorded summary, in which intervals are lists, with named ones."""
    ks = sorted(summary["pass"], key=int)
    passes = {k: interval_object(*summary["pass"][k]) for k in ks}
    means = {name: interval_object(*summary[name]) for name in ("mean", "maj")}
    return {**summary, **means, "pass": passes}


def conditions_words(conditions: Mapping[str, Any]) -> str:
    """The conditions that figures are comparable under: `settings: 8 samples each, seed 0`."""
    samples = conditions["samples"]
    parts = [
        f"{plural(samples, 'sample')} each",
        f"temperature {conditions['temperature']:g}",
        f"at most {conditions['max_tokens']:,} tokens",
        f"seed {conditions['seed']}",
    ]
    if conditions.get("mode", "prompt") != "prompt":
        parts.append(f"{conditions['mode']} of {conditions['turns']} turns")
    if "top_k" in conditions:
        parts.append(f"{conditions['top_k']} experiences a prompt")
    if "domain" in conditions:
        parts.append(f"domain {conditions['domain']}")
    return f"settings: {', '.join(parts)}"


def verdict_words(difference: Difference, samples: int) -> str:
    """A verdict, and what would decide it where it is inconclusive."""
    if difference.verdict != "inconclusive":
        return difference.verdict
    if difference.problems_needed is None:
        return "inconclusive"
    needed = sampled(difference.problems_needed, samples)
    return f"inconclusive; about {needed} would decide"
