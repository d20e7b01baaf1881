"""The names under which calls are measured: all of them, and nowhere else.

Prometheus's own rules for names (base units, `_total` for counters); the labels of a model and of
tokens follow OpenTelemetry's GenAI conventions in their short form.
"""

from __future__ import annotations

CALLS = "tfgrpo_calls_total"
TOKENS = "tfgrpo_tokens_total"
CALL_SECONDS = "tfgrpo_call_duration_seconds"
ADDED_SECONDS = "tfgrpo_proxy_added_seconds"
SCORES = "tfgrpo_feedback_score"
LOST = "tfgrpo_calls_lost_total"
OPEN = "tfgrpo_open_requests"
STALE = "tfgrpo_library_stale"
PASSED = "tfgrpo_requests_without_library"

HELP = {
    CALLS: ("counter", "Calls that were answered, by library, version, model, route and status."),
    TOKENS: ("counter", "Tokens by the providers' count; cached ones are among the input."),
    CALL_SECONDS: ("histogram", "Seconds from a whole request to the last byte of its answer."),
    ADDED_SECONDS: ("histogram", "Seconds that a request waited in the proxy."),
    SCORES: ("summary", "Scores of feedback, by library and version."),
    LOST: ("counter", "Calls that were lost with workers that were killed."),
    OPEN: ("gauge", "Requests under way in the worker that answers this."),
    PASSED: ("gauge", "Requests that looked like chats, on paths that get no library."),
    STALE: ("gauge", "1 while a library cannot be read and its last version goes on."),
}
CALL_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
ADDED_BUCKETS = (0.0001, 0.0002, 0.0004, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0)
"""Upper bounds of histograms, in seconds."""
