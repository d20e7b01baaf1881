"""A redaction with everything around the store: the record of traffic, the ledger of keys and the
files beside it."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tfgrpo.data import datasets
from tfgrpo.data.readers import DatasetError
from tfgrpo.evaluation import bisect_judges
from tfgrpo.hand_edits import files_beside, write_library
from tfgrpo.one_writer import alone
from tfgrpo.rendering.experience_texts import example_beginning, example_parts
from tfgrpo.store import atomic_write
from tfgrpo.store import redact as redactions
from tfgrpo.store.activity.key_ledger import ledger_path, redact_ledger
from tfgrpo.store.activity.traffic import redact_traffic, traffic_path
from tfgrpo.store.address import project_root
from tfgrpo.store.errors import TfgrpoError
from tfgrpo.store.records import REDACTED
from tfgrpo.store.redact import HeldNowhere, Redacted, RedactionPlan, Target
from tfgrpo.store.store import Store
from tfgrpo.store.text_occurrences import Occurrence, forms, matcher
from tfgrpo.terminal_safe import complain

COLLECTED = "collected.jsonl"
"""Where `tfgrpo collect` writes problems, in the project's folder."""
REWRITTEN = (
    "improvements/**/*.jsonl",
    "data/rows-*.jsonl",
    "data/inspect-*.jsonl",
    "bisect*.json",
    "locks/*.said",
    "locks/*.live",
    "locks/*.stop",
)
"""Files of ours beside the store in which a text is replaced: problems of `tfgrpo improve`, rows
that were given in Python, an inspect task's, why versions were marked, what a run said, what one
that was killed told of an endpoint, and who asked it to stop."""
INDEXES = "search/*"
"""Folders of ours beside the store that are made anew when they are missed: indexes of a corpus."""
SHORTEST_PROBLEM = 16
"""The problem of an example with fewer characters would match elsewhere too."""
MOST_READ = 64_000_000
"""A file of somebody's own that is larger, in bytes, is not looked into."""


class Surroundings(NamedTuple):
    """What holds a text around a store: how many rows of the record of traffic, the files that are
    written anew or removed, those that are left as they are, the project's own, which are their
    owners', and how many rows of the ledger of keys and spending."""

    traffic: int = 0
    rewritten: Sequence[Path] = ()
    left: Sequence[Path] = ()
    own: Sequence[Path] = ()
    ledger: int = 0


class RedactedEverywhere(NamedTuple):
    """What a redaction did in the store, and around it: rows and files that the text was taken out
    of, and files that still hold it."""

    store: Redacted
    around: Surroundings


def plan_everywhere(store: Store, target: Target) -> tuple[RedactionPlan, Surroundings]:
    """What `redact_everywhere` would do, and what holds the text around the store, which need not
    hold it itself. Raises what `store.redact.plan` does; HeldNowhere names the user's own files."""
    nowhere, target = None, with_problems(store, target)
    try:
        plan = redactions.plan(store, target)
    except HeldNowhere as error:
        nowhere, plan = error, RedactionPlan((), (), (), {}, forms(target.texts))
    written = plan.written
    if not written:
        return plan, Surroundings()
    indexes = _indexes(store, written)
    rewritten = [*_library_files(store, written), *text_files(store, written), *indexes]
    known = {path.resolve() for path in rewritten}
    others = [
        path
        for path in redactions.copies(store, written)
        if known.isdisjoint((path.resolve(), *path.resolve().parents))
    ]
    ours = {base + ending for base in _databases(store) for ending in ("", "-wal", "-shm")}
    temporary = redactions.TEMPORARY
    goes = [p for p in others if str(p.resolve()) in ours or temporary.fullmatch(p.name)]
    if nowhere is not None:  # what was deleted before may be in free pages
        rewritten += goes
    around = Surroundings(
        redact_traffic(store.file, written, dry_run=True),
        rewritten,
        [path for path in others if path not in goes],
        own_files(store, written),
        redact_ledger(store.file, written, dry_run=True),
    )
    if nowhere is not None and not any((*around[:3], around.ledger)):
        own = ", ".join(map(str, around.own))
        raise HeldNowhere(f"{nowhere}{own and f'; {own}, which is yours, does'}", hint=nowhere.hint)
    return plan, around


def redact_everywhere(
    store: Store, target: Target, *, reason: str, replacement: str | None = None
) -> RedactedEverywhere:
    """Takes a text, of an example its problem too, out of the store, the record of traffic and
    the files beside them, whichever of them holds it. Raises what `store.redact.redact` does, with
    nothing recorded."""
    target = with_problems(store, target)
    places = Places(store)
    try:
        done = redactions.redact(
            store, target, reason=reason, replacement=replacement, around=places.take_out
        )
    except HeldNowhere:
        plan, _ = plan_everywhere(store, target)
        finished = redactions.redact_around(store, target, places.take_out, reason=reason)
        done = Redacted(plan, (), finished)
    written = done.plan.written
    left, own = redactions.copies(store, written), own_files(store, written)
    around = Surroundings(places.calls, places.rewritten, left, own, places.keys)
    return RedactedEverywhere(done, around)


class Places:
    """What lies around a store and may hold a text: the record of traffic, the ledger, the
    library's files and other texts of ours. `calls`, `keys` and `rewritten` are the rows and files
    that it was taken out of."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.calls = self.keys = 0
        self.rewritten: list[Path] = []

    def take_out(self, written: Sequence[str]) -> bool:
        """Takes forms of a text out, and writes the library's files anew in any case; returns
        whether no old byte of the record of traffic and of the ledger is left, as none is where
        nobody is reading them. Raises StoreError."""
        store = self._store
        self.rewritten += _rewrite_library(store)
        if not written:
            return True
        self.calls += redact_traffic(store.file, written)  # the ledger says how keys are renamed
        self.keys += redact_ledger(store.file, written)
        self.rewritten += _rewrite_texts(store, written)
        indexes = _indexes(store, written)
        for folder in indexes:
            shutil.rmtree(folder)
        self.rewritten += indexes
        for folder in {path.parent for path in self.rewritten}:
            atomic_write.sync_folder(folder)  # no old file comes back after a loss of power
        return not any(_is_read(file, written) for file in _databases(store)[1:])


def finish_everywhere(store: Store) -> tuple[bool, list[Path]]:
    """Finishes an interrupted redaction: whether it could, and the store's files with a text
    still."""
    written = [form for plan in redactions.pending(store) for form in plan]
    done = redactions.finish(store, Places(store).take_out)
    return done, redactions.copies(store, written) if done else []


def resume(store: Store) -> None:
    """Finishes what an interrupted redaction has not done, and says so on standard error. It stops
    nobody: what cannot be finished now is tried again by whoever opens the store next."""
    try:
        done, left = finish_everywhere(store)
    except (TfgrpoError, OSError) as error:
        complain(f"note: a redaction was interrupted and cannot be finished: {error}")
        return
    if done:
        holding = "".join(f"; {still(path)}" for path in left)
        complain(f"note: finished a redaction that was interrupted{holding}")


def remaining(done: RedactedEverywhere) -> list[str]:
    """Where the text still is, in words, without the text: files that are their owner's to
    change, files of the store, and places that cannot be changed."""
    return [
        *map(yours, done.around.own),
        *map(still, done.around.left),
        *(f"the text remains in {place}" for place in place_words(done.store.plan.kept)),
    ]


def yours(path: Path) -> str:
    """What to say of a file of the user's that holds the text."""
    return f"{path}, which is yours, contains it as well"


def still(path: Path) -> str:
    """What to say of a file that a redaction could not take the text out of."""
    return f"{path} still contains the text"


def work_words(around: Surroundings) -> Iterator[str]:
    """Yields a line for each file around the store that a redaction has changed or removed."""
    for path in around.rewritten:
        yield f"{'wrote' if path.exists() else 'removed'} {path}"


def place_words(places: Sequence[Occurrence]) -> Iterator[str]:
    """Yields a line for each column: `journal.answer, 12 rows`."""
    count = Counter((place.table, place.column, place.kept) for place in places)
    first = {(p.table, p.column, p.kept): p.row for p in reversed(places)}
    for (table, column, why), number in count.items():
        rows = f"row {first[table, column, why]}" if number == 1 else f"{number} rows"
        yield f"{table}.{column}, {rows}" + (f": {why}" if why else "")


def with_problems(store: Store, target: Target) -> Target:
    """A target with the problems of the examples that it names as texts of their own: in
    requests a problem is a turn, and in data a row, spelled as it is there."""
    if target.experience is None:
        return target
    texts = dict.fromkeys(target.texts)
    events = store.events_at(row.row for row in store.port.events_of(target.experience))
    for event in events.values():
        example = example_parts(event.text or "")
        if example is None or len(example.problem) < SHORTEST_PROBLEM:
            continue
        texts |= dict.fromkeys(
            [example.problem, example.problem.replace("->", "\N{RIGHTWARDS ARROW}")]
        )
        texts |= dict.fromkeys(_spellings(store, example.problem))
    return target._replace(texts=tuple(texts))


def _spellings(store: Store, problem: str) -> Iterator[str]:
    """Yields a problem as the data of runs has it: an example has it in one line."""
    root, beginning = project_root(store.path), example_beginning(problem)
    sources = set()
    for run in store.runs.all():
        fields = run.config.get("fields")
        pairs = tuple(fields.items()) if isinstance(fields, dict) else ()
        sources.add((str(run.config.get("data")), pairs))
    for name, pairs in sources:
        path = root / datasets.parse(name, root).source
        if not path.is_file() or path.stat().st_size > MOST_READ:
            continue
        with suppress(DatasetError):  # or of a kind that its domain alone reads
            for one in datasets.load(str(path), dict(pairs), ground_truth=False):
                if example_beginning(one.problem) == beginning:
                    yield one.problem


def text_files(store: Store, written: Sequence[str]) -> list[Path]:
    """Files of ours, here and in the project, in which a form of a text is to be replaced. One that
    is a link is not ours."""
    files = [project_root(store.path) / COLLECTED]
    files += sorted(path for name in REWRITTEN for path in store.path.parent.glob(name))
    return [path for path in files if not path.is_symlink() and redactions.holds(path, written)]


def _rewrite_texts(store: Store, written: Sequence[str]) -> list[Path]:
    """Replaces these forms of a text in the texts of ours; returns those that had it. A text is
    written in them as JSON has it, which is one of the forms, so that rows stay rows."""
    files = text_files(store, written)
    for path in files:
        with alone(store, path):
            content = path.read_bytes().decode(errors="surrogateescape")
            content = matcher(written).sub(REDACTED, content)
            mode = path.stat().st_mode & 0o777
            atomic_write.write(path, content.encode(errors="surrogateescape"), mode=mode)
    return files


def own_files(store: Store, written: Sequence[str]) -> list[Path]:
    """The files in the project's folder, and in its folder `data`, that hold one of these forms
    of a text. What is larger than `MOST_READ`, or in other folders, is not looked into."""
    if not written:
        return []
    root = project_root(store.path)
    rewritten = {
        path.resolve() for path in (*text_files(store, written), *_library_files(store, written))
    }
    databases = tuple(_databases(store))
    return [
        path
        for path in sorted([*root.glob("*"), *(root / "data").glob("*")])
        if path.is_file()
        and path.resolve() not in rewritten
        and not str(path.resolve()).startswith(databases)
        and path.stat().st_size <= MOST_READ
        and os.access(path, os.R_OK)
        and redactions.holds(path, written)
    ]


def _is_read(file: str, written: Sequence[str]) -> bool:
    """Whether a file that was written anew, or its log, has a text still since somebody is reading
    it: else the log is empty, and what the file holds is a name of its own, such as a table's."""
    log = Path(f"{file}-wal")
    if not log.is_file() or not log.stat().st_size:
        return False
    return any(redactions.holds(path, written) for path in (Path(file), log))


def _databases(store: Store) -> list[str]:
    """The paths of the store, of its record of traffic and of its ledger, links followed."""
    beside = (traffic_path(store.file), ledger_path(store.file))
    return [str(store.path.resolve()), *map(os.path.realpath, beside)]


def _indexes(store: Store, written: Sequence[str]) -> list[Path]:
    """The indexes of ours that hold a form of a text."""
    return [
        folder
        for folder in sorted(store.path.parent.glob(INDEXES))
        if not folder.is_symlink()
        and any(redactions.holds(path, written) for path in folder.rglob("*"))
    ]


def _library_files(store: Store, written: Sequence[str]) -> list[Path]:
    current = map(Path, files_beside(store).values())
    tried = bisect_judges.library_files(trial_folder(store))
    return [path for path in (*current, *tried) if redactions.holds(path, written)]


def _rewrite_library(store: Store) -> list[Path]:
    """Writes the library's files that are there anew; returns those that changed."""
    changed = []
    for format_, file in files_beside(store).items():
        if (path := Path(file)).is_file():
            before = path.read_bytes()
            write_library(store, format_, file)
            changed += [path] if path.read_bytes() != before else []
    return [*changed, *bisect_judges.rewrite(store, trial_folder(store))]


def trial_folder(store: Store) -> Path:
    """Where `tfgrpo bisect` writes the libraries that it tries, as seen from here."""
    return Path(os.path.relpath(store.path.parent / "bisect"))
