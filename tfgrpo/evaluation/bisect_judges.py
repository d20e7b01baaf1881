"""Finds the first bad version automatically, by a command that tries a library or by recorded
scores. Each verdict is marked, so a search goes on where it stopped; None means that nothing is
known yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from tfgrpo import interchange
from tfgrpo.store import atomic_write, child_processes
from tfgrpo.store.address import named_by, with_password
from tfgrpo.store.history import bisect as searches
from tfgrpo.store.history.bisect import BisectError, BisectProgress, BisectVerdict, Mark
from tfgrpo.store.history.walks import parents_reader
from tfgrpo.store.records import Version
from tfgrpo.store.store import Store

SKIP = 125


class Finding(NamedTuple):
    """A judge's verdict on a version, and its reason."""

    verdict: BisectVerdict
    why: str


VersionJudge: TypeAlias = Callable[[Version], Finding | None]


def run(
    store: Store, judge: VersionJudge, *, watch: Callable[[Mark], None] = lambda mark: None
) -> BisectProgress:
    """Asks a judge, and marks what it says, until the first bad version is found or nothing is left
    to ask about; `watch` is told of each mark. Raises BisectError."""
    search = searches.load(store)
    if search.bad is None or not search.good:
        raise BisectError(
            "mark a bad and a good version first",
            hint="`tfgrpo bisect bad REV` and `tfgrpo bisect good REV` mark them",
        )
    unknown: set[int] = set()
    parents = parents_reader(store)
    while True:
        progress = searches.progress(store, search, unknown=unknown, parents=parents)
        if progress.next is None:
            return progress
        finding = judge(store.version(progress.next))
        if finding is None:
            unknown.add(progress.next)
            continue
        version = store.version(progress.next)
        search = searches.mark(store, version, *finding, parents=parents)
        watch(search.marks[-1])


class LibraryFiles(NamedTuple):
    """A library as files for a command to read: label → text as JSON, and the prompt text."""

    library: Path
    prompt: Path


def materialise(store: Store, version: Version, folder: Path) -> LibraryFiles:
    """Writes a version's library into a folder for a command, and returns where."""
    if folder.is_symlink():
        raise BisectError(f"{folder} is a link", hint="remove it: libraries are written there")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    files = library_files(folder)
    interchange.save(store, files.library, version, "json")
    interchange.save(store, files.prompt, version, "prompt")
    return files


def rewrite(store: Store, folder: Path) -> tuple[Path, ...]:
    """Writes the files of the version under test again after a redaction; returns them."""
    if not any(path.is_file() for path in library_files(folder)):
        return ()
    try:
        number = searches.progress(store, searches.load(store)).next
    except BisectError:
        number = None
    if number is None:
        forget(folder)
        return ()
    return materialise(store, store.version(number), folder)


def forget(folder: Path) -> None:
    """Removes what `materialise` wrote, with unfinished copies, and the folder when nothing else is
    in it; the removal is on the disk when this returns."""
    for path in library_files(folder):
        path.unlink(missing_ok=True)
        atomic_write.clear_copies(path)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
        atomic_write.sync_folder(folder.parent)


def library_files(folder: Path) -> LibraryFiles:
    """Where `materialise` writes a library."""
    return LibraryFiles(folder / "experiences.json", folder / "prompt.txt")


def by_command(store: Store, command: Sequence[str], folder: Path) -> VersionJudge:
    """A judge that runs a command with TFGRPO_LIBRARY, TFGRPO_PROMPT, TFGRPO_REVISION and
    TFGRPO_STORE: exit code 0 is good, 125 skips, any other up to 127 is bad. It raises BisectError
    for a command that cannot be started or is killed."""

    def judge(version: Version) -> Finding:
        files = materialise(store, version, folder)
        variables = {
            "TFGRPO_LIBRARY": str(files.library.resolve()),
            "TFGRPO_PROMPT": str(files.prompt.resolve()),
            "TFGRPO_REVISION": version.name,
            "TFGRPO_STORE": with_password(str(named_by(store.path.resolve()))),
        }
        try:
            code = child_processes.start(command, child_processes.whole(**variables)).wait()
        except OSError as error:
            raise BisectError(
                f"cannot run {command[0]}: {error.strerror}", hint="no version was marked"
            ) from None
        if not 0 <= code < 128:
            ended = f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
            raise BisectError(
                f"{command[0]} {ended} at {version.name}: no version was marked",
                hint="exit with 0 for good, 1 to 127 for bad, or 125 to skip",
            )
        verdict: BisectVerdict = "good" if code == 0 else "skip" if code == SKIP else "bad"
        return Finding(verdict, f"exit code {code}")

    return judge


def by_score(store: Store, dataset: str, below: float) -> VersionJudge:
    """A judge by scores on record under the conditions of the bad version's newest evaluation: a
    mean below `below` is bad, no score is unknown. Raises BisectError when the bad version has no
    score, or the score of an end of the search contradicts its mark."""
    search = searches.load(store)
    if search.bad is None:
        raise BisectError("mark a bad version first", hint="mark one with `tfgrpo bisect bad REV`")
    bad = store.version(search.bad)
    evaluations = [e for e in store.runs.evaluations(bad.number) if e.dataset == dataset]
    if not evaluations:
        raise BisectError(f"{bad.name} has no score on {dataset}", hint=to_evaluate(dataset, bad))
    conditions = evaluations[-1].digest

    def judge(version: Version) -> Finding | None:
        evaluation = store.runs.evaluation(version.number, conditions)
        if evaluation is None:
            return None
        mean = float(evaluation.summary["mean"][0])
        return Finding("bad" if mean < below else "good", f"{dataset}: {mean:.3f}")

    for number in (bad.number, *search.good):
        finding = judge(store.version(number))
        expected = "bad" if number == bad.number else "good"
        if finding is not None and finding.verdict != expected:
            raise BisectError(
                f"v{number} is marked {expected}, and its score says {finding.verdict} "
                f"({finding.why}, below {below:g} is bad)",
                hint="choose another --below, or other end points: `tfgrpo bisect start BAD GOOD`",
            )
    return judge


def to_evaluate(dataset: str, version: Version) -> str:
    """The command that makes a missing score."""
    return f"`tfgrpo eval {dataset} --library {version.name}` makes it, under the same conditions"


def unjudged(store: Store, dataset: str) -> Version | None:
    """The version whose score on `dataset` would tell most, when one is missing."""
    number = searches.progress(store, searches.load(store)).next
    return None if number is None else store.version(number)
