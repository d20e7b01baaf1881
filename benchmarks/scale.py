"""What a run costs as it grows: one command, a section for each question.

    python -m benchmarks.scale [SECTION …] [--most N] [--kills N] [--write]

Sections are `machine` (a step of a run that has 10,000 to 1,000,000 rollouts on record),
`endpoints` (four of them, one slow and one dead, beside round-robin), `http` (the client's
connections at 128 in flight) and `kills` (of workers, the driver and the database). With `--write`
each replaces its part of `RESULTS-scale.md`. PostgreSQL, where one is needed, is a throw-away
cluster that is started here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from benchmarks import (
    scale_endpoints,
    scale_http,
    scale_kills,
    scale_machine,
    scale_network,
    scale_queue,
    scale_workers,
)
from benchmarks.machine import busy_machine

RESULTS = Path(__file__).parent / "RESULTS-scale.md"


class Wanted(NamedTuple):
    """How much is measured: the most rollouts on record, and how many kills."""

    most: int
    kills: int


SECTIONS: dict[str, tuple[str, Callable[[Wanted], Sequence[str]]]] = {
    "machine": ("One machine", lambda wanted: scale_machine.measure(wanted.most)),
    "endpoints": ("Endpoints", lambda wanted: scale_endpoints.measure(wanted.most)),
    "http": ("HTTP's connections", lambda wanted: scale_http.measure(wanted.most)),
    "workers": ("Workers", lambda wanted: scale_workers.measure()),
    "memory": ("Memory of a crew", lambda wanted: scale_workers.measure_memory()),
    "queue": ("The queue", lambda wanted: scale_queue.measure()),
    "network": ("The network, the clock and a pooler", lambda wanted: scale_network.measure()),
    "kills": ("Kills", lambda wanted: scale_kills.measure(wanted.kills)),
}
"""Section → its title, and what measures it: it returns lines."""
HEAD = (
    "# Scale\n\n`python -m benchmarks.scale --write`; what is measured is said in each section.\n"
)


@click.command()
@click.argument("sections", nargs=-1, type=click.Choice(list(SECTIONS)))
@click.option("--most", type=int, default=1_000_000, help="The most rollouts on record.")
@click.option("--kills", type=int, default=500, help="How many there are to be.")
@click.option("--write", is_flag=True, help="Put the sections into RESULTS-scale.md.")
def main(sections: tuple[str, ...], most: int, kills: int, write: bool) -> None:
    """Measures how a run grows."""
    for name in sections or SECTIONS:
        title, measure = SECTIONS[name]
        lines = [
            f"## {title}",
            "",
            f"{busy_machine()}: on a shared machine the ratios count.",
            "",
            *measure(Wanted(most, kills)),
        ]
        click.echo("\n".join(lines))
        if write:
            put(title, "\n".join(lines))


def put(title: str, section: str) -> None:
    """Replaces a section of the page, or adds it at its end."""
    page = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else ""
    parts = re.split(r"(?m)^(?=## )", page or HEAD)
    parts = [part for part in parts if not part.startswith(f"## {title}\n")]
    page = "\n\n".join(part.strip() for part in [*parts, section])
    RESULTS.write_text(page + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
