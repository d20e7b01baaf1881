"""The library while a batch is decided: its state after the operations so far."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any

from tfgrpo.rendering.render import EMPTY, prompt_text
from tfgrpo.rendering.retrieve import relevant
from tfgrpo.rendering.token_count import count_tokens
from tfgrpo.store.records import Experience, Library, Operation


class Draft:
    """A library that operations are tried on, in library order. Nothing is recorded."""

    def __init__(self, library: Library) -> None:
        self._version = library.version
        self._held = {e.id: e for e in library}

    @property
    def texts(self) -> dict[str, str]:
        """Id → text, of what can be read."""
        return {e.id: e.text for e in self._held.values() if not e.redacted}

    @property
    def labels(self) -> dict[str, str]:
        """Label → id, for the next prompt."""
        return {f"G{i}": id for i, id in enumerate(self.texts)}

    @property
    def library(self) -> Library:
        """The draft as a library."""
        return Library(self._version, tuple(self._held.values()))

    @property
    def tokens(self) -> int:
        """Tokens of the draft as lines of a prompt, which gets a part of many examples."""
        return count_tokens(prompt_text(relevant(self.library, "", None)))

    def prompt(self, shown: Container[str] | None = None) -> str:
        """The draft as prompt text; of the ids that are `shown`, if not of all."""
        lines = (
            f"[G{i}] {text}"
            for i, (id, text) in enumerate(self.texts.items())
            if shown is None or id in shown
        )
        return "\n".join(lines) or EMPTY

    def same(self, text: str) -> str | None:
        """The experience that says just this, give or take case and white space."""
        wanted = plain(text)
        return next((id for id, there in self.texts.items() if plain(there) == wanted), None)

    def apply(self, operation: Operation) -> None:
        """Applies an operation that names its experience."""
        id, text = operation.experience, operation.text
        assert id is not None
        if operation.op == "DELETE":
            del self._held[id]
        elif operation.op != "KEEP":
            assert text is not None
            self._held[id] = Experience(id, text, 0)

    def after(self, operations: Iterable[Operation]) -> Draft:
        """A draft of its own, with operations applied to it."""
        draft = Draft(self.library)
        for operation in operations:
            draft.apply(operation)
        return draft


def fits(draft: Draft, operation: Operation, cap: int | None) -> bool:
    """Whether an operation leaves a library that is within the cap, in tokens, or at least no
    longer."""
    if cap is None or operation.op in ("KEEP", "DELETE"):
        return True
    tokens = draft.after([operation]).tokens
    return tokens <= cap or tokens <= draft.tokens


def split_fitting(
    operations: Sequence[Operation], library: Library, cap: int | None
) -> tuple[list[Operation], list[Operation]]:
    """The operations that a library has room for under its cap, and the rest. Experiences that
    leave make room first."""
    last = {operation.experience: operation.op for operation in operations}
    draft = Draft(library.less({id for id, op in last.items() if id and op == "DELETE"}))
    fit: list[Operation] = []
    crowded: list[Operation] = []
    for operation in operations:
        if last[operation.experience] == "DELETE":
            fit.append(operation)
        elif fits(draft, operation, cap):
            draft.apply(operation)
            fit.append(operation)
        else:
            crowded.append(operation)
    return fit, crowded


def plain(text: str) -> str:
    """A text in the form in which it is compared: one case, single spaces, no mark at the end."""
    return " ".join(text.casefold().split()).rstrip(".! ")


def refusal(operation: Operation, reason: str) -> dict[str, Any]:
    """The record of an operation that could not be made."""
    problem = (operation.evidence or {}).get("problem", "")
    return {"text": operation.text or "", "problem": problem, "reason": reason}


def still_apply(
    operations: Sequence[Operation], base: Library, tip: Library
) -> tuple[list[Operation], list[dict[str, Any]]]:
    """The operations that still apply to a library that has moved on from `base` to `tip`, and a
    record of the rest. A text that somebody else has changed meanwhile is neither changed nor
    deleted; one that somebody else has added is confirmed."""
    before = {e.id: e.text for e in base}
    there = {e.id: e.text for e in tip}
    moved = {id for id in before | there if before.get(id) != there.get(id)}
    fit: list[Operation] = []
    lost: list[dict[str, Any]] = []
    for operation in operations:
        op, id, text = operation[:3]
        assert id is not None
        known = next((i for i, t in there.items() if t == text), None)
        if op == "ADD" and known is not None:
            fit.append(operation._replace(op="KEEP", experience=known, text=None))
            continue
        gone = id not in there if op != "ADD" else id in there
        if gone or (id in moved and op in ("MODIFY", "DELETE")):
            lost.append(refusal(operation, f"{op} of {id}: somebody else changed it meanwhile"))
            continue
        fit.append(operation)
        if op == "DELETE":
            del there[id]
        elif op != "KEEP":
            there[id] = text or ""
    return fit, lost
