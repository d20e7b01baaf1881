"""Trying a verifier: what a file of cases says, and what the command tells about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, one_line_error
from scripted import ScriptedEndpoint

from tfgrpo.data.readers import DatasetError
from tfgrpo.domains import math
from tfgrpo.evaluation.verifier_cases import read_cases

CASES: list[dict[str, Any]] = [
    {"id": "a", "gold": "5", "pred": r"So \boxed{5}.", "expected": True},
    {"id": "b", "gold": "5", "pred": r"So \boxed{6}.", "expected": False},
    {"id": "c", "gold": "$", "pred": r"So \boxed{6}.", "expected": None},
    {"id": "d", "gold": "5", "pred": "It is 5.", "expected": True},
]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_verdicts_are_counted_and_those_that_are_not_expected_listed_with_reasons(
    cli: Cli, tmp_path: Path
) -> None:
    write(tmp_path / "cases.jsonl", CASES)
    said = cli("verify", "cases.jsonl").stdout
    assert "4 cases, domain math" in said
    assert "1 right, 2 wrong, 1 unverifiable" in said
    assert "agreement 3 of 4 (75.0 %)" in said
    assert "d     wrong    right     no \\boxed{} answer" in said
    assert "\nb " not in said
    assert "\nb " in cli("verify", "cases.jsonl", "--all").stdout
    assert not (tmp_path / ".tfgrpo").exists()


def test_json_tells_every_case(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path / "cases.jsonl", CASES)
    found = json.loads(cli("verify", "cases.jsonl", "--json").stdout)
    assert found["agreement"] == [3, 4]
    assert found["verdicts"] == {"right": 1, "wrong": 2, "unverifiable": 1}
    assert [case["verdict"] for case in found["judged"]] == [
        *("right", "wrong", "unverifiable", "wrong")
    ]
    assert [case["agrees"] for case in found["judged"]] == [True, True, True, False]


def test_fields_bare_answers_and_a_pattern_of_ones_own(cli: Cli, tmp_path: Path) -> None:
    rows = [
        {"target": 5, "said": "A: 7\nA: 5", "ok": "yes"},
        {"target": "1,250", "said": "A: $1250", "ok": "yes"},
        {"target": "6", "said": "6", "ok": "no"},
    ]
    write(tmp_path / "c.jsonl", rows)
    fields = ("--field", "gold=target", "--field", "pred=said")
    found = json.loads(
        cli("verify", "c.jsonl", *fields, "--pattern", r"(?m)A: (.*)$", "--json").stdout
    )
    assert [case["reward"] for case in found["judged"]] == [1.0, 1.0, 0.0]
    assert found["agreement"] is None
    found = json.loads(cli("verify", "c.jsonl", *fields, "--answers", "--json").stdout)
    assert [case["reward"] for case in found["judged"]] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, 1.0),
        (1, 1.0),
        ("true", 1.0),
        ("Wrong", 0.0),
        (0.25, 0.25),
        (None, None),
        ("unparsable_gold", None),
    ],
)
def test_what_is_expected_may_be_said_in_several_ways(
    tmp_path: Path, value: object, expected: float | None
) -> None:
    file = write(tmp_path / "c.jsonl", [{"gold": "1", "pred": "1", "expected": value}])
    (case,) = read_cases(file, math.DOMAIN)
    assert case.known
    assert case.expected == expected


@pytest.mark.parametrize(
    ("row", "options", "said"),
    [
        ({"pred": "5"}, {}, "no 'gold'"),
        ({"gold": "5"}, {}, "no 'pred'"),
        ({"gold": "5", "pred": None}, {}, "no 'pred'"),
        ({"gold": "5", "pred": "5"}, {"pattern": "("}, "not a valid regular expression"),
        ({"gold": "5", "pred": "5"}, {"pattern": "A: .*"}, "no group"),
        ({"gold": "5", "pred": "5"}, {"fields": {"golden": "x"}}, "no field 'golden'"),
    ],
)
def test_what_cannot_be_a_case_is_refused_with_a_hint(
    tmp_path: Path, row: dict[str, Any], options: dict[str, Any], said: str
) -> None:
    file = write(tmp_path / "c.jsonl", [row])
    with pytest.raises(DatasetError, match=said) as caught:
        read_cases(file, math.DOMAIN, **options)
    assert caught.value.hint


def test_a_hanging_case_is_unverifiable_and_holds_up_no_other(cli: Cli, tmp_path: Path) -> None:
    rows = [
        {"gold": "5", "pred": r"\boxed{\sum_{n=1}^{99999999} \frac{1}{n^n+1}}"},
        {"gold": "5", "pred": r"\boxed{5}"},
    ]
    write(tmp_path / "c.jsonl", rows)
    found = json.loads(cli("verify", "c.jsonl", "--timeout", "2", "--json").stdout)
    assert [case["verdict"] for case in found["judged"]] == ["unverifiable", "right"]


JUDGE = """
from tfgrpo.domains import Domain, Verdict

async def verify(context, trajectory):
    question = f"Is {trajectory.response} kind? {context.problem.answer}"
    said = (await context.ask([("user", question)], model=context.judge)).answer.content
    return Verdict(float(said), None, "the judge said so", {"kindness": said})

DOMAIN = Domain(name="kind", verify=verify, ground_truth=False)
"""


def test_a_domain_that_asks_a_model_is_tried_once_and_then_read(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "kind.py").write_text(JUDGE)
    write(
        tmp_path / "c.jsonl", [{"pred": "hello", "expected": 0.75}, {"pred": "go", "expected": 1}]
    )
    cli("init")
    with ScriptedEndpoint(lambda request: "0.75") as server:
        command = ("verify", "c.jsonl", "--domain", "kind:DOMAIN", "--model", "m", "--json")
        found = json.loads(cli(*command, "--base-url", server.base_url).stdout)
        assert [case["details"] for case in found["judged"]] == [{"kindness": "0.75"}] * 2
        assert found["agreement"] == [1, 2]
        assert found["verdicts"] == {"0.75": 2}
        cli(*command, "--base-url", server.base_url)
        assert len(server.requests) == 2


def test_a_file_that_is_not_there_is_one_line(cli: Cli) -> None:
    one_line_error(cli("verify", "none.jsonl", ok=False), "no file none.jsonl")


@pytest.mark.parametrize(
    ("cell", "known", "expected"),
    [
        ("1", True, 1.0),
        ("0", True, 0.0),
        ("0.5", True, 0.5),
        ("TRUE", True, 1.0),
        ("no", True, 0.0),
        ("correct", True, 1.0),
        ("null", True, None),
        ("Unverifiable", True, None),
        ("", False, None),
        ("  ", False, None),
    ],
)
def test_a_table_says_in_words_what_is_expected(
    tmp_path: Path, cell: str, known: bool, expected: float | None
) -> None:
    (tmp_path / "cases.csv").write_text(f"gold,pred,expected\n4,\\boxed{{4}},{cell}\n")
    (case,) = read_cases(tmp_path / "cases.csv", math.DOMAIN)
    assert (case.known, case.expected) == (known, expected)


@pytest.mark.parametrize("value", ['"perhaps"', "7", "-0.5", '"1.5"', "[1]", '{"a": 1}', '"nan"'])
def test_what_is_no_expected_verdict_is_named_by_its_line(tmp_path: Path, value: str) -> None:
    (tmp_path / "cases.jsonl").write_text(
        f'{{"gold": "4", "pred": "4", "expected": true}}\n'
        f'{{"gold": "4", "pred": "4", "expected": {value}}}\n'
    )
    with pytest.raises(DatasetError, match=r"cases\.jsonl:2: .* is no expected verdict"):
        read_cases(tmp_path / "cases.jsonl", math.DOMAIN)
