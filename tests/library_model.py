"""The store as plain dicts: what a history of versions, names and undos must come to.

Imports nothing of the product. A text has two words that may change, `l2 and r0`, of different
alphabets, so that what a merge by word makes of two changes can be said without merging words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

Refs = dict[str, tuple[str, int | str]]
"""HEAD, heads/<branch> and tags/<tag> → ("version", number), or ("branch", name) for HEAD."""


class Refused(Exception):
    """What the store, too, has to refuse with nothing recorded."""


class Conflicts(Refused):
    """A merge that needs a decision about these experiences."""

    def __init__(self, ids: set[str]) -> None:
        super().__init__(ids)
        self.ids = ids


class Known(NamedTuple):
    """A version: what it changed, every id ever added in its first-parent history, what is live.

    `source` is the version that its changes were brought over from by a merge, a cherry-pick or a
    revert. `first` stands before all else, since the version `arranged` moved experiences.
    """

    parent: int | None
    merged: int | None
    source: int | None
    operations: tuple[tuple[str, str, str | None], ...]
    order: tuple[str, ...]
    live: Mapping[str, str]
    first: tuple[str, ...] = ()
    arranged: int | None = None

    @property
    def library(self) -> list[tuple[str, str]]:
        ids = dict.fromkeys([*self.first, *self.order])
        return [(id, self.live[id]) for id in ids if id in self.live]


class Model:
    """Versions are never forgotten; names are, and every state they were in can be gone back to."""

    def __init__(self) -> None:
        self.versions = [Known(None, None, None, (), (), {})]
        self.past: list[Refs] = []
        self.refs: Refs = {"HEAD": ("branch", "main"), "heads/main": ("version", 0)}
        self.future: list[Refs] = []
        self.rank: Callable[[int], bytes] = lambda number: number.to_bytes(8)
        """What common ancestors are ordered by: their digests in the store."""

    # looking:

    def names(self, prefix: str) -> dict[str, int]:
        return {
            name.removeprefix(prefix): int(at)
            for name, (_, at) in self.refs.items()
            if name.startswith(prefix)
        }

    @property
    def branches(self) -> dict[str, int]:
        return self.names("heads/")

    @property
    def tags(self) -> dict[str, int]:
        return self.names("tags/")

    @property
    def head(self) -> tuple[str | None, int]:
        kind, at = self.refs["HEAD"]
        return (str(at), self.branches[str(at)]) if kind == "branch" else (None, int(at))

    def diff(self, a: int, b: int) -> dict[str, tuple[str | None, str | None]]:
        before, after = self.versions[a].live, self.versions[b].live
        return {
            id: (before.get(id), after.get(id))
            for id in before.keys() | after.keys()
            if before.get(id) != after.get(id)
        }

    def tip(self, branch: str) -> int:
        if branch not in self.branches:
            raise Refused(f"no branch {branch}")
        return self.branches[branch]

    def line(self, version: int) -> list[int]:
        """The first-parent history, newest first."""
        found: list[int] = []
        at: int | None = version
        while at is not None:
            found.append(at)
            at = self.versions[at].parent
        return found

    def ancestors(self, version: int) -> set[int]:
        found: set[int] = set()
        ahead = [version]
        while ahead:
            if (at := ahead.pop()) not in found:
                found.add(at)
                known = self.versions[at]
                ahead += [p for p in (known.parent, known.merged) if p is not None]
        return found

    def life(self, id: str) -> list[tuple[int, str, str | None]]:
        """Every event of an experience on any branch, by version."""
        return [
            (number, op, text)
            for number, known in enumerate(self.versions)
            for op, about, text in known.operations
            if about == id
        ]

    def blame(self, version: int, id: str) -> tuple[int, int]:
        """The version that first gave a live experience its text, and the KEEPs of that text.

        What a version brought over from another is followed to where it came from, and what one
        took back to where it was before.
        """
        at = self.last_change(version, id)
        assert at is not None, f"{id} is live at v{version} and was never added"
        chain = [at]
        while True:
            last = (self.last_change(source, id) for source in self.sources(at[0]))
            repeated = next((one for one in last if one and self.repeats(at, one)), None)
            if repeated is None:
                break
            chain.append(at := repeated)
        keeps = sum(
            self.last_change(number, id, index) in chain
            for number in self.ancestors(version)
            for index, (op, about, _) in enumerate(self.versions[number].operations)
            if (op, about) == ("KEEP", id)
        )
        return chain[-1][0], keeps

    def sources(self, version: int) -> list[int]:
        """Where a version's changes may be from: the one they were brought from, and before it
        unless that is the other side of a merge."""
        known = self.versions[version]
        before = None if known.source is None else self.versions[known.source].parent
        places = [known.source, before if known.merged is None else None]
        return [one for one in places if one is not None]

    def repeats(self, at: tuple[int, int], earlier: tuple[int, int]) -> bool:
        """Whether a change leaves an experience as an earlier one did."""
        (op, _, text), (before, _, old) = (self.versions[n].operations[i] for n, i in (at, earlier))
        return (op == "DELETE") == (before == "DELETE") and text == old

    def last_change(
        self, version: int, id: str, before: int | None = None
    ) -> tuple[int, int] | None:
        """Where an experience last changed in a version's first-parent history."""
        for number in self.line(version):
            operations = self.versions[number].operations
            for index in reversed(range(len(operations))[: before if number == version else None]):
                op, about, _ = operations[index]
                if about == id and op != "KEEP":
                    return number, index
        return None

    # names:

    def move(self, **moves: tuple[str, int | str] | None) -> None:
        """Moves names as one operation; None for one that goes."""
        self.past.append(dict(self.refs))
        self.future.clear()
        for name, to in moves.items():
            if to is None:
                del self.refs[name]
            else:
                self.refs[name] = to

    def name(self, kind: str, name: str, at: int, *, force: bool) -> None:
        whole = f"{kind}/{name}"
        if whole in self.refs and not force:
            raise Refused(f"{name} exists")
        self.move(**{whole: ("version", at)})

    def move_branch(self, name: str, at: int) -> None:
        self.tip(name)
        self.name("heads", name, at, force=True)

    def delete(self, kind: str, name: str) -> None:
        if f"{kind}/{name}" not in self.refs or (kind == "heads" and self.head[0] == name):
            raise Refused(f"{name} cannot go")
        self.move(**{f"{kind}/{name}": None})

    def checkout(self, branch: str | None, at: int) -> None:
        if branch is not None:
            self.tip(branch)
        self.move(HEAD=("version", at) if branch is None else ("branch", branch))

    def undo(self) -> None:
        if not self.past:
            raise Refused("nothing to undo")
        self.future.append(self.refs)
        self.refs = self.past.pop()

    def redo(self) -> None:
        if not self.future:
            raise Refused("nothing to redo")
        self.past.append(self.refs)
        self.refs = self.future.pop()

    # versions:

    def commit(
        self,
        branch: str,
        operations: Sequence[tuple[str, str, str | None]],
        *,
        tags: Sequence[str] = (),
        merged: int | None = None,
        source: int | None = None,
    ) -> int:
        tip = self.tip(branch)
        order, live = self.versions[tip].order, dict(self.versions[tip].live)
        deleted: set[str] = set()
        for op, id, text in operations:
            if op == "ADD":
                if id in live or id in deleted:
                    raise Refused(f"{id} is there, or was until now")
                order = order if id in order else (*order, id)
            elif id not in live:
                raise Refused(f"{id} is not there")
            if op == "DELETE":
                del live[id]
                deleted.add(id)
            elif op != "KEEP":
                assert text is not None
                live[id] = text
        number = len(self.versions)
        self.versions.append(
            self.versions[tip]._replace(
                parent=tip,
                merged=merged,
                source=merged if source is None else source,
                operations=tuple(operations),
                order=order,
                live=live,
            )
        )
        moved = [f"heads/{branch}", *(f"tags/{tag}" for tag in tags)]
        self.move(**dict.fromkeys(moved, ("version", number)))
        return number

    def arrange(self, number: int, ids: Sequence[str]) -> None:
        """Says in which order the library of a version is: that of `ids`, which are all of it."""
        known = self.versions[number]
        if list(ids) == [id for id, _ in known.library]:
            return
        born = [id for id in known.order if id in known.live]
        most = next(n for n in range(len(ids)) if [i for i in born if i in ids[n:]] == ids[n:])
        first = tuple(ids[:most])
        self.versions[number] = known._replace(first=first, arranged=number if first else None)

    def merge(self, branch: str, theirs: int, side: str | None) -> int:
        ours = self.tip(branch)
        bases = self.bases(ours, theirs)
        if bases == [theirs]:
            return ours
        if bases == [ours]:
            self.move_branch(branch, theirs)
            return theirs
        return self.commit(branch, self.three_way(bases, ours, theirs, side), merged=theirs)

    def bases(self, a: int, b: int) -> list[int]:
        """The common ancestors that are no ancestor of another one."""
        common = self.ancestors(a) & self.ancestors(b)
        below = {older for one in common for older in self.ancestors(one) - {one}}
        return sorted(common - below, key=self.rank)

    def base_of(self, bases: list[int]) -> tuple[dict[str, str], set[str]]:
        """What several ancestors come to together, and what they do not agree about."""
        together, disputed = dict(self.versions[bases[0]].library), set[str]()
        for one in bases[1:]:
            before, unknown = self.base_of(self.bases(bases[0], one))
            there = dict(self.versions[one].library)
            for id in {*together, *there, *before}:
                pair = together.get(id), there.get(id)
                wanted, fits = joined(before.get(id), *pair)
                if pair[0] != pair[1] and (id in unknown or not fits):
                    disputed.add(id)
                elif wanted is None:
                    together.pop(id, None)
                else:
                    together[id] = wanted
        return together, disputed

    def apply(self, branch: str, base: int | None, theirs: int | None, side: str | None) -> int:
        """A cherry-pick from a parent to a version, a revert from a version to its parent."""
        if base is None or theirs is None:
            raise Refused("v0 changed nothing")
        found = self.three_way([base], self.tip(branch), theirs, side)
        if not found:
            raise Refused("nothing left to change")
        return self.commit(branch, found, source=max(base, theirs))

    def three_way(
        self, bases: list[int], ours: int, theirs: int, side: str | None
    ) -> list[tuple[str, str, str | None]]:
        mine, other = (dict(self.versions[number].library) for number in (ours, theirs))
        before, disputed = self.base_of(bases)
        made: list[tuple[str, str, str | None]] = []
        conflicts: set[str] = set()
        for id in dict.fromkeys([*mine, *other, *before]):
            wanted, fits = joined(before.get(id), mine.get(id), other.get(id))
            if not fits or (id in disputed and mine.get(id) != other.get(id)):
                conflicts.add(id)
                wanted = other.get(id) if side == "theirs" else mine.get(id)
            if wanted == mine.get(id):
                continue
            op = "ADD" if id not in mine else "DELETE" if wanted is None else "MODIFY"
            made.append((op, id, wanted))
        if conflicts and side is None:
            raise Conflicts(conflicts)
        return made


def joined(base: str | None, ours: str | None, theirs: str | None) -> tuple[str | None, bool]:
    """What a three-way merge makes of one experience, and whether both sides fit."""
    if theirs in (base, ours):
        return ours, True
    if ours == base:
        return theirs, True
    if base is None or ours is None or theirs is None:
        return None, False
    words = []
    for b, o, t in zip(base.split(), ours.split(), theirs.split(), strict=True):
        if t not in (b, o) and o != b:
            return None, False
        words.append(o if t == b else t)
    return " ".join(words), True
