"""Credit: against a simulated policy with known effects, and read from real runs."""

from __future__ import annotations

import hashlib
import json
import random
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from conftest import Cli, problems
from desk import Desk, made
from scripted import ScriptedEndpoint, comparison_of, stage, teachable

from tfgrpo.domains.verifier import Verifier
from tfgrpo.evaluation.credit import (
    Credited,
    Observation,
    RecordedAttempts,
    _chunk,
    _Shown,
    credits,
    estimate_effects,
)
from tfgrpo.rendering.experience_texts import EXAMPLES
from tfgrpo.store import Operation, Store
from tfgrpo.store.activity.runs import RewardRow

EFFECTS = {"helps": 0.3, "harms": -0.25, "idle": 0.0, "a little": 0.05, "idle too": 0.0}


def observations(
    seed: int, *, problems: int = 30, samples: int = 10, late: str = ""
) -> list[Observation]:
    """Returns simulated rollouts; the experience `late` joins the library in the second round."""
    dice = random.Random(seed)
    found = []
    for step in range(2):
        library = [id for id in EFFECTS if step or id != late]
        for problem in range(problems):
            ease = dice.uniform(0.3, 0.55)
            for _ in range(samples):
                without = frozenset(id for id in library if dice.random() < 0.2)
                chance = ease + sum(EFFECTS[id] for id in library if id not in without)
                reward = float(dice.random() < chance)
                stratum = f"{step}/{problem}"
                found.append(Observation(stratum, f"p{problem}", library, without, reward))
    return found


def test_intervals_cover_the_true_effects_at_their_stated_rate() -> None:
    covered = [
        credit.low <= EFFECTS[credit.experience] <= credit.high
        for seed in range(120)
        for credit in estimate_effects(observations(seed))
    ]
    assert len(covered) == 120 * len(EFFECTS)
    assert 0.92 <= fmean(covered) <= 0.98


def test_helpful_and_harmful_experiences_are_told_apart_and_ranked() -> None:
    found = estimate_effects(observations(1, samples=20))
    verdicts = {credit.experience: credit.verdict for credit in found}
    assert (verdicts["helps"], verdicts["harms"]) == ("helpful", "harmful")
    assert found[0].experience == "helps"
    assert found[-1].experience == "harms"


def test_an_experience_without_effect_is_rarely_called_helpful_or_harmful() -> None:
    called = [
        credit.verdict != "inconclusive"
        for seed in range(120)
        for credit in estimate_effects(observations(seed, problems=16, samples=6))
        if credit.experience.startswith("idle")
    ]
    assert fmean(called) < 0.09


@pytest.mark.parametrize("places", [2, 4])
def test_an_experience_without_effect_at_a_few_problems_is_rarely_called_helpful_or_harmful(
    places: int,
) -> None:
    """Of all problems each of six belongs to a few; two attempts of six are shown it."""
    called = []
    for seed in range(80):
        dice, found = random.Random(seed), []
        at = {f"e{n}": dice.sample(range(40), places) for n in range(6)}
        for problem, step in product(range(40), range(2)):
            there, ease = [id for id in at if problem in at[id]], dice.uniform(0.2, 0.8)
            turns = {id: dice.randrange(3) for id in there}
            for sample in range(6):
                out = frozenset(id for id in there if turns[id] != sample % 3)
                reward = float(dice.random() < ease)
                found.append(Observation(f"{step}/{problem}", f"p{problem}", there, out, reward))
        called += [credit.verdict != "inconclusive" for credit in estimate_effects(found)]
    assert len(called) > 400
    assert fmean(called) < 0.075


def test_at_one_problem_alone_nothing_is_known_of_others() -> None:
    made = [t._replace(without=t.without - {"idle"}) for t in observations(5) if t.problem != "p0"]
    made += [t for t in observations(5) if t.problem == "p0"]
    found = {credit.experience for credit in estimate_effects(made)}
    assert found == EFFECTS.keys() - {"idle"}


def test_a_library_that_changes_between_steps_does_not_bias_a_late_experience() -> None:
    effects = [
        next(
            c.effect
            for c in estimate_effects(observations(seed, late="helps"))
            if c.experience == "helps"
        )
        for seed in range(40)
    ]
    assert fmean(effects) == pytest.approx(EFFECTS["helps"], abs=0.03)


def test_shrinkage_pulls_towards_nothing_and_never_past_it() -> None:
    for credit in estimate_effects(observations(3)):
        assert abs(credit.shrunk) <= abs(credit.effect)
        assert credit.shrunk * credit.effect >= 0


def test_counts_are_of_rollouts_that_had_or_lacked_the_experience() -> None:
    made = observations(4, late="a little")
    for credit in estimate_effects(made):
        had = [t for t in made if credit.experience in t.library]
        lacked = sum(credit.experience in t.without for t in had)
        assert (credit.present, credit.absent) == (len(had) - lacked, lacked)


def test_what_was_always_there_has_no_estimate() -> None:
    made = [t._replace(without=t.without - {"idle"}) for t in observations(5)]
    assert "idle" not in {credit.experience for credit in estimate_effects(made)}
    assert estimate_effects([]) == []
    assert estimate_effects(observations(5, problems=1)) == [], (
        "one problem tells nothing about others"
    )


def test_examples_that_were_left_out_one_by_one_tell_nothing_of_all_together() -> None:
    """A person's examples are factors of their own where others are on probation beside them."""
    belongs = json.dumps(["one", EXAMPLES, "lesson"])
    rows = [
        RewardRow(0, "p", sample, 1, 1.0, json.dumps(without), belongs, "")
        for sample, without in enumerate((["one"], [EXAMPLES], [], ["lesson"]))
    ]
    library = _Shown(np.arange(2), {EXAMPLES: 0, "lesson": 1}, {"one"})
    chunk = _chunk(("r", 1), library, rows)
    assert chunk.known.tolist() == [0, 4]
    assert chunk.present[:, 1].tolist() == [1, 1, 1, 0]


HELPS, HARMS, IDLE = "When it is hard, add one.", "When in doubt, stop early.", "Write tidily."


def swayed(request: dict[str, Any]) -> str:
    """A model that one experience helps and another harms; nothing new is ever learned."""
    system, user = request["messages"][0]["content"], request["messages"][-1]["content"]
    match stage(request):
        case "rollout":
            words = user.split()
            a, b = int(words[-3]), int(words[-1].rstrip("?"))
            chance = 0.5 + 0.4 * (HELPS in system) - 0.4 * (HARMS in system)
            coin = hashlib.sha256(f"{user}/{request.get('seed')}".encode()).digest()[0] / 256
            return f"\\boxed{{{a + b + (coin < chance)}}}"
        case "comparison":
            lessons = [{"reason": "r", "text": "When the day is long, be brief."}]
            return json.dumps(comparison_of(lessons))
    return teachable(request)


def trained(tmp_path: Path, verifier: Verifier, server: ScriptedEndpoint, **values: Any) -> Desk:
    more = {"count": 12, "batch_size": 12, "group_size": 30, "epochs": 1, "policy": "probation"}
    desk = made(tmp_path, verifier, **{**more, **values})
    with desk.store() as store:
        texts = (HELPS, HARMS, IDLE)
        store.commit("main", [Operation("ADD", text=t) for t in texts], message="three")
    desk.prepare()
    desk.train(server)
    return desk


def named(found: list[Credited]) -> dict[str, Credited]:
    return {one.experience.text: one for one in found}


def test_what_helps_and_what_harms_is_read_off_the_rollouts(
    tmp_path: Path, verifier: Verifier
) -> None:
    with ScriptedEndpoint(swayed) as server:
        desk = trained(tmp_path, verifier, server)
    with Store.open(desk.path) as store:
        (run,) = store.runs.all()
        left = [one.text for one in store.library()]
        gone = [e for e in store.library("run/step_0") if e.text not in left]
        back = [Operation("ADD", one.id, one.text) for one in gone]
        found = credits(store, store.commit("main", back, message="a person brings them back"))
        rows = [row for row in store.runs.rollouts(run) if row.sample < 30]
    assert [one.experience.text for one in found] == [HELPS, IDLE, HARMS]
    assert HELPS in left
    assert HARMS not in left, "what harms goes"
    verdicts = {t: one.credit.verdict for t, one in named(found).items() if one.credit}
    assert (verdicts[HELPS], verdicts[HARMS]) == ("helpful", "harmful")
    for one in found:
        assert one.credit is not None
        absent = sum(one.experience.id in row.verdict.get("without", ()) for row in rows)
        assert (one.credit.present, one.credit.absent) == (len(rows) - absent, absent)


def test_effects_are_told_apart_by_kind(tmp_path: Path, verifier: Verifier, cli: Cli) -> None:
    """On large numbers the experience that harms elsewhere helps."""

    def by_kind(request: dict[str, Any]) -> str:
        user = request["messages"][-1]["content"]
        if stage(request) != "rollout":
            return swayed(request)
        a, b = int(user.split()[-3]), int(user.split()[-1].rstrip("?"))
        sign = 0.4 if a > 12 else -0.4
        chance = 0.5 + sign * (HARMS in request["messages"][0]["content"])
        coin = hashlib.sha256(f"{user}/{request.get('seed')}".encode()).digest()[0] / 256
        return f"\\boxed{{{a + b + (coin < chance)}}}"

    lines = [json.loads(line) for line in problems(range(1, 25)).splitlines()]
    rows = [row | {"size": "large" if n > 12 else "small"} for n, row in enumerate(lines, 1)]
    (tmp_path / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    cli("init")
    cli("add", HARMS, IDLE)
    assert "no kinds are known" in cli("credit", "--by-kind").stdout
    with ScriptedEndpoint(by_kind) as server:
        how = ("--epochs", "1", "--batch-size", "24", "--group-size", "30", "--policy", "probation")
        where = ("--model", "m", "--base-url", server.base_url)
        cli("train", "problems.jsonl", *how, *where, "--field", "kind=size")
    if HARMS not in cli("export", "--format", "prompt").stdout:  # on average it may look idle
        cli("revert", "HEAD")
    kinds = json.loads(cli("credit", "--by-kind", "--json").stdout)
    verdicts = {
        row["kind"]: {one["text"]: one["verdict"] for one in row["experiences"]} for row in kinds
    }
    assert verdicts["large"][HARMS] == "helpful"
    assert verdicts["small"][HARMS] == "harmful"


def test_an_experience_whose_text_changed_starts_anew(tmp_path: Path, verifier: Verifier) -> None:
    with ScriptedEndpoint(swayed) as server:
        desk = trained(tmp_path, verifier, server)
    with Store.open(desk.path) as store:
        (helps,) = [e for e in store.library() if e.text == HELPS]
        assert named(credits(store, store.tip("main")))[HELPS].credit is not None
        changed = [Operation("MODIFY", helps.id, "When in doubt, go on.")]
        found = named(credits(store, store.commit("main", changed, message="by hand")))
    assert found["When in doubt, go on."].credit is None


def test_a_step_that_begins_meanwhile_waits_for_the_next_time(
    tmp_path: Path, verifier: Verifier
) -> None:
    with ScriptedEndpoint(swayed) as server:
        desk = trained(tmp_path, verifier, server)
    with Store.open(desk.path) as store:
        recorded = RecordedAttempts(store, store.tip("main"))
        before = recorded.estimates()
        columns = "calls, outcome, reward, verdict, time"
        with store.port.transaction():
            store.port.execute(
                f"insert into rollouts (run, step, problem, sample, version, {columns}) "
                f"select run, step + 1, problem, sample, {store.port.last_version()}, {columns} "
                "from rollouts"
            )
        assert recorded.estimates() == before


@pytest.fixture
def folder(tmp_path: Path, cli: Cli) -> Path:
    (tmp_path / "problems.jsonl").write_text(problems(range(12)))
    cli("init")
    cli("add", HELPS, HARMS, IDLE)
    return tmp_path


def test_the_command_ranks_and_blame_shows_it(cli: Cli, folder: Path) -> None:
    assert "no credit is known" in cli("credit").stdout
    assert "effect" not in cli("blame").stdout
    with ScriptedEndpoint(swayed) as server:
        small = ("--epochs", "1", "--group-size", "40", "--model", "m", "--base-url")
        more = ("--policy", "probation")
        cli("train", "problems.jsonl", *small, server.base_url, *more)
    assert HARMS not in cli("show", "--json").stdout
    cli("revert", "HEAD")
    found = json.loads(cli("credit", "--json").stdout)
    assert [one["verdict"] for one in found][::2] == ["helpful", "harmful"]
    said = cli("credit").stdout
    assert said.index(HELPS) < said.index(HARMS)
    assert "chosen by" not in said, "a person wrote them"
    assert "helpful" in said
    assert f"`tfgrpo delete {found[2]['id']}`" in said, "at another revision its label is another"
    assert max(map(len, said.splitlines())) <= 80
    blamed = cli("blame").stdout
    assert "effect -0." in blamed
    (harms,) = [b for b in json.loads(cli("blame", "--json").stdout) if b["text"] == HARMS]
    assert harms["credit"]["verdict"] == "harmful"


@pytest.mark.parametrize("value", [0.7, None], ids=["all alike", "each problem its own"])
def test_equal_rewards_credit_nothing(value: float | None) -> None:
    """A model that earns a part of a point and is moved by nothing: what is left is rounding."""
    ids = [f"e{n}" for n in range(8)]
    for seed in range(30):
        dice = random.Random(seed)
        rewards = {f"p{n}": value or round(dice.random(), 2) for n in range(24)}
        seen = [
            Observation(p, p, ids, frozenset(i for i in ids if dice.random() < 0.5), reward)
            for p, reward in rewards.items()
            for _ in range(6)
        ]
        for one in estimate_effects(seen):
            assert (one.verdict, one.effect, one.shrunk) == ("inconclusive", 0.0, 0.0)


@pytest.mark.parametrize(("problems", "verdict"), [(2, "inconclusive"), (4, "helpful")])
def test_two_problems_that_agree_make_no_effect_sure(problems: int, verdict: str) -> None:
    seen = [
        Observation(f"p{n}", f"p{n}", ["a"], frozenset("a" if sample % 2 else ""), 1.0 - sample % 2)
        for n in range(problems)
        for sample in range(8)
    ]
    (credit,) = estimate_effects(seen)
    assert credit.effect == pytest.approx(1)
    assert credit.verdict == verdict
    assert credit.low < 1 < credit.high
    assert 0.5 < credit.shrunk < 1
