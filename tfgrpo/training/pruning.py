"""The cap on a library: what happens when the next experience does not fit.

A library stands in every prompt, and one that grows without end costs more and helps less. With
`--library-tokens` it never has more tokens than that, as lines of a prompt. Where an operation
would cross the cap, the controller is asked to merge or delete experiences, one action after the
other, until it fits: a merge is a MODIFY of the first and a DELETE of the others, with the reason
that was given. It is all or nothing: what does not fit in the end is refused on record, and then
the library gives nothing up for it either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, Field

from tfgrpo.model.client import CallPath, Calls
from tfgrpo.model.endpoint import CallFailed
from tfgrpo.model.structured import text_field, unbounded_text
from tfgrpo.rendering.lines import one_line
from tfgrpo.store.errors import TfgrpoError
from tfgrpo.store.records import Json, Library, Operation
from tfgrpo.training.draft import Draft, plain, words
from tfgrpo.training.reflection import Question, Reflection, StepOrigin

PRUNE_TOKENS = 600
TURNS = 4
"""Actions that one operation may ask for before it is refused."""


class NoRoom(CallFailed):
    """An operation that does not fit, and for which no room was made."""


class LibraryTooLong(TfgrpoError):
    """A library that is over the cap to begin with, and could not be brought under it."""


@dataclass(frozen=True, slots=True)
class Pruning:
    """Operations that make room, in order, and how many answers had to be repaired on the way."""

    operations: tuple[Operation, ...] = ()
    repaired: int = 0

    def __add__(self, later: Pruning) -> Pruning:
        return Pruning(self.operations + later.operations, self.repaired + later.repaired)


class Action(BaseModel):
    """What the controller gives up. `why` makes it think before it decides."""

    why: str = text_field(160, 2000, default="")
    action: Literal["merge", "delete"]
    experiences: list[str] = Field(min_length=1)
    text: str = unbounded_text(4000, default="")


def fits(draft: Draft, operation: Operation, cap: int | None) -> bool:
    """Whether an operation leaves a library that is within the cap, or at least no longer."""
    if cap is None or operation.op in ("KEEP", "DELETE"):
        return True
    tokens = draft.after([operation]).tokens
    return tokens <= cap or tokens <= draft.tokens


def split_fitting(
    operations: Sequence[Operation], library: Library, cap: int | None
) -> tuple[list[Operation], list[dict[str, Any]]]:
    """Returns the operations that a library has room for, and a record of the rest.

    They may have been decided about another library, before somebody else moved the branch.
    """
    draft = Draft(library)
    fit: list[Operation] = []
    lost: list[dict[str, Any]] = []
    for operation in operations:
        if fits(draft, operation, cap):
            draft.apply(operation)
            fit.append(operation)
            continue
        problem = (operation.evidence or {}).get("problem", "")
        reason = f"no room under {cap} tokens: another writer has just filled it"
        lost.append({"text": operation.text, "problem": problem, "reason": reason})
    return fit, lost


def is_prune(operation: Operation) -> bool:
    """Whether an operation was made for want of room, and means nothing elsewhere."""
    return "pruned" in (operation.evidence or {})


def is_initial_prune(evidence: Mapping[str, Any] | None) -> bool:
    """Whether evidence is of an operation that brought a library under the cap to begin with,
    and made room for nothing in particular."""
    return evidence is not None and "pruned" in evidence and "room_for" not in evidence


async def make_room(
    calls: Calls,
    reflection: Reflection,
    draft: Draft,
    coming: Operation,
    origin: StepOrigin,
    number: int,
) -> Pruning:
    """Returns operations after which `coming` fits; `draft` stays as it is.

    `number` is the lesson's in its batch. What `coming` changes is not given up for it. Raises
    NoRoom, another CallFailed where the controller's answer cannot be had, and EndpointError.
    """
    cap = reflection.library_tokens
    assert cap is not None, "only a cap leaves no room"
    alone = Draft(Library(draft.library.version, ())).after([coming._replace(op="ADD")])
    if alone.tokens > cap:
        raise NoRoom(f"no room: it alone has {alone.tokens} tokens, and the cap is {cap}")
    pruned = Pruning()
    for turn in range(TURNS):
        now = draft.after(pruned.operations)
        call_path = (origin.step, "prune", number, turn)
        pruned += await _act(calls, reflection, now, coming, call_path, origin.evidence)
        if fits(draft.after(pruned.operations), coming, cap):
            return pruned
    over = draft.after([*pruned.operations, coming]).tokens - cap
    raise NoRoom(f"no room: {over} tokens over the cap of {cap} after {TURNS} turns of pruning")


async def bring_under(
    calls: Calls,
    reflection: Reflection,
    library: Library,
    origin: StepOrigin,
) -> Pruning:
    """Returns operations that bring a library under the cap, or none where it is.

    A run may begin with a library that is over it, or a person may add to one. Every action
    takes an experience away, so it ends. Raises LibraryTooLong and EndpointError.
    """
    cap, draft = reflection.library_tokens, Draft(library)
    pruned = Pruning()
    while cap is not None and draft.tokens > cap:
        try:
            call_path = (origin.step, "prune", "library", len(pruned.operations))
            pruning = await _act(calls, reflection, draft, None, call_path, origin.evidence)
        except CallFailed as error:
            raise LibraryTooLong(
                f"the library has {draft.tokens} tokens, {draft.tokens - cap} over the cap, and "
                f"could not be pruned: {error}",
                hint="`tfgrpo delete` shortens it; or start a run with a larger --library-tokens",
            ) from None
        for operation in pruning.operations:
            draft.apply(operation)
        pruned += pruning
    return pruned


async def _act(
    calls: Calls,
    reflection: Reflection,
    draft: Draft,
    coming: Operation | None,
    call_path: CallPath,
    evidence: Json,
) -> Pruning:
    """Asks for one action, and returns the operations it stands for: they shorten the library."""
    cap, prompt = reflection.library_tokens, reflection.prune
    assert cap is not None
    assert prompt is not None
    ids = draft.labels
    labels = [label for label, id in ids.items() if coming is None or id != coming.experience]
    then = draft.after([coming]) if coming else draft
    question = Question(
        prompt=prompt,
        values={
            "library": draft.prompt(),
            "lesson": (coming and coming.text) or "(nothing; the library alone is too long)",
            "tokens": str(draft.tokens),
            "cap": str(cap),
            "over": str(then.tokens - cap),
        },
        max_tokens=PRUNE_TOKENS,
        call_path=call_path,
        seed=call_path,
        narrowed={"experiences": {"type": "array", "minItems": 1, "items": {"enum": labels}}},
    )

    def check(action: Action) -> str | None:
        unknown = [label for label in action.experiences if label not in labels]
        if unknown:
            return f"there is no experience {unknown[0]}; experiences are some of {labels}"
        if action.action == "delete":
            return None
        if len(set(action.experiences)) < 2:
            return "a merge takes at least two experiences"
        if not action.text.strip():
            return "a merge needs the text that takes their place"
        if words(action.text) > reflection.max_words:
            return f"the text has {words(action.text)} words, {reflection.max_words} are the most"
        known = draft.same(action.text)
        if known is not None and known not in [ids[label] for label in action.experiences]:
            return "another experience says just that; delete instead"
        if draft.after(operations(action, draft)).tokens >= draft.tokens:
            return "the text is no shorter than what it takes the place of"
        return None

    typed = await reflection.ask(calls, question, Action, check)
    evidence = {
        **evidence,
        "prompts": {**evidence.get("prompts", {}), prompt.name: prompt.digest[:16]},
        "calls": [typed.key[:16]],
        "pruned": typed.value.action,
    }
    action = typed.value
    if action.action == "merge":
        evidence["merged"] = sorted({ids[label] for label in action.experiences})
    if coming is not None:
        evidence["room_for"] = coming.experience
    reason = one_line(action.why) or f"{action.action} for want of room"
    return Pruning(
        tuple(o._replace(reason=reason, evidence=evidence) for o in operations(action, draft)),
        int(typed.repaired),
    )


def operations(action: Action, draft: Draft) -> list[Operation]:
    """Returns what an action does to a draft: DELETE, and MODIFY of the first in a merge."""
    named = {draft.labels[label] for label in action.experiences}
    ids = [id for id in draft.texts if id in named]
    if action.action == "delete":
        return [Operation("DELETE", id) for id in ids]
    text = one_line(action.text)
    first = next((id for id in ids if plain(draft.texts[id]) == plain(text)), None)
    if first is not None:  # it stays as it is and takes the others in
        return [Operation("DELETE", id) for id in ids if id != first]
    deleted = [Operation("DELETE", id) for id in ids[1:]]
    return [*deleted, Operation("MODIFY", ids[0], text)]  # so that no state between is longer
