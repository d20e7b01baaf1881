"""Answers as people and models write them: names without LaTeX, units, other notations."""

from __future__ import annotations

import pytest

from tfgrpo.domains.mathematics.answers import check_gold, judge


def is_right(gold: str, answer: str) -> bool:
    assert check_gold(gold) is None
    return judge(gold, rf"\boxed{{{answer}}}").reward == 1.0


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        (r"\frac{\pi}{2}", "pi/2", True),
        (r"2\pi", "2pi", True),
        ("2*pi", r"2\pi", True),
        ("2*pi", "2pi", True),
        ("2pi", "2ip", False),
        ("2pi", r"2\phi", False),
        ("2*pi", "2*e", False),
        ("pi/2", "1.570796", True),
        ("pi/2", "1.570797", False),
        ("e^{2}", "exp(2)", True),
        ("e^{2}", "e^2", True),
        ("e^2", "exp(3)", False),
        ("exp(-x)", "e^{-x}", True),
        (r"\sin x", "sin(x)", True),
        ("sin(x)", r"\sin(x)", True),
        ("sin(x)", "cos(x)", False),
        ("sin(x)^2", r"\sin^2 x", True),
        (r"\alpha+\beta", "alpha + beta", True),
        ("alpha+beta", "alpha+gamma", False),
        ("theta/2", r"\frac{\theta}{2}", True),
        (r"(-\infty, 2)\cup(3,\infty)", "(-∞, 2) U (3, ∞)", True),
        ("(-oo, 2) U (3, oo)", r"(-\infty, 2)\cup(3,\infty)", True),
        ("(-oo, 2) U (3, oo)", r"(-\infty, 2]\cup(3,\infty)", False),
        ("[2, oo)", r"x\ge 2", True),
        ("ln(2)", r"\ln 2", True),
        ("ln(2)", "0.693147", True),
        ("log(100)", "2", True),
        ("log2(8)", "3", True),
        ("sqrt(2)/2", r"\frac{\sqrt2}{2}", True),
        ("2*sqrt(x+1)", r"2\sqrt{x+1}", True),
        ("sqrt(2*(x+1))", r"\sqrt{2x+2}", True),
        ("sqrt(2*(x+1))", r"\sqrt{2x}+2", False),
        ("atan(1)", r"\frac{\pi}{4}", True),
        ("arctan(x)", r"\arctan x", True),
        ("x^(n+1)", "x^{n+1}", True),
        ("2**(1/3)", r"\sqrt[3]{2}", True),
        ("-oo", r"-\infty", True),
        ("oo", r"\infty", True),
        ("oo", "0", False),
        ("abs(x-1)", "|x-1|", True),
        ("pi", r"\pi", True),
        ("pi", "3.141593", True),
        ("pi", "3.14", False),
        ("pi*r**2", r"\pi r^2", True),
        ("pi*r**2", r"2\pi r", False),
        ("Gamma ray", "gamma ray", True),
        ("alpha", r"\alpha", True),
        ("alpha", "beta", False),
        ("lambda/2", r"\frac{\lambda}{2}", True),
        ("omega*t", r"\omega t", True),
        ("2*pi*sqrt(L/g)", r"2\pi\sqrt{\frac{L}{g}}", True),
        ("3*pi/4", r"\frac{3\pi}{4}", True),
        ("pi - 2", r"\pi-2", True),
        ("x = pi/3", r"\frac{\pi}{3}", True),
        ("n*pi", r"\pi n", True),
    ],
)
def test_a_name_is_the_same_with_and_without_latex(gold: str, answer: str, right: bool) -> None:
    assert is_right(gold, answer) is right


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        (r"5\text{ cm}^2", r"5\ \mathrm{cm^2}", True),
        ("5", r"5\ \mathrm{cm^2}", True),
        (r"5\text{ cm}^2", r"5\text{ cm$^2$}", True),
        ("9.8", r"9.8\ \frac{\text{m}}{\text{s}^2}", True),
        (r"9.8\text{ m/s}^2", r"9.8\ \mathrm{m/s^2}", True),
        (r"9.8\text{ m/s}^2", r"9.8\ \frac{\mathrm{m}}{\mathrm{s}^2}", True),
        ("9.8 m/s^2", r"9.8\ \mathrm{m/s^{2}}", True),
        (r"9.8\text{ m/s}^2", r"9.8\ \mathrm{m/s}", False),
        (r"9.8\text{ m/s}^2", r"9.8\ \mathrm{m/s^3}", False),
        (r"9.8\text{ m/s}^2", r"9.8\ \frac{\text{m}}{\text{s}}", False),
        ("3", r"3\,\Omega", True),
        (r"3\ \Omega", r"3\,\Omega", True),
        (r"3\text{ ohms}", r"3\,\Omega", True),
        (r"3000\,\Omega", r"3\,\text{k}\Omega", True),
        (r"3\,\Omega", r"3\,\text{k}\Omega", False),
        (r"3\,\Omega", r"3\,\text{V}", False),
        ("5", r"5\,\mu\mathrm{m}", True),
        (r"5\,\mu\mathrm{m}", r"5\,\mathrm{\mu m}", True),
        (r"5\,\mu\text{m}", r"0.005\text{ mm}", True),
        (r"5\,\mu\text{m}", r"5\text{ mm}", False),
        (r"5\,\mu\text{m}", r"5\text{ m}", False),
        (r"5\text{ cm}^2", r"5\ \mathrm{cm}^2", True),
        (r"5\text{ cm}^2", r"5\ \mathrm{cm^3}", False),
        (r"5\text{ cm}^2", "5 cm²", True),
        ("5 cm^2", r"5\text{ cm²}", True),
        (r"50\text{ N}", r"50\text{ newtons}", True),
        (r"50\text{ N}", r"50\text{ J}", False),
        (r"5\text{ kJ}", r"5000\text{ J}", True),
        (r"5\text{ kJ}", r"5\text{ J}", False),
        (r"5\text{ mJ}", r"5\text{ MJ}", False),
        (r"5\text{ Hz}", r"5\,\mathrm{Hz}", True),
        (r"12\text{ V}", r"12\text{ A}", False),
        (r"12\text{ V}", "12", True),
        (r"3\Omega", r"3\Omega", True),
        (r"x\Omega", "x", False),
        (r"2\omega", r"2\omega", True),
    ],
)
def test_a_unit_is_the_same_however_it_is_set(gold: str, answer: str, right: bool) -> None:
    assert is_right(gold, answer) is right


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        (
            r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}",
            r"\begin{pmatrix} 1 \\[4pt] 2 \end{pmatrix}",
            True,
        ),
        (
            r"\begin{pmatrix} 1 & 3 \\ 2 & 4\end{pmatrix}",
            r"\begin{bmatrix} 1 & 3 \\[0.5em] 2 & 4\end{bmatrix}",
            True,
        ),
        (
            r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}",
            r"\begin{pmatrix} 1 \\[4pt] 3 \end{pmatrix}",
            False,
        ),
        ("[-1,1]", r"\{x \mid -1\le x\le 1\}", True),
        (r"(2,\infty)", r"\{x\in\mathbb{R} : x>2\}", True),
        (r"(2,\infty)", r"\{x\in\mathbb{R} : x\ge 2\}", False),
        ("[-1,1]", r"\{x \mid -1< x\le 1\}", False),
        (r"\{x \mid x>2\}", r"(2,\infty)", True),
        ("(2,3)", r"\langle 2,3\rangle", True),
        (r"\langle 2,3\rangle", r"\langle 2, 3\rangle", True),
        (r"\langle 2,3\rangle", r"\langle 3, 2\rangle", False),
        (r"\frac73", r"2\ 1/3", True),
        (r"\frac73", r"2\ 2/3", False),
        ("m_e v", "v m_e", True),
        ("m_e v", "v m_p", False),
        ("(0,1)", "]0, 1[", True),
        ("[0,1)", "[0, 1[", True),
        ("[0,1)", "]0, 1[", False),
        ("€18.90", "€18{,}90", True),
        ("101_2", "(101)_2", True),
        ("101_2", "(101)_3", False),
        ("1<x<3", "3>x>1", True),
        ("0<a<b", "b>a>0", True),
        ("0<a<b", "a>b>0", False),
        ("-1", r"e^{i\pi}", True),
        ("5", r"\color{red}{5}", True),
        ("5", r"\color{red}{6}", False),
        ("5", r"\textcolor{blue}{5}", True),
        ("2, 3", "2 oder 3", True),
        ("2, 3", "2 或 3", True),
        ("2, 3", r"2\text{ oder }3", True),
        ("2, 3", "2 oder 4", False),
        ("2pqd", "2qdp", True),
        ("5", "5个", True),
        (r"3\hat{i}+4\hat{j}", r"4\hat{j}+3\hat{i}", True),
        ("2025-03-14", "March 14, 2025", True),
        ("2025-03-14", "14 March 2025", True),
        ("2025-03-14", "March 15, 2025", False),
        ("2025-03-14", "14 April 2025", False),
        ("1234567", "1.234.567", True),
        ("3", r"\boxed 3", True),
        ("3", r"\boxed 3 + 4", False),
        ("3", r"\boxed 8", False),
    ],
)
def test_another_notation_says_the_same(gold: str, answer: str, right: bool) -> None:
    assert check_gold(gold) is None
    response = f"So ${answer}$." if "boxed" in answer else rf"\boxed{{{answer}}}"
    assert (judge(gold, response).reward == 1.0) is right


def _each(rows: list[tuple[str, list[str], list[str]]]) -> list[tuple[str, str, bool]]:
    return [
        (gold, answer, right)
        for gold, *answers in rows
        for right, of_kind in zip((True, False), answers, strict=True)
        for answer in of_kind
    ]


COEFFICIENTS = _each(
    [
        (r"\frac43\pi r^3", [r"4/3\pi r^3", r"4/3 \pi r^3", "4/3π r^3"], [r"4/(3\pi) r^3"]),
        (r"y=\frac23x+1", ["y=2/3x+1", "y = 2/3 x + 1"], []),
        (r"\frac12 n(n+1)", ["1/2 n(n+1)", "1/2(n)(n+1)"], ["1/2n(n+1)"]),
        (r"\frac{4\pi}{3}", ["4/3 pi", "4/3pi", "4/3π", r"4/3\pi"], []),
        (r"\frac34\sqrt3", [r"3/4\sqrt{3}", r"3/4 \sqrt{3}", "3/4√3", "3/4 sqrt(3)"], []),
        (r"\frac12 x", ["1/2 x", "1/2*x", "x/2"], ["1/2x"]),
        (r"\frac{3}{4\pi}", [r"3/(4\pi)"], [r"3/4\pi"]),
        (r"\frac{2}{3x}+1", ["2/(3x)+1"], ["2/3x+1"]),
        (r"\frac{1}{2x}", ["1/(2x)"], ["1/2 x", "1/2x"]),
        (r"\frac{1}{4\pi}", [r"1/(4\pi)"], [r"1/4\pi", r"1/4 \pi"]),
        (r"\frac12(x+1)", ["1/2(x+1)", "1/2 (x+1)"], []),
        (r"\frac{x}{2y}", ["x/(2y)", "x/2y"], []),
        ("1/2 or 1/3", ["1/3 or 1/2"], []),
        (r"x^{1/2}y", [r"y\sqrt{x}"], []),
    ]
)


@pytest.mark.parametrize(("gold", "answer", "right"), COEFFICIENTS)
def test_a_number_over_a_number_before_a_factor_is_one_coefficient(
    gold: str, answer: str, right: bool
) -> None:
    """Of `1/2x` and `1/4\\pi` nobody knows whether the factor is below the bar."""
    assert is_right(gold, answer) is right


TIMES = _each(
    [
        ("3:30 pm", ["15:30", "3:30 p.m.", "3:30 PM"], ["3:30", "3:30 am", "16:30", "7:00"]),
        ("15:30", ["3:30 pm"], ["3:30 am", "3:30"]),
        ("00:30", ["12:30 am", "0:30"], ["12:30 pm", "12:30"]),
        ("12:30 pm", ["12:30 p.m."], ["0:30", "12:30 am"]),
        ("12:30 am", ["0:30"], ["12:30 pm"]),
        ("3:30", ["3:30 pm", "3:30 am"], ["7:00", "1:10", "2:20", "15:30"]),
        ("3:10", ["6:20", "3:10"], ["6:10", "3:20", "6:20 pm"]),
        ("1:12", ["2:24"], ["2:12"]),
        ("9:15", ["3:5"], []),
        ("10:50", [], ["2:10"]),
    ]
)


@pytest.mark.parametrize(("gold", "answer", "right"), TIMES)
def test_a_half_of_the_day_is_reckoned_and_a_ratio_is_no_time(
    gold: str, answer: str, right: bool
) -> None:
    assert is_right(gold, answer) is right
