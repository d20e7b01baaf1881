"""How long a step takes whose groups teach: one command, one table.

    python benchmarks/reflection.py           # about a minute; writes RESULTS-reflection.md
    python benchmarks/reflection.py --quick   # one row, printed only

A step of 100 problems with five attempts each, of which 60 groups are mixed and give 86 lessons,
against an endpoint that answers every call after one second, with 64 calls in flight. The endpoint
runs in a process of its own and knows a number of rules; each lesson words one of them anew, and
its controller says *same* where the library has the rule, else *new*. So the library that is right
is known: each rule once. How many rules there are is what serialises the controller, since
whatever enters is decided beside all that is there by then.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from instant import Connection  # noqa: E402

RESULTS = HERE / "RESULTS-reflection.md"
PROBLEMS, GROUP, AT_ONCE = 100, 5, 64
GOAL = 25.0
"""Seconds that the step may take, rollouts included."""
ROWS: list[tuple[str, int, dict[str, Any]]] = [
    ("default (16 ahead)", 12, {}),
    ("default (16 ahead)", 24, {}),
]
WORDS = re.findall(
    r"\w+",
    "discounts taxes shipping rounding deposits refunds tips surcharges currencies holidays "
    "warranties coupons bundles invoices credits loans rents fines wages bonuses pensions "
    "leases royalties dividends",
)
"""What the rules are about: a rule has one of them in its text."""
QUESTION = re.compile(r"What is (\d+) op (\d+)\?")


def rule_of(problem: int, lesson: int, rules: int) -> str:
    """Returns what a lesson of a problem is about."""
    return WORDS[(problem * 7 + lesson * 5) % rules]


def text_of(problem: int, lesson: int, rules: int) -> str:
    """Returns a lesson's words: the same rule is worded anew by each problem."""
    way = ("early", "late", "twice", "first", "apart", "whole", "slowly")[problem % 7]
    step = ("before adding", "after adding", "once done", "at the end")[problem // 7 % 4]
    end = ("without fail", "as agreed", "every time", "in one go", "by hand")[
        problem // 28 + lesson
    ]
    return f"When {rule_of(problem, lesson, rules)} come up, take them {way} and {step}, {end}."


def answer(request: dict[str, Any], rules: int) -> str:
    """Returns what the endpoint says."""
    system, user = request["messages"][0]["content"], request["messages"][-1]["content"]
    if "You keep a record of attempts" in system:
        return "It joined the numbers and gave the sum."
    if "You look after a library" in system:
        listed = re.findall(r"^\[(G\d+)\] When (\w+)", user, re.MULTILINE)
        topic = re.search(r"New lesson: When (\w+)", user)[1]  # type: ignore[index]
        closest = next((label for label, there in listed if there == topic), None)
        decision = "new" if closest is None else "same"
        return json.dumps({"about": topic, "decision": decision, "closest": closest, "text": ""})
    first, second = map(int, QUESTION.findall(user)[-1])
    if "Several attempts were made" in system:
        count = 2 if first % 9 in (0, 2, 4, 6) else 1
        lessons = [{"reason": "It was so.", "text": text_of(first, n, rules)} for n in range(count)]
        return json.dumps({"right_did": "it", "wrong_did": "not", "lessons": lessons})
    mixed, seed = first % 25 < 16, request.get("seed") or 0
    right = seed % 2 == 0 if mixed else first % 2 == 0
    return f"\\boxed{{{first + second + (1 if right else 0)}}}"


class Slow(Connection):
    """One connection: each request is answered after a second."""

    def __init__(self, rules: int, seconds: float) -> None:
        super().__init__()
        self._rules, self._seconds = rules, seconds

    def _answer(self, body: bytes) -> None:
        asyncio.get_running_loop().call_later(self._seconds, self._say, json.loads(body))

    def _say(self, request: dict[str, Any]) -> None:
        message = {"role": "assistant", "content": answer(request, self._rules)}
        usage = {"prompt_tokens": 500, "completion_tokens": 50, "total_tokens": 550}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        known = {"id": "c", "object": "chat.completion", "created": 0, "model": "slow"}
        self.send(json.dumps({**known, "choices": [choice], "usage": usage}).encode())


async def serve(rules: int, seconds: float) -> None:
    """Serves until the process ends; prints its port."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Slow(rules, seconds), "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def slow(rules: int, seconds: float) -> Iterator[str]:
    """Runs the endpoint; gives its address."""
    command = [sys.executable, __file__, "--serve", str(rules), str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.terminate()


class Measured(NamedTuple):
    """One step: seconds, of which so many after the last attempt, calls by stage, and the library
    it came to."""

    seconds: float
    after: float
    calls: dict[str, int]
    library: tuple[str, ...]


def step(rules: int, seconds: float, **settings: Any) -> Measured:
    """Trains one step, with other settings than the defaults where some are given. Its times are
    divided by `seconds`, which a call takes: on a machine with other load, calls that take longer
    make what the processors do weigh less."""
    from tfgrpo.connect import CallLimits, Endpoints
    from tfgrpo.data.problems import Problem
    from tfgrpo.domains.verifier import Verifier
    from tfgrpo.model.endpoint import Endpoint, Request
    from tfgrpo.session import Session
    from tfgrpo.settings import TrainSettings
    from tfgrpo.store import Store
    from tfgrpo.store.journal import Journal
    from tfgrpo.training.loop import Training
    from tfgrpo.training.run_problems import RunProblems
    from tfgrpo.training.setup import begin

    dataset = [
        Problem(f"p{n}", f"What is {n} op {n + 3}?", str(2 * n + 4)) for n in range(PROBLEMS)
    ]
    with (
        slow(rules, seconds) as base_url,
        tempfile.TemporaryDirectory(dir=HERE, prefix=".reflection-") as folder,
        Store.init(Path(folder) / "store.db") as store,
        Verifier() as verifier,
    ):
        given = {"epochs": 1, "batch_size": PROBLEMS, "group_size": GROUP, "concurrency": AT_ONCE}
        run, _ = begin(store, TrainSettings(data="p.jsonl", **{**given, **settings}))
        journal = Journal(store.port.records.writer())
        endpoint = Endpoint("slow", base_url)
        endpoints = Endpoints(endpoint, endpoint, CallLimits(AT_ONCE, 600.0))
        training = Training(Session(store, journal, endpoints, verifier), run, RunProblems(dataset))

        async def session() -> float:
            await endpoint.ask(Request("rollout", (("user", "What is 1 op 2?"),), 0.7, 64))
            started = time.perf_counter()
            await training.run()
            taken = time.perf_counter() - started
            await endpoints.close()
            return taken

        taken = asyncio.run(session())
        journal.close()
        after = taken - training.progress.seconds["rollouts"]
        library = tuple(e.text for e in store.library())
        return Measured(
            taken / seconds, after / seconds, dict(training.progress.meter.by_stage), library
        )


def row(name: str, rules: int, found: Measured) -> str:
    """Returns a row of the table."""
    topics = sorted(text.split()[1] for text in found.library)
    known = set(topics)
    twice = len(topics) - len(known)
    calls = found.calls
    reflecting = sum(calls.get(stage, 0) for stage in ("summary", "comparison"))
    missed = "" if found.seconds <= GOAL else " **over**"
    return (
        f"| {name} | {rules} | {found.seconds:.1f} s{missed} | {found.after:.1f} s |"
        f" {calls['rollout']} | {reflecting} | {calls.get('controller', 0)} |"
        f" {len(known)} of {rules}, {twice} twice |"
    )


def table(quick: bool, seconds: float) -> Iterator[str]:
    """Yields the rows, as they are measured."""
    yield (
        "| the controller | rules | step | after the last attempt | attempts | summaries and"
        " comparisons | controller | library |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|---|"
    for name, rules, settings in ROWS[:1] if quick else ROWS:
        yield row(name, rules, step(rules, seconds, **settings))


def page(rows: str, seconds: float) -> str:
    """Returns the results as they are written."""
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    head = (
        f"# Reflection\n\nWritten by `python benchmarks/reflection.py` on {os.cpu_count()} cores, "
        f"load {load} (other work on the machine only ever adds time): a step of {PROBLEMS} "
        f"problems × {GROUP} attempts, one second a call, {AT_ONCE} in flight. Measured with calls "
        f"of {seconds:g} s, and all times divided by that. The goal is {GOAL:g} s. The "
        f"least that is possible is the calls divided by {AT_ONCE}, about 15 s.\n\n"
    )
    return head + rows + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one row, printed only")
    parser.add_argument("--seconds", type=float, default=1.0, help="what a call takes")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        asyncio.run(serve(int(asked.serve[0]), float(asked.serve[1])))
    else:
        lines = []
        for line in table(asked.quick, asked.seconds):
            lines.append(line)
            print(line, flush=True)
        if not asked.quick:
            RESULTS.write_text(page("\n".join(lines), asked.seconds), encoding="utf-8")
