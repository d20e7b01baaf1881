"""OpenTelemetry: a span for each call, an event for each feedback, and histograms of how long calls
took and of their tokens, as OTLP over HTTP.

The names are those of the GenAI conventions (all still "Development", schema gen-ai-dev/1.42); they
stand here and nowhere else. The library is the prompt: `gen_ai.prompt.name` is its name and
`gen_ai.prompt.version` the digest of its version, valid in every clone. Spans carry no words. They
are sent as JSON, which every collector takes, from the process that records calls: no SDK is
needed, and a collector that is slow or gone delays no call. What could not be sent is dropped, on
the log once.
"""

from __future__ import annotations

import json
import os
import queue
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from threading import Thread
from typing import Any

from tfgrpo.rendering.request_placement import BEDROCK, GOOGLE, api_of, route_of
from tfgrpo.store.activity.traffic import CallRecord, Feedback

SCHEMA = "https://opentelemetry.io/schemas/gen-ai-dev/1.42"
SERVICE = "service.name"
OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
PROMPT_NAME = "gen_ai.prompt.name"
PROMPT_VERSION = "gen_ai.prompt.version"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
STATUS = "http.response.status_code"
ERROR = "error.type"
CALL = "tfgrpo.call.id"
LABEL = "tfgrpo.version"
SUBJECT = "tfgrpo.subject"
ARM = "tfgrpo.arm"
ADDED = "tfgrpo.added_ms"
KEY = "tfgrpo.key"
TAG = "tfgrpo.tag."
"""What the names of a call's own tags begin with."""
EVALUATION = "gen_ai.evaluation.result"
EVALUATION_NAME = "gen_ai.evaluation.name"
SCORE = "gen_ai.evaluation.score.value"
SCORE_LABEL = "gen_ai.evaluation.score.label"
EXPLANATION = "gen_ai.evaluation.explanation"
DURATION = "gen_ai.client.operation.duration"
TOKEN_USAGE = "gen_ai.client.token.usage"
TOKEN_TYPE = "gen_ai.token.type"
METRICS = {
    DURATION: ("s", tuple(0.01 * 2**n for n in range(14))),
    TOKEN_USAGE: ("{token}", tuple(4.0**n for n in range(14))),
}
"""Units, and the upper bounds of buckets that the conventions advise."""

TIMEOUT = 5.0
WAITING, LEAVE = 64, 6.0
"""Messages that wait for a collector at most, and seconds that it has for them at the end."""
METRICS_PAUSE = 10.0
"""Seconds between two messages with metrics: each says what has been added since the last."""
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"
SERVICE_NAME = "OTEL_SERVICE_NAME"
RESOURCE = "OTEL_RESOURCE_ATTRIBUTES"
CLIENT, FAILED, DELTA = 3, 2, 1
"""A span's kind and its status, and sums since the last message, by OTLP's numbers."""
GENERATE, CHAT = "generate_content", "chat"
OPERATIONS = {
    **dict.fromkeys(("/messages", "/chat/completions", "/responses"), CHAT),
    **dict.fromkeys(("/converse", "/converse-stream"), CHAT),
    **dict.fromkeys((":generateContent", ":streamGenerateContent"), GENERATE),
}
PROVIDERS = {GOOGLE: "gcp.gemini", BEDROCK: "aws.bedrock"}


class Histogram:
    """Values in buckets: each counts those up to its bound, and the last all others."""

    __slots__ = ("bounds", "buckets", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Counts a value."""
        self.buckets[bisect_left(self.bounds, value)] += 1
        self.total += value


class Telemetry:
    """Where spans and metrics are sent. `warn` is called with what is for the log."""

    def __init__(
        self,
        endpoint: str,
        headers: Mapping[str, str],
        resource: Mapping[str, str],
        warn: Callable[[str], object],
    ) -> None:
        self._warn = warn
        self._endpoint = endpoint.rstrip("/")
        self._headers = dict(headers)
        self._resource = {"attributes": _attributes(resource)}
        self._trouble = False
        self._outbox: queue.Queue[tuple[str, bytes] | None] = queue.Queue(WAITING)
        self._thread: Thread | None = None
        self._histograms: dict[tuple[str, tuple[tuple[str, object], ...]], Histogram] = {}
        self._since = time.time_ns()
        self._metrics_at = time.monotonic() + METRICS_PAUSE

    @classmethod
    def of_environment(cls, warn: Callable[[str], object]) -> Telemetry | None:
        """Returns what OpenTelemetry's own variables say; None where they name no endpoint."""
        endpoint = os.environ.get(ENDPOINT)
        if not endpoint:
            return None
        resource = {SERVICE: "tfgrpo-proxy", **_pairs(RESOURCE)}
        if os.environ.get(SERVICE_NAME):
            resource[SERVICE] = os.environ[SERVICE_NAME]
        return cls(endpoint, _pairs(HEADERS), resource, warn)

    def send_calls(self, calls: Iterable[CallRecord]) -> None:
        """Sends a span for each call, and counts them in the metrics."""
        spans = []
        for call in calls:
            if _sampled(call):
                spans.append(span(call))
            self._count(call)
        if spans:
            self._send("/v1/traces", "resourceSpans", "scopeSpans", {"spans": spans})

    def _count(self, call: CallRecord) -> None:
        attributes = _common(call)
        failed = {ERROR: str(call.status)} if _failed(call) else {}
        self._observe(DURATION, {**attributes, **failed}, call.latency / 1e6)
        for kind, tokens in (("input", call.prompt_tokens), ("output", call.completion_tokens)):
            if tokens is not None:
                self._observe(TOKEN_USAGE, {**attributes, TOKEN_TYPE: kind}, tokens)

    def _observe(self, metric: str, attributes: Mapping[str, object], value: float) -> None:
        key = metric, tuple(attributes.items())
        histogram = self._histograms.get(key)
        if histogram is None:
            histogram = self._histograms[key] = Histogram(METRICS[metric][1])
        histogram.add(value)

    def send_metrics(self, *, now: bool = False) -> None:
        """Sends what was counted since the last time, where that is long enough ago, or `now`."""
        if not self._histograms or not (now or time.monotonic() >= self._metrics_at):
            return
        histograms, self._histograms = self._histograms, {}
        since, self._since = self._since, time.time_ns()
        self._metrics_at = time.monotonic() + METRICS_PAUSE
        # Counts are numbers and not strings of digits: receivers have to take both, and some drop a
        # histogram that has the latter.
        points: dict[str, list[dict[str, Any]]] = {}
        for (metric, attributes), histogram in histograms.items():
            points.setdefault(metric, []).append(
                {
                    "attributes": _attributes(dict(attributes)),
                    "startTimeUnixNano": str(since),
                    "timeUnixNano": str(self._since),
                    "count": sum(histogram.buckets),
                    "sum": histogram.total,
                    "bucketCounts": histogram.buckets,
                    "explicitBounds": list(histogram.bounds),
                }
            )
        metrics = [
            {
                "name": metric,
                "unit": METRICS[metric][0],
                "histogram": {"aggregationTemporality": DELTA, "dataPoints": of_metric},
            }
            for metric, of_metric in points.items()
        ]
        self._send("/v1/metrics", "resourceMetrics", "scopeMetrics", {"metrics": metrics})

    def send_feedback(self, feedback: Feedback, call: CallRecord) -> None:
        """Sends an event for feedback, in the trace of its call."""
        records = {"logRecords": [event(feedback, call)]}
        self._send("/v1/logs", "resourceLogs", "scopeLogs", records)

    def close(self) -> None:
        """Gives what waits a moment to be sent."""
        if self._thread is not None:
            with suppress(queue.Full):
                self._outbox.put_nowait(None)
            self._thread.join(LEAVE)

    def _send(self, path: str, resources: str, scopes: str, records: Mapping[str, Any]) -> None:
        """Has a message sent by a thread, for which nobody waits; where many wait already, it is
        dropped."""
        scope = {"scope": {"name": "tfgrpo.proxy"}, "schemaUrl": SCHEMA, **records}
        body = json.dumps({resources: [{"resource": self._resource, scopes: [scope]}]}).encode()
        if self._thread is None:
            self._thread = Thread(target=self._work, daemon=True)
            self._thread.start()
        try:
            self._outbox.put_nowait((path, body))
        except queue.Full:
            self._complain("the collector is too slow")

    def _work(self) -> None:
        from urllib.error import URLError
        from urllib.request import Request, urlopen

        headers = {**self._headers, "Content-Type": "application/json"}
        while (message := self._outbox.get()) is not None:
            path, body = message
            try:
                request = Request(self._endpoint + path, body, headers)
                with urlopen(request, timeout=TIMEOUT):
                    self._trouble = False
            except (URLError, OSError, ValueError) as error:
                self._complain(error)

    def _complain(self, why: object) -> None:
        if not self._trouble:
            self._warn(f"telemetry is not sent: {why}")
        self._trouble = True


def _pairs(variable: str) -> dict[str, str]:
    """Returns what a variable of OpenTelemetry's names, `key=value,…`, percent-encoded."""
    from urllib.parse import unquote

    pairs = (pair.partition("=") for pair in os.environ.get(variable, "").split(","))
    return {
        unquote(name.strip()): unquote(value.strip()) for name, equals, value in pairs if equals
    }


def span(call: CallRecord) -> dict[str, Any]:
    """Returns the span of a call, as OTLP's JSON has it."""
    common = _common(call)
    operation = common[OPERATION]
    attributes: dict[str, object] = {
        **common,
        INPUT_TOKENS: call.prompt_tokens,
        CACHED_TOKENS: call.cached_tokens,
        OUTPUT_TOKENS: call.completion_tokens,
        STATUS: call.status,
        CALL: call.id,
        LABEL: call.version,
        SUBJECT: call.subject,
        ARM: call.arm,
        ADDED: call.added / 1000,
        KEY: call.key,
        **{TAG + name: value for name, value in json.loads(call.tags or "{}").items()},
    }
    failed = _failed(call)
    if failed:
        attributes[ERROR] = str(call.status)
    name = call.route if operation is None else " ".join(filter(None, (operation, call.model)))
    return {
        **_ids(call),
        **_parent(call),
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
        PROVIDER: PROVIDERS.get(api, api),
        REQUEST_MODEL: call.model,
        PROMPT_NAME: call.library,
        PROMPT_VERSION: call.digest,
    }


def _failed(call: CallRecord) -> bool:
    return call.status >= 400 or not call.status


def event(feedback: Feedback, call: CallRecord) -> dict[str, Any]:
    """Returns the event of feedback, as OTLP's JSON has it."""
    attributes: dict[str, object] = {
        EVALUATION_NAME: "feedback",
        SCORE: feedback.score,
        SCORE_LABEL: feedback.label,
        EXPLANATION: feedback.comment,
        CALL: feedback.call,
    }
    return {
        **_ids(call),
        "timeUnixNano": str(feedback.time * 1000),
        "eventName": EVALUATION,
        "attributes": _attributes(attributes),
    }


def _ids(call: CallRecord) -> dict[str, str]:
    """The first 16 of the 32 digits of hex of a call's id are its span, and all of them its trace
    unless the caller named one."""
    digits = call.id.removeprefix("call-")
    trace = call.trace.partition("-")[0] if call.trace else digits
    return {"traceId": trace, "spanId": digits[:16]}


def _parent(call: CallRecord) -> dict[str, str]:
    return {"parentSpanId": call.trace.split("-")[1]} if call.trace else {}


def _sampled(call: CallRecord) -> bool:
    """Returns whether the caller's own span is kept, or it has none: its trace would be torn."""
    return call.trace is None or bool(int(call.trace[-2:], 16) & 1)


def _attributes(values: Mapping[str, object]) -> Sequence[dict[str, Any]]:
    return [
        {"key": key, "value": _value(value)} for key, value in values.items() if value is not None
    ]


def _value(value: object) -> dict[str, object]:
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    return {"stringValue": str(value)}
