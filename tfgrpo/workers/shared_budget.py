"""A budget that a run's driver and workers share: each spends from what it has leased.

What nobody has leased lies in a row beside the queue. Who runs short takes a slice, and gives back
what is not set aside at every sign of life. Where the row is empty and nobody holds a lease, the
budget is reached.

The lease of a worker that died stays: what it had in flight may be on the bill, and nobody knows
what it cost. So it counts as spent, for later sessions of the run too; one that only was silent
gives back what it has not spent when it returns.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from pathlib import Path

from tfgrpo.model.budget import Budget
from tfgrpo.workers.queue import HEARTBEAT, SILENT, Queue

DRIVER = "driver"
SLICE = 4
"""A lease is enough for so many calls at their costliest, where there is that much."""
PAUSE = 0.2
"""Seconds between two looks for what others give back."""
SPREAD = """
insert into budgets (run, in_tokens, rest) values (%(run)s, %(in_tokens)s, 0)
on conflict (run) do update set in_tokens = excluded.in_tokens
"""
LAID_OUT = """
select (rest + (select coalesce(sum(amount), 0) from leases where run = %(run)s))::text as amount
  from budgets where run = %(run)s
"""
COUNT = "update budgets set rest = rest + %(more)s where run = %(run)s"
EARLIER = """
delete from leases where run = %(run)s and starts_with(holder, %(driver)s) and holder <> %(holder)s
"""
"""A run has one driver: what an earlier one held is laid out anew, but for what it had in flight,
which is in a file beside the store."""
TAKE = """
with mine as (
    select 1 from leases where run = %(run)s and holder = %(holder)s for update),
pot as (
    select rest from budgets where run = %(run)s and exists (select 1 from mine) for update),
part as (select greatest(0, least(rest, %(wanted)s)) as amount from pot),
pay as (
    update budgets set rest = rest - (select amount from part)
     where run = %(run)s and exists (select 1 from part)),
hold as (
    update leases set amount = amount + (select amount from part), beat = now()
     where run = %(run)s and holder = %(holder)s and exists (select 1 from part))
select amount::text from part
"""
"""No row where there is no lease yet, or this is an earlier driver, whose lease is gone."""
IS_LEFT = """
select rest > 0 or exists (
    select 1 from leases where run = %(run)s and holder <> %(holder)s and amount > 0
       and beat > now() - %(silent)s * interval '1 second') as is_left,
  (select coalesce(sum(amount), 0) from leases where run = %(run)s
       and beat <= now() - %(silent)s * interval '1 second')::text as cut_off
  from budgets where run = %(run)s
"""
"""Whether waiting may help, and what the dead held. A statement of its own: the one above may have
waited for another that took all there was, and would not see whose it is now."""
GIVE = """
with mine as (
    select amount, spent from leases where run = %(run)s and holder = %(holder)s for update),
hold as (
    insert into leases (run, holder, amount, spent)
    values (%(run)s, %(holder)s, %(held)s, %(spent)s)
    on conflict (run, holder)
    do update set amount = excluded.amount, spent = excluded.spent, beat = now())
update budgets
   set rest = rest + coalesce((select amount from mine), 0) - %(held)s::numeric
            - (%(spent)s::numeric - coalesce((select spent from mine), %(accounted)s::numeric))
 where run = %(run)s
"""
"""What a lease was, less what was spent of it and what is held on to, is others' again. All from
what the lease is now, with what was spent in all by then: a second time changes nothing, where
nobody knows whether the first one came through."""


class SharedBudget(Budget):
    """A budget of which this process holds a lease, or all until others share it. `recount` is the
    driver's: what the journal says was spent, in dollars or tokens."""

    def __init__(
        self, budget: Budget, recount: Callable[[], float] | None = None, *, leased: bool = False
    ) -> None:
        super().__init__(budget.limit, in_tokens=budget.in_tokens)
        self._limit = 0 if leased else self._limit
        self._recount = recount
        self._queue: Queue | None = None
        self._run, self._holder, self._silent = "", "", 0.0
        self._accounted = self._spent
        self._taking = asyncio.Lock()
        self._of_the_dead = 0

    @property
    def of_run(self) -> float:
        """What the run has spent so far, by the journal and by what was cut off here. Raises
        StoreError."""
        return self.spent if self._recount is None else self._recount() + self.cut_off

    @property
    def amount(self) -> str:
        """The whole budget, as `--budget` has it."""
        return f"{self.limit:f}{'tok' if self.in_tokens else ''}"

    def keep_in(self, path: Path) -> None:
        """Does so, and counts nothing of it once more."""
        super().keep_in(path)
        self._accounted = self._spent  # what was spent before is in no row of the budget's

    def join(self, queue: Queue, run: str, holder: str, heartbeat: float = HEARTBEAT) -> None:
        """Has leases taken from the budget's row from now on; what is spent counts from here."""
        self._queue, self._run = queue, run
        self._holder = f"{holder} {secrets.token_hex(4)}"
        self._silent = SILENT * heartbeat

    async def share(self) -> None:
        """Lays out for others what the journal, read last, leaves of the limit. Raises
        StoreError."""
        assert self._queue is not None
        assert self._recount is not None
        await self._queue.execute(SPREAD, run=self._run, in_tokens=self.in_tokens)
        await self._queue.execute(EARLIER, run=self._run, driver=DRIVER, holder=self._holder)
        await self.give_back()
        rows = await self._queue.rows(LAID_OUT, run=self._run)
        left = round((self.limit - self._recount()) * self._unit) - self._cut_off
        await self._queue.execute(COUNT, run=self._run, more=left - int(rows[0]["amount"]))

    async def give_back(self) -> None:
        """Gives back what no call has set aside; also a sign of life. Raises StoreError."""
        if self._queue is not None:
            async with self._taking:
                await self._give(self._queue)

    async def _give(self, queue: Queue) -> None:
        self._limit = min(self._limit, self._spent + self._reserved)
        spent = self._spent
        await queue.execute(
            GIVE,
            run=self._run,
            holder=self._holder,
            spent=spent,
            accounted=self._accounted,
            held=max(0, self._limit - spent),
        )
        self._accounted = spent
        self._limit = max(self._limit, spent)  # what calls took beyond it is taken out of the row

    async def _extend(self, wanted: int) -> bool:
        """Leases more; returns whether there was any. Raises StoreError."""
        if self._queue is None:
            return False
        names = {"run": self._run, "holder": self._holder}
        before = self._limit
        while True:
            async with self._taking:
                if self._limit > before:  # whoever was here first has taken enough for several
                    return True
                rows = await self._queue.rows(TAKE, wanted=SLICE * wanted, **names)
                amount = int(rows[0]["amount"]) if rows else 0
                self._limit += amount
                if not rows:
                    await self._give(self._queue)
            if amount:
                return True
            rows = await self._queue.rows(IS_LEFT, silent=self._silent, **names)
            if not rows or not rows[0]["is_left"]:
                self._of_the_dead = int(rows[0]["cut_off"]) if rows else 0
                return False
            await asyncio.sleep(PAUSE)

    def _account(self) -> str:
        dead = self.format(self._of_the_dead)
        cut_off = f", {dead} set aside for calls of workers that died" if self._of_the_dead else ""
        return f"{super()._account()} here{cut_off}"
