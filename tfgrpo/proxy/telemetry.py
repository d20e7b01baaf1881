"""What other tools read of calls: OpenTelemetry, Prometheus at `/metrics`, a file of JSON lines.

To OpenTelemetry go a span for each call and an event for each feedback, as OTLP over HTTP. The
names are those of the GenAI conventions (all still "Development", schema gen-ai-dev/1.42), and
stand here alone. The library is the prompt:
`gen_ai.prompt.name` is its name and `gen_ai.prompt.version` the digest of its version, valid in
every clone. Spans carry no words. They are sent as JSON, which every collector takes, from the
process that records calls: no SDK is needed, and a collector that is slow or gone delays no call.
What could not be sent is dropped, on the log once.

What Prometheus reads are sums that grow with every batch of calls. They lie in the record of
traffic, beside the calls, and are added to in the same transaction. So every worker answers for all
of them, and they outlive restarts and the deletion of old calls. What callers choose (a model's
name, a path, a revision) is a label only as long as there are few: after that it is `other`.
"""

from __future__ import annotations

import json
import os
import queue
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeAlias

from tfgrpo.production.webhook import post_json
from tfgrpo.proxy.withheld_words import clean_feedback
from tfgrpo.rendering.request_placement import BEDROCK, GOOGLE, api_of, place_of, route_of
from tfgrpo.store.activity.traffic import (
    CallRecord,
    Feedback,
    Traffic,
    checked_feedback,
)
from tfgrpo.store.activity.traffic import place_of as place_on_scale
from tfgrpo.store.errors import SettingsError
from tfgrpo.store.records import REDACTED, in_utc
from tfgrpo.terminal_safe import complain

if TYPE_CHECKING:
    from tfgrpo.proxy.recorded_call import Call
    from tfgrpo.proxy.withheld_words import Finder

SCHEMA = "https://opentelemetry.io/schemas/gen-ai-dev/1.42"
SERVICE = "service.name"
OPERATION = "gen_ai.operation.name"
REQUEST_MODEL = "gen_ai.request.model"
PROMPT_VERSION = "gen_ai.prompt.version"
ERROR = "error.type"
CALL = "tfgrpo.call.id"
ARM = "tfgrpo.arm"
EVALUATION = "gen_ai.evaluation.result"
SCORE = "gen_ai.evaluation.score.value"
SCORE_LABEL = "gen_ai.evaluation.score.label"
EXPLANATION = "gen_ai.evaluation.explanation"
WAITING, LEAVE = 64, 6.0
"""Messages that wait for a collector at most, and seconds that it has for them at the end."""
CLIENT, FAILED = 3, 2
"""A span's kind and its status, by OTLP's numbers."""
OPERATIONS = {
    **dict.fromkeys(("/messages", "/chat/completions", "/responses"), "chat"),
    **dict.fromkeys(("/converse", "/converse-stream"), "chat"),
    **dict.fromkeys((":generateContent", ":streamGenerateContent"), "generate_content"),
}
PROVIDERS = {GOOGLE: "gcp.gemini", BEDROCK: "aws.bedrock"}
CALLS = "tfgrpo_calls_total"
TOKENS = "tfgrpo_tokens_total"
CALL_SECONDS = "tfgrpo_call_duration_seconds"
ADDED_SECONDS = "tfgrpo_proxy_added_seconds"
SCORES = "tfgrpo_feedback_score"
LOST = "tfgrpo_calls_lost_total"
UNDER_WAY = "tfgrpo_open_requests"
STALE = "tfgrpo_library_stale"
PASSED = "tfgrpo_requests_without_library"
HELP = {
    CALLS: ("counter", "Calls that were answered, by library, version, model, route and status."),
    TOKENS: ("counter", "Tokens by the providers' count; cached ones are among the input."),
    CALL_SECONDS: ("histogram", "Seconds from a whole request to the last byte of its answer."),
    ADDED_SECONDS: ("histogram", "Seconds that a request waited in the proxy."),
    SCORES: ("summary", "Scores of feedback from 0 to 1, also of what was taken back since."),
    LOST: ("counter", "Calls that were lost with workers that were killed."),
    UNDER_WAY: ("gauge", "Requests under way in the worker that answers this."),
    PASSED: ("gauge", "Requests that looked like chats, on paths that get no library."),
    STALE: ("gauge", "1 while a library cannot be read and its last version goes on."),
}
BUCKETS = {
    CALL_SECONDS: (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0),
    ADDED_SECONDS: (0.0001, 0.0002, 0.0004, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0),
}
"""Upper bounds of histograms, in seconds."""
TOKEN_FIELDS = {"input": "prompt_tokens", "cached": "cached_tokens", "output": "completion_tokens"}
MOST_LABELS = 100
"""Values of one label that callers choose."""
Sums: TypeAlias = dict[tuple[str, str], float]
"""(name, labels as JSON) → what is added."""
MODE = os.O_WRONLY | os.O_CREAT | os.O_APPEND
STDERR = 2


class Telemetry:
    """Where spans and metrics are sent. `warn` is called with what is for the log."""

    def __init__(self, endpoint: str, warn: Callable[[str], object]) -> None:
        self._warn = warn
        self._endpoint = endpoint.rstrip("/")
        resource = {SERVICE: "tfgrpo-proxy", **_pairs("OTEL_RESOURCE_ATTRIBUTES")}
        resource[SERVICE] = os.environ.get("OTEL_SERVICE_NAME") or resource[SERVICE]
        self._resource = {"attributes": _attributes(resource)}
        self._trouble = False
        self._outbox: queue.Queue[tuple[str, bytes] | None] = queue.Queue(WAITING)
        self._thread: Thread | None = None

    @classmethod
    def of_environment(cls, warn: Callable[[str], object]) -> Telemetry | None:
        """Returns what OpenTelemetry's own variables say; None where they name no endpoint."""
        endpoint = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
        return cls(endpoint, warn) if endpoint else None

    def send_calls(self, calls: Iterable[CallRecord]) -> None:
        """Sends a span for each call, but where the caller's own span is not kept: its trace would
        be torn."""
        spans = [span(call) for call in calls if call.trace is None or int(call.trace[-2:], 16) & 1]
        if spans:
            self._send("traces", "Spans", {"spans": spans})

    def send_feedback(self, feedback: Feedback, call: CallRecord) -> None:
        """Sends an event for feedback, in the trace of its call."""
        attributes = {
            "gen_ai.evaluation.name": "feedback",
            SCORE: feedback.score,
            SCORE_LABEL: feedback.label,
            EXPLANATION: feedback.comment,
            CALL: feedback.call,
        }
        event = {
            **_ids(call),
            "timeUnixNano": str(feedback.time * 1000),
            "eventName": EVALUATION,
            "attributes": _attributes(attributes),
        }
        self._send("logs", "Logs", {"logRecords": [event]})

    def close(self) -> None:
        """Gives what waits a moment to be sent."""
        if self._thread is not None:
            with suppress(queue.Full):
                self._outbox.put_nowait(None)
            self._thread.join(LEAVE)

    def _send(self, path: str, kind: str, records: Mapping[str, Any]) -> None:
        """Has a message sent by a thread, for which nobody waits; where many wait already, it is
        dropped."""
        scope = {"scope": {"name": "tfgrpo.proxy"}, "schemaUrl": SCHEMA, **records}
        resource = {"resource": self._resource, f"scope{kind}": [scope]}
        if self._thread is None:
            self._thread = Thread(target=self._work, daemon=True)
            self._thread.start()
        try:
            self._outbox.put_nowait((path, json.dumps({f"resource{kind}": [resource]}).encode()))
        except queue.Full:
            self._complain("the collector is too slow")

    def _work(self) -> None:
        headers = _pairs("OTEL_EXPORTER_OTLP_HEADERS")
        while (message := self._outbox.get()) is not None:
            path, body = message
            why = post_json(f"{self._endpoint}/v1/{path}", body, headers)
            if why is not None:
                self._complain(f"{why} (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_HEADERS)")
            else:
                self._trouble = False

    def _complain(self, why: object) -> None:
        if not self._trouble:
            self._warn(f"telemetry is not sent: {why}")
        self._trouble = True


def _pairs(variable: str) -> dict[str, str]:
    """Returns what a variable of OpenTelemetry's names, `key=value,…`, percent-encoded."""
    from urllib.parse import unquote

    pairs = (pair.partition("=") for pair in os.environ.get(variable, "").split(","))
    return {
        unquote(name).strip(): unquote(value).strip() for name, equals, value in pairs if equals
    }


def span(call: CallRecord) -> dict[str, Any]:
    """Returns the span of a call, as OTLP's JSON has it."""
    common, failed = _common(call), _failed(call)
    operation = common[OPERATION]
    attributes: dict[str, object] = {
        **common,
        "gen_ai.usage.input_tokens": call.prompt_tokens,
        "gen_ai.usage.cache_read.input_tokens": call.cached_tokens,
        "gen_ai.usage.output_tokens": call.completion_tokens,
        "http.response.status_code": call.status,
        CALL: call.id,
        "tfgrpo.version": call.version,
        "tfgrpo.subject": call.subject,
        ARM: call.arm,
        "tfgrpo.added_ms": call.added / 1000,
        "tfgrpo.key": call.key,
        **{f"tfgrpo.tag.{tag}": value for tag, value in json.loads(call.tags or "{}").items()},
        ERROR: str(call.status) if failed else None,
    }
    name = call.route if operation is None else " ".join(filter(None, (operation, call.model)))
    return {
        **_ids(call),
        **({"parentSpanId": call.trace.split("-")[1]} if call.trace else {}),
        "name": name,
        "kind": CLIENT,
        "startTimeUnixNano": str(call.time * 1000),
        "endTimeUnixNano": str((call.time + call.latency) * 1000),
        "attributes": _attributes(attributes),
        "status": {"code": FAILED} if failed else {},
    }


def _common(call: CallRecord) -> dict[str, str | None]:
    """What spans and metrics of a call are told apart by."""
    api = api_of(call.route)
    return {
        OPERATION: OPERATIONS.get(route_of(call.route).removeprefix("/v1")),
        "gen_ai.provider.name": PROVIDERS.get(api, api),
        REQUEST_MODEL: call.model,
        "gen_ai.prompt.name": call.library,
        PROMPT_VERSION: call.digest,
    }


def _failed(call: CallRecord) -> bool:
    return call.status >= 400 or not call.status


def _ids(call: CallRecord) -> dict[str, str]:
    """The first 16 of the 32 digits of hex of a call's id are its span, and all of them its trace
    unless the caller named one."""
    digits = call.id.removeprefix("call-")
    trace = call.trace.partition("-")[0] if call.trace else digits
    return {"traceId": trace, "spanId": digits[:16]}


def _attributes(values: Mapping[str, object]) -> list[dict[str, Any]]:
    return [
        {"key": key, "value": _value(value)} for key, value in values.items() if value is not None
    ]


def _value(value: object) -> dict[str, object]:
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": str(value)}


class Labels:
    """Values of labels that callers choose, a bounded number of them."""

    def __init__(self, totals: Iterable[tuple[str, str]] = ()) -> None:
        """Begins with the models and routes of sums on record: anybody can name others. A new
        version, of which a store has no more than somebody made, is to be seen as one."""
        self._known: dict[str, set[str]] = defaultdict(set)
        for _, labels in totals:
            pairs = json.loads(labels)
            for label in pairs.keys() & {"model", "route"}:
                self._known[label].add(pairs[label])

    def value(self, label: str, value: str | None) -> str:
        """Returns the value to count under."""
        text = (value or "")[:100]
        known = self._known[label]
        if text not in known:
            if len(known) >= MOST_LABELS:
                return "other"
            known.add(text)
        return text


def sums_of(calls: Iterable[CallRecord], labels: Labels) -> Sums:
    """Returns what a batch of calls adds."""
    sums: Sums = defaultdict(float)
    alike: dict[tuple[str | None, ...], list[CallRecord]] = defaultdict(list)
    for call in calls:
        alike[call.library, call.version, call.model, call.route, str(call.status)].append(call)
    seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
    for (library, version, model, route, status), batch in alike.items():
        of_version = {
            "library": labels.value("library", library),
            "version": labels.value("version", version),
        }
        of_model = {**of_version, "model": labels.value("model", model)}
        shown = labels.value("route", route if place_of(b"POST", route or "") else "other")
        sums[CALLS, json.dumps({**of_model, "route": shown, "status": status})] += len(batch)
        for kind, field in TOKEN_FIELDS.items():
            if tokens := sum(getattr(call, field) or 0 for call in batch):
                sums[TOKENS, json.dumps({**of_model, "type": kind})] += tokens
        key = json.dumps(of_version)
        seconds[CALL_SECONDS, key] += [call.latency / 1e6 for call in batch]
        seconds[ADDED_SECONDS, key] += [call.added / 1e6 for call in batch]
    for (name, key), durations in seconds.items():
        durations.sort()
        of_bounds = {f"{one:g}": bisect_right(durations, one) for one in BUCKETS[name]}
        for bound, count in {**of_bounds, "+Inf": len(durations)}.items():
            sums[f"{name}_bucket", json.dumps({**json.loads(key), "le": bound})] = count
        sums[f"{name}_sum", key] = sum(durations)
        sums[f"{name}_count", key] = len(durations)
    return sums


def take_feedback(
    traffic: Traffic,
    call: CallRecord,
    given: Mapping[str, object],
    author: str,
    pattern: Finder,
) -> Feedback:
    """Puts feedback as it was sent on record, less what a pattern finds in it; returns it. Raises
    FeedbackRefused or StoreError."""
    now, scales = time.time_ns() // 1000, traffic.scales()
    label = given.get("label")
    if isinstance(label, str):  # the scale is that of the label on record
        given = {**given, "label": pattern.sub(REDACTED, label)}
    checked = checked_feedback(call.id, given, author=author, time=now, scales=scales)
    feedback = clean_feedback(checked, pattern)
    record_feedback(traffic, feedback, call)
    return feedback


def record_feedback(traffic: Traffic, feedback: Feedback, call: CallRecord) -> None:
    """Puts feedback on a call on record, and its score from 0 to 1 into the sums. Raises
    StoreError."""
    sums: Sums = {}
    score = place_on_scale(feedback, traffic.scales())
    if score is not None:
        key = json.dumps({"library": call.library or "", "version": call.version or ""})
        sums = {(f"{SCORES}_sum", key): score, (f"{SCORES}_count", key): 1.0}
    traffic.add_feedback(feedback, sums)


def exposition(totals: Sums, gauges: Sums) -> str:
    """Returns everything in Prometheus's text format (version 0.0.4)."""
    lines: list[str] = []
    for name, (kind, help) in HELP.items():
        lines += [f"# HELP {name} {help}", f"# TYPE {name} {kind}"]
        samples = [
            (key, value)
            for key, value in (totals | gauges).items()
            if key[0] == name or (kind != "counter" and key[0].startswith(f"{name}_"))
        ]
        for (series, labels), value in sorted(samples, key=_order):
            pairs = ",".join(f'{k}="{_escaped(v)}"' for k, v in json.loads(labels).items())
            labelled = f"{series}{{{pairs}}}" if pairs else series
            lines.append(f"{labelled} {int(value) if float(value).is_integer() else value!r}")
    return "\n".join(lines) + "\n"


def _order(item: tuple[tuple[str, str], float]) -> tuple[str, str, float]:
    (series, labels), _ = item
    pairs = json.loads(labels)
    bound = float(pairs.pop("le", "0").replace("+Inf", "inf"))
    return series, json.dumps(pairs), bound


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class AccessLog:
    """A file that gets a line of JSON for each request, or standard error for `-`. Several workers
    write to one: each line is one write."""

    def __init__(self, path: str, pattern: Finder) -> None:
        """`pattern` is what is taken out of paths, models and errors."""
        self._path = path
        self._pattern, self._of_names = pattern, pattern.of_names()
        self._file = STDERR
        self._trouble = False
        self.reopen()

    def reopen(self) -> None:
        """Opens the file anew, after somebody has moved it away. Raises SettingsError."""
        if self._path == "-":
            return
        try:
            opened = os.open(self._path, MODE, 0o600)
        except OSError as error:
            raise SettingsError(
                f"access_log {self._path}: {error.strerror}", hint="a file that can be written"
            ) from None
        self.close()
        self._file = opened

    def close(self) -> None:
        """Closes the file."""
        if self._file != STDERR:
            os.close(self._file)
        self._file = STDERR

    def add(self, call: Call) -> None:
        """Writes the line of a call that is over. A disk that is full ends no request: it is said
        once, until lines can be written again."""
        chosen = call.chosen
        line = {
            "time": in_utc(call.time).isoformat(timespec="milliseconds"),
            "call": call.id,
            "method": call.request.method.decode("latin-1"),
            "path": self._pattern.sub(REDACTED, call.path),
            "status": call.status,
            "ms": round(1000 * (call.ended - call.began), 1),
            "library": None if chosen is None else chosen.name,
            "version": None if chosen is None else chosen.version,
            "arm": None if chosen is None else chosen.arm,
            "model": call.model and self._of_names.sub(REDACTED, call.model),
            "error": call.error and self._pattern.sub(REDACTED, call.error),
        }
        try:
            os.write(self._file, json.dumps(line).encode() + b"\n")
        except OSError as error:
            if not self._trouble:
                complain(f"the access log cannot be written: {error.strerror}")
            self._trouble = True
        else:
            self._trouble = False
