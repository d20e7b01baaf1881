"""One request and its answer: the library goes in, everything else goes through."""

from __future__ import annotations

import asyncio
import gzip
import logging
import time
import zlib
from time import perf_counter
from typing import TYPE_CHECKING

from tfgrpo.proxy.forwarded_headers import answer_headers, request_head
from tfgrpo.proxy.http_message import (
    BadRequest,
    Headers,
    Request,
    answer_head,
    error_body,
    own_answer,
    pause,
)
from tfgrpo.proxy.library_choice import UnknownLibrary
from tfgrpo.proxy.provider_connection import UpstreamConnection
from tfgrpo.proxy.recorded_call import CUT, Call
from tfgrpo.proxy.whole_answer import UNREAD, WholeAnswer
from tfgrpo.proxy.withheld_keys import KeyFilter
from tfgrpo.rendering.json_splice import Edit, NotJson, RepeatedKey, document, edited, escaped
from tfgrpo.rendering.request_placement import (
    BEDROCK,
    GOOGLE,
    conversation,
    metadata,
    named_by,
    place_of,
    question,
    subject,
)
from tfgrpo.store.records import REDACTED

if TYPE_CHECKING:
    from tfgrpo.proxy.client_connection import ClientConnection
    from tfgrpo.proxy.server import Proxy

log = logging.getLogger("tfgrpo.proxy")
VANISHED = 499
"""The status on record where the client was gone before its answer."""
NAMED_BY_PATH = (GOOGLE, BEDROCK)
"""The APIs whose paths name the model."""
FAILED = "this failed in the proxy; its log has the traceback"
ENDING = "the proxy was told to end, and the answer took longer than it waits"


class Exchange:
    """A request under way."""

    def __init__(self, proxy: Proxy, client: ClientConnection, request: Request) -> None:
        self.proxy = proxy
        self.client = client
        self.request = request
        self.upstream = proxy.upstreams.get(request.api) or proxy.settings.openai
        self.call = Call(proxy.call_id(), time.time_ns() // 1000, request)
        self._connection: UpstreamConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._wire = self._body = b""
        self._streaming = False
        self._chunked: bool | None = None
        """Whether the answer goes on in chunks, once it has begun."""
        self._out: list[bytes] = []
        self._tried = 0
        self._answer: WholeAnswer | None = None
        """One that waits until it is whole: the caller has a virtual key."""
        self._filter: KeyFilter | None = None
        """What keeps the keys of providers from a caller with a virtual key."""
        self._over = self._is_whole = False
        proxy.open += 1

    @property
    def begun(self) -> bool:
        """Whether the client has some of the answer."""
        return self._chunked is not None

    # the request:

    def start(self, body: bytes | None) -> None:
        """Sends the request on. With None as the body, `feed` brings it piece by piece."""
        request = self.request
        try:
            self._admit()
            self._streaming, self._is_whole = body is None, body is not None
            if body is None:
                self.proxy.note_passed(request)
            else:
                self._body = body = self._placed(body)
            if self.proxy.desk is not None:
                self.proxy.desk.check(self.call, request)
            self._aim(body)
        except BadRequest as refusal:
            self._refuse(refusal.status, str(refusal), refusal.after)
            return
        except Exception:
            self._fail()
            return
        self.proxy.begin(self.call)
        self._send()

    def _admit(self) -> None:
        """Raises BadRequest for a request that its head refuses already. One that is signed is
        among them: neither its body nor the name of its host could change."""
        request, proxy = self.request, self.proxy
        if proxy.open > proxy.settings.limits.requests:
            raise BadRequest(503, "too many requests are under way")
        if request.api not in proxy.upstreams:
            raise BadRequest(404, f"no provider is named here for the API of {request.api}")
        signed = request.api == BEDROCK and request.index.get(b"authorization", b"")
        if signed and signed.startswith(b"AWS4-"):
            raise BadRequest(400, "a signed request cannot be changed: use an API key of Bedrock's")
        if proxy.desk is not None:
            proxy.desk.admit(self.call, request)

    def _aim(self, body: bytes | None) -> None:
        """Writes the head as it goes to the provider. Raises BadRequest."""
        request, upstream = self.request, self.upstream
        if body is None:
            self._wire = request_head(request, upstream, None, chunked=request.chunked)
        elif request.known is not None:
            self._wire = request.known.wire(upstream, len(body))
        else:
            length = len(body) if request.has_body or body else None
            self._wire = request_head(request, upstream, length)

    def feed(self, data: bytes) -> None:
        """Sends a piece of a body on."""
        if self.request.chunked:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        self._pass_on(data)

    def feed_end(self) -> None:
        """The body is whole."""
        self._is_whole = True
        if self._connection is not None:
            self._connection.is_sent = True
        if self.request.chunked:
            self._pass_on(b"0\r\n\r\n")

    def _pass_on(self, data: bytes) -> None:
        if self._over:
            return
        if self._connection is not None and self._connection.transport is not None:
            self._connection.transport.write(data)
        else:
            self._wire += data
            self.client.hold(True)

    def _placed(self, body: bytes) -> bytes:
        request, call = self.request, self.call
        place = place_of(request.method, request.path)
        if place is None:
            return body
        encoding = request.index.get(b"content-encoding", b"identity").lower()
        plain = unpacked(body, encoding, self.proxy.settings.limits.body)
        try:
            text = plain.decode()
            members = document(text, self.proxy.keys)
        except (NotJson, UnicodeDecodeError):
            return body  # what the provider says of it is its own
        except RepeatedKey as error:
            raise BadRequest(400, f"the body has the key {error} twice") from None
        header = request.index.get(b"x-tfgrpo-subject")
        who = header.decode("latin-1") if header is not None else subject(members)
        who = conversation(members) if who is None else who
        call.read(members, who)
        if request.api in NAMED_BY_PATH:
            call.model, call.streamed = named_by(request.path) or (call.model, call.streamed)
        if self.proxy.settings.tags:
            call.metadata = metadata(members, self.proxy.settings.tags)
        if self.proxy.keeps_words(call):
            call.keep(plain)
        name, model = self.proxy.chooser.named(request.index, members)
        try:
            source = self.proxy.chooser.source(name)
        except UnknownLibrary as error:
            raise BadRequest(404, str(error)) from None
        edits: list[Edit] = []
        if model is not None:
            member = members["model"]
            edits.append((member.start + 1, member.end - 1, escaped(model)))
            call.model = model
        if source is not None:
            call.chosen = source.chosen(lambda: question(members), call.id, call.subject)
            try:
                if call.chosen.addition is not None:
                    edits += place(text, members, call.chosen.addition)
            except RecursionError:
                raise BadRequest(400, "the body is nested too deep") from None
            except RepeatedKey as error:
                raise BadRequest(400, f"a message has the key {error} twice") from None
        if not edits:
            return body
        return packed(edited(plain, text, edits), encoding)

    # the connection upstream:

    def _send(self) -> None:
        self._tried += 1
        connection = self.proxy.pool.idle(self.upstream)
        if connection is not None:
            self._sent(connection)
        else:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        try:
            connection = await self.proxy.pool.connect(self.upstream)
        except OSError as error:
            self._unreached(error)
            return
        except Exception:  # such as a name that no host can have
            self._fail()
            return
        if self._over:
            connection.leave()
        else:
            self._sent(connection)

    def _unreached(self, error: OSError) -> None:
        if not self._over:
            late = isinstance(error, TimeoutError)
            why = "it did not answer in time" if late else str(error)
            self._refuse(504 if late else 502, f"cannot reach {self.upstream}: {why}")

    def _sent(self, connection: UpstreamConnection) -> None:
        self._connection = connection
        self.call.sent = self.call.sent or perf_counter()
        self.call.tries += 1
        self.call.provider = self.upstream.name
        connection.ask(self, self._wire, self._body, headless=self.request.method == b"HEAD")
        connection.is_sent = self._is_whole
        if self._streaming:
            self._wire = b""
            self.client.hold(False)

    # what the provider says:

    def answered(self, status: int, reason: bytes, headers: Headers) -> None:
        """The head of the answer is here: it goes on, with what it was answered under."""
        request, call = self.request, self.call
        call.status, call.first = status, perf_counter()
        self._answer = self._filter = None
        lines, call.packing, sized = answer_headers(headers)
        bodiless = status in (204, 304) or request.method == b"HEAD"
        withheld = self.proxy.withheld
        if call.key is not None and withheld.keys:  # any of it may quote a provider's key
            reason, *lines = map(withheld.without, (reason, *lines))
            if status >= 400 or (call.packing and not bodiless):
                self._answer = WholeAnswer(status, reason, lines, call.packing, bytearray())
                return
            self._filter = KeyFilter(withheld, streamed=call.streamed or None)
        sized = sized or bodiless
        self._begin(status, reason, lines, sized=sized)

    def _begin(self, status: int, reason: bytes, lines: list[bytes], *, sized: bool) -> None:
        request, call = self.request, self.call
        self._chunked = chunked = not sized and request.modern
        request.keep_alive = request.keep_alive and (sized or chunked)
        lines.append(b"X-Tfgrpo-Call: " + call.id.encode())
        chosen = call.chosen
        if chosen is not None:
            lines.append(chosen.header)
            if chosen.arm is not None:
                lines.append(b"X-Tfgrpo-Arm: " + chosen.arm.encode())
            if chosen.trouble:
                lines.append(b"X-Tfgrpo-Stale: the store cannot be read; this library goes on")
        closing = not request.keep_alive
        self._out.append(answer_head(status, reason, lines, chunked=chunked, closing=closing))

    def body(self, data: bytes) -> None:
        """A piece of its body is here."""
        self.call.tap(data)
        if self._answer is not None:
            self._answer.add(data)
        else:
            self._go_on(data if self._filter is None else self._filter.passed(data))

    def _go_on(self, data: bytes) -> None:
        if not data:
            return
        if self._chunked:
            self._out += (b"%x\r\n" % len(data), data, b"\r\n")
        else:
            self._out.append(data)

    def flush(self) -> None:
        """All that arrived at once has been told."""
        if self._out:
            self.client.write(b"".join(self._out))
            self._out = []

    def ended(self) -> None:
        """The answer is whole. The connection may be used again."""
        if self._filter is not None:
            self._go_on(self._filter.rest())
        if self._answer is not None:
            bodiless = self.request.method == b"HEAD"
            whole = self._answer.without(self.proxy.withheld, bodiless=bodiless)
            if whole.status != self.call.status:
                self.call.status, self.call.error = whole.status, UNREAD
            self._begin(whole.status, whole.reason, whole.lines, sized=True)
            self._out.append(bytes(whole.body))
        elif self._chunked:
            self._out.append(b"0\r\n\r\n")
        self._finish()
        self.flush()
        self.client.finished(self.request)

    def failed(self, why: str, *, untouched: bool) -> None:
        """The connection broke. `untouched`: it had been kept open, and closed in good order
        before anything of an answer came. The request may have been read all the same."""
        self._connection = None
        if self._over:
            return
        if self.begun:
            self._break_off(why)
        elif untouched and self._tried == 1 and not self._streaming and self.request.repeatable:
            self._send()
        else:
            self._refuse(502, f"{self.upstream}: {why}")

    def hold(self, paused: bool) -> None:
        """The provider takes no more of the request for the moment, or does so again."""
        self.client.hold(paused)

    # what the client does:

    def slow(self, paused: bool) -> None:
        """The client takes no more for the moment, or does so again."""
        pause(None if self._connection is None else self._connection.transport, paused)

    def abandoned(self) -> None:
        """The client is gone: the provider need not go on."""
        if self._over:
            return
        self.call.status = VANISHED
        self._leave()
        self._finish()

    def _leave(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None:
            self._connection.leave()

    def cut_short(self) -> None:
        """The proxy ends before the answer has: that is not the client's doing."""
        self._end_early(503, ENDING)

    def _end_early(self, status: int, why: str) -> None:
        if self._over:
            return
        self._leave()
        if self.begun:
            self._break_off(why)
        else:
            self.request.keep_alive = False
            self._refuse(status, why)

    def _break_off(self, why: str) -> None:
        """What was begun of an answer cannot be taken back: it breaks off here too."""
        self.flush()
        self.call.status, self.call.error = CUT, why
        self._finish()
        self.client.cut()

    def _fail(self) -> None:
        """Tells of an exception that nobody else would see; the client would get no answer."""
        path = self.proxy.pattern.sub(REDACTED, self.request.path)
        log.exception("a request for %s failed", path)
        self._refuse(500, FAILED)

    def _refuse(self, status: int, message: str, after: float | None = None) -> None:
        self.call.status, self.call.error = status, message
        keep = self.request.keep_alive and not self._streaming
        self.request.keep_alive = keep
        self._finish()
        answer = own_answer(status, error_body(message), closing=not keep, after=after)
        self.client.write(answer)
        self.client.finished(self.request)

    def _finish(self) -> None:
        if self._over:
            return
        self._over = True
        self._connection = None
        self.proxy.open -= 1
        self.call.ended = perf_counter()
        self.proxy.record(self.call)


def packed(body: bytes, encoding: bytes) -> bytes:
    """Returns a body as it is sent under that Content-Encoding."""
    return gzip.compress(body, 1) if encoding == b"gzip" else body


def unpacked(body: bytes, encoding: bytes, most: int) -> bytes:
    """Returns a body as it was before it was packed. Raises BadRequest."""
    if encoding == b"identity":
        return body
    if encoding != b"gzip":
        name = encoding.decode("latin-1")
        raise BadRequest(415, f"a library cannot be put into a body packed as {name}")
    try:
        unpacker = zlib.decompressobj(wbits=31)
        plain = unpacker.decompress(body, most + 1)
    except zlib.error as error:
        raise BadRequest(400, f"the body is not gzip: {error}") from None
    if len(plain) > most or not unpacker.eof or unpacker.unused_data:
        raise BadRequest(413 if len(plain) > most else 400, "the packed body is too long or broken")
    return plain
