"""What enters the library of what was decided: within a number of edits, and with room for each."""

from __future__ import annotations

from collections.abc import Sequence

from tfgrpo.model.client import Calls
from tfgrpo.model.endpoint import CallFailed
from tfgrpo.store.records import Library, Operation
from tfgrpo.training import pruning
from tfgrpo.training.draft import Draft, once
from tfgrpo.training.lookahead import Refusal
from tfgrpo.training.pruning import Pruning
from tfgrpo.training.reflection import Reflection, StepOrigin


class RoomMaker:
    """A library that operations enter one by one; under a cap room is made, or they are refused.

    `draft` is the library so far, `operations` all that led to it, `refused` what found no room.
    """

    def __init__(
        self,
        calls: Calls,
        reflection: Reflection,
        library: Library,
        origin: StepOrigin,
        initial: Pruning,
    ) -> None:
        self._calls, self._reflection, self._origin = calls, reflection, origin
        self.draft = Draft(library).after(initial.operations)
        self.operations: list[Operation] = list(initial.operations)
        self.refused: list[Refusal] = []
        self.repaired = initial.repaired

    async def enter(self, operation: Operation, number: int) -> None:
        """Applies an operation, which came from the lesson of that number. EndpointError is let
        through."""
        operation = once(operation, self.draft) if operation.op == "ADD" else operation
        if operation.op != "ADD" and operation.experience not in self.draft.texts:
            self._refuse(operation, "its experience was given up to make room")
            return
        if not pruning.fits(self.draft, operation, self._reflection.library_tokens):
            try:
                pruned = await pruning.make_room(
                    self._calls, self._reflection, self.draft, operation, self._origin, number
                )
            except CallFailed as error:
                self._refuse(operation, str(error))
                return
            self.draft = self.draft.after(pruned.operations)
            self.operations += pruned.operations
            self.repaired += pruned.repaired
            operation = once(operation, self.draft)
        self.draft = self.draft.after([operation])
        self.operations.append(operation)

    def _refuse(self, operation: Operation, reason: str) -> None:
        self.refused.append(Refusal(operation.text or "", _problem(operation), reason))


def votes(operations: Sequence[Operation]) -> dict[str, int]:
    """Returns how many groups came to what operations do to each experience: problems whose
    lessons added, changed, deleted or confirmed it."""
    problems: dict[str, set[str]] = {}
    for operation in operations:
        evidence = operation.evidence or {}
        ids = evidence.get("problems") or [evidence.get("problem", "")]
        problems.setdefault(operation.experience or "", set()).update(ids)
    return {id: len(ids) for id, ids in problems.items()}


def within_budget(
    numbered: Sequence[tuple[int, Operation]], most: int
) -> tuple[list[tuple[int, Operation]], list[Refusal]]:
    """Returns the operations of the `most` edits that most groups came to, and the rest as refused.

    `numbered` are operations with the numbers of their lessons. An edit is all that is done to
    one experience; of those with as many groups the earlier counts. What confirms an experience
    is no edit.
    """
    count = votes([operation for _, operation in numbered])
    changed = dict.fromkeys(o.experience or "" for _, o in numbered if o.op != "KEEP")
    ranked = sorted(changed, key=lambda id: -count[id])
    over = dict.fromkeys(ranked[most:], False)
    chosen: list[tuple[int, Operation]] = []
    refused: list[Refusal] = []
    for number, operation in numbered:
        id = operation.experience or ""
        if id not in over or (operation.op == "KEEP" and not over[id]):
            chosen.append((number, operation))
        elif not over[id]:
            groups = f"{count[id]} group{'s' * (count[id] != 1)} came to it"
            reason = f"over the {most} edits of a step: {groups}"
            refused.append(Refusal(operation.text or "", _problem(operation), reason))
            over[id] = True
    return chosen, refused


def _problem(operation: Operation) -> str:
    return str((operation.evidence or {}).get("problem", ""))
