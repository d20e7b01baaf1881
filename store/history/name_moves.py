"""How branches and tags are protected, renamed, and moved back.

A protection is a name in the ref log, `protected/heads/prod`, that stands at a version while it
holds. It guards against accidents: whoever may write the file may lift it.

The rows of one operation share a batch. An undo is another batch that moves every name back, and a
redo undoes it; walking the log backwards finds what was undone and not redone.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Literal, TypeAlias

from tfgrpo.store.errors import (
    InvalidName,
    InvalidOperation,
    ProtectedName,
    TfgrpoError,
    UnknownRevision,
)
from tfgrpo.store.history.allowed_names import check_name
from tfgrpo.store.history.revisions import BRANCH, HEAD, REMOTE, TAG
from tfgrpo.store.history.walks import has_in_history
from tfgrpo.store.records import REDACTS, RefMove

if TYPE_CHECKING:
    from tfgrpo.store.activity.runs import Run
    from tfgrpo.store.records import Json
    from tfgrpo.store.sql.port import Port
    from tfgrpo.store.store import Store


PROTECTED = "protected/"

NameKind: TypeAlias = Literal["branch", "tag"]
PREFIX: dict[NameKind, str] = {"branch": BRANCH, "tag": TAG}
UNDO, REDO, CLONE = "undo: ", "redo: ", "clone "
COMMIT = "commit: "
TAKE_BACK = "take back: "


def is_protected(port: Port, name: str) -> bool:
    """Whether a whole name, such as heads/prod, is protected."""
    named = name.startswith((BRANCH, TAG))
    return named and port.names.standing(PROTECTED + name) is not None


def check(port: Port, name: str) -> None:
    """Raises ProtectedName when a whole name is protected."""
    if is_protected(port, name):
        kind: NameKind = "branch" if name.startswith(BRANCH) else "tag"
        short = name.removeprefix(PREFIX[kind])
        aside = ", `tfgrpo switch -c NAME` starts another branch" if kind == "branch" else ""
        raise ProtectedName(
            f"{kind} {short} is protected: nothing changed",
            hint=f"--force moves it anyway, `tfgrpo {kind} --unprotect {short}` "
            f"removes the protection{aside}",
        )


def check_branch(store: Store, branch: str) -> None:
    """Raises ProtectedName for a protected branch of a store that is not forced."""
    if not store.is_forced:
        check(store.port, BRANCH + branch)


def protected(store: Store, kind: NameKind) -> set[str]:
    """The names of the branches, or of the tags, that are protected."""
    prefix = PROTECTED + PREFIX[kind]
    moves = store.port.names.refs(prefix)
    return {m.name.removeprefix(prefix) for m in moves if m.version is not None}


def protect(store: Store, kind: NameKind, name: str) -> bool:
    """Protects a branch or tag; returns whether it was not protected before."""
    version = _there(store, kind, name)
    if is_protected(store.port, PREFIX[kind] + name):
        return False
    whole = PROTECTED + PREFIX[kind] + name
    store.move_names([(whole, version, None)], f"protect {kind} {name}")
    return True


def unprotect(store: Store, kind: NameKind, name: str) -> bool:
    """Lifts the protection of a branch or tag; returns whether it was protected."""
    _there(store, kind, name)
    if not is_protected(store.port, PREFIX[kind] + name):
        return False
    store.move_names([(PROTECTED + PREFIX[kind] + name, None, None)], f"unprotect {kind} {name}")
    return True


def rename(store: Store, kind: NameKind, old: str, new: str) -> None:
    """Renames a branch or tag; HEAD and a protection go with it. Raises UnknownRevision,
    ProtectedName, and InvalidName when `new` is taken or none, or an unfinished run grows it."""
    prefix = PREFIX[kind]
    with store.port.transaction():
        version = _there(store, kind, old)
        check_name(kind, new)
        if (there := store.port.names.standing(prefix + new)) is not None:
            raise InvalidName(
                f"{kind} {new} exists, at {there.name}",
                hint=f"choose another name, or delete it first: `tfgrpo {kind} -d {new}`",
            )
        check_runs(store, prefix + old, None, idle=kind == "branch")
        moves = moves_away(store.port, prefix + old)
        moves.append((prefix + new, version, None))
        if is_protected(store.port, prefix + old):
            moves.append((PROTECTED + prefix + new, version, None))
        if kind == "branch" and store.head.branch == old:
            moves.append((HEAD, version, prefix + new))
        store.move_names(moves, f"rename {kind} {old} to {new}")


def check_runs(store: Store, name: str, to: int | None, *, idle: bool = False) -> None:
    """Raises InvalidName where a run at work (with `idle` also one that may be resumed) needs a
    name that is about to move, unless the store is forced. A run's steps and branches cannot be
    deleted, and those that it made itself may only move forward; the branch that it adds to may
    move anywhere."""
    needed = None if store.is_forced else _needed_by(store, name, idle=idle)
    if needed is None:
        return
    run, is_own = needed
    if to is not None and not (is_own and name.startswith(BRANCH)):
        return
    was = store.port.names.standing(name)
    if to is not None and was and has_in_history(store, store.version(to), was):
        return
    at_work = store.runs.state(run) == "running"
    raise InvalidName(
        f"run {run.name} is {'at work on' if at_work else 'unfinished and adds to'} "
        f"{name.partition('/')[2]}",
        hint=("stop it first" if at_work else f"finish it with `tfgrpo train --resume {run.name}`")
        + "; --force does it anyway, and the run is then left without it",
    )


def _needed_by(store: Store, name: str, *, idle: bool = False) -> tuple[Run, bool] | None:
    """The run at work, or with `idle` the one that may be resumed, that a whole name belongs to,
    and whether it is the run's own: a step, or a branch that it made; or else the one it adds to.
    """
    if not name.startswith((BRANCH, TAG)):
        return None
    for run in store.runs.all():
        is_own = name.startswith((f"{TAG}{run.name}/step_", f"{BRANCH}{run.name}/"))
        if is_own or name == BRANCH + run.branch:
            state = store.runs.state(run)
            waits = idle and state != "finished" and not store.runs.is_removed(run)
            if state == "running" or waits:
                return run, is_own
    return None


def moves_away(port: Port, name: str) -> list[tuple[str, int | None, str | None]]:
    """The moves by which a whole name goes, and its protection with it."""
    moves: list[tuple[str, int | None, str | None]] = [(name, None, None)]
    if is_protected(port, name):
        moves.append((PROTECTED + name, None, None))
    return moves


def _there(store: Store, kind: NameKind, name: str) -> int:
    version = store.port.names.standing(PREFIX[kind] + name)
    if version is None:
        raise UnknownRevision(f"there is no {kind} {name!r}", hint=f"`tfgrpo {kind}` lists them")
    return version.number


def undo(store: Store) -> list[RefMove]:
    """Undoes the last operation that was not undone yet; returns its moves."""
    with store.port.transaction():  # nobody comes between what is found and what is moved
        batch = undoable(store)
        if batch is None:
            raise TfgrpoError("there is nothing to undo", hint="`tfgrpo reflog` lists every move")
        _check_idle(store, batch)
        if any(REDACTS in _committed(store, move) for move in batch):
            raise TfgrpoError(
                f"the last operation was a redaction ({batch[0].action.removeprefix(COMMIT)}), "
                "which cannot be undone",
                hint="`tfgrpo reset REVISION` moves the branch; what was redacted stays redacted",
            )
        _check_remotes(store, batch)
        _move_back(store, batch, UNDO + batch[0].action)
    return batch


def take_back(store: Store, number: int) -> list[RefMove]:
    """Takes back one operation by the number of its batch; returns its moves, without HEAD's where
    HEAD has moved since. Raises InvalidOperation where another of its names has moved since, HEAD
    would be on no branch, or there is no such operation."""
    with store.port.transaction():
        later: set[str] = set()
        for moves in batches(store):
            if moves[0].batch <= number:
                break
            later.update(move.name for move in moves)
        if moves[0].batch != number:
            raise InvalidOperation("there is no such operation to take back")
        whole = _whole(moves)
        batch = [move for move in whole if move.name != HEAD or HEAD not in later]
        if moved := sorted(later & {move.name for move in batch or whole}):
            name = moved[0].removeprefix(BRANCH)
            raise InvalidOperation(
                f"{name} has moved since",
                hint="first take back what came after; its history lists it",
            )
        if any(REDACTS in _committed(store, move) for move in batch):
            raise InvalidOperation("a redaction cannot be taken back")
        _check_head(store, batch)
        _check_idle(store, batch)
        _check_remotes(store, batch)
        _move_back(store, batch, TAKE_BACK + batch[0].action)
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
    """The operation that an undo would take back, if any, with one move for a name."""
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


def _check_head(store: Store, batch: list[RefMove]) -> None:
    """Raises InvalidOperation where HEAD would be on a branch that is not there."""
    back = {move.name: move for move in batch}
    head, names = back.get(HEAD), store.port.names
    symbol = head.previous_symbol if head else BRANCH + (store.head.branch or "")
    if symbol is None or symbol == BRANCH:
        return
    stands = back[symbol].previous is not None if symbol in back else names.standing(symbol)
    if not stands:
        branch = symbol.removeprefix(BRANCH)
        raise InvalidOperation(
            f"HEAD would be on {branch}, which would no longer exist",
            hint="switch to another branch first",
        )


def _check_remotes(store: Store, batch: list[RefMove]) -> None:
    """Raises InvalidOperation where a branch of a remote that was removed would be there again: its
    location is in no move."""
    gone = (move.name for move in batch if move.version is None and move.previous is not None)
    for name in gone:
        remote = name.removeprefix(REMOTE).partition("/")[0]
        if name.startswith(REMOTE) and remote not in store.port.names.remotes():
            raise InvalidOperation(
                f"the last operation removed the branches of {remote}, which is a remote no longer",
                hint=f"`tfgrpo remote add {remote} LOCATION` first",
            )


def _committed(store: Store, move: RefMove) -> Json:
    """The meta of the version that a move brought its branch by a commit; none of another move."""
    if move.version is None or not (
        move.name.startswith(BRANCH) and move.action.startswith(COMMIT)
    ):
        return {}
    version = store.version(move.version)
    return version.meta if move.previous == version.parent else {}


def _check_idle(store: Store, batch: list[RefMove]) -> None:
    """Raises InvalidOperation where an operation is that of a run at work, which builds on it."""
    for move in batch:
        run, is_own = _needed_by(store, move.name) or (None, False)
        if run and (is_own or _committed(store, move).get("run") == run.name):
            raise InvalidOperation(
                f"the last operation is of run {run.name}, which is at work",
                hint="stop it first, or `tfgrpo reset REVISION` moves the branch",
            )


def redoable(store: Store) -> list[RefMove] | None:
    """The undo that a redo would take back, if any."""
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
    """The branch that HEAD was on before the one it is on, and that is still there. Raises
    UnknownRevision where HEAD was never on another."""
    branches, here = store.branches(), store.head.branch
    for move in store.port.names.ref_log(HEAD):
        branch = (move.previous_symbol or "").removeprefix(BRANCH)
        if branch in branches and branch != here:
            return branch
    raise UnknownRevision("HEAD was on no other branch", hint="`tfgrpo branch` lists the branches")


def branch_to_return_to(store: Store) -> str | None:
    """The branch that HEAD was on last, or any where that is gone; None where there is none."""
    try:
        return previous_branch(store)
    except UnknownRevision:
        branches = list(store.branches())
        return "main" if "main" in branches else next(iter(branches), None)


def batches(store: Store) -> Iterator[list[RefMove]]:
    """The operations on names, newest first, each as its moves in order."""
    for _, moves in groupby(store.port.names.ref_log(None), key=lambda move: move.batch):
        yield list(moves)[::-1]


def _whole(batch: list[RefMove]) -> list[RefMove]:
    """One move for each name of an operation, which may have moved it more than once:
    from where it stood before to where it stood after."""
    moves: dict[str, RefMove] = {}
    for move in batch:
        first = moves.get(move.name, move)
        moves[move.name] = move._replace(
            previous=first.previous, previous_symbol=first.previous_symbol
        )
    return list(moves.values())


def _move_back(store: Store, batch: list[RefMove], action: str) -> None:
    back = {move.name: move.previous for move in batch}
    moves = []
    for move in batch:
        to, symbol = move.previous, move.previous_symbol
        if symbol is not None:  # a branch may have moved since HEAD went onto it
            stands = store.port.names.ref(symbol)
            to = back.get(symbol, stands.version if stands else None)
        moves.append((move.name, to, symbol))
    store.move_names(moves, action)
