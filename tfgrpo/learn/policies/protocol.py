"""How a step learns: policies, each a class in a file of its own. Built-in ones have a name; others
are entry points of the group `tfgrpo.policies`, or are named as `module:Class`. A policy makes a
step's attempts with the run's collector and returns the operations on the library."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tfgrpo.data.problems import Problem
from tfgrpo.domains.base import load_named
from tfgrpo.learn.collector import Collector
from tfgrpo.learn.groups import RunParts
from tfgrpo.learn.reflection import Advantage, Failure, Lesson, StepOrigin
from tfgrpo.rollout.attempt import Group
from tfgrpo.runs.run_versions import Gain
from tfgrpo.settings import BASE_PROMPT, PAPER, PROBATION, TRIAL
from tfgrpo.store.errors import SettingsError
from tfgrpo.store.records import Library, Operation, Version
from tfgrpo.wording import did_you_mean


class Step(NamedTuple):
    """A step to learn from: its number from 0 and its problems, the version in force with its
    library, where its operations come from, and how many attempts come after it. Its budget
    `is_short` where it pays for fewer of them than are planned, or where the cost is not known
    yet."""

    number: int
    batch: Sequence[Problem]
    base: Version
    library: Library
    origin: StepOrigin
    attempts_left: int
    is_short: bool = False

    @property
    def is_last(self) -> bool:
        """Whether it is the run's last."""
        return not self.attempts_left


@dataclass(frozen=True, slots=True)
class Refusal:
    """A lesson that did not become an operation, and why."""

    text: str
    problem: str
    reason: str


@dataclass(frozen=True, slots=True)
class Learned:
    """The result of a step: its groups in the order of the batch, the lessons of those that teach,
    the operations on the run's branch and on the branch of candidates, and what was refused, failed
    or repaired. `following` are operations on the branch of candidates that are made if one on the
    run's branch about the experience of that id is. With `is_over` the run needs no further step.
    The last step may say what the run gains at its own problems."""

    groups: tuple[Group, ...] = ()
    comparisons: tuple[Advantage, ...] = ()
    operations: tuple[Operation, ...] = ()
    candidates: tuple[Operation, ...] = ()
    refused: tuple[Refusal, ...] = ()
    failures: tuple[Failure, ...] = ()
    repaired: int = 0
    is_over: bool = False
    gain: Gain | None = None
    following: tuple[tuple[str, Operation], ...] = ()


class Policy(Protocol):
    """Learns from the steps of one run. It is made with the run's parts and its collector. One may
    say, in tuples of the class, which `prompts` it asks besides the attempts', and which `settings`
    it reads that not every policy does."""

    def __init__(self, parts: RunParts, collector: Collector) -> None: ...

    async def learn(self, step: Step) -> Learned:
        """Makes a step's attempts and returns what they teach. All its calls must follow from the
        record, since an interrupted step is done again from its beginning. Raises EndpointError,
        BudgetReached and StoppedEarly."""


def evidence_of(lesson: Lesson, calls: tuple[str, ...] = ()) -> dict[str, Any]:
    """Who taught a lesson: the problem, its rollouts with rewards, the calls between."""
    group = lesson.group
    return {
        "problem": group.problem.id,
        "rollouts": [[rollout.sample, rollout.reward] for rollout in group.rollouts],
        "calls": [key[:16] for key in (*lesson.calls, *calls)],
    }


GROUP = "tfgrpo.policies"
BUILT_IN = {
    PROBATION: "tfgrpo.learn.policies.probation:Probation",
    BASE_PROMPT: "tfgrpo.learn.policies.base_prompt:BasePrompt",
    PAPER: "tfgrpo.learn.policies.paper:Published",
    TRIAL: "tfgrpo.learn.policies.trial:Trial",
}


def find_policy(name: str, root: Path) -> type[Policy]:
    """A policy by its name: ours, an installed one, or `module:Class`, looked for in the current
    folder and the project's `root` too. Raises SettingsError for one that there is not, and for
    what is none."""
    there = {one.name: one.value for one in entry_points(group=GROUP)} | BUILT_IN
    if name not in there and not re.fullmatch(r"[\w.]+:[\w.]+", name):
        offered = [one for one in there if one != TRIAL]
        raise SettingsError(
            f"there is no policy {name!r}" + did_you_mean(name, offered, "; "),
            hint=f"there is {', '.join(offered)}, or write module:Class",
        )
    place, folders = there.get(name, name), (Path.cwd(), root)
    policy: object = load_named(place, f"the policy {name}", SettingsError, folders)
    if not (isinstance(policy, type) and callable(getattr(policy, "learn", None))):
        raise SettingsError(f"{name} is no policy", hint="docs/extending.md says what one has")
    return policy
