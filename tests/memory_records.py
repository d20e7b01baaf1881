"""Records and the journal's writer over plain lists and dicts, for `memory_port.py`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from tfgrpo.store.activity.decisions import Decision, DecisionFilter
from tfgrpo.store.activity.runs import (
    AttemptMark,
    AttemptTail,
    Call,
    DaySpent,
    Evaluation,
    RewardRow,
    RolloutRow,
    Run,
    RunState,
    SaidRow,
    Score,
    Spent,
    SpentTail,
    Usage,
)
from tfgrpo.store.canonical import canonical
from tfgrpo.store.errors import RowRefused, StoreError
from tfgrpo.store.port import CallValues, RolloutValues
from tfgrpo.store.records import REDACTED, Json
from tfgrpo.store.text_occurrences import REDACTION, Occurrence, clean_json, cleaned, is_structure

if TYPE_CHECKING:
    from memory_port import MemoryPort

Key = TypeVar("Key")


@dataclass
class Kept:
    """What training and evaluation left behind."""

    runs: list[Run] = field(default_factory=list)
    states: list[tuple[int, RunState]] = field(default_factory=list)
    calls: dict[bytes, Call] = field(default_factory=dict)
    rollouts: dict[tuple[int, int, str, int], RolloutRow] = field(default_factory=dict)
    evaluations: list[Evaluation] = field(default_factory=list)
    scores: dict[int, list[Score]] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)


class MemoryRecords:
    def __init__(self, port: MemoryPort) -> None:
        self._port = port

    @property
    def _kept(self) -> Kept:
        return self._port.kept

    def writer(self) -> MemoryWriter:
        from memory_port import MemoryPort

        return MemoryWriter(MemoryPort(self._port.memory))

    def runs(self, name: str | None = None) -> list[Run]:
        runs = self._kept.runs
        return [r for r in runs if name in (None, r.name)]

    def append_run(self, run: Run) -> None:
        runs = self._kept.runs
        taken = any(run.name == r.name or run.uid == r.uid for r in runs)
        if taken or self._port.version(run.base) is None:
            raise StoreError(f"no such run as {run.name} can be")
        runs.append(run._replace(id=len(runs) + 1))

    def states(self, run: int) -> list[RunState]:
        return [state for of, state in self._kept.states if of == run]

    def append_state(self, run: int, state: RunState) -> None:
        self._kept.states.append((run, state))

    def rollouts(self, run: int, step: int | None, problem: str | None = None) -> list[RolloutRow]:
        rollouts = [row for key, row in sorted(self._kept.rollouts.items()) if key[0] == run]
        return [r for r in rollouts if step in (None, r.step) and problem in (None, r.problem)]

    def spoken(self, before: int) -> Iterator[SaidRow]:
        for number, row in reversed(list(enumerate(self._kept.rollouts.values(), 1))):
            if number < before:
                call = self._kept.calls.get(bytes.fromhex(row.calls[-1])) if row.calls else None
                answer = "" if call is None else canonical(call.answer).decode()
                yield SaidRow(number, *row[:4], canonical(row.verdict).decode(), answer)

    def attempts_since(self, run: int, after: int) -> AttemptTail:
        listed = list(enumerate(self._kept.rollouts.values(), 1))[after:]
        marks = [
            AttemptMark(r.step, r.problem, r.sample, r.version, r.outcome, r.reward, r.time)
            for _, r in listed
            if r.run == run
        ]
        return AttemptTail(max([after, *(n for n, r in listed if r.run == run)]), marks)

    def calls_by_key(self, keys: Sequence[bytes]) -> list[Call]:
        return [self._kept.calls[key] for key in keys if key in self._kept.calls]

    def reward_steps(self, run: int, samples: int, upto: int | None) -> list[tuple[int, int]]:
        rows = [r for r in self._rewarded(run, samples) if upto is None or r.step <= upto]
        return sorted({(row.step, row.version) for row in rows})

    def rewards(self, run: int, samples: int, upto: int | None, name: str) -> Iterator[RewardRow]:
        rows = sorted(self._rewarded(run, samples), key=lambda row: row[1:4])
        for row in rows:
            if upto is None or row.step <= upto:
                there = (row.verdict.get(one) for one in ("without", "belongs"))
                lists = (None if one is None else json.dumps(one) for one in there)
                kind = row.verdict.get(name, "")
                yield RewardRow(*row[1:5], row.reward or 0.0, *lists, kind)

    def _rewarded(self, run: int, samples: int) -> list[RolloutRow]:
        rows = self._kept.rollouts.values()
        return [r for r in rows if r.run == run and r.reward is not None and r.sample < samples]

    def calls(self, run: int, stage: str, step: int | None) -> list[Call]:
        made = self._kept.calls.values()
        return [c for c in made if (c.run, c.stage) == (run, stage) and step in (None, c.step)]

    def usage(self, run: int, step: int | None) -> dict[str, Usage]:
        calls = [c for c in self._kept.calls.values() if c.run == run and step in (None, c.step)]
        return {kind: _usage(made) for kind, made in _grouped(calls, _kind)}

    def spent(self, run: int | None, *, by_endpoint: bool = False) -> list[Spent]:
        return _spent([c for c in self._kept.calls.values() if run in (None, c.run)], by_endpoint)

    def spent_by_day(self, run: int | None, *, by_endpoint: bool = False) -> list[DaySpent]:
        calls = [c for c in self._kept.calls.values() if run in (None, c.run)]
        days = dict.fromkeys(call.time // 86_400_000_000 for call in calls)
        return [
            DaySpent(day, one)
            for day in days
            for one in _spent(
                [call for call in calls if call.time // 86_400_000_000 == day], by_endpoint
            )
        ]

    def spent_since(self, run: int, after: int, *, by_endpoint: bool = False) -> SpentTail:
        listed = list(enumerate(self._kept.calls.values(), 1))[after:]
        here = [(number, call) for number, call in listed if call.run == run]
        last = max([after, *(number for number, _ in here)])
        return SpentTail(last, _spent([call for _, call in here], by_endpoint))

    def estimated(self, run: int | None) -> int:
        calls = [c for c in self._kept.calls.values() if run in (None, c.run)]
        return sum(c.answer.get("estimated") is True for c in calls)

    def sent(self, run: int) -> list[tuple[str, Json]]:
        found: list[tuple[str, Json]] = []
        for call in self._kept.calls.values():
            pair = (call.model, call.answer.get("sent"))
            if call.run == run and isinstance(pair[1], dict) and pair not in found:
                found.append(pair)
        return found

    def evaluations(
        self, version: int | None = None, digest: str | None = None
    ) -> list[Evaluation]:
        found = self._kept.evaluations
        return [e for e in found if version in (None, e.version) and digest in (None, e.digest)]

    def append_evaluation(self, evaluation: Evaluation, scores: Iterable[Score]) -> None:
        kept, scores = self._kept, list(scores)
        there = self.evaluations(evaluation.version, evaluation.digest)
        if there or len({(s.problem, s.sample) for s in scores}) < len(scores):
            raise StoreError("evaluations and scores are there once")
        id = len(kept.evaluations) + 1
        kept.evaluations.append(evaluation._replace(id=id))
        kept.scores[id] = sorted(scores, key=lambda s: (s.problem, s.sample))

    def scores(self, evaluation: int) -> list[Score]:
        return list(self._kept.scores.get(evaluation, ()))

    def decisions(self, which: DecisionFilter) -> list[Decision]:
        return [
            d
            for d in self._kept.decisions
            if which.kind in (None, d.kind)
            and which.subject in (None, d.subject)
            and d.time >= which.since
        ]

    def append_decision(self, decision: Decision) -> int:
        decisions = self._kept.decisions
        if any(d.id == decision.id for d in decisions):
            raise StoreError("a decision is there once")
        content = json.loads(_text(decision.content))
        decisions.append(decision._replace(row=len(decisions) + 1, content=content))
        return len(decisions)


class MemoryWriter:
    def __init__(self, port: MemoryPort) -> None:
        self._port = port

    def append(self, calls: Sequence[CallValues], rollouts: Sequence[RolloutValues]) -> None:
        with self._port.transaction():
            kept = self._port.kept
            runs = {None, *(run.id for run in kept.runs)}
            if any(row[1] not in runs for row in calls) or any(r[0] not in runs for r in rollouts):
                raise RowRefused("there is no such run")
            for row in calls:
                call = Call(*row[:6], json.loads(row[6]), *row[7:])
                kept.calls.setdefault(call.key, call)
            for one in rollouts:
                named, verdict = tuple(json.loads(one[5])), json.loads(one[8])
                rollout = RolloutRow(*one[:5], named, *one[6:8], verdict, one[9])
                kept.rollouts.setdefault(one[:4], rollout)

    def close(self) -> None:
        self._port.close()


def occurrences(kept: Kept, pattern: re.Pattern[str]) -> Iterator[Occurrence]:
    """Yields where records hold a pattern."""
    for row, run in enumerate(kept.runs):
        if pattern.search(_text(run.config)):
            yield Occurrence("runs", "config", row, "a run says what it was made with")
    for row, call in enumerate(kept.calls.values()):
        if pattern.search(call.request):
            yield Occurrence("calls", "request", row)
        if pattern.search(_text(call.answer)):
            yield Occurrence("calls", "answer", row)
    for row, rollout in enumerate(kept.rollouts.values()):
        if pattern.search(_text(rollout.verdict)):
            yield Occurrence("rollouts", "verdict", row)
    for evaluation in kept.evaluations:
        if pattern.search(_text(evaluation.config)) or pattern.search(_text(evaluation.summary)):
            yield Occurrence("evaluations", "config, summary", evaluation.id)
        for score in kept.scores[evaluation.id]:
            if pattern.search(score.answer or ""):
                yield Occurrence("scores", "answer", evaluation.id)
    for decision in kept.decisions:
        for column, text in (
            ("subject", decision.subject),
            ("content", _text(decision.content)),
            ("why", decision.why or ""),
        ):
            if not is_structure("decisions", column, decision.kind) and pattern.search(text):
                yield Occurrence("decisions", column, decision.row)


def replace(kept: Kept, pattern: re.Pattern[str]) -> None:
    """Replaces a pattern wherever records hold it, but in what a run was made with."""

    def clean(value: object) -> dict[str, object]:
        return dict(json.loads(clean_json(_text(value), pattern)))

    for key, call in kept.calls.items():
        if pattern.search(_text(call.answer)):
            answer = json.loads(cleaned("journal", "answer", _text(call.answer), pattern))
            kept.calls[key] = call = call._replace(answer=answer)
        if pattern.search(call.request):
            request = clean_json(call.request, pattern)
            kept.calls[key] = call._replace(request=request)
    for of, rollout in kept.rollouts.items():
        kept.rollouts[of] = rollout._replace(verdict=clean(rollout.verdict))
    kept.evaluations[:] = [
        e._replace(config=clean(e.config), summary=clean(e.summary)) for e in kept.evaluations
    ]
    for scores in kept.scores.values():
        scores[:] = [
            s._replace(answer=s.answer and pattern.sub(REDACTED, s.answer)) for s in scores
        ]
    kept.decisions[:] = [
        d._replace(
            **(
                {"subject": pattern.sub(REDACTED, d.subject), "content": clean(d.content)}
                if d.kind != REDACTION
                else {}
            ),
            why=d.why and pattern.sub(REDACTED, d.why),
        )
        for d in kept.decisions
    ]


def _text(value: object) -> str:
    return canonical(value).decode()


def _kind(call: Call) -> str:
    return "evaluation" if call.step is None else call.stage


def _grouped(calls: list[Call], key: Callable[[Call], Key]) -> list[tuple[Key, list[Call]]]:
    groups: dict[Key, list[Call]] = {}
    for call in calls:
        groups.setdefault(key(call), []).append(call)
    return list(groups.items())


def _spent(calls: list[Call], by_endpoint: bool) -> list[Spent]:
    def key(call: Call) -> tuple[int | None, int | None, str, str, str | None]:
        name = call.answer.get("endpoint")
        at = name if by_endpoint and isinstance(name, str) else None
        return call.run, call.step, _kind(call), call.model, at

    return [
        Spent(*of, sum(c.attempts - 1 for c in made), _usage(made), at)
        for (*of, at), made in _grouped(calls, key)
    ]


def _usage(calls: list[Call]) -> Usage:
    def tokens(name: str) -> int:
        counts = (getattr(c, name) for c in calls)
        return sum(count for count in counts if count <= 1_000_000_000)

    return Usage(
        len(calls),
        tokens("prompt_tokens"),
        tokens("cached_tokens"),
        tokens("completion_tokens"),
        tokens("reasoning_tokens"),
        sum(c.seconds for c in calls),
    )
