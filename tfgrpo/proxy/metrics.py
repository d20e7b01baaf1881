"""What Prometheus reads at `/metrics`: sums that grow with every batch of calls.

They lie in the record of traffic, beside the calls, and are added to in the same transaction. So
every worker answers for all of them, and they outlive restarts and the deletion of old calls.
What callers choose (a model's name, a path, a revision) is a label only as long as there are few:
after that it is `other`.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from tfgrpo.rendering.request_placement import place_of
from tfgrpo.store.activity.traffic import CallRecord, Feedback

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
    SCORES: ("summary", "Scores of feedback, by library and version."),
    LOST: ("counter", "Calls that were lost with workers that were killed."),
    UNDER_WAY: ("gauge", "Requests under way in the worker that answers this."),
    PASSED: ("gauge", "Requests that looked like chats, on paths that get no library."),
    STALE: ("gauge", "1 while a library cannot be read and its last version goes on."),
}
CALL_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
ADDED_BUCKETS = (0.0001, 0.0002, 0.0004, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0)
"""Upper bounds of histograms, in seconds."""


MOST_LABELS = 100
"""Values of one label that callers choose."""
Sums: TypeAlias = dict[tuple[str, str], float]
"""(name, labels as JSON) → what is added."""


class Labels:
    """Values of labels that callers choose, a bounded number of them."""

    def __init__(self) -> None:
        self._known: dict[str, set[str]] = defaultdict(set)

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
    groups: dict[tuple[str | None, str | None, str | None, str, int], list[CallRecord]] = {}
    for call in calls:
        group = (call.library, call.version, call.model, call.route, call.status)
        groups.setdefault(group, []).append(call)
    counts: Counter[tuple[str, str, str, str, str]] = Counter()
    tokens: Counter[tuple[str, str, str, str]] = Counter()
    seconds: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for group, alike in groups.items():
        library = labels.value("library", group[0])
        version = labels.value("version", group[1])
        model = labels.value("model", group[2])
        route = labels.value("route", group[3] if place_of(b"POST", group[3]) else "other")
        counts[library, version, model, route, str(group[4])] += len(alike)
        tokens[library, version, model, "input"] += sum(x.prompt_tokens or 0 for x in alike)
        tokens[library, version, model, "cached"] += sum(x.cached_tokens or 0 for x in alike)
        tokens[library, version, model, "output"] += sum(x.completion_tokens or 0 for x in alike)
        seconds[CALL_SECONDS, library, version] += [x.latency / 1e6 for x in alike]
        seconds[ADDED_SECONDS, library, version] += [x.added / 1e6 for x in alike]
    for values, number in counts.items():
        pairs = zip(("library", "version", "model", "route", "status"), values, strict=True)
        sums[CALLS, _key(dict(pairs))] = number
    for of_kind, number in tokens.items():
        pairs = zip(("library", "version", "model", "type"), of_kind, strict=True)
        if number:
            sums[TOKENS, _key(dict(pairs))] = number
    for (name, library, version), durations in seconds.items():
        buckets = CALL_BUCKETS if name == CALL_SECONDS else ADDED_BUCKETS
        _observe(sums, name, {"library": library, "version": version}, durations, buckets)
    return sums


def sums_of_feedback(feedback: Feedback, call: CallRecord) -> Sums:
    """Returns what feedback on a call adds."""
    if feedback.score is None:
        return {}
    key = _key({"library": call.library or "", "version": call.version or ""})
    return {
        (f"{SCORES}_sum", key): feedback.score,
        (f"{SCORES}_count", key): 1.0,
    }


def exposition(
    totals: Mapping[tuple[str, str], float], gauges: Mapping[tuple[str, str], float]
) -> str:
    """Returns everything in Prometheus's text format (version 0.0.4)."""
    lines: list[str] = []
    for name, (kind, help) in HELP.items():
        lines += [f"# HELP {name} {help}", f"# TYPE {name} {kind}"]
        samples = {
            key: value
            for source in (totals, gauges)
            for key, value in source.items()
            if key[0] == name or (kind != "counter" and key[0].startswith(f"{name}_"))
        }
        for (series, labels), value in sorted(samples.items(), key=_order):
            pairs = ",".join(f'{k}="{_escaped(v)}"' for k, v in json.loads(labels).items())
            lines.append(f"{series}{{{pairs}}} {value:g}" if pairs else f"{series} {value:g}")
    return "\n".join(lines) + "\n"


def _order(item: tuple[tuple[str, str], float]) -> tuple[str, str, float]:
    (series, labels), _ = item
    pairs = json.loads(labels)
    bound = float(pairs.pop("le", "0").replace("+Inf", "inf"))
    return series, json.dumps(pairs), bound


def _observe(
    sums: Sums, name: str, labels: Mapping[str, str], values: list[float], buckets: Sequence[float]
) -> None:
    values.sort()
    for bound in buckets:
        sums[f"{name}_bucket", _key({**labels, "le": f"{bound:g}"})] = bisect_right(values, bound)
    sums[f"{name}_bucket", _key({**labels, "le": "+Inf"})] = len(values)
    sums[f"{name}_sum", _key(labels)] = sum(values)
    sums[f"{name}_count", _key(labels)] = len(values)


def _key(labels: Mapping[str, str]) -> str:
    return json.dumps(labels)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
