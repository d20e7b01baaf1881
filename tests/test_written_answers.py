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


SCALES = [
    "thousands",
    "millions",
    "hundreds",
    "tens",
    "dozens",
    "lakh",
    "crore",
    "trillion",
    "Millionen",
    "Milliarden",
    "Mio.",
    "Mrd.",
    "Tsd",
    "Tausend",
    "Dutzend",
    "Hundert",
    "millones",
    "milliards",
    "mille",
    "docenas",
    "grand",
    "миллионов",
    "тысяч",
    "triệu",
    "εκατομμύρια",
    "万",
    "亿",
    "만",
]
PARTS = [
    "tenths",
    "thirds",
    "halves",
    "hundredths",
    "millionths",
    "twelfths",
    "fifths",
    "Drittel",
    "tercios",
    "dixièmes",
]
UNCLEAR = ["gross", "quarters", "mil", "half", "einhalb", "halbe", "billions", "tiers", "cuartos"]
CHANGED = ["squared", "cubed", "factorial", "doubled", "negative", "below"]
OTHERS = [*SCALES, *PARTS, *UNCLEAR, *CHANGED]
NUMBERS = _each(
    [
        ("5", [], [f"5 {word}" for word in OTHERS]),
        ("5", [], [rf"5\text{{ {word}}}" for word in OTHERS]),
        ("5", [], [r"5\text{bn}", r"5\text{M}", r"5\text{ below zero}", r"5\text{ y medio}"]),
        ("5", [], [r"5\text{ al cuadrado}", r"5\text{ tenths of a mile}", r"5\text{ et demi}"]),
        ("5", [r"5\text{ third graders}", "5 pairs", r"5\text{ M}"], ["5 Billion"]),
        ("36", ["3 dozens", "3 Dutzend", r"3\text{ docenas}"], ["3 tens"]),
        ("500000", ["5 lakh", "5 lakhs", "5 hundred thousand", "500 mille", "50万"], ["5 crore"]),
        ("50000000", ["5 crore", "5 crores", "5千万", "50 Mio."], []),
        ("5000000", ["5 Millionen", "5 Mio.", "5 millones", "5 миллионов", "5 triệu"], ["5 Mrd."]),
        ("5000000", [r"\$5 million", r"\$5M", r"\$5\text{M}", "5 million dollars", "500万"], []),
        ("5000000", [r"5\text{ million people}", r"5\text{ Mio. Euro}"], ["5M", r"5\text{ M}"]),
        ("5 Millionen", ["5000000", "5 million"], ["5"]),
        ("$5$ million", ["5000000", "5 million"], ["5"]),
        ("5 million dollars", [r"\$5000000", r"\$5 million"], ["5 million euros", r"\$5"]),
        ("5000000000", ["5 billion", "5 Milliarden", "5 Mrd", r"\$5\text{bn}"], ["5 Billionen"]),
        ("5000000000000", ["5 trillion", "5 Billionen", "5 billones"], ["5 billion"]),
        ("1000000000", ["1 billion"], ["1 Billion"]),
        ("1 Billion", ["1 Billion"], ["1000000000", "1000000000000"]),
        ("5000", [r"\$5k", "5 grand", "5 Tausend", "5 тысяч", "5천"], ["5 mil", "5k", "5 million"]),
        ("5 mil", [r"5\text{ mil}"], ["5", "5000", "5/1000"]),
        ("1/2", ["5 tenths", r"5\text{ tenths}", "1 halves"], ["5 hundredths", "2 halves"]),
        ("2/3", ["2 thirds", "2 Drittel", "2 tercios"], ["2", "3 halves"]),
        ("72000", [], [r"\$500 gross", "500 gross", r"500\text{ gross}"]),
        ("5 quarters", [r"5\text{ quarters}"], ["5", "5/4"]),
        ("25", ["5 squared"], ["-5 squared"]),
        ("120", ["5 factorial", r"5\text{ factorial}"], []),
        ("3500000", ["3.5 million", r"3\frac12\text{ million}"], ["3 million 5"]),
        ("100000", ["1,00,000", "₹1,00,000"], ["1,000,00"]),
        ("1234567", ["₹12,34,567"], []),
        ("1,00,000", ["100000"], ["100"]),
    ]
)


@pytest.mark.parametrize(("gold", "answer", "right"), NUMBERS)
def test_a_word_behind_a_number_may_make_another_number_of_it(
    gold: str, answer: str, right: bool
) -> None:
    """A word that means two numbers is right where the ground truth has it, and nowhere else."""
    response = rf"\boxed{{{answer}}}"
    assert (judge(gold, response).reward == 1.0) is right


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


MEASURES = _each(
    [
        ("5 tons", ["10000 pounds", "5", "10000 lbs"], ["5 kg", "5000 kg", "5 tonnes"]),
        ("2000 pounds", ["1 ton"], ["2 tons", r"\$2000"]),
        ("1 tonne", ["1 metric ton", "1000 kg"], []),
        ("3 quarts", ["3/4 gallons", "6 pints", "12 cups"], ["3 liters", "3 pints"]),
        ("3 tablespoons", ["9 teaspoons", "9 tsp", "3 tbsp"], ["3 teaspoons"]),
        ("2 centuries", ["200 years", "20 decades"], ["2 years"]),
        ("200 years", ["2 centuries"], ["2 decades"]),
        ("5 knots", ["9.26 km/h"], ["5 km/h"]),
        ("5 stone", ["70 pounds"], ["5 kg"]),
        ("5 fathoms", ["30 feet"], ["5 m"]),
        ("5 apples", ["5", "5 pieces", r"5\ \mathrm{apples}"], ["5 kg", r"\$5", r"5\text{ cm}"]),
        (r"5\text{ sprints}", ["5"], ["5 weeks"]),
        (r"5\text{ N m}", [r"5\text{ Nm}", r"5\ \mathrm{N\cdot m}", "5 Nm"], [r"5\text{ nm}"]),
        ("5 N·m", ["5 Nm", r"5\text{ N m}", "5"], ["5 nm", "5 N"]),
        (r"5\text{ J}", [r"5\text{ Nm}"], []),
        ("5 Nm", [r"5\text{ N}\cdot\text{m}"], ["5 nm", r"5\text{ mN}", "5 NM"]),
        ("5 Ns", [r"5\text{ N s}"], ["5 ns", "5 N"]),
        (r"5\text{ kN m}", [r"5\text{ kNm}", "5 kN·m", r"5000\text{ Nm}"], [r"5\text{ kN}"]),
        ("5 kg", ["5 Kg", "5 KG", "5 kgs"], ["5 g"]),
        ("5 km", ["5 Km"], ["5 m"]),
        ("12 m^2", ["12 m2", "12 sqm", r"12\text{ m2}", r"12\text{ sq m}"], ["12 m", "12 m3"]),
        ("9.8 m/s^2", [r"9.8\text{ m/s2}", "9.8 m/s2"], ["9.8 m/s"]),
        ("5 cm^3", ["5 cc", "5 ccm", "5 mL"], ["5 cm"]),
        (r"5^\circ C", ["5 degrees Celsius", "5 ℃", "5 °C", "5 Grad Celsius"], ["5 ℉"]),
        (r"5\text{ g}", [r"5\text{ gm}", "5 gm"], [r"5\text{ Gm}"]),
        ("5 µg", ["5 mcg"], ["5 mg"]),
        ("5.5 hours", ["5 hours 30 minutes", "5 h 30 min"], ["5 hours 30 seconds"]),
        ("5 hours 30 minutes", ["5 h 30 min", "330 minutes", "5.5 hours"], ["5 h", "5", "530"]),
        ("330 minutes", [r"5\text{ hours }30\text{ minutes}", r"5\text{ h and }30\text{ min}"], []),
        ("2 hours and 30 minutes", ["150 minutes", "2.5 h"], ["2 hours, 15 minutes", "150"]),
        ("66 inches", ["5 feet 6 inches", "5 ft 6 in", "5 ft. 6 in."], ["5 feet 6", "6 feet 5 in"]),
        ("86 ounces", ["5 pounds 6 ounces", "5 lb 6 oz"], []),
        ("5.5", [], ["5 hours 30 minutes"]),
        ("330", [], ["5 hours 30 minutes"]),
        ("90 seconds", [], ["0 minutes 90 seconds"]),
        ("5 cm", ["5 см", r"5\text{ см}", "5 сантиметров"], ["5 м", "5 кг"]),
        ("5", ["5 яблок", "5 см", "5 μέτρα", r"5\text{ quả táo}", "5 táo"], ["5 или 6"]),
    ]
)


@pytest.mark.parametrize(("gold", "answer", "right"), MEASURES)
def test_what_is_measured_is_compared_whatever_it_is_named(
    gold: str, answer: str, right: bool
) -> None:
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


SETTINGS = _each(
    [
        (r"\frac12", [r"\nicefrac{1}{2}", r"\sfrac{1}{2}", r"\nicefrac12"], []),
        ("5", [r"{\bf 5}", r"\bf 5", r"\mathtt{5}", r"\num{5}", r"\ensuremath{5}"], [r"{\bf 6}"]),
        ("5", [r"5\tag{1}", r"5 \tag*{(1)}", r"\underline{\underline{5}}", "<b>5</b>"], []),
        ("5 kg", [r"\SI{5}{kg}", r"\qty{5}{kg}", r"\SI{5}{\kilo\gram}"], [r"\SI{5}{g}"]),
        ("5 m/s", [r"\SI{5}{\metre\per\second}"], [r"\SI{5}{\metre}"]),
        ("5 cm", [r"5\hspace{1mm}\text{cm}", r"5\hspace*{2pt}\text{ cm}"], []),
        (r"\$5", [r"US\$5", "US$5"], [r"\pounds 5", r"\textsterling 5"]),
        ("£5", [r"\pounds 5", r"\textsterling{5}"], [r"\$5"]),
        ("10", [r"{5 \choose 2}", r"\binom52", r"\dbinom{5}{2}"], [r"{5 \choose 1}"]),
        ("x+1", [r"\mathbf{x+1}", r"\bf x+1"], []),
    ]
)


@pytest.mark.parametrize(("gold", "answer", "right"), SETTINGS)
def test_how_an_answer_is_set_says_nothing(gold: str, answer: str, right: bool) -> None:
    assert is_right(gold, answer) is right
