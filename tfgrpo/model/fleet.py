"""Several endpoints that serve one model: which of them a call goes to.

Calls with the same prompt go to the same endpoint, so that what it has cached serves a whole group
(rendezvous hashing). Where the loads of the first two are far apart, the less loaded one takes it,
as in Ray Serve. A call that waits goes to an endpoint with nothing left to do.

One that has failed twice without an answer is left, and tried again with one call at a time after
growing pauses. So is one that answers nothing for `SILENCE` seconds while another has answered
later requests. Only when none answers for as long as one alone would be given is the run stopped.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tfgrpo.costs.prices import Price, PriceInvalid
from tfgrpo.costs.prices import find as find_price
from tfgrpo.model.endpoint import Answer, Endpoint, EndpointError, Transient
from tfgrpo.model.rate_limits import Throttle, Turned, turn_of
from tfgrpo.store.errors import TfgrpoError
from tfgrpo.store.exit_codes import NOT_BEGUN
from tfgrpo.toml_text import place_of

FAR = 2.0
"""The load of an endpoint is far from another's beyond so many times that one's, and `SLACK`."""
SLACK = 0.25
"""A share of the calls that an endpoint may have in flight."""
SILENCE = 300.0
"""Seconds without any answer, while others give some, after which an endpoint is left."""
AGAIN = 5
"""One that was left is given a part of that when it is tried again."""
OPTIONAL = "api_key_env, limit, weight, price = {prompt = 0.27, completion = 1.10}, model, silence"


class EndpointsInvalid(TfgrpoError):
    """What [[endpoints]] says cannot be used."""

    exit_code = NOT_BEGUN


@dataclass(frozen=True, slots=True)
class ListedEndpoint:
    """One of [[endpoints]]. `limit` is the most requests in flight (None: the run's `concurrency`),
    `weight` its share, `model` the model's name there. Nothing of it is part of a run's record."""

    base_url: str
    api_key_env: str | None = None
    limit: int | None = None
    weight: float = 1.0
    price: Price | None = None
    model: str | None = None
    silence: float = SILENCE


@dataclass(frozen=True, slots=True)
class FleetEndpoint:
    """An endpoint as it is opened, and what it is listed with. `price` None is not known."""

    endpoint: Endpoint
    limit: int | None = None
    weight: float = 1.0
    price: Price | None = None
    silence: float = SILENCE

    @property
    def name(self) -> str:
        """Its address, by which it is told from others."""
        return self.endpoint.base_url or ""


def listed_endpoints(
    tables: Mapping[str, Any], prices: Mapping[str, Any], model: str = ""
) -> tuple[ListedEndpoint, ...]:
    """What the tables [[endpoints]] say, by their number. Prices not given are those of `model` in
    `prices` and the catalogue. Raises EndpointsInvalid and PriceInvalid."""
    listed = []
    for number, table in tables.items():
        where = f"{place_of(tables)}[[endpoints]] {number}"
        try:
            listed.append(_listed(table, prices, model))
        except ValueError as error:
            raise EndpointsInvalid(
                f"{where}: {error}",
                hint=f'write base_url = "https://…/v1" and, where needed, {OPTIONAL}',
            ) from None
    addresses = [one.base_url for one in listed]
    for address in addresses:
        if addresses.count(address) > 1:
            raise EndpointsInvalid(f"[[endpoints]] names {address} twice", hint="give it a weight")
    return tuple(listed)


def _listed(table: Mapping[str, Any], prices: Mapping[str, Any], model: str) -> ListedEndpoint:
    from pydantic import ValidationError

    from tfgrpo.model.settings import EndpointTable, first_error

    try:
        checked = EndpointTable(**{name.replace("-", "_"): value for name, value in table.items()})
    except ValidationError as error:
        raise ValueError(first_error(error, EndpointTable)) from None
    if checked.price is not None:
        prices = {**prices, checked.base_url: checked.price}
    try:
        price = find_price(checked.model or model, checked.base_url, prices)
    except PriceInvalid:
        if checked.price is None:  # it is of [prices]
            raise
        raise ValueError("price: this is not how one is written") from None
    return ListedEndpoint(**{**checked.model_dump(), "price": price})


def costliest(listed: Sequence[ListedEndpoint]) -> Price | None:
    """A price that none of some endpoints exceeds; None where one is not known."""
    prices = [one.price for one in listed if one.price is not None]
    if not prices or len(prices) < len(listed):
        return None
    cached = [p.prompt if p.cached is None else p.cached for p in prices]
    return Price(max(p.prompt for p in prices), max(p.completion for p in prices), max(cached))


@dataclass(slots=True)
class Member:
    """An endpoint of a fleet at work: its gate, and what came of it here."""

    endpoint: Endpoint
    throttle: Throttle
    price: Price | None
    name: str = ""
    weight: float = 1.0
    calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    silence: float = SILENCE
    heard: float = -math.inf
    """When it last answered anything, by the monotonic clock."""
    served: float = -math.inf
    """When the request had its turn that it answered last, of those that came latest."""

    @property
    def load(self) -> float:
        """What is in flight and waiting, as a share of what may be in flight."""
        return self.throttle.busy / max(1.0, self.throttle.limit)

    @property
    def state(self) -> str:
        """Whether it is `answering`, `failing` or `given up`."""
        if self.throttle.given_up:
            return "given up"
        return "answering" if self.throttle.healthy else "failing"

    def count(self, answer: Answer, entered: float = -math.inf) -> None:
        """Adds an answer that it gave to a request that had its turn then."""
        self.calls += 1
        self.heard, self.served = time.monotonic(), max(self.served, entered)
        self.prompt_tokens += answer.prompt_tokens
        self.cached_tokens += answer.cached_tokens


class Fleet:
    """The endpoints that calls of one kind go to: one alone, or several."""

    def __init__(self, members: Sequence[Member], *, patience: float, concurrency: int = 0) -> None:
        """`concurrency` is what an endpoint without a limit of its own may have in flight."""
        self.members = tuple(members)
        self._limits = [member.throttle.most for member in members]
        self._concurrency = concurrency
        self._by_name = {member.name: member for member in members}
        self._patience = patience

    @property
    def shared(self) -> bool:
        """Whether there are several."""
        return len(self.members) > 1

    @property
    def healthy(self) -> bool:
        """Whether one of them at least answers."""
        return any(member.throttle.healthy for member in self.members)

    @property
    def given_up(self) -> bool:
        """Whether all of them are."""
        return all(member.throttle.given_up for member in self.members)

    def resize(self, concurrency: int) -> None:
        """Has at most so many requests in flight at an endpoint without a limit of its own, and
        the same share of its limit at any other."""
        for member, limit in zip(self.members, self._limits, strict=True):
            most = limit * concurrency // max(1, self._concurrency or limit)
            member.throttle.resize(max(1, most))

    def price(self, name: str, other: Price | None) -> Price | None:
        """The price of the endpoint of that name, `other` where there is none."""
        member = self._by_name.get(name) if name else None
        return other if member is None else member.price

    async def enter(
        self, prompt: bytes, *, again: bool, urgent: bool, avoid: Member | None = None
    ) -> tuple[Member, float]:
        """Waits for a turn; returns where and when it came. `prompt` is common to calls that belong
        together, `avoid` has just failed. Who enters has to `leave`. Raises EndpointError."""
        member = self.choose(prompt, avoid)
        while True:
            try:
                return member, await member.throttle.enter(again=again, urgent=urgent)
            except Turned as turned:
                member = turned.to or self.choose(prompt, member)

    def leave(self, member: Member) -> None:
        """Makes room for the next; one that waits elsewhere, where nobody waits here."""
        member.throttle.leave()
        if self.shared and member.throttle.ready and member.throttle.healthy:
            longest = max(self.members, key=lambda one: one.throttle.waiting)
            if longest is not member and longest.throttle.waiting:
                longest.throttle.turn_away(1, member)

    def troubled(self, member: Member, entered: float, trouble: Transient) -> None:
        """Takes note of a request that failed; an endpoint that fails is left to others."""
        if trouble.kind == "silent":
            member.throttle.shut(entered)
            member.throttle.turn_away()
            return
        if trouble.kind in ("limit", "trouble"):
            member.heard = time.monotonic()
        member.throttle.troubled(entered, trouble)
        latest = time.monotonic() + self._patience
        here = [one for one in self.members if one.throttle.closed_until <= latest]
        if not self.shared or (member in here and member.throttle.healthy):
            return
        if any(one.throttle.healthy for one in here):
            member.throttle.turn_away()
            return
        since = max((one.throttle.failing_since or 0.0 for one in here), default=0.0)
        waited = time.monotonic() - since
        never = all(one.throttle.never_answered for one in here)
        if not here:
            wait = f"a wait of more than {self._patience:g} s"
            self._give_up(f"every endpoint asks for {wait}: {trouble}")
        elif never or waited >= self._patience:
            self._give_up(f"gave up {len(self.members)} endpoints without one answer: {trouble}")

    def _give_up(self, reason: str) -> None:
        for one in self.members:
            one.throttle.give_up(reason)

    def is_silent(self, member: Member, entered: float) -> bool:
        """Whether an endpoint has answered nothing since then, while another has answered what came
        later: where all are slow none is silent."""
        others = (one for one in self.members if one is not member and one.throttle.healthy)
        return member.heard < entered and any(one.served > entered for one in others)

    def left(self, member: Member, error: EndpointError) -> Transient:
        """What is to be tried elsewhere after an endpoint would not serve at all: it is left, and
        tried again later. Raises the error where there is no other."""
        others = [one for one in self.members if one is not member]
        if not any(one.throttle.healthy for one in others):
            raise error
        trouble = Transient(str(error), kind="away")
        member.throttle.shut()
        member.throttle.turn_away()
        return trouble

    def choose(self, prompt: bytes, avoid: Member | None = None) -> Member:
        """The endpoint for calls with that prompt, as things are."""
        if not self.shared:
            return self.members[0]
        fit = [one for one in self.members if one.throttle.takes and one is not avoid]
        fit = fit or [one for one in self.members if one.throttle.healthy and one is not avoid]
        if not fit:
            return min(self.members, key=lambda one: one.throttle.closed_until)
        ranked = sorted(fit, key=lambda one: turn_of(one.name, prompt, one.weight))
        first, second = ranked[0], ranked[min(1, len(ranked) - 1)]
        near = first.load <= FAR * second.load + SLACK and not first.load >= 1 > second.load
        return first if near else second


class Watch:
    """Whether an endpoint of several is silent, looked at while a request waits for it: a limit
    ends early where its endpoint answers nothing that entered then or later."""

    def __init__(
        self, fleet: Fleet, member: Member, entered: float, limit: asyncio.Timeout
    ) -> None:
        self._fleet, self._member = fleet, member
        self._entered, self._limit = entered, limit
        self.seconds = member.silence if member.throttle.healthy else member.silence / AGAIN
        self.ended = False
        """Whether it was, and the limit is over."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self.seconds, self._look) if fleet.shared else None

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        if self._fleet.is_silent(self._member, self._entered):
            self.ended, self._timer = True, None
            self._limit.reschedule(loop.time())
        else:
            self._timer = loop.call_later(self.seconds, self._look)

    def end(self) -> None:
        """Looks no more."""
        if self._timer is not None:
            self._timer.cancel()


def describe_endpoints(members: Sequence[Member]) -> str:
    """The endpoints that share calls, in a line: in flight, answered, cached."""
    by_name: dict[str, list[Member]] = {}
    for member in members:
        by_name.setdefault(member.name, []).append(member)
    return "; ".join(
        f"{urlsplit(name).netloc or name} {_describe(same)}" for name, same in by_name.items()
    )


def _describe(same: Sequence[Member]) -> str:
    states = [member.state for member in same]
    in_flight = sum(member.throttle.in_flight for member in same)
    tokens = sum(member.prompt_tokens for member in same)
    calls = f"{in_flight} in flight, {sum(member.calls for member in same):,} answered"
    if tokens:
        calls += f", {sum(member.cached_tokens for member in same) / tokens:.0%} cached"
    return calls if "answering" in states else f"{states[0]}, {calls}"
