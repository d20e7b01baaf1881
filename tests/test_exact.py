"""Exact rewards: codes for answers, what log-probabilities say of them, attempts on the wire."""

from __future__ import annotations

import asyncio
import json
import math
import re
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli
from hypothesis import given
from hypothesis import strategies as st
from scripted import (
    Reply,
    ScriptedEndpoint,
    completion,
    opened_calls,
    stage,
    teachable,
    with_chances,
)

from tfgrpo.data.problems import Problem
from tfgrpo.domains import choice, json_fields
from tfgrpo.domains.base import Context, Domain, Sampling
from tfgrpo.domains.few_answers import (
    CODES,
    Chances,
    code_answers,
    coded_messages,
    read_chances,
)
from tfgrpo.domains.verifier import Verifier
from tfgrpo.learn.examples import winning_attempts
from tfgrpo.rollout.attempt import EXACT, Group, Rollout, attempt
from tfgrpo.rollout.exact_rewards import exactly
from tfgrpo.runs.attempts import RecordedAttempt, evaluation_attempts
from tfgrpo.runs.dynamics import dynamics
from tfgrpo.runs.run_status import run_figures
from tfgrpo.settings import EvalSettings
from tfgrpo.store import Store

LABELS = ("booking", "damage", "billing", "lost property")
DOMAIN = choice.with_options(json.dumps(LABELS))
SETTINGS = EvalSettings(data="", domain="choice", answers="exact")
PROBLEM = Problem("p", "The saddle is torn.", "damage")
weights = st.dictionaries(st.sampled_from(LABELS), st.floats(0.001, 1), min_size=2)


# codes:


@pytest.mark.parametrize("count", [2, 5, len(CODES)])
def test_over_as_many_samples_as_answers_each_has_had_each_code_once(count: int) -> None:
    answers = [f"answer {n}" for n in range(count)]
    orders = [code_answers(answers, (7, "p"), sample) for sample in range(count)]
    for code in CODES[:count]:
        assert sorted(order[code] for order in orders) == sorted(answers)
    assert code_answers(answers, (7, "p"), count) == orders[0]


def test_orders_differ_by_seed_and_problem_and_not_by_the_order_of_answers() -> None:
    orders = {tuple(code_answers(LABELS, (seed, "p"), 0).values()) for seed in range(60)}
    assert len(orders) == math.factorial(len(LABELS)) or len(orders) > 15
    assert code_answers(LABELS, (1, "p"), 2) == code_answers(LABELS[::-1], (1, "p"), 2)
    with pytest.raises(ValueError, match="21 answers"):
        code_answers([str(n) for n in range(21)], (), 0)


def test_a_coded_prompt_shows_every_answer_and_its_examples_give_letters() -> None:
    codes = code_answers(LABELS, (1, "p"), 1)
    code_of = {answer: code for code, answer in codes.items()}
    prompt = [("system", "S"), ("user", "A cut."), ("assistant", "damage"), ("user", "Torn.")]
    coded = coded_messages(prompt, codes, {"damage": "damage"})
    assert [role for role, _ in coded] == ["system", "user", "assistant", "user"]
    for code, answer in codes.items():
        assert f"{code}: {answer}" in coded[0][1]  # before the first letter that stands for one
        assert f"{code}: {answer}" in coded[3][1]
    assert coded[1:3] == (("user", "A cut."), ("assistant", code_of["damage"]))
    alone = coded_messages([prompt[0], prompt[3]], codes, {})
    assert alone == (("system", "S"), coded[3])


# chances:


def test_chances_are_read_with_and_without_spaces_and_the_rest_is_told() -> None:
    codes = {"A": "yes", "B": "no", "C": "perhaps"}
    listed = [("A", math.log(0.4)), (" A", math.log(0.2)), ("B", math.log(0.2)), ("The", -2.5)]
    found = read_chances(listed, codes)
    assert found is not None
    assert found.by_answer == pytest.approx({"yes": 0.75, "no": 0.25, "perhaps": 0.0})
    assert found.outside == pytest.approx(0.2)
    assert read_chances([("The", -0.1), ("Answer", -3.0)], codes) is None
    assert read_chances([], codes) is None


@given(weights, st.floats(0.05, 2))
def test_a_temperature_keeps_the_order_and_the_sum(given: dict[str, float], at: float) -> None:
    whole = math.fsum(given.values())
    chances = Chances({answer: weight / whole for answer, weight in given.items()}, 0.0)
    assert chances.tempered(1).by_answer == pytest.approx(chances.by_answer)
    found = chances.tempered(at).by_answer
    assert math.fsum(found.values()) == pytest.approx(1)
    for one in given:
        for other in given:
            if given[one] > given[other]:
                assert found[one] >= found[other]
    most = [answer for answer, weight in given.items() if weight == max(given.values())]
    cold = chances.tempered(0).by_answer
    assert {answer for answer, chance in cold.items() if chance} == set(most)


def test_what_is_drawn_is_what_the_chances_say() -> None:
    chances = Chances({"a": 0.6, "b": 0.3, "c": 0.1}, 0.0)
    drawn = [chances.drawn("seed", n) for n in range(2000)]
    for answer, chance in chances.by_answer.items():
        assert drawn.count(answer) / 2000 == pytest.approx(chance, abs=0.04)
    assert drawn[:5] == [chances.drawn("seed", n) for n in range(5)]
    assert chances.mean({"a": 1.0, "b": 0.5, "c": 0.0}) == pytest.approx(0.75)


# attempts on the wire:


def lettered(by_label: dict[str, float], held: float = 1.0) -> Any:
    """Returns a script that has these chances of the labels, and says a label where it is asked
    for one in words."""

    def script(request: dict[str, Any]) -> str | Reply:
        if not request.get("logprobs"):
            return "Label: billing"
        text = "\n".join(message["content"] for message in request["messages"])
        codes = dict(re.findall(r"^([A-T]): (.+)$", text, re.MULTILINE))
        chances = {code: held * by_label.get(label, 0.0) for code, label in codes.items()}
        return Reply(with_chances({**chances, "The": 1 - held}))

    return script


def attempts(
    folder: Path,
    verifier: Verifier,
    script: Any,
    *,
    samples: Sequence[int] = (0, 1, 2, 3),
    temperature: float = 1.0,
    domain: Domain = DOMAIN,
    problem: Problem = PROBLEM,
) -> tuple[list[Rollout], list[dict[str, Any]], list[str]]:
    """Returns attempts at a problem, the requests that they made, and the notes of the model."""
    notes: list[str] = []
    with ScriptedEndpoint(script) as server, opened_calls(folder, server.base_url) as calls:
        calls.endpoint.adaptation.on_note = notes.append

        async def run() -> list[Rollout]:
            acting = exactly(domain, SETTINGS)
            sampling = Sampling(temperature, 64, 3)
            prompt = (("system", "Say which label fits."), ("user", problem.problem))
            contexts = [
                Context(problem, prompt, calls, calls, verifier, sampling, n, (1, "p"))
                for n in samples
            ]
            try:
                return list(await asyncio.gather(*(attempt(acting, one) for one in contexts)))
            finally:
                await calls.endpoint.close()

        found = asyncio.run(run())
        return found, server.requests, notes


CHANCES = {"damage": 0.6, "booking": 0.3, "billing": 0.06, "lost property": 0.04}


def test_an_exact_reward_is_the_chance_of_what_is_right_under_every_order(
    tmp_path: Path, verifier: Verifier
) -> None:
    found, requests, _ = attempts(tmp_path, verifier, lettered(CHANCES, held=0.8))
    assert [one.reward for one in found] == pytest.approx([0.6] * 4)
    assert len({json.dumps(request["messages"]) for request in requests}) == 4 == len(requests)
    for request in requests:
        assert (request["max_tokens"], request["logprobs"], request["top_logprobs"]) == (
            1,
            True,
            20,
        )
    for one in found:
        assert one.response in LABELS
        assert one.answer == one.response
        exact = one.details[EXACT]
        assert exact["chances"] == pytest.approx(CHANCES)
        assert exact["outside"] == pytest.approx(0.2)
        assert exact["own_reward"] == float(one.response == "damage") == one.own_reward
        assert "exactly 0.600" in one.reason


def test_an_exact_reward_is_the_mean_at_the_attempts_temperature(
    tmp_path: Path, verifier: Verifier
) -> None:
    found, _, _ = attempts(tmp_path, verifier, lettered(CHANCES), temperature=0.5)
    right = 0.6**2 / sum(chance**2 for chance in CHANCES.values())
    assert [one.reward for one in found] == pytest.approx([right] * 4)


def test_letters_that_hold_little_are_sampled_and_said_so(
    tmp_path: Path, verifier: Verifier
) -> None:
    found, requests, notes = attempts(tmp_path, verifier, lettered(CHANCES, held=0.3))
    assert [one.response for one in found] == ["Label: billing"] * 4
    assert [one.reward for one in found] == [0.0] * 4
    assert {one.details[EXACT] for one in found} == {
        "no: the letters of the answers have 0.30 of the probability"
    }
    assert len(requests) == 8
    assert [len(one.calls) for one in found] == [2] * 4
    assert notes == []  # the endpoint can; this problem cannot


def test_an_endpoint_that_leaves_them_out_is_asked_once(tmp_path: Path, verifier: Verifier) -> None:
    found, requests, notes = attempts(tmp_path, verifier, lambda _: "Label: damage")
    assert [one.reward for one in found] == [1.0] * 4
    assert sum("logprobs" in request for request in requests) == 1
    assert len(requests) == 5
    assert {one.details[EXACT] for one in found} == {
        "no: the endpoint returns no log-probabilities"
    }
    assert notes == ["scripted returns no log-probabilities: they are not asked for again"]


def test_an_endpoint_that_refuses_them_is_asked_once(tmp_path: Path, verifier: Verifier) -> None:
    def script(request: dict[str, Any]) -> str | Reply:
        if "logprobs" in request:
            return Reply({"error": {"message": "logprobs are not supported"}}, status=400)
        return "Label: damage"

    found, requests, _ = attempts(tmp_path, verifier, script)
    assert [one.reward for one in found] == [1.0] * 4
    assert sum("logprobs" in request for request in requests) == 1


def test_a_call_that_is_journalled_is_not_made_again(tmp_path: Path, verifier: Verifier) -> None:
    script = lettered(CHANCES)
    with ScriptedEndpoint(script) as server, opened_calls(tmp_path, server.base_url) as calls:

        async def run() -> list[Rollout]:
            acting = exactly(DOMAIN, SETTINGS)
            prompt = (("system", "Say which label fits."), ("user", PROBLEM.problem))
            contexts = [
                Context(PROBLEM, prompt, calls, calls, verifier, Sampling(0.7), n, (1, "p"))
                for n in (0, 1, 2, 0, 1, 2)
            ]
            try:
                return [await attempt(acting, one) for one in contexts]
            finally:
                await calls.endpoint.close()

        found = asyncio.run(run())
        assert len(server.requests) == 3  # a sample is a call of its own, and made once
    assert found[:3] == found[3:]
    assert len({one.calls for one in found}) == 3


def test_a_problem_with_one_label_or_too_many_is_sampled(
    tmp_path: Path, verifier: Verifier
) -> None:
    many = choice.with_options(json.dumps(["damage", *(f"label {n}" for n in range(20))]))
    script = lettered(CHANCES)
    found, requests, _ = attempts(tmp_path, verifier, script, domain=many, samples=(0,))
    assert found[0].details[EXACT] == "no: the answers are not few"
    assert not any("logprobs" in request for request in requests)


def test_a_domain_whose_answers_are_open_stays_as_it_is() -> None:
    from tfgrpo.domains import math as mathematics

    assert exactly(mathematics.DOMAIN, SETTINGS) is mathematics.DOMAIN
    assert exactly(DOMAIN, SETTINGS.model_copy(update={"answers": "sampled"})) is DOMAIN
    assert exactly(DOMAIN, SETTINGS.model_copy(update={"mode": "agent"})) is DOMAIN


def rules_of(schema: dict[str, Any]) -> Domain:
    return json_fields.with_options(json.dumps({"json_schema": schema}))


@pytest.mark.parametrize(
    ("properties", "count"),
    [
        ({"month": {"enum": ["May", "June"]}, "paid": {"type": "boolean"}}, 4),
        ({"month": {"enum": ["May", "June", None]}}, 3),
        ({"month": {"enum": ["May", "June"]}, "name": {"type": "string"}}, 0),
        ({"number": {"enum": list(range(20))}}, 20),
        ({"number": {"enum": list(range(7))}, "month": {"enum": ["a", "b", "c"]}}, 0),
        ({}, 0),
    ],
)
def test_objects_are_few_where_every_field_lists_its_values(
    properties: dict[str, Any], count: int
) -> None:
    domain = rules_of({"type": "object", "properties": properties})
    assert domain.answers is not None
    found = domain.answers(PROBLEM)
    assert len(set(found)) == count == len(found)
    for text in found:
        assert set(json.loads(text)) == set(properties)
        problem = Problem("p", "q", text)
        assert domain.at_once is not None
        verdict = domain.at_once(problem, text)
        assert verdict is not None
        assert (verdict.reward, verdict.answer) == (1.0, text)


def test_an_exact_object_earns_the_mean_share_of_its_fields(
    tmp_path: Path, verifier: Verifier
) -> None:
    properties = {"month": {"enum": ["May", "June"]}, "paid": {"type": "boolean"}}
    domain = rules_of({"type": "object", "properties": properties})
    gold = {"month": "May", "paid": True}
    chances = {
        '{"month": "May", "paid": true}': 0.5,
        '{"month": "May", "paid": false}': 0.3,
        '{"month": "June", "paid": true}': 0.2,
    }
    found, _, _ = attempts(
        tmp_path,
        verifier,
        lettered(chances),
        domain=domain,
        problem=Problem("p", "q", json.dumps(gold)),
    )
    assert [one.reward for one in found] == pytest.approx([0.75] * 4)


def test_attempts_do_not_wait_for_each_other_once_the_endpoint_is_known(
    tmp_path: Path, verifier: Verifier
) -> None:
    together = threading.Barrier(7)  # it breaks unless seven requests are in flight at once
    seen: list[int] = []
    script = lettered(CHANCES)

    def waiting(request: dict[str, Any]) -> str | Reply:
        seen.append(1)
        if len(seen) > 1:
            together.wait(timeout=240)
        reply: str | Reply = script(request)
        return reply

    found, _, _ = attempts(tmp_path, verifier, waiting, samples=range(8))
    assert [one.reward for one in found] == pytest.approx([0.6] * 8)
    assert len(seen) == 8


# groups:


def rollout(sample: int, reward: float, own: float | None) -> Rollout:
    details = {} if own is None else {EXACT: {"own_reward": own, "chances": {}, "outside": 0.0}}
    return Rollout(PROBLEM, sample, "x", "answered", reward, "x", "", details=details)


def test_sides_are_told_by_what_texts_earned_and_not_by_their_chances() -> None:
    alike = Group(PROBLEM, tuple(rollout(n, 0.5 + n / 10, 1.0) for n in range(3)))
    assert not alike.mixed
    assert not alike.winners
    assert not alike.losers
    assert alike.rewards == pytest.approx((0.5, 0.6, 0.7))
    mixed = Group(PROBLEM, (rollout(0, 0.4, 1.0), rollout(1, 0.6, 0.0), rollout(2, 0.0, None)))
    assert mixed.mixed
    assert [one.sample for one in mixed.winners] == [0]
    assert [one.sample for one in mixed.losers] == [1, 2]


def test_what_is_right_or_shown_as_the_best_is_told_by_what_texts_earned() -> None:
    mixed = Group(PROBLEM, (rollout(0, 0.4, 1.0), rollout(1, 0.6, 0.0)))
    (best,) = winning_attempts([mixed])
    assert best.evidence["rollouts"] == [[0, 0.4]]
    assert [_recorded(one).is_right for one in mixed.rollouts] == [True, False]


def _recorded(one: Rollout) -> RecordedAttempt:
    verdict = {"details": dict(one.details)}
    return RecordedAttempt(1, "p", one.sample, 1, (), one.outcome, one.reward, verdict)


# whole commands:


def labelled(folder: Path, count: int = 4) -> str:
    """Writes messages with their labels; returns the file's name."""
    rows = [
        {"id": f"m{n}", "problem": f"Message {n}", "answer": LABELS[n % 4]} for n in range(count)
    ]
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return "data.jsonl"


def test_an_evaluation_is_the_mean_chance_and_is_made_once(cli: Cli, tmp_path: Path) -> None:
    data = labelled(tmp_path)
    cli("init")
    with ScriptedEndpoint(lettered(CHANCES)) as server:
        flags = ("--domain", "choice", "--base-url", server.base_url, "--model", "m")
        asked = ("eval", data, *flags, "--samples", "4", "--temperature", "1", "--json")
        first = json.loads(cli(*asked, "--answers", "exact").stdout)
        assert len(server.requests) == 16
        assert all(request.get("logprobs") for request in server.requests)
        assert json.loads(cli(*asked, "--answers", "exact").stdout) == first
        assert len(server.requests) == 16
        table = cli(*asked[:-1], "--answers", "exact").stdout
        assert "pass@" not in table, "a mean of an answer's chances is neither right nor wrong"
        cli(*asked)  # sampled attempts are another evaluation
        assert len(server.requests) == 32
        assert "pass@" in cli(*asked[:-1]).stdout
    with Store.open(tmp_path) as store:
        exact, sampled = (evaluation_attempts(store, one) for one in store.runs.evaluations(0))
    assert {row[1] for row in exact.by_problem().rows} == {"–"}, "scores have no own reward"
    assert {one.side for one in exact.attempts} == {""}
    assert {row[1][1:] for row in sampled.by_problem().rows} == {" of 4"}
    assert '"mean": 0.25' in json.dumps(first)
    (scored,) = first["evaluations"]
    assert (scored["pass"], scored["maj"]) == ({}, None)


def test_a_run_learns_from_exact_attempts_and_resumes(cli: Cli, tmp_path: Path) -> None:
    data = labelled(tmp_path, 6)
    answer = lettered({"damage": 0.3, "booking": 0.3, "billing": 0.2, "lost property": 0.2})

    def script(request: dict[str, Any]) -> str | Reply:
        if stage(request) == "rollout":
            reply: str | Reply = answer(request)
            return reply
        return teachable(request)

    cli("init")
    with ScriptedEndpoint(script) as server:
        flags = ("--domain", "choice", "--base-url", server.base_url, "--model", "m")
        sizes = ("--epochs", "1", "--batch-size", "3", "--group-size", "6", "--temperature", "1")
        cli("train", data, *flags, *sizes, "--answers", "exact")
        made = Counter(json.dumps(one, sort_keys=True) for one in server.requests)
        attempts_made = [one for one in server.requests if stage(one) == "rollout"]
        assert len(attempts_made) == 36
        assert max(made.values()) <= 6 / 4 + 1  # orders come round after four samples
        rows = json.loads(cli("rollouts", "data", "--json").stdout)
        asked = len(server.requests)
        cli("train", data, *flags, *sizes, "--answers", "exact")
        assert len(server.requests) == asked
    assert rows
    sides = Counter(one["side"] for one in rows)
    assert sides["winner"]
    assert sides["loser"]
    with Store.open(tmp_path) as store:
        run = store.runs.get("data")
        series = {one.name: one.values for one in dynamics(store, run)}
        figures = run_figures(store, run, {}).steps
    assert series["mixed groups"] == tuple(one.mixed_share for one in figures), "by sides"
    assert any(share is not None and share < 1 for share in series["mixed groups"])
    for one in rows:
        assert 0.2 <= one["reward"] <= 0.3
        if one["side"]:
            assert (one["side"] == "winner") == (one["verdict"]["answer"] in one["ground_truths"])


def test_a_run_that_is_stopped_repeats_no_attempt_and_has_the_same_sides(
    cli: Cli, tmp_path: Path
) -> None:
    data = labelled(tmp_path, 6)
    answer = lettered({"damage": 0.3, "booking": 0.3, "billing": 0.2, "lost property": 0.2})

    def script(request: dict[str, Any]) -> str | Reply:
        reply: str | Reply = answer(request) if stage(request) == "rollout" else teachable(request)
        return reply

    lists = []
    for budgets in (("5m",), ("900", "5m")):
        folder = tmp_path / str(len(budgets))
        folder.mkdir()
        (folder / data).write_bytes((tmp_path / data).read_bytes())
        store = ("--store", str(folder / "s.db"))
        with ScriptedEndpoint(script) as server:
            cli(*store, "init")
            for amount in budgets:
                asked = ("train", str(folder / data), "--domain", "choice", "--answers", "exact")
                model = ("--base-url", server.base_url, "--model", "m", "--concurrency", "4")
                sizes = ("--epochs", "1", "--batch-size", "3", "--group-size", "6")
                tokens = ("--budget", f"{amount} tokens", "--seed", "1")
                done = cli(*store, *asked, *model, *sizes, *tokens, ok=amount == "5m")
                assert (done.returncode == 0) == (amount == "5m")
            assert sum(stage(one) == "rollout" for one in server.requests) == 36
            rows = json.loads(cli(*store, "rollouts", "data", "--json").stdout)
        kept = ("problem", "sample", "reward", "side", "verdict", "messages", "step")
        lists.append([[row[name] for name in kept] for row in rows])
    assert lists[0] == lists[1]


def test_model_check_tells_whether_the_first_token_has_alternatives(cli: Cli) -> None:
    def script(request: dict[str, Any]) -> str | Reply:
        if request.get("logprobs"):
            return Reply(with_chances({"A": 0.1, "B": 0.9}))
        return Reply(completion("Paris"))

    with ScriptedEndpoint(script) as server:
        said = cli("model", "check", "--base-url", server.base_url, "--model", "m", "--json")
    finding = json.loads(said.stdout)["findings"]["log probabilities"]
    assert finding == {"verdict": "yes", "detail": "2 alternatives to the first token"}
