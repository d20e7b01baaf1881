"""Every name that a parser may take for a function or a constant, in formulas that differ.

For each name there are answers that are wrong because a number, a case, an index or a mark of the
symbol is another one, and answers that are right because only the order or a bracket differs.
Values that are undefined, infinite or cannot be worked out make pairs too: none equals another.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from itertools import permutations

from answer_pairs import Pair

GREEK = (
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi"
    " varpi rho varrho sigma varsigma tau upsilon phi varphi chi psi omega"
    " Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega"
)
COMMANDS = [rf"\{name}" for name in (*GREEK.split(), "hbar", "ell", "aleph", "nabla")]
LETTERS = [letter for letter in string.ascii_letters if letter not in "eix"]
SPECIAL = ["Chi", "Si", "Ci", "Li", "Ei", "zeta", "beta", "gamma", "Gamma", "pi", "S", "N", "oo"]
"""What SymPy calls some of its functions and constants."""
TEXTS = [rf"\text{{{name}}}" for name in SPECIAL] + [rf"\mathrm{{{name}}}" for name in SPECIAL]
MARKED = [
    r"\hat{p}",
    r"\vec{F}",
    r"\bar{z}",
    r"\tilde{g}",
    r"\dot{q}",
    r"\mathcal{L}",
    r"\mathbf{B}",
    "m_e",
    "I_0",
    "E_k",
    r"e_{2}",
    r"\pi_1",
    r"i_1",
    "k_B",
    r"V_{\text{max}}",
    r"\epsilon_0",
    r"\mu_{r}",
    r"\Gamma_{12}",
    "y'",
    r"T^{*}",
]
NAMES = [*COMMANDS, *LETTERS, *TEXTS, *MARKED]
CONSTANTS = ["0.577216", "0.5772156649", "2.718282", "3.141593", "1.644934", "0.915966", "1.618034"]
"""Values of named constants, to which no symbol is equal."""

WRONG = [
    ("N-1", ["N-2", "1-N", "-1"]),
    ("N+3", ["2", "3", "N+4"]),
    (r"\frac{1}{N-1}", [r"\frac{1}{N-3}", "0"]),
    ("x^{N-1}", ["x^{N-2}", "x"]),
    ("(N-1)x^2", ["(N-2)x^2", "(N-1)x^3"]),
    ("(N, 2)", ["(N+1, 2)"]),
    (r"\{N-1, x\}", [r"\{N-2, x\}"]),
    ("x=N+1", ["x=N+2"]),
    ("x>N-1", ["x>N-2"]),
    ("[N, N+1]", ["[N, N+2]"]),
    (r"\begin{pmatrix} N-1 \\ 2 \end{pmatrix}", [r"\begin{pmatrix} N-3 \\ 2 \end{pmatrix}"]),
    ("5N", CONSTANTS),
]
RIGHT = [
    ("N-1", "-1+N"),
    ("N(1-v)", r"N-Nv"),
    (r"\frac{N}{N-1}", r"1+\frac{1}{N-1}"),
    ("(N+2)^2", "N^2+4N+4"),
    ("(N-1)mc^2", r"m c^{2} (N-1)"),
]
UNDEFINED = [
    r"\frac{1}{0}",
    r"\frac{2}{0}",
    "3/0",
    r"\frac{x}{0}",
    r"\tan\frac{\pi}{2}",
    r"\ln 0",
    r"\log 0",
    r"0^{-1}",
    r"\infty-\infty",
    r"0\cdot\infty",
    r"\frac{\infty}{\infty}",
    r"\Gamma(0)",
    r"\Gamma(-1)",
    r"(-1)!",
    r"\cot 0",
    r"\int_{0}^{1} \frac{1}{x} dx",
    r"\int_{0}^{1} \frac{1}{x^2} dx",
    r"\sum_{n=1}^{\infty} n",
    r"\sum_{n=1}^{\infty} \frac{1}{n}",
    r"\infty",
    r"-\infty",
    r"\infty+1",
    r"2\infty",
    r"\infty i",
]
WITHIN = [
    "{}",
    "x={}",
    "({}, 1)",
    r"\{{{}, 1\}}",
    r"\begin{{pmatrix}} {} \\ 1 \end{{pmatrix}}",
    "1+{}",
    r"\sqrt{{{}}}",
    "[{}, 1)",
    "x>{}",
]


def symbol_pairs() -> Iterator[Pair]:
    """Yields formulas with each name, and the answers to them."""
    for name in NAMES:
        for gold, answers in WRONG:
            for answer in answers:
                yield Pair(name, _with(gold, name), _with(answer, name), False)
        for gold, answer in RIGHT:
            yield Pair(name, _with(gold, name), _with(answer, name), True)
    for one, other in zip(NAMES, [*NAMES[1:], NAMES[0]], strict=True):
        yield Pair(one, f"{one}+1", f"{other}+1", _alike(one, other))
    for name in NAMES:
        if "_" not in name and "^" not in name and "'" not in name:
            yield Pair(name, f"{name}_1+2", f"{name}_2+2", False)
            yield Pair(name, f"{name}_1 x", f"{name} x", False)
            yield Pair(name, f"{name}'+1", f"{name}+1", False)
            yield Pair(name, f"{name}^T+1", f"{name}+1", False)
    for letter in LETTERS:
        yield Pair(letter, f"{letter}+1", f"{letter.swapcase()}+1", False)


def undefined_pairs() -> Iterator[Pair]:
    """Yields two values of which neither is a number, alone and in what holds them."""
    for frame in WITHIN:
        for one, other in permutations(UNDEFINED, 2):
            yield Pair("undefined", frame.format(one), frame.format(other), False)


def _with(formula: str, name: str) -> str:
    """Returns a formula with a name for N; one that ends in a letter stands before a blank."""
    return formula.replace("N", f"{name} " if name[-1].isalpha() else name)


def _alike(one: str, other: str) -> bool:
    """Whether two names are one symbol: written alike but for the shape or the typeface."""
    return _bare(one) == _bare(other)


def _bare(name: str) -> str:
    for mark in (r"\var", r"\text{", r"\mathrm{", r"\mathbf{", "\\", "}"):
        name = name.replace(mark, "")
    return name
