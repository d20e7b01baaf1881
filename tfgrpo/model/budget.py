"""A budget: a run stops before the call that could cross it, and a larger one resumes it.

A call sets aside the most it could cost: its prompt's bytes as tokens and all of its `max_tokens`.
Where little is left it sets aside what calls of its stage have taken, with a margin, and is sent
with no more `max_tokens` than that pays for; an answer that this cut is asked for again with more.
What does not fit waits for calls in flight; when there are none, the run stops.

What is set aside for calls, or spent on tries that are not journalled yet, is on disk before a call
is sent. A process that is killed leaves it there, and who goes on counts it as spent: the calls may
be on the bill, and nobody knows what they cost.

Amounts are whole numbers, of tokens or of `UNIT`s of a dollar.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from tfgrpo.costs.prices import ModelPrices, Price
from tfgrpo.model.endpoint import (
    Answer,
    Request,
    prompt_tokens,
    response_format,
    schema_instruction,
)
from tfgrpo.store.activity.runs import RunBudget
from tfgrpo.store.errors import StoreError, TfgrpoError, advice
from tfgrpo.store.exit_codes import NOT_BEGUN
from tfgrpo.wording import money

AMOUNT = re.compile(r"\$?(\d+(?:\.\d*)?|\.\d+)\Z")
TOKENS = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([kKmM]?)\s*tok(?:ens?)?\Z")
SCALE = {"": 1, "k": 1_000, "m": 1_000_000}
PER_MESSAGE = 16
"""More tokens than any chat template puts around a message."""
UNIT = 10**12
"""Parts of a dollar: a millionth of the price of a million tokens is a whole number of them."""
ROOMY = 4
"""So many times the most that a call could take is enough to set aside that most."""
LARGER = "every answer is saved; run the same command with a larger --budget to resume"
FIRST_ANSWER = 128
"""The tokens that an answer gets at least, where nothing is known of such answers."""


class BudgetReached(TfgrpoError):
    """The next call could cost more than is left."""


class BudgetInvalid(TfgrpoError):
    """A budget that cannot be read, or is in dollars where prices are unknown."""

    exit_code = NOT_BEGUN


@dataclass(frozen=True, slots=True)
class Reservation:
    """What is set aside for one call: its amount, and the most tokens that its answer may have."""

    amount: int
    max_tokens: int


@dataclass(slots=True)
class StageSizes:
    """What the calls of a stage have taken: the longest answer, in tokens, and the most tokens
    that a prompt had for each that `prompt_tokens` counts in it, and for each of its bytes."""

    calls: int = 0
    longest: int = 0
    ratio: float = 0.0
    density: float = 0.0

    @property
    def margin(self) -> float:
        """By how much the next call may exceed them: the less, the more is known."""
        return 1.25 + 2.0 / self.calls


class Budget:
    """At most `limit` US dollars, or tokens of prompt and completion when `in_tokens`. `spent` is
    what a resumed run has cost before."""

    def __init__(self, limit: float, *, in_tokens: bool = False, spent: float = 0.0) -> None:
        self.limit = limit
        self.in_tokens = in_tokens
        self._unit = 1 if in_tokens else UNIT
        self._limit = round(limit * self._unit)
        self._spent = round(spent * self._unit)
        self._reserved = self._unrecorded = self._cut_off = self._held = 0
        self._on_disk: AmountOnDisk | None = None
        self._sizes: dict[str, StageSizes] = {}
        self._settled: asyncio.Event | None = None

    @property
    def spent(self) -> float:
        """Dollars or tokens that were spent so far."""
        return self._spent if self.in_tokens else self._spent / self._unit

    @spent.setter
    def spent(self, amount: float) -> None:
        self._spent = round(amount * self._unit)

    @property
    def of_run(self) -> float:
        """What the run has spent so far, wherever."""
        return self.spent

    @property
    def cut_off(self) -> float:
        """Dollars or tokens that are spent for calls that were cut off, and are on no record."""
        return self._cut_off / self._unit

    def keep_in(self, path: Path) -> None:
        """Keeps what is set aside in a file, and counts as spent what is there: what calls that
        were cut off may have cost. Raises StoreError."""
        self._on_disk = AmountOnDisk(path, "tokens" if self.in_tokens else "dollars")
        self._cut_off = self._on_disk.read()
        self._spent += self._cut_off

    def _keep(self) -> None:
        if self._on_disk is not None:
            self._on_disk.write(self._cut_off + self._reserved + self._unrecorded)

    @property
    def on_record(self) -> RunBudget:
        """What the record of a run says of it."""
        return RunBudget(self.limit, self.in_tokens)

    def cost(self, answer: Answer, price: Price | None) -> int:
        """What an answer takes of the budget. Raises BudgetInvalid without a price."""
        if self.in_tokens:
            return answer.prompt_tokens + answer.completion_tokens
        return round(_known(price).cost(answer) * self._unit)

    async def reserve(
        self, request: Request, price: Price | None, *, least: int = 0
    ) -> Reservation:
        """Sets aside what a request could cost, with at least `least` tokens for its answer. Waits
        while calls in flight may give back enough. Raises BudgetReached and StoreError."""
        most = self.most(request, price)
        while (reservation := self._fitting(request, price, most, least)) is None:
            likely = self._likely(request, price, least, most).amount
            following = f"{request.stage} call could cost {self.format(likely)}"
            await self._wait_for(most, following, self._in_flight)
        self._set_aside(reservation.amount)
        return reservation

    async def hold(self, amount: int) -> None:
        """Sets aside an amount for what an attempt asks elsewhere, at least what is the smallest,
        until `release`; waits while others may give back enough. Raises BudgetReached."""
        while self._limit - self._spent - self._reserved < max(amount, 1):
            following = f"attempt could take {self.format(amount)}"
            await self._wait_for(max(amount, 1), following, self._reserved)
        self._set_aside(amount)
        self._held += amount

    def release(self, amount: int) -> None:
        """Gives back what was held. Raises StoreError."""
        self._held -= amount
        self.settle(Reservation(amount, 0), 0)

    @property
    def _in_flight(self) -> int:
        """What is set aside for calls. A call does not wait for what attempts hold: they may wait
        for calls of their own."""
        return self._reserved - self._held

    async def _wait_for(self, wanted: int, following: str, returning: int) -> None:
        """Waits until there may be more to spend, while so much may come back. Raises BudgetReached
        where there will be none."""
        before = self._spent, self._reserved
        if await self._extend(wanted) or before != (self._spent, self._reserved):
            return
        if returning <= 0:
            raise BudgetReached(
                f"the budget of {self.format(round(self.limit * self._unit))} is reached: "
                f"{self._account()}, and the next {following}",
                hint=LARGER,
            )
        self._settled = self._settled or asyncio.Event()
        await self._settled.wait()

    def _set_aside(self, amount: int) -> None:
        self._reserved += amount
        try:
            self._keep()
        except StoreError:  # nothing is sent
            self._reserved -= amount
            raise

    def _account(self) -> str:
        cut_off = f", {self.format(self._cut_off)} of it set aside for calls that were cut off"
        return f"{self.format(self._spent)} spent{cut_off if self._cut_off else ''}"

    async def _extend(self, wanted: int) -> bool:
        """Gets more to spend; returns whether there was any. One process has all there is."""
        return False

    def settle(self, reserved: Reservation, cost: int, unrecorded: int = 0) -> None:
        """Gives back what was reserved for a call, which has cost this; so much of it is in no
        record yet. Raises StoreError."""
        self._reserved -= reserved.amount
        self._spent += cost
        self._unrecorded += unrecorded
        self._keep()
        if self._settled:
            self._settled.set()
            self._settled = None

    def record(self, amount: int) -> None:
        """Takes note that an amount that was in no record is in one by now. Raises StoreError."""
        self._unrecorded -= amount
        self._keep()

    def learn(self, request: Request, answer: Answer) -> None:
        """Takes note of what a call has taken, for those of its stage that follow."""
        sizes = self._sizes.setdefault(request.stage, StageSizes())
        sizes.calls += 1
        sizes.longest = max(sizes.longest, answer.completion_tokens)
        sizes.ratio = max(sizes.ratio, answer.prompt_tokens / max(1, prompt_tokens(request)))
        sizes.density = max(sizes.density, answer.prompt_tokens / max(1, most_tokens(request)))

    def most(self, request: Request, price: Price | None) -> int:
        """The most that one try of a request can cost."""
        return self._amount(most_tokens(request), request.max_tokens, price)

    def check(self, known: bool) -> None:
        """Raises BudgetInvalid when this is in dollars and a price is not `known`."""
        if not (known or self.in_tokens):
            _known(None)

    def format(self, amount: int) -> str:
        """An amount as people read it."""
        return f"{amount:,} tokens" if self.in_tokens else money(amount / self._unit)

    def _fitting(
        self, request: Request, price: Price | None, most: int, least: int
    ) -> Reservation | None:
        left = self._limit - self._spent - self._reserved
        seen = request.stage in self._sizes
        if most <= (left // ROOMY if seen else left):
            return Reservation(most, request.max_tokens)
        likely = self._likely(request, price, least, most)
        if likely.amount <= left:
            return likely
        return self._last(request, price, left, least) if self._in_flight <= 0 else None

    def _likely(self, request: Request, price: Price | None, least: int, most: int) -> Reservation:
        sizes = self._sizes.get(request.stage)
        if sizes is None:
            return Reservation(most, request.max_tokens)
        answer = max(least, ceil(sizes.margin * sizes.longest) + PER_MESSAGE)
        tokens = min(request.max_tokens, answer)
        return Reservation(self._amount(self._prompt(request), tokens, price), tokens)

    def _last(
        self, request: Request, price: Price | None, left: int, least: int
    ) -> Reservation | None:
        sizes = self._sizes.get(request.stage)
        prompt = self._prompt(request)
        if self._amount(prompt, request.max_tokens, price) <= left:
            tokens = request.max_tokens
        else:
            each = self._amount(0, request.max_tokens, price) / max(1, request.max_tokens)
            tokens = int((left - self._amount(prompt, 0, price)) / each) if each else -1
        wanted = max(least, sizes.longest if sizes else FIRST_ANSWER)
        if tokens < min(wanted, request.max_tokens):
            return None
        return Reservation(self._amount(prompt, tokens, price), tokens)

    def _prompt(self, request: Request) -> int:
        """The most tokens that a prompt has, going by those of its stage, or of all stages."""
        sizes = self._sizes.get(request.stage) or self._all_sizes()
        counted, most = prompt_tokens(request), most_tokens(request)
        if sizes is None:
            return most
        # scripts differ in what is counted in them, and languages in their bytes
        tokens = sizes.margin * max(sizes.ratio * counted, sizes.density * most)
        return min(most, ceil(tokens) + PER_MESSAGE)

    def _all_sizes(self) -> StageSizes | None:
        stages = self._sizes.values()
        if not stages:
            return None
        return StageSizes(
            sum(sizes.calls for sizes in stages),
            max(sizes.longest for sizes in stages),
            max(sizes.ratio for sizes in stages),
            max(sizes.density for sizes in stages),
        )

    def _amount(self, prompt: int, completion: int, price: Price | None) -> int:
        cached = prompt if price and (price.cached or 0.0) > price.prompt else 0
        return self.cost(Answer("", "", prompt, cached, completion), price)


def parse(text: str) -> Budget:
    """The budget that a text names: `5.00` or `$5` in dollars, `200000tok`, `1.5Mtok`. Raises
    BudgetInvalid."""
    if match := AMOUNT.match(text.strip()):
        limit, in_tokens = float(match[1]), False
    elif match := TOKENS.match(text.strip()):
        limit, in_tokens = float(match[1]) * SCALE[match[2].lower()], True
    else:
        limit, in_tokens = 0.0, False
    if limit <= 0:
        raise BudgetInvalid(
            f"{text!r} is not a budget", hint="--budget 5.00 is in US dollars, 200000tok in tokens"
        )
    return Budget(limit, in_tokens=in_tokens)


def open_budget(amount: str | None, prices: ModelPrices) -> Budget | None:
    """The budget that a text names, None for none. Raises BudgetInvalid, also without a price."""
    if amount is None:
        return None
    budget = parse(amount)
    budget.check(prices.known)
    return budget


def most_tokens(request: Request) -> int:
    """An upper bound of a prompt's tokens: its bytes, the template around each part, and a schema
    both as one and in words."""
    if request.wire is not None:
        parts = len(request.messages) + len(request.turns) + 1
        return len(json.dumps(request.wire["body"]).encode()) + PER_MESSAGE * parts
    text = sum(len(content.encode()) + PER_MESSAGE for _, content in request.messages)
    text += sum(len(json.dumps(turn)) + PER_MESSAGE for turn in (*request.turns, *request.tools))
    if request.schema:
        text += len(schema_instruction(request.schema)) + len(json.dumps(response_format(request)))
    return text


def _known(price: Price | None) -> Price:
    if price is None:
        raise BudgetInvalid(
            "a budget in dollars needs a price, and the model's is unknown",
            hint="give it in tfgrpo.toml's [prices], or a budget in tokens: --budget 200000tok",
        )
    return price


WIDTH = 40
"""Bytes of the file: one write takes the place of the other, whole."""


class AmountOnDisk:
    """The amount in the file at `path`, in whole units called `unit`; no file is none."""

    def __init__(self, path: Path, unit: str) -> None:
        self._path = path.with_name(f"{path.name}-{unit}")
        self._file: int | None = None

    def read(self) -> int:
        """The amount that was written last. Raises StoreError."""
        try:
            return int(self._path.read_text())
        except FileNotFoundError:
            return 0
        except (OSError, ValueError) as error:
            raise StoreError(
                f"cannot read {self._path}: {error}",
                hint="it has what calls that were cut off may have cost; delete it to discard "
                "that amount",
            ) from error

    def write(self, amount: int) -> None:
        """Keeps an amount, which outlives this process from now on. Raises StoreError."""
        try:
            if self._file is None:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW
                self._file = os.open(self._path, flags, 0o600)
            os.pwrite(self._file, str(amount).ljust(WIDTH).encode(), 0)
        except OSError as error:
            raise StoreError(
                f"cannot write {self._path}: {error.strerror}", hint=advice(error)
            ) from error
        if amount == 0:
            os.close(self._file)
            self._file = None
            with suppress(OSError):  # says nothing that its absence does not
                self._path.unlink()
