"""`tfgrpo workers`: groups of attempts, made on other machines."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from threading import Event

import click

from tfgrpo.cli import printing
from tfgrpo.cli.flags import JSON, option
from tfgrpo.cli.help import ListingGroup
from tfgrpo.cli.options import CONFIG
from tfgrpo.cli.start_context import App, Given, pass_app, pass_given
from tfgrpo.store.address import with_password
from tfgrpo.wording import span
from tfgrpo.workers.queue import Crew, queue_address, read_crew, state_of
from tfgrpo.workers.restart_workers import is_orphan, keep_workers, store_when_there

SLOTS = option(
    "--slots", "Groups that a worker makes at a time.", type=click.IntRange(1, 10_000), default=64
)
HEARTBEAT = option(
    "--heartbeat",
    "Seconds between heartbeats; after three missed ones, others take its groups.",
    type=click.FloatRange(0.1, 600),
    default=5.0,
)


@click.group(cls=ListingGroup)
def workers() -> None:
    """Show who works for the runs of a shared store, or start workers.

    \b
    Examples:
      tfgrpo --store postgresql://ann@db/team workers
      tfgrpo --store postgresql://ann@db/team workers run --slots 64
    """


@workers.command()
@SLOTS
@option("--base-url", "Endpoint that this machine asks, in place of the run's.")
@option("--api-key-env", "Environment variable with that endpoint's API key.")
@HEARTBEAT
@option(
    "--grace",
    "Seconds for groups to finish after SIGTERM before they are handed back.",
    type=click.FloatRange(0),
    default=30.0,
)
@CONFIG
@pass_given
def run(app: App, given: Given) -> None:
    """Be a worker: make groups of attempts for the runs of a shared store, until it is stopped.

    Start any number on any machine, then `tfgrpo train DATA --workers`. A worker has to have the
    same version of tfgrpo, the same prompts and the same domain as the run; one that differs says
    so and leaves its groups to others. API keys come from its own environment; sandboxes and tools
    are this machine's. The worker waits for a database that cannot be reached, at the start and
    later. SIGTERM ends it: groups that are not finished in time go to another worker, and no answer
    is asked for twice.

    \b
    Examples:
      tfgrpo --store postgresql://ann@db/team workers run --slots 64
      tfgrpo workers run --base-url http://127.0.0.1:8000/v1
    """
    import asyncio

    from tfgrpo.project import open_project
    from tfgrpo.workers.worker import Worker, WorkerOptions, end_with_parent

    address, project = queue_address(app.location), open_project(app.root, given.config)
    _end_by_signal()
    store = store_when_there(app.location, app.author, printing.echo, lambda: not is_orphan())
    if store is None:
        return
    app.adopt(store)
    own = given.of("base_url", "api_key_env").items()
    models = {name: value for name, value in own if value is not None}
    options = WorkerOptions(given.slots, given.heartbeat, given.grace, models)
    member = Worker(store, project, options, printing.echo)

    async def work() -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, member.stop)
        watching = asyncio.create_task(end_with_parent(member.stop))
        slots = printing.plural(given.slots, "slot")
        printing.echo(f"worker {member.name}: {slots}; Ctrl-C ends it")
        await member.run(address)
        watching.cancel()
        printing.echo(f"worker {member.name} has ended")

    asyncio.run(work())


def _end_by_signal() -> None:
    """Has SIGTERM and Ctrl-C end this command at once, and well: nothing was begun yet."""

    def end(number: int, frame: object) -> None:
        raise click.exceptions.Exit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)


@workers.command("list")
@JSON
@pass_app
def list_(app: App, as_json: bool) -> None:
    """Show who works for the runs of a shared store: what each does, its rate and its failures.

    A lost worker has died without reporting it; its groups go to others.

    \b
    Examples:
      tfgrpo --store postgresql://ann@db/team workers list
    """

    crew = read_crew(queue_address(app.location))
    printing.answer(app, crew.object, _lines(crew), as_json)


def _lines(crew: Crew) -> Iterator[str]:
    if not crew.members:
        yield "no worker in the last hour; start one with `tfgrpo workers run`"
        return
    rows = []
    for one in crew.members:
        figures = one.figures
        doing, rate = len(figures.get("doing", ())), f"{figures.get('rate', 0.0):.0f}"
        names = ("groups", "calls", "in_flight", "failed", "handed_back")
        groups, *more = (str(figures.get(name, 0)) for name in names)
        begin = (one.name, state_of(one), span(one.age), f"{doing}/{one.slots}")
        rows.append((*begin, groups, rate, *more))
    header = ("worker", "state", "for", "slots", "groups", "per min", "calls", "in flight")
    yield from printing.table(rows, header=(*header, "failed", "back"))
    for run in crew.runs:
        yield f"run {run.name}: {run.queued} queued, {run.begun} worked on"
    for one in crew.members:
        for refusal in one.figures.get("refuses", {}).values() if one.alive else ():
            yield from printing.wrapped(f"{one.name} refuses: {printing.shown(refusal)}")
        if one.lost:
            count = printing.plural(int(one.figures.get("in_flight", 0)), "call")
            yield f"{one.name} was lost with {count} in flight, which may be paid for twice"


@workers.command()
@option("-n, --count", "Workers to start.", type=click.IntRange(1, 1000), default=1)
@SLOTS
@HEARTBEAT
@pass_app
def start(app: App, count: int, slots: int, heartbeat: float) -> None:
    """Start workers for a shared store on this machine, and end them with this command.

    A worker that dies is started again. Workers wait for a database that cannot be reached.

    \b
    Examples:
      tfgrpo --store postgresql://ann@db/team workers start --count 4
    """

    queue_address(app.location)
    _end_by_signal()
    store = store_when_there(app.location, app.author, printing.echo)
    assert store is not None, "it is always wanted"
    store.close()
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    given = ["--slots", str(slots), "--heartbeat", str(heartbeat)]
    printing.echo(f"{printing.plural(count, 'worker')} on this machine; Ctrl-C ends")
    keep_workers(with_password(app.location), count, given, stop, printing.echo)
