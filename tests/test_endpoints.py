"""[[endpoints]]: one model behind several addresses."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from scripted import Reply, ScriptedEndpoint, completion, opened_calls, restless, write_problems
from test_calls import request

from tfgrpo.cli.main import tfgrpo as command
from tfgrpo.costs.prices import Price
from tfgrpo.model.budget import Budget
from tfgrpo.model.client import Calls
from tfgrpo.model.endpoint import Answer, Endpoint, EndpointError
from tfgrpo.model.fleet import Fleet, FleetEndpoint, Member, listed_endpoints
from tfgrpo.model.rate_limits import Throttle
from tfgrpo.store import Store

Script = Callable[[dict[str, Any]], str | Reply]


def fleet(servers: Sequence[ScriptedEndpoint], **limits: int) -> list[FleetEndpoint]:
    return [FleetEndpoint(Endpoint("scripted", s.base_url, None, 30.0), **limits) for s in servers]


async def asked(calls: Calls, *texts: str, samples: int = 1) -> list[str]:
    """Asks each text so many times side by side; returns who answered each."""
    try:
        asking = [calls.ask(request(text), sample=n) for text in texts for n in range(samples)]
        return [one.answer.endpoint for one in await asyncio.gather(*asking)]
    finally:
        for member in calls.fleet.members:
            await member.endpoint.close()


def members(count: int, **weights: float) -> list[Member]:
    names = [chr(ord("a") + n) for n in range(count)]
    return [
        Member(Endpoint("m"), Throttle(8, alone=False), None, name, weights.get(name, 1.0))
        for name in names
    ]


# the choice:


def test_a_prompt_stays_where_it_is_and_one_endpoint_less_moves_only_its_own() -> None:
    prompts = [f"library, problem {n}".encode() for n in range(400)]
    four = members(4, d=3.0)
    before = {p: Fleet(four, patience=60).choose(p).name for p in prompts}
    assert before == {p: Fleet(four[::-1], patience=60).choose(p).name for p in prompts}
    shares = Counter(before.values())
    assert shares["d"] > 2 * shares["a"] > 0, "a weight is a share"
    three = Fleet([one for one in four if one.name != "b"], patience=60)
    moved = [p for p in prompts if three.choose(p).name != before[p]]
    assert moved == [p for p in prompts if before[p] == "b"]


def test_the_less_loaded_of_two_is_taken_when_they_are_far_apart() -> None:
    two = members(2)
    at = Fleet(two, patience=60)
    prompt = next(str(n).encode() for n in range(99) if at.choose(str(n).encode()).name == "a")
    two[0].throttle.in_flight = 2
    assert at.choose(prompt).name == "a", "a quarter more is near"
    two[0].throttle.in_flight = 5
    assert at.choose(prompt).name == "b"
    two[1].throttle.in_flight = 4
    assert at.choose(prompt).name == "a", "both are busy"


# what calls meet:


def test_calls_with_one_prompt_go_to_one_endpoint_and_the_keys_do_not_tell_which(
    tmp_path: Path,
) -> None:
    with ScriptedEndpoint(lambda _: "fine") as one, ScriptedEndpoint(lambda _: "fine") as two:
        texts = [f"problem {n}" for n in range(8)]
        with opened_calls(tmp_path, one.base_url, fleet=fleet([one, two], limit=256)) as calls:
            names = asyncio.run(asked(calls, *texts, samples=3))
            groups = [names[n : n + 3] for n in range(0, len(names), 3)]
            assert all(len(set(group)) == 1 for group in groups)
            for n in range(8, 40):  # eight may all be at one of the two
                if len(set(names)) < 2:
                    texts.append(f"problem {n}")
                    names += asyncio.run(asked(calls, texts[-1], samples=3))
            assert set(names) == {one.base_url, two.base_url}
            assert [m.calls for m in calls.fleet.members] == [
                names.count(one.base_url),
                names.count(two.base_url),
            ]
        with opened_calls(tmp_path, "http://127.0.0.1:1/v1") as calls:  # where nobody is
            asyncio.run(asked(calls, *texts, samples=3))
            assert calls.meter.replayed == len(names)


def test_one_that_dies_is_left_at_once_and_tried_again(tmp_path: Path) -> None:
    dead = threading.Event()

    def mortal(_: dict[str, Any]) -> str | Reply:
        return Reply(b"", close=True) if dead.is_set() else "fine"

    with ScriptedEndpoint(mortal) as one, ScriptedEndpoint(lambda _: "fine") as two:
        listed = fleet([one, two], limit=4)
        with opened_calls(tmp_path, one.base_url, fleet=listed) as calls:

            async def living() -> None:
                assert one.base_url in await asked(calls, *(f"a{n}" for n in range(16)))
                dead.set()
                before = len(one.requests)
                names = await asked(calls, *(f"b{n}" for n in range(40)))
                assert set(names) == {two.base_url}
                assert len(one.requests) - before < 40, "it is left, and not asked to the end"
                assert not calls.fleet.members[0].throttle.healthy
                dead.clear()
                for n in range(200):
                    await asyncio.sleep(0.02)
                    if one.base_url in await asked(calls, f"c{n}", f"d{n}"):
                        break
                assert calls.fleet.members[0].throttle.healthy, "it was tried again"

            asyncio.run(living())


def test_one_that_takes_requests_and_never_answers_is_left_while_another_answers(
    tmp_path: Path,
) -> None:
    hung, slow = threading.Event(), threading.Event()

    def silent(_: dict[str, Any]) -> str:
        if hung.is_set():
            slow.wait(60)
        return "fine"

    with ScriptedEndpoint(silent) as one, ScriptedEndpoint(lambda _: "fine") as two:
        listed = [replace(each, silence=0.4) for each in fleet([one, two], limit=4)]
        with opened_calls(tmp_path, one.base_url, fleet=listed) as calls:

            async def session() -> None:
                assert one.base_url in await asked(calls, *(f"a{n}" for n in range(16)))
                hung.set()
                names = await asked(calls, *(f"b{n}" for n in range(40)))
                assert set(names) == {two.base_url}, "what it held went elsewhere"
                assert not calls.fleet.members[0].throttle.healthy
                hung.clear()
                slow.set()
                for n in range(200):
                    await asyncio.sleep(0.02)
                    if one.base_url in await asked(calls, f"c{n}", f"d{n}"):
                        break
                assert calls.fleet.members[0].throttle.healthy, "it was tried again"

            asyncio.run(session())
            assert calls.meter.retries


def test_nobody_is_left_for_being_slow_where_all_are() -> None:
    one, other, third = members(3)
    answer = Answer("fine", "stop")
    at = Fleet([one, other, third], patience=60)
    now = time.monotonic()
    assert not at.is_silent(one, now), "nobody has answered"
    other.count(answer, now - 9)
    assert not at.is_silent(one, now), "what came before took as long"
    other.count(answer, now + 1)
    assert at.is_silent(one, now)
    assert not at.is_silent(other, now), "it has answered"
    other.throttle.shut()
    assert not at.is_silent(one, now), "there is nobody to go to"
    one.count(answer, now - 9)
    third.count(answer, now + 1)
    assert not at.is_silent(one, now), "it is slow, and answers"


def test_one_that_refuses_the_key_is_left_to_others(tmp_path: Path) -> None:
    def refusing(_: dict[str, Any]) -> Reply:
        return Reply({"error": {"message": "no"}}, status=401)

    with (
        ScriptedEndpoint(refusing) as one,
        ScriptedEndpoint(refusing) as two,
        ScriptedEndpoint(lambda _: "fine") as three,
    ):
        with opened_calls(tmp_path, one.base_url, fleet=fleet([one, three])) as calls:
            names = asyncio.run(asked(calls, *(f"a{n}" for n in range(8))))
            assert set(names) == {three.base_url}
        with (
            opened_calls(tmp_path, one.base_url, fleet=fleet([one, two])) as calls,
            pytest.raises(EndpointError, match="refused the key"),
        ):
            asyncio.run(asked(calls, "b"))


def test_where_nobody_is_the_run_stops_as_with_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfgrpo.model.rate_limits.LONGEST_PAUSE", 0.05)
    nobody = [FleetEndpoint(Endpoint("scripted", f"http://127.0.0.1:{port}/v1")) for port in (1, 2)]
    with (
        opened_calls(tmp_path, "http://127.0.0.1:1/v1", fleet=nobody) as calls,
        pytest.raises(EndpointError, match="gave up 2 endpoints without one answer"),
    ):
        asyncio.run(asked(calls, *(f"a{n}" for n in range(8))))


def later(status: int) -> Reply:
    """Asks for a wait of a day; for none where it is broken."""
    headers = {} if status == 500 else {"Retry-After": "86400"}
    return Reply({"error": {"message": "quota"}}, status=status, headers=headers)


@pytest.mark.parametrize(
    ("one", "two", "said"),
    [
        (429, 429, "every endpoint asks for a wait of more than 2 s"),
        (429, 503, "every endpoint asks for a wait of more than 2 s"),
        (429, 500, "gave up 2 endpoints without one answer"),
        (500, 503, "gave up 2 endpoints without one answer"),
    ],
)
def test_a_wait_of_a_day_that_all_ask_for_stops_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one: int, two: int, said: str
) -> None:
    monkeypatch.setattr("tfgrpo.model.rate_limits.LONGEST_PAUSE", 0.05)
    with (
        ScriptedEndpoint(lambda _: later(one)) as first,
        ScriptedEndpoint(lambda _: later(two)) as second,
        opened_calls(tmp_path, "", fleet=fleet([first, second]), patience=2.0) as calls,
        pytest.raises(EndpointError, match=said),
    ):
        asyncio.run(asyncio.wait_for(asked(calls, *"abcdefgh"), 60))


@pytest.mark.parametrize("status", [429, 503])
def test_a_wait_of_a_day_that_one_asks_for_leaves_the_work_to_the_other(
    tmp_path: Path, status: int
) -> None:
    with (
        ScriptedEndpoint(lambda _: later(status)) as first,
        ScriptedEndpoint(lambda _: "yes") as second,
        opened_calls(tmp_path, "", fleet=fleet([first, second]), patience=5.0) as calls,
    ):
        answered = asyncio.run(asyncio.wait_for(asked(calls, *"abcdefgh"), 60))
    assert len(set(answered)) == 1


def test_what_waits_at_a_slow_one_goes_to_one_that_is_free(tmp_path: Path) -> None:
    slow, fast = ScriptedEndpoint(lambda _: "fine", delay=0.4), ScriptedEndpoint(lambda _: "fine")
    with slow as one, fast as two:
        with opened_calls(tmp_path, one.base_url, fleet=fleet([one, two], limit=2)) as calls:
            names = asyncio.run(asked(calls, *(f"a{n}" for n in range(24))))
        assert 2 <= names.count(one.base_url) <= 6


def test_each_answer_costs_what_it_costs_where_it_was_given(tmp_path: Path) -> None:
    with ScriptedEndpoint(lambda _: "fine") as one, ScriptedEndpoint(lambda _: "fine") as two:
        dear, cheap = Price(2e6, 0.0), Price(1e6, 0.0)  # dollars for a million: 2 and 1 a token
        listed = [
            FleetEndpoint(Endpoint("scripted", s.base_url), price=price)
            for s, price in ((one, dear), (two, cheap))
        ]
        budget = Budget(1e6)
        options: dict[str, Any] = {"fleet": listed, "price": dear, "budget": budget}
        for _ in range(2):
            with opened_calls(tmp_path, one.base_url, **options) as calls:
                names = asyncio.run(asked(calls, *(f"a{n}" for n in range(8))))
                expected = 50.0 * (2 * names.count(one.base_url) + names.count(two.base_url))
                assert calls.meter.cost == expected
        assert 400 < budget.spent == expected < 800


# what [[endpoints]] says:


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({}, "base_url: Field required"),
        ({"base_url": "localhost:8000"}, "begins with http"),
        ({"base_url": "http://u:p@h/v1"}, "password"),
        ({"base_url": "http://h/v1", "api_key_env": "sk-1"}, "name of an environment variable"),
        ({"base_url": "http://h/v1", "limit": 0}, "limit: Input should"),
        ({"base_url": "http://h/v1", "limit": True}, "limit: Input should"),
        ({"base_url": "http://h/v1", "weight": -1}, "weight"),
        ({"base_url": "http://h/v1", "price": 3}, "price: Input should"),
        ({"base_url": "http://h/v1", "price": {"prompt": 1}}, "price: "),
        ({"base_url": "http://h/v1", "concurency": 3}, "concurency: Extra inputs"),
    ],
)
def test_what_cannot_be_used_is_named_with_its_number(table: dict[str, Any], words: str) -> None:
    from tfgrpo.model.fleet import EndpointsInvalid

    with pytest.raises(EndpointsInvalid, match=words) as error:
        listed_endpoints({"1": {"base_url": "http://other/v1"}, "2": table}, {})
    assert str(error.value).startswith("[[endpoints]] 2")


# a run:


def settings(*servers: ScriptedEndpoint, more: str = "") -> str:
    tables = [f'[[endpoints]]\nbase_url = "{server.base_url}"\nlimit = 4\n' for server in servers]
    run = '[model]\nmodel = "scripted"\n[train]\nepochs = 2\nbatch_size = 4\ngroup_size = 3\n'
    return run + more + "".join(tables)


def run_command(*arguments: str) -> Result:
    result = CliRunner().invoke(command, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def texts(folder: Path) -> list[list[str]]:
    with Store.open(folder / ".tfgrpo" / "store.db") as store:
        return [[e.text for e in store.library(v)] for v in store.log("main")]


def test_a_run_of_which_an_endpoint_dies_ends_with_the_same_library_and_cost_shows_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = 9
    lock = threading.Lock()

    def mortal(request: dict[str, Any]) -> str | Reply:
        nonlocal left
        with lock:
            left -= 1
        if left < 0:
            return Reply(b"", close=True)
        body = completion(restless(request), model="scripted")
        body["usage"]["prompt_tokens_details"] = {"cached_tokens": 20}
        return Reply(body)

    monkeypatch.setattr("tfgrpo.cli.live_display.PLAIN_SECONDS", 0.01)
    libraries, records = [], []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        write_problems(folder / "p.jsonl", 8)
        monkeypatch.chdir(folder)
        with ScriptedEndpoint(restless) as living, ScriptedEndpoint(mortal) as dying:
            servers = [living] if name == "one" else [dying, living]
            (folder / "tfgrpo.toml").write_text(settings(*servers))
            said = run_command("train", "p.jsonl", "--run", "r").stderr
            libraries.append(texts(folder))
            shown = json.loads(run_command("cost", "r", "--json").output)
            table = run_command("cost", "r").output
            with Store.open(folder / ".tfgrpo" / "store.db") as store:
                run = store.runs.get("r")
                records.append((run.digest, run.config["models"]))
            if name == "two":
                assert len(dying.requests) > 9
                endpoints = {one["endpoint"]: one for one in shown["endpoints"]}
                assert set(endpoints) == {living.base_url, dying.base_url}
                assert endpoints[dying.base_url]["calls"] == 9
                assert endpoints[dying.base_url]["cached_share"] == 0.4
                assert sum(one["calls"] for one in endpoints.values()) == shown["total"]["calls"]
                for server in (living, dying):
                    assert server.base_url.split("/")[2] in table
                assert "40 %" in table
                assert " answered, 40% cached" in said, "live too"
    assert libraries[0] == libraries[1]
    assert records[0] == records[1], "nothing on record says where the model was asked"


def test_the_file_names_an_address_or_lists_endpoints_and_a_flag_wins_over_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_problems(tmp_path / "p.jsonl", 4)
    with ScriptedEndpoint(restless) as one, ScriptedEndpoint(restless) as two:
        both = settings(one).replace("[model]", f'[model]\nbase_url = "{two.base_url}"')
        (tmp_path / "tfgrpo.toml").write_text(both)
        result = CliRunner().invoke(command, ["train", "p.jsonl"])
        assert "names a base_url and lists [[endpoints]]" in str(result.exception)
        (tmp_path / "tfgrpo.toml").write_text(settings(one))
        run_command("train", "p.jsonl", "--base-url", two.base_url, "--epochs", "1")
        assert not one.requests
        run_command("eval", "p.jsonl", "--samples", "1")
        assert not one.requests, "an evaluation asks where the run did"
        run_command("train", "p.jsonl", "--epochs", "1", "--run", "listed")
        assert one.requests
        (tmp_path / "tfgrpo.toml").write_text("")
        result = CliRunner().invoke(command, ["eval", "p.jsonl", "--samples", "2"])
        assert "[[endpoints]], and tfgrpo.toml lists none" in str(result.exception)
