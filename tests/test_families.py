"""Families of problems: parts that share rules alone, right answers, cells, pooled intervals."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from conftest import ROOT
from scripted import Reply, ScriptedEndpoint, comparison_of, stage

sys.path.insert(0, str(ROOT))
from benchmarks.families import headroom, lookup, pooling, training
from benchmarks.families.__main__ import lookup_verdict, main
from benchmarks.families.family import PARTS, SIZES, Family, Given, Row
from benchmarks.families.labels import STADTWERKE
from benchmarks.families.registry import FAMILIES
from benchmarks.families.results import ResultFile, code_digest

pytestmark = pytest.mark.usefixtures("spoken")

ALL = pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))
SEEDS = range(3)
LABELLED = ("choice",)


@ALL
def test_problems_are_the_same_for_a_seed_and_others_for_another(family: Family) -> None:
    assert family.draw("train", 1) == family.draw("train", 1)
    assert family.draw("train", 1)[:10] == family.draw("train", 1, 10)
    assert family.draw("train", 1) != family.draw("train", 2)
    ids = [row["id"] for part in PARTS for seed in SEEDS for row in family.draw(part, seed)]
    assert len(set(ids)) == len(ids)


def shown_numbers(row: Row) -> frozenset[str]:
    return frozenset(lookup.numbers(row["problem"]))


@ALL
def test_no_part_has_a_problem_or_a_rule_with_its_numbers_of_another(family: Family) -> None:
    seen: dict[str, set[tuple[str, frozenset[str]]]] = {}
    texts: dict[str, set[str]] = {}
    for part in PARTS:
        rows = [row for seed in SEEDS for row in family.draw(part, seed)]
        texts[part] = {row["problem"] for row in rows}
        seen[part] = {(row["kind"], found) for row in rows if (found := shown_numbers(row))}
    for one, other in (("train", "test"), ("train", "dev"), ("dev", "test")):
        assert not texts[one] & texts[other]
        assert not seen[one] & seen[other]


@ALL
def test_wordings_belong_to_one_part(family: Family) -> None:
    for kind in family.kinds:
        if family.domain.startswith(LABELLED):
            continue  # their words do: see below
        wordings = [text for texts in kind.texts for text in texts]
        assert len(set(wordings)) == len(wordings)


@ALL
def test_every_rule_has_its_share_and_a_right_answer_is_judged_right(family: Family) -> None:
    rows = family.draw("test")
    counts = {kind.name: sum(row["kind"] == kind.name for row in rows) for kind in family.kinds}
    assert max(counts.values()) - min(counts.values()) <= 1
    for row in rows:
        assert lookup.rewarded(family, row, row["answer"]) == 1
    assert family.rules


@ALL
def test_a_lookup_is_rarely_right(family: Family) -> None:
    best = max(lookup.lookup_scores(family).values())
    labels = len(family.kinds) if family.domain.startswith(LABELLED) else 0
    partial = 0.45 if family.domain == "json" else 0.25
    assert best <= (0.2 + 1 / labels if labels else partial)


def test_a_label_family_parts_share_no_sentence() -> None:
    def sentences(part: Any) -> set[str]:
        rows = STADTWERKE.draw(part)
        return {s for row in rows for s in re.findall(r"[^.]+\.", row["problem"])}

    assert not {s.strip() for s in sentences("train")} & {s.strip() for s in sentences("test")}


def ceiling(a: int, b: int) -> int:
    whole, rest = divmod(a, b)
    return whole + (rest > 0)


def of_dates(first: int, last: int, price: int) -> int:
    return len(range(first, last + 1)) * price


def half_hours(hours: int, minutes: int) -> int:
    return ceiling(hours * 60 + minutes, 30)


def share(n: int, percent: int) -> int:
    return n * percent // 100


NUMBERS: dict[tuple[str, str], Callable[..., int]] = {
    ("en-storage", "stored"): of_dates,
    ("en-storage", "weighed"): lambda w: ceiling(w, 10) + 1,
    ("en-storage", "spared"): lambda n, p: n * p - 4 * p,
    ("de-werkstatt", "repaired"): half_hours,
    ("de-werkstatt", "driven"): lambda k, p: 2 * k * p - 20 * p,
    ("de-werkstatt", "reduced"): lambda p, r: p - 10 - share(p - 10, r),
    ("de-fristen", "answered"): lambda d, n: list(range(d, 99))[:n][-1],
    ("de-fristen", "notified"): lambda d, m: m + 1 + 2,
    ("de-fristen", "reminded"): lambda d, n: d + n + 3,
    ("es-descuentos", "rebajado"): lambda p, r, c: p - share(p, r) - c,
    ("es-descuentos", "enviado"): lambda p: p + 6 * (p < 60),
    ("es-descuentos", "regalado"): lambda u, p: sum(p for n in range(1, u + 1) if n % 4),
    ("zh-zuche", "天数"): of_dates,
    ("zh-zuche", "里程"): lambda k, p: ceiling(k - 100, 10) * p,
    ("zh-zuche", "押金"): lambda p: p + p + p + 200,
}
"""Each rule written a second time, for the values in the gaps of a text."""


def gaps(template: str, problem: str) -> dict[str, int] | None:
    """Returns the numbers that fill a template to give a problem, by the names of their gaps."""
    seen: set[str] = set()
    pattern = ""
    for piece in re.split(r"(\{\w+\})", template):
        name = piece[1:-1]
        if not re.fullmatch(r"\{\w+\}", piece):
            pattern += re.escape(piece)
        elif name in seen:
            pattern += f"(?P={name})"
        else:
            seen.add(name)
            pattern += f"(?P<{name}>.+?)"
    found = re.fullmatch(pattern, problem)
    if found is None:
        return None
    return {name: int(value) for name, value in found.groupdict().items() if value.isdecimal()}


@pytest.mark.parametrize(("name", "kind"), list(NUMBERS))
def test_answers_are_those_of_the_rule_written_again(name: str, kind: str) -> None:
    family, rule = FAMILIES[name], NUMBERS[name, kind]
    chosen = next(one for one in family.kinds if one.name == kind)
    wanted = rule.__code__.co_varnames[: rule.__code__.co_argcount]
    names = dict(zip(("first", "last", "price", "hours", "minutes"), "abphm", strict=True))
    checked = 0
    for part, texts in zip(PARTS, chosen.texts, strict=True):
        for row in family.draw(part):
            if row["kind"] != kind:
                continue
            (values,) = [v for text in texts if (v := gaps(text, row["problem"])) is not None]
            answer = rule(*(values[names.get(one, one)] for one in wanted))
            assert row["answer"] == str(answer), row
            assert answer > 0
            checked += 1
    assert checked > 20
    assert {key[1] for key in NUMBERS if key[0] == name} == {one.name for one in family.kinds}


def test_fiscal_quarters_are_those_of_a_table() -> None:
    quarter = {
        **dict.fromkeys(("October", "November", "December"), (1, 1)),
        **dict.fromkeys(("January", "February", "March"), (0, 2)),
        **dict.fromkeys(("April", "May", "June"), (0, 3)),
        **dict.fromkeys(("July", "August", "September"), (0, 4)),
    }
    rows = [row for row in FAMILIES["en-fiscal"].draw("train") if row["kind"] == "quartered"]
    for row in rows:
        month, year = re.search(r"\d+ ([A-Z]\w+) (20[2-3]\d)", row["problem"]).groups()  # type: ignore[union-attr]
        later, number = quarter[month]
        assert row["answer"] == f"{int(year) + later}-Q{number}"


def test_results_of_functions_are_those_that_python_gives() -> None:
    for row in FAMILIES["en-results"].draw("train"):
        lists = [json.loads(text) for text in re.findall(r"\[[\d, ]+\]", row["problem"])]
        plain = re.sub(r"\[[\d, ]+\]", "", row["problem"])
        numbers = [int(n) for n in re.findall(r"\d+", plain)]
        if row["kind"] == "found":
            places = [n for n, one in enumerate(lists[0], 1) if one == numbers[0]]
            want: list[Any] = [0, places[0]] if places else [7, None]
        elif row["kind"] == "sliced":
            want = [0, [lists[0][place - 1] for place in range(numbers[0], numbers[1] + 1)]]
        else:
            a, b = numbers
            want = [0, ceiling(a, b)] if b else [7, None]
        assert json.loads(row["answer"]) == want, row


def test_a_family_that_a_lookup_answers_is_not_used() -> None:
    assert lookup_verdict(0.30, 0.25).startswith("not used")
    assert lookup_verdict(0.29, 0.25) == "used"
    assert lookup_verdict(0.9, None).startswith("the empty")


LESSON = "Mieter kommen zu Nord, Eigentümer zu Süd."


def desk(request: dict[str, Any]) -> str:
    """Knows the desk by a coin, or by its library."""
    system, user = request["messages"][0]["content"], request["messages"][-1]["content"]
    if stage(request) == "comparison":
        lessons = [{"reason": "Mieter.", "text": LESSON}]
        return json.dumps(comparison_of(lessons))
    if stage(request) != "rollout":
        return json.dumps({"closest": "G0", "decision": "new", "text": LESSON})
    rows = [row for part in PARTS for row in STADTWERKE.draw(part)]
    answer = next(row["answer"] for row in rows if row["problem"] in user)
    right = LESSON in system or len(request["messages"]) > 2 or (request.get("seed") or 0) % 2
    return f"Label: {answer if right else 'Mitte'}"


def test_a_cell_trains_scores_and_is_made_once(tmp_path: Path) -> None:
    def run(server: ScriptedEndpoint, *words: str) -> Any:
        where = ["--model", "m", "--base-url", server.base_url]
        given = ["train", str(tmp_path), "--family", "de-stadtwerke", "--train", "10"]
        return CliRunner().invoke(main, [*given, "--test", "10", *words, *where])

    def until(request: dict[str, Any]) -> str | Reply:
        enough = len(server.requests) > 12
        return Reply({"error": "no"}, status=401) if enough else desk(request)

    with ScriptedEndpoint(until) as server:
        assert run(server).exit_code
        server.script = desk
        done = run(server)
        assert done.exit_code == 0, done.output
        asked = len(server.requests)
        assert run(server).output == done.output
        assert len(server.requests) == asked, "what is done is read"
    (cell,) = ResultFile(tmp_path / training.FILE).read()
    assert cell["code"] == code_digest()
    assert len(cell["gains"]) == 10
    assert cell["gain"][0] == pytest.approx(cell["learned"] - cell["empty"])
    assert cell["gain"][0] == pytest.approx(np.mean(list(cell["gains"].values())), abs=1e-3)
    assert cell["library"]
    table = CliRunner().invoke(main, ["table", str(tmp_path)]).output
    assert "| de-stadtwerke | 1 |" in table
    assert "(problems alone)" in table


def test_a_cell_that_was_cut_off_is_gone_on_with_at_another_port(tmp_path: Path) -> None:
    def run(server: ScriptedEndpoint, *words: str) -> Any:
        given = ["train", str(tmp_path), "--family", "de-stadtwerke", "--train", "6", "--test", "4"]
        return CliRunner().invoke(main, [*given, "--base-url", server.base_url, *words])

    answered: list[str] = []

    def until(request: dict[str, Any]) -> str | Reply:
        if len(answered) == 8:
            return Reply({"error": "no"}, status=401)
        answered.append(json.dumps(request, sort_keys=True))
        return desk(request)

    with ScriptedEndpoint(until) as server:
        assert run(server, "--model", "m").exit_code
    with ScriptedEndpoint(desk) as server:
        other = run(server, "--model", "n")
        assert other.exit_code == 0, "another model begins for itself"
        begun = len(server.requests)
        done = run(server, "--model", "m")
        assert done.exit_code == 0, done.output
        asked = [json.dumps(one, sort_keys=True) for one in server.requests[begun:]]
    assert not set(asked) & set(answered), "what was answered is not asked again"


def test_whatever_decides_a_cell_is_in_its_key() -> None:
    rows = [row for part in PARTS for row in STADTWERKE.draw(part)]
    one = training.Cell(Given("post", "choice", rows), 0, train=9, test=8)
    others = [
        replace(one, **change)
        for change in (
            {"family": Given("post", "exact", rows)},
            {"family": Given("post", "choice", rows, {"top_k": 1})},
            {"seed": 1},
            {"arm": "paper"},
            {"gated": True},
            {"train": 10},
            {"test": 9},
            {"samples": 3},
            {"model": {"model": "n"}},
            {"is_local": True},
        )
    ]
    chosen = one.family.draw("dev")[0]
    gate = [{**row, "kind": "other"} if row["id"] == chosen["id"] else row for row in rows]
    others.append(replace(one, gated=True, family=Given("post", "choice", gate)))
    keys = [json.dumps(cell.key(), sort_keys=True) for cell in (one, *others)]
    assert len(set(keys)) == len(keys)
    moved = {"base_url": "http://127.0.0.1:1/v1", "concurrency": 3}
    assert replace(one, model=moved).key() == one.key(), "where it is asked decides nothing"


def test_the_code_of_a_result_is_all_that_is_installed_and_the_families(tmp_path: Path) -> None:
    for name in ("tfgrpo", "store", "cli", "migrations", "benchmarks/families"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "a.py").write_text("1")
    (tmp_path / "pyproject.toml").write_text("1")
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "one"]):
        author = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        subprocess.run(["git", "-C", str(tmp_path), *author, *words], check=True)
    found = [code_digest(root=tmp_path)]
    for path in ("migrations/a.py", "store/a.py", "benchmarks/families/a.py", "pyproject.toml"):
        (tmp_path / path).write_text("2")
        found.append(code_digest(root=tmp_path))
    assert len(set(found)) == len(found)
    (tmp_path / "benchmarks/other.py").write_text("2")
    assert code_digest(root=tmp_path) == found[-1]


def test_a_cell_learns_from_given_problems(tmp_path: Path) -> None:
    rows = [row for part in PARTS for row in STADTWERKE.draw(part)]
    file = tmp_path / "post.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    given = Given("post", STADTWERKE.domain, rows)
    texts = [row["problem"] for part in PARTS for row in given.draw(part, 3)]
    assert len(set(texts)) == len(texts) == sum(SIZES.values())
    with pytest.raises(ValueError, match="fewer than 61 problems for test"):
        given.draw("test", 3, 61)
    words = ["train", str(tmp_path), "--train", "6", "--test", "4", "--model", "m"]
    with ScriptedEndpoint(desk) as server:
        words += ["--base-url", server.base_url]
        judged = ["--file", str(file), "--domain", STADTWERKE.domain]
        done = CliRunner().invoke(main, [*words, *judged])
        assert CliRunner().invoke(main, [*words, *judged, "--family", "en-hotel"]).exit_code == 2
        many = CliRunner().invoke(main, [*words, *judged, "--train", "120", "--test", "8"])
        assert many.output.startswith("post, seed 0: "), many.output
        for more in (["--train", "120", "--test", "80"], ["--gated", "--train", "110"]):
            few = CliRunner().invoke(main, [*words, *judged, *more])
            assert few.exit_code == 2, few.output
            assert "post has fewer than" in few.output
        few = CliRunner().invoke(main, ["show", "en-hotel", "--problems", "100000"])
        assert few.exit_code == 2
    assert done.output.startswith("post, seed 0: "), done.output


def test_headroom_scores_each_library_once(tmp_path: Path) -> None:
    with ScriptedEndpoint(desk) as server:
        where = ["--model", "m", "--base-url", server.base_url, "--problems", "6"]
        given = ["headroom", str(tmp_path), "--family", "de-stadtwerke", *where]
        done = CliRunner().invoke(main, given)
        assert done.exit_code == 0, done.output
        asked = len(server.requests)
        assert CliRunner().invoke(main, given).output == done.output
        assert len(server.requests) == asked
        prompts = [json.dumps(one, ensure_ascii=False) for one in server.requests]
        found = ResultFile(tmp_path / headroom.FILE)
        before = [{**one, "code": "before"} for one in found.read()]
        found.path.write_text("".join(f"{json.dumps(one)}\n" for one in before))
        CliRunner().invoke(main, [*given, "--arm", "empty"])
        assert len(found.read()) == len(before) + 1, "other code is measured for itself"
        assert set(headroom.latest(tmp_path)["de-stadtwerke", "m"]) == {"empty"}
        CliRunner().invoke(main, given)
    arms = headroom.latest(tmp_path)["de-stadtwerke", "m"]
    assert set(arms) == set(headroom.ARMS)
    assert arms["examples"]["score"] == 1, "examples are turns, and this model copies them"
    assert any(STADTWERKE.rules[0] in prompt for prompt in prompts)
    assert not any(
        row["problem"] in prompt for row in STADTWERKE.draw("test") for prompt in prompts
    )
    assert "de-stadtwerke | " in CliRunner().invoke(main, ["lookup", str(tmp_path)]).output


def test_a_line_that_was_cut_off_is_no_result(tmp_path: Path) -> None:
    file = ResultFile(tmp_path / "cells.jsonl")
    file.add({"a": 1})
    with file.path.open("a") as opened:
        opened.write('{"a": 2, "b"')
    assert file.find({"a": 2}) is None
    file.add({"a": 3})
    assert [one["a"] for one in file.read()] == [1, 3]


def cell(family: str, seed: int, gains: list[float]) -> dict[str, Any]:
    mean = float(np.mean(gains))
    return {
        "family": family,
        "seed": seed,
        "code": "c",
        "model": "m",
        "arm": "default",
        "empty": 0.5,
        "learned": 0.5 + mean,
        "gain": [mean, mean - 0.1, mean + 0.1],
        "gains": {str(n): gain for n, gain in enumerate(gains)},
        "tokens": 1000,
    }


def test_every_run_that_lost_is_printed() -> None:
    page = pooling.page([cell("a", 0, [0.5, 0.0]), cell("a", 1, [-0.5, 0.0]), cell("b", 0, [0.1])])
    assert "Runs below the empty library: 1 of 3:" in page
    assert "- a, seed 1: 0.500 → 0.250 (-0.250" in page


def test_intervals_cover_the_spread_of_seeds_and_of_problems() -> None:
    """Gains with a spread between seeds and one between problems: about 95 of 100 intervals hold
    the truth, and those that leave the seeds out hold it far less often."""
    dice, truth, rounds = np.random.default_rng(5), 0.1, 200
    held = {"pooled": 0, "family": 0, "problems alone": 0}
    for _ in range(rounds):
        families = {
            name: [truth + dice.normal(0, 0.1) + dice.normal(0, 0.4, 40) for _ in range(6)]
            for name in "abcd"
        }
        fixed = pooling.pooled(families).fixed
        own = pooling.of_family(families["a"])
        flat = pooling.of_family([np.concatenate(families["a"])])
        for name, one in (("pooled", fixed), ("family", own), ("problems alone", flat)):
            held[name] += one.low <= truth <= one.high
    assert held["pooled"] >= 0.92 * rounds
    assert 0.90 * rounds <= held["family"] <= 0.99 * rounds
    assert held["problems alone"] < held["family"]


@pytest.mark.parametrize("seeds", [2, 3])
def test_a_pooled_interval_over_few_seeds_is_wide_enough(seeds: int) -> None:
    dice, truth, rounds = np.random.default_rng(7), 0.2, 300
    held = 0
    for _ in range(rounds):
        families = {
            name: [truth + dice.normal(0, 0.1) + dice.normal(0, 0.2, 60) for _ in range(seeds)]
            for name in "abcd"
        }
        fixed = pooling.pooled(families).fixed
        held += fixed.low <= truth <= fixed.high
    assert held >= 0.92 * rounds


def test_a_page_says_what_its_pooled_interval_is_over() -> None:
    one, other = cell("a", 0, [0.5, 0.0, 0.1]), cell("b", 0, [0.1, 0.2, 0.0])
    assert "(over problems alone)" in pooling.page([one, other])
    both = [one, cell("a", 1, [0.3, 0.1, 0.0]), other]
    assert "(over seeds, and over problems alone where a family has one)" in pooling.page(both)
    assert "(over seeds)" in pooling.page([*both, cell("b", 1, [0.1, 0.4, 0.0])])


def test_cells_of_other_choices_are_no_second_seed() -> None:
    one = {**cell("a", 0, [0.5, 0.0]), "samples": 2, "sizes": [48, 60], "local": False}
    for name, value in (("samples", 3), ("sizes", [9, 60]), ("local", True)):
        page = pooling.page([one, {**one, name: value}])
        assert page.count("| a | 1 |") == 2, page
        assert len({line for line in page.splitlines() if line[:2] == "##"}) == 2


def test_a_cell_that_a_lookup_answers_is_in_no_pooled_gain() -> None:
    """The lookup is made on the cell's own draw, and beside its own empty library."""
    used = {**cell("en-hotel", 1, [0.2, 0.0]), "empty": 0.15}
    refused = {**cell("en-hotel", 0, [0.9, 0.8]), "empty": 0.167}
    page = pooling.page([used, refused])
    assert "| en-hotel | 1 | 0.150 |" in page
    assert "Pooled over 1 families and 1 runs: +0.100" in page
    assert "- en-hotel, seed 0: not used: a lookup scores 0.267, the empty library 0.167" in page
    assert "Pooled" not in pooling.page([refused])


def test_nothing_is_pooled_of_no_family() -> None:
    with pytest.raises(ValueError, match="no family"):
        pooling.pooled({})
