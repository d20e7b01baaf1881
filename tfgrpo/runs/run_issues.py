"""What went wrong in a run and was left out of its library, as its versions have it on record, and
what goes on with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tfgrpo.model.request_adaptation import Adaptation
from tfgrpo.rendering.retrieve import OBJECT
from tfgrpo.runs.run_versions import OVER, gate_of, pool_versions, step_stats, versions_of
from tfgrpo.store.activity.runs import Run
from tfgrpo.store.damaged_values import objects, text, whole
from tfgrpo.store.records import Version
from tfgrpo.store.store import Store
from tfgrpo.wording import plural


class Issue(NamedTuple):
    """A lesson that was `refused`, or a stage that `failed`: what, at which problem, and why."""

    version: Version
    kind: str
    what: str
    problem: str
    reason: str


class RunReport(NamedTuple):
    """A run's issues, oldest first, and how many answers had to be repaired to be read."""

    issues: tuple[Issue, ...]
    repaired: int

    @property
    def refused(self) -> int:
        """Lessons that did not become an operation."""
        return sum(issue.kind == "refused" for issue in self.issues)

    @property
    def failed(self) -> int:
        """Answers that could not be had or read."""
        return sum(issue.kind == "failed" for issue in self.issues)


def issues(version: Version) -> tuple[Issue, ...]:
    """What a version has on record as refused or failed."""
    return tuple(
        Issue(
            version,
            kind,
            text(item.get("text")) or text(item.get("stage")),
            text(item.get("problem")),
            text(item.get("reason")),
        )
        for kind in ("refused", "failed")
        for item in objects(version.meta.get(kind))
    )


def repaired(version: Version) -> int:
    """How many answers had to be repaired to be read, as a version has it on record."""
    return whole(version.meta.get("repaired")) or 0


def nothing_learned(store: Store, run: Run) -> str | None:
    """Why a run's versions changed nothing in the library, in words; else None."""
    from tfgrpo.settings import TRIAL

    versions = versions_of(store, run)
    counts = [store.counts(version) for version in versions]
    if not versions or any(count.get(op) for count in counts for op in ("ADD", "MODIFY", "DELETE")):
        return None
    stats = [step_stats(version) for version in versions]
    attempts = sum(one.attempts or 0 for one in stats)
    groups, mixed = sum(one.groups or 0 for one in stats), sum(one.mixed or 0 for one in stats)
    means = {one.reward for one in stats} - {None}
    if not means:
        return f"none of {attempts} attempts could be scored"
    lost = sum(one.without_reward for one in stats)
    if not mixed and lost:
        return f"{lost} of {attempts} attempts have no reward; in each group the others are alike"
    if not mixed:
        for reward, word in ((1.0, "right"), (0.0, "wrong")):
            if means == {reward}:
                return f"every one of {attempts} attempts was {word}"
        return f"in each of {groups} groups all attempts had the same reward"
    if run.config.get("policy") == TRIAL:  # which learns nothing of its own
        return None
    mixture = f"rewards differed in {mixed} of {groups} groups"
    rejected = sum(gate is not None and not gate.is_accepted for gate in map(gate_of, versions))
    if rejected:
        return (
            f"{mixture}, and the gate rejected what {rejected} of {len(versions)} steps had learned"
        )
    if len(versions) == 1 and "comparison" not in store.runs.usage(run):
        return f"{mixture}, and a run of one step has none left to measure a lesson in (--epochs 2)"
    candidates = [store.counts(version) for version in pool_versions(store, run)]
    tried, gone = (sum(count.get(op, 0) for count in candidates) for op in ("ADD", "DELETE"))
    if tried:
        more = "a larger --budget" if OVER in versions[-1].meta else "--epochs"
        return (
            f"{mixture}, and of {plural(tried, 'candidate')} none was shown to help: {gone} given "
            f"up, {tried - gone} undecided (more attempts would decide: {more})"
        )
    if any(count.get("KEEP") for count in counts):
        return f"{mixture}, and every lesson was known already"
    account = report(store, run)
    if account.refused or account.failed:
        refused, failed = account.refused, account.failed
        return f"{mixture}, but {refused} lessons were refused and {failed} answers failed"
    return f"{mixture}, and no comparison gave a lesson"


def request_notes(store: Store, run: Run) -> list[str]:
    """How each model of a run had to be asked, beside what it was asked: with room for thinking,
    with schemas in words, without parameters that it refused."""
    adaptations: dict[str, Adaptation] = {}
    for model, sent in store.runs.sent(run):
        adaptations.setdefault(model, Adaptation(model)).restore(sent)
    return [words for one in adaptations.values() if (words := one.words())]


def report(store: Store, run: Run) -> RunReport:
    """What went wrong in a run, so far."""
    versions = versions_of(store, run)
    every = tuple(issue for version in versions for issue in issues(version))
    return RunReport(every, sum(map(repaired, versions)))


def issue_counts(account: RunReport) -> str:
    """What went wrong in a run, in one line; nothing where nothing did."""
    parts = [
        plural(count, noun) + end
        for count, noun, end in (
            (account.refused, "lesson", " refused"),
            (account.failed, "answer", " failed"),
            (account.repaired, "answer", " repaired"),
        )
        if count
    ]
    return ", ".join(parts)


def resumption(run: Run, **more: object) -> str:
    """What goes on with a run, with options by name: a command, or a call from Python where
    functions of a program take part in the run."""
    agent = run.config.get("agent")
    parts = (run.config.get("domain"), agent.get("run") if isinstance(agent, Mapping) else None)
    if any(str(one).startswith(OBJECT) for one in parts):
        given = "".join(f", {name}={value!r}" for name, value in more.items())
        return f"`tfgrpo.train(…, resume={run.name!r}{given})`"
    flags = "".join(
        f" --{name.replace('_', '-')}" + ("" if value is True else f" {value}")
        for name, value in more.items()
    )
    return f"`tfgrpo train --resume {run.name}{flags}`"
