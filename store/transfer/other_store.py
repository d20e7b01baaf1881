"""A store that another one can be brought together with, here or over SSH: a `Peer`.

Over SSH the far end is `ssh HOST tfgrpo serve`. The store's path goes over standard input, so
nothing that a user typed meets a shell. Requests are one JSON line each; `docs/format.md` specifies
them.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from typing import IO, TYPE_CHECKING, NamedTuple, TypeAlias

from tfgrpo.store import child_processes, signing
from tfgrpo.store.errors import (
    InvalidName,
    PushRefused,
    TfgrpoError,
    TransferError,
    UnknownRevision,
    upgrade_hint,
)
from tfgrpo.store.history import name_moves
from tfgrpo.store.history.allowed_names import check_name
from tfgrpo.store.history.revisions import BRANCH, TAG
from tfgrpo.store.history.walks import contained
from tfgrpo.store.records import Version
from tfgrpo.store.store import Store
from tfgrpo.store.transfer.pack import (
    ERROR,
    AncestryLink,
    Header,
    KnownDigests,
    Names,
    Pack,
    PackedVersion,
    WireFields,
    between,
    boundary,
    complaint,
    damaged,
    decoded,
    exported,
    find,
    history,
    known,
    line,
    lines,
    missing,
    printable,
    raise_error,
    whole_line,
)
from tfgrpo.store.transfer.receive import receive
from tfgrpo.store.withheld_texts import withheld

if TYPE_CHECKING:
    from tfgrpo.store.transfer.bundle import Bundle

SSH = ("ssh",)
SERVE = "tfgrpo serve"
NO_COMMAND = 127
"""The exit code of a shell that has no such command."""
PROTOCOL = 1
CALLED = "what the other store sent"


class NameMove(NamedTuple):
    """Where a name of another store has to stand before a push, and where after. None: nowhere."""

    name: str
    before: bytes | None
    after: bytes | None


Peer: TypeAlias = "StorePeer | SshPeer"
"""A store that can be pushed to from here."""
FetchSource: TypeAlias = "Peer | Bundle"
"""A store that can be read from here, or a bundle."""


class StorePeer:
    """A store in a file of this machine, as a peer. Also what `serve` answers from."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def names(self) -> Names:
        """Its branches, tags and HEAD."""
        store = self.store
        with store.port.reading():
            moves = [*store.port.names.refs(BRANCH), *store.port.names.refs(TAG)]
            at = {m.name: store.version(m.version).digest for m in moves if m.version is not None}
            return Names(store.head.branch, at)

    def fetch(self, wants: Sequence[bytes], known: KnownDigests) -> Iterator[PackedVersion]:
        """The history of `wants` as far as `known` has not got it, parents first."""
        yield from between(self.store.port, wants, known)

    def known(self, digests: Sequence[bytes]) -> set[bytes]:
        """Those of these digests that are there."""
        return known(self.store.port, digests)

    def push(
        self, moves: Sequence[NameMove], versions: Iterable[PackedVersion], *, force: bool
    ) -> None:
        """Records versions and moves names there, all or nothing. Raises PushRefused."""
        action = "push of " + ", ".join(parse_name(move.name)[1] for move in moves)
        with self.store.operation(action):
            receive(self.store.port, versions, withheld(self.store))
            admitted = [step for move in moves for step in self._admitted(move, force)]
            with self.store.forced():  # what is protected was asked about by then
                self.store.move_names(admitted, action)

    def _admitted(self, move: NameMove, force: bool) -> list[tuple[str, int | None, str | None]]:
        """Where a name may go, and what goes with it, or raises PushRefused."""
        kind, name = parse_name(move.name)
        before = self.store.port.names.standing(move.name)
        if (before.digest if before else None) != move.before:
            raise PushRefused(
                f"{kind} {name} has just moved",
                hint="someone else pushed first: `tfgrpo pull`, then push again",
            )
        is_protected = name_moves.is_protected(self.store.port, move.name)
        takes_signed = is_protected and os.path.exists(signing.allowed_signers(self.store))
        if is_protected and not force and (move.after is None or not takes_signed):
            raise PushRefused(
                f"{kind} {name} is protected there",
                hint=f"--force moves it anyway; `tfgrpo {kind} --unprotect {name}` there "
                "removes the protection",
            )
        if move.after is None:
            if self.store.head.branch == name and kind == "branch":
                raise PushRefused(f"HEAD is on {name} there", hint="delete it there instead")
            try:
                if not force:
                    name_moves.check_runs(self.store, move.name, None)
            except InvalidName as refusal:
                raise PushRefused(f"{refusal} there", hint=refusal.hint) from None
            return name_moves.moves_away(self.store.port, move.name)
        after = find(self.store.port, move.after)
        if after is None:
            raise TransferError(f"the version for {kind} {name} was not sent; nothing was recorded")
        if takes_signed:
            signing.require(self.store, move.name, before, after)
        if before is None:
            check_name(kind, name, InvalidName)  # somebody else's
        elif not force:
            _check_forward(self.store, kind, name, before, after)
        return [(move.name, after.number, None)]


def parse_name(name: str) -> tuple[str, str]:
    """The kind of a name, and the name as people call it. Raises TransferError."""
    for prefix, kind in ((BRANCH, "branch"), (TAG, "tag")):
        if name.startswith(prefix) and len(name) > len(prefix):
            return kind, name[len(prefix) :]
    raise TransferError(
        f"{name!r} is neither a branch nor a tag", hint="only branches and tags can be transferred"
    )


def whole_name(names: Collection[str], name: str) -> str:
    """The whole name of a branch or tag that is among some. Raises UnknownRevision for none, and
    InvalidName where it is both."""
    there = [prefix + name for prefix in (BRANCH, TAG) if prefix + name in names]
    if not there:
        raise UnknownRevision(
            f"there is no branch or tag {name!r}",
            hint="list them with `tfgrpo branch` and `tfgrpo tag`",
        )
    if len(there) > 1:
        raise InvalidName(f"{name} is a branch and a tag", hint="rename one of them")
    return there[0]


def _check_forward(store: Store, kind: str, name: str, before: Version, after: Version) -> None:
    """Raises PushRefused unless a branch moves forward, or a tag stays."""
    if kind == "tag" and before.number != after.number:
        raise PushRefused(
            f"tag {name} is there already, at {before.digest.hex()[:12]}",
            hint="choose another name, or use --force to move it",
        )
    if not contained(store.port, [after.number], {before.number}):
        raise PushRefused(
            f"{name} would not move forward: {before.digest.hex()[:12]} is not in its history",
            hint="`tfgrpo pull` first; use --force to move it anyway",
        )


class SshPeer:
    """A store on another machine. Close it when done."""

    def __init__(
        self, host: str, path: str, *, port: int | None = None, ssh: Sequence[str] = SSH
    ) -> None:
        """Connects. `ssh` is the command to run; raises TransferError when there is no answer."""
        self._host = host
        arguments = [*ssh, *(["-p", str(port)] if port is not None else []), host, SERVE]
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `close`
        try:
            self._process = child_processes.start(
                arguments,
                child_processes.whole(),  # what the user's settings of ssh ask for is theirs to say
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
            )
        except OSError as error:
            self._errors.close()
            raise TransferError(
                f"cannot run {arguments[0]}: {error.strerror}",
                hint="install OpenSSH, or set TFGRPO_SSH to another command",
            ) from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests: IO[bytes] = self._process.stdin
        self._replies: IO[bytes] = self._process.stdout
        try:
            hello = self._ask({"ask": "hello", "protocol": PROTOCOL, "path": path})
            self._names = hello.names()
        except BaseException:
            self.close()
            raise

    def names(self) -> Names:
        """Its branches, tags and HEAD, as they stood when the connection was made."""
        return self._names

    def fetch(self, wants: Sequence[bytes], known: KnownDigests) -> Iterator[PackedVersion]:
        """The history of `wants` that `known` lacks, once all of it has arrived whole."""
        stops = boundary(wants, self._history, known)
        self._send({"ask": "versions", "wants": _hex(wants), "stops": _hex(stops)})
        try:
            return _read(Pack.from_stream(self._replies, self._host))
        except TransferError:
            self._check()
            raise

    def known(self, digests: Sequence[bytes]) -> set[bytes]:
        return set(self._ask({"ask": "known", "digests": _hex(digests)}).digests("known"))

    def push(
        self, moves: Sequence[NameMove], versions: Iterable[PackedVersion], *, force: bool
    ) -> None:
        requested = [
            {
                "name": move.name,
                "before": None if move.before is None else move.before.hex(),
                "after": None if move.after is None else move.after.hex(),
            }
            for move in moves
        ]
        self._send({"ask": "push", "force": force, "moves": requested})
        with suppress(BrokenPipeError):  # it has refused already, and its reply says why
            self._requests.writelines(lines(Header(Names(None, {}), ()), versions))
            self._requests.flush()
        self._reply().number("done")

    def close(self) -> None:
        """Ends the connection."""
        for pipe in (self._requests, self._replies):
            with suppress(BrokenPipeError):  # it has gone first
                pipe.close()
        self._process.wait()
        self._errors.close()

    def _history(self, tips: Sequence[bytes], limit: int) -> list[AncestryLink]:
        reply = self._ask({"ask": "history", "tips": _hex(tips), "limit": limit})
        links = []
        for item in reply.items("history"):
            if not isinstance(item, list) or len(item) != 2:
                raise damaged(self._host, "sent a history that is none")
            link = WireFields({"digests": [item[0]], "parents": item[1]}, self._host)
            links.append((link.digests("digests")[0], link.digests("parents")))
        return links

    def _ask(self, request: dict[str, object]) -> WireFields:
        self._send(request)
        return self._reply()

    def _send(self, request: dict[str, object]) -> None:
        try:
            self._requests.write(line(request))
            self._requests.flush()
        except BrokenPipeError:
            self._reply()
            raise

    def _reply(self) -> WireFields:
        encoded = whole_line(self._replies, self._host)
        if not encoded:
            self._check()
            raise damaged(self._host, "closed the connection")
        if encoded.startswith(ERROR):
            raise_error(decoded(encoded, self._host))
        return WireFields(decoded(encoded, self._host), self._host)

    def _check(self) -> None:
        """Raises what the connection died of, when it did."""
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return
        if code == 0:
            return
        self._errors.seek(0)
        lines = self._errors.read(20_000).decode(errors="replace").strip().splitlines()
        last_words = printable(lines[-1]) if lines else f"it ended with code {code}"
        hint = "does `ssh " + self._host + "` work?"
        if code == NO_COMMAND:
            hint = "install tfgrpo there, on the PATH of non-interactive shells"
        raise TransferError(f"{self._host}: {last_words}", hint=hint)


def _read(pack: Pack) -> Iterator[PackedVersion]:
    with closing(pack):
        yield from pack.versions()


def _hex(digests: Iterable[bytes]) -> list[str]:
    return [digest.hex() for digest in digests]


def serve(opened: Callable[[str | None], Store], requests: IO[bytes], replies: IO[bytes]) -> None:
    """Answers requests until there are no more. What goes wrong is a reply too, and the last.
    `opened` returns the store at a path, or the one to serve when none is named."""
    try:
        _answer(opened, requests, replies)
    except TfgrpoError as error:
        replies.write(line(complaint(error)))
    replies.flush()


def _answer(opened: Callable[[str | None], Store], requests: IO[bytes], replies: IO[bytes]) -> None:
    peer: StorePeer | None = None
    while encoded := whole_line(requests, CALLED):
        request = WireFields(decoded(encoded, CALLED), CALLED)
        verb = request.text("ask")
        if verb == "hello":
            if request.number("protocol") != PROTOCOL:
                raise TransferError(
                    f"protocol {request.number('protocol')} is asked for; this tfgrpo speaks"
                    f" {PROTOCOL}",
                    hint=f"use the same version of tfgrpo on both sides; {upgrade_hint()}",
                )
            peer = StorePeer(opened(request.text_or_none("path")))
            head, at = peer.names()
            names = {name: digest.hex() for name, digest in at.items()}
            replies.write(line({"protocol": PROTOCOL, "head": head, "names": names}))
        elif peer is None:
            raise TransferError("the first request is hello", hint="see docs/format.md")
        elif verb == "known":
            there = peer.known(request.digests("digests"))
            replies.write(line({"known": _hex(there)}))
        elif verb == "history":
            links = history(peer.store.port, request.digests("tips"), request.number("limit"))
            reply = [[digest.hex(), _hex(before)] for digest, before in links]
            replies.write(line({"history": reply}))
        elif verb == "versions":
            numbers = missing(peer.store.port, request.digests("wants"), request.digests("stops"))
            header = Header(peer.names(), request.digests("stops"))
            replies.writelines(lines(header, exported(peer.store.port, numbers)))
        elif verb == "push":
            fields = [WireFields(move, CALLED) for move in request.items("moves")]
            moves = [
                NameMove(f.text("name"), f.bytes_or_none("before"), f.bytes_or_none("after"))
                for f in fields
            ]
            with closing(Pack.from_stream(requests, CALLED)) as pack:
                peer.push(moves, pack.versions(), force=request.get("force") is True)
            replies.write(line({"done": len(moves)}))
        else:
            raise TransferError(f"there is no request {verb[:40]!r}", hint="see docs/format.md")
        replies.flush()
