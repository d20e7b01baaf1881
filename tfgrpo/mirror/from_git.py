"""From a git repository back to a store: versions under their digests, and commits by hand."""

from __future__ import annotations

import heapq
import json
import os
import re
from collections.abc import Mapping
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

from tfgrpo.interchange.formats import markdown as lists
from tfgrpo.mirror import commit_layout as layout
from tfgrpo.mirror.git_commands import Git, MirrorError
from tfgrpo.store.canonical import SALT_BYTES, canonical, derived_id, seal
from tfgrpo.store.errors import InvalidName, TransferError
from tfgrpo.store.history.allowed_names import check_name
from tfgrpo.store.history.library_order import inherited
from tfgrpo.store.history.revisions import BRANCH, TAG
from tfgrpo.store.history.walks import common_ancestor
from tfgrpo.store.records import EVENT_SCHEMA, REDACTED, VERSION_SCHEMA, Library, Op, Version
from tfgrpo.store.store import Store
from tfgrpo.store.transfer.pack import PackedEvent, PackedVersion
from tfgrpo.store.transfer.receive import Receiver, digest_of
from tfgrpo.store.withheld_texts import withheld

NUMBERED = re.compile(r"(\s*)(\d{1,9})[.)]\s+(\S.*)\Z")
HEADING = re.compile(r"\s{0,3}#{1,6}(?:\s|\Z)")
OTHER_BLOCK = re.compile(r"\s{0,3}(?:[>|<]|```|~~~)|(?:[-*_=]\s*)+\Z")
"""What ends a paragraph, as the next line of one does not."""


class Returned(NamedTuple):
    """What was read: the versions adopted, those made of commits by hand, the names moved here,
    those that stand elsewhere there and were left alone, and those that cannot be names here."""

    adopted: tuple[Version, ...]
    by_hand: tuple[Version, ...]
    moved: tuple[tuple[str, Version], ...]
    apart: tuple[tuple[str, Version], ...]
    unnamed: tuple[str, ...]


class _Commit(NamedTuple):
    id: str
    parents: tuple[str, ...]
    author: str
    time: int
    message: str
    events: str | None  # the id of its events.jsonl


def bring_back(store: Store, folder: Path) -> Returned:
    """Reads a mirror into the store, all of it or nothing. Versions are verified; a commit by hand
    becomes a version of its author's, with its changes of `library.md`. New branches and tags are
    made, branches behind moved forward. Raises MirrorError, or TransferError with the commit."""
    if not folder.is_dir() or not Git.is_repository(folder):
        raise MirrorError(
            f"{folder} is not a git repository", hint="create a mirror with `tfgrpo mirror git DIR`"
        )
    git = Git(folder)
    git.refuse_shallow()
    with store.operation(f"import git {folder.name}"):
        reader = _GitReader(store, git)
        reader.read()
        moved, apart, unnamed = _names(store, git.refs(), reader.versions)
    return Returned(tuple(reader.adopted), tuple(reader.added), moved, apart, unnamed)


class _GitReader:
    def __init__(self, store: Store, git: Git) -> None:
        self.versions: dict[str, Version] = {}  # by commit
        self.adopted: list[Version] = []
        self.added: list[Version] = []
        self._store = store
        self._receiver = Receiver(store.port, withheld(store))
        self._git = git
        self._rendering = layout.Rendering(store)
        self._records: dict[str, PackedVersion | None] = {}  # by the id of events.jsonl
        self._of_hand: dict[str, PackedVersion] = {}  # by commit: versions made of it before
        self._here: dict[str, Version] | None = None

    def read(self) -> None:
        """Reads every commit of every branch and tag, parents first."""
        commits = self._in_time(self._commits())
        if not any(self._records.values()):
            raise MirrorError(
                f"{self._git.folder} is a git repository, but not a mirror of a store",
                hint="create a mirror with `tfgrpo mirror git DIR`",
            )
        for foreign in self._records.values():
            meta = json.loads(foreign.meta) if foreign and foreign.meta else None
            if foreign and (commit_id := layout.made_of(meta)):
                self._of_hand[commit_id] = foreign
        libraries = self._git.objects([f"{id}:{layout.LIBRARY}" for id in commits])
        for commit, library in zip(commits.values(), libraries, strict=True):
            text = None if library is None else library[1].decode("utf-8", "replace")
            self.versions[commit.id] = self._version(commit, commits, text)

    def _commits(self) -> dict[str, _Commit]:
        """Returns id → commit, parents first, and fills `_records`."""
        git = self._git
        order = git("rev-list", "--topo-order", "--reverse", "--parents", "--branches", "--tags")
        lines = [line.split(" ") for line in order.splitlines()]
        names = [name for id, *_ in lines for name in (id, f"{id}:{layout.EVENTS}")]
        objects = git.objects(names)
        commits = {}
        for (id, *parents), commit_object, events in zip(lines, objects, objects, strict=False):
            assert commit_object is not None, "rev-list has just named it"
            head, _, message = commit_object[1].decode("utf-8", "replace").partition("\n\n")
            author = next((line for line in head.split("\n") if line.startswith("author ")), "")
            who, time = layout.author_of(author.removeprefix("author "))
            if events and events[0] not in self._records:
                self._records[events[0]] = layout.recorded(events[1])
            commits[id] = _Commit(
                id, tuple(parents), who, time, message.strip(), events and events[0]
            )
        return commits

    def _in_time(self, commits: dict[str, _Commit]) -> dict[str, _Commit]:
        """Returns commits by time, parents first: so versions are numbered as they were made."""
        times: dict[str, int] = {}
        for id, commit in commits.items():
            record = self._records.get(commit.events or "")
            whole = record is not None and record.time // 1_000_000 == commit.time // 1_000_000
            times[id] = record.time if record is not None and whole else commit.time
        sorter = TopologicalSorter({id: commit.parents for id, commit in commits.items()})
        sorter.prepare()
        heap: list[tuple[int, str]] = []
        ordered = {}
        while sorter.is_active():
            for id in sorter.get_ready():
                heapq.heappush(heap, (times[id], id))
            _, id = heapq.heappop(heap)
            ordered[id] = commits[id]
            sorter.done(id)
        return ordered

    def _version(
        self, commit: _Commit, commits: Mapping[str, _Commit], text: str | None
    ) -> Version:
        parents = [self.versions[p] for p in commit.parents]
        record = self._records.get(commit.events or "")
        below = [version.digest for version in parents]
        above = [commits[parent].events for parent in commit.parents]
        if record and commit.events and layout.is_own(record, below, commit.events, above):
            version = self._adopt(record, commit)
            if text == self._rendering.at(version):
                return version
            base, others = version, []  # amended by hand
        else:
            base = parents[0] if parents else self._store.version(0)
            others = parents[1:]
        if commit.id in self._of_hand:
            return self._adopt(self._of_hand[commit.id], commit)
        if self._here is None:  # made of commits by hand on an earlier reading
            self._here = layout.made_by_hand(self._store)
        return self._here.get(commit.id) or self._by_hand(commit, base, others, text)

    def _adopt(self, foreign: PackedVersion, commit: _Commit) -> Version:
        known = self._receiver.has(foreign.digest)
        try:
            version = self._receiver.record(foreign)
        except TransferError as error:
            raise TransferError(f"commit {commit.id[:12]}: {error}", hint=error.hint) from None
        if not known:
            self.adopted.append(version)
        return version

    def _by_hand(
        self, commit: _Commit, base: Version, others: list[Version], text: str | None
    ) -> Version:
        if text is None:
            raise MirrorError(
                f"commit {commit.id[:12]} has no {layout.LIBRARY}",
                hint="restore the file; to delete an experience, delete its line",
            )
        merged = [o for o in others if common_ancestor(self._store, base, o).number != o.number]
        subject = commit.message.partition("\n")[0] or "(no message)"
        evidence = canonical({"source": layout.LIBRARY, "format": "git", "commit": commit.id})
        events = []
        for op, id, text_after in _changes(commit, text, self._store.library(base)):
            salt = os.urandom(SALT_BYTES)
            sealed, why = seal(salt, text_after, subject), (subject, evidence.decode())
            events.append(PackedEvent(op, id, text_after, *why, sealed, salt, EVENT_SCHEMA, ()))
        imported = {"import": {"format": "git", "commit": commit.id}}
        meta = canonical(imported | dict(inherited(base))).decode()
        parents = (base.digest, *(other.digest for other in merged[:1]))
        message = re.sub(rf"\n*^{layout.TRAILER}: .*$", "", commit.message, flags=re.MULTILINE)
        foreign = PackedVersion(
            digest=b"",
            parents=parents,
            schema=VERSION_SCHEMA,
            author=commit.author,
            time=commit.time,
            message=message.strip() or subject,
            meta=meta,
            events=tuple(events),
        )
        version = self._receiver.record(foreign._replace(digest=digest_of(foreign)))
        self.added.append(version)
        return version


def _changes(commit: _Commit, text: str, library: Library) -> list[tuple[Op, str, str | None]]:
    lines = [line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n")]
    for number, line in enumerate(lines, 1):
        if line.startswith(("<<<<<<< ", ">>>>>>> ")):
            raise MirrorError(
                f"commit {commit.id[:12]}: {layout.LIBRARY}:{number} is an unresolved conflict",
                hint="resolve it there and commit",
            )
    lines = _listed(commit, lines)
    before = library.texts
    changes: list[tuple[Op, str, str | None]] = []
    ids: set[str] = set()
    for item in lists.items(lines):
        id = item.id
        if id is None or id in ids:
            id = derived_id("git", commit.id, item.line)
        ids.add(id)
        if id not in before:
            changes.append(("ADD", id, item.text))
        elif item.text not in (before[id], REDACTED):
            changes.append(("MODIFY", id, item.text))
    return changes + [("DELETE", id, None) for id in before if id not in ids]


def _listed(commit: _Commit, lines: list[str]) -> list[str]:
    """Lines as the list that they are, a line for each: what an editor wrapped is joined, and
    numbers are dashes. Under a dash another number than 1 begins no list: the line is wrapped
    there. Raises MirrorError for a line with a word in no experience, heading or comment, which
    would be lost."""
    listed: list[str] = []
    last: int | None = None  # the line of an experience that the next one may go on from
    blank = wrapped = in_comment = in_numbers = False
    for number, line in enumerate(lines, 1):
        goes_on = last is not None and not lists.LINE_ENDS.search(listed[last])
        match = NUMBERED.match(line)
        if match and (in_numbers or blank or not goes_on or int(match[2]) == 1):
            line, in_numbers = f"{match[1]}- {match[3]}", True
        elif lists.BULLET.match(line):
            in_numbers = False
        rest = line
        is_id = goes_on and not blank and lists.LINE_ENDS.fullmatch(line)
        if in_comment or (line.lstrip().startswith("<!--") and not is_id):
            in_comment, last = "-->" not in line, None
            rest, line = "" if in_comment else line.rpartition("-->")[2], ""
        elif lists.BULLET.match(line) or lists.INNER.match(line):
            rest, last, wrapped = "", len(listed), False
        elif HEADING.match(line):
            rest, last = "", None
        elif goes_on and last is not None and line.strip():
            if line[0] in " \t" and not wrapped:
                rest, last = "", len(listed)
            elif is_id or line[0] in " \t" or not (blank or OTHER_BLOCK.match(line)):
                listed[last] = f"{listed[last].rstrip()} {line.strip()}"
                rest, line, wrapped = "", "", True
        blank = not lines[number - 1].strip()
        if re.search(r"\w", rest):
            raise MirrorError(
                f"commit {commit.id[:12]}: {layout.LIBRARY}:{number} is in no experience: "
                f"{line.strip()[:60]!r}",
                hint="write an experience as `- text` and anything else as a heading or a comment, "
                "and amend the commit",
            )
        listed.append(line)
    return listed


def _names(
    store: Store, refs: Mapping[str, str], versions: Mapping[str, Version]
) -> tuple[tuple[tuple[str, Version], ...], tuple[tuple[str, Version], ...], tuple[str, ...]]:
    moves: list[tuple[str, int | None, str | None]] = []
    moved, apart, unnamed = [], [], []
    here = {BRANCH: store.branches(), TAG: store.tags()}
    for ref, commit in refs.items():
        kind, label = (BRANCH, "branch") if ref.startswith("refs/heads/") else (TAG, "tag")
        name, version = layout.our_name(ref.split("/", 2)[2]), versions[commit]
        at = here[kind].get(name)
        if at == version.number:
            continue
        try:
            check_name(label, name)
        except InvalidName:
            unnamed.append(name)
            continue
        base = None if at is None else common_ancestor(store, store.version(at), version).number
        if at is None or (kind == BRANCH and base == at):
            moves.append((kind + name, version.number, None))
            moved.append((name, version))
        elif kind == TAG or base != version.number:
            apart.append((name, version))
    if moves:
        store.move_names(moves, "import git")
    return tuple(moved), tuple(apart), tuple(unnamed)
