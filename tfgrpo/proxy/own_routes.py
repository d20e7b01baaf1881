"""What the proxy answers itself: how it is, `/metrics`, and `/feedback` on a call.

How it is are four answers. `/livez`: its loop goes round. `/readyz`: it takes requests, which it
does not while it ends. `/healthz`: the same, with a report on each library. `/stale`: 503 while a
library that is served cannot be read, or the calls of one cannot be recorded. Requests are answered
all the same then, so what takes replicas out must not look there.

Feedback comes from whoever made the call: with the same key, which the record knows as a keyed
digest, and on a proxy beyond this machine with its token too. Anyone else is refused, as for a
call that there is not.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from tfgrpo.proxy import telemetry
from tfgrpo.proxy.exchange import FAILED
from tfgrpo.proxy.forwarded_headers import sent_key
from tfgrpo.proxy.http_message import BadRequest, Request, error_body, own_answer
from tfgrpo.proxy.recorder import Recorder
from tfgrpo.proxy.telemetry import LOST, PASSED, STALE, UNDER_WAY, exposition
from tfgrpo.store.activity.traffic import FeedbackRefused, UnknownCall, keyed
from tfgrpo.store.errors import StoreError, TfgrpoError
from tfgrpo.store.opening import open_traffic

if TYPE_CHECKING:
    from tfgrpo.proxy.client_connection import ClientConnection
    from tfgrpo.proxy.server import Proxy

log = logging.getLogger("tfgrpo.proxy")
OPEN = ("/healthz", "/livez", "/readyz", "/stale")
"""What is answered without a token."""
LOOKS, PAUSE = 10, 0.2
"""How often a call that feedback is about is looked for, and the seconds between."""
OWN = {**dict.fromkeys((*OPEN, "/metrics"), (b"GET", b"HEAD")), "/feedback": (b"POST",)}
"""The paths that are answered here, and by which methods."""


class OwnExchange:
    """A request for the proxy itself."""

    begun = False

    def __init__(self, proxy: Proxy, client: ClientConnection, request: Request) -> None:
        self._proxy = proxy
        self._client = client
        self.request = request
        self._task: asyncio.Task[None] | None = None

    def start(self, body: bytes | None) -> None:
        """Answers as soon as that can be done."""
        self._task = asyncio.get_running_loop().create_task(self._answer(body or b""))

    def slow(self, paused: bool) -> None:
        """An answer of ours is too short to wait for a slow client."""

    def abandoned(self) -> None:
        """The client is gone."""
        if self._task is not None:
            self._task.cancel()

    async def _answer(self, body: bytes) -> None:
        request, proxy = self.request, self._proxy
        kind, text = "application/json", ""
        report: dict[str, Any] | None
        try:
            if request.method not in OWN[request.path]:
                raise BadRequest(405, f"{request.path} takes {OWN[request.path][0].decode()}")
            if request.path == "/livez":
                report, status = {"status": "alive"}, 200
            elif request.path == "/readyz":
                report = {"status": "ending" if proxy.stopping else "ready"}
                status = 503 if proxy.stopping else 200
            elif request.path in OPEN:
                report = await asyncio.to_thread(health, proxy)
                wrong = report["status"] != "ok" if request.path == "/stale" else proxy.stopping
                status = 503 if wrong else 200
            elif request.path == "/metrics":
                text = await asyncio.to_thread(metrics, proxy)
                report, status, kind = None, 200, "text/plain; version=0.0.4"
            else:
                report, status = await feedback(proxy, request, body), 201
            answer = text.encode() if report is None else json.dumps(report).encode() + b"\n"
        except BadRequest as refusal:
            status, answer = refusal.status, error_body(str(refusal))
        except UnknownCall as error:
            status, answer = 404, error_body(str(error))
        except FeedbackRefused as error:
            status, answer = 400, error_body(f"{error}: {error.hint}")
        except (StoreError, OSError) as error:
            status, answer = 503, error_body(str(error))
        except Exception:  # nobody else would see it, and the client would wait for ever
            log.exception("a request for %s failed", request.path)
            status, answer = 500, error_body(FAILED)
        if request.method == b"HEAD":
            request.keep_alive, answer = False, b""
        self._client.write(own_answer(status, answer, kind=kind, closing=not request.keep_alive))
        self._client.finished(request)


def health(proxy: Proxy) -> dict[str, Any]:
    """How a proxy is: each library with its version, read anew, and what is wrong. `status` is
    `ok`, `stale` while a library cannot be read and its last version goes on, or else `unrecorded`
    while the calls of one cannot be recorded, though they were to be."""
    libraries: dict[str, dict[str, object]] = {}
    served = proxy.chooser.served
    for name, source in served.items():
        trouble = source.live.check()
        library = source.live.library
        libraries[name] = {
            "version": library.version.name,
            "digest": library.version.digest.hex()[:16],
            "experiences": len(library),
            "trouble": trouble,
            "unrecorded": proxy.why_unrecorded(name),
        }
    proxy.tell_troubles()
    stale = any(library["trouble"] for library in libraries.values())
    unrecorded = any(library["unrecorded"] for library in libraries.values())
    status = "stale" if stale else "unrecorded" if unrecorded else "ok"
    return {
        "status": status,
        "libraries": libraries,
        "open": proxy.open,
        "calls": proxy.calls,
        "without_library": dict(proxy.passed),
    }


def metrics(proxy: Proxy) -> str:
    """What Prometheus reads: the sums of all workers, and this one's gauges. Raises StoreError."""
    totals: dict[tuple[str, str], float] = {}
    for path in sorted({recorder.path for recorder in list(proxy.recorders.values())}):
        with closing(open_traffic(path)) as traffic:
            for key, value in {**traffic.totals(), (LOST, "{}"): traffic.lost()}.items():
                totals[key] = totals.get(key, 0.0) + value
    gauges: dict[tuple[str, str], float] = {(UNDER_WAY, "{}"): proxy.open}
    for path, count in list(proxy.passed.items()):
        gauges[PASSED, json.dumps({"path": path})] = count
    for name, source in proxy.chooser.served.items():
        gauges[STALE, json.dumps({"library": name})] = float(bool(source.live.trouble))
    return exposition(totals, gauges)


async def feedback(proxy: Proxy, request: Request, body: bytes) -> dict[str, Any]:
    """Takes feedback. The call may have passed another worker a moment ago, which has yet to write
    it, so it is looked for more than once. Raises what `take_feedback` does."""
    recorders = list(set(proxy.recorders.values()))
    for _ in range(LOOKS - 1):
        with suppress(UnknownCall):
            return await asyncio.to_thread(take_feedback, recorders, request, body)
        await asyncio.sleep(PAUSE)  # here and in no thread: those that wait hold up nobody
    return await asyncio.to_thread(take_feedback, recorders, request, body)


def take_feedback(recorders: list[Recorder], request: Request, body: bytes) -> dict[str, Any]:
    """Records feedback that was sent, and returns the call's id. Raises BadRequest, UnknownCall,
    FeedbackRefused or StoreError."""
    from tfgrpo.domains.json_reading import RepeatedKey, parse_json  # 40 ms, at no start

    try:
        given = parse_json(body.decode())
    except RepeatedKey as error:
        raise BadRequest(400, f"in the body, {error}") from None
    except ValueError:
        given = None
    if not isinstance(given, dict) or not isinstance(given.get("call"), str):
        raise BadRequest(400, 'send JSON such as {"call": "call-…", "score": 1}')
    unknown: TfgrpoError = UnknownCall("no calls are recorded")
    for recorder in recorders:
        recorder.flush()  # it may be about a call of a moment ago
        traffic = open_traffic(recorder.path)
        try:
            call = traffic.call(given["call"])
            if call.id != given["call"]:
                raise UnknownCall(f"no call {given['call']!r} is on record")
            key = sent_key(request.index)
            sender = keyed(traffic.secret(), key) if key else None
            if not hmac.compare_digest(sender or b"", call.caller or b""):
                raise BadRequest(403, "feedback is sent with the key that the call was made with")
            author = "caller" if sender is None else f"caller {sender.hex()[:8]}"
            feedback = telemetry.take_feedback(traffic, call, given, author, recorder.pattern)
        except UnknownCall as error:
            unknown = error
        else:
            if recorder.telemetry is not None:
                recorder.telemetry.send_feedback(feedback, call)
            return {"call": call.id}
        finally:
            traffic.close()
    raise unknown
