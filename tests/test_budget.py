"""A budget is spent and not crossed, whatever answers are like; and nothing waits for ever."""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
import threading
from collections.abc import Callable, Coroutine
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scripted import Reply, ScriptedEndpoint, completion, opened_calls

from tfgrpo.costs.prices import Price
from tfgrpo.model.budget import Budget, BudgetReached, most_tokens
from tfgrpo.model.client import Calls
from tfgrpo.model.endpoint import Answer, Request
from tfgrpo.rendering.token_count import count_tokens
from tfgrpo.store.activity.runs import Call
from tfgrpo.store.errors import StoreError, TfgrpoError
from tfgrpo.wording import money

PRICE = Price(0.27, 1.1, 0.07)
LIMIT = 16_384


def asked(number: int, stage: str = "rollout") -> Request:
    text = f"Problem {number}: " + "How many legs have so many ants? " * (5 + number % 20)
    return Request(stage, (("system", "Answer briefly."), ("user", text)), 0.7, LIMIT)


class Billed:
    """An endpoint that bills what it writes, as answers of random lengths up to max_tokens.

    Every so many answers cannot be used; `told` says whether it tells the usage.
    """

    def __init__(self, seed: int, mean: int, *, unusable: int = 0, told: bool = True) -> None:
        self.prompt = self.completion = self.answers = self.cut = 0
        self._random, self._lock = random.Random(seed), threading.Lock()
        self._mean, self._unusable, self._told = mean, unusable, told

    @property
    def tokens(self) -> int:
        return self.prompt + self.completion

    def __call__(self, sent: dict[str, Any]) -> Reply:
        with self._lock:
            self.answers += 1
            wanted = max(1, round(self._random.expovariate(1 / self._mean)))
            given = min(wanted, sent["max_tokens"])
            self.cut += given < wanted
            words = sum(len(message["content"].split()) for message in sent["messages"])
            prompt = round(words * self._random.uniform(1.1, 1.4)) + 8
            self.prompt, self.completion = self.prompt + prompt, self.completion + given
            number = self.answers
        body = completion("word " * given, finish_reason="length" if given < wanted else "stop")
        body["usage"] = {"prompt_tokens": prompt, "completion_tokens": given}
        if not self._told:
            del body["usage"]
        if self._unusable and number % self._unusable == 0:
            body["choices"] = [] if number % 2 else [{"message": {"content": 5}}]
        return Reply(json.dumps(body).encode())


def spend(calls: Calls, count: int = 5_000) -> list[Any]:
    """Asks until the budget is reached."""

    async def run() -> list[Any]:
        found: list[Any] = []
        numbers = iter(range(count))

        async def work() -> None:
            for number in numbers:
                stage = ("rollout", "summary")[number % 5 == 4]
                try:
                    found.append(await calls.ask(asked(number, stage)))
                except BudgetReached as error:
                    found.append(error)
                    return

        try:
            async with asyncio.timeout(120):
                await asyncio.gather(*(work() for _ in range(12)))
        finally:
            await calls.finish_in_flight()
            await calls.endpoint.close()
        return found

    return asyncio.run(run())


@pytest.mark.parametrize("unusable", [0, 7])
@pytest.mark.parametrize(
    ("limit", "in_tokens", "mean"), [(20_000, True, 60), (0.004, False, 60), (60_000, True, 600)]
)
def test_nine_tenths_of_a_budget_can_be_spent_and_none_of_it_is_crossed(
    tmp_path: Path, limit: float, in_tokens: bool, mean: int, unusable: int
) -> None:
    billed = Billed(7, mean, unusable=unusable)
    budget = Budget(limit, in_tokens=in_tokens)
    options = {"budget": budget, "price": PRICE, "concurrency": 12}
    with (
        ScriptedEndpoint(billed) as server,
        opened_calls(tmp_path, server.base_url, **options) as calls,
    ):
        found = spend(calls)
        assert any(isinstance(one, BudgetReached) for one in found)
        amount = PRICE.of(billed.prompt, 0, billed.completion)
        bill = billed.tokens if in_tokens else amount
        assert bill == pytest.approx(budget.spent)
        assert 0.9 * limit <= bill <= limit, (bill, limit)
        spent = [one.usage for one in calls._runs.spent()]
        assert sum(one.prompt_tokens for one in spent) == billed.prompt
        assert sum(one.completion_tokens for one in spent) == billed.completion
        assert calls.meter.cost == pytest.approx(amount)


SCHEMA = {
    "type": "object",
    "properties": {f"field_{n}": {"type": "string", "maxLength": 90} for n in range(12)},
    "required": [f"field_{n}" for n in range(12)],
}
TOOLS = ({"type": "function", "function": {"name": "look", "parameters": SCHEMA}},)


@pytest.mark.parametrize("refused", [False, True], ids=["as a schema", "in words"])
@pytest.mark.parametrize("extra", [{"schema": SCHEMA}, {"tools": TOOLS}, {"in_words": True}])
def test_all_that_is_sent_counts_where_a_server_tells_no_usage(
    extra: dict[str, Any], refused: bool, tmp_path: Path
) -> None:
    extra = {"schema": SCHEMA, **extra} if "in_words" in extra else extra
    lock, read = threading.Lock(), [0]

    def script(sent: dict[str, Any]) -> Reply:
        if refused and "response_format" in sent:
            return Reply({"error": {"message": "response_format is not supported"}}, 400)
        parts = [message["content"] for message in sent["messages"]]
        parts += [
            json.dumps(part) for part in (sent.get("response_format"), sent.get("tools")) if part
        ]
        body = completion("word " * min(20, sent["max_tokens"]))
        del body["usage"]
        with lock:
            read[0] += sum(count_tokens(part) for part in parts) + 20
        return Reply(json.dumps(body).encode())

    budget = Budget(12_000, in_tokens=True)

    async def run() -> None:
        with (
            ScriptedEndpoint(script) as server,
            opened_calls(tmp_path, server.base_url, budget=budget) as calls,
        ):
            try:
                for number in range(500):
                    await calls.ask(replace(asked(number), max_tokens=40, **extra))
            except BudgetReached:
                pass
            finally:
                await calls.endpoint.close()

    asyncio.run(run())
    assert 0.8 * 12_000 < read[0] <= 12_000
    assert budget.spent <= 12_000


def test_a_server_that_tells_no_usage_is_held_to_a_budget_all_the_same(tmp_path: Path) -> None:
    billed = Billed(3, 60, told=False)
    budget = Budget(20_000, in_tokens=True)
    with (
        ScriptedEndpoint(billed) as server,
        opened_calls(tmp_path, server.base_url, budget=budget, price=PRICE) as calls,
    ):
        spend(calls)
        assert 0.9 * 20_000 <= budget.spent <= 20_000
        assert 0.7 * budget.spent < billed.tokens < 1.3 * budget.spent
        assert calls.meter.estimated == calls.meter.calls > 0
        assert calls.meter.cost is not None
        assert calls.meter.cost > 0


@settings(deadline=None)  # what is imported at the first call takes a while
@example(prices=(0, 0, 6522), limit=1, answers=[(0, 1), (53579, 0)])
@given(
    prices=st.tuples(*(st.integers(0, 10**8) for _ in range(3))),
    limit=st.integers(1, 10**6),
    answers=st.lists(st.tuples(st.integers(0, 10**5), st.integers(0, 10**5)), max_size=20),
)
def test_what_was_set_aside_comes_back_to_the_last_part_of_a_dollar(
    prices: tuple[int, int, int], limit: int, answers: list[tuple[int, int]]
) -> None:
    """Sums of fractions of a dollar would leave a rest, and a call would wait for it for ever."""
    prompt, completion, cached = sorted(price / 10**6 for price in prices)[::-1]
    price = Price(prompt, completion, cached)
    budget = Budget(limit / 10**4)

    async def run() -> None:
        for tokens in answers:
            request = Request("rollout", (("user", "x" * tokens[0]),), 0.7, tokens[1])
            try:
                reserved = await asyncio.wait_for(budget.reserve(request, price), 240)
            except BudgetReached:
                continue
            budget.settle(reserved, budget.cost(Answer("", "", *tokens), price))

    asyncio.run(run())
    assert budget._reserved == 0


@pytest.mark.parametrize("known", [False, True])
def test_the_first_call_of_a_stage_counts_on_a_tokenizer_that_has_a_token_for_each_byte(
    known: bool,
) -> None:
    first, judged = asked(1), asked(2, "judge")
    prompt = most_tokens(judged)
    budget = Budget(prompt + LIMIT // 2, in_tokens=True)
    if known:  # from a call of another stage
        budget.learn(first, Answer("", "stop", most_tokens(first), 0, 9))
    reservation = asyncio.run(budget.reserve(judged, None))
    assert reservation.amount <= budget.limit
    assert reservation.max_tokens == LIMIT // 2
    small = Budget(prompt, in_tokens=True)
    with pytest.raises(BudgetReached):
        asyncio.run(small.reserve(judged, None))


@given(
    prices=st.tuples(*(st.floats(0, 1e4) for _ in range(3))),
    tokens=st.tuples(*(st.integers(0, 10**9) for _ in range(3))),
)
def test_no_answer_costs_less_than_nothing_or_more_than_is_set_aside(
    prices: tuple[float, float, float], tokens: tuple[int, int, int]
) -> None:
    """A cached price above the prompt's, and more cached tokens than the prompt has, included."""
    budget, price = Budget(1.0), Price(*prices)
    prompt, cached, answered = tokens
    cost = budget.cost(Answer("", "", prompt, cached, answered), price)
    assert 0 <= cost <= budget._amount(prompt, answered, price) * (1 + 1e-12) + 1


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_finite_amount_is_read_as_dollars(amount: float) -> None:
    text = money(amount)
    assert text.startswith("-$" if amount < 0 else "$")
    assert float(text.lstrip("-$").replace(",", "")) == pytest.approx(
        abs(amount), rel=0.05, abs=0.005 if abs(amount) >= 0.1 else 0
    )


def test_an_answer_that_the_budget_ended_is_asked_for_again_with_more(tmp_path: Path) -> None:
    """Nine short answers, then one that takes most of what is left."""
    lengths = dict.fromkeys(range(9), 20) | {9: 1_500}

    def script(sent: dict[str, Any]) -> Reply:
        number = int(sent["messages"][-1]["content"].split(":")[0].split()[1])
        wanted = lengths[number]
        given = min(wanted, sent["max_tokens"])
        body = completion("x", finish_reason="length" if given < wanted else "stop")
        body["usage"] = {"prompt_tokens": 100, "completion_tokens": given}
        return Reply(body)

    budget = Budget(8_000, in_tokens=True)
    with (
        ScriptedEndpoint(script) as server,
        opened_calls(tmp_path, server.base_url, budget=budget, concurrency=1) as calls,
    ):

        async def run() -> list[Answer]:
            try:
                return [(await calls.ask(asked(n))).answer for n in range(10)]
            finally:
                await calls.endpoint.close()

        answers = asyncio.run(run())
        assert [one.truncated for one in answers] == [False] * 10
        assert answers[-1].completion_tokens == 1_500
        assert len(server.requests) > 10
        (spent,) = calls._runs.spent()
        tokens = spent.usage.prompt_tokens + spent.usage.completion_tokens
        assert tokens == budget.spent == calls.meter.prompt_tokens + calls.meter.completion_tokens


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0.0, "$0.00"),
        (0.5, "$0.50"),
        (1234.5, "$1,234.50"),
        (0.01, "$0.01"),
        (0.0123, "$0.0123"),
        (0.000_012_3, "$0.000012"),
        (1e-12, "$0.000000000001"),
    ],
)
def test_an_amount_is_told_as_dollars_and_cents_or_as_many_places_as_it_takes(
    amount: float, text: str
) -> None:
    assert money(amount) == text


def test_a_call_that_was_cut_off_counts_as_spent_for_whoever_goes_on(tmp_path: Path) -> None:
    """Its provider may have written the answer to its end, and nothing says so here."""
    kept = tmp_path / "run.aside"
    stalled = threading.Event()

    def script(sent: dict[str, Any]) -> Reply:
        if "Problem 1:" in sent["messages"][-1]["content"]:
            stalled.set()
            return Reply(completion("x"), stall=30)
        return Reply(completion("x"))

    def opened() -> Budget:
        budget = Budget(1_000_000, in_tokens=True)
        budget.keep_in(kept)
        return budget

    async def cut_off(calls: Calls) -> None:
        try:
            await calls.ask(asked(0))
            waiting = asyncio.create_task(calls.ask(asked(1)))
            await asyncio.to_thread(stalled.wait)
            waiting.cancel()
            await calls.finish_in_flight(0)
        finally:
            await calls.endpoint.close()

    budget = opened()
    with (
        ScriptedEndpoint(script) as server,
        opened_calls(tmp_path, server.base_url, budget=budget) as calls,
    ):
        asyncio.run(cut_off(calls))
    most = budget.most(asked(1), None)
    assert budget.spent == 60 + most
    again = opened()
    assert again.spent == again.cut_off == most, "the journal has the other one"


def test_what_is_journalled_is_set_aside_no_more(tmp_path: Path) -> None:
    """An answer that cannot be used is on record with the one that can."""
    answers = iter([Reply({"choices": []}), Reply(completion("x")), Reply({"choices": []})])
    budget = Budget(1_000_000, in_tokens=True)
    budget.keep_in(tmp_path / "run.aside")

    async def ask(calls: Calls) -> None:
        try:
            await calls.ask(asked(0))
            assert not list(tmp_path.glob("run.aside*"))
            with pytest.raises(TfgrpoError):
                await calls.ask(asked(1))
            await calls.finish_in_flight()
        finally:
            await calls.endpoint.close()

    with (
        ScriptedEndpoint(lambda sent: next(answers, Reply({"choices": []}))) as server,
        opened_calls(tmp_path, server.base_url, budget=budget, tries=2) as calls,
    ):
        asyncio.run(ask(calls))
        spent = [one.usage for one in calls._runs.spent()]
        assert budget.spent == sum(one.prompt_tokens + one.completion_tokens for one in spent)
    assert not list(tmp_path.glob("run.aside*"))


def test_a_file_of_what_is_set_aside_that_cannot_be_read_or_written_stops_before_a_call(
    tmp_path: Path,
) -> None:
    kept = tmp_path / "run.aside"
    budget = Budget(1_000_000, in_tokens=True)
    (tmp_path / "run.aside-tokens").write_text("none")
    with pytest.raises(StoreError, match="cannot read"):
        budget.keep_in(kept)
    (tmp_path / "run.aside-tokens").unlink()
    budget.keep_in(kept)
    (tmp_path / "run.aside-tokens").mkdir()
    with pytest.raises(StoreError, match="cannot write"):
        asyncio.run(budget.reserve(asked(1), None))
    assert budget._reserved == 0


@pytest.mark.parametrize("at_once", [1, 4])
def test_attempts_that_hold_a_part_of_the_budget_do_not_wait_for_each_other(
    tmp_path: Path, at_once: int
) -> None:
    """What an attempt holds for what it asks elsewhere comes back when it ends, and its own calls
    come before that."""

    async def attempt(calls: Calls, number: int) -> None:
        give_back = await calls.set_aside(Answer("", "", 200, 0, 200))
        try:
            await calls.ask(replace(asked(number), max_tokens=400))
        finally:
            give_back()

    async def run(calls: Calls) -> None:
        for first in range(0, 40, at_once):
            numbers = range(first, first + at_once)
            await asyncio.gather(*(attempt(calls, number) for number in numbers))

    budget = Budget(3_000, in_tokens=True)
    with (
        ScriptedEndpoint(Billed(1, 60)) as server,
        opened_calls(tmp_path, server.base_url, budget=budget) as calls,
        pytest.raises(BudgetReached),
    ):
        asyncio.run(asyncio.wait_for(run(calls), 60))
    assert 0 < budget.spent <= 3_000
    asyncio.run(budget.hold(1))
    budget.release(1)


def test_a_try_that_was_paid_is_journalled_once_where_the_asker_is_cancelled(
    tmp_path: Path,
) -> None:
    second, answered = threading.Event(), threading.Event()

    def script(sent: dict[str, Any]) -> Reply:
        body = completion("yes")
        body["usage"] = {"prompt_tokens": 1000, "completion_tokens": 5}
        if second.is_set() or server.requests[1:]:
            second.set()
            answered.wait(20)
        else:
            body["choices"] = []
        return Reply(json.dumps(body).encode())

    async def run(calls: Calls) -> None:
        asking = asyncio.create_task(calls.ask(asked(1)))
        await asyncio.to_thread(second.wait, 20)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        answered.set()
        await calls.finish_in_flight()

    with ScriptedEndpoint(script) as server, opened_calls(tmp_path, server.base_url) as calls:
        asyncio.run(run(calls))
    with sqlite3.connect(tmp_path / "store.db") as database:
        (tokens,) = database.execute("select sum(prompt_tokens) from journal").fetchone()
    assert tokens == 2000


def journalled(
    folder: Path,
    script: Callable[[dict[str, Any]], Reply],
    run: Callable[[Calls], Coroutine[Any, Any, None]],
) -> list[int]:
    """Returns the prompt tokens of each call that is on record after `run`, under a budget."""
    with (
        ScriptedEndpoint(script) as server,
        opened_calls(folder, server.base_url, budget=Budget(100_000, in_tokens=True)) as calls,
    ):
        asyncio.run(run(calls))
    with sqlite3.connect(folder / "store.db") as database:
        return [tokens for (tokens,) in database.execute("select prompt_tokens from journal")]


def test_a_try_that_was_paid_is_journalled_once_where_the_asker_goes_while_an_answer_is_kept(
    tmp_path: Path,
) -> None:
    tries = count()

    def script(sent: dict[str, Any]) -> Reply:
        body = completion("yes")
        body["usage"] = {"prompt_tokens": 1000, "completion_tokens": 5}
        if next(tries) == 0:
            body["choices"] = []
        return Reply(json.dumps(body).encode())

    async def run(calls: Calls) -> None:
        keeping, go_on, append = asyncio.Event(), asyncio.Event(), calls._journal.append

        async def slow(call: Call) -> None:
            keeping.set()
            await go_on.wait()
            await append(call)

        calls._journal.append = slow  # type: ignore[method-assign]
        asking = asyncio.create_task(calls.ask(asked(1)))
        await keeping.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        go_on.set()
        await calls.finish_in_flight()
        assert calls._budget is not None
        assert (calls._budget.spent, calls._budget._unrecorded) == (2010, 0)

    assert journalled(tmp_path, script, run) == [2000]


def test_a_try_that_is_paid_after_its_asker_is_gone_is_journalled_though_it_answers_nothing(
    tmp_path: Path,
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def script(sent: dict[str, Any]) -> Reply:
        begun.set()
        go_on.wait(240)
        body = completion("yes") | {"choices": []}
        body["usage"] = {"prompt_tokens": 1000, "completion_tokens": 5}
        return Reply(json.dumps(body).encode())

    async def run(calls: Calls) -> None:
        asking = asyncio.create_task(calls.ask(asked(1)))
        await asyncio.to_thread(begun.wait, 240)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        go_on.set()
        await calls.finish_in_flight(240)
        assert calls._budget is not None
        assert (calls._budget.spent, calls._budget._unrecorded) == (1005, 0)

    assert journalled(tmp_path, script, run) == [1000]
