"""The faults that an endpoint may have, and scripts that have them."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

from scripted import Reply, completion, stage

Script = Callable[[dict[str, Any]], str | Reply]
Fault = Callable[[], Reply]


def _date() -> Reply:
    """Retry-After as an HTTP date, which has whole seconds: now."""
    return Reply(b"", 429, {"retry-after": format_datetime(datetime.now(UTC), usegmt=True)})


def _wrong_types() -> Reply:
    body = completion("x")
    body["choices"] = [{"message": {"role": "assistant", "content": {"text": [1]}}}]
    return Reply(body)


TRANSIENT: Mapping[str, Fault] = {
    "429": lambda: Reply({"error": {"message": "Slow down"}}, 429),
    "429, Retry-After in seconds": lambda: Reply(b"", 429, {"retry-after": "0.05"}),
    "429, Retry-After as a date": _date,
    "429, retry-after-ms": lambda: Reply(b"", 429, {"retry-after-ms": "30"}),
    "500": lambda: Reply({"error": {"message": "Oops"}}, 500),
    "502": lambda: Reply(b"<html>Bad gateway</html>", 502),
    "503": lambda: Reply(b"", 503),
    "503, Retry-After in seconds": lambda: Reply(b"", 503, {"retry-after": "0.05"}),
    "dropped": lambda: Reply(close=True),
    "cut in the middle": lambda: Reply(completion("x" * 2000), cut=True),
    "stalled": lambda: Reply(stall=1.5, close=True),
    "truncated JSON": lambda: Reply(json.dumps(completion("x")).encode()[:-20]),
    "invalid JSON": lambda: Reply(b"<html>fine</html>"),
    "nothing": lambda: Reply(b""),
    "empty choices": lambda: Reply({**completion("x"), "choices": []}),
    "wrong types": _wrong_types,
    "a list": lambda: Reply(b"[1, 2]"),
}
"""What passes: the same request is answered when it is made again."""


def refusal() -> Reply:
    """A model that will not answer."""
    body = completion("")
    body["choices"][0]["message"] = {"role": "assistant", "content": None, "refusal": "I cannot."}
    return Reply(body)


LASTING: Mapping[str, Fault] = {
    "finish_reason length": lambda: Reply(completion("So we beg", finish_reason="length")),
    "a refusal": refusal,
    "10 MB": lambda: Reply(completion("0123456789" * 1_000_000)),
    "empty content": lambda: Reply(completion("")),
    "400": lambda: Reply({"error": {"message": "The content is not allowed"}}, 400),
}
"""What does not pass: these are answers, or refusals of this very request."""


class Storm:
    """A script at a faulty endpoint: a share of the requests meets faults before it is answered.

    Which ones follows from the request alone, at most two in a row (one stall, which lasts).
    `answered` counts real answers by request, `met` the faults by kind.
    """

    def __init__(
        self, script: Script, share: float, faults: Mapping[str, Fault] = TRANSIENT
    ) -> None:
        self.answered: Counter[str] = Counter()
        self.met: Counter[str] = Counter()
        self.stages: Counter[str] = Counter()
        self._script, self._share, self._faults = script, share, faults
        self._tries: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __call__(self, request: dict[str, Any]) -> str | Reply:
        name = json.dumps(request, sort_keys=True)
        with self._lock:
            attempt = self._tries[name]
            self._tries[name] += 1
        chance = random.Random(name)
        kinds = [chance.choice(list(self._faults)) for _ in range(2)]
        if kinds == ["stalled", "stalled"]:
            kinds = ["stalled"]
        kinds = kinds[: (chance.random() < self._share) + (chance.random() < self._share)]
        if attempt < len(kinds):
            with self._lock:
                self.met[kinds[attempt]] += 1
            return self._faults[kinds[attempt]]()
        with self._lock:
            self.answered[name] += 1
            self.stages[stage(request)] += 1
        return self._script(request)
