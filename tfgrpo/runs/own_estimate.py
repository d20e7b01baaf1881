"""What a run gains by its own attempts, as the version of its last step has it on record."""

from __future__ import annotations

import math

from tfgrpo.evaluation.statistics import Estimate
from tfgrpo.runs.run_versions import versions_of
from tfgrpo.store.activity.runs import Run
from tfgrpo.store.records import Json
from tfgrpo.store.store import Store
from tfgrpo.store.strange_values import listed, mapping, number, whole
from tfgrpo.wording import plural, with_bounds

GAIN = "gain"
"""In the meta of a run's last version: what the run gains over what it began with."""


def gain_record(gain: Estimate) -> Json:
    """A gain as it stands in a version's record."""
    return {"gain": list(gain.recorded), "problems": gain.problems}


def recorded_gain(store: Store, run: Run) -> Estimate | None:
    """The gain that a run has on record; None for one that measures nothing, or is at work."""
    versions = versions_of(store, run)
    record = versions[-1].meta.get(GAIN) if versions else None
    given = mapping(record)
    figures, problems = listed(given.get("gain")), whole(given.get("problems"))
    mean, low, high = (number(one) for one in figures) if len(figures) == 3 else (None,) * 3
    if mean is None or problems is None:
        return None
    bounds = (-math.inf if low is None else low, math.inf if high is None else high)
    return Estimate(mean, *bounds, problems)


def gain_words(gain: Estimate) -> str:
    """A gain in a line; the line warns where nothing was shown to be gained."""
    figures = with_bounds(*gain[:3])
    base = "over the library that it began with, cross-fitted on its own attempts at"
    words = f"the run gains {figures} {base} {plural(gain.problems, 'problem')}"
    return f"warning: not shown to help: {words}" if is_doubtful(gain) else words


def is_doubtful(gain: Estimate) -> bool:
    """Whether a run may have gained nothing: its mean is no gain, or its whole interval a loss."""
    return gain.mean <= 0 or gain.high < 0
