"""Nothing that an endpoint or a network does makes `fsck` call a store damaged."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from faults import LASTING, TRANSIENT, Fault
from scripted import Reply, ScriptedEndpoint, completion, opened_calls

from tfgrpo.model.endpoint import CallFailed, EndpointError, Request
from tfgrpo.store import Store
from tfgrpo.store.fsck import fsck

USAGES: Mapping[str, object] = {
    "no usage": None,
    "texts": {"prompt_tokens": "12", "completion_tokens": "3"},
    "negative": {"prompt_tokens": -5, "completion_tokens": -1},
    "fractions": {"prompt_tokens": 12.5, "completion_tokens": 3.25},
    "no numbers": {"prompt_tokens": float("nan"), "completion_tokens": float("inf")},
    "huge": {"prompt_tokens": 10**30, "completion_tokens": 2**63},
    "half": {"prompt_tokens": 12},
    "more cached than read": {
        "prompt_tokens": 12,
        "completion_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 500},
    },
    "thinking apart": {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 900},
    "a list": [12, 3],
}
"""What a server may say of the tokens, and how."""


def _with(usage: object, **message: object) -> dict[str, Any]:
    body = completion("ignored")
    body["usage"] = usage
    body["choices"][0]["message"] = {"role": "assistant", "content": "fine", **message}
    return body


def _kinds() -> dict[str, Fault]:
    """Every fault that passes or lasts, statuses, and answers, usable or not, with each usage."""
    kinds: dict[str, Fault] = {**TRANSIENT, **LASTING}
    for status in (408, 409, 425, 500, 504, 520, 522, 529):
        kinds[f"status {status}"] = lambda status=status: Reply({"error": "away"}, status)  # type: ignore[misc]
    for name, usage in USAGES.items():
        bodies = {
            "an answer": _with(usage),
            "no answer": {**_with(usage), "choices": []},
            "wrong content": _with(usage, content={"text": [1]}),
        }
        for what, body in bodies.items():
            kinds[f"{what}, usage {name}"] = lambda body=body: Reply(json.dumps(body).encode())  # type: ignore[misc]
    kinds["an error with usage"] = lambda: Reply({**_with({}), "error": {"message": "x"}})
    return kinds


KINDS = _kinds()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfgrpo.model.rate_limits.LONGEST_PAUSE", 0.02)


def ask_through(folder: Path, kinds: Mapping[str, Fault], times: int) -> Counter[str]:
    """Asks once for every kind, which is met so often first; returns how the calls ended."""
    met: Counter[str] = Counter()

    def script(sent: dict[str, Any]) -> str | Reply:
        kind = sent["messages"][0]["content"]
        met[kind] += 1
        return kinds[kind]() if met[kind] <= times else "fine"

    async def run() -> Counter[str]:
        with (
            ScriptedEndpoint(script) as endpoint,
            opened_calls(folder, endpoint.base_url, tries=4, patience=60.0) as calls,
        ):
            requests = [Request("rollout", (("user", kind),), 0.5, 64) for kind in kinds]
            try:
                done = await asyncio.gather(
                    *(calls.ask(one) for one in requests), return_exceptions=True
                )
            finally:
                await calls.endpoint.close()
        wrong = [one for one in done if isinstance(one, BaseException)]
        assert all(isinstance(one, CallFailed | EndpointError) for one in wrong), wrong
        return Counter(type(one).__name__ for one in done)

    return asyncio.run(run())


@pytest.mark.parametrize("times", [1, 2])
def test_no_fault_of_an_endpoint_is_called_damage(times: int, tmp_path: Path) -> None:
    assert len(KINDS) >= 49
    ended = ask_through(tmp_path, KINDS, times)
    assert ended["RecordedAnswer"] > len(KINDS) * 0.9, ended
    with Store.open(tmp_path / "store.db") as store:
        assert fsck(store).problems == ()
        assert store.port.row("select 1 from journal where attempts > 1")  # type: ignore[attr-defined]


@pytest.mark.parametrize("change", ["completion_tokens - 1", "0", "completion_tokens + 1"])
def test_a_count_that_no_tries_explain_is_still_damage(change: str, tmp_path: Path) -> None:
    ask_through(tmp_path, {"an answer": KINDS["an answer, usage half"]}, 1)
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as db:
        db.execute(f"update journal set completion_tokens = {change}")
    with Store.open(tmp_path / "store.db") as store:
        (problem,) = fsck(store).problems
    assert "counts something else" in problem.what
