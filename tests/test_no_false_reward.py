"""No false reward: what was not ended, is a symbol, or has no value earns nothing."""

from __future__ import annotations

import pytest

from tfgrpo.domains.mathematics.answers import at_once, judge
from tfgrpo.domains.mathematics.extract import bare, extract

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
    assert judge("3", bare(response)).reward == 0.0
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


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        ("5_2+x", "5_3+x", False),
        ("5_2+x", "5+x", False),
        (r"\pi(2)", r"2\pi", True),
        (r"\pi(2)", "2", False),
        (r"x^\circ+1", "x+1", False),
        (r"\text{pi}+1", "4.141593", False),
        (r"\text{gamma}+1", r"\text{Gamma}+1", False),
        ("x^2_1", "x_1^2", True),
        (r"\mathbb{R} \setminus \{0\}", r"x \neq 0", True),
        ("x=1, y=2", "(1, 2)", True),
        ("x=1, y=2", "(2, 1)", False),
        ("5", "x+1=5", False),
        ("5", "a+b=5", True),
        ("(1,2)", "2,1", False),
        ("(1,2)", r"\{1,2\}", False),
        ("x+y<5", "5>y+x", True),
        ("x+y<5", "5<y+x", False),
        ("y=2x+1", "y-2x=1", True),
        (r"\sqrt{ab}", r"\sqrt{a}\sqrt{b}", True),
        (r"\ln(ab)", r"\ln a+\ln b", True),
        ("x", r"\sqrt{x^2}", False),
        ("x", r"\lvert x\rvert", False),
        ("f(x)+1", "1+f(x)", True),
        ("f(x)+1", "2+f(x)", False),
        (r"\frac{x}{0}", r"\frac{2x}{0}", False),
        ("m_e v", "m_p v", False),
        ("m_e v", "v m_e", True),
        ("f'(x)=2x", "f'=2", False),
        ("f'(x)=2x", r"f'(x)=x\cdot 2", True),
        (r"x=\int_{0}^{1} \frac{1}{x} dx", r"x=\int_{0}^{1} \frac{1}{x^2} dx", False),
        (r"\{\sum_{n=1}^{\infty} n, 1\}", r"\{\sum_{n=1}^{\infty} \frac{1}{n}, 1\}", False),
        (r"[\infty+1, 1)", r"[2\infty, 1)", False),
        (r"x>\infty+1", r"x>2\infty", False),
        (r"x>2\infty", r"x>\frac{\infty}{\infty}", False),
        (r"[\infty+1, 1)", r"[\infty, 1)", False),
        (r"(-\infty, 2)", "x<2", True),
        (r"[2,\infty)", r"x\ge 2", True),
        (r"(-\infty, 2)\cup(3,\infty)", "x<2 or x>3", True),
        (r"\sum_{n=1}^{\infty} \frac{1}{n^2}", r"\frac{\pi^2}{6}", True),
        (r"\infty", r"+\infty", True),
        (r"\infty", r"-\infty", False),
        (r"-\infty", r"- \infty", True),
        (r"\tan\frac{\pi}{2}", r"\infty", False),
    ],
)
def test_nothing_is_equal_that_numbers_do_not_show(gold: str, answer: str, right: bool) -> None:
    assert (judge(gold, rf"\boxed{{{answer}}}").reward == 1.0) is right


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        ("3+4i", "3+4 i", True),
        ("3+4i", r"3+4\,i", True),
        ("14-i", "14-1i", True),
        (r"\frac12-\frac12 i", "0.5-0.5i", True),
        ("8-2i", "2(4-i)", True),
        ("3+4i", "(2+i)^2", True),
        ("-i", r"\frac{1}{i}", True),
        ("2i", r"\sqrt{-4}", True),
        ("3+4i", "4i+3", True),
        ("3+4i", "3-4i", False),
        ("3+4i", "4+3i", False),
        ("3+4i", "3+4", False),
        ("3+4i", "3i+4", False),
        ("3+4i", "5", False),
        ("3+4i", "3+4j", False),
        (r"1+\sqrt{3}i", r"2e^{i\pi/3}", True),
        (r"1+\sqrt{3}i", r"2(\cos 60^\circ+i\sin 60^\circ)", True),
        (r"1+\sqrt{3}i", r"2(\cos\frac{\pi}{3}+i\sin\frac{\pi}{3})", True),
        (r"1+\sqrt{3}i", r"2(\cos\frac{\pi}{3}-i\sin\frac{\pi}{3})", False),
        (r"1+\sqrt{3}i", r"2\operatorname{cis}(60^\circ)", True),
        (r"1+\sqrt{3}i", r"2\text{cis}\frac{\pi}{3}", True),
        (r"1+\sqrt{3}i", r"2\angle 60^\circ", True),
        ("-1", r"e^{i\pi}", True),
        ("-1", "i^2", True),
        ("1", "i^2", False),
        ("i^2R", "-R", False),
        ("i^2R", "Ri^2", True),
        ("x+iy", "iy+x", True),
        ("x+iy", "x-iy", False),
        ("x+iy", "x+y", False),
        (r"e^{i\omega t}", r"e^{it\omega}", True),
        (r"e^{i\omega t}", r"\cos(\omega t)+i\sin(\omega t)", True),
        (r"e^{i\omega t}", r"e^{-i\omega t}", False),
        (r"\pm 2i", "2i, -2i", True),
        ("2i, -2i", r"\pm 2i", True),
        ("2i, -2i", "2i", False),
        ("2i, -2i", "2, -2", False),
        (r"\{1+i,1-i\}", r"1\pm i", True),
        ("(3+i, 2)", "(i+3, 2)", True),
        ("(3+i, 2)", "(2,3+i)", False),
        ("3+4i", r"3+4\mathrm{i}", True),
        ("3+4i", r"3+4\cdot i", True),
        ("5", "|3+4i|", True),
        ("z=3+4i", "3+4i", True),
        ("3+4i", "z=3+4i", True),
        (r"\frac{1+i}{2}", r"\frac12+\frac{i}{2}", True),
        (r"\frac{1}{2}+\frac{\sqrt{3}}{2}i", r"\frac{1+i\sqrt3}{2}", True),
        (r"\frac{1}{2}+\frac{\sqrt{3}}{2}i", r"\frac{1-i\sqrt3}{2}", False),
        (r"\sum_{i=1}^{n} i", r"\sum_{i=1}^{n} i", True),
        (r"\sum_{i=1}^{n} i", r"\frac{n(n+1)}{2}", True),
        ("6", r"\sum_{i=1}^{3} i", True),
        ("-8i", "(1+i)^6", True),
        ("i", "i", True),
        ("i", r"\sqrt{-1}", True),
        ("i", r"\sqrt{1}", False),
        ("i", "1", False),
        ("i", "-i", False),
        (
            r"\begin{pmatrix} i & 0 \\ 0 & -i\end{pmatrix}",
            r"\begin{pmatrix} i & 0 \\ 0 & \frac{1}{i}\end{pmatrix}",
            True,
        ),
        (
            r"\begin{pmatrix} i & 0 \\ 0 & -i\end{pmatrix}",
            r"\begin{pmatrix} i & 0 \\ 0 & i\end{pmatrix}",
            False,
        ),
        (r"3\hat{i}+4\hat{j}", r"4\hat{j}+3\hat{i}", True),
        (r"3\hat{i}+4\hat{j}", r"3\hat{i}+4\hat{k}", False),
        ("3i", "3j", False),
    ],
)
def test_i_is_the_imaginary_unit_on_both_sides_or_on_none(
    gold: str, answer: str, right: bool
) -> None:
    assert (judge(gold, rf"\boxed{{{answer}}}").reward == 1.0) is right
