"""Scores and intervals as JSON objects with named fields, as every `--json` gives them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def interval_object(mean: float, low: float | None, high: float | None) -> dict[str, float | None]:
    """Returns a mean with the bounds of its interval, None for a bound that is not finite."""
    bounds = {"low": low, "high": high}
    finite = {k: v if v is not None and math.isfinite(v) else None for k, v in bounds.items()}
    return {"mean": mean, **finite}


def summary_object(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an evaluation's recorded summary, in which intervals are lists, with named ones."""
    passes = {k: interval_object(*estimate) for k, estimate in summary["pass"].items()}
    means = {name: interval_object(*summary[name]) for name in ("mean", "maj")}
    return {**summary, **means, "pass": passes}
