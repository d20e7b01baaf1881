"""Merging a version, applying or taking back what it changed: looked at first, conflicts solved
in the page, then recorded as one version."""

from __future__ import annotations

from starlette.responses import Response

from tfgrpo.hand_edits import write_library
from tfgrpo.rendering.experience_texts import one_line
from tfgrpo.store.errors import StaleVersion, TfgrpoError
from tfgrpo.store.history import merge as merges
from tfgrpo.store.history.library_order import Move, ids_of, moved
from tfgrpo.store.history.log_filter import subject
from tfgrpo.store.history.merge import (
    Combination,
    Conflict,
    Joining,
    MergeConflict,
    Merged,
    Resolve,
    Sides,
)
from tfgrpo.store.records import Library, Version
from tfgrpo.store.store import Store
from tfgrpo.ui.page_visit import BadForm, Route, Visit, status_of
from tfgrpo.ui.pages.history import Meanwhile, meanwhile

WORDS: dict[Combination, str] = {"merge": "Merge", "cherry-pick": "Apply", "revert": "Take back"}


def show(visit: Visit) -> Response:
    kind = _kind(visit.query("kind", "merge"))
    branch = visit.query("branch") or visit.store.head.branch or ""
    return _looked_at(visit, kind, branch, visit.store.resolve(visit.query("version")))


def _looked_at(
    visit: Visit,
    kind: Combination,
    branch: str,
    version: Version,
    *,
    meanwhile: Meanwhile | None = None,
    refusal: TfgrpoError | None = None,
) -> Response:
    store = visit.store
    sides = merges.sides_of(store, kind, branch, version)
    ours = store.library(sides.ours)
    merged = merges.joined(store, sides)
    texts = ours.texts
    contained = kind == "merge" and sides.base.number == version.number
    return visit.render(
        "combine.html",
        200 if meanwhile is None and refusal is None else status_with_conflicts(refusal),
        title=f"{WORDS[kind]} {version.name}",
        kind=kind,
        verb=WORDS[kind],
        branch=branch,
        branches=list(store.branches()),
        version=version,
        subject=subject(store, version),
        base=sides.base,
        ours=sides.ours,
        forward=kind == "merge" and sides.base.number == sides.ours.number and not contained,
        contained=contained,
        operations=[(one, texts.get(one.experience or "")) for one in merged.operations],
        conflicts=merged.conflicts,
        moves=[(one, ours.by_id[one.experience].text) for one in _moves(ours, merged)],
        left_in_place=merged.order.conflicts,
        reason=visit.field("reason"),
        refusal=refusal,
        undecided=refusal if isinstance(refusal, Undecided) else None,
        is_conflict=isinstance(refusal, MergeConflict | Undecided),
        meanwhile=meanwhile,
        field=visit.field,
    )


def _moves(ours: Library, merged: Merged) -> list[Move]:
    before, after = ids_of(ours), list(merged.order.order or ())
    return [Move(id, before.index(id), after.index(id)) for id in moved(before, after)]


def combine(visit: Visit) -> Response:
    """Records it. What others did on the branch since it was looked at is no matter unless they
    changed what this changes: then nothing is recorded, and both are shown. What is refused is
    still in the form."""
    store = visit.store
    kind, branch = _kind(visit.field("kind")), visit.required("branch", "the branch")
    version = store.resolve(visit.required("version", "the version"))
    onto = store.resolve(visit.required("onto", "what the form was made from"))
    resolve = resolution(visit)
    while True:
        sides = merges.sides_of(store, kind, branch, version)
        if clash := _clash(store, sides, onto):
            return _looked_at(visit, kind, branch, version, meanwhile=clash)
        try:
            reason = visit.required("reason", "why")
            merged = version if kind == "merge" else None
            recorded = merges.join(store, branch, sides, Joining(reason, resolve, merged))
        except StaleVersion:  # another process has just moved the branch: look at that
            continue
        except TfgrpoError as refusal:
            return _looked_at(visit, kind, branch, version, refusal=refusal)
        break
    write_library(store)
    words = f"{branch} is now at {recorded.name}: {recorded.message}"
    return visit.recorded(branch, recorded, words)


def _clash(store: Store, sides: Sides, onto: Version) -> Meanwhile | None:
    """Returns what others did on our side since `onto` where it is about experiences that a
    combination changes, or about their order; None where it is not."""
    tip = sides.ours
    if tip.number == onto.number:
        return None
    base, theirs = merges.joined(store, sides).base, store.library(sides.theirs)
    was, now = ({(e.id, e.text) for e in library} for library in (base, theirs))
    changed = {id for id, _ in was ^ now}
    done = meanwhile(store, onto, tip)
    same = any(one.experience in changed for one in done.changes)
    reordered = done.moves and moved(ids_of(base), ids_of(theirs))
    return done if same or reordered else None


class Undecided(BadForm):
    """A conflict that nothing was said about, or that shall have a text and has none."""


def status_with_conflicts(refusal: TfgrpoError | None) -> int:
    """Returns the HTTP status of a page with conflicts, which may be refused for another reason."""
    return 409 if refusal is None or isinstance(refusal, Undecided) else status_of(refusal)


def resolution(visit: Visit) -> Resolve | None:
    """Returns what the form decided about each conflict; None where there was none to decide. A
    field `take-ID` says ours, theirs, text or none, and `words-ID` has the text."""
    if not any(name.startswith("take-") for name in visit.form):
        return None

    def decided(conflict: Conflict) -> str | None:
        id = conflict.experience
        taken = visit.field(f"take-{id}")
        if taken == "text":
            stands = conflict.ours or conflict.theirs or ""
            words = visit.text(f"words-{id}", stands)
            words = words if words == stands else one_line(words)
            if not words:
                raise Undecided(f"{id} has no text", hint="to leave it out, choose that")
            return words
        choices = {"ours": conflict.ours, "theirs": conflict.theirs, "none": None}
        if taken not in choices:
            raise Undecided(f"{id} was not decided")
        return choices[taken]

    return decided


def _kind(word: str) -> Combination:
    if word not in WORDS:
        raise BadForm(f"nothing is combined by {word[:40]!r}", hint=", ".join(WORDS))
    return word


ROUTES = (Route("/combine", show), Route("/combine", combine, "POST"))
