"""Protected names: branches and tags that nothing moves, renames or deletes without force.

A protection is itself a name in the ref log, `protected/heads/prod` or `protected/tags/approved`:
it stands at a version while the name is protected and at none when it is not. So it needs no
table, and undo and the ref log cover it. `Store` asks `check` wherever a name moves, whoever
moves it: a commit, a merge, a reset, an undo, a pull. Protection is against accidents: whoever
may write the file may also lift it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from tfgrpo.store.errors import InvalidName, ProtectedName, UnknownRevision
from tfgrpo.store.port import Port
from tfgrpo.store.revisions import BRANCH, HEAD, TAG, check_name

if TYPE_CHECKING:
    from tfgrpo.store.store import Store

PROTECTED = "protected/"

NameKind: TypeAlias = Literal["branch", "tag"]
PREFIX: dict[NameKind, str] = {"branch": BRANCH, "tag": TAG}


def is_protected(port: Port, name: str) -> bool:
    """Returns whether a whole name, such as heads/prod, is protected."""
    if not name.startswith((BRANCH, TAG)):
        return False
    move = port.names.ref(PROTECTED + name)
    return move is not None and move.version is not None


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
    """Raises ProtectedName when a branch is protected and the store is not forced: for work
    that takes long before it comes to move the branch."""
    if not store.is_forced:
        check(store.port, BRANCH + branch)


def protected(store: Store, kind: NameKind) -> set[str]:
    """Returns the names of the branches, or of the tags, that are protected."""
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
    """Renames a branch or tag, as one operation that undo takes back. Its versions stay.

    HEAD goes with the branch that it is on, and a protection with its name; the new name's ref
    log begins here. Raises UnknownRevision when `old` is not there, InvalidName when `new` is or
    cannot be a name or an unfinished run still grows the branch, and ProtectedName.
    """
    prefix = PREFIX[kind]
    with store.port.transaction():
        version = _there(store, kind, old)
        check_name(kind, new)
        there = store.port.names.ref(prefix + new)
        if there is not None and there.version is not None:
            raise InvalidName(
                f"{kind} {new} exists, at v{there.version}",
                hint=f"choose another name, or delete it first: `tfgrpo {kind} -d {new}`",
            )
        if kind == "branch" and not store.is_forced:
            _check_runs(store, old)
        moves = moves_away(store.port, prefix + old)
        moves.append((prefix + new, version, None))
        if is_protected(store.port, prefix + old):
            moves.append((PROTECTED + prefix + new, version, None))
        if kind == "branch" and store.head.branch == old:
            moves.append((HEAD, version, prefix + new))
        store.move_names(moves, f"rename {kind} {old} to {new}")


def _check_runs(store: Store, branch: str) -> None:
    for run in store.runs.listed():
        if run.branch == branch and store.runs.state(run) != "finished":
            raise InvalidName(
                f"run {run.name} is unfinished and adds to {branch}",
                hint=f"finish it with `tfgrpo train --resume {run.name}`; --force renames anyway, "
                "and the run is then left without a branch",
            )


def moves_away(port: Port, name: str) -> list[tuple[str, int | None, str | None]]:
    """Returns the moves by which a whole name goes, and its protection with it."""
    moves: list[tuple[str, int | None, str | None]] = [(name, None, None)]
    if is_protected(port, name):
        moves.append((PROTECTED + name, None, None))
    return moves


def _there(store: Store, kind: NameKind, name: str) -> int:
    move = store.port.names.ref(PREFIX[kind] + name)
    if move is None or move.version is None:
        raise UnknownRevision(f"there is no {kind} {name!r}", hint=f"`tfgrpo {kind}` lists them")
    return move.version
