"""Pairs of a ground truth and an answer, with verdicts that were fixed before any was judged.

`WRITTEN` are by hand, by kind: a ground truth, answers that are right, answers that are wrong.
`generated` changes one digit, sign, exponent, unit or letter of ground truths, which makes a wrong
answer of each, and writes others of them in another way, which leaves a right one.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import NamedTuple


class Pair(NamedTuple):
    """A ground truth, an answer to it, whether it is right, and what kind of pair this is."""

    kind: str
    gold: str
    answer: str
    right: bool


WRITTEN: dict[str, list[tuple[str, list[str], list[str]]]] = {
    "tiny and huge numbers": [
        (
            "2.88e-19",
            [r"2.88 \times 10^{-19}", "2.880e-19", r"28.8 \cdot 10^{-20}"],
            ["4.88e-19", r"2.88 \times 10^{-18}", "2.89e-19", "0", "-2.88e-19"],
        ),
        (
            "2^{-100}",
            [r"\frac{1}{2^{100}}", r"4^{-50}", r"(1/2)^{100}"],
            ["2^{-101}", "2^{-99}", "0", r"\frac{1}{2^{99}}", "3^{-100}"],
        ),
        (r"10^{-20}\pi", [r"\frac{\pi}{10^{20}}"], [r"2 \cdot 10^{-20}\pi", "0", r"10^{-21}\pi"]),
        (
            r"6.02 \times 10^{23}",
            ["6.02e23", r"602 \times 10^{21}"],
            [r"6.03 \times 10^{23}", r"6.02 \times 10^{22}", r"6.02 \times 10^{-23}"],
        ),
        (
            r"1.6 \times 10^{-19}",
            ["1.6e-19", r"1.60 \times 10^{-19}"],
            [r"1.7 \times 10^{-19}", r"1.6 \times 10^{-20}", r"1.6 \times 10^{19}"],
        ),
        (
            r"\sqrt{2} \cdot 10^{-18}",
            [r"10^{-18}\sqrt{2}"],
            [r"\sqrt{3} \cdot 10^{-18}", r"10^{-19}\sqrt{2}"],
        ),
        (
            "2^{100}",
            ["4^{50}", "1267650600228229401496703205376"],
            ["1267650600228229401496703205377", "2^{101}", "2^{100}+1"],
        ),
        ("10^{30}", [r"(10^{15})^2"], ["10^{30}+1", "10^{31}"]),
        ("20!", ["2432902008176640000"], ["2432902008176640001", "21!"]),
        ("42", [], [r"10^{10^{10}}", r"9^{9^{9^9}}", r"(10^{9})!", r"2^{2^{2^{2^{2^2}}}}"]),
        (r"10^{-30}x", [r"\frac{x}{10^{30}}"], [r"2 \cdot 10^{-30}x", "0"]),
        (r"1 - 10^{-20}", [], ["1", r"1 - 10^{-19}"]),
    ],
    "how close is equal": [
        (r"\frac{1}{3}", ["0.333333", "0.3333333333"], ["0.33", "0.333", "0.333334", "0.3334"]),
        (r"\frac{2}{3}", ["0.666667", "0.666666666"], ["0.66", "0.67", "0.666668"]),
        (r"\sqrt{2}", ["1.4142136", r"\frac{2}{\sqrt{2}}"], ["1.41", "1.4", "1.414214562"]),
        (r"\pi", ["3.1415927"], ["3.14", r"\frac{22}{7}", "3.141593653"]),
        ("0.5", [r"\frac12", ".5", "0.50"], ["0.51", "0.05", "0.4999999"]),
        ("3.14", ["3.140", r"\approx 3.14"], [r"\pi", "3.1415", "3.1"]),
        ("2.5", ["5/2", "2.50"], ["2.4", "25", "2.05"]),
        ("1000000", ["1,000,000", "10^6"], ["1000001", "999999", "100000"]),
        ("0.125", [r"\frac{1}{8}", "12.5\\%"], ["0.126", "1.25"]),
        (r"\frac{355}{113}", [], [r"\pi", "3.14"]),
        (r"\frac{22}{7}", ["3.1428571"], [r"\pi", "3.14", "3.15"]),
        (r"e", ["e"], ["2.718", r"\pi", "2.72"]),
    ],
    "formulas that do not parse": [
        (
            r"\frac{\pi}{2}",
            [r"\frac\pi2", r"\frac\pi 2", r"\pi/2", r"\frac{1}{2}\pi"],
            ["2", r"\frac2\pi", r"\pi", r"\frac{\pi}{3}"],
        ),
        (
            r"2007 + \frac\pi 2",
            [r"2007+\frac{\pi}{2}", r"\frac{\pi}{2} + 2007"],
            ["2", "2007", r"2007+\frac{\pi}{3}", r"2008+\frac{\pi}{2}"],
        ),
        (
            r"\frac{\sqrt3}{2}",
            [r"\frac{\sqrt{3}}2", r"\frac{\sqrt 3}{2}", r"\dfrac{\sqrt3}2"],
            ["2", "3", r"\frac{\sqrt2}{3}"],
        ),
        ("2", [], [r"\frac\pi 2", r"\frac{\pi}{2", r"2 \pi", r"\frac{x}{2}", "a-2", "x_2"]),
        (
            "7",
            [],
            [
                "(3, 7",
                "3 -> 7",
                r"3 \to 7",
                "3, 7)",
                "f(7)",
                r"\begin{cases} 7",
                "[7",
                "7]]",
                r"x \mapsto 7",
                "3 : 7 :",
                "7 7",
                "7 &",
                "7^",
                "= = 7 +",
            ],
        ),
        (
            "3",
            [],
            [
                r"\begin{cases} x & x > 3 \\ 3 & x \le 3 \end{cases}",
                r"\frac{3}{",
                "3 +",
                "3 *",
                r"\sqrt{3",
                r"\log_3",
                "3 mod",
                r"\int 3",
                r"\binom{3}{",
                r"3 \ldots",
            ],
        ),
        (
            r"\frac{1}{3} E_{1}+\frac{2}{3} E_{2}",
            [r"\frac{E_1 + 2E_2}{3}"],
            [r"\frac{2}{3}", r"\frac{1}{3}", r"\frac{1}{3} E_{1}+\frac{1}{3} E_{2}", "E_2"],
        ),
        (r"\frac12 + \frac13", [r"\frac56"], ["13", r"\frac13", r"\frac12"]),
        ("x^2 + 1", ["1 + x^2", "x^{2}+1"], ["1", "x^2", "2", "x^2 - 1", "x^3+1"]),
        (r"\left(\frac{3}{2}\right)^2", [r"\frac94", "2.25"], ["2", r"\frac32", r"\frac92"]),
        (r"\sqrt[3]{2}", ["2^{1/3}"], ["2", "3", r"\sqrt{2}", r"\sqrt[3]{3}"]),
        (r"\frac{n(n+1)}{2}", [r"\frac{n^2+n}{2}", "n(n+1)/2"], ["2", r"\frac{n(n-1)}{2}", "n"]),
    ],
    "letters at the end": [
        (
            r"2\pi r h",
            [r"2 \pi h r", r"2\pi rh"],
            [r"2\pi r", r"2\pi h", r"2\pi r h^2", r"\pi r h"],
        ),
        ("3x+5", ["5+3x", "3x + 5"], ["3x+5t", "3x", "3x+5m", "5", "3x-5"]),
        ("a + b + c", ["c + b + a", "a+b+c"], ["a + b", "a + b - c", "a+b+2c", "a + c"]),
        ("3m", ["3m", r"3 \cdot m"], ["4m", "3n", "3m^2"]),
        ("2h", ["2h"], ["2", "h", "2hk", "3h"]),
        ("2abc", ["2cab", "2 a b c"], ["2ab", "2abd", "2bc"]),
        ("5t", ["5t"], ["5", "5s", "5t+1"]),
        ("2k+1", ["1+2k"], ["2k", "2k-1", "2m+1", "1"]),
        ("10t + 12", ["12+10t"], ["10t", "12", "10t+12s", "10t - 12"]),
        (r"\frac{37b}{27}", [r"\frac{37}{27} b"], [r"\frac{37}{27}", r"\frac{37a}{27}"]),
        ("x+y", ["y+x"], ["x", "xy", "x-y", "x+y+z"]),
        ("2(a+b)h", ["2ah + 2bh"], ["2(a+b)", "2ah", "2(a-b)h"]),
        ("11-k", ["-k+11"], ["11", "11k", "k-11"]),
    ],
    "relations": [
        (
            "5",
            ["x = 5", "=5"],
            [
                r"\ne 5",
                "< 5",
                "> 5",
                r"\le 5",
                r"\geq 5",
                "x < 5",
                r"x \ne 5",
                "x > 5",
                r"\neq 5",
                "≠ 5",
                r"x \ge 5",
                "!= 5",
                r"\not= 5",
            ],
        ),
        (
            "x < 5",
            ["5 > x", r"x \lt 5", "(-\\infty, 5)"],
            ["5", "x = 5", r"x \le 5", "x > 5", "x < 6", r"x \ne 5"],
        ),
        (
            r"x \ge 2",
            [r"2 \le x", r"x \geq 2", r"[2, \infty)"],
            ["x > 2", "2", r"x \le 2", "x = 2"],
        ),
        (r"m \neq 1", [r"m \ne 1"], ["1", "m = 1", r"m \neq 2", "m > 1"]),
        (r"1 < x \le 3", ["(1, 3]", r"3 \ge x > 1"], [r"1 \le x \le 3", "(1, 3)", "3", "x = 3"]),
        (
            r"x^2 + y^2 = 4",
            [r"y^2 + x^2 = 4", "x^2+y^2-4=0"],
            ["x^2 + y^2 = 5", "4", "x^2 - y^2 = 4", "x^2 + y^2 < 4"],
        ),
        (
            "y = 2x + 1",
            ["2x + 1 = y", "y - 2x = 1"],
            ["y = 2x - 1", "y = x + 1", "1", "y > 2x + 1"],
        ),
    ],
    "units": [
        (
            "5 kg",
            ["5", "5000 g", r"5\text{ kg}", "5 kilograms"],
            ["5 lbs", "5 g", "5 pounds", "50 kg"],
        ),
        ("60 km/h", ["60", r"60\text{ km/h}"], ["60 mph", "60 m/s", "60 km", "6 km/h"]),
        ("60 mph", ["60", "60 miles per hour"], ["60 km/h", "60 kmh"]),
        (r"12\text{ m}^2", ["12", "12 m^2", "12 square meters"], ["12 m", "12 m^3", "12 cm^2"]),
        ("12 m", ["12", "1200 cm", "12 meters"], ["12 m^2", "12 cm", "12 km", "12 miles"]),
        (
            r"\$5",
            ["5", "5 dollars", "$5.00", "500 cents"],
            ["5 cents", "£5", "€5", "5 euros", "50"],
        ),
        ("50 cents", ["50", r"\$0.50", "0.50 dollars"], [r"\$50", "50 dollars", "5 cents"]),
        ("£5", ["5", "£5.00", "5 pounds"], ["$5", "€5", "5 dollars"]),
        ("3 hours", ["3", "180 minutes", "3 hrs"], ["3 minutes", "3 days", "3 seconds"]),
        ("2.5 m", ["250 cm", r"2.5\,\mathrm{m}"], ["2.5 cm", "25 cm", "2.5 m^2"]),
        (r"45^\circ", ["45", "45 degrees", "45°"], ["45 radians", r"54^\circ", "45 minutes"]),
        (r"20\text{ miles}", ["20", "20 miles"], ["20 km", "20 feet", "20 meters"]),
        (
            r"3200 \mathrm{~cm}^{3}",
            ["3200", r"3200\text{ cm}^3", "3.2 liters"],
            [r"3200\text{ cm}^2", r"3200\text{ m}^3", "3200 cm"],
        ),
        ("10 m/s", ["10", "36 km/h"], ["10 km/h", "10 m", "10 mph"]),
        ("2 feet", ["24 inches", "2 ft"], ["2 inches", "2 m", "2 yards"]),
        ("3 L", ["3000 mL", "3 liters"], ["3 mL", "3 gallons"]),
        (r"50\%", ["50", "0.5", "50 percent", r"\frac12"], ["5", r"0.5\%", "51%"]),
        (r"25^{\circ} \mathrm{C}", ["25", r"25^\circ\text{C}"], [r"25^\circ\text{F}", "25 F"]),
        ("100 g", ["0.1 kg"], ["100 kg", "100 mg", "100 lbs"]),
        ("5 dozen", ["60"], ["5", "6 dozen"]),
    ],
    "boxes": [
        (
            "8",
            [
                r"\boxed{3} no, \boxed{8}",
                r"\boxed{8} and so \boxed{8}",
                r"\boxed{8}, \boxed{8}",
                r"$x = \boxed{3}$ is the first. Then the sum is \boxed{8}",
            ],
            [
                r"\boxed{3} or \boxed{8}",
                r"\boxed{8} or \boxed{3}",
                r"\boxed{3}, \boxed{8}",
                r"\boxed{8}. That is wrong.",
                r"\boxed{8}. No, this is incorrect: it is 9.",
                r"\boxed{8}. Wait, I made a mistake. The answer is 9.",
                r"\boxed{3 \text{ or } 8}",
                r"\boxed{8}. Scratch that.",
                r"\boxed{8} is not the answer.",
                r"\boxed{8} is wrong",
                r"It is not \boxed{8}.",
                r"The answer is not \boxed{8}",
                r"\boxed{8}\boxed{3}",
            ],
        ),
        (
            "3, 8",
            [r"\boxed{3} and \boxed{8}", r"\boxed{8}, \boxed{3}", r"\boxed{3} or \boxed{8}"],
            [r"\boxed{3}", r"\boxed{3} no, \boxed{8}", r"\boxed{3}, \boxed{8}, \boxed{9}"],
        ),
    ],
    "lists and points": [
        ("(3, 7)", ["(3,7)", r"\left(3, 7\right)"], ["(7, 3)", "3", "7", "(3, 8)", "[3, 7]"]),
        ("1, 2, 3", ["3, 2, 1", r"\{1,2,3\}"], ["1, 2", "1, 2, 4", "1, 2, 3, 4", "3"]),
        (r"221, 8", ["8, 221"], ["221", "8", "2218"]),
        ("(-4,1)", [r"(-4, 1)"], ["(4,1)", "(1,-4)", "-4", "(-4,-1)"]),
        ("1:2", ["1 : 2"], ["2:1", "1:3", "2"]),
        ("3 : 5 : 7", ["3:5:7"], ["3:5", "3:7:5", "3:5:8"]),
        (
            r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}",
            [r"\begin{bmatrix} 1 & 2 \\ 3 & 4 \end{bmatrix}"],
            [
                r"\begin{pmatrix} 1 & 2 \\ 3 & 5 \end{pmatrix}",
                r"\begin{pmatrix} 1 & 3 \\ 2 & 4 \end{pmatrix}",
                "4",
            ],
        ),
        (r"x = 2 \text{ or } x = 3", ["2, 3", "x=3 or x=2"], ["2", "x=2 or x=4"]),
    ],
    "words and choices": [
        (r"\text{even}", ["even", "Even"], ["odd", "uneven", "not even"]),
        ("(B)", ["B", r"\text{(B)}"], ["(A)", "A", "(B) and (C)"]),
        ("4:40 a.m.", ["4:40 am"], ["4:40 p.m.", "4:04 a.m.", "5:40 a.m."]),
        (r"\ln 2", [r"\ln(2)"], [r"\ln 3", "2", r"\log_{10} 2"]),
        ("1604_8", ["1604_{8}"], ["1604_9", "1604", "1605_8"]),
        (r"1 + \frac{1}{e}", [r"\frac{e+1}{e}"], ["1", r"1 - \frac{1}{e}", "e"]),
        ("2^{n}", ["2^n"], ["2", "n", "2n", "n^2", "2^{n+1}", "2^m"]),
        (r"\sin x", [r"\sin(x)"], [r"\cos x", "x", r"\sin 2x", r"\sin y"]),
        (r"\lfloor x \rfloor", [r"\lfloor{x}\rfloor"], ["x", r"\lceil x \rceil"]),
        (r"5\sqrt{6.1}", [r"\sqrt{152.5}"], ["5", "6.1", r"5\sqrt{6.2}"]),
        ("2 (3e - 5)", ["6e-10"], ["6e-5", "2", "-10", "6e+10"]),
        (
            r"\frac{x}{x-1}",
            [r"\frac{-x}{1-x}", "x/(x-1)"],
            ["x", r"\frac{x}{x+1}", r"\frac{1}{x-1}"],
        ),
    ],
}

REFUSED = [
    r"$n=5$, with $k=2$",
    r"$221,$8$",
    "the value of $x$ depends on $y$ as $y = 2x$",
    r"\frac{1}{",
    r"\frac{2}{3} + ",
    r"2 \frac",
    "(3, 7",
    r"\begin{cases} 1",
    "3 -> 7 ->",
    r"7 \ldots 9 \frac",
    "Let $n = 4$. Then we have $m = 3$ as a bound",
    r"\sqrt{",
]
"""Ground truths that say nothing, or more than one thing, so that no answer can be judged."""

BASES = [
    "17",
    "204",
    "-36",
    "0.075",
    "12.48",
    "1024",
    "3/7",
    r"\frac{3}{7}",
    r"-\frac{11}{4}",
    r"\sqrt{13}",
    r"3\sqrt{5}",
    r"\frac{2\sqrt{7}}{5}",
    r"2+\sqrt{3}",
    r"7-4\sqrt{3}",
    r"\frac{\pi}{12} + \frac{\sqrt{3}}{2}",
    r"252\pi",
    "x^2+3x-4",
    "2x+7",
    "3a-2b",
    r"\frac{x+1}{x-2}",
    "(16,17)",
    "(3,-5)",
    r"\{2,5,9\}",
    r"[2,7)",
    r"2^{31}",
    r"5^{-3}",
    r"6.4 \times 10^{-7}",
    r"4.5 \times 10^{12}",
    "48 cm",
    r"25\text{ kg}",
    r"\$65",
    "80 km/h",
    r"30^\circ",
    "x<4",
    r"x \ge -3",
    "y=3x-8",
    r"\log_{2} 9",
    r"e^{3}",
    r"\binom{9}{4}",
    r"(n+1)^2",
    r"n^{3}-n",
    r"\frac{1}{(a+b)^{3}}",
    r"\sqrt[3]{25}",
    "3.46 m",
    "2h+5",
    "1234567",
    "-0.0031",
    "999",
    "88.5",
    "43.75",
    r"\frac{126}{29}",
    r"\frac{8000}{81}",
    r"-\frac{2}{15}",
    r"\frac{3+2\sqrt{2}}{2}",
    r"\sqrt{1300}+159",
    r"\frac{18\sqrt{6}}{11}",
    r"288\sqrt{3}",
    r"\frac{27\pi}{40}",
    r"45\pi+30",
    "4x^2-9",
    "x^3-3x^2+3x-3",
    r"\frac{a}{b+1}",
    "5ab-7",
    "(4,7,-9)",
    r"\left(\frac{2}{5},\frac{3}{5}\right)",
    r"\{-4,0,4\}",
    "(-3,8]",
    "3^{17}-1",
    r"2^{-9}",
    r"9.1 \times 10^{-31}",
    "7.25e-18",
    "12!",
    "72 inches",
    r"15\text{ hours}",
    "340 m/s",
    r"\$4.75",
    "6.5 kg",
    r"120^\circ",
    r"x \le \frac{7}{2}",
    "2<x<9",
    "x^2+y^2=25",
    r"\ln 7",
    r"3e^{2}",
    r"\sin\frac{\pi}{7}",
    r"\binom{n}{3}",
    r"\sqrt{x+4}",
    r"|x-5|",
    "6n-5",
    r"\frac{n(n+1)}{6}",
    r"\frac{h}{3}+2",
    r"\begin{pmatrix} 3 & -2 \\ 5 & 8 \end{pmatrix}",
    "17:23",
    "2011_8",
    "3 + 4i",
    "-7 + 2i",
]
UNITS = {
    "cm": ["mm", "km", "inches"],
    "kg": ["g", "lbs"],
    r"\$": ["£", "€"],
    "km/h": ["mph", "m/s"],
    "m": ["cm", "ft"],
    "inches": ["feet", "cm"],
    "hours": ["minutes", "days"],
    "m/s": ["km/h", "cm/s"],
    r"^\circ": [" radians"],
}


def pairs() -> Iterator[Pair]:
    """Yields every pair: those by hand, and then those that are generated."""
    for kind, rows in WRITTEN.items():
        for gold, right, wrong in rows:
            yield from (Pair(kind, gold, answer, True) for answer in (gold, *right))
            yield from (Pair(kind, gold, answer, False) for answer in wrong)
    yield from generated()


def generated(seed: int = 11) -> Iterator[Pair]:
    """Yields changed ground truths as wrong answers, and rewritten ones as right answers."""
    dice = random.Random(seed)
    seen: set[tuple[str, str]] = set()
    for gold in BASES:
        for kind, answers in (
            ("one digit", digits(gold, dice)),
            ("one sign", signs(gold)),
            ("one exponent", exponents(gold)),
            ("one unit", units(gold)),
            ("one letter", letters(gold)),
        ):
            for answer in answers:
                if (gold, answer) not in seen:
                    seen.add((gold, answer))
                    yield Pair(kind, gold, answer, False)
        for answer in dict.fromkeys(rewritten(gold)):
            if answer != gold:
                yield Pair("written otherwise", gold, answer, True)


def digits(gold: str, dice: random.Random) -> Iterator[str]:
    """Yields a ground truth with one digit changed, at each of up to six places."""
    places = [match.start() for match in re.finditer(r"\d", gold)]
    for place in dice.sample(places, min(6, len(places))):
        others = [digit for digit in "123456789" if digit != gold[place]]
        yield gold[:place] + dice.choice(others) + gold[place + 1 :]


def signs(gold: str) -> Iterator[str]:
    """Yields a ground truth with one sign turned round, or its negative."""
    for match in re.finditer(r"[+-]", gold):
        other = "-" if match[0] == "+" else "+"
        yield gold[: match.start()] + other + gold[match.end() :]
    if re.match(r"[\d\\]", gold) and not re.match(r"\\[{$]", gold) and "x" not in gold:
        yield f"-{gold}" if not re.search(r"(?<!\{)[+-]", gold) else f"-({gold})"


def exponents(gold: str) -> Iterator[str]:
    """Yields a ground truth with one exponent raised by one."""
    for match in re.finditer(r"\^\{?(-?\d+)\}?", gold):
        more = int(match[1]) + 1
        yield f"{gold[: match.start()]}^{{{more if more != 1 else 2}}}{gold[match.end() :]}"


def units(gold: str) -> Iterator[str]:
    """Yields a ground truth with another unit."""
    for unit, others in UNITS.items():
        found = re.search(rf"(?<![a-zA-Z/]){re.escape(unit)}(?![a-zA-Z/])", gold)
        if found and (
            found.start() == 0 or re.search(rf"\d\s*(\\text\{{ )?{re.escape(unit)}", gold)
        ):
            yield from (gold.replace(unit, other) for other in others)


def letters(gold: str) -> Iterator[str]:
    """Yields a ground truth with one of its letters, alone between signs, changed for q."""
    for match in re.finditer(r"(?<![a-zA-Z\\])[abehnxy](?![a-zA-Z])", gold):
        if "text" not in gold:
            yield gold[: match.start()] + "q" + gold[match.end() :]


def rewritten(gold: str) -> Iterator[str]:
    """Yields a ground truth written in other ways that mean the same."""
    yield f"${gold}$"
    yield re.sub(r"(?<=[\d)}])([+-])(?=[\d(\\a-z])", r" \1 ", gold)
    if r"\frac" in gold:
        yield gold.replace(r"\frac", r"\dfrac")
    if re.fullmatch(r"-?\d+", gold):
        yield f"{gold}.0"
        yield f"+{gold}" if gold[0] != "-" else gold
        yield rf"\frac{{{2 * int(gold)}}}{{2}}"
    if gold.startswith("("):
        yield rf"\left({gold[1:-1]}\right)" if gold.endswith(")") else gold
