"""Probation: attempts are shown some candidates, and what is measured to help enters."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import re
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import ROOT, TFGRPO, Cli, environment
from desk import Desk, libraries, steps
from desk import made as made_desk
from scripted import ScriptedEndpoint, comparison_of, stage, write_problems
from store_helpers import fixed

from tfgrpo.cli.blame_credit import _credit_lines
from tfgrpo.data.problems import Problem
from tfgrpo.domains import json_fields, math
from tfgrpo.domains.verifier import Verifier
from tfgrpo.evaluation.credit import credits
from tfgrpo.learn.advantage import Advantages, Effect, Observation
from tfgrpo.learn.assign import CANDIDATES, PAIR, TURNS, Belonging, examples_too_near, hidden
from tfgrpo.learn.candidates import FEWEST, MOST, capacity
from tfgrpo.learn.collector import Collector, Race
from tfgrpo.learn.crossfit import Choosing
from tfgrpo.learn.decide import ByChance, Decisions, Settling, settle
from tfgrpo.learn.examples import AROUND, Example, add_examples, tokens_beside
from tfgrpo.learn.groups import Gathering
from tfgrpo.learn.library_draft import Draft, split_fitting
from tfgrpo.learn.loop import Training
from tfgrpo.learn.new_problems import NewProblems
from tfgrpo.learn.policies.protocol import find_policy
from tfgrpo.learn.pool import Pool
from tfgrpo.learn.reflection import StepOrigin
from tfgrpo.learn.rivals import Nearness, Rivals
from tfgrpo.model.budget import Budget
from tfgrpo.rendering.experience_texts import EXAMPLES, example_text, is_example
from tfgrpo.rendering.retrieve import WHOLE
from tfgrpo.rollout.attempt import CONFIRMING, Group, Rollout
from tfgrpo.runs.attempts import run_attempts
from tfgrpo.runs.group_details import group_view
from tfgrpo.runs.run_versions import pool_versions
from tfgrpo.settings import TrainSettings, build
from tfgrpo.store import ROOT as FIRST
from tfgrpo.store import Experience, Library, Operation, Store, Version
from tfgrpo.store.activity.decisions import decide
from tfgrpo.store.errors import SettingsError

pytestmark = pytest.mark.usefixtures("spoken")

HELPS = "加一：两个数相加以后再加一。"
NOTHING = "Schreib die Zahlen ohne Leerzeichen."
HARMS = "Resta uno del resultado antes de escribirlo."
WORTH = {HELPS: 0.6, NOTHING: 0.0, HARMS: -0.35}
TEXTS = list(WORTH)


def planted(request: dict[str, Any]) -> str:
    """Attempts are right by a coin that lessons of known worth turn; comparisons bring them all."""
    user = request["messages"][-1]["content"]
    if stage(request) == "rollout":
        a, b = (int(word) for word in user.rstrip("?").split() if word.isdigit())
        shown = request["messages"][0]["content"]
        chance = 0.35 + sum(worth for text, worth in WORTH.items() if text in shown)
        coin = hashlib.sha256(f"{user}/{request.get('seed')}".encode()).digest()
        is_right = int.from_bytes(coin[:4], "big") / 2**32 < chance
        return f"Thinking. \\boxed{{{a + b + (1 if is_right else 0)}}}"
    if stage(request) == "summary":
        return "It gave a number."
    coin = hashlib.sha256(f"{user}/{request.get('seed')}".encode()).digest()[0]
    lessons = [{"reason": "because", "text": TEXTS[coin % 3]}]
    return json.dumps(comparison_of(lessons))


@pytest.fixture
def make(tmp_path: Path, verifier: Verifier) -> Callable[..., Desk]:
    values = {"policy": "probation", "count": 16, "batch_size": 8, "group_size": 6, "epochs": 4}
    return partial(made_desk, tmp_path, verifier, **values)


def pool_events(path: Path) -> list[tuple[str, str | None]]:
    """Returns what happened to candidates, in order."""
    with Store.open(path) as store:
        there = store.has_branch("run/candidates")
        versions = [*store.log("run/candidates")][::-1] if there else []
        return [(e.op, e.text) for version in versions for e in store.events(version)]


# a run:


def test_what_helps_enters_with_its_effect_and_nothing_else_does(make: Callable[..., Desk]) -> None:
    desk = make()
    desk.prepare()
    with ScriptedEndpoint(planted) as server:
        desk.train(server)
    (final,) = [[text for _, text in library] for library in libraries(desk.path)[-1:]]
    assert final == [HELPS]
    with Store.open(desk.path) as store:
        (event,) = [e for v in steps(desk.path) for e in store.events(v) if e.op == "ADD"]
        assert event.evidence is not None
        effect, low, high = event.evidence["effect"]
        assert 0 < low < effect < high
        assert effect > 0.15
        assert event.evidence["chance"] >= 0.9
        assert min(event.evidence["attempts"]) >= 3
        assert event.evidence["rollouts"]  # of the group that taught it
        assert store.library("main") == store.library(store.tip("main"))
        (credit,) = credits(store, store.tip("main"))
        assert credit.credit is not None
        assert credit.credit.effect > 0
        assert credit.was_chosen
        assert "chosen by some of these attempts" in " ".join(
            " ".join(_credit_lines([credit])).split()
        )
        rows = [r for r in store.runs.rollouts(store.runs.get("run")) if r.sample < CONFIRMING]
        places = [[one.split()[0] for one in row.verdict.get("belongs", ())] for row in rows]
        listed = run_attempts(store, store.runs.get("run"))
        assert {len(group) for group in listed.groups()} == {6}
        races = sum(map(len, listed.races()))
        assert races > 0
        assert races + sum(map(len, listed.measuring())) == len(listed.attempts) - len(rows)
        assert f"{races} attempts to confirm a lesson are of no group" in listed.by_problem().notes
        *_, (last, *_) = listed.races()
        of_problem = listed.of(step=last.step, problem=last.problem)
        (shown,) = group_view(store, of_problem, sample=last.sample).attempts
        assert shown.attempt == last
        tried = sum(credit.experience.id in there for there in places)
        assert credit.credit.present + credit.credit.absent == tried < len(rows)
    events = pool_events(desk.path)
    assert ("ADD", HARMS) in events
    assert any(op == "DELETE" for op, _ in events)


def test_no_version_of_the_runs_branch_holds_what_was_not_measured(
    make: Callable[..., Desk],
) -> None:
    desk = make(epochs=2)
    desk.prepare()
    with ScriptedEndpoint(planted) as server:
        desk.train(server)
    for library in libraries(desk.path):
        assert {text for _, text in library} <= {HELPS}


def test_the_last_step_proposes_nothing_since_nothing_would_measure_it(
    make: Callable[..., Desk],
) -> None:
    desk = make(count=8, epochs=1)
    desk.prepare()
    with ScriptedEndpoint(planted) as server:
        desk.train(server)
        assert server.stages["comparison"] == 0
    assert libraries(desk.path)[-1] == []


def test_a_run_decides_in_the_last_step_that_its_budget_pays_for(
    make: Callable[..., Desk],
) -> None:
    desk = make(epochs=40)
    desk.prepare()
    budget = Budget(40_000, in_tokens=True)
    with ScriptedEndpoint(planted) as server:
        training = desk.train(server, budget=budget)
        stages = [stage(request) for request in server.requests]
    versions = steps(desk.path)
    assert 3 < len(versions) < len(training.steps)
    assert 0.7 * budget.limit < budget.spent <= budget.limit
    assert set(stages[-desk.settings.batch_size * desk.settings.group_size :]) == {"rollout"}
    assert [text for _, text in libraries(desk.path)[-1]] == [HELPS]
    assert [one.meta.get("over", False) for one in versions[-2:]] == [False, True]
    with Store.open(desk.path) as store:
        assert store.runs.state(store.runs.get("run")) == "finished"
    with ScriptedEndpoint(planted) as server:
        desk.train(server)
        assert server.requests == [], "nothing is left to be done"


@pytest.mark.parametrize("tokens", [None, 40_000, 10**7], ids=["none", "short", "ample"])
def test_lessons_wait_for_right_answers_that_are_known_where_a_budget_is_short(
    make: Callable[..., Desk], tokens: int | None
) -> None:
    desk = make(epochs=8)
    desk.prepare()
    shared = replace(math.DOMAIN, shared_answers=True)
    budget = None if tokens is None else Budget(tokens, in_tokens=True)
    with ScriptedEndpoint(shown_the_way) as server:
        desk.train(server, domain=shared, budget=budget)
        stages = [stage(request) for request in server.requests]
    size = desk.settings.batch_size * desk.settings.group_size
    waits = {None: 0, 40_000: 2, 10**7: 1}[tokens]
    assert waits * size < stages.index("comparison") <= (waits + 1) * size
    if tokens == 40_000:
        prompts = [request["messages"] for request in server.requests[size : 2 * size]]
        assert sum(any(m["role"] == "assistant" for m in one) for one in prompts) == size / 2
    entered = [any(is_example(text) for _, text in one) for one in libraries(desk.path)]
    assert entered[:4] == [False, False, True, True]


def test_a_run_that_was_cut_off_goes_on_to_the_same_library(make: Callable[..., Desk]) -> None:
    whole, cut = (make(name=name, epochs=3) for name in ("whole", "cut"))
    for desk in (whole, cut):
        desk.prepare()
    with ScriptedEndpoint(planted) as server:
        whole.train(server)
    asked = 0

    class CutOff(Exception):
        pass

    def until(request: dict[str, Any]) -> str:
        nonlocal asked
        asked += 1
        return planted(request)

    with ScriptedEndpoint(until) as server:
        from tfgrpo.learn.policies import probation

        learn = probation.Probation.learn

        async def dies(self: Any, step: Any) -> Any:
            if step.number == 3:
                raise CutOff
            return await learn(self, step)

        probation.Probation.learn = dies  # type: ignore[method-assign]
        try:
            with pytest.raises(CutOff):
                cut.train(server)
        finally:
            probation.Probation.learn = learn  # type: ignore[method-assign]
        cut.train(server)
    assert libraries(whole.path) == libraries(cut.path)
    with Store.open(whole.path) as one, Store.open(cut.path) as other:
        assert one.library("run/candidates") == other.library("run/candidates")
        usage = [store.runs.usage(store.runs.get("run")) for store in (one, other)]
    counts = [{stage: one[:5] for stage, one in by_stage.items()} for by_stage in usage]
    assert counts[0] == counts[1]
    assert sum(one.calls for one in usage[1].values()) == asked  # nothing was asked twice


def test_lessons_are_tried_at_their_own_problems_at_once(make: Callable[..., Desk]) -> None:
    two, lock = threading.Event(), threading.Lock()
    waits, met = 0, []

    def together(request: dict[str, Any]) -> str:
        nonlocal waits
        shown = request["messages"][0]["content"]
        if stage(request) == "rollout" and any(text in shown for text in TEXTS):
            with lock:
                waits += 1
                if waits == 2:
                    two.set()
            if not met:
                met.append(two.wait(240))
        return planted(request)

    desk = make(epochs=1)
    desk.prepare()
    with ScriptedEndpoint(together, delay=0.001) as server:
        desk.train(server)
    assert met[0], "the first race waited for another one, and none began"


def test_what_is_learned_follows_from_the_seed_and_the_answers(make: Callable[..., Desk]) -> None:
    first, again = make(name="a", epochs=3), make(name="b", epochs=3)
    other = make(name="c", epochs=3, seed=1)
    with ScriptedEndpoint(planted) as server:
        for number, desk in enumerate((first, again, other)):
            desk.prepare(uid=str(number) * 32)
            desk.train(server)
    one, same, changed = (_without_ids(desk.path) for desk in (first, again, other))
    assert one == same
    assert one != changed


def _without_ids(path: Path) -> list[tuple[Any, ...]]:
    """Returns what happened to candidates and on the run's branch, with each event's figures."""
    with Store.open(path) as store:
        versions = [*[*store.log("run/candidates")][::-1], *steps(path)]
        return [
            (e.op, e.text, *((e.evidence or {}).get(key) for key in ("effect", "attempts")))
            for version in versions
            for e in store.events(version)
        ]


def test_a_persons_edit_on_the_branch_reaches_the_pool(make: Callable[..., Desk]) -> None:
    from tfgrpo.learn.pool import append_to_pool, open_pool

    desk = make()
    desk.prepare()
    with desk.store() as store:
        run = store.runs.get("run")
        store.commit("main", [Operation("ADD", None, "theirs")], message="by hand")
        base = store.tip("main")
        assert [e.text for e in open_pool(store, run, base).library] == ["theirs"]
        append_to_pool(store, run, base, [Operation("ADD", None, "candidate")], "proposed")
        (theirs,) = store.library("main")
        changes = [Operation("MODIFY", theirs.id, "edited"), Operation("ADD", None, "new")]
        store.commit("main", changes, message="by hand")
        pool = open_pool(store, run, store.tip("main"))
        assert {e.text for e in pool.library} == {"edited", "new", "candidate"}
        assert [e.text for e in pool.candidates] == ["candidate"]
        assert store.tip(pool.name).author == f"tfgrpo ({run.config['models']['model']})"
        (_, new) = store.library("main")
        store.commit("main", [Operation("DELETE", new.id)], message="by hand")
        pool = open_pool(store, run, store.tip("main"))
        assert {e.text for e in pool.library} == {"edited", "candidate"}
        assert open_pool(store, run, store.tip("main")).library == pool.library


def test_what_was_measured_of_a_text_is_no_evidence_of_what_a_person_made_of_it(
    make: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, counts = make(examples=False), []
    with desk.store() as store:
        (before,) = store.events(store.commit("main", [fixed(HARMS)], message="m"))
    assert before.experience is not None

    def watches(self: ByChance, effects: Mapping[str, Effect], *_: object) -> Decisions:
        counts.append(sum(effects[before.experience][-2:]))
        if len(counts) == 3:
            with Store.open(desk.path) as store:
                again = Operation("MODIFY", before.experience, HELPS)
                store.commit("main", [again], message="by hand")
        return Decisions((), (), ())

    def chooses(_: object, __: object, choosing: Choosing, *___: object) -> dict[str, object]:
        starts.append(choosing.start)
        return {}

    starts: list[tuple[str, ...]] = []
    monkeypatch.setattr(ByChance, "decide", watches)
    monkeypatch.setattr("tfgrpo.learn.measure.choices", chooses)
    desk.prepare()
    with ScriptedEndpoint(planted) as server:
        desk.train(server)
    assert counts[:5] == [48, 96, 144, 48, 96]
    assert starts == [()], "of neither text is it known what it would cost to lose it"


def test_a_candidate_that_a_person_adds_is_tried_as_the_others(make: Callable[..., Desk]) -> None:
    from tfgrpo.learn.pool import append_to_pool, open_pool

    desk = make()
    desk.prepare()
    with desk.store() as store:
        run = store.runs.get("run")
        append_to_pool(store, run, store.tip("main"), [Operation("ADD", None, "one")], "proposed")
        before = len(pool_versions(store, run))
        store.commit("run/candidates", [Operation("ADD", None, HELPS)], message="by hand")
        assert len(pool_versions(store, run)) == before + 1
        pool = open_pool(store, run, store.tip("main"))
        assert [e.text for e in pool.candidates] == ["one", HELPS]
    with ScriptedEndpoint(planted) as server:
        desk.train(server)
    assert HELPS in {text for _, text in libraries(desk.path)[-1]}
    with Store.open(desk.path) as store:
        run = store.runs.get("run")
        store.move_branch("run/candidates", "main")
        assert pool_versions(store, run) == []
        assert not open_pool(store, run, store.tip("main")).candidates


def test_what_a_person_deletes_while_a_step_is_at_work_is_no_candidate(
    make: Callable[..., Desk],
) -> None:
    desk, lock = make(epochs=2), threading.Lock()
    with desk.store() as store:
        store.commit("main", [Operation("ADD", None, HELPS)], message="by hand")
    desk.prepare()

    def deleted(request: dict[str, Any]) -> str:
        if stage(request) == "comparison":
            with lock, Store.open(desk.path) as store:
                there = [e.id for e in store.library("main") if e.text == HELPS]
                if there and "run/candidates" in store.branches():
                    store.commit("main", [Operation("DELETE", there[0])], message="by hand")
        return planted(request)

    with ScriptedEndpoint(deleted) as server:
        desk.train(server)
    with Store.open(desk.path) as store:
        (theirs,) = store.library("run/step_0")
        events = [e for version in store.log("run/candidates") for e in store.events(version)]
        gone = [e for e in events if e.experience == theirs.id and e.op == "DELETE"]
    assert [event.evidence for event in gone] == [None], "it was no longer there to be measured"


@pytest.mark.parametrize("goes_back", [False, True])
def test_what_a_person_takes_out_between_two_steps_stays_out(
    make: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch, goes_back: bool
) -> None:
    desk, taken_out, step_by_itself = make(examples=False), list[str](), Training._step

    async def step(self: Training, number: int) -> Version:
        version = await step_by_itself(self, number)
        with Store.open(desk.path) as store:
            there = [e.id for e in store.library("main") if e.text == HELPS]
            if there and not taken_out and goes_back:
                store.move_branch("main", "run/step_0")
            elif there and not taken_out:
                store.commit("main", [Operation("DELETE", there[0])], message="by hand")
            taken_out.extend(there)
        return version

    monkeypatch.setattr(Training, "_step", step)
    desk.prepare()
    with ScriptedEndpoint(planted) as server:
        desk.train(server)
    with Store.open(desk.path) as store:
        adds = [e for v in steps(desk.path) for e in store.events(v) if e.op == "ADD"]
        assert goes_back or len(adds) == 1, "it came again under another id"
        there = {e.id for e in (*store.library("main"), *store.library("run/candidates"))}
    assert taken_out[0] not in there


# its parts:


@pytest.mark.parametrize("turns", [PAIR, TURNS])
def test_each_candidate_is_in_one_of_the_attempts_that_take_turns(turns: int) -> None:
    there = Belonging((), tuple(f"c{n}" for n in range(CANDIDATES)), {})
    for problem in ("p1", "p2", "p3"):
        samples = range(2 * turns, 3 * turns)
        out = [hidden(there, 0, (1, problem), sample, turns) for sample in samples]
        assert [sum(c not in one for one in out) for c in there.candidates] == [1] * CANDIDATES


def test_what_is_in_force_is_hidden_from_a_small_share() -> None:
    there = Belonging(("k",), (), {})
    out = sum("k" in hidden(there, 0, (1, f"p{n}"), 0) for n in range(2000))
    assert 0.12 * 2000 < out < 0.18 * 2000


def observations(worth: dict[str, float], groups: int, seed: int) -> list[Observation]:
    """Returns attempts at problems of random difficulty, in groups of six."""
    dice = random.Random(seed)
    found = []
    for group in range(groups):
        base = dice.betavariate(2, 2)
        for _ in range(6):
            shown = frozenset(id for id in worth if dice.random() < 0.5)
            chance = base + sum(worth[id] for id in shown)
            reward = float(dice.random() < min(max(chance, 0.0), 1.0))
            found.append(Observation(str(group), tuple(worth), shown, reward))
    return found


def test_effects_are_recovered_within_groups_of_any_difficulty() -> None:
    worth = {"good": 0.3, "none": 0.0, "bad": -0.3}
    advantages = Advantages()
    advantages.add(observations(worth, 80, 1))
    effects = advantages.effects()
    assert effects["good"].chance > 0.99
    assert effects["bad"].above < 0.01
    assert abs(effects["none"].mean) < 0.1
    assert abs(effects["good"].mean - 0.25) < 0.12


def test_evidence_adds_up_whatever_the_steps() -> None:
    worth = {"good": 0.2, "none": 0.0}
    there = observations(worth, 30, 2)
    whole, parts = Advantages(), Advantages()
    whole.add(there)
    for start in range(0, len(there), 60):
        parts.add(there[start : start + 60])
    for id, effect in whole.effects().items():
        assert effect == pytest.approx(parts.effects()[id])


def test_the_chance_of_what_is_promoted_is_as_high_as_it_says() -> None:
    """Half of what is tried does nothing: of what enters at .95, about one in twenty."""
    wrong = promoted = 0
    claimed = 0.0
    for seed in range(200):
        dice = random.Random(seed)
        worth = {f"c{n}": dice.choice((0.0, dice.gauss(0, 0.25))) for n in range(4)}
        advantages = Advantages()
        advantages.add(observations(worth, 25, seed))
        for id, effect in advantages.effects().items():
            if effect.chance >= 0.95:
                promoted += 1
                claimed += 1 - effect.chance
                wrong += worth[id] <= 0
    assert promoted > 40
    assert wrong / promoted <= claimed / promoted + 0.05


@pytest.mark.parametrize("attempts", [2, 6, 12])
def test_few_problems_say_little_however_many_attempts_there_are_at_each(attempts: int) -> None:
    """Answers that are mostly always the same: what turns them at two problems of ten, either way,
    does nothing on the average."""
    surely = 0
    for seed in range(200):
        dice = random.Random(f"{seed}/{attempts}")
        rows = []
        for problem in range(24):
            usual, turned = dice.random() < 0.7, dice.choice((0, 0, 0, 0, 0, 0, 0, 0, 1, -1))
            for n in range(attempts):
                shown = frozenset(["it"] if n % 2 else [])
                reward = min(max(usual + turned * len(shown), 0), 1)
                rows.append(Observation(f"0/{problem}", ("it",), shown, float(reward)))
        advantages = Advantages()
        advantages.add(rows)
        low, high = advantages.effects()["it"].interval
        surely += low > 0 or high < 0
    assert surely <= 0.07 * 200


def test_examples_are_likelier_to_do_something_than_a_lesson() -> None:
    there = [
        Observation(f"0/{n // 2}", (name,), frozenset([name] * (n % 2)), float(n % 10 in won))
        for name, won in (("lesson", {1, 3, 4, 5}), (EXAMPLES, {1, 3, 4, 5}))
        for n in range(60)
    ]
    several = Advantages()
    several.add(at_its_own(one, one.belongs[0]) for one in there)
    lesson, examples = (several.effects()[name] for name in ("lesson", EXAMPLES))
    assert lesson.mean == pytest.approx(examples.mean)
    assert examples.above == pytest.approx(lesson.above)
    assert lesson.chance < examples.chance < examples.above


def at_its_own(one: Observation, kind: str) -> Observation:
    """Returns an observation at a problem of its kind's own."""
    return one._replace(group=f"{one.group} {kind}")


def test_a_rule_goes_by_effects_alone() -> None:
    def effect(mean: float, chance: float) -> Effect:
        return Effect(mean, 0.1, chance, chance, 20, 20)

    effects = {"a": effect(0.3, 0.99), "b": effect(-0.2, 0.1), "c": effect(0.1, 0.7)}
    found = ByChance().decide(effects, ["a", "b", "c", "new"], ["k"])
    assert found == (("a",), ("b",), ())
    in_force = {"k": effect(-0.2, 0.09), "l": effect(-0.1, 0.2)}
    assert ByChance().decide(in_force, [], ["k", "l", "other"]).dropped == ("k",)


def test_a_pool_that_is_full_is_halved_and_the_better_half_stays() -> None:
    effects = {f"c{n}": Effect(n / 100, 0.1, 0.5, 0.5, 12, 12) for n in range(8)}
    effects["seen little"] = Effect(-0.3, 0.4, 0.5, 0.5, 3, 3)
    found = ByChance(most=6).decide(effects, list(effects), [])
    assert set(found.retired) == {"c0", "c1", "c2", "c3"}


@pytest.mark.parametrize(
    ("attempts", "of_step", "most"),
    [(0, 48, FEWEST), (90, 48, 6), (10_000, 48, 12), (10_000, 500, MOST), (10_000, 4, FEWEST)],
)
def test_no_more_candidates_are_taken_than_attempts_can_decide_about(
    attempts: int, of_step: int, most: int
) -> None:
    assert capacity(attempts, of_step) == most


def test_a_group_of_one_tells_nothing_and_is_refused() -> None:
    with pytest.raises(SettingsError, match="within groups"):
        build(TrainSettings, {"data": "x", "group_size": 1})


# examples:


def shown_the_way(request: dict[str, Any]) -> str:
    """Attempts are mostly right where the prompt has examples, and comparisons teach nothing."""
    user = request["messages"][-1]["content"]
    if stage(request) == "rollout":
        a, b = (int(word) for word in user.rstrip("?").split() if word.isdigit())
        has_examples = any(message["role"] == "assistant" for message in request["messages"])
        coin = hashlib.sha256(f"{user}/{request.get('seed')}".encode()).digest()[0]
        is_right = coin < (250 if has_examples else 40)
        return f"\\boxed{{{a + b + is_right}}}"
    if stage(request) == "summary":
        return "It gave a number."
    return json.dumps(comparison_of([]))


def test_examples_are_one_candidate_and_enter_together(make: Callable[..., Desk]) -> None:
    desk = make()
    desk.prepare()
    with ScriptedEndpoint(shown_the_way) as server:
        desk.train(server)
        prompts = [[m["content"] for m in request["messages"]] for request in server.requests]
    assert all(asked not in before for *before, asked in prompts), "its own answer is not shown"
    (final,) = libraries(desk.path)[-1:]
    assert len(final) == 16, "of all problems: a right answer needs no attempt"
    with Store.open(desk.path) as store:
        added = [e for v in steps(desk.path) for e in store.events(v) if e.op == "ADD"]
    figures = {json.dumps(event.evidence["effect"]) for event in added if event.evidence}
    assert len(figures) == 1
    assert json.loads(figures.pop())[1] > 0.1
    with Store.open(desk.path) as store:
        known = [one.credit for one in credits(store, store.tip("main"))]
    assert len(known) == 16
    assert len(set(known)) == 1, "they were shown or hidden as one"
    assert known[0] is not None
    assert known[0].low > 0 < known[0].absent


def test_of_many_examples_each_attempt_is_shown_the_nearest_of_other_problems(
    make: Callable[..., Desk],
) -> None:
    count = WHOLE + 8
    desk = make(count=count, batch_size=count, epochs=3)
    desk.prepare()
    with ScriptedEndpoint(shown_the_way) as server:
        desk.train(server)
        prompts = [[m["content"] for m in request["messages"]] for request in server.requests]
    turns = {(asked, *before[1:]) for *before, asked in prompts if len(before) > 1}
    assert {len(one) for one in turns} == {1 + 2 * 19}, "not its own, and half of the others"
    assert len(turns) == count, "for each problem the same"
    assert all(asked not in before for *before, asked in prompts), "its own answer is not shown"
    (final,) = libraries(desk.path)[-1:]
    assert len(final) == count


@pytest.mark.parametrize(
    ("words", "count", "most"),
    [(5, 20, 20), (5, 200, 200), (5, 600, 512), (80, 20, 9), (180, 20, 4), (180, 200, 200)],
)
def test_examples_are_as_many_as_fit_or_more_than_a_prompt_has(
    words: int, count: int, most: int
) -> None:
    problems = [Problem(f"p{n}", " ".join([f"word{n}"] * words), "yes") for n in range(count)]
    examples = [Example(p, example_text(p.problem, "yes"), "right", {}) for p in problems]
    added = add_examples(examples, (), 0, StepOrigin("run", 0, {}))
    assert len(added) == most
    there = [one.text or "" for one in added]
    assert len(add_examples(examples, there[:5], 0, StepOrigin("run", 0, {}))) in (most, most - 5)


@pytest.fixture
def with_examples(tmp_path: Path) -> Iterator[tuple[Store, Pool]]:
    """A pool of three examples, of which a person has put the first into the library."""
    with Store.init(tmp_path / "examples.db") as store:
        texts = [example_text(f"What is {n} + 1?", f"The number is {n} and one.") for n in range(3)]
        store.commit("main", [fixed(t) for t in texts[:1]], message="m")
        base = store.tip("main")
        store.commit("main", [fixed(t) for t in texts[1:]], message="m")
        yield store, Pool("r/candidates", base, store.library(base), store.library("main"))


@pytest.mark.parametrize("mean", [-0.2, 0.2])
def test_a_persons_examples_stay_what_they_are_beside_those_on_probation(
    with_examples: tuple[Store, Pool], mean: float
) -> None:
    store, pool = with_examples
    own, *tried = (one.id for one in pool.library)
    assert pool.names == ([EXAMPLES], [own])
    assert pool.factors == {own: (own,), EXAMPLES: tuple(tried)}
    chance = float(mean > 0)
    effects = {EXAMPLES: Effect(mean, 0.05, chance, chance, 60, 60)}
    decided = ByChance().decide(effects, *pool.names)
    assert decided == (((EXAMPLES,), (), ()) if mean > 0 else ((), (EXAMPLES,), ()))
    rivals = Rivals({}, {}, Nearness(store, SimpleNamespace(name="r"), ()))  # type: ignore[arg-type]
    settled = settle(store, Settling(pool, effects, rivals), decided, StepOrigin("run", 1, {}))
    changed = settled.operations if mean > 0 else settled.candidates
    assert [(one.op, one.experience) for one in changed] == [
        ("ADD" if mean > 0 else "DELETE", id) for id in tried
    ]


def test_examples_without_room_are_given_up_where_the_others_enter(
    with_examples: tuple[Store, Pool],
) -> None:
    store, pool = with_examples
    _, first, second = (one.id for one in pool.library)
    effects = {EXAMPLES: Effect(0.2, 0.05, 1.0, 1.0, 60, 60)}
    rivals = Rivals({}, {}, Nearness(store, SimpleNamespace(name="r"), ()))  # type: ignore[arg-type]
    about = Settling(pool, effects, rivals, Draft(pool.library).tokens - 5)
    decided = ByChance().decide(effects, *pool.names)
    settled = settle(store, about, decided, StepOrigin("run", 1, {}))
    assert [(one.op, one.experience) for one in settled.operations] == [("ADD", first)]
    assert [(one.op, one.experience) for one in settled.candidates] == [("DELETE", second)]


@pytest.mark.parametrize("turned", [1, -1])
def test_what_leaves_makes_room_for_what_enters_in_the_same_step(turned: int) -> None:
    old, changed = Experience("old", HARMS, 0), Experience("there", NOTHING, 1)
    library = Library(FIRST, (old, changed))
    operations = [
        Operation("ADD", "new", HARMS),
        Operation("MODIFY", "old", HARMS + HARMS),
        Operation("DELETE", "old"),
    ]
    if turned < 0:
        operations = [operations[2], operations[0]]
    cap = Draft(library).tokens
    assert split_fitting(operations, library, cap) == (operations, [])
    more = Operation("ADD", "more", HELPS)
    assert split_fitting([*operations, more], library, cap) == (operations, [more])


KINDS = (
    "A joiner has {a} boards and buys {b} more. How many boards are there?",
    "Die Bäckerei backt am Morgen {a} und am Abend {b} Brote. Wie viele sind es am ganzen Tag?",
    "停车场上午来了{a}辆车，下午又来了{b}辆车，一天一共来了多少辆车？",
    "El tren sale con {a} viajeros y en la estación suben {b}. ¿Cuántos viajan?",
)


def copied_from(request: dict[str, Any]) -> str:
    """Attempts are mostly right where the prompt has an example of the same kind, else seldom."""
    *before, user = [message["content"] for message in request["messages"]]
    if stage(request) == "rollout":
        a, b = (int(number) for number in re.findall(r"[0-9]+", user))
        words = re.sub(r"[0-9]+", "", user)
        is_near = any(re.sub(r"[0-9]+", "", text) == words for text in before)
        coin = hashlib.sha256(f"{user}/{request.get('seed')}".encode()).digest()[0]
        return f"\\boxed{{{a + b + (coin >= (230 if is_near else 60))}}}"
    return "It gave a number." if stage(request) == "summary" else json.dumps(comparison_of([]))


OTHERS = (
    "Four coins weigh {a} grams together and five others {b}: say the weight of them all.",
    "Im Regal liegen {a} Hefte. Jemand legt {b} dazu.",
)


@pytest.mark.parametrize(
    ("new", "shared"),
    [((), False), (OTHERS, False), (KINDS, False), ((), True), (OTHERS, True)],
    ids=["nobody knows", "unlike", "alike", "labels", "unlike labels"],
)
def test_examples_that_are_good_for_copying_enter_only_where_new_problems_are_as_alike(
    make: Callable[..., Desk], tmp_path: Path, new: tuple[str, ...], shared: bool
) -> None:
    def write(path: Path, kinds: tuple[str, ...], first: int, count: int) -> None:
        rows = [
            {
                "id": f"{first + n}",
                "problem": kinds[n % len(kinds)].format(a=first + 11 + n, b=first + 40 + n),
                "answer": str(2 * first + 51 + 2 * n),
            }
            for n in range(count)
        ]
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        path.write_text("".join(lines), encoding="utf-8")

    gate = tmp_path / "gate.jsonl"
    desk = make(count=32, batch_size=16, epochs=2, **({"gate": str(gate)} if new else {}))
    write(Path(desk.settings.data), KINDS, 0, 32)
    write(gate, new or KINDS, 100, 12)
    desk.prepare()
    with ScriptedEndpoint(copied_from) as server:
        desk.train(server, domain=replace(math.DOMAIN, shared_answers=shared))
    assert {op for op, text in pool_events(desk.path) if text and is_example(text)} == {"ADD"}
    entered = libraries(desk.path)[-1]
    assert bool(entered) is (new == KINDS or (shared and not new))
    assert all(is_example(text) for _, text in entered)


def test_new_problems_are_as_alike_as_is_usual_of_them() -> None:
    def problems(kinds: tuple[str, ...], first: int, count: int = 24) -> list[Problem]:
        texts = (kinds[n % len(kinds)].format(a=first + n, b=first + 9 * n) for n in range(count))
        return [Problem(f"{first}-{n}", text, "") for n, text in enumerate(texts)]

    train = problems(KINDS, 10)
    near, far = (
        NewProblems(train, problems(kinds, 500)).usual(train[0]) for kinds in (KINDS, OTHERS)
    )
    assert near is not None
    assert far is not None
    assert far < 0.4 < 0.7 < near < 1
    for nothing in (NewProblems(train, ()), NewProblems(train[:1], train), NewProblems((), train)):
        assert nothing.usual(train[0]) is None
    assert (NewProblems(train, train[:1] * 5000).usual(train[0]) or 0.0) > 0.7
    mixed = NewProblems(train, problems(KINDS, 700, 50) + problems(OTHERS, 700, 50))
    caps = sorted(mixed.usual(one) or 0.0 for one in train)
    assert caps[0] < 0.4 < 0.7 < caps[-1], "what is nearest to others may have an example as near"

    def left(usual: float | None, problem: Problem = train[0]) -> list[str]:
        texts = [(str(n), example_text(one.problem, "1")) for n, one in enumerate(train)]
        pool = Library(FIRST, tuple(Experience(id, text, 0) for id, text in texts))
        near_ids = examples_too_near(pool, problem.problem, usual)
        return [id for id, _ in texts if id in near_ids]

    assert len(left(None)) == 13, "its own, and the half that is most like it"
    assert left(far) == [str(n) for n in range(0, 24, 4)], "those of its kind"
    assert left(1.0) == ["0"], "its own alone"
    assert len(left(near)) < 6
    alike = NewProblems(train, problems(KINDS, 500))
    assert sum(len(left(alike.usual(one), one)) for one in train) < 1.5 * len(train)


OBJECT = json.dumps({"tool": "book", "arguments": {"room": "4", "from": "11:00"}}, sort_keys=True)


@pytest.mark.parametrize(
    ("answer", "response", "is_alone"),
    [
        ("60", "60", True),
        ("60", "\\boxed{60}", True),
        ("60", "5 * 12 = \\boxed{60}", False),
        ("[0, 1]", "from 0 * 1 = 0 to 1 * 1 = 1: [0, 1]", False),
        ("60", "5 weeks are 60 days, so the bill says \\boxed{60}", False),
        (OBJECT, OBJECT, True),
        (OBJECT, json.dumps(json.loads(OBJECT), indent=4), True),
        (OBJECT, f"```json\n{json.dumps(json.loads(OBJECT), indent=2)}\n```\n", True),
        (
            OBJECT,
            f"First I look for a room, which is free at eleven, and book it: {OBJECT}",
            False,
        ),
        ("戊组", "Label: 戊组", True),
    ],
)
def test_an_attempt_is_an_answer_alone_or_has_work_in_it(
    answer: str, response: str, is_alone: bool
) -> None:
    assert (tokens_beside(answer, response) <= AROUND) is is_alone


ORDERS = [
    {"problem": f"{name} orders {n} {what}s.", "answer": json.dumps({"who": name, "what": what[0]})}
    for n, (name, what) in enumerate(product(("Ann", "Ben", "Cleo", "Dan"), ("mug", "pen")), 2)
]


@pytest.mark.parametrize(
    "layout",
    [
        "{}",
        "```json\n{}\n```",
        "The customer of an order comes first, and what was wanted second: {}",
    ],
)
def test_an_example_of_a_known_answer_is_never_one_that_is_wrong(
    make: Callable[..., Desk], layout: str
) -> None:
    """Attempts have one field of two right at best: where they are answers alone, however they are
    laid out, examples are the right answers, and elsewhere there are none."""

    def half_right(request: dict[str, Any]) -> str:
        if stage(request) != "rollout":
            told = json.dumps(comparison_of([]))
            return "It gave two fields." if stage(request) == "summary" else told
        name = request["messages"][-1]["content"].split()[0] if request["seed"] % 3 else "Nobody"
        return layout.replace("{}", json.dumps({"what": "thing", "who": name}, indent=2))

    desk = make(count=8, epochs=9)
    rows = "".join(json.dumps({"id": row["problem"], **row}) + "\n" for row in ORDERS)
    Path(desk.settings.data).write_text(rows)
    desk.prepare()
    with ScriptedEndpoint(half_right) as server:
        desk.train(server, domain=json_fields.DOMAIN)
    added = [text or "" for _, text in pool_events(desk.path)]
    right = {f"Example: {row['problem']} → {row['answer']}" for row in ORDERS}
    assert {text for text in added if is_example(text)} == (set() if "second" in layout else right)


def test_what_a_person_turned_down_is_not_proposed_again(make: Callable[..., Desk]) -> None:
    desk = make()
    with desk.store() as store:
        base = store.tip("main").digest.hex()
        decide(store, "proposal", "p1", {"base": base})
        change = {"before": None, "after": HELPS}
        decide(store, "proposal", "p1", {"changes": [change]})
    desk.prepare()
    with ScriptedEndpoint(planted) as server:
        desk.train(server)
    assert libraries(desk.path)[-1] == []
    reasons = {one["reason"] for v in steps(desk.path) for one in v.meta.get("refused", ())}
    assert "a person has turned it down" in reasons


def write_careful(folder: Path) -> None:
    """Writes the module of docs/extending.md with a policy of one's own."""
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    code = page.split("<!-- file: my_policies.py -->\n```python\n")[1].split("```")[0]
    (folder / "my_policies.py").write_text(code)


def test_a_rule_of_ones_own_is_a_policy_by_its_name(make: Callable[..., Desk]) -> None:
    """The page's own example, next to the store."""
    desk = make(policy="my_policies:Careful")
    write_careful(desk.folder)
    desk.prepare()
    with ScriptedEndpoint(planted) as server:
        desk.train(server)
    with Store.open(desk.path) as store:
        added = [e for v in steps(desk.path) for e in store.events(v) if e.op == "ADD"]
    assert added
    assert all(event.evidence and event.evidence["chance"] >= 0.99 for event in added)


@pytest.mark.parametrize("folder", [".", "work"])
def test_the_installed_program_finds_a_policy_here_and_next_to_the_store(
    tmp_path: Path, cli: Cli, folder: str
) -> None:
    """Why one step learns nothing is told as of a policy that measures."""
    (work := tmp_path / "work").mkdir()
    write_careful(tmp_path / folder)
    write_problems(work / "data.jsonl", 3)
    with ScriptedEndpoint(planted) as server:
        more = ("--model", "m", "--base-url", server.base_url, "--epochs", "1", "--group-size", "9")

        def printed(policy: str, *options: str) -> str:
            train = ("train", "data.jsonl", *more, "--policy", policy, *options)
            done = subprocess.run(
                [TFGRPO, "--store", tmp_path / "store.db", *train],
                cwd=work,
                env=environment(),
                capture_output=True,
                text=True,
            )
            assert not done.returncode, done.stderr
            return done.stdout

        own = "my_policies:Careful"
        known = ("--store", str(tmp_path / "store.db"), "train", "work/data.jsonl", *more)
        measured = cli(*known, "--policy", "probation", "--estimate").stdout
        assert printed(own, "--estimate") == measured.replace("work/data.jsonl", "data.jsonl")
        assert "a run of one step has none left to measure a lesson in" in printed(own)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("probatoin", "did you mean probation"),
        ("json:nothing", "cannot load"),
        ("json:loads", "is no"),
        ("json.py:loads", "cannot load"),
        ("trail", "there is no policy 'trail'$"),
    ],
)
def test_what_is_no_policy_is_told(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said) as told:
        find_policy(name, tmp_path)
    assert "trial" not in str(told.value.hint)


@pytest.mark.parametrize(
    ("rewards", "above", "wins", "made"),
    [
        ((1.0, 1.0, 0.0), 0.5, True, 2),
        ((None, 1.0, 0.0), 0.4, True, 2),
        ((None, 1.0, None), 0.6, True, 3),
        ((0.0, None, 1.0), 0.6, False, 2),
        ((0.0, 0.0, 1.0), 0.5, False, 2),
        ((None, None, None), 0.1, False, 3),
    ],
)
def test_an_attempt_that_cannot_be_judged_loses_no_race(
    rewards: tuple[float | None, ...], above: float, wins: bool, made: int
) -> None:
    async def attempt(_: int, gathering: Gathering, sample: int, __: object) -> None:
        reward = rewards[sample - CONFIRMING]
        outcome: Any = "answered" if reward is not None else "unverifiable"
        problem = gathering.problem
        gathering.rollouts[sample] = Rollout(problem, sample, "x", outcome, reward, None, "", ())
        tried.append(sample)

    tried: list[int] = []
    collector = SimpleNamespace(here=SimpleNamespace(attempt=attempt), recorded=lambda _: {})
    group = Group(Problem("p", "?", "1"), ())
    race = Race(0, group, 0, "Add one.", Library(FIRST, ()), 3, above)
    assert asyncio.run(Collector.wins(collector, race)) is wins  # type: ignore[arg-type]
    assert len(tried) == made
