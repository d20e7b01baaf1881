"""What training and evaluation leave behind beside the library: runs, rollouts, calls, scores.

None of it enters a version's digest; events point at it. Rows are appended and never changed;
a run's state is the last row of its states.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tfgrpo.store import lock
from tfgrpo.store.damage import check_row, checked, parsed
from tfgrpo.store.errors import InvalidName, UnknownRevision
from tfgrpo.store.port import Port
from tfgrpo.store.records import Json
from tfgrpo.store.revisions import check_name
from tfgrpo.store.sqlite import SqlitePort

if TYPE_CHECKING:
    from pathlib import Path

TOKENS = "prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens"


class Run(NamedTuple):
    """One training run: its frozen settings, the branch it grows and where it began."""

    id: int
    name: str
    uid: str
    branch: str
    base: int
    digest: str
    config: Json
    author: str
    time: int


class RunState(NamedTuple):
    """started, resumed, unsealed, interrupted, failed or finished, with what there is to say."""

    state: str
    detail: str | None
    time: int


class Call(NamedTuple):
    """A model call that was paid for. `answer` is JSON: content, finish_reason and the like.

    `attempts` counts the tries it took, `seconds` is the time of the one that answered.
    """

    key: bytes
    run: int | None
    stage: str
    step: int | None
    model: str
    request: str
    answer: Json
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    reasoning_tokens: int
    attempts: int
    seconds: float
    time: int


class RolloutRow(NamedTuple):
    """One attempt at a problem, as recorded. A `reward` of None means it could not be scored."""

    run: int
    step: int
    problem: str
    sample: int
    version: int
    calls: tuple[str, ...]
    outcome: str
    reward: float | None
    verdict: Json
    time: int


class Score(NamedTuple):
    """One sample of an evaluation. `answer` is what was extracted from it, for majority votes."""

    problem: str
    sample: int
    call: bytes | None
    reward: float | None
    answer: str | None


class Evaluation(NamedTuple):
    """The scores of one library on one dataset."""

    id: int
    version: int
    dataset: str
    digest: str
    config: Json
    summary: Json
    time: int


class Usage(NamedTuple):
    """Calls and tokens, added up."""

    calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    seconds: float = 0.0


class Spent(NamedTuple):
    """Calls of one kind, added up. `step` is None for an evaluation, `run` for one of its own."""

    run: int | None
    step: int | None
    stage: str
    model: str
    retries: int
    usage: Usage


class Runs:
    """Reads and appends runs, rollouts, calls and evaluations of the store behind `port`."""

    def __init__(self, port: Port, path: Path | str) -> None:
        assert isinstance(port, SqlitePort)
        self._port = port
        self._db: sqlite3.Connection = port.connection
        self._path = path

    # runs:

    def create(self, name: str, uid: str, branch: str, base: int, config: Json, author: str) -> Run:
        """Records a new run. Raises InvalidName when the name is taken or cannot be one."""
        from tfgrpo.store.canonical import canonical, digest

        check_name("run", name)
        now = time.time_ns() // 1000
        with self._port.transaction():
            if self.find(name) is not None:
                raise InvalidName(
                    f"there is a run {name} already",
                    hint=f"choose another --run name, or go on with it: --resume {name}",
                )
            self._db.execute(
                "insert into runs (name, uid, branch, base, digest, config, author, time)"
                " values (?,?,?,?,?,?,?,?)",
                (
                    name,
                    uid,
                    branch,
                    base,
                    digest(config).hex(),
                    canonical(config).decode(),
                    author,
                    now,
                ),
            )
        run = self.find(name)
        assert run is not None
        return run

    def find(self, name: str) -> Run | None:
        """Returns the run of that name."""
        return next(self._runs("where name = ?", name), None)

    def get(self, name: str) -> Run:
        """Returns the run of that name. Raises UnknownRevision with near misses."""
        run = self.find(name)
        if run is None:
            names = [r.name for r in self.all()]
            raise UnknownRevision(
                f"there is no run {name!r}",
                hint="there is " + ", ".join(names[-8:]) if names else "none was made yet",
            )
        return run

    def all(self) -> list[Run]:
        """Returns every run, oldest first."""
        return list(self._runs(""))

    def like(self, config: Json) -> list[Run]:
        """Returns the runs that were asked for with the very same settings, oldest first."""
        from tfgrpo.store.canonical import digest

        return list(self._runs("where digest = ?", digest(config).hex()))

    def _runs(self, where: str, *values: object) -> Iterator[Run]:
        for row in self._port.rows(
            "select id, name, uid, branch, base, digest, config, author, time from runs"
            f" {where} order by id",
            values,
        ):
            check_row(row, "isssissst", "runs")
            yield Run._make((*row[:6], parsed(row[6], f"the settings of run {row[1]}"), *row[7:]))

    def note(self, run: Run, state: str, detail: str | None = None) -> None:
        """Appends a state to a run."""
        with self._port.transaction():
            self._db.execute(
                "insert into run_states (run, state, detail, time) values (?,?,?,?)",
                (run.id, state, detail, time.time_ns() // 1000),
            )

    def states(self, run: Run) -> list[RunState]:
        """Returns a run's states, oldest first."""
        rows = self._port.rows(
            "select state, detail, time from run_states where run = ? order by row", (run.id,)
        )
        return [RunState._make(row) for row in checked(rows, "sSt", "states of runs")]

    def state(self, run: Run) -> str:
        """Returns what a run is at now: running, or the last state it reached.

        A run whose process was killed is interrupted, whatever it said last.
        """
        if lock.is_held(self.lock_path(run)):
            return "running"
        states = self.states(run)
        last = states[-1].state if states else "created"
        return "interrupted" if last in ("started", "resumed", "unsealed") else last

    def lock_path(self, run: Run) -> Path:
        """Returns the file whose lock the run's process holds while it lives."""
        from pathlib import Path

        return Path(self._path).parent / "locks" / f"{run.uid}.lock"

    # rollouts:

    def rollouts(self, run: Run, step: int | None = None) -> list[RolloutRow]:
        """Returns the rollouts of a run (of one step), by step, problem and sample."""
        rows = self._port.rows(
            "select run, step, problem, sample, version, calls, outcome, reward, verdict, time"
            " from rollouts where run = ? and (?2 is null or step = ?2)"
            " order by step, problem, sample",
            (run.id, step),
        )
        return [
            RolloutRow._make(
                (
                    *r[:5],
                    tuple(parsed(r[5], "a rollout's calls", list)),
                    *r[6:8],
                    parsed(r[8], "a rollout's verdict"),
                    r[9],
                )
            )
            for r in checked(rows, "iisiissRst", "rollouts")
        ]

    # calls:

    def call(self, key: bytes) -> Call | None:
        """Returns the journalled call of that key."""
        row = self._port.row(
            f"select key, run, stage, step, model, text, answer, {TOKENS}, attempts, seconds, time"
            " from journal join texts on texts.id = request where key = ?",
            (key,),
        )
        if check_row(row, "bIsIsssiiiiirt", "calls") is None:
            return None
        return Call._make((*row[:6], parsed(row[6], "a call's answer"), *row[7:]))

    def usage(self, run: Run, *, step: int | None = None) -> dict[str, Usage]:
        """Returns calls and tokens by stage."""
        rows = self._port.rows(
            "select stage, count(*), sum(prompt_tokens), sum(cached_tokens),"
            " sum(completion_tokens), sum(reasoning_tokens), sum(seconds) from journal"
            " where run = ? and (?2 is null or step = ?2) group by stage order by min(id)",
            (run.id, step),
        )
        return {stage: Usage(*rest) for stage, *rest in rows}

    def spent(self, run: Run | None = None) -> list[Spent]:
        """Returns what the calls of a run, or of the whole store, came to.

        By run, step, stage and model, in the order in which they were first made. Evaluations
        are a stage of their own; embeddings, which belong to no step, too.
        """
        rows = self._port.rows(
            "select run, step,"
            " case when step is null and stage != 'embedding' then 'evaluation' else stage end"
            " kind, model, sum(attempts - 1), count(*), sum(prompt_tokens), sum(cached_tokens),"
            " sum(completion_tokens), sum(reasoning_tokens), sum(seconds) from journal"
            " where ?1 is null or run = ?1 group by run, step, kind, model order by min(id)",
            (run.id if run else None,),
        )
        return [Spent._make((*row[:5], Usage._make(row[5:]))) for row in rows]

    # evaluations:

    def put_evaluation(
        self,
        version: int,
        dataset: str,
        digest: str,
        config: Json,
        summary: Json,
        scores: Iterable[Score],
    ) -> Evaluation:
        """Records an evaluation with its scores; the same one again returns the one there."""
        from tfgrpo.store.canonical import canonical

        with self._port.transaction():
            found = self.evaluation(version, digest)
            if found is not None:
                return found
            cursor = self._db.execute(
                "insert into evaluations (version, dataset, digest, config, summary, time)"
                " values (?,?,?,?,?,?)",
                (
                    version,
                    dataset,
                    digest,
                    canonical(config).decode(),
                    canonical(summary).decode(),
                    time.time_ns() // 1000,
                ),
            )
            self._db.executemany(
                "insert into scores values (?,?,?,?,?,?)",
                [(cursor.lastrowid, *score) for score in scores],
            )
        found = self.evaluation(version, digest)
        assert found is not None
        return found

    def evaluation(self, version: int, digest: str) -> Evaluation | None:
        """Returns the evaluation of a version under these very conditions."""
        found = self._evaluations("where version = ? and digest = ?", (version, digest))
        return found[0] if found else None

    def evaluations(self, version: int) -> list[Evaluation]:
        """Returns the evaluations of a version, oldest first."""
        return self._evaluations("where version = ?", (version,))

    def all_evaluations(self) -> list[Evaluation]:
        """Returns every evaluation, oldest first."""
        return self._evaluations("", ())

    def _evaluations(self, where: str, values: Sequence[object]) -> list[Evaluation]:
        rows = self._port.rows(
            "select id, version, dataset, digest, config, summary, time from evaluations"
            f" {where} order by id",
            tuple(values),
        )
        checked(rows, "iisssst", "evaluations")
        return [
            Evaluation._make(
                (
                    *r[:4],
                    parsed(r[4], "an evaluation's config"),
                    parsed(r[5], "an evaluation's summary"),
                    r[6],
                )
            )
            for r in rows
        ]

    def scores(self, evaluation: Evaluation) -> list[Score]:
        """Returns an evaluation's scores, by problem and sample."""
        rows = self._port.rows(
            "select problem, sample, call, reward, answer from scores where evaluation = ?"
            " order by problem, sample",
            (evaluation.id,),
        )
        return [Score._make(row) for row in checked(rows, "siBRS", "scores")]
