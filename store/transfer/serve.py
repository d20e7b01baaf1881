"""The far end of a transfer: answers requests, one JSON line each, from a stream.

`tfgrpo serve` runs this over standard input and output; over SSH that is all a clone, fetch or
push needs of the other machine. `docs/format.md` specifies the requests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import IO

from tfgrpo.store.errors import TfgrpoError, TransferError
from tfgrpo.store.installed import upgrade_hint
from tfgrpo.store.store import Store
from tfgrpo.store.transfer.pack import exported, history, missing
from tfgrpo.store.transfer.peer import NameMove, StorePeer
from tfgrpo.store.transfer.wire import (
    Header,
    Pack,
    WireFields,
    complaint,
    decoded,
    line,
    lines,
    whole_line,
)

PROTOCOL = 1
CALLED = "what the other store sent"


def serve(opened: Callable[[str | None], Store], requests: IO[bytes], replies: IO[bytes]) -> None:
    """Answers requests until there are no more. What goes wrong is a reply too, and the last.

    `opened` returns the store at a path, or the one to serve when none is named.
    """
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
