"""Taking back the last operation of any kind, and putting it back.

Names only ever move by rows in the ref log, and the rows of one operation share a batch. So
an undo is another batch, which moves every name of the last one back; it deletes nothing, and
is undone by a redo. What was undone and not redone is found by walking the log backwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from tfgrpo.store.errors import InvalidOperation, TfgrpoError, UnknownRevision
from tfgrpo.store.records import RefMove
from tfgrpo.store.revisions import BRANCH, HEAD
from tfgrpo.store.store import Store

UNDO, REDO, CLONE = "undo: ", "redo: ", "clone "


def undo(store: Store) -> list[RefMove]:
    """Takes back the last operation that was not taken back yet; returns its moves."""
    with store.port.transaction():  # nobody comes between what is found and what is moved
        batch = undoable(store)
        if batch is None:
            raise TfgrpoError("there is nothing to undo", hint="`tfgrpo reflog` lists every move")
        _check_idle(store, batch)
        for move in batch:
            if move.version is not None and "redacts" in store.version(move.version).meta:
                raise TfgrpoError(
                    f"the last operation was a redaction ({move.action.removeprefix('commit: ')}), "
                    "which cannot be undone",
                    hint="`tfgrpo reset REVISION` moves the branch; "
                    "what was redacted stays redacted",
                )
        _move_back(store, batch, UNDO + batch[0].action)
    return batch


def redo(store: Store) -> list[RefMove]:
    """Puts back what the last undo took back; returns the moves that undo had made."""
    with store.port.transaction():
        batch = redoable(store)
        if batch is None:
            raise TfgrpoError(
                "there is nothing to redo", hint="a redo must directly follow an undo"
            )
        _move_back(store, batch, REDO + batch[0].action.removeprefix(UNDO))
    return batch


def undoable(store: Store) -> list[RefMove] | None:
    """Returns the operation that an undo would take back, if any, with one move for a name."""
    taken_back = 0
    for batch in batches(store):
        action = batch[0].action
        if action.startswith(UNDO):
            taken_back += 1
        elif action.startswith(REDO) or taken_back > 0:
            taken_back -= 1
        else:
            return None if action == "init" or action.startswith(CLONE) else _whole(batch)
    return None


def _check_idle(store: Store, batch: list[RefMove]) -> None:
    """Raises InvalidOperation where an operation is that of a run at work, which builds on it."""
    names = [move.name for move in batch]
    for run in store.runs.listed():
        steps = f"tags/{run.name}/step_"
        if any(name.startswith(steps) for name in names) and store.runs.state(run) == "running":
            raise InvalidOperation(
                f"the last operation is of run {run.name}, which is at work",
                hint="stop it first, or `tfgrpo reset REVISION` moves the branch",
            )


def redoable(store: Store) -> list[RefMove] | None:
    """Returns the undo that a redo would take back, if any."""
    put_back = 0
    for batch in batches(store):
        action = batch[0].action
        if action.startswith(REDO):
            put_back += 1
        elif not action.startswith(UNDO):
            return None
        elif put_back > 0:
            put_back -= 1
        else:
            return _whole(batch)
    return None


def previous_branch(store: Store) -> str:
    """Returns the branch that HEAD was on before the one it is on, and that is still there.

    Raises UnknownRevision where HEAD was never on another.
    """
    branches, here = store.branches(), store.head.branch
    for move in store.port.names.ref_log(HEAD):
        branch = (move.previous_symbol or "").removeprefix(BRANCH)
        if branch in branches and branch != here:
            return branch
    raise UnknownRevision("HEAD was on no other branch", hint="`tfgrpo branch` lists the branches")


def batches(store: Store) -> Iterator[list[RefMove]]:
    """Yields the operations on names, newest first, each as its moves in order."""
    for _, moves in groupby(store.port.names.ref_log(None), key=lambda move: move.batch):
        yield list(moves)[::-1]


def _whole(batch: list[RefMove]) -> list[RefMove]:
    """Returns one move for each name of an operation, which may have moved it more than once:
    from where it stood before to where it stood after."""
    moves: dict[str, RefMove] = {}
    for move in batch:
        first = moves.get(move.name, move)
        moves[move.name] = move._replace(
            previous=first.previous, previous_symbol=first.previous_symbol
        )
    return list(moves.values())


def _move_back(store: Store, batch: list[RefMove], action: str) -> None:
    store.move_names([(m.name, m.previous, m.previous_symbol) for m in batch], action)
