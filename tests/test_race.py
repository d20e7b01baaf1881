"""The race of learners: its meter, its cells against a scripted endpoint, and its table."""

from __future__ import annotations

import hashlib
import json
import sys
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from conftest import ROOT
from scripted import Reply, ScriptedEndpoint, comparison_of, completion, stage

sys.path.insert(0, str(ROOT))

from benchmarks.learners import bills, report
from benchmarks.learners.arms import racing
from benchmarks.learners.meter import Ledger, Meter, Speeds, Upstream, Used, measure
from benchmarks.learners.race import main

pytestmark = pytest.mark.usefixtures("spoken")

RULE = "When weeks are asked for in days, count five days a week."
SPEEDS = Speeds(prefill=100, decode=20)


@pytest.fixture(scope="module")
def answers() -> dict[str, str]:
    return {row["problem"]: row["answer"] for part in bills.PARTS for row in bills.draw(part)}


def post(url: str, **body: Any) -> tuple[int, bytes]:
    request = urllib.request.Request(url, json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_a_call_costs_its_uncached_prompt_and_its_answer(tmp_path: Path) -> None:
    def script(request: dict[str, Any]) -> Reply:
        body = completion("yes")
        body["usage"]["prompt_tokens_details"] = {"cached_tokens": 30}
        return Reply(body)

    with (
        ScriptedEndpoint(script) as server,
        Meter(Upstream(server.base_url, "secret"), SPEEDS, tmp_path) as meter,
    ):
        status, _ = post(
            f"{meter.url('a')}/chat/completions", model="m", messages=[{"content": ""}]
        )
        assert status == 200
        assert server.keys == ["Bearer secret"], "the key is the meter's"
        totals = json.load(urllib.request.urlopen(f"{meter.address}/a/spent"))
        assert totals["spent"] == pytest.approx(20 / 100 + 10 / 20)
        assert meter.ledger("b").spent == 0, "each name has a ledger of its own"


def test_a_spent_budget_ends_an_arm_and_outlives_the_meter(tmp_path: Path) -> None:
    with ScriptedEndpoint(lambda request: "yes") as server:
        for turn in range(2):
            with Meter(Upstream(server.base_url), SPEEDS, tmp_path, budget=1.5) as meter:
                url = f"{meter.url('a')}/chat/completions"
                codes = [post(url, model="m", messages=[{"content": ""}])[0] for _ in range(2)]
                assert codes == ([200, 200] if turn == 0 else [402, 402])
                assert meter.ledger("a").totals()["calls"] == 2
        assert len(server.requests) == 2, "what is turned away is not asked"
    (tmp_path / "a.jsonl").open("a").write('{"prompt": 5')  # killed while it wrote
    assert Ledger(tmp_path / "a.jsonl", 1.5).spent == pytest.approx(2.0)
    Ledger(tmp_path / "a.jsonl", None).add(Used(1, 0, 1), 0.5, "x")
    assert Ledger(tmp_path / "a.jsonl", None).calls == 3


def test_a_stream_is_passed_on_and_counted(tmp_path: Path) -> None:
    pieces = [
        {"choices": [{"delta": {"content": "ye"}}]},
        {"choices": [{"delta": {"content": "s"}}]},
        {"choices": [], "usage": {"prompt_tokens": 200, "completion_tokens": 4}},
    ]
    body = b"".join(b"data: " + json.dumps(piece).encode() + b"\n\n" for piece in pieces)
    reply = Reply(body + b"data: [DONE]\n\n")
    with (
        ScriptedEndpoint(lambda request: reply) as server,
        Meter(Upstream(server.base_url), SPEEDS, tmp_path) as meter,
    ):
        url = f"{meter.url('a')}/chat/completions"
        _, plain = post(url, model="m", messages=[{"content": ""}], stream=True)
        assert server.requests[0]["stream_options"] == {"include_usage": True}
        assert plain.count(b"data:") == 3, "the usage that was not asked for is held back"
        _, whole = post(
            url,
            model="m",
            messages=[{"content": ""}],
            stream=True,
            stream_options={"include_usage": True},
        )
        assert whole.count(b"data:") == 4
        assert meter.ledger("a").spent == pytest.approx(2 * (200 / 100 + 4 / 20))


def test_speeds_are_measured_from_what_a_server_says(tmp_path: Path) -> None:
    def script(request: dict[str, Any]) -> Reply:
        body, words = completion("1"), len(request["messages"][0]["content"].split())
        body["usage"] = {"prompt_tokens": words, "completion_tokens": request["max_tokens"]}
        return Reply(body)

    with ScriptedEndpoint(script) as server:
        found = measure(Upstream(server.base_url), "m", rounds=1)
    assert found["prefill"] > 0
    assert found["decode"] > 0
    assert found["model"] == "m"
    with ScriptedEndpoint(lambda request: "1") as server, pytest.raises(OSError, match="no more"):
        measure(Upstream(server.base_url), "m", rounds=1)


@pytest.mark.parametrize(
    ("kind", "gold", "response", "right"),
    [
        ("number", "28", "7 days are 28.", True),
        ("number", "28", "\\boxed{28} of 30", True),
        ("number", "27432.79", "\\boxed{\\$27,432.79}", True),
        ("number", "0.2", "\\boxed{20}", False),
        ("number", "28", "I cannot tell", False),
        ("label", "failed_transfer", "\\boxed{\\text{failed\\_transfer}}", True),
        ("label", "failed_transfer", "It is\nfailed transfer.", True),
        ("label", "failed_transfer", "declined_transfer", False),
    ],
)
def test_answers_are_judged(kind: str, gold: str, response: str, right: bool) -> None:
    assert racing.is_right(kind, gold, response) is right


def test_the_bills_have_eight_rules_and_share_no_problem() -> None:
    parts = {part: bills.draw(part) for part in bills.PARTS}
    assert [len(rows) for rows in parts.values()] == [60, 40, 60]
    assert all(len({row["kind"] for row in rows}) == 8 for rows in parts.values())
    texts = [row["problem"] for rows in parts.values() for row in rows]
    assert len(set(texts)) == len(texts)
    assert bills.draw("sealed") == parts["sealed"]
    times = [row for part in bills.PARTS for row in bills.draw(part, first=3)]
    assert {row["kind"] for row in times} == {"week", "day", "month"}
    assert len({row["problem"] for row in times}) == 160


def who_learns(answers: dict[str, str], request: dict[str, Any]) -> str:
    """A model that comes to RULE, and does better with it."""
    text, user = json.dumps(request["messages"]), request["messages"][-1]["content"]
    match stage(request):
        case "comparison":
            lessons = [{"reason": "Five.", "text": RULE}]
            return json.dumps(comparison_of(lessons))
        case "rollout":
            coin = hashlib.sha256(f"{user}{request['seed']}".encode()).digest()[0] % 10
            right = coin < (10 if "five days" in text else 3)
            return f"\\boxed{{{answers[user] if right else 7777}}}"
        case _:
            return json.dumps({"closest": "G0", "decision": "same", "text": ""})


def race(folder: Path, verb: str, *rest: str) -> str:
    """What a verb prints, with the code of a failure before it."""
    done = CliRunner().invoke(main, [verb, str(folder / "results"), *rest], catch_exceptions=False)
    return done.output if done.exit_code == 0 else f"{done.exit_code}: {done.output}"


def endpoint_of(folder: Path, server: ScriptedEndpoint) -> list[str]:
    """The options of an endpoint and of a short task."""
    speeds = folder / "speeds.json"
    speeds.write_text(json.dumps(SPEEDS._asdict()))
    end = ["--base-url", server.base_url, "--model", "m", "--speeds", str(speeds)]
    return [*end, "--limit", "5"]


def test_cells_of_three_arms_end_in_a_table(tmp_path: Path, answers: dict[str, str]) -> None:
    """Each cell is made once, its learner stops at its budget, and a rule that helps is found."""

    results = tmp_path / "results"
    with ScriptedEndpoint(partial(who_learns, answers)) as server:
        end = endpoint_of(tmp_path, server)
        budget = ["--budget", "90", "--samples", "2"]
        assert "measure the headroom" in race(tmp_path, "cell", "bills", "empty", *budget, *end)
        assert "raced" in race(tmp_path, "headroom", "bills", *end)
        first = {
            arm: race(tmp_path, "cell", "bills", arm, *budget, *end) for arm in ("empty", "random")
        }
        ours = ["cell", "bills", "tfgrpo", "--budget", "150", "--samples", "2", *end]
        learned = race(tmp_path, *ours)
        assert "seed 0: best" in learned, learned
        asked = len(server.requests)
        assert race(tmp_path, "cell", "bills", "random", *budget, *end) == first["random"]
        assert race(tmp_path, *ours) == learned
        assert len(server.requests) == asked, "what is done is read"
        assert "How this firm" not in json.dumps(server.requests), "none is told what it is about"
    assert "0.0 of 90" in first["empty"]
    random_cell = json.loads((results / "bills.m.random-seed0.json").read_text())
    assert random_cell["ended"] == "budget"
    most = 90 + 8 * SPEEDS.seconds(Used(50, 0, 10))  # eight were in flight
    assert 90 <= random_cell["spent"]["spent"] < most
    found = json.loads((results / "bills.m.tfgrpo-seed0.json").read_text())
    assert RULE in (results / "bills.m.tfgrpo-seed0" / "deployed.json").read_text()
    assert RULE not in json.dumps(found), "a result tells no problem's words"
    assert len(found["best"]["rewards"]) == 5
    page, output = race(tmp_path, "table"), tmp_path / "RESULTS.md"
    assert "| tfgrpo | 1 |" in page
    assert "bills m tfgrpo seed 0: done" in race(tmp_path, "list")
    race(tmp_path, "table", "-o", str(output))
    assert "![" in output.read_text()
    figure = ElementTree.fromstring(output.with_suffix(".svg").read_text())
    assert "tfgrpo" in [element.text for element in figure.iter()]


def test_arms_that_learn_nothing_show_what_a_person_could_and_a_lookup_asks_nobody(
    tmp_path: Path, answers: dict[str, str]
) -> None:
    results, train, sealed = tmp_path / "results", bills.draw("train"), bills.draw("sealed")
    with ScriptedEndpoint(partial(who_learns, answers)) as server:
        end = ["--budget", "90", "--samples", "1", "--anyway", *endpoint_of(tmp_path, server)]
        shown: dict[str, list[dict[str, str]]] = {}
        for arm in ("rules", "unsearched", "trajectories", "nearest"):
            assert "seed 0: best" in race(tmp_path, "cell", "bills", arm, *end)
            shown[arm] = server.requests[-1]["messages"]
        asked = len(server.requests)
        assert "0.0 of 90" in race(tmp_path, "cell", "bills", "lookup", *end)
        assert len(server.requests) == asked, "no model is needed"
    assert all(f"- {rule}" in shown["rules"][0]["content"] for rule in bills.RULES)
    first = [row["problem"] for row in train[:5]]
    assert sorted(shown["unsearched"][at]["content"] for at in range(1, 11, 2)) == sorted(first)
    text = shown["trajectories"][0]["content"]
    assert all(problem in text for problem in first)
    assert text.count("Right: ") + text.count("Wrong: ") == 5
    *pairs, problem = [one["content"] for one in shown["nearest"] if one["role"] == "user"]
    assert pairs == sorted(first, key=partial(racing.by_letters, problem))
    given = json.loads((results / "bills.m.lookup-seed0.json").read_text())["best"]["rewards"]
    for row in sealed[:5]:
        alike = max(train[:5], key=lambda one: racing.by_letters(row["problem"], one["problem"]))
        assert given[row["id"]] == [float(row["answer"] == alike["answer"])]


def test_a_result_is_read_for_what_it_was_made_with_alone(
    tmp_path: Path, answers: dict[str, str]
) -> None:
    """Whatever decides it is compared; a result of before says less, and is in the table."""
    results = tmp_path / "results"
    with ScriptedEndpoint(partial(who_learns, answers)) as server:
        end = endpoint_of(tmp_path, server)
        race(tmp_path, "headroom", "bills", *end)
        cell = ["cell", "bills", "empty", "--budget", "90", "--samples", "2", *end]
        race(tmp_path, *cell)
        asked = len(server.requests)
        other = tmp_path / "other.json"
        other.write_text(json.dumps(SPEEDS._replace(decode=21)._asdict()))
        for other_choice in (
            ("--budget", "91"),
            ("--samples", "3"),
            ("--temperature", "0.1"),
            ("--max-tokens", "9"),
            ("--limit", "4"),
            ("--speeds", str(other)),
            ("--local",),
        ):
            refused = race(tmp_path, *cell, "--anyway", *other_choice)
            assert refused.startswith("1: "), other_choice
            assert "was made with" in refused
        assert "headroom" in race(tmp_path, *cell, "--limit", "4")
        assert "was made with" in race(tmp_path, "headroom", "bills", *end, "--limit", "4")
        assert len(server.requests) == asked
        (results / "bills.m.empty-seed0.json").unlink()
        assert "was made with budget 90" in race(tmp_path, *cell, "--budget", "91")
        assert race(tmp_path, *cell, "--samples", "3").startswith("bills, empty"), "asked once more"
    file = results / "bills.m.empty-seed0.json"
    before = json.loads(file.read_text())
    assert before.pop("code")
    file.write_text(json.dumps(before))
    assert "was made with code None" in race(tmp_path, *cell, "--samples", "3")
    assert "| empty | 1 |" in race(tmp_path, "table")


@pytest.mark.parametrize("arm", ["tfgrpo", "published", "random"])
def test_a_cell_that_was_cut_off_is_gone_on_with(
    tmp_path: Path, answers: dict[str, str], arm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under a meter at another address, and without paying again for what was answered."""
    monkeypatch.delenv("TFGRPO_TRUST")  # nobody has trusted the folder of the results
    answered: list[str] = []

    def script(request: dict[str, Any]) -> str | Reply:
        if len(answered) >= limit:
            return Reply({"error": {"message": "no"}}, status=401)
        answered.append(json.dumps(request, sort_keys=True))
        return who_learns(answers, request)

    with ScriptedEndpoint(script) as server:
        end = ["--budget", "150", "--samples", "1", "--anyway", *endpoint_of(tmp_path, server)]
        limit = 12
        assert race(tmp_path, "cell", "bills", arm, *end).startswith("1: ")
        limit = 1000
        assert "seed 0: best" in race(tmp_path, "cell", "bills", arm, *end)
    again = len(answered) - len(set(answered))
    assert again <= (8 if arm == "random" else 0), "of a round that was under way, no more"


def result(arm: str, seed: int, rewards: list[float]) -> dict[str, Any]:
    tested = {
        "mean": sum(rewards) / len(rewards),
        "rewards": {str(n): [reward] for n, reward in enumerate(rewards)},
        "prompt_tokens": 9,
    }
    return {
        "task": "bills",
        "model": "m",
        "problems": "d",
        "samples": 1,
        "temperature": 0.7,
        "max_tokens": 9,
        "arm": arm,
        "seed": seed,
        "best": tested,
        "final": tested,
    }


def test_a_figure_has_each_group_beside_its_own_empty_library_and_none_without() -> None:
    assert "<circle" not in report.figure([result("tfgrpo", 0, [1.0, 0.0])])
    cells = [result("empty", 0, [0.0, 0.0]), result("tfgrpo", 0, [1.0, 0.0])]
    others = [result("empty", 0, [1.0, 1.0]), result("tfgrpo", 0, [1.0, 0.0])]
    for name, value in (("problems", "e"), ("samples", 2)):
        apart = [{**cell, name: value} for cell in others]
        figure = ElementTree.fromstring(report.figure([*cells, *apart]))
        rings = [one.attrib for one in figure.iter() if one.attrib.get("r") == "2.5"]
        centres = [one.attrib for one in figure.iter() if one.attrib.get("r") == "5"]
        assert [one["cx"] for one in rings] == [one["cx"] for one in centres], "one run each"
        assert len({one["cx"] for one in rings}) == 2


def test_an_arm_that_is_only_on_record_is_in_the_table_and_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = [result("lessons", 0, [1.0, 0.0]), result("empty", 0, [0.0, 0.0])]
    assert [line.arm for line in report.lines_of(cells)] == ["empty", "lessons"]
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks/learners/arms"))
    import run_tfgrpo

    for arm in ("lessons", "examples"):
        assert "is not one of" in race(
            tmp_path, "cell", "bills", arm, "--model", "m", "--speeds", "s", "--budget", "1"
        )
        job = racing.Job("u", "m", arm, 0, "t", "number", [], [], tmp_path, 1.0, 0.7, 9, 1)
        with pytest.raises(ValueError, match=arm):
            run_tfgrpo.train(job)


def test_arms_are_paired_with_empty_by_problem_and_corrected_by_holm() -> None:
    none, all_ = [0.0] * 8 + [1.0, 1.0], [1.0] * 10
    found = [result("empty", 0, none), result("tfgrpo", 0, all_), result("tfgrpo", 1, all_)]
    found += [result("gepa", 0, none), result("gepa", 1, [0.0] * 10)]
    lines = {line.arm: line for line in report.lines_of(found)}
    ours = lines["tfgrpo"]
    assert ours.gain is not None
    assert ours.gain.mean == pytest.approx(0.8)
    assert ours.p == pytest.approx(2 / 2**8)
    assert ours.holm == pytest.approx(2 * 2 / 2**8)
    assert [cell["seed"] for cell in report.losing(lines["gepa"], 0.2)] == [1]
    alone = report.lines_of([*found[:2], found[3], result("gepa", 1, none)])
    wide, narrow = lines["gepa"].gain, {line.arm: line for line in alone}["gepa"].gain
    assert wide is not None
    assert narrow is not None
    assert narrow.high == 0, "two runs alike say that seeds make no difference"
    assert wide.high > wide.mean + 12.7 * 0.1, "two runs of other means say little of other seeds"
    assert report.holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx(
        {"a": 0.03, "c": 0.06, "b": 0.06}
    )


def test_of_a_library_each_problem_gets_what_users_get() -> None:
    texts = [f"Example: Where is shelf {n}? → aisle {n}" for n in range(60)]
    prompt = {"text": "Answer.", "library": ["Count again.", *texts]}
    first, *turns = racing.rendered(prompt, "Where is shelf 58 ?")
    assert first["content"].startswith("Answer.")
    assert "Count again." in first["content"]
    assert turns[-1] == {"role": "user", "content": "Where is shelf 58 ?"}
    answers = [turn["content"] for turn in turns if turn["role"] == "assistant"]
    assert len(answers) == 32
    assert "aisle 58" in answers
    assert "aisle 59" not in [one["content"] for one in racing.rendered(prompt, "Shelf 1?")]
