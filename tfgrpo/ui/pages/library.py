"""The library at a revision, the prompt that it makes, and a person's operations on it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from starlette.responses import Response

from tfgrpo.display.library_figures import KnownExperience, credits_of, known_experiences, uses_of
from tfgrpo.display.version_rows import StandingNames
from tfgrpo.evaluation.presence_effects import Credit
from tfgrpo.hand_edits import add_texts, commit_by_hand, commit_edit, modified
from tfgrpo.rendering.experience_texts import one_line
from tfgrpo.rendering.markdown_edit import document, edited, rebased
from tfgrpo.rendering.render import prompt_text
from tfgrpo.rendering.request_placement import INTRODUCTION
from tfgrpo.rendering.retrieve import is_whole, relevant, shown_in_training, trained_with
from tfgrpo.rendering.token_count import count_tokens
from tfgrpo.store.errors import InvalidOperation, StaleVersion, TfgrpoError
from tfgrpo.store.records import Experience, Library, Operation, Version
from tfgrpo.ui.page_visit import DIGITS, BadForm, Route, Visit, status_of
from tfgrpo.ui.shown_project import REMEMBERED, places, remembered
from tfgrpo.ui.sortable_tables import Column, table
from tfgrpo.ui.without_content import HIDDEN

ROWS = 50
WEEK = 7 * 86_400 * 1_000_000


class Row(NamedTuple):
    """An experience as it is listed; `uses` is None where no traffic was recorded, and `tokens`
    where its text is not shown."""

    known: KnownExperience
    tokens: int | None
    uses: int | None


def _effect(row: Row, name: str) -> float | None:
    return None if row.known.credit is None else getattr(row.known.credit, name)


COLUMNS: tuple[Column[Row], ...] = (
    Column("text", "Experience", lambda row: row.known.blame.experience.text, False),
    Column("confirmed", "Confirmed", lambda row: row.known.blame.keeps),
    Column("shrunk", "Effect on the reward", lambda row: _effect(row, "shrunk"), drawn=True),
    Column("uses", "Calls, 7 days", lambda row: row.uses),
    Column("tokens", "Tokens", lambda row: row.tokens),
    Column("taught", "Taught", lambda row: row.known.blame.version.number, drawn=True),
)
MORE: tuple[Column[Row], ...] = (
    Column("id", "Id", lambda row: row.known.blame.experience.id, False),
    Column("label", "Label", lambda row: row.known.label, False),
    Column("effect", "Effect", lambda row: _effect(row, "effect")),
    Column("low", "From", lambda row: _effect(row, "low")),
    Column("high", "to", lambda row: _effect(row, "high")),
)
"""Columns of a file beside those of the page."""


class PromptLine(NamedTuple):
    """A line of the prompt: the experience, its place, label and text, and its tokens; None where
    the text is not shown."""

    place: int
    label: str
    id: str
    text: str
    tokens: int | None


PROMPT: tuple[Column[PromptLine], ...] = (
    Column("place", "Place", lambda one: one.place),
    Column("label", "Label", lambda one: one.label, False),
    Column("id", "Experience", lambda one: one.id, False),
    Column("text", "Text", lambda one: one.text, False),
    Column("tokens", "Tokens", lambda one: one.tokens),
)
Clash: TypeAlias = tuple[str, str, str | None, str | None]
"""An experience that two people changed: its id and label, what it says by now and what was
written, each None where it was deleted."""


def show(visit: Visit) -> Response:
    store, revision = visit.store, visit.query("at", "HEAD")
    version = store.resolve(revision)
    library = store.library(version)
    wanted, sort = visit.query("q").strip(), visit.query("sort-library")
    uses = uses_this_week(visit)
    matching = [e for e in library if wanted.casefold() in e.text.casefold()] if wanted else library
    start = visit.number("start", 0)
    is_whole = bool(sort or visit.query("as"))
    chosen = matching if is_whole else list(matching)[start : start + ROWS]
    read = _rows(visit, version, chosen, uses)
    ordered = table(visit, read, COLUMNS, "library", MORE)
    rows = ordered.rows[start : start + ROWS] if is_whole else ordered.rows
    has_effects = any(row.known.credit for row in rows)
    absent = ("" if has_effects else "shrunk", "" if uses is not None else "uses")
    return visit.render(
        "library.html",
        title=f"Library at {revision}",
        asked=revision,
        branch=branch_of(visit, revision),
        version=version,
        names=StandingNames(store)[version.number],
        size=len(library),
        found=len(list(matching)),
        wanted=wanted,
        sort=sort,
        table=ordered.without(*absent),
        start=start,
        rows=rows,
        rows_a_page=ROWS,
        has_uses=uses is not None,
        has_effects=has_effects,
        stays=visit.address(at=version.digest.hex()[:DIGITS]),
        places=places(store),
    )


def _rows(
    visit: Visit,
    version: Version,
    experiences: list[Experience] | Library,
    uses: Mapping[str, int] | None,
) -> list[Row]:
    known = known_experiences(
        visit.store,
        version,
        only={e.id for e in experiences},
        credits=known_credits(visit, version),
    )
    return [
        Row(
            one,
            _tokens(one.blame.experience),
            None if uses is None else uses.get(one.blame.experience.id, 0),
        )
        for one in known
    ]


def _tokens(experience: Experience) -> int | None:
    if experience.text == HIDDEN:
        return None
    return 0 if experience.redacted else count_tokens(experience.text)


def uses_this_week(visit: Visit) -> Mapping[str, int] | None:
    """Returns experience → the calls of the last days that had it; None without a record."""
    since = time.time_ns() // 1000 - WEEK
    return visit.site.memory.get("uses", REMEMBERED, lambda: uses_of(visit.store, since))


def known_credits(visit: Visit, version: Version) -> Mapping[str, Credit]:
    """Returns experience → its effect, which is read from every attempt that measured it."""
    key = ("credits", version.digest)
    return remembered(visit, key, lambda: credits_of(visit.store, version))


def branch_of(visit: Visit, revision: str) -> str | None:
    """Returns the branch that a revision names, HEAD's own for HEAD: where operations go."""
    if revision in ("HEAD", "@"):
        return visit.store.head.branch
    return revision if revision in visit.store.branches() else None


def form(visit: Visit) -> Response:
    branch = visit.query("branch") or visit.store.head.branch or ""
    library = visit.store.library(visit.store.tip(branch))
    id = visit.store.experience_id(visit.query("experience"), library.version)
    if id not in library.by_id:
        raise InvalidOperation(f"{id} is not in the library of {branch}")
    return _form(visit, branch, library, id, library.by_id[id].text)


def _form(
    visit: Visit, branch: str, library: Library, id: str, text: str, *, status: int = 200
) -> Response:
    stands = library.by_id.get(id)
    return visit.render(
        "change.html",
        status,
        title=f"Change {library.label_of.get(id, id)}",
        branch=branch,
        version=library.version,
        id=id,
        label=library.label_of.get(id, id),
        stands=None if stands is None else stands.text,
        text=text,
        reason=visit.field("reason"),
        moved_on=status == 409,
    )


def change(visit: Visit) -> Response:
    """Records a changed text, a confirmation or a deletion. A text that somebody else changed
    meanwhile is shown beside what was written, and nothing is lost."""
    store, branch = visit.store, visit.required("branch", "the branch")
    id, reason = visit.required("experience", "the experience"), visit.required("reason", "why")
    onto, act = store.resolve(visit.required("onto", "the version")), visit.field("act", "modify")
    library = store.library(onto)
    text = visit.text("text", library.by_id[id].text if id in library.by_id else "")
    if act == "modify":
        if not text.strip():
            raise BadForm("the text is empty", hint="to take an experience out, delete it")
        operation = modified(library, id, text, reason)
    elif act in ("delete", "keep"):
        operation = Operation("DELETE" if act == "delete" else "KEEP", id, None, reason)
    else:
        raise BadForm(f"an experience cannot be {act[:40]!r}")
    try:
        version = commit_by_hand(store, branch, [operation], onto=onto)
    except StaleVersion:
        return _form(visit, branch, store.library(store.tip(branch)), id, text, status=409)
    return visit.recorded(branch, version)


def add(visit: Visit) -> Response:
    branch, reason = visit.required("branch", "the branch"), visit.required("reason", "why")
    whole = visit.text("text")
    texts = [whole] if whole else visit.text("texts").split("\n")
    texts = [text for text in texts if text.strip()]
    if not texts:
        raise BadForm("the text is missing", hint="go back and fill it in")
    version = add_texts(visit.store, branch, texts, None, reason)
    return visit.recorded(branch, version)


def whole_form(visit: Visit) -> Response:
    branch = visit.query("branch") or visit.store.head.branch or ""
    library = visit.store.library(visit.store.tip(branch))
    return _whole_form(visit, branch, library, document(library))


def _whole_form(
    visit: Visit,
    branch: str,
    library: Library,
    content: str,
    *,
    refusal: TfgrpoError | None = None,
    clashes: Sequence[Clash] = (),
) -> Response:
    return visit.render(
        "whole.html",
        200 if refusal is None else status_of(refusal),
        title=f"Edit {branch}",
        branch=branch,
        version=library.version,
        content=content,
        reason=visit.field("reason"),
        refusal=refusal,
        moved_on=isinstance(refusal, StaleVersion),
        clashes=clashes,
    )


def whole(visit: Visit) -> Response:
    """Records what an edited library asks for, as one version. Where somebody else changed one of
    the same experiences meanwhile, both texts are shown; what was written is in every refusal."""
    store, branch = visit.store, visit.required("branch", "the branch")
    library = store.library(store.resolve(visit.required("onto", "the version")))
    content = visit.text("content")
    try:
        reason = visit.required("reason", "why")
        version = commit_edit(store, branch, library, content, reason=reason)
    except StaleVersion as refusal:
        now = store.library(store.tip(branch))
        clashes = _clashes(library, content, now)
        content = rebased(library, content, now)
        return _whole_form(visit, branch, now, content, refusal=refusal, clashes=clashes)
    except TfgrpoError as refusal:
        return _whole_form(visit, branch, library, content, refusal=refusal)
    return visit.recorded(branch, version, nothing="nothing changed")


def _clashes(library: Library, content: str, now: Library) -> list[Clash]:
    """Returns the experiences that an edited library changes and that say something else by now."""
    clashes = []
    for operation in edited(library, content).operations:
        id = operation.experience
        if id is None:
            continue
        before, there = library.by_id[id].text, now.by_id.get(id)
        if there is None or there.text != before:
            written = before if operation.op == "KEEP" else operation.text
            label = now.label_of.get(id, id)
            clashes.append((id, label, None if there is None else there.text, written))
    return clashes


def show_prompt(visit: Visit) -> Response:
    version = visit.store.resolve(visit.query("at", "HEAD"))
    whole = visit.store.library(version)
    library = relevant(whole, "", None)  # of many examples the first, as a request about nothing
    top_k = shown_in_training(trained_with(visit.store, version))
    label = library.label_of
    lines = []
    for place, one in enumerate(library.readable, 1):
        text = one_line(one.text)
        known = one.text != HIDDEN
        tokens = count_tokens(f"[{label[one.id]}] {text}\n") if known else None
        lines.append(PromptLine(place, label[one.id], one.id, text, tokens))
    prompt = f"{INTRODUCTION}\n{prompt_text(library)}" if lines else ""
    return visit.render(
        "prompt.html",
        title=f"Prompt of {version.name}",
        version=version,
        is_part=not is_whole(whole, top_k),
        stays=visit.address(at=version.digest.hex()[:DIGITS]),
        prompt=prompt,
        tokens=count_tokens(prompt) if all(one.tokens is not None for one in lines) else None,
        lines=table(visit, lines, PROMPT, "prompt"),
    )


ROUTES = (
    Route("/library", show),
    Route("/library/prompt", show_prompt),
    Route("/library/change", form),
    Route("/library/change", change, "POST"),
    Route("/library/add", add, "POST"),
    Route("/library/whole", whole_form),
    Route("/library/whole", whole, "POST"),
)
