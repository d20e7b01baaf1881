"""The record of tool calls: the same call in the same state is answered without being made again.

Results stand in the journal, for this run and later ones; a call that went wrong is recorded for
its own run alone. Attempts that make the same call at once wait for one of them.
"""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple

from tfgrpo.model.gather import Lookup
from tfgrpo.model.secrets import scrub
from tfgrpo.store.activity.journal import Journal
from tfgrpo.store.activity.runs import Call, Run, Runs
from tfgrpo.store.canonical import canonical, digest
from tfgrpo.tools.tool import Arguments, Result, Tool

STAGE = "tool"


class RecordedResult(NamedTuple):
    """A result, whether it was answered from the record, and the seconds that the call took."""

    result: Result
    cached: bool
    seconds: float


class ToolRecord:
    """Makes tool calls, and journals what came of them."""

    def __init__(
        self,
        journal: Journal,
        runs: Runs,
        *,
        scope: str,
        run: Run | None = None,
        shared: bool = False,
    ) -> None:
        """`shared`: a result that another process has journalled first is the call's."""
        self._journal, self._runs, self._lookup = journal, runs, Lookup(runs)
        self._scope, self._run, self._shared = scope, run, shared
        self._under_way: dict[bytes, asyncio.Future[None]] = {}

    async def call(
        self, tool: Tool, arguments: Arguments, *, step: int | None = None
    ) -> RecordedResult:
        """What a tool gives, from the record where it can. Raises ToolError."""
        parts = [tool.spec.name, tool.state, dict(arguments)]
        everywhere = digest(["tfgrpo.tool", *parts])
        here = digest(["tfgrpo.tool", *parts, self._scope])
        while everywhere in self._under_way:  # the very same call is under way: its result will do
            await asyncio.wait([self._under_way[everywhere]])
        done = self._under_way[everywhere] = asyncio.get_running_loop().create_future()
        try:
            for known in await self._lookup.find([here, everywhere]):
                if known is not None:
                    result = Result(str(known.answer["text"]), bool(known.answer["failed"]))
                    tool.recall(arguments, result)
                    return RecordedResult(result, True, known.seconds)
            return await self._call_and_record(tool, arguments, here, everywhere, step)
        finally:
            del self._under_way[everywhere]
            done.set_result(None)

    async def _call_and_record(
        self, tool: Tool, arguments: Arguments, here: bytes, everywhere: bytes, step: int | None
    ) -> RecordedResult:
        started = time.monotonic()
        result = await tool.call(arguments)
        seconds = time.monotonic() - started
        text = result.text.encode("utf-8", "replace").decode()  # half a character cannot be kept
        text = scrub(text)
        key = here if result.failed else everywhere
        await self._journal.append(
            Call(
                key=key,
                run=self._runs.row_id(self._run) if self._run else None,
                stage=STAGE,
                step=step,
                model=f"tool:{tool.spec.name}",
                request=canonical([["tool", canonical(dict(arguments)).decode()]]).decode(),
                answer={"text": text, "failed": result.failed},
                prompt_tokens=0,
                cached_tokens=0,
                completion_tokens=0,
                reasoning_tokens=0,
                attempts=1,
                seconds=seconds,
                time=time.time_ns() // 1000,
            )
        )
        first = self._runs.call(key) if self._shared else None
        if first is not None:
            text = str(first.answer["text"])
        return RecordedResult(Result(text, result.failed), False, seconds)
