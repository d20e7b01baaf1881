"""The store: the one object through which libraries are read and versions appended.

    store = Store.open(find(Path.cwd()))
    store.library("step_2")                          # the library in force there
    store.commit("main", [Operation("ADD", text="…")], message="house rules")
    store.diff("v1", "HEAD")

Nothing here prints, exits or reads the environment. A `Store` belongs to one thread; open
another for another thread. Reading is safe beside writers in other processes, which take turns.
"""

from __future__ import annotations

import os
import sys
import time as clock
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, TypeAlias

from tfgrpo.store import atomic_write, opening
from tfgrpo.store.address import anchor, find_file, in_folder, is_address, named_by
from tfgrpo.store.damaged_values import damage_error, parse_json
from tfgrpo.store.errors import (
    AmbiguousRevision,
    InvalidName,
    StaleVersion,
    StoreError,
    UnknownRevision,
)
from tfgrpo.store.history import name_moves, replay, revisions
from tfgrpo.store.history import walks as history
from tfgrpo.store.history.allowed_names import check_name
from tfgrpo.store.history.replay import LibraryMemory
from tfgrpo.store.history.revisions import BRANCH, HEAD, REMOTE, TAG
from tfgrpo.store.opening import open_port
from tfgrpo.store.records import (
    REDACTED,
    BranchTip,
    Change,
    Event,
    EventRow,
    Head,
    Library,
    Op,
    Operation,
    RefMove,
    Version,
)

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Unpack

    from tfgrpo.store.activity.runs import Rollouts, Runs
    from tfgrpo.store.history.append import CommitDetails, TipState
    from tfgrpo.store.signing import Signer, SigningTurns
    from tfgrpo.store.sql.port import Port

Author: TypeAlias = str | Callable[[], str]


class Store:
    """Libraries as an append-only history in one file."""

    def __init__(
        self, port: Port, path: Path | str, *, author: Author, now: Callable[[], int]
    ) -> None:
        self.port = port
        self._path = path
        self._author = author
        self.now = now
        self._tip_state: TipState | None = None  # after the last commit
        self._memory = LibraryMemory(port)
        self._operation: tuple[str, int | None] | None = None  # action and batch of an open one
        self._forced = False
        self.signer: Signer | None = None
        """Signs the versions that are committed (`signing.py`); None: nothing is signed."""
        self.turns: SigningTurns | None = None

    # opening:

    @cached_property
    def path(self) -> Path:
        """The store's file; for a database, where what belongs to the project here lies."""
        return anchor(self._path)

    @property
    def file(self) -> str:
        """The same as a string: a view does without `pathlib`, which is slow to load."""
        return os.fspath(self.path if is_address(self._path) else self._path)

    @property
    def location(self) -> str:
        """What opens the store again: its file, or a database's address without a password."""
        return os.fspath(self._path)

    @cached_property
    def author(self) -> str:
        """Who signs versions that are committed without an author of their own."""
        return self._author if isinstance(self._author, str) else self._author()

    @property
    def evaluated(self) -> bool:
        """Whether any version was; asked before `runs`, which takes longer to load than a log."""
        return self.port.storage.evaluated()

    @cached_property
    def runs(self) -> Runs:
        """Runs, rollouts, calls and evaluations."""
        from tfgrpo.store.activity.runs import Runs

        return Runs(self.port, self._path)

    def rollouts(self, run: str, step: int | None = None) -> Rollouts:
        """The attempts of a run, by its name (of one step, from 1 as they are shown; `runs` counts
        from 0). Raises UnknownRevision."""
        from tfgrpo.store.activity.runs import Rollouts

        rows = self.runs.rollouts(self.runs.get(run), None if step is None else step - 1)
        return Rollouts(row._replace(step=row.step + 1) for row in rows)

    @classmethod
    def open(
        cls,
        path: Path | str | None = None,
        *,
        author: Author = "unknown",
        now: Callable[[], int] | None = None,
        watching: bool = False,
        unchecked: bool = False,
    ) -> Store:
        """Opens the store at `path`: a file, a project's folder or a database's address; without
        one, the nearest.

        `author` signs versions without an author, and is asked for when first needed; `now` gives
        microseconds since 1970. `watching` is for a server that reads: threads may take turns, and
        a lock is an error at once. An interrupted redaction is finished and what kills have left is
        removed, unless one watches or, for checks, it is `unchecked`; that lets a foreign schema be
        as well. Raises StoreError.
        """
        path = in_folder(named_by(path or find_file(os.getcwd())))
        port = open_port(path, watching=watching, unchecked=unchecked)
        if port.last_version() < 0:
            port.close()
            raise StoreError(f"{path} was never completed", hint="run `tfgrpo init` to finish it")
        store = cls(port, path, author=author, now=now or _microseconds)
        if not (watching or unchecked):
            atomic_write.clear(store.file)
            store._finish_redaction()
        return store

    def _finish_redaction(self) -> None:
        """Finishes what an interrupted redaction has not done. What lies around a store is the
        affair of the whole package, which is above this room and loaded already."""
        if os.path.exists(f"{self.file}-redacting") or self.port.redactions.needs_rewrite():
            sys.modules[__name__.partition(".")[0]].finish_redaction(self)

    @classmethod
    def init(
        cls,
        path: Path | str,
        *,
        author: Author = "unknown",
        now: Callable[[], int] | None = None,
    ) -> Store:
        """Makes a store file with an empty library on the branch `main`, whole or not at all, or
        opens the one there. Raises StoreError."""
        path = in_folder(named_by(path))
        return opening.init(path, lambda p: cls(p, path, author=author, now=now or _microseconds))

    @classmethod
    def empty(cls, path: Path | str, *, author: Author = "unknown") -> Store:
        """The store that `init` would make at `path`, in memory: nothing is written."""
        return opening.in_memory(path, lambda p: cls(p, path, author=author, now=_microseconds))

    def close(self) -> None:
        self.port.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def forget(self) -> None:
        """Drops what is remembered of libraries: for those who rolled a commit back."""
        self._tip_state = None
        self._memory.forget()

    # reading:

    def version(self, number: int) -> Version:
        """The version of that number. Raises UnknownRevision."""
        version = self.port.version(number)
        if version is None:
            raise UnknownRevision(
                f"there is no v{number}", hint=f"the newest is v{self.port.last_version()}"
            )
        return version

    def versions_at(self, numbers: Iterable[int]) -> list[Version]:
        """The versions of these numbers, those that there are, ascending."""
        return self.port.versions_at(numbers)

    def resolve(self, revision: str | Version) -> Version:
        """The version a revision names; `store/history/revisions.py` gives the grammar. Raises
        UnknownRevision and AmbiguousRevision."""
        return revision if isinstance(revision, Version) else revisions.resolve(self, revision)

    def library(self, revision: str | Version = "HEAD") -> Library:
        """The library in force at a revision. The last few are remembered."""
        return self._memory.library(self.resolve(revision))

    def diff(self, a: str | Version, b: str | Version = "HEAD") -> tuple[Change, ...]:
        """How the library at `b` differs from the one at `a`, in library order."""
        with self.port.reading():
            return replay.diff(self.port, self.resolve(a), self.resolve(b))

    def log(self, revision: str | Version | None = "HEAD") -> Iterator[Version]:
        """Versions newest first, read as they are asked for: the history of a revision, or those in
        `a..b` or `a...b`, resolved at the call; None asks for all that a name stands on."""
        if revision is None:
            named = [*self.branches().values(), *self.remote_branches().values()]
            meant = revisions.meant_by(self, self.tags()).values()
            return history.ancestors(self, {self.head.version.number, *named, *meant})
        if isinstance(revision, Version):
            return history.ancestors(self, [revision.number])
        return revisions.walk(self, revision)

    def events(self, version: Version) -> tuple[Event, ...]:
        """The events of one version, in order."""
        rows = self.port.events(version.position - version.events, version.position)
        return tuple(event_of(row, version.number) for row in rows)

    def counts(self, version: Version) -> dict[Op, int]:
        """How many events of each kind a version has; kinds without one are left out."""
        if not version.events:
            return {}
        return self.port.counts.ops(version.position - version.events, version.position)

    def events_at(self, rows: Iterable[int]) -> dict[int, Event]:
        """Row → event, for the events at these rows."""
        events = self.port.events_at(rows)
        numbers = self.port.numbers_of_rows(row.row for row in events)
        return {row.row: event_of(row, numbers[row.row]) for row in events}

    def texts_before(self, events: Iterable[Event]) -> dict[int, str]:
        """Event row → the text that the event started from, where there was one."""
        follows = {e.row: e.replaces for e in events if e.replaces is not None}
        if not follows:
            return {}
        texts = {e.row: e for e in self.port.events_at(set(follows.values())) if e.op != "DELETE"}
        return {
            row: text if (text := texts[on].text) is not None else REDACTED
            for row, on in follows.items()
            if on in texts
        }

    def history(self, experience: str) -> tuple[Event, ...]:
        """Every event of one experience on any branch, oldest first."""
        rows = self.port.events_of(experience)
        numbers = self.port.numbers_of_rows(row.row for row in rows)
        events = [event_of(row, numbers[row.row]) for row in rows]
        return tuple(sorted(events, key=lambda one: (one.version, one.row)))  # rows go by branch

    def experience_id(self, text: str, revision: str | Version = "HEAD") -> str:
        """The experience meant by an id, the beginning of one, or a label such as `G3`. Labels are
        those of the library at `revision`. Raises UnknownRevision or AmbiguousRevision."""
        if text[:1] == "G" and text[1:].isdigit():
            labels = self.library(revision).labels
            if text in labels:
                return labels[text]
            raise UnknownRevision(
                f"the library has no {text}",
                hint=f"its labels are G0 to G{len(labels) - 1}" if labels else "it is empty",
            )
        ids = self.port.experiences_like(text, 6) if text else []
        if len(ids) == 1 or text in ids:
            return text if text in ids else ids[0]
        if ids:
            raise AmbiguousRevision(
                f"{text!r} is ambiguous", hint="it may be experience " + ", ".join(ids)
            )
        raise UnknownRevision(
            f"there is no experience {text!r}", hint="`tfgrpo show HEAD` lists them"
        )

    # names:

    @property
    def head(self) -> Head:
        """Where HEAD is."""
        recorded = self.port.names.head()
        if recorded is None:
            move = self.port.names.ref(HEAD)
            if move is not None and move.symbol is not None:
                self.tip(move.symbol[len(BRANCH) :])  # which says what is wrong
            raise damage_error("it has no HEAD")
        symbol, version = recorded
        return Head(None if symbol is None else symbol[len(BRANCH) :], version)

    def tip(self, branch: str) -> Version:
        """The version a branch stands at. Raises UnknownRevision."""
        tip = self.port.names.standing(BRANCH + branch)
        if tip is not None:
            return tip
        move = self.port.names.ref(BRANCH + branch)
        if move is None or move.version is None:
            raise UnknownRevision(
                f"there is no branch {branch!r}", hint="`tfgrpo branch` lists them"
            )
        return self.version(move.version)  # which says what is wrong

    def has_branch(self, name: str) -> bool:
        """Whether there is a branch of that name, however many there are."""
        return self.port.names.standing(BRANCH + name) is not None

    def branches(self) -> dict[str, int]:
        """Branch → version number."""
        return self._names(BRANCH)

    def tags(self) -> dict[str, int]:
        """Tag → version number."""
        return self._names(TAG)

    def remote_branches(self) -> dict[str, int]:
        """`origin/main` → version number: where other stores' branches were last seen."""
        return self._names(REMOTE)

    def _names(self, prefix: str) -> dict[str, int]:
        moves = self.port.names.refs(prefix)
        return {m.name[len(prefix) :]: m.version for m in moves if m.version is not None}

    @property
    def is_forced(self) -> bool:
        """Whether protected names move at present."""
        return self._forced

    @contextmanager
    def forced(self) -> Iterator[None]:
        """Inside it protected names move like any other: what `--force` means."""
        before, self._forced = self._forced, True
        try:
            yield
        finally:
            self._forced = before

    def create_branch(self, name: str, at: str | Version = "HEAD") -> Version:
        """Makes a branch at a revision. Raises InvalidName when it exists or cannot be a name."""
        return self._name(BRANCH, "branch", name, at, force=False)

    def create_tag(
        self, name: str, at: str | Version = "HEAD", *, force: bool = False, why: str = ""
    ) -> Version:
        """Tags a revision; the ref log says `why`. An existing tag moves only with `force`."""
        return self._name(TAG, "tag", name, at, force=force, why=why)

    def move_branch(
        self, name: str, to: str | Version, *, expected: Version | None = None
    ) -> Version:
        """Moves a branch to any version. Nothing is deleted: `name@{1}` is where it stood. With
        `expected`, the branch must still stand there, else StaleVersion is raised."""
        with self.port.transaction():
            self._check_tip(name, self.tip(name), expected)
            return self._name(BRANCH, "branch", name, to, force=True)

    def _check_tip(self, branch: str, tip: Version, expected: str | Version | None) -> None:
        if expected is not None and self.resolve(expected).number != tip.number:
            raise StaleVersion(
                f"{branch} has moved to {tip.name}", hint="read the new library and try again"
            )

    def _check_untouched(
        self, branch: str, tip: Version, onto: Version | None, operations: Sequence[Operation]
    ) -> None:
        if onto is None or onto.number == tip.number:
            return
        changed = {change.experience for change in replay.diff(self.port, onto, tip)}
        touched = [o.experience for o in operations if o.experience in changed]
        if touched:
            raise StaleVersion(
                f"{branch} has moved on to {tip.name}, which has another text of {touched[0]}",
                hint=f"`tfgrpo diff {onto.name} {tip.name}` shows it; read it and try again",
            )

    def delete_branch(self, name: str) -> Version:
        """Forgets a branch's name; its versions stay. Raises InvalidName for the one HEAD is on,
        and for one of a run at work unless it is forced. An experiment on it is paused, which only
        `tfgrpo branch` asks about."""
        with self.port.transaction():
            if self.head.branch == name:
                raise InvalidName(
                    f"HEAD is on {name}", hint="switch to another branch before deleting this one"
                )
            tip = self.tip(name)
            self._move(name_moves.moves_away(self.port, BRANCH + name), f"delete branch {name}")
        return tip

    def delete_tag(self, name: str) -> Version:
        """Forgets a tag; the version that it meant stays. Raises UnknownRevision."""
        with self.port.transaction():
            if (version := self.port.names.standing(TAG + name)) is None:
                raise UnknownRevision(f"there is no tag {name!r}", hint="`tfgrpo tag` lists them")
            self._move(name_moves.moves_away(self.port, TAG + name), f"delete tag {name}")
        return revisions.tagged(self, version)

    def checkout(self, revision: str) -> Head:
        """Moves HEAD: onto a branch when `revision` is one's name, else detached at the version."""
        with self.port.transaction():  # the branch may be deleted while we look
            symbol = BRANCH + revision if self.has_branch(revision) else None
            version = self.tip(revision) if symbol else self.resolve(revision)
            self._move([(HEAD, version.number, symbol)], f"checkout {revision}")
        return self.head

    def _name(
        self, prefix: str, kind: str, name: str, at: str | Version, *, force: bool, why: str = ""
    ) -> Version:
        version = self.resolve(at)
        with self.port.transaction():
            there = self.port.names.standing(prefix + name)
            if there is None:
                check_name(kind, name)
            elif not force:
                raise InvalidName(
                    f"{kind} {name} exists, at {there.name}",
                    hint="choose another name, or use --force to move it",
                )
            action = f"{kind} {name}" if there is None else f"move {kind} {name}"
            action += f": {why}" if why else ""
            self._move([(prefix + name, version.number, None)], action)
        return version

    def move_names(self, moves: Sequence[tuple[str, int | None, str | None]], action: str) -> None:
        """Moves names as one operation: (name, version, symbol), with None for a name that goes.
        Names are whole here: HEAD, heads/main, tags/approved."""
        with self.port.transaction():
            self._move(moves, action)

    @contextmanager
    def operation(self, action: str) -> Iterator[None]:
        """Everything inside is one transaction, and one operation to `undo`, named `action`."""
        assert self._operation is None, "operations do not nest"
        self._operation = (action, None)
        try:
            with self.port.transaction():
                yield
        except BaseException:
            self.forget()  # it may be of a version that was rolled back
            raise
        finally:
            self._operation = None

    def _move(
        self,
        moves: Sequence[tuple[str, int | None, str | None]],
        action: str,
        author: str | None = None,
        at: BranchTip | None = None,
    ) -> None:
        """Moves names; of that of `at`, and of where moves end, nothing is asked again."""
        now, signer = self.now(), author or self.author
        rows = []
        for name, version, symbol in moves:
            tip = at if at is not None and name == at.name else None
            was = tip or self.port.names.ref(name)
            if not self._forced and was is not None and was.version not in (None, version):
                if tip is None or tip.is_protected:
                    name_moves.check(self.port, name)
                if tip is None:
                    name_moves.check_runs(self, name, version)
            before = (None, None) if was is None else (was.version, was.symbol)
            rows.append(RefMove._make((0, 0, name, version, symbol, *before, signer, now, action)))
        after = None if at is None else at.last_move
        if self._operation is None:
            self.port.names.append_refs(rows, after=after)
        else:
            action, batch = self._operation
            named = [row._replace(action=action) for row in rows]
            self._operation = (action, self.port.names.append_refs(named, batch, after=after))

    # appending:

    def commit(
        self,
        branch: str,
        operations: Iterable[Operation],
        *,
        message: str,
        **details: Unpack[CommitDetails],
    ) -> Version:
        """Appends one version to a branch, and tags it, in one transaction. Raises InvalidOperation
        for what cannot apply, StaleVersion where the branch has moved on from `expected`, or
        changed what is to change since `onto`; then nothing is recorded."""
        from tfgrpo.store.signing import recordings

        operations = list(operations)
        for recording in recordings(self):
            with recording:
                version = self._commit(branch, operations, message, details.copy())
        return version

    def _commit(
        self,
        branch: str,
        operations: Sequence[Operation],
        message: str,
        details: CommitDetails,
    ) -> Version:
        from tfgrpo.store.history.append import (
            event_rows,
            grown,
            in_new_lane,
            new_version,
            tip_state_at,
        )
        from tfgrpo.store.history.library_order import with_order
        from tfgrpo.store.signing import drawn, signature

        for tag in (tags := details.get("tags", ())):
            check_name("tag", tag)
        with self.port.transaction():
            at = self.port.names.branch_tip(BRANCH + branch)
            if at is None:
                self.tip(branch)  # which says what is wrong
                raise damage_error(f"{branch} stands at a version that is missing")
            tip = at.tip
            self._check_tip(branch, tip, details.get("expected"))
            self._check_untouched(branch, tip, details.get("onto"), operations)
            known, self._tip_state = self._tip_state, None  # until the transaction holds
            state = tip_state_at(self.port, tip, known)
            if operations and not at.ends_lane:
                state = in_new_lane(self.port, state)
            _, _, now, operations, salts = drawn(self, tip, operations)
            rows, changes = event_rows(self.port, state.position, state.live, operations, salts)
            details["author"] = details.get("author") or self.author
            details["meta"] = with_order(self.port, tip, state.live, changes, details)
            version = new_version(at, rows, message, details, now, partial(signature, self))
            self.port.append_version(version, rows)
            state = grown(self.port, state, version, rows, changes)
            names = (BRANCH + branch, *(TAG + tag for tag in tags))
            moves = [(name, version.number, None) for name in names]
            self._move(moves, f"commit: {message}", version.author, at)
            if (also := details.get("also")) is not None:
                also(version)
        self._tip_state = state
        return version


def event_of(row: EventRow, version: int) -> Event:
    """An event as it is shown: with its evidence read, and its version's number."""
    at, op, experience, text, reason, evidence, replaces, _, seal, salt, _ = row
    read = parse_json(evidence, f"the evidence of event {at}") if evidence else None
    redacted = seal is not None and salt is None
    return Event(at, version, op, experience, text, reason, read, replaces, redacted)


def _microseconds() -> int:
    return clock.time_ns() // 1000
