"""The records of training and evaluation in SQL: what `runs.py` and `decisions.py` ask."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tfgrpo.store.activity.decisions import Decision
from tfgrpo.store.activity.runs import (
    AttemptMark,
    Call,
    Evaluation,
    RewardRow,
    RolloutRow,
    Run,
    RunState,
    SaidRow,
    Score,
    Spent,
    Usage,
)
from tfgrpo.store.canonical import canonical
from tfgrpo.store.damaged_values import check_row, check_rows, parse_json
from tfgrpo.store.records import Json

if TYPE_CHECKING:
    from tfgrpo.store.port import JournalWriter
    from tfgrpo.store.sql.port import Port

RUN_COLUMNS = "name, uid, branch, base, digest, config, author, time"
EVALUATION_COLUMNS = "version, dataset, digest, config, summary, time"
ROLLOUT_COLUMNS = "run, step, problem, sample, version, calls, outcome, reward, verdict, time"
DECISION_COLUMNS = "id, time, author, kind, subject, content, why"
SCORE_COLUMNS = "problem, sample, call, reward, answer"
TOKENS = "prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens"
CALL_COLUMNS = f"key, run, stage, step, model, request, answer, {TOKENS}, attempts, seconds, time"
MOST_TOKENS = 1_000_000_000
"""A count beyond this, of which sums would overflow, says nothing: it is left out of them."""
SUMS = ", ".join(
    [
        *(
            f"cast(sum(case when {c} > {MOST_TOKENS} then 0 else {c} end) as bigint)"
            for c in TOKENS.split(", ")
        ),
        "sum(seconds)",
    ]
)
KIND = "case when step is null then 'evaluation' else stage end"
"""The stage of a call: evaluations, which belong to no step, are one of their own."""
DAY = 86_400_000_000
"""Microseconds of a day."""
R = TypeVar("R", bound=NamedTuple)
SHAPES: dict[type, tuple[str, str, dict[int, str]]] = {
    Run: ("isssissst", "runs", {6: "the settings of run {1}"}),
    RunState: ("sSt", "states of runs", {}),
    RolloutRow: ("iisiissRst", "rollouts", {5: "a rollout's calls", 8: "a rollout's verdict"}),
    Call: ("bIsIsssiiiiirt", "calls", {6: "a call's answer"}),
    Evaluation: (
        *("iisssst", "evaluations"),
        {4: "an evaluation's config", 5: "an evaluation's summary"},
    ),
    Score: ("siBRS", "scores", {}),
    Decision: ("istssssS", "decisions", {6: "the content of decision {1}"}),
}
"""Of what types a record's columns are, what its rows are called, and which columns are JSON."""
LAST_STEP = 1 << 31
"""Beyond every step."""
FEWEST_SPOKEN, MOST_SPOKEN = 50, 1000
"""How many attempts the first and the last pages of those that are searched have."""
COUNTED = "reward is not null and sample < ?"
"""Whether an attempt has a reward, and had the prompt of all others."""


class Since(NamedTuple):
    """Which rows of a run come after a place: `place` is a row's own, `where` the condition, with
    its values, and `order` that in which they were recorded."""

    place: str
    where: str
    values: tuple[int, ...]
    order: str


class SqlCalls(ABC):
    """The journal of calls, and what they came to."""

    def __init__(self, port: Port) -> None:
        self._port = port

    @abstractmethod
    def calls_by_key(self, keys: Sequence[bytes]) -> list[Call]: ...

    @abstractmethod
    def since(self, table: str, run: int, after: int) -> Since:
        """Which rows of a table come after a place in it."""

    def plain(self, column: str) -> str:
        """A column as the text that it stands for."""
        return column

    def unpacked_call(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """A row of a call with its texts as they are. Raises StoreError."""
        return row

    def calls(self, run: int, stage: str, step: int | None) -> list[Call]:
        where, values = _where(run=run, stage=stage, step=step)
        return self.calls_where(f"{where} order by j.id", values)

    def calls_where(self, where: str, values: Sequence[object]) -> list[Call]:
        """The calls of which a clause is true."""
        rows = self._port.rows(
            f"select key, run, stage, step, model, t.text, answer, {TOKENS}, attempts, seconds,"
            " time from @.journal j"
            f" join @.texts t on t.{self._port.dialect.text_key} = request {where}",
            values,
        )
        return _records(Call, [self.unpacked_call(row) for row in rows])

    def usage(self, run: int, step: int | None) -> dict[str, Usage]:
        where, values = _where(run=run, step=step)
        rows = self._port.rows(
            f"select {KIND} kind, count(*), {SUMS} from @.journal {where}"
            " group by kind order by min(id)",
            values,
        )
        return {stage: Usage(*rest) for stage, *rest in rows}

    def spent(self, run: int | None, *, by_endpoint: bool = False) -> list[Spent]:
        where, values = _where(run=run)
        return [spent for _, spent in self._spent("0", where, "", values, by_endpoint=by_endpoint)]

    def spent_by_day(
        self, run: int | None, *, by_endpoint: bool = False
    ) -> list[tuple[int, Spent]]:
        where, values = _where(run=run)
        return self._spent(f"time / {DAY}", where, "first, ", values, by_endpoint=by_endpoint)

    def spent_since(
        self, run: int, after: int, *, by_endpoint: bool = False
    ) -> tuple[int, list[Spent]]:
        since = self.since("journal", run, after)
        sums = self._spent(
            f"max({since.place})", f"where {since.where}", "", since.values, by_endpoint=by_endpoint
        )
        return _last(sums, after), [spent for _, spent in sums]

    def _spent(
        self, first: str, where: str, by: str, values: Sequence[object], *, by_endpoint: bool
    ) -> list[tuple[Any, Spent]]:
        """Something of calls, and their sums: by run, step, kind, model and, if that is wanted,
        endpoint, and `by` more."""
        calls, endpoint = f"@.journal {where}", "null"
        if by_endpoint:
            calls, has_one, name = self._answers(where, "endpoint", "string")
            may_have = f"{self._port.dialect.find}(said, '\"endpoint\":') > 0"  # reads no JSON
            endpoint = f"case when {may_have} and {has_one} then {name} end"
        rows = self._port.rows(
            f"select {first} as first, run, step, {KIND} kind, model,"
            f" cast(sum(attempts - 1) as bigint), count(*), {SUMS}, {endpoint} endpoint"
            f" from {calls} group by {by}run, step, kind, model, endpoint order by min(id)",
            values,
        )
        return [
            (first, Spent._make((*kind, Usage._make(sums[:-1]), sums[-1])))
            for first, *rest in rows
            for kind, sums in [(rest[:5], rest[5:])]
        ]

    def estimated(self, run: int | None) -> int:
        where, values = _where(run=run)
        # in an answer's text quotes are escaped
        answer = self.plain("answer")
        condition = f"{self._port.dialect.find}({answer}, '\"estimated\":true') > 0"
        return self._port.number(
            f"select count(*) from @.journal {where} {'and' if where else 'where'} {condition}",
            values,
        )

    def sent(self, run: int) -> list[tuple[str, Json]]:
        where, values = _where(run=run)
        answers, condition, how = self._answers(where, "sent", "object")
        rows = self._port.rows(
            f"select model, {how} how from {answers} where {condition}"
            " group by model, how order by min(id)",
            values,
        )
        return [(model, parse_json(how, "a call's answer")) for model, how in rows]

    def _answers(self, where: str, name: str, kind: str) -> tuple[str, str, str]:
        """The journal with answers as `said`, whether one has such a member, and what it is."""
        dialect = self._port.dialect
        answers = f"(select *, {self.plain('answer')} said from @.journal {where}) a"
        return answers, dialect.kind("said", name, kind), dialect.member("said", name)


class SqlRecords(SqlCalls):
    """What training and evaluation leave behind, as `Runs` and `decisions.py` say. Appended, and
    never changed but by redaction."""

    @abstractmethod
    def writer(self) -> JournalWriter:
        """A writer to the journal, for another thread; opens nothing yet."""

    @abstractmethod
    def last_key(self, column: str) -> str:
        """The last of the journal's keys in a column that has them in hex, as JSON."""

    # Runs:

    def runs(self, name: str | None = None) -> list[Run]:
        """The runs (of that name), oldest first."""
        where, values = _where(name=name)
        return self._read(Run, f"select id, {RUN_COLUMNS} from @.runs {where} order by id", values)

    def append_run(self, run: Run) -> None:
        values = (*run[1:6], canonical(run.config).decode(), *run[7:])
        self._append("runs", "id", RUN_COLUMNS, values)

    def states(self, run: int) -> list[RunState]:
        query = "select state, detail, time from @.run_states where run = ? order by row"
        return self._read(RunState, query, (run,))

    def append_state(self, run: int, state: RunState) -> None:
        self._append("run_states", "row", "run, state, detail, time", (run, *state))

    def _append(self, table: str, key: str, columns: str, values: Sequence[object]) -> int:
        number = self._port.number(f"select max({key}) from @.{table}") + 1
        places = ",".join("?" * (len(values) + 1))
        query = f"insert into @.{table} ({key}, {columns}) values ({places})"
        self._port.execute(query, (number, *values))
        return number

    def _read(self, kind: type[R], query: str, values: Sequence[object]) -> list[R]:
        return _records(kind, self._port.rows(query, values))

    # Rollouts:

    def rollouts(self, run: int, step: int | None, problem: str | None = None) -> list[RolloutRow]:
        where, values = _where(run=run, step=step, problem=problem)
        query = f"select {ROLLOUT_COLUMNS} from @.rollouts {where} order by step, problem, sample"
        return self._read(RolloutRow, query, values)

    def spoken(self, before: int) -> Iterator[SaidRow]:
        """The attempts recorded before a place, newest first."""
        answer = self.plain("coalesce(j.answer, '')")
        query = (
            "select r.id, r.run, r.step, r.problem, r.sample,"
            f" {self.plain('r.verdict')}, {answer} from @.rollouts r"
            f" left join @.journal j on j.key = {self.last_key('r.calls')}"
            " where r.id < ? order by r.id desc limit ?"
        )
        many = FEWEST_SPOKEN
        while rows := self._port.rows(query, (before, many)):
            for row in rows:  # a search ends where it has enough
                yield SaidRow._make(check_row(row, "iiisiss", "rollouts"))
            before, many = rows[-1][0], min(2 * many, MOST_SPOKEN)

    def attempts_since(self, run: int, after: int) -> tuple[int, list[AttemptMark]]:
        since = self.since("rollouts", run, after)
        rows = self._port.rows(
            f"select {since.place}, step, problem, sample, version, outcome, reward, time"
            f" from @.rollouts where {since.where} order by {since.order}",
            since.values,
        )
        checked = check_rows(rows, "iisiisRt", "rollouts")
        attempts = [AttemptMark._make(row[1:]) for row in checked]
        return _last(rows, after), attempts

    def reward_steps(self, run: int, samples: int, upto: int | None) -> list[tuple[int, int]]:
        rows = self._port.rows(
            f"select step, version from @.rollouts where run = ? and step <= ? and {COUNTED}"
            " group by step, version order by step, version",
            (run, LAST_STEP if upto is None else upto, samples),
        )
        return [(step, version) for step, version in check_rows(rows, "ii", "rollouts")]

    def rewards(self, run: int, samples: int, upto: int | None, name: str) -> Iterator[RewardRow]:
        assert not name or name.isidentifier(), "a word"

        def member(name: str) -> str:
            there = f"{self._port.dialect.find}(verdict, '\"{name}\":') > 0"
            return f"case when {there} then {self._port.dialect.member('verdict', name)} end"

        rows = self._port.stream(
            f"select step, problem, sample, version, reward, {member('without')},"
            f" {member('belongs')}, {member(name) if name else 'null'} from @.rollouts"
            f" where run = ? and step <= ? and {COUNTED} order by step, problem, sample",
            (run, LAST_STEP if upto is None else upto, samples),
        )
        for row in rows:
            check_row(row, "isiirSSS", "rollouts")
            yield RewardRow._make((*row[:7], row[7] or ""))

    # Evaluations:

    def evaluations(
        self, version: int | None = None, digest: str | None = None
    ) -> list[Evaluation]:
        where, values = _where(version=version, digest=digest)
        query = f"select id, {EVALUATION_COLUMNS} from @.evaluations {where} order by id"
        return self._read(Evaluation, query, values)

    def append_evaluation(self, evaluation: Evaluation, scores: Iterable[Score]) -> None:
        config, summary = canonical(evaluation.config), canonical(evaluation.summary)
        values = (*evaluation[1:4], config.decode(), summary.decode(), evaluation.time)
        id = self._append("evaluations", "id", EVALUATION_COLUMNS, values)
        rows = [(id, *score) for score in scores]
        self._port.insert("scores", f"evaluation, {SCORE_COLUMNS}", rows)

    def scores(self, evaluation: int) -> list[Score]:
        query = f"select {SCORE_COLUMNS} from @.scores where evaluation = ?"
        return self._read(Score, f"{query} order by problem, sample", (evaluation,))

    # Decisions:

    def decisions(
        self, kind: str | None = None, subject: str | None = None, since: int = 0
    ) -> list[Decision]:
        where, values = _where(kind=kind, subject=subject)
        where = f"{where} {'and' if where else 'where'} time >= ?"
        query = f"select row, {DECISION_COLUMNS} from @.decisions {where} order by row"
        return self._read(Decision, query, (*values, since))

    def append_decision(self, decision: Decision) -> int:
        values = (*decision[1:6], canonical(decision.content).decode(), decision.why)
        return self._append("decisions", "row", DECISION_COLUMNS, values)


def _where(**columns: int | str | None) -> tuple[str, tuple[int | str, ...]]:
    """The clause that asks for columns to have these values, None being any, and those."""
    given = {column: value for column, value in columns.items() if value is not None}
    clause = " and ".join(f"{column} = ?" for column in given)
    return f"where {clause}" if clause else "", tuple(given.values())


def _last(rows: Sequence[Any], after: int) -> int:
    return max((row[0] for row in rows), default=after)


def _records(kind: type[R], rows: list[Any]) -> list[R]:
    """Rows as the records that they hold. Raises StoreError."""
    shape, what, parsed = SHAPES[kind]
    records = []
    for row in check_rows(rows, shape, what):
        values = list(row)
        for column, called in parsed.items():
            of = list if called == "a rollout's calls" else dict
            value = parse_json(row[column], called.format(*row), of)
            values[column] = tuple(value) if of is list else value
        records.append(kind._make(values))
    return records
