"""Collection: exchanges that went wrong become problems to learn from.

An exchange went wrong if it was corrected, has a low mean score, or was answered differently in two
arms of an experiment. The ground truth is the last correction, else another call's answer to that
question that was scored right. A question is taken once, and never if it is in a held-out, gate or
sealed set, exactly or nearly. Texts that look like a mail address, a key, a card or an account are
taken out.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from tfgrpo.data import datasets, leakage
from tfgrpo.data.leakage import Turns, own_words, shared_turns
from tfgrpo.data.problems import Problem
from tfgrpo.data.readers import DatasetError
from tfgrpo.improvement.exchange import FINE, Exchange, Unread, of_traffic
from tfgrpo.improvement.exchange_files import read_exchanges
from tfgrpo.one_writer import alone
from tfgrpo.project import Project
from tfgrpo.proxy.proxy_file import withheld_beside
from tfgrpo.proxy.withheld_words import Finder
from tfgrpo.rendering.prompt_templates import Message
from tfgrpo.runs.run_problems import KINDS
from tfgrpo.store import atomic_write
from tfgrpo.store.activity.traffic import CALL_ID, CallFilter, is_score, traffic_path
from tfgrpo.store.errors import SettingsError
from tfgrpo.store.opening import open_traffic
from tfgrpo.store.records import REDACTED
from tfgrpo.store.store import Store
from tfgrpo.trust.permissions import ASKING

FILE = "collected.jsonl"
"""Where problems are collected unless another file is named, in the project's folder."""
BAR = 0.5
SHOWN = 500
"""Characters of the answer that was given which go into a problem's provenance."""
NO_TRUTH = "no corrected answer"
KNOWN = "already collected"
HELD = "in a held-out, gate or sealed set"
GONE = "its answer holds what is redacted"

Row: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CollectionRules:
    """What is collected: `unanswered` takes questions without a truth, `system` keeps the
    application's text, `redact` are more expressions to take out. Raises SettingsError."""

    below: float = BAR
    unanswered: bool = False
    redact: tuple[str, ...] = ()
    system: bool = True

    def __post_init__(self) -> None:
        if not is_score(self.below):
            raise SettingsError(f"below: {self.below!r} is no score", hint="such as 0.5")


@dataclass(frozen=True, slots=True)
class CollectRequest:
    """Where problems come from and go: `files`, or else the calls that `which` names with scores by
    `by`; `heldout` are further sets whose problems are left out; `output` is the file, by default
    `collected.jsonl` in the project."""

    files: tuple[Path, ...] = ()
    which: CallFilter = field(default_factory=CallFilter)
    by: str | None = None
    heldout: tuple[str, ...] = ()
    output: Path | None = None
    rules: CollectionRules = CollectionRules()


class LeftOut(NamedTuple):
    """An exchange that became no problem, and why."""

    where: str
    why: str


@dataclass(frozen=True, slots=True)
class Collected:
    """New problems as rows of a JSONL file, what was left out, and what could not be read."""

    rows: tuple[Row, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    unread: tuple[Unread, ...] = ()
    warnings: tuple[str, ...] = ()

    def counts(self) -> dict[str, int]:
        """Reason → how many exchanges were left out for it."""
        return Counter(one.why for one in self.left_out)


def collect(
    store: Store, project: Project, request: CollectRequest, *, dry_run: bool = False
) -> Collected:
    """Appends what went wrong to a file of problems, and returns it. The same calls again append
    nothing. Raises DatasetError, NotTrusted, and StoreError where no traffic is on record."""
    path, rules = output_path(project, request), request.rules
    pattern = withheld_beside(project.root, rules.redact)
    held, warnings = held_out(store, project, request.heldout)
    with nullcontext() if dry_run else alone(store, path):
        rows = read_collected(path)
        with _exchanges(store, request) as exchanges:
            result = collected(exchanges, rules, pattern, known=problems_of(rows), held=held)
        if result.rows and not dry_run:
            if read_collected(path) != rows:
                raise SettingsError(
                    f"{path} was changed meanwhile, and nothing is appended",
                    hint="run the same command again",
                )
            write_rows(path, [*rows, *result.rows])
    return replace(result, warnings=tuple(warnings))


@contextmanager
def _exchanges(store: Store, request: CollectRequest) -> Iterator[Iterator[Exchange | Unread]]:
    if request.files:
        yield (one for file in request.files for one in read_exchanges(file))
        return
    with closing(open_traffic(traffic_path(store.path))) as traffic:
        yield of_traffic(traffic, request.which, request.by)


def output_path(project: Project, request: CollectRequest) -> Path:
    return request.output or project.root / FILE


def collected(
    exchanges: Iterable[Exchange | Unread],
    rules: CollectionRules,
    pattern: Finder,
    *,
    known: Sequence[Problem] = (),
    held: Sequence[Problem] = (),
) -> Collected:
    """The problems among exchanges, without those that are `known` already or `held` out; what a
    pattern finds is taken out of their texts."""
    unread: list[Unread] = []
    left_out: list[LeftOut] = []
    groups: dict[str, list[Exchange]] = {}
    for one in exchanges:
        if isinstance(one, Exchange):
            groups.setdefault(question(one.messages), []).append(one)
        elif one.why == FINE:
            left_out.append(LeftOut(*one))
        else:
            unread.append(one)
    candidates: list[tuple[Row, list[Exchange]]] = []
    examples = shared_turns([group[0].messages for group in groups.values()])
    for group in groups.values():
        row = _row(group, rules, pattern, examples)
        if isinstance(row, str):
            left_out += [LeftOut(one.where, row) for one in group]
        else:
            candidates.append((row, group))
    rows = []
    problems = [_as_problem(row) for row, _ in candidates]
    before, apart = (_alike(problems, others, examples) for others in (known, held))
    ids = {problem.id for problem in known}
    for (row, group), problem in zip(candidates, problems, strict=True):
        why = HELD if problem.id in apart else KNOWN if problem.id in before else None
        if why is not None:
            left_out += [LeftOut(one.where, why) for one in group]
            continue
        row["id"] = _free(row["id"], ids)
        ids.add(row["id"])
        rows.append(row)
    return Collected(tuple(rows), tuple(left_out), tuple(unread))


def question(messages: Sequence[Message]) -> str:
    """A key that is the same for calls that ask the same: the words, without white space and
    case."""
    return json.dumps([[role, _plain(text)] for role, text in messages])


def _row(
    group: Sequence[Exchange], rules: CollectionRules, pattern: Finder, examples: Sequence[Turns]
) -> Row | str:
    because, truth = list(_reasons(group, rules.below)), _truth(group, rules.below)
    clean = partial(pattern.sub, REDACTED)
    if not because:
        return FINE
    if truth is None and not rules.unanswered:
        return NO_TRUTH
    if truth is not None and REDACTED in clean(truth):
        return GONE
    example = next((one for one in reversed(group) if _wrong(one, rules.below)), group[-1])
    whole = example.messages if rules.system else own_words(example.messages, examples)
    messages = [(role, clean(text)) for role, text in whole]
    alone = len(messages) == 1 and messages[0][0] == "user"
    turns = [{"role": role, "content": text} for role, text in messages]
    origin: dict[str, Any] = {**example.origin, "because": because}
    if "id" in origin:
        origin["id"] = _named(str(origin["id"]), clean)
    if example.answer:
        origin["said"] = clean(example.answer)[:SHOWN]
    if example.comment:
        origin["comment"] = clean(example.comment)
    if len(group) > 1:
        origin["calls"] = [_named(one.id, clean) for one in group]
    row: Row = {"id": _named(example.id, clean), "problem": messages[0][1] if alone else turns}
    if truth is not None:
        row["answer"] = truth
    return {**row, "from": origin}


def _named(id: str, clean: Callable[[str], str]) -> str:
    """A call's id, cleaned where it is from elsewhere: in the random digits of ours a number may be
    seen."""
    return id if CALL_ID.fullmatch(id) else clean(id)


def _reasons(group: Sequence[Exchange], below: float) -> Iterator[str]:
    if any(_corrected(one) for one in group):
        yield "corrected"
    if any(one.score is not None and one.score < below for one in group):
        yield "low score"
    by_arm: dict[str, Exchange] = {}
    for one in group:
        if one.arm is not None and one.answer:
            by_arm.setdefault(one.arm, one)
    doubtful = any(one.score is None or one.score < below for one in by_arm.values())
    if doubtful and len({_plain(one.answer) for one in by_arm.values()}) > 1:
        yield "arms disagree"


def _corrected(one: Exchange) -> bool:
    return bool(one.correct) and _plain(one.correct or "") != _plain(one.answer)


def _wrong(one: Exchange, below: float) -> bool:
    return _corrected(one) or (one.score is not None and one.score < below)


def _truth(group: Sequence[Exchange], below: float) -> str | None:
    correct: str | None = next((one.correct for one in reversed(group) if one.correct), None)
    if correct is not None:
        return correct.strip()
    right = [one.answer for one in group if one.score is not None and one.score >= below]
    answers = {_plain(answer): answer for answer in right if answer}
    return next(iter(answers.values())) if len(answers) == 1 else None


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _free(id: str, taken: set[str]) -> str:
    names = (id if n == 1 else f"{id}-{n}" for n in range(1, len(taken) + 3))
    return next(name for name in names if name not in taken)


def _as_problem(row: Row) -> Problem:
    turns = row["problem"]
    if isinstance(turns, str):
        return Problem(row["id"], turns, row.get("answer", ""))
    messages = tuple((turn["role"], turn["content"]) for turn in turns)
    return Problem(row["id"], "", row.get("answer", ""), messages)


def _core(problem: Problem, examples: Sequence[Turns]) -> Problem:
    """A problem as its words alone: without the application's text, which many share."""
    spoken = [text for _, text in own_words(problem.messages, examples)]
    return Problem(problem.id, "\n\n".join(spoken) or problem.problem, problem.answer)


def _alike(
    problems: Sequence[Problem], others: Sequence[Problem], examples: Sequence[Turns]
) -> set[str]:
    if not problems or not others:
        return set()
    cores = ([_core(one, examples) for one in some] for some in (others, problems))
    return {leak.evaluation for leak in leakage.leaks(*cores)}


# files:


def read_collected(path: Path) -> list[Row]:
    """The rows of a file of collected problems; none without the file. Raises DatasetError."""
    if not path.exists():
        return []
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise DatasetError(
            f"{path} is not UTF-8, so it is no file of collected problems",
            hint="`tfgrpo collect -o FILE` appends to another one",
        ) from None
    rows = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if not (isinstance(row, dict) and row["id"] and row["problem"]):
                raise ValueError("no problem")
            _as_problem(row)
        except (KeyError, TypeError, ValueError) as error:
            raise DatasetError(
                f"{path}:{number}: not a collected problem: {error}"[:200],
                hint="each line is one, as `tfgrpo collect` writes them",
            ) from None
        rows.append(row)
    return rows


def problems_of(rows: Iterable[Row]) -> list[Problem]:
    """Collected rows as problems, for comparisons of their text."""
    return [_as_problem(row) for row in rows]


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Writes rows as a JSONL file, whole or not at all, for its owner alone to read."""
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    atomic_write.write(path, text.encode())


# what is held out:


def held_out(
    store: Store, project: Project, more: Sequence[str] = ()
) -> tuple[list[Problem], list[str]]:
    """The problems of every held-out, gate and sealed set of the settings file, of runs and
    evaluations on record, and of `more` files, and warnings of sets that only a record names and
    that are gone. Raises DatasetError and NotTrusted."""
    unused = {**dict.fromkeys(ASKING, ""), "agent": project.table("agent")}
    project.require_trust(unused)  # nobody is asked
    table, evaluation = project.table("train"), project.table("eval")
    domain = project.domain(table.get("domain") or project.table("model").get("domain"))
    fields = table.get("fields") or {}
    names = [table[kind] for kind in KINDS if table.get(kind)]
    names += [evaluation["data"]] if evaluation.get("data") else []
    problem_sets: dict[str, tuple[Problem, ...]] = {
        name: domain.problems(name, fields) for name in dict.fromkeys([*names, *more])
    }
    warnings = []
    for name, spec, config in _recorded(store):
        path = project.open_data(name)
        if path in problem_sets or datasets.parse(name, project.root).on_hub:
            continue
        if config is not None and not project.trusts_run(name, config, ("domain",)):
            warnings.append(f"cannot tell what is in {path}: its record is not trusted")
            continue
        problem_sets[path] = ()
        try:
            if config is None:  # an evaluation's
                problem_sets[path] = datasets.load(path, ground_truth=False)
            else:
                fields = config.get("fields") or {}
                problem_sets[path] = project.domain(spec).problems(path, fields)
        except DatasetError as error:
            if config is not None:  # one that its domain alone reads is not missed
                warnings.append(f"cannot tell what was held out: {error}")
    return [problem for problems in problem_sets.values() for problem in problems], warnings


def _recorded(store: Store) -> Iterator[tuple[str, str | None, Mapping[str, Any] | None]]:
    """Yields the sets of runs and then of evaluations: a name, and of a run its domain and
    settings."""
    for run in store.runs.all():
        for kind in KINDS:
            if run.config.get(kind):
                yield str(run.config[kind]), run.config.get("domain"), run.config
    for one in store.runs.all_evaluations():
        yield one.dataset, None, None
