"""Who works for the runs of a store, as the terminal, JSON and pages show it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tfgrpo.store.errors import StoreError
from tfgrpo.workers.queue import CREW, CrewMember, QueueAddress

QUEUED = """
select o.name, count(j.id) filter (where j.status = 'todo') as queued,
       count(j.id) filter (where j.status = 'doing') as begun
  from offers o left join procrastinate_jobs j on j.queue_name = o.queue
 group by o.name order by o.name
"""


@dataclass(frozen=True, slots=True)
class QueuedRun:
    """A run that has work: how many of its groups are queued, and how many are worked on."""

    name: str
    queued: int
    begun: int


@dataclass(frozen=True, slots=True)
class Crew:
    """The workers of the last hour, oldest first, and the runs that have work."""

    members: tuple[CrewMember, ...] = ()
    runs: tuple[QueuedRun, ...] = ()

    def object(self) -> dict[str, Any]:
        """It as JSON for programs."""
        return {
            "workers": [_object(one) for one in self.members],
            "runs": [
                {"name": one.name, "queued": one.queued, "begun": one.begun} for one in self.runs
            ],
        }


def read_crew(address: QueueAddress) -> Crew:
    """Who works at a queue; nobody where there never was one. Nothing is written. Raises
    StoreError."""
    import psycopg
    from psycopg.rows import dict_row

    more: dict[str, Any] = {} if address.password is None else {"password": address.password}
    try:
        with psycopg.connect(address.conninfo, autocommit=True, **more) as connection:
            cursor = connection.cursor(row_factory=dict_row)
            cursor.execute("select set_config('search_path', %s, false)", (address.schema,))
            cursor.execute("select to_regclass(%s) is null as missing", ("outcomes",))
            first = cursor.fetchone()
            if first is None or first["missing"]:
                return Crew()
            members = tuple(CrewMember(**row) for row in cursor.execute(CREW).fetchall())
            runs = tuple(QueuedRun(**row) for row in cursor.execute(QUEUED).fetchall())
    except psycopg.Error as error:
        reason = (str(error).strip().splitlines() or ["no answer"])[0]
        raise StoreError(
            f"the queue of workers cannot be read: {reason}",
            hint="check that the database is running, and what its user may do",
        ) from error
    return Crew(members, runs)


def state_of(member: CrewMember) -> str:
    """What a worker is at: working, idle, refusing, stopping, left or lost."""
    if member.lost:
        return "lost"
    if member.ended:
        return "left"
    if member.figures.get("stopping"):
        return "stopping"
    if member.figures.get("doing"):
        return "working"
    refuses = member.figures.get("refuses") and not member.figures.get("runs")
    return "refusing" if refuses else "idle"


def _object(member: CrewMember) -> dict[str, Any]:
    figures = member.figures
    names = ("groups", "attempts", "calls", "replayed", "retries", "failed", "handed_back")
    return {
        "name": member.name,
        "state": state_of(member),
        "slots": member.slots,
        "seconds": round(member.age, 3),
        "silent": round(member.silent, 3),
        "doing": [
            {"run": run, "step": step, "problem": problem}
            for run, step, problem in figures.get("doing", ())
        ],
        "rate": figures.get("rate", 0.0),
        "in_flight": figures.get("in_flight", 0),
        **{name: figures.get(name, 0) for name in names},
        "trouble": figures.get("trouble"),
        "refuses": list(figures.get("refuses", {}).values()),
    }
