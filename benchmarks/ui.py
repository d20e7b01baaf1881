"""How fast the pages of a large store are: `python -m benchmarks.ui`.

Builds a store with 1,000 experiences, 20,000 versions and 100,000 calls and asks for each page as
a browser does. Times are the server's, from request to last byte, without a browser: on the clock,
and of the
processor, which is what remains where others use the machine too. Sizes are of what a
browser loads at first: the page and every file that it names.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

from starlette.testclient import TestClient

from tfgrpo.store import Operation, Store
from tfgrpo.store.activity.traffic import CallContent, CallRecord, Feedback, traffic_path
from tfgrpo.store.opening import open_traffic
from tfgrpo.ui.site import create_site
from tfgrpo.ui.ui_settings import UiSettings

ROUNDS = 7
SPREAD = 6 * 86_400_000_000
"""Microseconds over which calls are spread."""
MOST_BYTES = 120_000
MOST_MS = 100.0
TEXT = (
    "When a question gives two dates of a rental, count both the first and the last day before "
    "you multiply by the daily price; lesson {} says where the usual mistake is made."
)


def main() -> int:
    """Prints a table; returns 1 where the first page is over its bounds."""
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--experiences", type=int, default=1000)
    flags.add_argument("--versions", type=int, default=20_000)
    flags.add_argument("--calls", type=int, default=100_000)
    flags.add_argument("--store", type=Path, help="a folder to keep the store in, or to use it of")
    given = flags.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.store or Path(scratch)
        path = folder / "store.db"
        if not path.exists():
            began = time.perf_counter()
            build(path, given.experiences, given.versions)
            print(f"built {given.versions} versions in {time.perf_counter() - began:.1f} s")
            record_calls(path, given.calls)
        return report(path)


def build(path: Path, experiences: int, versions: int) -> None:
    """Makes a store whose library has so many experiences, after so many versions."""
    with Store.init(path, author="benchmark") as store, store.port.transaction():
        first = [Operation("ADD", text=TEXT.format(n)) for n in range(experiences)]
        store.commit("main", first, message="what was there to begin with")
        ids = [e.id for e in store.library("main")]
        for n in range(versions - 2):
            id = ids[n * 7919 % len(ids)]
            kind = "KEEP" if n % 3 else "MODIFY"
            text = None if n % 3 else TEXT.format(f"{n % 7919} of {n}")
            store.commit(
                "main",
                [Operation(kind, id, text, reason="seen again")],  # type: ignore[arg-type]
                message=f"step {n}",
            )


def record_calls(path: Path, count: int) -> None:
    """Records so many calls of the last week, with their words, and feedback on each tenth."""
    with Store.open(path) as store:
        newest = store.head.version.number
        versions = [store.version(max(1, newest - 100 * n)) for n in range(10)][::-1]
    blank = CallRecord(*[None] * len(CallRecord._fields))._replace(
        worker="w", route="/v1/chat/completions", streamed=0, stale=0, model="gpt-5-mini"
    )
    dice, now = random.Random(1), time.time_ns() // 1000
    traffic = open_traffic(traffic_path(path), create=True)
    for first in range(0, count, 5000):
        calls, contents = [], []
        for n in range(first, min(first + 5000, count)):
            version = versions[10 * n // count]
            call = blank._replace(
                id=f"call-{dice.getrandbits(128):032x}",
                time=now - (count - n) * (SPREAD // count),
                library="default",
                version=version.name,
                digest=version.digest.hex()[:16],
                status=200 if n % 50 else 500,
                prompt_tokens=400 + n % 100,
                cached_tokens=0,
                completion_tokens=60,
                latency=dice.randrange(200_000, 3_000_000),
                added=dice.randrange(80, 500),
            )
            body = {"messages": [{"role": "user", "content": TEXT.format(n) * 6}]}
            calls.append(call)
            contents.append(CallContent(call.id, json.dumps(body), f"{n} euros"))
        traffic.add(calls, contents)
        for call in calls[::10]:
            traffic.add_feedback(Feedback(call.id, now, "till", float(dice.random() < 0.8)))
    traffic.close()


def report(path: Path) -> int:
    """Asks for the pages and prints what each took; returns the exit code."""
    site = create_site(UiSettings(path, {"token": "benchmark"}))
    client = TestClient(site, base_url="http://127.0.0.1:7433")
    began = time.perf_counter()
    client.get("/?token=token")
    print(f"{'page':34} {'clock ms':>9} {'CPU ms':>9} {'page kB':>8} {'in all kB':>9}")
    print(f"{'log in, first page':34} {1000 * (time.perf_counter() - began):9.1f}")
    with Store.open(path) as store:
        id = next(iter(store.library("HEAD"))).id
        newest = store.head.version.number
    missed = 0
    for page in (
        "/",
        "/library",
        "/library?sort-library=confirmed",
        "/library?q=usual",
        f"/experience/{id}",
        f"/version/v{newest}",
        f"/diff?a=v{newest // 2}&b=HEAD",
        "/history",
        f"/history?from={newest // 2}",
        "/production",
        "/calls",
        "/calls?q=tandem",
        "/review",
    ):
        took, size, whole = measured(client, page)
        clock, middle = (statistics.median(times) for times in zip(*took, strict=True))
        print(f"{page[:34]:34} {clock:9.1f} {middle:9.1f} {size / 1000:8.1f} {whole / 1000:9.1f}")
        missed |= page in ("/", "/library") and (middle > MOST_MS or whole > MOST_BYTES)
    return int(missed)


def measured(client: Any, page: str) -> tuple[list[tuple[float, float]], int, int]:
    """Returns milliseconds of each round, on the clock and of the processor, and the bytes of the
    page, without and with all that it names."""
    took = []
    for _ in range(ROUNDS):
        began = time.perf_counter(), time.process_time()
        answer = client.get(page)
        ended = time.perf_counter(), time.process_time()
        took.append((1000 * (ended[0] - began[0]), 1000 * (ended[1] - began[1])))
        assert answer.status_code == 200, (page, answer.status_code)
    body = answer.content
    named = {part.split(b'"')[0] for part in body.replace(b"src=", b"href=").split(b'href="')[1:]}
    files = {urlsplit(urljoin(page, one.decode())).path for one in named}
    loaded = sum(len(client.get(f).content) for f in files if f.startswith("/static/"))
    return took, len(body), len(body) + loaded


if __name__ == "__main__":
    sys.exit(main())
