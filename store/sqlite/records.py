"""Runs, rollouts, calls and evaluations in tables: what `runs.py` asks of SQLite."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from tfgrpo.store.canonical import canonical
from tfgrpo.store.decisions import Decision, DecisionFilter
from tfgrpo.store.records import Json
from tfgrpo.store.row_checks import check_row, check_rows, damage_error, parse_json
from tfgrpo.store.runs import (
    AttemptMark,
    AttemptTail,
    Call,
    DaySpent,
    EndpointSpent,
    Evaluation,
    RewardRow,
    RewardSum,
    RolloutRow,
    Run,
    RunState,
    Score,
    Spent,
    SpentTail,
    Usage,
)

if TYPE_CHECKING:
    from tfgrpo.store.sqlite.port import SqlitePort

RUN_COLUMNS = "name, uid, branch, base, digest, config, author, time"
EVALUATION_COLUMNS = "version, dataset, digest, config, summary, time"
ROLLOUT_COLUMNS = "run, step, problem, sample, version, calls, outcome, reward, verdict, time"
DECISION_COLUMNS = "row, id, time, author, kind, subject, content, why"
TOKENS = "prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens"
CALL_COLUMNS = f"key, run, stage, step, model, request, answer, {TOKENS}, attempts, seconds, time"
MOST_TOKENS = 1_000_000_000
"""A count beyond this, of which sums would overflow, says nothing: it is left out of them."""
SUMS = ", ".join(
    [*(f"sum(iif({c} > {MOST_TOKENS}, 0, {c}))" for c in TOKENS.split(", ")), "sum(seconds)"]
)
DAY = 86_400_000_000
"""Microseconds of a day."""
LAST_STEP = 1 << 62
"""Beyond every step."""
KEYS = (256, 64, 16, 4, 1)
"""Keys that a query asks for: few sizes, so that each is prepared once."""
PLAIN = (
    "reward is not null and sample < ?"
    " and not (instr(verdict, '\"hint\":') and json_type(verdict, '$.hint') is not null)"
)
"""Whether an attempt has a reward, and had the prompt of all others. In a verdict's texts quotes
are escaped, so that few verdicts have to be read as JSON."""
KIND = "case when step is null and stage != 'embedding' then 'evaluation' else stage end"
"""The stage of a call: evaluations, which belong to no step, are one of their own."""


class SqliteRecords:
    """The records behind a port, read and written over its connection."""

    def __init__(self, port: SqlitePort) -> None:
        self._port = port

    # Runs:

    def runs(self, *, name: str | None = None, digest: str | None = None) -> list[Run]:
        where, values = _where(name=name, digest=digest)
        query = f"select id, {RUN_COLUMNS} from runs {where} order by id"
        return [_run(row) for row in self._port.rows(query, values)]

    def append_run(self, run: Run) -> None:
        self._port.connection.execute(
            f"insert into runs ({RUN_COLUMNS}) values (?,?,?,?,?,?,?,?)",
            (*run[1:6], canonical(run.config).decode(), *run[7:]),
        )

    def hold(self, name: str) -> AbstractContextManager[bool]:
        return nullcontext(True)

    def is_ours(self, name: str) -> bool:
        return True

    def is_held(self, name: str) -> bool:
        return False

    def states(self, run: int) -> list[RunState]:
        query = "select state, detail, time from run_states where run = ? order by row"
        rows = self._port.rows(query, (run,))
        return [RunState._make(row) for row in check_rows(rows, "sSt", "states of runs")]

    def append_state(self, run: int, state: RunState) -> None:
        query = "insert into run_states (run, state, detail, time) values (?,?,?,?)"
        self._port.connection.execute(query, (run, *state))

    # Rollouts and calls:

    def rollouts(self, run: int, step: int | None, problem: str | None = None) -> list[RolloutRow]:
        where, values = _where(run=run, step=step, problem=problem)
        query = f"select {ROLLOUT_COLUMNS} from rollouts {where} order by step, problem, sample"
        rows = self._port.rows(query, values)
        return [_rollout(row) for row in check_rows(rows, "iisiissRst", "rollouts")]

    def attempts_since(self, run: int, after: int) -> AttemptTail:
        # The plus has the rows found by their number: those of the run before it are not read.
        rows = self._port.rows(
            "select id, step, problem, sample, version, outcome, reward, time from rollouts"
            " where +run = ? and id > ? order by id",
            (run, after),
        )
        checked = check_rows(rows, "iisiisRt", "rollouts")
        attempts = [AttemptMark._make(row[1:]) for row in checked]
        return AttemptTail(rows[-1][0] if rows else after, attempts)

    def call(self, key: bytes) -> Call | None:
        return next(iter(self._calls("where key = ?", (key,))), None)

    def calls_by_key(self, keys: Sequence[bytes]) -> list[Call]:
        calls: list[Call] = []
        start = 0
        while start < len(keys):
            left = len(keys) - start
            size = next(size for size in KEYS if size <= left or size == 1)
            places = ",".join("?" * size)
            calls += self._calls(f"where key in ({places})", tuple(keys[start : start + size]))
            start += size
        return calls

    def reward_sums(self, run: int, after: int, samples: int) -> Iterator[RewardSum]:
        # As in `attempts_since`: what is before is not read. All of a run is found by its index.
        of_run = "+run = ?" if after else "run = ?"
        rows = self._port.stream(
            "select max(id), step, problem, max(version), sum(plain and reward > 0.5),"
            f" sum(plain) from (select id, step, problem, version, reward, {PLAIN} plain"
            f" from rollouts where {of_run} and id > ?) group by step, problem order by step",
            (samples, run, after),
        )
        for row in rows:
            yield RewardSum._make(check_row(row, "iisiii", "rollouts"))

    def reward_steps(self, run: int, samples: int, upto: int | None) -> list[tuple[int, int]]:
        rows = self._port.rows(
            "select step, version from rollouts where run = ? and step <= ? and sample < ?"
            " and reward is not null group by step, version order by step, version",
            (run, LAST_STEP if upto is None else upto, samples),
        )
        return [(step, version) for step, version in check_rows(rows, "ii", "rollouts")]

    def rewards(self, run: int, samples: int, upto: int | None, name: str) -> Iterator[RewardRow]:
        rows = self._port.stream(
            f"""
            select step, problem, sample, version, reward,
                case when instr(verdict, '"without":') then json_extract(verdict, '$.without') end,
                case when ? != '' and instr(verdict, ?) then json_extract(verdict, ?) end
            from rollouts where run = ? and step <= ? and {PLAIN} order by step, problem, sample
            """,
            (
                *(name, f'"{name}":', f"$.{name}"),
                *(run, LAST_STEP if upto is None else upto, samples),
            ),
        )
        for row in rows:
            check_row(row, "isiirSS", "rollouts")
            yield RewardRow._make((*row[:6], row[6] or ""))

    def calls(self, run: int, stage: str, step: int | None) -> list[Call]:
        where, values = _where(run=run, stage=stage, step=step)
        return self._calls(f"{where} order by journal.id", values)

    def _calls(self, where: str, values: tuple[Any, ...]) -> list[Call]:
        rows = self._port.rows(
            f"select key, run, stage, step, model, text, answer, {TOKENS}, attempts, seconds, time"
            f" from journal join texts on texts.id = request {where}",
            values,
        )
        return [_call(row) for row in rows]

    def usage(self, run: int, step: int | None) -> dict[str, Usage]:
        where, values = _where(run=run, step=step)
        rows = self._port.rows(
            f"select {KIND} kind, count(*), {SUMS} from journal {where}"
            " group by kind order by min(id)",
            values,
        )
        return {stage: Usage(*rest) for stage, *rest in rows}

    def spent(self, run: int | None) -> list[Spent]:
        where, values = _where(run=run)
        rows = self._port.rows(
            f"select run, step, {KIND} kind, model, sum(attempts - 1), count(*), {SUMS}"
            f" from journal {where} group by run, step, kind, model order by min(id)",
            values,
        )
        return [_spent(row) for row in rows]

    def spent_by_day(self, run: int | None) -> list[DaySpent]:
        where, values = _where(run=run)
        rows = self._port.rows(
            f"select time / {DAY} day, run, step, {KIND} kind, model, sum(attempts - 1), count(*),"
            f" {SUMS} from journal {where} group by day, run, step, kind, model order by min(id)",
            values,
        )
        return [DaySpent(row[0], _spent(row[1:])) for row in rows]

    def spent_since(self, run: int, after: int) -> SpentTail:
        rows = self._port.rows(
            f"select max(id), run, step, {KIND} kind, model, sum(attempts - 1), count(*), {SUMS}"
            " from journal where +run = ? and id > ?"
            " group by run, step, kind, model order by min(id)",
            (run, after),
        )
        last = max((row[0] for row in rows), default=after)
        return SpentTail(last, [_spent(row[1:]) for row in rows])

    def spent_by_endpoint(self, run: int | None) -> list[EndpointSpent]:
        where, values = _where(run=run)
        rows = self._plain_rows(
            f"select json_extract(said, '$.endpoint') endpoint, run, step, {KIND} kind, model,"
            f" sum(attempts - 1), count(*), {SUMS}"
            f" from (select *, plain(answer) said from journal {where})"
            " where said like '%\"endpoint\":%' and json_valid(said)"
            " and json_type(said, '$.endpoint') = 'text'"
            " group by endpoint, run, step, kind, model order by min(id)",
            values,
        )
        return [EndpointSpent(row[0], _spent(row[1:])) for row in rows]

    def estimated(self, run: int | None) -> int:
        where, values = _where(run=run)
        # in an answer's text quotes are escaped
        condition = "plain(answer) like '%\"estimated\":true%'"
        (count,) = self._plain_rows(
            f"select count(*) from journal {where} {'and' if where else 'where'} {condition}",
            values,
        )
        return int(count[0])

    def _plain_rows(self, query: str, values: tuple[int | str, ...]) -> list[Any]:
        """Returns a query's rows, in which `plain(answer)` is the text of an answer."""
        from tfgrpo.store.sqlite.packing import define_plain

        define_plain(self._port.connection)
        return self._port.rows(query, values)

    def sent(self, run: int) -> list[tuple[str, Json]]:
        rows = self._plain_rows(
            "select model, json_extract(said, '$.sent') how"
            " from (select id, model, plain(answer) said from journal where run = ?)"
            " where said like '%\"sent\":%' and json_valid(said)"
            " and json_type(said, '$.sent') = 'object' group by model, how order by min(id)",
            (run,),
        )
        return [(model, parse_json(how, "a call's answer")) for model, how in rows]

    # Evaluations:

    def evaluations(
        self, version: int | None = None, digest: str | None = None
    ) -> list[Evaluation]:
        where, values = _where(version=version, digest=digest)
        query = f"select id, {EVALUATION_COLUMNS} from evaluations {where} order by id"
        rows = self._port.rows(query, values)
        return [_evaluation(row) for row in check_rows(rows, "iisssst", "evaluations")]

    def append_evaluation(self, evaluation: Evaluation, scores: Iterable[Score]) -> None:
        cursor = self._port.connection.execute(
            f"insert into evaluations ({EVALUATION_COLUMNS}) values (?,?,?,?,?,?)",
            (
                *evaluation[1:4],
                canonical(evaluation.config).decode(),
                canonical(evaluation.summary).decode(),
                evaluation.time,
            ),
        )
        self._port.connection.executemany(
            "insert into scores values (?,?,?,?,?,?)",
            [(cursor.lastrowid, *score) for score in scores],
        )

    def scores(self, evaluation: int) -> list[Score]:
        rows = self._port.rows(
            "select problem, sample, call, reward, answer from scores where evaluation = ?"
            " order by problem, sample",
            (evaluation,),
        )
        return [Score._make(row) for row in check_rows(rows, "siBRS", "scores")]

    # Decisions:

    def decisions(self, which: DecisionFilter) -> list[Decision]:
        where, values = _where(kind=which.kind, subject=which.subject)
        query = f"select {DECISION_COLUMNS} from decisions {where} order by row"
        rows = check_rows(self._port.rows(query, values), "istssssS", "decisions")
        return [_decision(row) for row in rows if row[2] >= which.since]

    def append_decision(self, decision: Decision) -> int:
        cursor = self._port.connection.execute(
            "insert into decisions (id, time, author, kind, subject, content, why)"
            " values (?,?,?,?,?,?,?)",
            (*decision[1:6], canonical(decision.content).decode(), decision.why),
        )
        return int(cursor.lastrowid or 0)


def _where(**columns: int | str | None) -> tuple[str, tuple[int | str, ...]]:
    """Returns the clause that asks for columns to have these values, None being any, and those."""
    given = {column: value for column, value in columns.items() if value is not None}
    clause = " and ".join(f"{column} = ?" for column in given)
    return f"where {clause}" if clause else "", tuple(given.values())


def _run(row: tuple[Any, ...]) -> Run:
    check_row(row, "isssissst", "runs")
    return Run._make((*row[:6], parse_json(row[6], f"the settings of run {row[1]}"), *row[7:]))


def _spent(row: tuple[Any, ...]) -> Spent:
    return Spent._make((*row[:5], Usage._make(row[5:])))


def _call(row: tuple[Any, ...]) -> Call:
    from tfgrpo.store.sqlite.packing import unpack_text

    try:
        row = (*row[:5], unpack_text(row[5]), unpack_text(row[6]), *row[7:])
    except ValueError:
        raise damage_error("a call has a text that cannot be read") from None
    check_row(row, "bIsIsssiiiiirt", "calls")
    return Call._make((*row[:6], parse_json(row[6], "a call's answer"), *row[7:]))


def _rollout(row: tuple[Any, ...]) -> RolloutRow:
    calls, verdict = (
        parse_json(row[5], "a rollout's calls", list),
        parse_json(row[8], "a rollout's verdict"),
    )
    return RolloutRow._make((*row[:5], tuple(calls), *row[6:8], verdict, row[9]))


def _evaluation(row: tuple[Any, ...]) -> Evaluation:
    config = parse_json(row[4], "an evaluation's config")
    return Evaluation._make(
        (*row[:4], config, parse_json(row[5], "an evaluation's summary"), row[6])
    )


def _decision(row: tuple[Any, ...]) -> Decision:
    content = parse_json(row[6], f"the content of decision {row[1]}")
    return Decision._make((*row[:6], content, row[7]))
