"""A store on another machine, and the far end that answers there: `ssh HOST tfgrpo serve`.

The store's path goes over standard input, so nothing that a user typed meets a shell. Requests are
one JSON line each; `docs/format.md` specifies them.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import IO

from tfgrpo.store import child_processes
from tfgrpo.store.errors import TfgrpoError, TransferError, upgrade_hint
from tfgrpo.store.store import Store
from tfgrpo.store.transfer.other_store import NameMove, StorePeer
from tfgrpo.store.transfer.pack import (
    AncestryLink,
    KnownDigests,
    PackedVersion,
    boundary,
    exported,
    history,
    missing,
)
from tfgrpo.store.transfer.pack_stream import (
    ERROR,
    Header,
    Names,
    Pack,
    WireFields,
    complaint,
    damaged,
    decoded,
    line,
    lines,
    printable,
    raise_error,
    whole_line,
)

SSH = ("ssh",)
SERVE = "tfgrpo serve"
NO_COMMAND = 127
"""The exit code of a shell that has no such command."""
PROTOCOL = 1
CALLED = "what the other store sent"


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
            at = hello.table("names")
            self._names = Names(
                hello.text_or_none("head"), {name: WireFields(at, host).digest(name) for name in at}
            )
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
        """Those of these digests that are there."""
        return set(self._ask({"ask": "known", "digests": _hex(digests)}).digests("known"))

    def push(
        self, moves: Sequence[NameMove], versions: Iterable[PackedVersion], *, force: bool
    ) -> None:
        """Records versions and moves names there, all or nothing. Raises PushRefused."""
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
    try:
        yield from pack.versions()
    finally:
        pack.close()


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
            replies.write(line({"known": [digest.hex() for digest in there]}))
        elif verb == "history":
            links = history(peer.store.port, request.digests("tips"), request.number("limit"))
            reply = [[digest.hex(), [p.hex() for p in before]] for digest, before in links]
            replies.write(line({"history": reply}))
        elif verb == "versions":
            numbers = missing(peer.store.port, request.digests("wants"), request.digests("stops"))
            header = Header(peer.names(), request.digests("stops"))
            replies.writelines(lines(header, exported(peer.store.port, numbers)))
        elif verb == "push":
            moves = [_move(WireFields(move, CALLED)) for move in request.items("moves")]
            pack = Pack.from_stream(requests, CALLED)
            try:
                peer.push(moves, pack.versions(), force=request.get("force") is True)
            finally:
                pack.close()
            replies.write(line({"done": len(moves)}))
        else:
            raise TransferError(f"there is no request {verb[:40]!r}", hint="see docs/format.md")
        replies.flush()


def _move(fields: WireFields) -> NameMove:
    return NameMove(
        fields.text("name"), fields.bytes_or_none("before", 32), fields.bytes_or_none("after", 32)
    )
