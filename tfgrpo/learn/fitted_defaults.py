"""Defaults that fit the data and the model, where nobody named a setting: the paper's own (arXiv
2510.08191: 3 epochs, batches of 100, groups of 5) are for mathematics and a fast endpoint, and
would take a local model a day."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tfgrpo.costs.prices import LOCAL
from tfgrpo.runs.run_problems import RunProblems
from tfgrpo.settings import TrainSettings, fitting_samples, fitting_tokens

BATCH = 100
"""Problems of a step at most, as in the paper."""
LOCAL_BATCH = 16
LOCAL_VALUES: dict[str, Any] = {"epochs": 3, "group_size": 6}
"""What a model on this machine gets through: it writes some ten tokens a second. What is proposed
in one epoch is measured in those after it, in threes of attempts."""
LABEL_BATCH = 32
LABEL_VALUES: dict[str, Any] = {"epochs": 6, "group_size": 3}
"""The same where an answer is a label: a model mostly gives one problem the same label, so more
problems tell more than more attempts at each."""
CHECKED = 32
"""Of a library, on a local model."""
LOCAL_TOP_K = 2
"""The experiences that fit a problem best, which are all that a local model is shown where a
problem has one answer: of several rules a small model uses one that does not fit, or goes through
them like the steps of one calculation (examples/time-on-the-bill has the figures). An answer of
several fields, and a reply that is judged by several criteria, need all that is known."""
ONE_ANSWER = ("exact", "math")
"""The kinds of problems, beside labels, whose ground truth is what an attempt should answer."""
LABEL_CHECKED = 64
"""The same where an answer is a label: writing one takes a small part of what a lesson takes, and
a lesson about a label helps few of the problems."""


def local_sizes(train: int, checked: int, domain: str = "") -> dict[str, Any]:
    """The sizes of a run on a local model with so many problems, by the settings' names. Of the
    problems that a library is checked on as many are used as there are, up to what is enough."""
    is_label = domain.partition(":")[0] == "choice"
    attempts, most = (LABEL_CHECKED, LABEL_BATCH) if is_label else (CHECKED, LOCAL_BATCH)
    steps = max(-(-train // most), 1)
    return {
        **(LABEL_VALUES if is_label else LOCAL_VALUES),
        "batch_size": -(-train // steps),
        "heldout_samples": fitting_samples(attempts, min(checked, attempts)),
        "heldout_problems": attempts,
    }


def fitting_values(settings: TrainSettings, problems: RunProblems) -> dict[str, Any]:
    """The settings that fit these problems and this model, by name."""
    count, local = len(problems.train), settings.models.model.startswith(LOCAL)
    values: dict[str, Any] = {}
    if local:
        checked = max(map(len, (problems.gate, problems.heldout, problems.sealed)))
        values = local_sizes(count, checked, settings.domain)
    elif count > BATCH:  # in steps of one size
        values["batch_size"] = -(-count // -(-count // BATCH))
    tokens = fitting_tokens(settings)
    if tokens is not None:
        values["max_tokens"] = tokens
    kind = settings.domain.partition(":")[0]
    if local and kind in ONE_ANSWER and settings.mode == "prompt":
        values["top_k"] = LOCAL_TOP_K
    return values


def fit(
    settings: TrainSettings, problems: RunProblems, named: Collection[str]
) -> tuple[TrainSettings, str]:
    """Settings in which all that is not `named` fits, and what was chosen, in one line. The line is
    empty where the sizes come to the paper's. Raises nothing."""
    values = {k: v for k, v in fitting_values(settings, problems).items() if k not in named}
    fitted = settings.model_copy(update=values)
    parts = [
        text
        for name, text in _size_words(fitted, problems).items()
        if getattr(settings, name) != getattr(fitted, name)
    ]
    if not parts:
        return fitted, ""
    model = "a local model" if settings.models.model.startswith(LOCAL) else settings.models.model
    return fitted, (
        f"chosen for {len(problems.train):,} problems and {model}: {', '.join(parts)} "
        "(a flag or tfgrpo.toml wins; --preset paper takes the paper's)"
    )


def _size_words(settings: TrainSettings, problems: RunProblems) -> dict[str, str]:
    words = {
        "batch_size": f"batches of {settings.batch_size}",
        "group_size": f"{settings.group_size} attempts at each",
        "epochs": f"{settings.epochs} epochs",
        "max_tokens": f"at most {settings.max_tokens:,} tokens an answer",
    }
    if settings.top_k:
        words["top_k"] = f"the {settings.top_k} experiences that fit a problem best in its prompt"
    some = max(len(problems.gate), len(problems.heldout))
    checked = max(some, len(problems.sealed))
    if some > (settings.heldout_problems or 0):
        words["heldout_problems"] = f"{settings.heldout_problems} problems of those that check it"
    if checked:
        times = settings.heldout_samples
        words["heldout_samples"] = f"{times} attempts at each" if times > 1 else "one attempt each"
    return words
