"""Whatever a model writes in place of JSON, the event loop goes on, and no text holds it up."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from scripted import ScriptedEndpoint, opened_calls

from tfgrpo.model import structured_answers
from tfgrpo.model.endpoint import Answer, Request
from tfgrpo.tools import call_protocol

HARD = {
    "brackets": "{" * 20_000,
    "half objects": '{"' * 10_000,
    "names": '{"a"' * 10_000,
    "single quotes": '{"lessons": [' + "'a" * 10_000,
    "objects in a text": '{"a": "' + "{a:" * 10_000,
    "boxes": "\\boxed{" * 1_400_000,
    "a fence and blanks": "```json" + " " * 200_000,
}


class Shape(BaseModel):
    text: str


@pytest.mark.parametrize("text", HARD.values(), ids=HARD)
def test_a_text_that_takes_long_to_repair_is_unreadable_after_a_while(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(structured_answers, "REPAIR_SECONDS", 0.1)
    begun = time.thread_time()
    assert structured_answers.read(text, Shape)[0] is None
    assert structured_answers.repair(text, Shape) is None
    assert structured_answers.salvage(text, Shape) == (None, ())
    assert call_protocol.calls_in_text(Answer(f"<tool>{text}", "stop"))[0].arguments is None
    assert time.thread_time() - begun < 3, "the thread that works on it is another"


def test_what_can_be_repaired_still_is() -> None:
    assert structured_answers.load_repaired('{"text": "so", ') == {"text": "so"}
    with pytest.raises(ValueError, match="encode"):
        structured_answers.load_repaired('{"text": "\\ud83d", ')


def test_the_event_loop_goes_on_while_a_bad_answer_is_repaired(tmp_path: Path) -> None:
    """And what goes back to the model of an answer without end has one."""
    with (
        ScriptedEndpoint(lambda _: '{"' * 200_000) as server,
        opened_calls(tmp_path, server.base_url) as calls,
    ):
        request = Request("summary", (("user", "Say it as JSON."),), 0.2, 64)

        async def run() -> list[Any]:
            ticks = 0

            async def tick() -> None:
                nonlocal ticks
                while True:
                    await asyncio.sleep(0.01)
                    ticks += 1

            ticking = asyncio.create_task(tick())
            try:
                asking = structured_answers.ask(calls, request, Shape, call_path=(0, "p"))
                (failed,) = await asyncio.gather(asking, return_exceptions=True)
                return [failed, ticks]
            finally:
                ticking.cancel()
                await calls.endpoint.close()

        failed, ticks = asyncio.run(run())
        assert isinstance(failed, structured_answers.Unreadable)
        assert ticks > 10
        assert len(server.requests) == 2
        assert len(str(server.requests[1])) < 120_000
