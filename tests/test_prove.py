"""Whether what somebody else's library says helps here is measured, item by item, and on record."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import random
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from conftest import Cli, one_line_error
from scripted import Reply, ScriptedEndpoint, stage, write_problems
from store_helpers import fixed

import tfgrpo
from tfgrpo.evaluation.pair_verdicts import FEWEST, NEEDED, Pair, judge
from tfgrpo.learn.assign import PAIR, Belonging, hidden
from tfgrpo.learn.measure import Attempt, attempts
from tfgrpo.learn.policies.trial import results, verdicts
from tfgrpo.learn.rivals import challenger
from tfgrpo.runs.run_record import candidates
from tfgrpo.store import Store
from tfgrpo.ui.export_pages import page_alone

HELPS, NOTHING, HARMS = "加一：两个数相加以后再加一。", "Schreib ohne Leerzeichen.", "Resta uno."
WORTH = {HELPS: 0.5, NOTHING: 0.0, HARMS: -0.45}


def planted(request: dict[str, Any]) -> str:
    """Attempts are right by a coin that lessons of known worth turn."""
    assert stage(request) == "rollout", "a proof asks for attempts alone"
    user, shown = request["messages"][-1]["content"], request["messages"][0]["content"]
    a, b = (int(word) for word in user.rstrip("?").split() if word.isdigit())
    chance = 0.45 + sum(worth for text, worth in WORTH.items() if text in shown)
    coin = hashlib.sha256(f"{user}/{request.get('seed')}".encode()).digest()
    right = int.from_bytes(coin[:4], "big") / 2**32 < chance
    return f"\\boxed{{{a + b + (1 if right else 0)}}}"


@pytest.fixture
def mine() -> Iterator[ScriptedEndpoint]:
    with ScriptedEndpoint(planted) as running:
        yield running


@pytest.fixture
def prove(cli: Cli, mine: ScriptedEndpoint, tmp_path: Path) -> Callable[..., Any]:
    """Runs `tfgrpo prove` on a model of planted worths; main has the three lessons."""
    write_problems(tmp_path / "problems.jsonl", 16)
    with Store.init(tmp_path, author="tests") as store:
        store.commit("main", map(fixed, WORTH), message="m")

    def run(what: str = "main", *arguments: str, **options: Any) -> Any:
        fixed = ("--data", "problems.jsonl", "--model", "mine", "--base-url", mine.base_url)
        return cli("prove", what, *fixed, *arguments, **options)

    return run


def test_a_proof_that_is_begun_twice_at_once_is_one_trial(
    prove: Callable[..., Any], mine: ScriptedEndpoint, tmp_path: Path, monkeypatch: Any
) -> None:
    """The second begins while the first has its branch, and nothing says yet what is on trial."""
    branched, may = threading.Event(), threading.Event()
    create = Store.create_branch

    def slowly(store: Store, name: str, *given: Any) -> Any:
        created = create(store, name, *given)
        branched.set()
        assert may.wait(240)
        return created

    given = {"store": tmp_path, "model": "mine", "base_url": mine.base_url, "budget": "4000tokens"}
    monkeypatch.setattr(Store, "create_branch", slowly)

    async def first() -> Any:
        return await tfgrpo.prove("main", tmp_path / "problems.jsonl", **given)

    thread = threading.Thread(target=lambda: asyncio.run(first()))
    thread.start()
    assert branched.wait(240)
    try:
        second = prove("main", "--budget", "4000tokens", ok=False)
    finally:
        may.set()
        thread.join(240)
    one_line_error(second, "being begun in another process")
    with Store.open(tmp_path) as store:
        assert [run.name for run in store.runs.all()] == ["proved-main"]
        assert not store.has_branch("proved/main-2")


def test_what_helps_is_on_a_branch_with_its_figures(
    prove: Callable[..., Any], cli: Cli, tmp_path: Path, mine: ScriptedEndpoint
) -> None:
    done = json.loads(prove("main", "--json").stdout)
    verdicts = {one["text"]: one["verdict"] for one in done["experiences"]}
    assert verdicts == {HELPS: "helps", NOTHING: "too small", HARMS: "harms"}
    assert done["branch"] == "proved/main"
    assert done["calls"] < 16 * 2 * 12, "it stopped before all that it might have paid"
    with Store.open(tmp_path) as store:
        (kept,) = store.library("proved/main")
        ids = {e.text: e.id for e in store.library("main")}
        assert (kept.text, kept.id) == (HELPS, ids[HELPS])
        run = store.runs.get(done["run"])
        assert store.runs.state(run) == "finished"
        tried = list(attempts(store, run))
        assert len(tried) == done["calls"]
        assert all(one.without <= set(one.belongs) for one in tried)
        (event,) = [e for e in store.events(store.tip("proved/main")) if e.op == "ADD"]
        assert event.evidence is not None
        effect, low, high = event.evidence["effect"]
        assert 0 < low < effect < high
        assert event.evidence["model"] == "mine"
        assert event.evidence["of"] == store.tip("main").digest.hex()
        seen = {one.text: one for one in candidates(store, run)}
        assert {text: one.state for text, one in seen.items()} == {
            HELPS: "entered",
            NOTHING: "given up",
            HARMS: "given up",
        }
        assert seen[HELPS].measured is not None
        assert seen[HARMS].measured is not None
        assert seen[HARMS].measured.high < 0
        assert store.library("main") == store.library("v1"), "main is as it was"
    page = page_alone(tmp_path / ".tfgrpo/store.db", f"/run/{done['run']}")
    assert "Nothing was learned" not in page
    assert HELPS in page
    assert "entered" in page
    assert "run proved-main, proved on mine" in " ".join(cli("blame", "proved/main").stdout.split())
    asked = mine.stages["rollout"]
    assert json.loads(prove("main", "--json").stdout) == done
    assert mine.stages["rollout"] == asked == done["calls"]
    cli("merge", "proved/main")


def test_a_file_is_proved_without_touching_the_library(
    prove: Callable[..., Any], cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "theirs.md").write_text("".join(f"- {text}\n" for text in (HELPS, HARMS)))
    before = cli("log", "--oneline").stdout
    estimate = prove("theirs.md", "--estimate").stdout
    assert "about" in estimate
    with Store.open(tmp_path) as store:
        assert set(store.branches()) == {"main"}, "an estimate writes nothing"
    one_line_error(prove("theirs.md", "--budget", "a lot", ok=False), "'a lot'", code=2)
    with Store.open(tmp_path) as store:
        assert set(store.branches()) == {"main"}, "nor does what is refused"
    table = prove("theirs.md").stdout
    assert "helps" in table
    assert "harms" in table
    assert "proved/theirs" in table
    assert cli("log", "--oneline").stdout == before
    with Store.open(tmp_path) as store:
        assert [e.text for e in store.library("proved/theirs")] == [HELPS]


def test_problems_that_runs_set_apart_are_no_matter_of_a_proof(
    prove: Callable[..., Any], tmp_path: Path
) -> None:
    """A person may prove a library on what a run held out, or where that is not there any more."""
    (tmp_path / "tfgrpo.toml").write_text(
        '[train]\nheldout = "problems.jsonl"\ngate = "gone.jsonl"\n'
    )
    done = prove("main", "--estimate")
    assert "memorisation" not in done.stderr


def test_a_budget_ends_a_proof_and_what_is_undecided_is_too_small_for_it(
    prove: Callable[..., Any], tmp_path: Path
) -> None:
    done = json.loads(prove("main", "--budget", "4000tok", "--json").stdout)
    verdicts = {one["verdict"] for one in done["experiences"]}
    assert "too small" in verdicts
    with Store.open(tmp_path) as store:
        run = store.runs.get(done["run"])
        assert store.runs.state(run) == "finished"
        assert {one.judged.verdict for one in results(store, run)} == verdicts


def test_a_proof_that_was_cut_off_goes_on_to_the_same_verdicts(
    prove: Callable[..., Any], cli: Cli, mine: ScriptedEndpoint, tmp_path: Path
) -> None:
    store = tmp_path / "cut/.tfgrpo/store.db"
    run_cut = ("--store", str(store))
    shutil.copytree(tmp_path / ".tfgrpo", store.parent)  # ids are what coins are thrown by
    whole = json.loads(prove("main", "--json").stdout)
    asked = 0

    def until(request: dict[str, Any]) -> str | Reply:
        nonlocal asked
        asked += 1
        return planted(request) if asked <= 40 else Reply({"error": {"message": "no"}}, 401)

    fixed = ("prove", "main", "--data", "problems.jsonl", "--model", "mine", "--json")
    with ScriptedEndpoint(until) as gone:
        cut = cli(*run_cut, *fixed, "--base-url", gone.base_url, ok=False)
        assert cut.returncode == 1
        with Store.open(store) as there:
            assert "proved/main" in there.branches()
            assert list(there.library("proved/main")) == [], "what is not decided is not kept"
        asked = -1000
        done = json.loads(cli(*run_cut, *fixed, "--base-url", gone.base_url).stdout)
        answered = asked + 1000
    assert {one["text"]: one["effect"] for one in done["experiences"]} == {
        one["text"]: one["effect"] for one in whole["experiences"]
    }
    assert answered == whole["calls"] - 40


def test_odd_groups_have_no_pairs(prove: Callable[..., Any]) -> None:
    one_line_error(prove("main", "--group-size", "3", ok=False), "in pairs", code=2)


# the test that is looked at after every pair:


def stream(dice: random.Random, effect: float, pairs: int) -> list[Pair]:
    """Pairs at problems of every difficulty."""
    differences = []
    for _ in range(pairs):
        ease = dice.uniform(0.1, 0.9)
        shown = dice.random() < min(max(ease + effect, 0.0), 1.0)
        differences.append(float(shown) - float(dice.random() < ease))
    return apart(differences)


def apart(differences: Sequence[float]) -> list[Pair]:
    """Pairs, each at a problem of its own."""
    return [Pair(f"p{n}", 0, difference) for n, difference in enumerate(differences)]


def test_verdicts_do_not_depend_on_the_order_in_which_attempts_came() -> None:
    dice = random.Random(8)
    attempts = [
        Attempt(step, f"p{n}", sample, ("a",), frozenset("a" if sample == coin else ""), reward)
        for step in range(6)
        for n in range(8)
        for coin in [dice.randrange(2)]
        for sample in (0, 1)
        for reward in [float(dice.random() < (0.7 if sample != coin else 0.3))]
    ]
    there = verdicts(attempts, ["a"], 0)
    assert there["a"].verdict == "helps"
    for _ in range(20):
        dice.shuffle(attempts)
        assert verdicts(attempts, ["a"], 0) == there


def test_what_makes_wrong_attempts_unreadable_is_not_said_to_help() -> None:
    dice, attempts = random.Random(9), []
    for step, n, sample in product(range(12), range(16), (0, 1)):
        shows = sample == (step + n) % 2
        right = dice.random() < 0.35
        lost = shows and not right and dice.random() < 0.8
        hidden_there = frozenset() if shows else frozenset("a")
        reward = None if lost else float(right)
        attempts.append(Attempt(step, f"p{n}", sample, ("a",), hidden_there, reward))
    judged = [one for one in attempts if one.reward is not None]
    assert verdicts(judged, ["a"], 0)["a"].verdict == "helps", "by what could be judged alone"
    assert verdicts(attempts, ["a"], 0)["a"].verdict == "too small"
    assert verdicts(attempts, ["a"], 8)["a"].verdict == "undecided"


def test_what_does_nothing_is_seldom_said_to_help_however_often_one_looks() -> None:
    dice, wrong = random.Random(5), 0
    for _ in range(60):
        pairs = stream(dice, 0.0, 96)
        looks = (judge(pairs[:n], 0).verdict for n in range(2, 97, 2))
        wrong += any(verdict == "helps" for verdict in looks)
    assert wrong <= 5, "more than 5 % of 60 by more than chance"


def test_effects_are_found_and_the_interval_holds_them() -> None:
    dice = random.Random(6)
    for effect, verdict in ((0.4, "helps"), (-0.4, "harms")):
        found = [judge(stream(dice, effect, 200), 0) for _ in range(20)]
        assert all(one.verdict == verdict for one in found)
        assert all(one.low <= one.effect <= one.high for one in found)


@pytest.mark.parametrize("effect", [0.0, 0.6])
def test_what_turns_some_problems_either_way_is_seldom_said_to_help_at_new_ones(
    effect: float,
) -> None:
    """A model that answers a problem always alike: twelve pairs at it tell what one tells."""
    dice, helps = random.Random(7), 0
    for _ in range(40):
        turned = dice.choices((1.0, -1.0, 0.0), (0.2 + effect, 0.2, 0.6 - effect), k=24)
        passes = [Pair(f"p{n}", step, one) for step in range(12) for n, one in enumerate(turned)]
        looks = (judge(passes[:many], 0).verdict for many in (48, 144, 288))
        helps += any(verdict == "helps" for verdict in looks)
    assert helps >= 30 if effect else helps <= 4, helps


@pytest.mark.parametrize(
    ("problems", "verdict"), [(2, "too small"), (3, "too small"), (4, "helps")]
)
def test_few_problems_say_nothing_of_new_ones(problems: int, verdict: str) -> None:
    pairs = [Pair(f"p{n % problems}", n // problems, 1.0) for n in range(40)]
    assert judge(pairs, 0)[:2] == (verdict, 1.0)


def test_a_proof_waits_for_the_problems_of_its_first_pass() -> None:
    """Problems that differ are given up once all were seen twice, and not while others come."""
    turned = [1.0, -1.0] * 8
    first = [Pair(f"p{n}", n // 8, one) for n, one in enumerate(turned) for _ in range(4)]
    assert judge(first, 10_000).verdict == "undecided"
    second = [pair._replace(step=2 + pair.step) for pair in first]
    assert judge([*first, *second], 10_000).verdict == "too small"


@pytest.mark.parametrize(("worth", "least", "most"), [(0.5, -0.02, 0.02), (0.425, -0.12, -0.03)])
def test_another_wording_is_compared_with_the_one_before_alone(
    worth: float, least: float, most: float
) -> None:
    """The wording in force is worth .5, and hidden from some attempts as in training: a pair whose
    other attempt has neither wording says nothing of the two."""
    dice, name = random.Random(9), challenger("x", "y", "old words")
    belong = Belonging(("y",), ("x",), {}, {"x": name})
    effects = []
    for seed in range(24):
        attempts = []
        for step, problem, sample in product(range(4), range(24), range(8)):
            without = hidden(belong, seed, (step, f"p{problem}"), sample, PAIR)
            chance = 0.2 + (worth if "x" not in without else 0.5 * ("y" not in without))
            reward = float(dice.random() < chance)
            place = (step, f"p{problem}", sample)
            attempts.append(Attempt(*place, belong.factors, without, reward))
        effects.append(verdicts(attempts, [name], 0)[name].effect)
    assert least < fmean(effects) < most


def test_it_stops_where_what_is_left_cannot_decide() -> None:
    nothing = apart([1.0, -1.0, 0.0, 0.0] * 5)
    assert judge(nothing, left=1000).verdict == "undecided"
    assert judge(nothing, left=20).verdict == "too small"
    assert judge(nothing[: FEWEST - 1], left=20).verdict == "undecided"
    assert judge([], left=math.inf).verdict == "undecided"
    assert judge([], left=0).verdict == "not tried"
    assert judge(apart([1.0] * 40), left=0).verdict == "helps"
    assert judge(apart([-1.0] * 40), left=0).verdict == "harms"
    assert NEEDED > 3


def test_python_proves_as_the_command_does(
    prove: Callable[..., Any], tmp_path: Path, mine: ScriptedEndpoint
) -> None:
    (tmp_path / "card.md").write_text("\n".join(f"- {text}" for text in WORTH) + "\n")
    rows = [json.loads(line) for line in (tmp_path / "problems.jsonl").read_text().splitlines()]
    model: dict[str, Any] = {"model": "mine", "base_url": mine.base_url, "store": tmp_path}
    proof = tfgrpo.prove_sync(tmp_path / "card.md", rows, **model)
    found = {one.text: one.judged.verdict for one in proof.tried}
    assert found == {HELPS: "helps", NOTHING: "too small", HARMS: "harms"}
    with Store.open(tmp_path) as store:
        assert [e.text for e in store.library(proof.run.branch)] == [HELPS]
    asked = len(mine.requests)
    title, *_, last = str(proof).splitlines()
    assert title.startswith(f"run {proof.run.name}: {proof.cost.usage.calls} call")
    assert last.startswith(f"next: `tfgrpo diff HEAD {proof.run.branch}`")
    assert proof._repr_html_().startswith(f"<p><b>run {proof.run.name}")
    again = tfgrpo.prove_sync(tmp_path / "card.md", rows, **model)
    assert (again.run.name, again.tried) == (proof.run.name, proof.tried)
    assert len(mine.requests) == asked, "what is on record is not asked again"
    done = json.loads(prove("main", "--json").stdout)
    assert {one["text"]: one["verdict"] for one in done["experiences"]} == found
    with pytest.raises(tfgrpo.TfgrpoError, match="nowhere"):
        tfgrpo.prove_sync("nowhere", rows, **model)


def test_a_trial_of_nothing_is_refused_and_leaves_no_run(cli: Cli, tmp_path: Path) -> None:
    write_problems(tmp_path / "data.jsonl", 6)
    with ScriptedEndpoint(planted) as server:
        where = ("--model", "m", "--base-url", server.base_url, "--policy", "trial")
        one_line_error(cli("train", "data.jsonl", *where, ok=False), "something on trial", code=2)
        assert not server.requests
    assert not (tmp_path / ".tfgrpo").exists()
