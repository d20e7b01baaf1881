"""No false reward: what was not ended, is a symbol, or has no value earns nothing."""

from __future__ import annotations

import pytest

from tfgrpo.domains.mathematics.answers import at_once, judge
from tfgrpo.domains.mathematics.extract import extract

CUT = ["", "8", r"\frac{3", r"\frac{3}{4}", r"\text{three}"]
FIRST = [r"\boxed{3}", r"\fbox{3}", "<answer>3</answer>", r"$\boxed{\text{3}}$"]
BEGUN = [r"\boxed{", r"\boxed {", r"\fbox{", "<answer>", r"$\boxed{", "<Answer>"]


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("begun", BEGUN)
@pytest.mark.parametrize("cut", CUT)
def test_an_earlier_answer_does_not_step_in(first: str, begun: str, cut: str) -> None:
    response = f"The part is {first}. So the total is {begun}{cut}"
    assert extract(response) is None
    assert judge("3", response).reward == 0.0
    at_once_too = at_once("3", response)
    assert at_once_too is None or at_once_too.reward == 0.0


@pytest.mark.parametrize("first", FIRST)
def test_an_answer_after_one_that_was_not_ended_counts(first: str) -> None:
    assert judge("3", rf"<answer>8 and so {first}").reward == 1.0


@pytest.mark.parametrize("power", ["1", "3", "x"])
def test_gamma_is_a_symbol(power: str) -> None:
    assert judge(rf"\gamma-{power}", r"\boxed{\gamma-2}").reward == 0.0
    assert judge(rf"x^{{\gamma-{power}}}", r"\boxed{x^{\gamma-2}}").reward == 0.0
    assert judge(rf"\gamma-{power}", rf"\boxed{{-{power}+\gamma}}").reward == 1.0
    assert judge(r"2\gamma", r"\boxed{1.154431}").reward == 0.0
    assert judge(r"\Gamma+1", r"\boxed{\gamma+1}").reward == 0.0


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("I_0+1", "I_1+1"),
        ("I_0 x", "I_1 x"),
        ("x^2+1=0", "x^2+2=0"),
        (r"\frac{1}{0}", r"\frac{2}{0}"),
        (r"\ln 0", r"\log 0"),
        (r"\infty-\infty", r"0\cdot\infty"),
    ],
)
def test_what_has_no_value_or_no_solution_equals_nothing(gold: str, answer: str) -> None:
    assert judge(gold, rf"\boxed{{{answer}}}").reward != 1.0


def test_an_index_of_a_capital_i_counts_and_its_order_does_not() -> None:
    assert judge("I_0+2x", r"\boxed{2x+I_0}").reward == 1.0
    assert judge("x^2+1=0", r"\boxed{1+x^2=0}").reward == 1.0
