"""What stands between workers and their database: a network that is cut, clocks that are wrong, and
a pooler of connections. Each run has to come to what one undisturbed process comes to."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import click

from benchmarks.processes import Session, sessions

CUT = 60.0
HOUR = 3600.0
PROBLEMS = 12
RUN = {"epochs": 3, "batch_size": 6}


class Scene(NamedTuple):
    """What a run meets: for how long workers are cut off, how far their clocks are off, the
    pooler's mode, and seconds that an answer takes."""

    what: str
    cut: float = 0.0
    drop: bool = False
    clocks: tuple[float, float] = (0.0, 0.0)
    pooler: str = ""
    delay: float = 0.05


SCENES = (
    Scene("nothing"),
    Scene(f"both workers cut off for {CUT:.0f} s, connections go on", cut=CUT, delay=1.5),
    Scene("the same, connections lost", cut=CUT, drop=True, delay=1.5),
    Scene("clocks of the workers an hour ahead and an hour behind", clocks=(HOUR, -HOUR)),
    Scene("pgbouncer, `pool_mode = session`", pooler="session"),
)


def measure() -> list[str]:
    """Makes a run of each kind; returns the table."""
    lines = [
        "Two workers, a driver beside the database, heartbeats of 5 s. *Alike* is a run that ends "
        "in the library (to the byte, after each step), the rewards and the paid calls of one "
        "process alone. While workers are cut off nothing passes in either direction, and nobody "
        "is told.",
        "",
        "| between the workers and the database | seconds | requests | alike | completed calls "
        "paid for again | in flight, sent again | groups of the workers |",
        "|---|---:|---:|---|---:|---:|---:|",
    ]
    with sessions() as forks:
        from crew import outcome, prepare, train_alone
        from pooler import program
        from postgres import Cluster
        from scripted import ScriptedEndpoint, restless

        cluster = Cluster()
        try:
            with tempfile.TemporaryDirectory() as parent:
                server = ScriptedEndpoint(restless)
                folder, file = Path(parent) / "alone", str(Path(parent) / "alone" / "store.db")
                folder.mkdir()
                prepare(folder, file, server.base_url, problems=PROBLEMS, **RUN)
                with server:
                    train_alone(folder, file)
                reference = outcome(file)
                for number, scene in enumerate(SCENES):
                    if scene.pooler and program() is None:
                        continue
                    folder = Path(parent) / f"run-{number}"
                    lines.append(_row(scene, folder, cluster, forks, reference))
                    click.echo(lines[-1], err=True)
        finally:
            cluster.close()
    return lines


def _row(scene: Scene, folder: Path, cluster: Any, forks: Any, reference: Any) -> str:
    from crew import Timed, outcome, prepare, sent_again
    from pooler import Pooler
    from relay import Relay
    from scripted import ScriptedEndpoint, restless

    from tfgrpo.workers.queue import queue_address, read_crew

    library = folder.name
    store = cluster.address(library)
    (folder / ".tfgrpo").mkdir(parents=True)
    script = Timed(restless)
    with ExitStack() as stack:
        server = ScriptedEndpoint(script, delay=scene.delay)
        prepare(folder, store, server.base_url, problems=PROBLEMS, **RUN)
        relay, through = None, store
        if scene.cut:
            relay = Relay(cluster.folder)
            through = relay.address(library)
        elif scene.pooler:
            through = stack.enter_context(Pooler(cluster.folder, scene.pooler)).address(library)
        crew = [
            forks.start(
                folder / f"w{n}", "--store", through, "workers", "run",
                "--slots", "2", "--grace", "1", clock=clock,
            )
            for n, clock in enumerate(scene.clocks)
        ]  # fmt: skip
        driver = forks.start(
            folder / "driver", "--store", store, "train", "--resume", "run", "--workers"
        )
        if relay is not None:  # threads begin after the forks
            stack.enter_context(relay)
        stack.enter_context(server)
        started = time.monotonic()
        if relay is not None:
            _cut(script, driver, relay, scene)
        forks.wait(driver, 900.0)
        seconds = time.monotonic() - started
        members = read_crew(queue_address(store)).members
        for one in crew:
            forks.end(one)
    alike = "yes" if outcome(store) == reference else "**no**"
    repeated, twice = sent_again(store, script, scene.delay)
    groups = sum(one.figures.get("groups", 0) for one in members)
    return (
        f"| {scene.what} | {seconds:.0f} | {len(script.requests):,} | {alike} | {repeated} | "
        f"{twice} | {groups} |"
    )


def _cut(script: Any, driver: Session, relay: Any, scene: Scene) -> None:
    """Cuts the workers off as soon as they are at work."""
    while len(script.requests) < 20:
        assert not driver.ended(), driver.said()
        time.sleep(0.05)
    relay.cut(scene.cut, drop=scene.drop)
