"""How ground truths are written is decided once for a data set, and said."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import Cli

from tfgrpo import domains
from tfgrpo.data.problems import Problem
from tfgrpo.domains.base import Domain
from tfgrpo.domains.registry import with_data

PLAIN = ("12", "7", r"\frac{1}{2}")
GERMAN = ("1.234,50", "12", "3,5", "0,75")
PYTHON = ("x**2 + 1", "log(2)", "3 + 4*I", "E**2", "Rational(1, 2)", "exp(3)")
SYMBOLS = "A body of mass m falls from a height h under g, with v, and n, t."


def of(golds: Sequence[str], text: str = "How many are there?") -> tuple[Problem, ...]:
    return tuple(Problem(f"p{n}", text, gold) for n, gold in enumerate(golds))


def decided(
    golds: Sequence[str], text: str = "How many?", spec: str = "math"
) -> tuple[str, Domain]:
    domain, name = with_data(domains.find(spec), spec, of(golds, text))
    return name, domain


def reward(domain: Domain, gold: str, answer: str) -> float | None:
    assert domain.function is not None
    return domain.function(Problem("p", "?", gold), rf"\boxed{{{answer}}}").reward


@pytest.mark.parametrize(
    ("golds", "text", "name"),
    [
        (PLAIN, "", "math"),
        (GERMAN, "", "math:decimal=comma"),
        (("€18,90", "12,5 kg"), "", "math:decimal=comma"),
        (("3,5", "1,2", "12"), "", "math"),
        ((*GERMAN, "2.5"), "", "math"),
        (("1,250", "3,5 kg", "0.5"), "", "math"),
        (("1,234 people", "12,000 miles", "5"), "", "math"),
        (("£1,234", "£56"), "", "math"),
        (("€1.459", "€1.659"), "", "math"),
        ((r"12,000\%", "3"), "", "math"),
        ((r"1,234\,\text{km}", "7"), "", "math"),
        (("2,3 and 5", "5,6 or 7", "1,4"), "", "math"),
        (("2,3i", "3,4x", "1,2"), "", "math"),
        (("1.234,2.345", "3,5"), "", "math"),
        (("0.125", "12,5 kg"), "", "math"),
        (("1,234,567", "12,5 kg"), "", "math"),
        ((r"2,5\%", "1,234 kg"), "", "math:decimal=comma"),
        (("£5,50", "1,234"), "", "math:decimal=comma"),
        ((r"12,5\,\text{kg}", "3"), "", "math:decimal=comma"),
        (PYTHON, "", "math:written=python"),
        (("x**2", r"\frac12"), "", "math"),
        (("mgh", "2gh", "v"), SYMBOLS, "math:letters=product"),
        (("mgh", "12"), SYMBOLS, "math"),
        (("mgh", "2gh", "even"), SYMBOLS, "math"),
        (("mgh", "2gh"), "What is the energy?", "math"),
        (("hgm", "mgh", "2gh"), SYMBOLS, "math"),
        (("MGH", "2gh"), SYMBOLS, "math"),
        (("yes", "2gh"), SYMBOLS, "math"),
    ],
)
def test_a_data_set_is_read_as_all_of_it_tells(golds: Sequence[str], text: str, name: str) -> None:
    assert decided(golds, text)[0] == name


def test_what_was_chosen_stays() -> None:
    assert decided(GERMAN, spec="math:digits=4")[0] == "math:digits=4,decimal=comma"
    assert decided(PLAIN, spec="math:letters=product")[0] == "math:letters=product"


@pytest.mark.parametrize(
    ("golds", "text", "gold", "answer", "right"),
    [
        (GERMAN, "", "1.234,50", "1234.5", True),
        (GERMAN, "", "1.234,50", "1.234,50", True),
        (GERMAN, "", "3,5", "3.5", True),
        (GERMAN, "", "3,5", "3,5", True),
        (GERMAN, "", "3,5", "35", False),
        (GERMAN, "", "3,5", "5, 3", False),
        (GERMAN, "", "(3,5)", "(3,5)", True),
        (GERMAN, "", "(3,5)", "3.5", False),
        *(
            (GERMAN, "", gold, answer, True)
            for gold, answer in (
                ("2,125 kg", "2,125"),
                ("2,125 kg", r"2,125\,\mathrm{kg}"),
                ("5,25", "5,250"),
                ("3,1420", "3,142"),
                ("3,142", "3{,}142"),
                ("3,142", "3.142"),
                ("1.234 €", "1.234"),
                ("1.234 €", "1.234,00 €"),
                ("2125", "2.125"),
                ("1234567", "1,234,567"),
                ("1234,5", "1,234.5"),
                ("1234,5", "1 234,5"),
                ("x = 2,5", "2.5"),
                ("x = 2,5", "x=2,50"),
                ("2,5x", r"\frac{5}{2}x"),
                (r"\frac12", "0,5"),
                ("12", "12,0"),
                ("0.125", "0,125"),
                ("(1,5; 2,5)", "(1.5, 2.5)"),
                ("1,5 und 2,5", "2.5, 1.5"),
                ("1,5; 2,5", "2,5; 1,5"),
                ("1,5 < x < 2,5", "1.5<x<2.5"),
                (r"x_{1,2} = 3", r"x_{1,2} = 3,0"),
            )
        ),
        (GERMAN, "", "2125", "2,125", False),
        (GERMAN, "", "10500", "10,500", False),
        (GERMAN, "", "3,5", "(3,5)", False),
        (GERMAN, "", "2,125", "2,126", False),
        (GERMAN, "", "1,5; 2,5", "1; 5; 2; 5", False),
        (PLAIN, "", "3,5", "3.5", False),
        (PYTHON, "", "log(2)", r"\ln 2", True),
        (PYTHON, "", "log(2)", "0.693147", True),
        (PYTHON, "", "log(2)", r"\log_{10} 2", False),
        (PYTHON, "", "log(2)", "log(2)", True),
        (PYTHON, "", "3 + 4*I", "3+4i", True),
        (PYTHON, "", "3 + 4*I", "3-4i", False),
        (PYTHON, "", "E**2", "e^2", True),
        (PYTHON, "", "Rational(1, 2)", r"\frac12", True),
        (PYTHON, "", "x**2 + 1", "x^2+1", True),
        (PLAIN, "", "log(100)", "2", True),
        (("mgh", "2gh"), SYMBOLS, "mgh", "ghm", True),
        (("mgh", "2gh"), SYMBOLS, "mgh", r"\frac{2mgh}{2}", True),
        (("mgh", "2gh"), SYMBOLS, "mgh", "mgH", False),
        (("mgh", "2gh"), SYMBOLS, "mgh", "mgv", False),
        (PLAIN, "", "mgh", "ghm", False),
    ],
)
def test_an_answer_is_compared_as_the_data_set_is_written(
    golds: Sequence[str], text: str, gold: str, answer: str, right: bool
) -> None:
    _, domain = decided(golds, text)
    assert domain.check is not None
    assert domain.check(Problem("p", "?", gold)) is None
    assert reward(domain, gold, answer) == right


@pytest.mark.parametrize(
    ("golds", "text", "said"),
    [
        (PLAIN, "", None),
        (("yes", "even", "1,250", "1, 2"), "Is it so?", None),
        (GERMAN, "", "3 of 4 ground truths, such as '1.234,50': a comma is a decimal comma"),
        ((r"12,5\,\text{kg}", "3"), "", "1 of 2 ground truths, such as '12,5"),
        (("1,234 kg", "2,5%"), "", "2 of 2 ground truths, such as '1,234 kg': a comma is a dec"),
        (("3,5", "12"), "", "a comma separates two answers; math:decimal=comma where"),
        (PYTHON, "", "2 of 6 ground truths, such as 'x**2 + 1': written as Python, so log"),
        (("mgh", "2gh"), SYMBOLS, "'mgh': a product of symbols, in any order"),
        (("mgh", "12"), SYMBOLS, "'mgh': a word, whose letters have an order; math:letters=pro"),
    ],
)
def test_how_ground_truths_are_read_is_said(
    golds: Sequence[str], text: str, said: str | None
) -> None:
    _, domain = decided(golds, text)
    assert domain.remarks is not None
    lines = domain.remarks(of(golds, text))
    assert len(lines) == (said is not None)
    assert said is None or said in lines[0]


def test_commands_say_it_before_anything_is_paid_for(cli: Cli, tmp_path: Path) -> None:
    rows = [{"problem": f"What is {n}?", "answer": gold} for n, gold in enumerate(GERMAN)]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    cases = [{"gold": gold, "pred": rf"\boxed{{{gold}}}", "expected": True} for gold in GERMAN]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in cases))
    cli("init")
    verified = cli("verify", "c.jsonl")
    estimated = cli(
        *("train", "p.jsonl", "--estimate", "--model", "m"),
        *("--base-url", "http://127.0.0.1:9/v1"),
    )
    assert "agreement 4 of 4" in verified.stdout
    for done in (verified, estimated):
        assert "such as '1.234,50': a comma is a decimal comma" in done.stderr
