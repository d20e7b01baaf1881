"""A small store with something of everything that a page shows, the same each time."""

from __future__ import annotations

import random
from pathlib import Path

from tfgrpo.improvement.proposals import Draftsman, Effect, propose
from tfgrpo.production.experiment import ExperimentPlan, start
from tfgrpo.store import Operation, Store
from tfgrpo.store.activity.runs import Run
from tfgrpo.store.activity.traffic import CallContent, CallRecord, Feedback, traffic_path
from tfgrpo.store.canonical import canonical
from tfgrpo.store.history import bisect
from tfgrpo.store.history import merge as merges
from tfgrpo.store.opening import open_traffic
from tfgrpo.store.records import Op

BEGIN = 1_790_000_000_000_000
MINUTE = 60_000_000
LESSONS = (
    "Count both the first and the last day of a hire: last minus first, plus one.",
    "Convert every price to euros before you add prices up.",
    "When a question asks for the number of weeks, round up: a week that has begun is charged.",
    "Say the unit in the answer, and nothing after it.",
    "A deposit is not part of the price: leave it out unless the question asks for what is paid.",
    "If two rates apply, work out each part of the hire by its own rate, then add.",
)
LATER = (
    (0, "Count both the first and the last day of a hire, and the day of the return."),
    (2, "When a question asks for weeks, round up: a week that has begun is charged in full."),
    (4, "A deposit is not part of the price: leave it out unless it is asked for."),
)
EFFECTS = (0.3, 0.05, -0.25, 0.1, 0.0, 0.0)
"""What each experience does to the chance of a right answer."""
RUN = {"models": {"model": "m"}, "data": "hires.jsonl", "domain": "math", "policy": "probation"}
BETTER = Effect(0.61, 0.72, 0.11, 0.04, 0.18, 0.002, "better", 40, 4, "m")
UNDECIDED = Effect(0.61, 0.66, 0.05, -0.02, 0.12, 0.16, "undecided", 40, 4, "m")


def demo(folder: Path, *, now: int = BEGIN) -> Path:
    """Makes the store in a folder; returns its file. Its last versions are of `now`."""
    path = folder / ".tfgrpo" / "store.db"
    clock = [now - 9000 * MINUTE]

    def tick() -> int:
        clock[0] += 131 * MINUTE
        return clock[0]

    with Store.init(path, author="ana", now=tick) as store:
        first = [Operation("ADD", text=text, reason="the shop's own rules") for text in LESSONS[:3]]
        store.commit("main", first, message="what the shop knows")
        ids = [e.id for e in store.library()]
        run = store.runs.create("shop", "5" * 32, "main", 1, RUN, "ana")
        for step, (place, text) in enumerate(LATER):
            add_attempts(store, run, step, ids)
            learned = [
                change("MODIFY", ids[place], text, f"hire-{12 + step}", (1, 0, 0, 1, 1)),
                change("ADD", None, LESSONS[3 + step], f"hire-{20 + step}", (1, 1, 0, 0, 0)),
                change("KEEP", ids[1], None, f"hire-{30 + step}", (1, 1, 1, 1, 0)),
            ]
            verdict = {"verdict": "accepted" if step else "rejected"}
            meta = {"gate": verdict, "run": run.name, "step": step}
            store.commit("main", learned, message=f"step {step + 1}", author="tfgrpo", meta=meta)
            ids = [e.id for e in store.library()]
        store.runs.note(run, "finished")
        store.create_branch("prod", "v2")
        store.move_branch("prod", "HEAD~1")
        store.create_branch("web", "v2")
        store.create_tag("approved", "v3")
        for n, text in enumerate(("Open the page before you answer.", "Quote the price list.")):
            add = [change("ADD", None, text, f"web-{n}", (1, 0))]
            store.commit("web", add, message=f"web, step {n + 1}", author="tfgrpo")
        merges.merge(store, "main", store.tip("web"), message="merge web into main")
        clash = Operation("MODIFY", ids[0], "Count both days, and say which.", "shorter")
        store.commit("web", [clash], message="shorter words for the web")
        ours = Operation("MODIFY", ids[0], "Count the first and the last day of a hire.", "clearer")
        store.commit("main", [ours], message="clearer words")
        plan = ExperimentPlan(unit="call")
        clock[0] = now - 500 * MINUTE
        start(store, "clearer", ("prod", "main"), 0.2, plan, why="clearer words may help")
        add_proposals(store, 3)
        search = bisect.start(store, store.tip("main"), [store.resolve("v1")])
        middle = bisect.progress(store, search).next
        assert middle is not None
        bisect.mark(store, store.version(middle), "good", "ran the shop's till")
        add_traffic(store, clock[0])
    return path


def add_attempts(store: Store, run: Run, step: int, ids: list[str]) -> None:
    """Records attempts at 12 problems that went without some experiences by chance."""
    dice = random.Random(step)
    rows = []
    for problem in range(12):
        for sample in range(16):
            without = [id for id in ids if dice.random() < 0.3]
            effects = [e for id, e in zip(ids, EFFECTS, strict=False) if id not in without]
            reward = float(dice.random() < 0.35 + sum(effects))
            verdict = canonical({"answer": "36", "reason": "", "without": without}).decode()
            place = (run.id, step, f"hire-{problem}", sample, store.tip("main").number)
            rows.append((*place, "[]", "answered", reward, verdict, BEGIN))
    writer = store.port.records.writer()
    writer.append([], rows)
    writer.close()


def change(
    op: Op, id: str | None, text: str | None, problem: str, rewards: tuple[int, ...]
) -> Operation:
    """Returns an operation with evidence from a problem's attempts."""
    evidence = {"problem": problem, "rollouts": [[n, float(r)] for n, r in enumerate(rewards)]}
    return Operation(op, id, text, "the right ones did so, the wrong ones did not", evidence)


def add_proposals(store: Store, count: int) -> None:
    """Makes proposals for main: each changes one experience and adds one."""
    for n in range(count):
        base, branch = store.tip("main"), f"proposal/{n + 1}"
        store.create_branch(branch, base)
        library = list(store.library(base))
        old = library[(n + 1) % len(library)]
        longer = f"{old.text.rstrip('.')}, in call {n}."
        words = [
            Operation("MODIFY", old.id, longer, "two calls said so"),
            Operation("ADD", text=f"Name the price list of season {n}.", reason="asked for twice"),
        ]
        store.commit(branch, words, message="from calls that went wrong", author="tfgrpo")
        effect = UNDECIDED if n % 2 else BETTER
        draft = Draftsman(branch, "main", "tfgrpo improve", base, effect, {"problems": 7 + n})
        propose(store, draft)


def add_traffic(store: Store, now: int) -> None:
    """Records calls under two versions, with feedback on some."""
    blank = CallRecord(*[None] * len(CallRecord._fields))._replace(
        worker="w", route="/v1/chat/completions", streamed=0, stale=0, model="m", library="default"
    )
    traffic = open_traffic(traffic_path(store.path), create=True)
    try:
        calls, words = [], []
        for n in range(60):
            version = store.tip("prod" if n % 3 else "main")
            call = blank._replace(
                id=f"call-{n:012x}",
                time=now - n * 7 * MINUTE,
                version=version.name,
                digest=version.digest.hex()[:16],
                status=500 if n % 17 == 5 else 200,
                prompt_tokens=420 + n,
                cached_tokens=0,
                completion_tokens=60,
                latency=400_000 + 9_000 * n,
                added=130,
                error="upstream: overloaded" if n % 17 == 5 else None,
            )
            calls.append(call)
            asked = '{"messages":[{"role":"user","content":"A bike from 3 to 5 May?"}]}'
            words.append(CallContent(call.id, asked, '{"content":"36 euros"}'))
        traffic.add(calls, words)
        for n in range(0, 60, 4):
            right = float(n % 3 > 0 or n % 8 == 0) if n % 20 else 0.5
            told = Feedback(calls[n].id, now, "till", right, None, None, "36 euros")
            traffic.add_feedback(told)
    finally:
        traffic.close()
