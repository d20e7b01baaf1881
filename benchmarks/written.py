"""Scenario: how many bytes the disk is sent while a run keeps long answers."""

from __future__ import annotations

import asyncio
import json
import random
import re
import zlib
from collections.abc import Sequence
from pathlib import Path

from benchmarks.figures import Figure, times
from tfgrpo.store import Store
from tfgrpo.store.activity.journal import Journal
from tfgrpo.store.activity.runs import Call, RolloutRow
from tfgrpo.store.port import CallValues, JournalWriter, RolloutValues

ANSWERS = 256
LENGTH = 14_000  # characters: about 4,000 tokens
AT_ONCE = 32
IO = Path("/proc/self/io")
PAGES = Path(__file__).parent.parent / "docs"
GOAL = 1.2


class CountingWriter:
    """A writer that counts its commits: how many rows share one depends on the disk."""

    def __init__(self, writer: JournalWriter) -> None:
        self._writer = writer
        self.commits = 0

    def append(self, calls: Sequence[CallValues], rollouts: Sequence[RolloutValues]) -> None:
        """Writes rows in one transaction."""
        self.commits += 1
        self._writer.append(calls, rollouts)

    def close(self) -> None:
        """Closes the writer."""
        self._writer.close()


def measure(folder: Path) -> list[Figure]:
    """Journals answers made of the sentences of the documentation, in random order."""
    what = f"bytes written while training, {ANSWERS} answers of {LENGTH:,} characters"
    if not IO.exists():
        return [Figure(what, "not counted: there is no /proc here", "", f"≤ {GOAL}×", None)]
    text = " ".join(page.read_text(encoding="utf-8") for page in sorted(PAGES.glob("*.md")))
    sentences = [s for s in re.split(r"(?<=[.:])\s+", text) if 30 < len(s) < 400]
    with Store.init(folder / "written.db", author="benchmark") as store:
        run = store.runs.create("run", "uid", "main", 0, {}, "benchmark")
        before = _written()
        writer = CountingWriter(store.port.records.writer())
        size = asyncio.run(_journal(writer, run.id, sentences))
        store.port.connection.execute("pragma wal_checkpoint(truncate)")  # type: ignore[attr-defined]
    sent = _written() - before
    if not sent:
        return [Figure(what, "not counted: the folder is in memory", "", f"≤ {GOAL}×", None)]
    ratio = sent / size
    sample = _answer(0, sentences).encode()
    left = len(zlib.compress(sample)) / len(sample)
    beside = f"{size / 1e6:.1f} MB of requests and answers: {times(ratio)}"
    beside += f" in {writer.commits} commits; zlib leaves {left:.0%}"
    return [Figure(what, f"{sent / 1e6:.1f} MB", beside, f"≤ {GOAL}×", ratio <= GOAL)]


def _answer(number: int, sentences: list[str]) -> str:
    return " ".join(random.Random(number).choices(sentences, k=LENGTH // 30))[:LENGTH]


def _written() -> int:
    fields = dict(line.split(": ") for line in IO.read_text().splitlines())
    return int(fields["write_bytes"])


async def _journal(writer: JournalWriter, run: int, sentences: list[str]) -> int:
    journal = Journal(writer)
    limit = asyncio.Semaphore(AT_ONCE)
    size = 0

    async def attempt(number: int) -> None:
        nonlocal size
        dice = random.Random(number)
        answer = _answer(number, sentences)
        request = json.dumps([["user", f"problem {number // 5}: {dice.choice(sentences)}"]])
        key = number.to_bytes(32, "big")
        async with limit:
            await asyncio.sleep(dice.random() * 0.2)
            size += len(answer.encode()) + len(request.encode())
            await journal.append(
                Call(
                    key=key,
                    run=run,
                    stage="rollout",
                    step=0,
                    model="model",
                    request=request,
                    answer={"content": answer, "finish_reason": "stop"},
                    prompt_tokens=1,
                    cached_tokens=0,
                    completion_tokens=1,
                    reasoning_tokens=0,
                    attempts=1,
                    seconds=1.0,
                    time=1,
                )
            )
            verdict = {"answer": "1", "reason": "right"}
            place = (run, 0, f"p{number // 5}", number % 5, 0, (key.hex(),))
            await journal.rollout(RolloutRow(*place, "answered", 1.0, verdict, 1))

    await asyncio.gather(*map(attempt, range(ANSWERS)))
    await asyncio.to_thread(journal.close)
    return size
