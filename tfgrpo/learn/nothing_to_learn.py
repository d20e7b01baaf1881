"""A look at a run's first attempts: whether anything can be learned from attempts like these.

Where they are all right, all wrong, or have no readable answer, a run would pay for hundreds more
and learn nothing. So the run says so at once, with the cause and one attempt, and stops unless it
was told to go on. It is a pure function of the attempts; `collector.py` calls it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Literal, TypeAlias

from tfgrpo.data.problems import Problem
from tfgrpo.domains.answer_reading import NoAnswer, variants
from tfgrpo.domains.choice import fold
from tfgrpo.domains.json_reading import last_json
from tfgrpo.domains.mathematics.extract import spoken
from tfgrpo.learn.examples import are_answers_alone
from tfgrpo.notices import NothingToLearn
from tfgrpo.rollout.attempt import Group, Rollout
from tfgrpo.runs.run_issues import resumption
from tfgrpo.settings import PAPER, TrainSettings
from tfgrpo.store.activity.runs import RolloutRow, Run
from tfgrpo.store.errors import TfgrpoError
from tfgrpo.store.exit_codes import STOPPED
from tfgrpo.store.store import Store

Finding: TypeAlias = Literal["unreadable", "wrong", "right", "unjudged"]
ENOUGH: dict[Finding, int] = {"unreadable": 50, "right": 50, "unjudged": 50, "wrong": 100}
"""Attempts that have to be alike before a step is over. Hard problems get more of them, as one
answer in fifty may still be right."""
FEWEST = 20
"""Attempts that have to be alike at the end of a step: of the first, or of as many as it takes.
Where none could be judged, any number says so."""
HALF = 0.5
"""The mean reward below which a model is told to be short at too high a price."""
UNREAD = 0.8
"""The share of wrong attempts without an answer from which on that is the cause."""
UNREADABLE = {
    "math": ("no answer in a box", "a box: `… then give the final answer in \\boxed{}.`"),
    "choice": ("no label is given", "the label alone on the last line"),
    "json": ("no JSON object", "one JSON object and nothing else"),
    "exact": ("no answer", "the answer alone on the last line"),
}
"""The kinds of problems whose verdict has no answer only where none could be read: what that is
called, and what is to be asked for."""
MANY_LOST = 0.2
"""The share of attempts without a reward from which on that is why the others are all alike."""
FEW_LOST = 0.05
"""The share of a step's attempts that may be without a reward before that is told."""
QUOTED = 120
NUMBER = re.compile(r"[-+$€£]?\d[\d,.]*(?:/\d+)?%?\Z")


class StoppedEarly(TfgrpoError):
    """A run whose first attempts leave nothing to learn. It can be resumed with `keep_going`.
    `notice` says what was found, with an attempt."""

    exit_code = STOPPED

    def __init__(self, notice: NothingToLearn, run: Run) -> None:
        super().__init__(
            f"stopped after {notice.attempts} attempts: {notice.text}",
            hint=f"{notice.advice}; or go on: {resumption(run, keep_going=True)}",
        )
        self.notice = notice


def look(
    rollouts: Sequence[Rollout],
    problems: Sequence[Problem],
    settings: TrainSettings,
    *,
    whole: bool = False,
) -> NothingToLearn | None:
    """Why nothing can be learned from attempts like these; None where it can, or where there are
    too few to say so. `whole` says that these are all attempts of the steps so far."""
    there = [rollout for rollout in rollouts if rollout.outcome != "failed"]
    finding = _finding(there, settings)
    if finding is None:
        return None
    least = ENOUGH[finding]
    if whole:
        least = FEWEST if any(rollout.reward is not None for rollout in there) else 1
    if len(there) < least:
        return None
    if finding == "wrong" and settings.policy != PAPER and settings.ground_truth:
        return None  # what all attempts miss is told by the ground truth
    count, lost = len(there), [one for one in there if one.reward is None]
    if finding == "right":
        text = f"{count - len(lost)} of {count} right: nothing to learn here"
        advice = "harder problems or a smaller model would leave something"
    elif finding == "unjudged":
        text = f"{len(lost)} of {count} could not be judged: {_most_common(lost)}"
        advice = "`tfgrpo verify` tries the verifier on cases of your own"
    elif finding == "wrong":
        text = f"{count - len(lost)} of {count} wrong: answers are read, and none is right"
        advice = (
            "look at the ground truths and the domain (`tfgrpo verify`), or take easier problems, "
            "a stronger model"
        )
    else:
        text, advice = _unreadable(there, problems, settings)
    example = (lost if finding == "unjudged" else there)[0]
    return NothingToLearn(finding, count, text, advice, _quote(example, finding))


def is_over(attempts: Iterable[Rollout | RolloutRow]) -> bool:
    """Whether attempts of whole steps are enough for a look, or differ already."""
    there = [attempt for attempt in attempts if attempt.outcome != "failed"]
    return len(there) >= FEWEST or len({attempt.reward for attempt in there} - {None}) > 1


def missing_work(groups: Sequence[Group], settings: TrainSettings, store: Store) -> str | None:
    """A warning where attempts give an answer without working and most are wrong: there is nothing
    in them to compare. None otherwise, where answers are labels or objects, and where an agent
    makes the attempts."""
    rewards = [r.reward for group in groups for r in group.rollouts if r.reward is not None]
    short = settings.domain.partition(":")[0] in ("choice", "json") or settings.mode == "agent"
    if short or len(rewards) < FEWEST or fmean(rewards) >= HALF:
        return None
    if not are_answers_alone(groups, store):
        return None
    return (
        f"attempts give an answer and no working, and their mean reward is {fmean(rewards):.2f}: "
        "comparisons have no working to read, and a model that may write it is often right "
        "without experiences; ask for it with --agent-objective "
        "('Write the calculation, then the result …')"
    )


def _finding(there: Sequence[Rollout], settings: TrainSettings) -> Finding | None:
    rewards = {rollout.reward for rollout in there} - {None}
    lost = sum(rollout.reward is None for rollout in there)
    if lost >= MANY_LOST * len(there) and len(rewards) < 2 and rewards <= {0.0, 1.0}:
        return "unjudged"
    if rewards == {1.0}:
        return "right"
    if rewards != {0.0}:
        return None
    unread = [rollout for rollout in there if rollout.answer is None]
    if settings.domain.partition(":")[0] in UNREADABLE and len(unread) >= UNREAD * len(there):
        return "unreadable"
    return "wrong"


def _unreadable(
    there: Sequence[Rollout], problems: Sequence[Problem], settings: TrainSettings
) -> tuple[str, str]:
    kind, count = settings.domain.partition(":")[0], len(there)
    cause, wording = UNREADABLE[kind]
    text = f"{count} of {count} wrong: {cause}"
    empty = sum(not spoken(rollout.response).strip() for rollout in there)
    cut = sum(rollout.outcome == "truncated" for rollout in there)
    if empty > count // 2 and not cut > count // 2:
        return f"{text}; {empty} are empty", "the model answers nothing: ask it by hand"
    if cut > count // 2:
        return (
            f"{text}; {cut} were cut off at {settings.max_tokens:,} tokens",
            "raise --max-tokens, or ask for brief answers with --agent-objective",
        )
    golds = {gold for problem in problems for gold in problem.ground_truths if gold}
    numeric = sum(bool(NUMBER.match(gold)) for gold in golds) > len(golds) / 2
    objects = sum(_is_object(rollout.response) for rollout in there)
    if kind != "json" and objects > count // 2:
        return f"{text}; {objects} are JSON objects", "try `--domain json`"
    known = {fold(gold) for gold in golds}
    bare = sum(_last_line(rollout.response, known) for rollout in there)
    few = len(golds) <= max(2, len(problems) // 2) and not numeric
    if kind not in ("choice", "exact") and bare > count // 2:
        if few:
            return f"{text}; {bare} end with a bare label", "try `--domain choice`"
        if not numeric:
            return f"{text}; {bare} end with a bare answer", "try `--domain exact`"
    return text, f"ask for {wording} with --agent-objective, or take another --domain"


def lost_words(groups: Sequence[Group]) -> str | None:
    """How many attempts have no reward, with the most common reason; None where few have none."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    lost = [rollout for rollout in rollouts if rollout.reward is None]
    if len(lost) <= FEW_LOST * len(rollouts):
        return None
    count = f"{len(lost)} of {len(rollouts)} attempts have no reward"
    return f"{count}, and teach nothing; most common reason: {_most_common(lost)}"


def _most_common(there: Sequence[Rollout]) -> str:
    ((reason, _),) = Counter(rollout.reason for rollout in there).most_common(1)
    return " ".join(reason.split())[:QUOTED]


def _is_object(response: str) -> bool:
    value = last_json(response)
    return not isinstance(value, NoAnswer) and isinstance(value[0], dict)


def _last_line(response: str, known: set[str]) -> bool:
    lines = spoken(response).strip().splitlines()
    return bool(lines) and any(fold(variant) in known for variant in variants(lines[-1]))


def _quote(rollout: Rollout, finding: Finding) -> str:
    words = " ".join(spoken(rollout.response).split())
    ends = words if len(words) <= QUOTED else "…" + words[1 - QUOTED :]
    gold = " ".join(rollout.problem.ground_truths[0].split())[:QUOTED]
    right = f"; right is {gold!r}" if gold and finding != "right" else ""
    return f"{rollout.problem.id} was answered {ends!r}{right}"
