r"""Wrong answers that say something else than the ground truth, in nearly the same signs.

`near_misses.py` changes a sign or a digit; here it is the meaning: another function, a bar of an
absolute value that is gone, an end of an interval, an index, a transposed matrix, the prefix of a
unit. Each row is a ground truth and what is wrong for it, with letters for what is drawn: `<a>` to
`<d>` are numbers that differ, `<x>` to `<z>` symbols, `<u>` and `<v>` units that do not measure the
same, `<p>` and `<q>` prefixes. What a row makes is wrong for every draw.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from answer_pairs import Pair

FORMULA: dict[str, list[tuple[str, str]]] = {
    "another function": [
        (r"\sin(<a><x>)", r"\cos(<a><x>)"),
        (r"\tan\left(<x>\right)+<a>", r"\cot\left(<x>\right)+<a>"),
        (r"\arcsin\frac{1}{<a>}", r"\arccos\frac{1}{<a>}"),
        (r"\sinh <x>", r"\sin <x>"),
        (r"\ln(<x>+<a>)", r"e^{<x>+<a>}"),
        (r"\sqrt{<x>+<a>}", r"\sqrt[3]{<x>+<a>}"),
        (r"\lfloor <x>+0.5 \rfloor", r"\lceil <x>+0.5 \rceil"),
        (r"\max(<x>,<y>)", r"\min(<x>,<y>)"),
        (r"\gcd(<x>,<y>)", r"\operatorname{lcm}(<x>,<y>)"),
        (r"\gcd(<x>,<y>)", r"\gcd(<x>,<z>)"),
        (r"\sin^2 <x>", r"\sin <x>^2"),
        (r"\sin^{-1} <x>", r"\frac{1}{\sin <x>}"),
        (r"\sec <x>", r"\csc <x>"),
        (r"<x>!", r"\Gamma(<x>)"),
        (r"f(<x>)+<a>", r"g(<x>)+<a>"),
        (r"f(<x>)+<a>", r"f(<y>)+<a>"),
        (r"f'(<x>)", r"f(<x>)"),
        (r"f^{-1}(<x>)", r"f(<x>)"),
        (r"\operatorname{rank}(<x>)", r"\operatorname{tr}(<x>)"),
        (r"\deg <x>", r"\dim <x>"),
    ],
    "an absolute value": [
        ("|<x>-<a>|", "<x>-<a>"),
        (r"\left|<x>\right|+<a>", "<x>+<a>"),
        (r"\ln|<x>|", r"\ln(<x>^2)"),
        (r"\lvert <a><x> - <b>\rvert", "<a><x>-<b>"),
        (r"\|<x>\|", "<x>"),
        (r"\sqrt{<x>^2}", "<x>"),
    ],
    "a scope": [
        (r"\sqrt{<x>}+<a>", r"\sqrt{<x>+<a>}"),
        (r"-<x>^2", r"(-<x>)^2"),
        (r"<a><x>^<b>", r"(<a><x>)^<b>"),
        (r"\frac{<x>+<a>}{<b>}", r"<x>+\frac{<a>}{<b>}"),
        (r"\frac{1}{<x>+<a>}", r"\frac{1}{<x>}+<a>"),
        (r"(<a>n)!", r"<a>n!"),
        (r"<a>^{<b>^{<x>}}", r"(<a>^{<b>})^{<x>}"),
        (r"<a>/(<b><x>)", r"<a>/<b>\cdot <x>"),
        (r"e^{<x>+<a>}", r"e^{<x>}+<a>"),
        (r"\ln(<x>+<a>)", r"\ln <x>+<a>"),
        (r"\frac{<x>}{<y>}", r"\frac{<y>}{<x>}"),
        (r"(<x>+<y>)^2", r"<x>^2+<y>^2"),
        (r"<x>-(<y>-<z>)", r"<x>-<y>-<z>"),
    ],
    "an index": [
        (r"a_{n}+<a>", r"a_{n+1}+<a>"),
        (r"<x>_{<a>}+<b>", r"<x>_{<c>}+<b>"),
        (r"\sum_{k=1}^{n} k^2", r"\sum_{k=1}^{n-1} k^2"),
        (r"\sum_{k=1}^{<a>} k", r"\sum_{k=2}^{<a>} k"),
        (r"\sum_{k=0}^{n} 2^k", r"\sum_{k=1}^{n} 2^k"),
        (r"\prod_{k=1}^{n} (k+1)", r"\prod_{k=1}^{n} k"),
        (r"\binom{n}{<a>}", r"\binom{n}{<b>}"),
        (r"F_{2n}", r"F_{2n+1}"),
        (r"<x>_1 <x>_2", r"<x>_1 <x>_1"),
        (r"<a>^{n}", r"<a>^{n-1}"),
        (r"\int_0^{<a>} <x>^2\,d<x>", r"\int_0^{<b>} <x>^2\,d<x>"),
        (r"\int_0^{1} <x>^{<a>}\,d<x>", r"\int_1^{0} <x>^{<a>}\,d<x>"),
        (r"\frac{\partial f}{\partial <x>}", r"\frac{\partial f}{\partial <y>}"),
        (r"\frac{d<x>}{dt}", r"\frac{d<y>}{dt}"),
        (r"\lim_{n\to\infty} \frac{<a>n}{n+1}", r"\lim_{n\to 0} \frac{<a>n}{n+1}"),
    ],
    "a product of vectors": [
        (r"\vec{<x>}\times\vec{<y>}", r"\vec{<y>}\times\vec{<x>}"),
        (r"\vec{<x>}\times\vec{<y>}", r"\vec{<x>}\cdot\vec{<y>}"),
        (
            r"\mathbf{<x>}\times\mathbf{<y>}+\mathbf{<z>}",
            r"\mathbf{<y>}\times\mathbf{<x>}+\mathbf{<z>}",
        ),
        (r"q\vec{<x>}\times\vec{<y>}", r"q\vec{<y>}\times\vec{<x>}"),
        (r"|\vec{<x>}|", r"\vec{<x>}"),
    ],
    "a conjugate": [
        ("<a>+<b>i", "<a>-<b>i"),
        (r"<a>e^{i\pi/<b>}", r"<a>e^{-i\pi/<b>}"),
        (r"\frac{<a>+i}{<b>}", r"\frac{<a>-i}{<b>}"),
        ("<a>+<b>i", "<b>+<a>i"),
        (r"\bar{<x>}", r"<x>"),
        ("<a>+<b>i", "<a>+<b>"),
        (r"<a>\pm <b>i", "<a>+<b>i"),
        (r"(<a>+<b>i)<x>", r"(<a>-<b>i)<x>"),
    ],
    "a base of a logarithm": [
        (r"\log_{<a>} <x>", r"\log_{<b>} <x>"),
        (r"\log_{<a>}(<c>)", r"\log_{<b>}(<c>)"),
        (r"\ln <x>", r"\log_{2} <x>"),
        (r"\log_<x> <y>", r"\log_<y> <x>"),
        (r"\frac{\ln <a>}{\ln <b>}", r"\frac{\ln <b>}{\ln <a>}"),
        (r"\ln\frac{<a>}{<b>}", r"\frac{\ln <a>}{\ln <b>}"),
    ],
    "degrees and radians": [
        (r"\sin(<a>^\circ)", r"\sin(<a>)"),
        (r"\cos <a>", r"\cos <a>^\circ"),
        (r"\frac{\tan <a>^\circ}{<b>}", r"\frac{\tan <a>}{<b>}"),
    ],
    "more or less": [
        (r"<a>\pm\sqrt{<b>1}", r"<a>+\sqrt{<b>1}"),
        (r"<a>\pm\sqrt{<b>1}", r"<b>\pm\sqrt{<a>1}"),
        (r"\pm <a>", "<a>"),
        (r"\pm <a>", "-<a>"),
        (r"\frac{-<x>\pm\sqrt{<y>}}{2}", r"\frac{-<x>+\sqrt{<y>}}{2}"),
        (r"\frac{-<x>\pm\sqrt{<y>}}{2}", r"\frac{<x>\pm\sqrt{<y>}}{2}"),
        (r"<a>\pm<b>", r"<a>\pm<c>"),
    ],
    "a set and a point": [
        ("(<a>, <b>)", r"\{<a>, <b>\}"),
        (r"\{<a>, <b>\}", "(<a>, <b>)"),
        ("[<a>, <b>1]", "(<a>, <b>1)"),
        (r"\{<a>, <b>, <c>\}", r"\{<a>, <b>\}"),
        (r"\{<a>, <b>\}", r"\{<a>, <b>, <c>\}"),
        (r"(<a>, <b>, <c>)", "(<a>, <c>, <b>)"),
        ("(<a>, <b>, <c>)", "(<c>, <b>, <a>)"),
        (r"(<a>, <b>), (<c>, <d>)", r"(<a>, <d>), (<c>, <b>)"),
        (r"(<a>, <b>), (<c>, <d>)", "(<a>, <b>)"),
        (r"\{(<a>, <b>), (<c>, <d>)\}", r"\{(<b>, <a>), (<d>, <c>)\}"),
        (r"\{<a>\}", r"\{<b>\}"),
        (r"\{\{<a>\}, \{<b>\}\}", r"\{\{<a>, <b>\}\}"),
        (r"\langle <a>, <b>\rangle", r"\langle <b>, <a>\rangle"),
        (r"<a>\hat{i}+<b>\hat{j}", r"<b>\hat{i}+<a>\hat{j}"),
        ("x=<a>, y=<b>", "x=<b>, y=<a>"),
        ("x=<a>, y=<b>", "(<b>, <a>)"),
        ("<a>:<b>1", "<b>1:<a>"),
        (r"A\setminus B", r"B\setminus A"),
        (r"A\cup B", r"A\cap B"),
        (r"\emptyset", r"\{0\}"),
    ],
    "an end of an interval": [
        ("(-<a>, <b>]", "[-<a>, <b>)"),
        ("[-<a>, <b>]", "[-<a>, <b>)"),
        (r"(-\infty, <a>)", r"(-\infty, <a>]"),
        (r"(<a>, \infty)", r"(-\infty, <a>)"),
        (r"(-\infty, -<a>)\cup(<b>,\infty)", r"(-\infty, -<a>]\cup(<b>,\infty)"),
        (r"(-\infty, -<a>)\cup(<b>,\infty)", r"(-<a>,<b>)"),
        (r"[-<a>, 0)\cup(0, <b>]", r"[-<a>, <b>]"),
        ("]-<a>, <b>[", "[-<a>, <b>]"),
        (r"\{x \mid x > <a>\}", r"\{x \mid x \ge <a>\}"),
        (r"\mathbb{R}\setminus\{<a>\}", r"\mathbb{R}\setminus\{<b>\}"),
        (r"\mathbb{R}\setminus\{<a>\}", r"\mathbb{R}"),
        (r"\{x\in\mathbb{R} \mid x > <a>\}", r"\{x\in\mathbb{Z} \mid x > <a>\}"),
        (r"[-<a>,<b>]", r"\{-<a>,<b>\}"),
    ],
    "a direction": [
        ("x > <a>", "x < <a>"),
        ("x > <a>", r"x \ge <a>"),
        (r"x \le -<a>", r"x \le <a>"),
        (r"-<a> < x < <b>", r"-<a> < x \le <b>"),
        (r"-<a> < x < <b>", r"-<b>1 < x < <b>"),
        (r"x < -<a> \text{ or } x > <b>", r"-<a> < x < <b>"),
        (r"x < -<a> \text{ or } x > <b>", r"x < -<a>"),
        (r"x \ne <a>", "x = <a>"),
        ("<x> > <y>", "<y> > <x>"),
        (r"<x>+<y>\le <a>", r"<x>+<y>\ge <a>"),
        (r"<x> < <y> < <z>", r"<z> < <y> < <x>"),
        (r"|x| < <a>", r"|x| > <a>"),
        ("x > <a>", "<a>"),
        (r"p\to q", r"q\to p"),
        (r"a \mid b", r"b \mid a"),
        (r"A\subset B", r"B\subset A"),
    ],
    "a modulus": [
        (r"x\equiv <a> \pmod{<b>}", r"x\equiv <a> \pmod{<c>}"),
        (r"x\equiv <a> \pmod{<b>}", r"x\equiv <c> \pmod{<b>}"),
        (r"<a> \pmod{<b>}", r"<a> \pmod{<c>}"),
        (r"<x> \bmod <a>", r"<a> \bmod <x>"),
        (r"<x>\equiv <y> \pmod{<a>}", r"<x>=<y>"),
        (r"1<x> \bmod <a>", r"1<x> \bmod <b>"),
    ],
    "a matrix": [
        (
            r"\begin{pmatrix} <a> & <b> \\ <c> & <d> \end{pmatrix}",
            r"\begin{pmatrix} <a> & <c> \\ <b> & <d> \end{pmatrix}",
        ),
        (
            r"\begin{pmatrix} <a> & <b> \\ <c> & <d> \end{pmatrix}",
            r"\begin{pmatrix} <c> & <d> \\ <a> & <b> \end{pmatrix}",
        ),
        (
            r"\begin{pmatrix} <a> & <b> \\ <c> & <d> \end{pmatrix}",
            r"\begin{pmatrix} <a> & <b> \\ <c> & <d> \end{pmatrix}^{T}",
        ),
        (
            r"\begin{pmatrix} <a> & <b> \\ <c> & <d> \end{pmatrix}",
            r"\begin{vmatrix} <a> & <b> \\ <c> & <d> \end{vmatrix}",
        ),
        (
            r"\begin{bmatrix} <a> \\ <b> \end{bmatrix}",
            r"\begin{bmatrix} <b> \\ <a> \end{bmatrix}",
        ),
        (
            r"\begin{bmatrix} <a> & <x> \\ 0 & <b> \end{bmatrix}",
            r"\begin{bmatrix} <a> & -<x> \\ 0 & <b> \end{bmatrix}",
        ),
        (
            r"\begin{cases} <a>x & x>0 \\ <b>x & x\le 0\end{cases}",
            r"\begin{cases} <b>x & x>0 \\ <a>x & x\le 0\end{cases}",
        ),
        (
            r"\begin{cases} <a>x & x>0 \\ <b>x & x\le 0\end{cases}",
            r"\begin{cases} <a>x & x>1 \\ <b>x & x\le 1\end{cases}",
        ),
    ],
    "an equation": [
        ("y = <a>x + <b>", "y = <a>x - <b>"),
        ("y = <a>x + <b>", "x = <a>y + <b>"),
        ("<a><x> + <b><y> = <c>1", "<b><x> + <a><y> = <c>1"),
        ("x^2 + y^2 = <a>", "x^2 - y^2 = <a>"),
        (r"(x-<a>)^2+(y-<b>)^2=<c>", r"(x-<b>)^2+(y-<a>)^2=<c>"),
        (r"\frac{x^2}{<a>}+\frac{y^2}{<b>}=1", r"\frac{x^2}{<b>}+\frac{y^2}{<a>}=1"),
        ("f(x) = <a>x^2", "f(x) = <a>x"),
        ("x^3 = <a>", "x^2 = <a>"),
        ("<x> = <a><y>", "<y> = <a><x>"),
        ("<x><y> = <a>", "<x>+<y> = <a>"),
    ],
    "one of several": [
        ("<a>, -<b>, <c>", "<a>, -<b>"),
        ("<a>, -<b>", "<a>, -<b>, 0"),
        (r"x = <a> \text{ or } x = -<b>", "x = <a>"),
        (r"\frac{<a>}{7}, \frac{<b>}{11}", r"\frac{<a>}{7}"),
        ("<a> and <b>", "<a><b>"),
        ("<a>, <b>", "<a>.<b>"),
        ("<a>, <b>, <b>1", "<a>, <b>, <c>"),
    ],
}
"""Formulas, which also stand in larger ones."""
WHOLE: dict[str, list[tuple[str, str]]] = {
    "a unit or its prefix": [
        (r"<a>\ \mathrm{<p><u>}", r"<a>\ \mathrm{<q><u>}"),
        (r"<a>\ \mathrm{<p><u>}", r"<a>\text{ <q><u>}"),
        ("<a> <p><u>", "<a> <q><u>"),
        (r"<a>\ \mathrm{<u>}", r"<a>\ \mathrm{<v>}"),
        (r"<a>\ \mathrm{<u>/<v>}", r"<a>\ \mathrm{<v>/<u>}"),
        (r"<a>\ \mathrm{<u>/<v>}", r"<a>\ \mathrm{<u>}"),
        (r"<a>\ \mathrm{<u>/<v>}", r"<a>\ \mathrm{<u>\,<v>}"),
        (r"<a>\ \mathrm{<u>\,<v>}", r"<a>\ \mathrm{<u>}"),
        (r"<a>\ \mathrm{<u>\,<v>}", r"<a>\ \mathrm{<u>\,<v>^{-1}}"),
        (r"<a>\ \mathrm{<u>\,<v>^{-1}}", r"<a>\ \mathrm{<u>\,<v>^{-2}}"),
        (r"<a>\ \mathrm{<u>\cdot <v>}", r"<a>\ \mathrm{<u>\cdot <v>^2}"),
        (r"<a>\ \frac{\mathrm{<u>}}{\mathrm{<v>}}", r"<a>\ \frac{\mathrm{<v>}}{\mathrm{<u>}}"),
        (
            r"<a>\ \frac{\mathrm{<p><u>}}{\mathrm{<v>}}",
            r"<a>\ \frac{\mathrm{<q><u>}}{\mathrm{<v>}}",
        ),
        (r"<a>\ \mathrm{<u>}^2", r"<a>\ \mathrm{<u>}^3"),
        (r"<a>\ \mathrm{<u>^2}", r"<a>\ \mathrm{<u>}"),
        (r"<a>\ \mathrm{k\Omega}", r"<a>\ \Omega"),
        (r"<a>\ \Omega", r"<a>\ \mathrm{M\Omega}"),
        (r"<a>\ \Omega", r"<a>\text{ <u>}"),
        (r"<a>\ \mu\mathrm{<u>}", r"<a>\ \mu\mathrm{<v>}"),
        (r"<a>\ \mu\mathrm{<u>}", r"<a>\ \mathrm{m<u>}"),
        (r"<a>\ \mu\mathrm{<u>}", r"<a>\ \mathrm{<u>}"),
        ("<a> µ<u>", "<a> µ<v>"),
        ("<a> µ<u>", "<a> <u>"),
        (r"<a>^\circ", r"<a>\text{ rad}"),
        (r"<a>^\circ\text{C}", r"<a>^\circ\text{F}"),
        (r"<a>^\circ\text{C}", r"<a>\text{ K}"),
        (r"\frac{<a>}{7}\ \mathrm{<u>}", r"\frac{<a>}{7}\ \mathrm{<v>}"),
        (r"\sqrt{<a>}\ \mathrm{<u>}", r"\sqrt{<a>}\ \mathrm{<v>}"),
        (r"<a>\pi\ \mathrm{<p><u>}", r"<a>\pi\ \mathrm{<q><u>}"),
        (r"<a>\times 10^{<b>}\ \mathrm{<u>}", r"<a>\times 10^{-<b>}\ \mathrm{<u>}"),
        ("$<a>", "€<a>"),
        (r"\$<a>.50", r"\$<b>.50"),
        ("<a> m/s", "<a> km/h"),
        ("<a> minutes", "<a> hours"),
        ("<a> million", "<a> billion"),
        ("<a>:15 PM", "<a>:15 AM"),
    ],
    "per cent": [
        (r"1<a>\%", r"0.01<a>"),
        (r"1<a>\%", r"1<b>\%"),
        (r"\frac{1}{<a>}", r"<a>\%"),
        (r"0.1<a>", r"1.<a>\%"),
        (r"0.1<a>\%", r"1<a>"),
    ],
    "a comma": [
        ("1<a>.5", "1<a>5"),
        ("1.<a>5", "1,<b>5"),
        ("<a>,000", "<a>.000"),
        ("<a>.5", "<a>5"),
        ("1.234.<a>5", "1.234,<a>5"),
        ("1,234.<a>", "1.234,<b>"),
        ("0,<a>", "0,<b>"),
        ("<a> 000", "<a>"),
        ("1<a>,5", "1<b>,5"),
    ],
    "a base": [
        ("1101_2", "1101_{10}"),
        ("1<a>_{9}", "1<a>_{11}"),
        ("<a>F_{16}", "<a>E_{16}"),
        ("FF_{16}", "FE_{16}"),
        ("<a>_{8}", "<b>_{8}"),
        ("0x<a>F", "0x<b>F"),
        ("AB<a>_{16}", "BA<a>_{16}"),
        ("BAD_{16}", "DAB_{16}"),
    ],
    "a date": [
        ("2025-03-1<a1>", "2025-03-2<a1>"),
        ("March 4, 20<a>", "April 3, 20<a>"),
        ("4 March", "4 May"),
        ("4:<a>", "5:<a>"),
    ],
    "words": [
        ("increasing", "decreasing"),
        ("yes", "no"),
        ("True", "False"),
        ("even", "odd"),
        ("<a> or more", "<a>"),
        ("at least <a>", "at most <a>"),
        ("not <a>", "<a>"),
        ("<a> apples and <b> pears", "<b> apples and <a> pears"),
        ("A and <b>", "B and <b>"),
        (r"\text{converges}", r"\text{diverges}"),
        (r"\text{B}", r"\text{C}"),
        (r"\text{(B)}", r"\text{(C)}"),
        (r"\mathrm{H_2O}", r"\mathrm{H_2O_2}"),
        (r"\text{CO}_2", r"\text{CO}"),
        (r"\text{Fe}^{2+}", r"\text{Fe}^{3+}"),
        (r"\text{NaCl}", r"\text{NaCl}_2"),
        ("parallel", "perpendicular"),
        ("<a> to <b>", "<b> to <a>"),
        ("between <a> and <b>", "<a> and <b>"),
        ("<a>-<b>1", "<a>"),
        ("<a>th", "<b>th"),
    ],
}
"""Answers that stand alone."""
FRAMES = ["%s", "%s", "%s", "$%s$", r"\left(%s\right)", r"\displaystyle %s", r"\text{ }%s", "%s."]
WITHIN = [
    "<d>+(%s)",
    r"\frac{%s}{<d>}",
    r"\left(%s\right)^{3}",
    "(%s, <d>)",
    r"\{%s, 0.<d>\}",
    "k=%s",
]
VALUES = (
    *("another function", "an absolute value", "a scope", "an index", "a product of vectors"),
    *("a conjugate", "a base of a logarithm", "degrees and radians"),
)
"""Kinds whose formulas have a value, so that it may be part of a larger one."""
SYMBOLS = ["p", "q", "r", "s", "u", "v", "w", r"\alpha", r"\beta", r"\lambda", r"\omega", "R", "K"]
UNITS = ["m", "g", "s", "N", "J", "W", "V", "A", "Pa", "Hz", "mol", "K", "C", "T", "F", "L"]
PREFIXES = ["n", "m", "k", "", "M"]
LETTER = re.compile(r"<([a-z]1?)>")


def other_meanings(count: int = 20_000, seed: int = 1) -> Iterator[Pair]:
    """Yields that many wrong answers, of each kind as many."""
    pick = random.Random(seed)
    kinds = [*FORMULA, *WHOLE]
    rows = FORMULA | WHOLE
    for number in range(count):
        kind = kinds[number % len(kinds)]
        forms = rows[kind]
        gold, answer = forms[(number // len(kinds)) % len(forms)]
        if kind in VALUES and pick.random() < 0.4:
            gold, answer = (side.join(_around(WITHIN, number)) for side in (gold, answer))
        drawn = _drawn(pick)
        gold, answer = (_filled(side, drawn) for side in (gold, answer))
        frame = pick.choice(FRAMES) if kind in FORMULA and "$" not in gold else "%s"
        yield Pair(kind, gold, frame.replace("%s", answer), False)


def _around(frames: list[str], number: int) -> list[str]:
    """Returns what stands before and after a formula in a larger one."""
    return frames[number % len(frames)].split("%s")


def _filled(form: str, drawn: dict[str, str]) -> str:
    return LETTER.sub(lambda one: drawn[one[1]], form)


def _drawn(pick: random.Random) -> dict[str, str]:
    """Returns what stands for each letter of a row."""
    names = dict(zip("abcd", map(str, pick.sample(range(11, 60), 4)), strict=True))
    names |= dict(zip("xyz", pick.sample(SYMBOLS, 3), strict=True))
    names |= dict(zip("uv", pick.sample(UNITS, 2), strict=True))
    names |= dict(zip("pq", pick.sample(PREFIXES, 2), strict=True))
    return names | {"a1": str(pick.randint(1, 8))}
