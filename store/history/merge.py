"""Three-way merge of libraries, by experience and inside a text by word.

`merge`, `cherry-pick` and `revert` differ in what is base, ours and theirs: a merge takes the
common ancestor as base, a cherry-pick of v its parent, a revert of v takes v as base and v's parent
as theirs. Where two sides have merged each other there are several common ancestors, and the base
is their merge. What those do not agree about is for a person to decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise, takewhile
from typing import Any, Literal, NamedTuple, TypeAlias

from tfgrpo.store.errors import InvalidOperation, TfgrpoError, UnknownRevision
from tfgrpo.store.history import word_diff
from tfgrpo.store.history.library_order import MergedOrder, ids_of, merged_order
from tfgrpo.store.history.walks import common_ancestors, first_parents
from tfgrpo.store.records import Json, Library, Operation, Version
from tfgrpo.store.signing import recordings
from tfgrpo.store.store import Store

ORDER_CONFLICTS = "order_conflicts"
"""In the meta of a version: the experiences that both sides moved, and that stay where ours are."""
MEASURED = "measured"
"""In the meta of a version: what a trial of the merge came to."""
OF_REDACTED = "--ours leaves it as it is, --edit replaces it"
Side: TypeAlias = Literal["ours", "theirs"]
Combination: TypeAlias = Literal["merge", "cherry-pick", "revert"]


class Conflict(NamedTuple):
    """An experience that both sides changed in ways that do not fit. None: it is not there."""

    experience: str
    base: str | None
    ours: str | None
    theirs: str | None


class Merged(NamedTuple):
    """The operations that bring theirs into ours, what stands in the way, the order, and what both
    were compared with."""

    operations: tuple[Operation, ...]
    conflicts: tuple[Conflict, ...]
    order: MergedOrder
    base: Library


class Base(NamedTuple):
    """The base of a merge, and the experiences for which it has none: those that the common
    ancestors of the sides changed in ways that do not fit."""

    library: Library
    disputed: frozenset[str]


class Sides(NamedTuple):
    """What a three-way merge is made from: two versions, and what both are compared with: one
    version, or it and `more`."""

    base: Version
    ours: Version
    theirs: Version
    more: tuple[Version, ...] = ()


Numbers: TypeAlias = tuple[int, ...]
"""Those of versions."""
Resolve: TypeAlias = Callable[[Conflict], str | None]
"""Given a conflict, returns the text that is to stand, or None for none."""


class Measured(NamedTuple):
    """The result of a trial of a merge: the figures for its version's meta, and the experiences
    whose change by a side stays out of the merge."""

    figures: Json
    left_out: frozenset[str] = frozenset()


class Joining(NamedTuple):
    """How two sides become one version: message, resolution, second parent, measurement."""

    message: str
    resolve: Resolve | None = None
    merged: Version | None = None
    measured: Measured | None = None


class MergeConflict(TfgrpoError):
    """A merge, cherry-pick or revert that needs a decision. Nothing was recorded. `redacted` says
    whether a text of theirs is redacted, which no side brings back."""

    def __init__(
        self, message: str, conflicts: Sequence[Conflict], *, hint: str, redacted: bool = False
    ) -> None:
        super().__init__(message, hint=hint)
        self.conflicts = tuple(conflicts)
        self.redacted = redacted


class RedactedText(InvalidOperation):
    """A conflict that was resolved to what stands for a redacted text. Nothing was recorded."""


class NothingToChange(TfgrpoError):
    """A merge, cherry-pick or revert that would change nothing."""


def side(which: Side) -> Resolve:
    """A resolution that always takes one side."""
    return lambda conflict: conflict.ours if which == "ours" else conflict.theirs


def joined(store: Store, sides: Sides, *, resolve: Resolve | None = None) -> Merged:
    """`three_way` of these versions' libraries."""
    base, disputed = _base_of(store, sides)
    ours, theirs = store.library(sides.ours), store.library(sides.theirs)
    return three_way(base, ours, theirs, resolve=resolve, disputed=disputed)


def _base_of(store: Store, sides: Sides) -> Base:
    """What the sides are compared with. Every set of common ancestors that it takes is merged once,
    those of older ones first."""
    wanted = _numbers((sides.base, *sides.more))
    older: dict[Numbers, list[Numbers]] = {}
    left = [wanted]
    while left:
        ancestors = left.pop()
        first, *more = (store.version(number) for number in ancestors)
        older[ancestors] = [_numbers(common_ancestors(store, first, one)) for one in more]
        left += [each for each in older[ancestors] if each not in older]
    bases: dict[Numbers, Base] = {}
    for ancestors in sorted(older, key=max):
        bases[ancestors] = _merged_all(store, ancestors, [bases[one] for one in older[ancestors]])
    return bases[wanted]


def _numbers(versions: Iterable[Version]) -> Numbers:
    return tuple(version.number for version in versions)


def _merged_all(store: Store, ancestors: Numbers, bases: Sequence[Base]) -> Base:
    """The merge of versions, given what the first and each of the others are compared with."""
    first, *more = ancestors
    library, disputed = store.library(store.version(first)), frozenset[str]()
    for number, (before, unknown) in zip(more, bases, strict=True):
        other = store.library(store.version(number))
        merged = three_way(before, library, other, disputed=unknown)
        disputed |= {conflict.experience for conflict in merged.conflicts}
        there = {e.id: e for e in library}
        for operation in merged.operations:
            id = operation.experience or ""
            if operation.text is None:
                del there[id]
            else:
                known = there.get(id) or other.by_id[id]
                there[id] = known._replace(text=operation.text)
        order = merged.order.order or there
        library = Library(library.version, tuple(there[id] for id in order if id in there))
    return Base(library, disputed)


def three_way(
    base: Library,
    ours: Library,
    theirs: Library,
    *,
    resolve: Resolve | None = None,
    disputed: AbstractSet[str] = frozenset(),
) -> Merged:
    """The operations that turn `ours` into the merge of both, in library order. Without `resolve`,
    conflicts are in the result. A text that theirs redacted is always one, and so is a `disputed`
    one, of which it is not known what it was, where the two differ. Raises RedactedText when it is
    resolved to what stands for a redacted text."""
    before, mine, other = (library.texts for library in (base, ours, theirs))
    blank = {e.id for e in theirs if e.redacted}
    unsure = blank | {e.id for library in (base, ours) for e in library if e.redacted} | disputed
    operations: list[Operation] = []
    conflicts: list[Conflict] = []
    for id in dict.fromkeys([*mine, *other, *before]):
        b, o, t = before.get(id), mine.get(id), other.get(id)
        if t == o or (t == b and id not in disputed):
            continue
        result = t
        if o != b or id in blank or id in disputed:
            apart = None in (b, o, t) or id in unsure
            joined = None if apart else merge_words(b or "", o or "", t or "")
            if joined is None:
                conflict = Conflict(id, b, o, t)
                if resolve is None:
                    conflicts.append(conflict)
                    continue
                result = resolve(conflict)
                if id in blank and result == t:
                    raise RedactedText(
                        f"the text of {id} was redacted and cannot be restored",
                        hint=OF_REDACTED,
                    )
            else:
                result = joined
        operation = change(id, o, result)
        if operation is not None:
            operations.append(operation)
    added = [o.experience for o in operations if o.op == "ADD" and o.experience]
    order = merged_order(base, ours, theirs, added)
    return Merged(tuple(operations), tuple(conflicts), order, base)


def change(id: str, before: str | None, after: str | None) -> Operation | None:
    """The operation that takes an experience from one text to another."""
    if before == after:
        return None
    if after is None:
        return Operation("DELETE", id)
    return Operation("ADD" if before is None else "MODIFY", id, after)


def merge_words(base: str, ours: str, theirs: str) -> str | None:
    """The text with both sides' changes of words, or None where they touch."""
    words = base.split()
    changes = sorted(
        {
            (hunk.start, hunk.end, tuple(changed[hunk.new_start : hunk.new_end]))
            for changed in (ours.split(), theirs.split())
            for hunk in word_diff.hunks(words, changed)
        }
    )
    for (_, end, _), (start, _, _) in pairwise(changes):
        if start <= end:
            return None
    merged: list[str] = []
    at = 0
    for start, end, replacement in changes:
        merged += words[at:start]
        merged += replacement
        at = end
    return " ".join([*merged, *words[at:]])


def sides_of(store: Store, kind: Combination, branch: str, version: Version) -> Sides:
    """The sides of merging, applying or taking back a version on a branch. Raises TfgrpoError for
    the changes of the empty library, which has none."""
    ours = store.tip(branch)
    if kind == "merge":
        base, *more = common_ancestors(store, ours, version)
        return Sides(base, ours, version, tuple(more))
    parent = _parent(store, version)
    if kind == "revert":
        return Sides(version, ours, parent)
    return Sides(parent, ours, version)


def merge(
    store: Store,
    branch: str,
    theirs: Version,
    *,
    message: str,
    resolve: Resolve | None = None,
    measured: Measured | None = None,
) -> Version:
    """Merges a version into a branch; returns where the branch then stands. A branch without
    versions of its own moves forward. Raises MergeConflict, or StaleVersion when another process
    moved the branch, with nothing recorded."""
    sides = sides_of(store, "merge", branch, theirs)
    return join(store, branch, sides, Joining(message, resolve, theirs, measured))


def cherry_pick(
    store: Store, branch: str, version: Version, *, message: str, resolve: Resolve | None = None
) -> Version:
    """Applies what one version changed to a branch, as a new version. Raises MergeConflict."""
    sides = sides_of(store, "cherry-pick", branch, version)
    return join(store, branch, sides, Joining(message, resolve))


def picked(store: Store, revision: str) -> list[Version]:
    """A revision's version, or a range's oldest first, those of the first-parent history: what a
    merge brought is the change of the merge. Raises UnknownRevision for an empty range."""
    if ".." not in revision:
        return [store.resolve(revision)]
    versions = list(store.log(revision))
    if not versions:
        raise UnknownRevision(f"{revision} holds no version", hint="`tfgrpo log` shows a range")
    oldest, line = versions[-1].number, set[int]()
    for end in revision.replace("...", "..").split(".."):
        history = first_parents(store, store.resolve(end or "HEAD"))
        line.update(v.number for v in takewhile(lambda v: v.number >= oldest, history))
    return [version for version in versions[::-1] if version.number in line]


def cherry_pick_all(
    store: Store,
    branch: str,
    revisions: Sequence[str],
    *,
    message: str | None = None,
    resolve: Resolve | None = None,
) -> list[Version]:
    """Applies what each of these revisions changed as a version of its own, a range's oldest first,
    all as one operation; returns the new versions. One of a range that has nothing left to change
    is passed over. Raises MergeConflict, or NothingToChange where that is all, or a version that
    was named; then nothing is recorded."""
    versions = [version for one in revisions for version in picked(store, one)]
    return _each(cherry_pick, store, branch, versions, revisions, message, resolve)


def revert(
    store: Store, branch: str, version: Version, *, message: str, resolve: Resolve | None = None
) -> Version:
    """Takes back what one version changed, as a new version. Raises MergeConflict when later
    versions changed the same experiences."""
    sides = sides_of(store, "revert", branch, version)
    return join(store, branch, sides, Joining(message, resolve))


def revert_all(
    store: Store,
    branch: str,
    revisions: Sequence[str],
    *,
    message: str | None = None,
    resolve: Resolve | None = None,
) -> list[Version]:
    """Reverts each of these revisions as `cherry_pick_all` applies them, a range's newest first."""
    versions = [version for one in revisions for version in picked(store, one)[::-1]]
    return _each(revert, store, branch, versions, revisions, message, resolve)


def _each(
    work: Callable[..., Version],
    store: Store,
    branch: str,
    versions: Sequence[Version],
    revisions: Sequence[str],
    message: str | None,
    resolve: Resolve | None,
) -> list[Version]:
    verb = work.__name__.replace("_", "-")
    named = {store.resolve(one).number for one in revisions if ".." not in one}

    def applied(one: Version) -> list[Version]:
        words = message or f"{verb} {one.name}: {one.message}"
        try:
            return [work(store, branch, one, message=words, resolve=resolve)]
        except NothingToChange:
            if one.number in named or len(versions) == 1:
                raise
            return []

    if len(versions) == 1:  # others may write until it is committed
        return applied(versions[0])
    several = f"{verb} {', '.join(version.name for version in versions)}"
    for recording in recordings(store, several):
        with recording:
            appended = [version for one in versions for version in applied(one)]
            if not appended:
                raise NothingToChange(
                    f"{branch} has nothing of {' '.join(revisions)} left to change",
                    hint="`tfgrpo diff` shows how the two differ",
                )
    return appended


def _parent(store: Store, version: Version) -> Version:
    if version.parent is None:
        raise TfgrpoError(f"{version.name} is the empty library and has no changes")
    return store.version(version.parent)


def join(store: Store, branch: str, sides: Sides, joining: Joining) -> Version:
    """Records what `sides_of` a branch come to; returns where the branch then stands. Raises
    MergeConflict, NothingToChange, or StaleVersion where the branch has moved since."""
    base, ours, theirs, _ = sides
    message, resolve, merged, measured = joining
    if merged is not None and base.number == theirs.number:
        return ours
    if merged is not None and base.number == ours.number:
        return store.move_branch(branch, theirs, expected=ours)
    our_library = store.library(ours)
    merger = joined(store, sides, resolve=resolve)
    if merger.conflicts:
        redacted = {e.id for e in store.library(theirs) if e.redacted}
        apart = {conflict.experience for conflict in merger.conflicts}
        one = len(merger.conflicts) == 1
        why = f"{'was' if one else 'were'} changed on both sides"
        hint = "choose a side with --ours or --theirs, or resolve each with --edit"
        if apart & redacted:
            hint = OF_REDACTED
        if apart <= redacted:
            why = (
                f"cannot be brought over: {'its text was' if one else 'their texts were'} redacted"
            )
        raise MergeConflict(
            f"{'1 experience' if one else f'{len(merger.conflicts)} experiences'} {why}",
            merger.conflicts,
            hint=f"nothing was recorded; {hint}",
            redacted=bool(apart & redacted),
        )
    order, order_conflicts = merger.order
    brought, meta = list(merger.operations), dict[str, Any]()
    if order_conflicts:
        meta[ORDER_CONFLICTS] = list(order_conflicts)
    if measured is not None:
        meta[MEASURED], out = measured.figures, measured.left_out
        theirs_alone = {one.experience for one in brought}
        brought = [one for one in brought if one.experience not in out]
        before = merger.base.texts
        back = (change(e.id, e.text, before.get(e.id)) for e in our_library if e.id in out)
        brought += [one for one in back if one and one.experience not in theirs_alone]
        gone = {one.experience for one in brought if one.op == "DELETE"}
        gone |= out - our_library.by_id.keys()
        order = None if order is None else tuple(id for id in order if id not in gone)
    reordered = order is not None and list(order) != ids_of(our_library)
    if not brought and not reordered and merged is None:
        raise NothingToChange(
            f"{branch} has nothing of {(theirs if base.number < theirs.number else base).name} "
            "left to change",
            hint="`tfgrpo diff` shows how the two differ",
        )
    source = theirs.digest.hex() if base.number < theirs.number else base.digest.hex()
    operations = [
        operation._replace(reason=message, evidence={"version": source}) for operation in brought
    ]
    return store.commit(
        branch,
        operations,
        message=message,
        expected=ours,
        merged=merged,
        order=order,
        meta=meta or None,
    )
