"""Runs, rollouts, calls and evaluations in a database: what `runs.py` asks of PostgreSQL.

Writers of the journal take no turns, so the rows of one may be committed after rows of another
with higher numbers. What tells where a watcher was is therefore the transaction that wrote a
row (`tx`), and only rows are read that none which is still being written can come before: a
writer holds its table before it has a transaction's number, and both are seen in `pg_locks`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from tfgrpo.store.canonical import canonical
from tfgrpo.store.decisions import Decision, DecisionFilter
from tfgrpo.store.postgres.locks import hold, is_held, is_ours
from tfgrpo.store.records import Json
from tfgrpo.store.row_checks import check_row, check_rows, parse_json
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
    from tfgrpo.store.postgres.port import PostgresPort
    from tfgrpo.store.postgres.session import Session

RUN_COLUMNS = "name, uid, branch, base, digest, config, author, time"
EVALUATION_COLUMNS = "version, dataset, digest, config, summary, time"
ROLLOUT_COLUMNS = "run, step, problem, sample, version, calls, outcome, reward, verdict, time"
DECISION_COLUMNS = "row, id, time, author, kind, subject, content, why"
TOKENS = "prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens"
CALL_COLUMNS = f"key, run, stage, step, model, request, answer, {TOKENS}, attempts, seconds, time"
MOST_TOKENS = 1_000_000_000
"""A count beyond this says nothing: it is left out of sums, as in a file."""
SUMS = ", ".join(
    [
        *(
            f"sum(case when {c} > {MOST_TOKENS} then 0 else {c} end)::bigint"
            for c in TOKENS.split(", ")
        ),
        "sum(seconds)",
    ]
)
LAST_STEP = 1 << 31
"""Beyond every step."""
DAY = 86_400_000_000
"""Microseconds of a day."""
KIND = "case when step is null and stage <> 'embedding' then 'evaluation' else stage end"
"""The stage of a call: evaluations, which belong to no step, are one of their own."""
RETRIES = "sum(attempts - 1)::bigint"
SINCE = """
(tx > %(after)s and tx < %(open)s
    or %(after)s = 0 and tx >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint)
"""
"""Rows after a place that no other can come before any more. Numbers that this server has not
reached are of another one, from which the rows were restored: they are read once."""
OPEN = """
select least(next, min(next - ((next %% 4294967296) - xid + 4294967296) %% 4294967296))
from (select pg_snapshot_xmax(pg_current_snapshot())::text::bigint as next) n left join (
    select t.transactionid::text::bigint as xid from pg_locks r join pg_locks t
        on t.virtualtransaction = r.virtualtransaction and t.locktype = 'transactionid'
            and t.mode = 'ExclusiveLock' and t.granted
    where r.locktype = 'relation' and r.relation = %s::regclass and r.mode = 'RowExclusiveLock'
        and r.database = (select oid from pg_database where datname = current_database())
) w on true group by next
"""
"""The first transaction that may still write to a table, here or after this query's moment."""
PLAIN = r"""
(reward is not null and sample < %(samples)s and case when position('"hint":' in verdict) > 0
    then replace(verdict, '\u0000', '\u0001')::json -> 'hint' is null else true end)
"""
"""Whether an attempt has a reward, and had the prompt of all others. PostgreSQL's own JSON has no
NUL, so another character takes its place."""


class PostgresRecords:
    """The records behind a port, read and written over its connection."""

    def __init__(self, port: PostgresPort) -> None:
        self._port = port
        self._locks: dict[str, Session] = {}

    # Runs:

    def runs(self, *, name: str | None = None, digest: str | None = None) -> list[Run]:
        where, values = _where(name=name, digest=digest)
        query = f"select id, {RUN_COLUMNS} from @.runs {where} order by id"
        return [_run(row) for row in self._port.rows(query, values)]

    def append_run(self, run: Run) -> None:
        self._port.session.execute(
            f"insert into @.runs (id, {RUN_COLUMNS})"
            " select coalesce(max(id), 0) + 1, %s,%s,%s,%s,%s,%s,%s,%s from @.runs",
            (*run[1:6], canonical(run.config).decode(), *run[7:]),
        )

    def hold(self, name: str) -> AbstractContextManager[bool]:
        return hold(self._port.address, name, self._locks)

    def is_ours(self, name: str) -> bool:
        return is_ours(name, self._locks)

    def is_held(self, name: str) -> bool:
        return is_held(self._port.session, name)

    def states(self, run: int) -> list[RunState]:
        query = "select state, detail, time from @.run_states where run = %s order by row"
        rows = self._port.rows(query, (run,))
        return [RunState._make(row) for row in check_rows(rows, "sSt", "states of runs")]

    def append_state(self, run: int, state: RunState) -> None:
        self._port.session.execute(
            "insert into @.run_states (row, run, state, detail, time)"
            " select coalesce(max(row), 0) + 1, %s,%s,%s,%s from @.run_states",
            (run, *state),
        )

    # Rollouts and calls:

    def rollouts(self, run: int, step: int | None, problem: str | None = None) -> list[RolloutRow]:
        where, values = _where(run=run, step=step, problem=problem)
        query = f"select {ROLLOUT_COLUMNS} from @.rollouts {where} order by step, problem, sample"
        rows = self._port.rows(query, values)
        return [_rollout(row) for row in check_rows(rows, "iisiissRst", "rollouts")]

    def attempts_since(self, run: int, after: int) -> AttemptTail:
        rows = self._port.rows(
            "select least(tx, %(open)s - 1), step, problem, sample, version, outcome, reward, time"
            f" from @.rollouts where run = %(run)s and {SINCE} order by tx, id",
            self._since("rollouts", run, after),
        )
        checked = check_rows(rows, "iisiisRt", "rollouts")
        attempts = [AttemptMark._make(row[1:]) for row in checked]
        return AttemptTail(_place(rows, after), attempts)

    def reward_sums(self, run: int, after: int, samples: int) -> Iterator[RewardSum]:
        rows = self._port.session.stream(
            "select max(least(tx, %(open)s - 1)), step, problem, max(version),"
            " count(*) filter (where plain and reward > 0.5), count(*) filter (where plain)"
            f" from (select tx, step, problem, version, reward, {PLAIN} plain from @.rollouts"
            f" where run = %(run)s and {SINCE}) r group by step, problem order by step",
            self._since("rollouts", run, after) | {"samples": samples},
        )
        for row in rows:
            yield RewardSum._make(check_row(row, "iisiii", "rollouts"))

    def reward_steps(self, run: int, samples: int, upto: int | None) -> list[tuple[int, int]]:
        rows = self._port.rows(
            "select step, version from @.rollouts where run = %s and step <= %s and sample < %s"
            " and reward is not null group by step, version order by step, version",
            (run, LAST_STEP if upto is None else upto, samples),
        )
        return [(step, version) for step, version in check_rows(rows, "ii", "rollouts")]

    def rewards(self, run: int, samples: int, upto: int | None, name: str) -> Iterator[RewardRow]:
        rows = self._port.session.stream(
            f"""
            select step, problem, sample, version, reward, case when without then
                replace(verdict, '\\u0000', '\\u0001')::json ->> 'without' end,
                case when named then
                    replace(verdict, '\\u0000', '\\u0001')::json ->> %(name)s end
            from (
                select *, position('"without":' in verdict) > 0 as without,
                    %(name)s <> '' and position('"' || %(name)s || '":' in verdict) > 0 as named
                from @.rollouts where run = %(run)s and step <= %(upto)s and {PLAIN}
            ) r order by step, problem, sample
            """,
            {
                "name": name,
                "run": run,
                "upto": LAST_STEP if upto is None else upto,
                "samples": samples,
            },
        )
        for row in rows:
            check_row(row, "isiirSS", "rollouts")
            yield RewardRow._make((*row[:6], row[6] or ""))

    def _since(self, table: str, run: int, after: int) -> dict[str, int]:
        """Returns what SINCE asks for. The place that follows is below `open`, so nothing that
        comes later is missed."""
        name = self._port.session.quoted + "." + table
        return {"run": run, "after": after, "open": self._port.number(OPEN, (name,))}

    def call(self, key: bytes) -> Call | None:
        return next(iter(self._calls("where key = %s", (key,))), None)

    def calls_by_key(self, keys: Sequence[bytes]) -> list[Call]:
        return self._calls("where key = any(%s)", (list(keys),)) if keys else []

    def calls(self, run: int, stage: str, step: int | None) -> list[Call]:
        where, values = _where(run=run, stage=stage, step=step)
        return self._calls(f"{where} order by j.id", values)

    def _calls(self, where: str, values: tuple[Any, ...]) -> list[Call]:
        rows = self._port.rows(
            f"select key, run, stage, step, model, t.text, answer, {TOKENS}, attempts, seconds,"
            f" time from @.journal j join @.texts t on t.digest = request {where}",
            values,
        )
        return [_call(row) for row in rows]

    def usage(self, run: int, step: int | None) -> dict[str, Usage]:
        where, values = _where(run=run, step=step)
        rows = self._port.rows(
            f"select {KIND} kind, count(*), {SUMS} from @.journal {where}"
            " group by kind order by min(id)",
            values,
        )
        return {stage: Usage(*rest) for stage, *rest in rows}

    def spent(self, run: int | None) -> list[Spent]:
        where, values = _where(run=run)
        rows = self._port.rows(
            f"select run, step, {KIND} kind, model, {RETRIES}, count(*), {SUMS}"
            f" from @.journal {where} group by run, step, kind, model order by min(id)",
            values,
        )
        return [_spent(row) for row in rows]

    def spent_by_day(self, run: int | None) -> list[DaySpent]:
        where, values = _where(run=run)
        rows = self._port.rows(
            f"select time / {DAY} as day, run, step, {KIND} kind, model, {RETRIES}, count(*),"
            f" {SUMS} from @.journal {where} group by day, run, step, kind, model order by min(id)",
            values,
        )
        return [DaySpent(row[0], _spent(row[1:])) for row in rows]

    def spent_since(self, run: int, after: int) -> SpentTail:
        rows = self._port.rows(
            f"select max(least(tx, %(open)s - 1)), run, step, {KIND} kind, model, {RETRIES},"
            f" count(*), {SUMS} from @.journal where run = %(run)s and {SINCE}"
            " group by run, step, kind, model order by min(id)",
            self._since("journal", run, after),
        )
        return SpentTail(_place(rows, after), [_spent(row[1:]) for row in rows])

    def spent_by_endpoint(self, run: int | None) -> list[EndpointSpent]:
        where, values = _where(run=run)
        condition = "answer like '%%\"endpoint\":%%'"
        rows = self._port.rows(
            rf"""
            select endpoint #>> '{{}}', run, step, kind, model, {RETRIES}, count(*), {SUMS} from (
                select *, {KIND} kind,
                    replace(answer, '\u0000', '\u0001')::json -> 'endpoint' as endpoint
                from @.journal {where} {"and" if where else "where"} {condition}
            ) s where json_typeof(endpoint) = 'string'
            group by endpoint #>> '{{}}', run, step, kind, model order by min(id)
            """,
            values,
        )
        return [EndpointSpent(row[0], _spent(row[1:])) for row in rows]

    def estimated(self, run: int | None) -> int:
        where, values = _where(run=run)
        # in an answer's text quotes are escaped
        condition = "answer like '%%\"estimated\":true%%'"
        return self._port.number(
            f"select count(*) from @.journal {where} {'and' if where else 'where'} {condition}",
            values,
        )

    def sent(self, run: int) -> list[tuple[str, Json]]:
        # PostgreSQL's own JSON has no NUL; what an answer has as `sent` never has one.
        rows = self._port.rows(
            r"""
            select model, how::text from (
                select id, model, replace(answer, '\u0000', '\u0001')::json -> 'sent' as how
                from @.journal where run = %s and answer like '%%"sent":%%'
            ) s where json_typeof(how) = 'object'
            group by model, how::text order by min(id)
            """,
            (run,),
        )
        return [(model, parse_json(how, "a call's answer")) for model, how in rows]

    # Evaluations:

    def evaluations(
        self, version: int | None = None, digest: str | None = None
    ) -> list[Evaluation]:
        where, values = _where(version=version, digest=digest)
        query = f"select id, {EVALUATION_COLUMNS} from @.evaluations {where} order by id"
        rows = self._port.rows(query, values)
        return [_evaluation(row) for row in check_rows(rows, "iisssst", "evaluations")]

    def append_evaluation(self, evaluation: Evaluation, scores: Iterable[Score]) -> None:
        id = self._port.number(
            f"insert into @.evaluations (id, {EVALUATION_COLUMNS})"
            " select coalesce(max(id), 0) + 1, %s,%s,%s,%s,%s,%s from @.evaluations returning id",
            (
                *evaluation[1:4],
                canonical(evaluation.config).decode(),
                canonical(evaluation.summary).decode(),
                evaluation.time,
            ),
        )
        self._port.insert(
            "scores",
            "evaluation, problem, sample, call, reward, answer",
            "bigint text bigint bytea float8 text",
            [(id, *score) for score in scores],
        )

    def scores(self, evaluation: int) -> list[Score]:
        rows = self._port.rows(
            "select problem, sample, call, reward, answer from @.scores where evaluation = %s"
            " order by problem, sample",
            (evaluation,),
        )
        return [Score._make(row) for row in check_rows(rows, "siBRS", "scores")]

    # Decisions:

    def decisions(self, which: DecisionFilter) -> list[Decision]:
        where, values = _where(kind=which.kind, subject=which.subject)
        query = f"select {DECISION_COLUMNS} from @.decisions {where} order by row"
        rows = check_rows(self._port.rows(query, values), "istssssS", "decisions")
        return [_decision(row) for row in rows if row[2] >= which.since]

    def append_decision(self, decision: Decision) -> int:
        self._port.moved()
        return self._port.number(
            "insert into @.decisions (row, id, time, author, kind, subject, content, why)"
            " select coalesce(max(row), 0) + 1, %s,%s,%s,%s,%s,%s,%s from @.decisions"
            " returning row",
            (*decision[1:6], canonical(decision.content).decode(), decision.why),
        )


def _where(**columns: int | str | None) -> tuple[str, tuple[int | str, ...]]:
    """Returns the clause that asks for columns to have these values, None being any, and those."""
    given = {column: value for column, value in columns.items() if value is not None}
    clause = " and ".join(f"{column} = %s" for column in given)
    return f"where {clause}" if clause else "", tuple(given.values())


def _place(rows: list[Any], after: int) -> int:
    """Returns the place after rows that begin with theirs."""
    return max((row[0] for row in rows), default=after)


def _run(row: tuple[Any, ...]) -> Run:
    check_row(row, "isssissst", "runs")
    return Run._make((*row[:6], parse_json(row[6], f"the settings of run {row[1]}"), *row[7:]))


def _spent(row: tuple[Any, ...]) -> Spent:
    return Spent._make((*row[:5], Usage._make(row[5:])))


def _call(row: tuple[Any, ...]) -> Call:
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
