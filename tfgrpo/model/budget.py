"""A budget: a run stops before the call that could cross it, and goes on with a larger one.

A call reserves the most it could cost before it is made: its prompt's bytes as tokens, for no
byte-level tokenizer makes more of them, and all of its `max_tokens`. When that does not fit
beside what is spent and what is in flight, it waits for calls in flight, which mostly cost
less than they reserved; when nothing is in flight any more, the run stops.
"""

from __future__ import annotations

import asyncio
import re

from tfgrpo.model.endpoint import Answer, Request, schema_instruction
from tfgrpo.model.prices import ModelPrices, Price
from tfgrpo.store.canonical import canonical
from tfgrpo.store.errors import TfgrpoError

AMOUNT = re.compile(r"\$?(\d+(?:\.\d*)?|\.\d+)\Z")
TOKENS = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([kKmM]?)\s*tok(?:ens?)?\Z")
SCALE = {"": 1, "k": 1_000, "m": 1_000_000}
PER_MESSAGE = 16
"""More tokens than any chat template puts around a message."""


class BudgetReached(TfgrpoError):
    """The next call could cost more than is left."""


class BudgetInvalid(TfgrpoError):
    """A budget that cannot be read, or is in dollars where prices are unknown."""

    exit_code = 2


class Budget:
    """At most `limit` US dollars, or tokens of prompt and completion when `in_tokens`.

    `spent` is what a run that goes on has cost before.
    """

    def __init__(self, limit: float, *, in_tokens: bool = False, spent: float = 0.0) -> None:
        self.limit = limit
        self.in_tokens = in_tokens
        self.spent = spent
        self._reserved = 0.0
        self._settled: asyncio.Event | None = None

    def cost(self, answer: Answer, price: Price | None) -> float:
        """Returns what an answer takes of the budget. Raises BudgetInvalid without a price."""
        if self.in_tokens:
            return answer.prompt_tokens + answer.completion_tokens
        return _known(price).cost(answer)

    async def reserve(self, request: Request, price: Price | None) -> float:
        """Sets the most that a request could cost aside, and returns it.

        Waits while calls in flight may give back enough. Raises BudgetReached.
        """
        worst = self.most(request, price)
        while self.spent + self._reserved + worst > self.limit:
            if self._reserved <= 0:
                raise BudgetReached(
                    f"the budget of {self.format(self.limit)} is reached: "
                    f"{self.format(self.spent)} spent, and the next {request.stage} call could "
                    f"cost {self.format(worst)}",
                    hint="every answer is saved; run the same command with a larger --budget to "
                    "resume",
                )
            self._settled = self._settled or asyncio.Event()
            await self._settled.wait()
        self._reserved += worst
        return worst

    def settle(self, reserved: float, cost: float) -> None:
        """Gives back what was reserved for a call, which has cost this."""
        self._reserved -= reserved
        self.spent += cost
        if self._settled:
            self._settled.set()
            self._settled = None

    def most(self, request: Request, price: Price | None) -> float:
        """Returns the most that one try of a request can cost."""
        return self.cost(Answer("", "", most_tokens(request), 0, request.max_tokens), price)

    def check(self, known: bool) -> None:
        """Raises BudgetInvalid when this is in dollars and a price is not `known`."""
        if not (known or self.in_tokens):
            _known(None)

    def format(self, amount: float) -> str:
        """Returns an amount as people read it."""
        return f"{amount:,.0f} tokens" if self.in_tokens else f"${amount:.4f}".rstrip("0")


def parse(text: str) -> Budget:
    """Returns the budget that a text names: `5.00` or `$5` in dollars, `200000tok`, `1.5Mtok`.

    Raises BudgetInvalid.
    """
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
    """Returns the budget that a text names; None for no text.

    Raises BudgetInvalid, also where it is in dollars and a price is unknown.
    """
    if amount is None:
        return None
    budget = parse(amount)
    budget.check(prices.known)
    return budget


def most_tokens(request: Request) -> int:
    """Returns an upper bound of a prompt's tokens: its bytes, and the template around each part."""
    text = sum(len(content.encode()) + PER_MESSAGE for _, content in request.messages)
    text += sum(len(canonical(turn)) + PER_MESSAGE for turn in (*request.turns, *request.tools))
    return text + (len(schema_instruction(request.schema)) if request.schema else 0)


def _known(price: Price | None) -> Price:
    if price is None:
        raise BudgetInvalid(
            "a budget in dollars needs a price, and the model's is unknown",
            hint="give it in tfgrpo.toml's [prices], or a budget in tokens: --budget 200000tok",
        )
    return price
