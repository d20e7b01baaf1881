"""Records of training and evaluation beside the library: runs, rollouts, calls, scores.

None of it enters a version's digest. Rows are appended; a run's state is its last state's row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from tfgrpo.store import process_lock
from tfgrpo.store.address import anchor
from tfgrpo.store.canonical import canonical, digest
from tfgrpo.store.damaged_values import parse_json
from tfgrpo.store.errors import InvalidName, InvalidOperation, UnknownRevision
from tfgrpo.store.history.allowed_names import check_name
from tfgrpo.store.records import Json

if TYPE_CHECKING:
    from pathlib import Path

    import pandas

    from tfgrpo.store.sql.port import Port


REMOVED = "removed"
BUDGET = "budget"
LOOKED_AT = 10_000
"""Attempts that one search reads."""
LAST = 1 << 62
"""A place beyond every row."""
WORKING = ("started", "resumed", "unsealed", BUDGET)
"""The states that a run is in while it is at work."""


class Run(NamedTuple):
    """One training run: its frozen settings, the branch it grows and where it began. The `id` is 0
    while the run is not on record: nothing was paid for it yet (`Runs.prepare`)."""

    id: int
    name: str
    uid: str
    branch: str
    base: int
    digest: str
    config: Json
    author: str
    time: int


class RunBudget(NamedTuple):
    """The most that a run may spend over all its sessions, in tokens or in US dollars."""

    limit: float
    in_tokens: bool

    def __str__(self) -> str:
        amount = f"{self.limit:,.0f} tokens" if self.in_tokens else f"${self.limit:,.2f}"
        return f"budget of {amount}"


class RunState(NamedTuple):
    """started, resumed, unsealed, budget (from then on), interrupted, failed, removed (hidden until
    it goes on) or finished."""

    state: str
    detail: str | None
    time: int

    @property
    def words(self) -> str:
        """What there is to say, for people."""
        if self.state != BUDGET:
            return self.detail or ""
        detail = parse_json(self.detail, "a state of a run")
        return f"with a {RunBudget(**detail)}" if detail else "without a budget"


class Call(NamedTuple):
    """A model call that was paid for. `answer` is JSON: content, finish_reason and the like.
    `attempts` counts the tries it took, `seconds` is the time of the one that answered."""

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


class SaidRow(NamedTuple):
    """An attempt with its place in the record and, as JSON, its verdict and the answer of its last
    call (empty where there is none)."""

    place: int
    run: int
    step: int
    problem: str
    sample: int
    verdict: str
    answer: str

    @property
    def texts(self) -> Iterator[str]:
        """What was said in it. Raises StoreError."""
        verdict = parse_json(self.verdict, "a rollout's verdict")
        answer = parse_json(self.answer or None, "a call's answer")
        parts = [verdict.get("answer"), verdict.get("reason"), verdict.get("response")]
        parts += [m.get("content") for m in verdict.get("messages", ()) if isinstance(m, dict)]
        return (part for part in (*parts, answer.get("content")) if isinstance(part, str))


class FoundAttempts(NamedTuple):
    """The attempts found, newest first, each with the text that has the words; how many attempts
    were looked at; and the place where the search stopped, if earlier attempts may match too."""

    attempts: list[tuple[SaidRow, str]]
    looked_at: int
    reached: int | None


class Rollouts(tuple[RolloutRow, ...]):
    """Attempts as recorded, by step, problem and sample."""

    __slots__ = ()

    def to_pandas(self) -> pandas.DataFrame:
        """A row for each attempt, without messages. Raises ImportError without pandas."""
        import pandas

        columns = ["step", "problem", "sample", "version", "outcome", "reward", "answer", "reason"]
        rows = [
            (*row[1:5], row.outcome, row.reward, row.verdict.get("answer"), row.verdict["reason"])
            for row in self
        ]
        return pandas.DataFrame(rows, columns=columns)


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
    """Calls of one kind, added up. `step` is None for an evaluation, `run` for one of its own,
    `endpoint` where nobody asked which of several answered, or answers do not say."""

    run: int | None
    step: int | None
    stage: str
    model: str
    retries: int
    usage: Usage
    endpoint: str | None = None


class AttemptMark(NamedTuple):
    """What a watcher needs of an attempt: all but its texts."""

    step: int
    problem: str
    sample: int
    version: int
    outcome: str
    reward: float | None
    time: int


class RewardRow(NamedTuple):
    """An attempt with its reward, the ids that its prompt went without, the factors that belonged
    to its problem (JSON, None without any), and the entry of its verdict under another name ("" for
    none)."""

    step: int
    problem: str
    sample: int
    version: int
    reward: float
    without: str | None
    belongs: str | None
    kind: str


class Runs:
    """Reads and appends runs, rollouts, calls and evaluations of the store behind `port`."""

    def __init__(self, port: Port, path: Path | str) -> None:
        """`path` is the store's: the locks of running processes lie beside it."""
        self._port = port
        self._records = port.records
        self._path = path
        self._pending: dict[str, Callable[[], None]] = {}
        self._ids: dict[str, int] = {}

    # runs:

    def create(self, name: str, uid: str, branch: str, base: int, config: Json, author: str) -> Run:
        """Records a new run. Raises InvalidName when the name is taken or cannot be one."""
        with self._port.transaction():
            self.append(_new_run(name, uid, branch, base, config, author))
        return self.get(name)

    def prepare(
        self, name: str, uid: str, branch: str, base: int, config: Json, author: str
    ) -> Run:
        """A new run that is not on record yet. Raises InvalidName where the name is taken
        or cannot be one, and InvalidOperation where another process begins a run of that name."""
        run = _new_run(name, uid, branch, base, config, author)
        self._check_free(name)
        if self.is_held(self.starting_path(name)):
            raise InvalidOperation(
                f"run {name} is running in another process, and has no answer yet",
                hint="wait for its first answer, or choose another name with --run",
            )
        return run

    def defer(self, run: Run, record: Callable[[], None]) -> None:
        """Has a prepared run put on record, by `record`, when it first leaves something behind."""
        self._pending[run.uid] = record

    def is_on_record(self, run: Run) -> bool:
        """Whether a run is on record. Raises InvalidName where another has its name."""
        if not self._known_id(run):
            self._check_free(run.name)
        return bool(self._known_id(run))

    def is_pending(self, run: Run) -> bool:
        """Whether a run has left nothing behind yet."""
        return run.uid in self._pending

    def append(self, run: Run) -> None:
        """Records a prepared run. Only inside a transaction. Raises InvalidName."""
        self._check_free(run.name)
        self._records.append_run(run)

    def row_id(self, run: Run) -> int:
        """The number of a run on record. A run that is not there yet is put on record first."""
        record = self._pending.pop(run.uid, None)
        if record is not None:
            try:
                record()
            except BaseException:
                self._pending[run.uid] = record
                raise
        return self._known_id(run)

    def _known_id(self, run: Run) -> int:
        if run.id or run.uid in self._pending:
            return run.id
        if run.uid not in self._ids:
            recorded = self.find(run.name)
            if recorded is None or recorded.uid != run.uid:
                return 0
            self._ids[run.uid] = recorded.id
        return self._ids[run.uid]

    def _id_or_none(self, run: Run | None) -> int | None:
        return self._known_id(run) if run else None

    def _check_free(self, name: str) -> None:
        if self.find(name) is not None:
            raise InvalidName(
                f"run {name} already exists",
                hint=f"choose another --run name, or go on with it: --resume {name}",
            )

    def find(self, name: str) -> Run | None:
        """The run of that name."""
        return next(iter(self._records.runs(name)), None)

    def get(self, name: str) -> Run:
        """The run of that name. Raises UnknownRevision with near misses."""
        run = self.find(name)
        if run is None:
            names = [r.name for r in self.listed()]
            raise UnknownRevision(
                f"there is no run {name!r}",
                hint="there is " + ", ".join(names[-8:]) if names else "there are none yet",
            )
        return run

    def all(self) -> list[Run]:
        """Every run, oldest first."""
        return self._records.runs()

    def listed(self) -> list[Run]:
        """The runs that are not removed, oldest first."""
        return [run for run in self.all() if not self.is_removed(run)]

    def is_removed(self, run: Run) -> bool:
        """Whether a run is hidden."""
        states = self.states(run)
        return bool(states) and states[-1].state == REMOVED

    def remove(self, run: Run, reason: str | None = None) -> None:
        """Hides an unfinished run, until it is resumed. Its name stays taken. Raises
        InvalidOperation where it is at work, or finished."""
        state = self.state(run)
        if state == REMOVED:
            return
        if state in ("running", "finished"):
            raise InvalidOperation(
                f"run {run.name} is {state}, so it stays",
                hint="stop it first" if state == "running" else "its versions tell of it",
            )
        self.note(run, REMOVED, reason)

    def note(self, run: Run, state: str, detail: str | None = None) -> None:
        """Appends a state to a run; not to one that was never on record, unless it is finished."""
        if self.is_pending(run) and state != "finished":
            return
        row = self.row_id(run)
        with self._port.transaction():
            now = time.time_ns() // 1000
            self._records.append_state(row, RunState(state, detail, now))

    def note_budget(self, run: Run, budget: RunBudget | None) -> None:
        """Records what a run may spend from now on, where that is not on record yet."""
        if budget != self.budget(run):
            self.note(run, BUDGET, canonical(budget._asdict() if budget else {}).decode())

    def budget(self, run: Run) -> RunBudget | None:
        """The most that a run may spend; None for one without a budget."""
        for state in reversed(self.states(run)):
            if state.state == BUDGET:
                detail = parse_json(state.detail, f"a state of run {run.name}")
                return RunBudget(**detail) if detail else None
        return None

    def states(self, run: Run) -> list[RunState]:
        """A run's states, oldest first."""
        return self._records.states(self._known_id(run))

    def state(self, run: Run) -> str:
        """The last state a run reached, or running. A run that was killed is interrupted."""
        if self.is_held(self.lock_path(run)):
            return "running"
        states = self.states(run)
        last = states[-1].state if states else "created"
        return "interrupted" if last in WORKING else last

    def lock_path(self, run: Run) -> Path:
        """The file whose lock the run's process holds while it lives."""
        return anchor(self._path).parent / "locks" / f"{run.uid}.lock"

    def set_aside_path(self, run: Run) -> Path:
        """The beginning of the names of files that keep the amount that a run has set aside of its
        budget."""
        return self.lock_path(run).with_suffix(".aside")

    def starting_path(self, name: str) -> Path:
        """The file whose lock is held while a run of that name is not on record yet."""
        return anchor(self._path).parent / "locks" / f"starting-{name.encode().hex()[:120]}.lock"

    def asking_path(self, name: str) -> Path:
        """The file whose lock is held while answers are asked for that others may want as well."""
        return anchor(self._path).parent / "locks" / f"asking-{name}.lock"

    @contextmanager
    def hold(self, path: Path, *, patience: float = process_lock.PATIENCE) -> Iterator[bool]:
        """Tries to take the lock that such a file stands for, on this machine and wherever else
        the store is written to; yields whether it was taken. Raises StoreError."""
        with process_lock.held(path, patience=patience) as free:
            if not free:
                yield False
                return
            with self._port.storage.hold(path.stem) as free_elsewhere:
                yield free_elsewhere

    def is_ours(self, path: Path) -> bool:
        """Whether a lock that `hold` took is ours still. Raises StoreError."""
        return self._port.storage.is_ours(path.stem)

    def is_held(self, path: Path) -> bool:
        """Whether a process holds that lock, here or elsewhere. Raises StoreError."""
        return process_lock.is_held(path) or self._port.storage.is_held(path.stem)

    # rollouts and calls:

    def rollouts(
        self, run: Run, step: int | None = None, problem: str | None = None
    ) -> list[RolloutRow]:
        """The rollouts of a run (of one step, at one problem), by step, problem and sample."""
        return self._records.rollouts(self._known_id(run), step, problem)

    def attempts_saying(self, words: str, most: int, before: int | None = None) -> FoundAttempts:
        """The attempts, of those recorded before a place, in whose answer some words stand, in
        capitals or not. It looks at a limited number of attempts, and says how far it came."""
        wanted, escaped = words.casefold(), canonical(words).decode()[1:-1].casefold()
        fitting, number, place = list[tuple[SaidRow, str]](), 0, None
        for row in self._records.spoken(LAST if before is None else before):
            if number == LOOKED_AT or len(fitting) == most:
                return FoundAttempts(fitting, number, place)
            number, place = number + 1, row.place
            if any(escaped in text.casefold() for text in (row.verdict, row.answer)):
                text = next((text for text in row.texts if wanted in text.casefold()), None)
                fitting += [(row, text)] if text is not None else []
        return FoundAttempts(fitting, number, None)

    def call(self, key: bytes) -> Call | None:
        """The journalled call of that key."""
        return next(iter(self._records.calls_by_key([key])), None)

    def calls_by_key(self, keys: Iterable[bytes]) -> dict[bytes, Call]:
        """Those of the journalled calls of these keys that are there."""
        return {call.key: call for call in self._records.calls_by_key(list(dict.fromkeys(keys)))}

    def reward_steps(self, run: Run, samples: int, upto: int | None) -> list[tuple[int, int]]:
        """The steps (up to one) with rewards of attempts whose sample is below `samples`,
        ascending, each with the version that they ran under: with each, where they are several."""
        return self._records.reward_steps(self._known_id(run), samples, upto)

    def rewards(self, run: Run, samples: int, upto: int | None, name: str) -> Iterator[RewardRow]:
        """A run's attempts with a reward and a sample below `samples`, by step (up to one), problem
        and sample, with what verdicts have under a name. While one state is read, none is held."""
        return self._records.rewards(self._known_id(run), samples, upto, name)

    def usage(self, run: Run, *, step: int | None = None) -> dict[str, Usage]:
        """Calls and tokens by stage."""
        return self._records.usage(self._known_id(run), step)

    def attempts_since(self, run: Run, after: int = 0) -> tuple[int, list[AttemptMark]]:
        """A run's attempts recorded after a place, in order, without their texts; before them the
        place to ask from next."""
        return self._records.attempts_since(self._known_id(run), after)

    def calls(self, run: Run, stage: str, step: int | None = None) -> list[Call]:
        """A run's journalled calls of one stage (in one step, from 0), oldest first."""
        return self._records.calls(self._known_id(run), stage, step)

    def spent(self, run: Run | None = None, *, by_endpoint: bool = False) -> list[Spent]:
        """The sums of the calls of a run, or of the store, by run, step, stage and model, in the
        order of first calls. Evaluations are a stage of their own. With `by_endpoint`, which takes
        five times as long, also by the one of several endpoints that answered."""
        return self._records.spent(self._id_or_none(run), by_endpoint=by_endpoint)

    def spent_by_day(
        self, run: Run | None = None, *, by_endpoint: bool = False
    ) -> list[tuple[int, Spent]]:
        """The same as `spent`, for each day, which counts from 1970 in UTC."""
        return self._records.spent_by_day(self._id_or_none(run), by_endpoint=by_endpoint)

    def spent_since(
        self, run: Run, after: int = 0, *, by_endpoint: bool = False
    ) -> tuple[int, list[Spent]]:
        """The sums of a run's calls after a place in the journal; before them the place to ask from
        next."""
        return self._records.spent_since(self._known_id(run), after, by_endpoint=by_endpoint)

    def estimated(self, run: Run | None = None) -> int:
        """How many of these calls have tokens that were counted here, because the server reported
        none."""
        return self._records.estimated(self._id_or_none(run))

    def sent(self, run: Run) -> list[tuple[str, Json]]:
        """The ways in which a run's requests were sent, each once, with the model."""
        return self._records.sent(self._known_id(run))

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
        with self._port.transaction():
            if not self._records.evaluations(version, digest):
                now = time.time_ns() // 1000
                new = Evaluation(0, version, dataset, digest, config, summary, now)
                self._records.append_evaluation(new, scores)
        return self._records.evaluations(version, digest)[0]

    def evaluation(self, version: int, digest: str) -> Evaluation | None:
        """The evaluation of a version under these very conditions."""
        return next(iter(self._records.evaluations(version, digest)), None)

    def evaluations(self, version: int) -> list[Evaluation]:
        """The evaluations of a version, oldest first."""
        return self._records.evaluations(version)

    def all_evaluations(self) -> list[Evaluation]:
        """Every evaluation, oldest first."""
        return self._records.evaluations()

    def scores(self, evaluation: Evaluation) -> list[Score]:
        """An evaluation's scores, by problem and sample."""
        return self._records.scores(evaluation.id)


def _new_run(name: str, uid: str, branch: str, base: int, config: Json, author: str) -> Run:
    check_name("run", name)
    now = time.time_ns() // 1000
    return Run(0, name, uid, branch, base, digest(config).hex(), config, author, now)
