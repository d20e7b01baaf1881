"""Trying a verifier on cases: a ground truth (`gold`), a response (`pred`), and perhaps the
verdict that is `expected`: true, false, a reward from 0 to 1, or null for what nobody can judge."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tfgrpo.data.compressed_files import ReadingInvalid
from tfgrpo.data.problems import Problem, of_rows
from tfgrpo.data.readers import DatasetError, Row, read
from tfgrpo.domains.base import Context, Domain, Sampling, Trajectory, Verdict
from tfgrpo.domains.mathematics.extract import bare
from tfgrpo.domains.verifier import Killed, Verifier
from tfgrpo.evaluation import one_asker
from tfgrpo.model.client import Calls
from tfgrpo.model.gather import gather_all
from tfgrpo.rollout.attempt import checked_verdict, judge
from tfgrpo.session import Session

FIELDS = ("gold", "pred", "expected", "problem", "id")
ALIKE = 1e-6


@dataclass(frozen=True, slots=True)
class Case:
    """A response to judge; `known` says whether an `expected` verdict is, `pattern` is a regular
    expression whose last first group is the answer."""

    problem: Problem
    pred: str
    known: bool = False
    expected: float | None = None
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class JudgedCase:
    """A case and the verdict on it."""

    case: Case
    verdict: Verdict

    @property
    def word(self) -> str:
        """The verdict in a word, or its reward."""
        return word(self.verdict.reward)

    @property
    def agrees(self) -> bool | None:
        """Whether the verdict is the expected one; None where none is known."""
        if not self.case.known:
            return None
        want, have = self.case.expected, self.verdict.reward
        if want is None or have is None:
            return want is have
        return abs(want - have) < ALIKE


def word(reward: float | None) -> str:
    """A reward as a word: right, wrong, unverifiable, or the number."""
    if reward is None:
        return "unverifiable"
    return {0.0: "wrong", 1.0: "right"}.get(reward, f"{reward:g}")


def read_cases(
    path: Path,
    domain: Domain,
    fields: Mapping[str, str] | None = None,
    *,
    answers: bool = False,
    pattern: str | None = None,
) -> tuple[Case, ...]:
    """The cases of a file (JSONL, JSON, CSV or parquet). `fields` maps our names to the file's;
    with `answers` every `pred` is a bare answer, and `pattern` finds it. Raises DatasetError."""
    names = {name: name for name in FIELDS} | dict(fields or {})
    unknown = set(names) - set(FIELDS)
    if unknown:
        raise ReadingInvalid(
            f"there is no field {min(unknown)!r}", hint="map one of: " + ", ".join(FIELDS)
        )
    _check_pattern(pattern)
    rows = list(read(path))
    problems = of_rows(
        map(_complete(names, domain.ground_truth), rows),
        str(path),
        {"problem": names["problem"], "answer": names["gold"], "id": names["id"]},
        extra=domain.extra,
        ground_truth=domain.ground_truth,
        as_json=True,
    )
    return tuple(
        _case(row, problem, names, answers, pattern)
        for row, problem in zip(rows, problems, strict=True)
    )


async def judge_by_model(
    cases: Sequence[Case], domain: Domain, session: Session, on_wait: Callable[[bool], None]
) -> list[JudgedCase]:
    """The verdicts of a domain that asks a model, in order. One process asks a judge at a time, and
    finds in the journal what others have asked; `on_wait` is told when it waits for one. Raises
    DomainError, EndpointError and StoreError."""
    scope = f"verify/{domain.name}/{domain.identity}"
    calls = session.calls("reflection", scope)
    async with one_asker.alone(session.store.runs, scope, [calls.endpoint.model], on_wait):
        try:
            return await judge_cases(cases, domain, session.verifier, calls)
        finally:
            await calls.finish_in_flight()


async def judge_cases(
    cases: Sequence[Case], domain: Domain, verifier: Verifier, calls: Calls | None = None
) -> list[JudgedCase]:
    """The verdicts in order. Raises DomainError and EndpointError."""

    async def one(case: Case) -> JudgedCase:
        response = case.pred
        if case.pattern is not None:  # in a worker, for an expression may take for ever
            try:
                response = await verifier.run(by_pattern, case.pattern, case.pred)
            except Killed as error:
                return JudgedCase(case, Verdict(None, None, f"unverifiable: --pattern: {error}"))
        if domain.function is not None:
            verdict = await verifier.verdict(case.problem, response, domain.function)
            return JudgedCase(case, checked_verdict(domain, verdict))
        assert calls is not None, "checked: a domain that asks a model has calls"
        context = Context(
            case.problem, (), calls, calls, verifier, Sampling(), 0, ("verify", case.problem.id)
        )
        return JudgedCase(case, await judge(domain, context, Trajectory(response)))

    return await gather_all(map(one, cases))


def agreement(judged: Iterable[JudgedCase]) -> tuple[int, int]:
    """How many verdicts are the expected ones, and of how many that is known."""
    known = [case.agrees for case in judged if case.agrees is not None]
    return sum(known), len(known)


def by_pattern(pattern: str, text: str) -> str:
    """What a pattern's first group found last in a text, as a response with that answer."""
    matches = list(re.finditer(pattern, text))
    return f"\\boxed{{{matches[-1][1] or ''}}}" if matches else ""


def _check_pattern(pattern: str | None) -> None:
    if pattern is None:
        return
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ReadingInvalid(
            f"{pattern!r} is not a valid regular expression: {error}", hint="as in 'Answer: (.*)'"
        ) from None
    if not compiled.groups:
        raise ReadingInvalid(
            f"{pattern!r} has no group", hint="put the answer in parentheses: 'Answer: (.*)'"
        )


def _complete(names: Mapping[str, str], ground_truth: bool) -> Callable[[Row], Row]:
    """What gives a row a question where it has none: a verifier may do without."""

    def given(row: Row) -> Row:
        if ground_truth and row.fields.get(names["gold"]) in (None, ""):
            raise _lacking(row, names, "gold")
        if row.fields.get(names["problem"]):
            return row
        return row._replace(fields={**row.fields, names["problem"]: "(not given)"})

    return given


def _lacking(row: Row, names: Mapping[str, str], name: str) -> DatasetError:
    return DatasetError(
        f"{row.where}: no {names[name]!r}",
        hint=f"the row has {', '.join(map(str, row.fields)) or 'nothing'}; "
        f"map one with --field {name}=NAME",
    )


def _case(
    row: Row, problem: Problem, names: Mapping[str, str], answers: bool, pattern: str | None
) -> Case:
    pred = row.fields.get(names["pred"])
    if isinstance(pred, bool) or not isinstance(pred, str | int | float):
        raise _lacking(row, names, "pred")
    text = str(pred)
    if pattern is None and answers:
        text = bare(text)
    value = row.fields.get(names["expected"], "")
    if isinstance(value, str) and not value.strip():
        return Case(problem, text, pattern=pattern)
    return Case(problem, text, True, _expected(row, value), pattern)


EXPECTED: Mapping[str, float | None] = {
    **dict.fromkeys(("true", "right", "yes", "correct"), 1.0),
    **dict.fromkeys(("false", "wrong", "no", "incorrect"), 0.0),
    **dict.fromkeys(("null", "none", "unverifiable", "unparsable", "unparsable_gold"), None),
}
"""What is expected, in words."""


def _expected(row: Row, value: object) -> float | None:
    if isinstance(value, str):
        word = value.strip().casefold()
        if word in EXPECTED:
            return EXPECTED[word]
        with suppress(ValueError):
            value = float(word)
    if value is None:
        return None
    if not isinstance(value, bool | int | float) or not 0 <= value <= 1:
        raise DatasetError(
            f"{row.where}: {value!r} is no expected verdict"[:160],
            hint="true, false, a reward from 0 to 1, or null for what nobody can judge",
        )
    return float(value)
