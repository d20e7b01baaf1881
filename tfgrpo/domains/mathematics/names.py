r"""Names of constants, functions and Greek letters that are written without LaTeX.

`2*pi`, `exp(2)` and `alpha + beta` would be read as products of letters. They are names in a ground
truth and in an answer alike, wherever a text is mathematics and no prose. `xi`, `mu` and `nu` stay
products, as x·i is as likely.
"""

from __future__ import annotations

import re

GREEK = (
    "alpha|beta|gamma|delta|epsilon|zeta|eta|theta|iota|kappa|lambda|pi|rho|sigma|tau|upsilon|phi"
    "|chi|psi|omega|Gamma|Delta|Theta|Lambda|Sigma|Phi|Psi|Omega|hbar"
)
ARC = "a(?:rc)?(sin|cos|tan)"
FUNCTIONS = "sin|cos|tan|cot|sec|csc|sinh|cosh|tanh|ln|log"
OF_SEVERAL = "max|min|gcd|lcm"
"""Functions that are written with brackets, and words without."""
INFINITE = "oo|inf|infinity|Infinity"
KNOWN = (
    rf"{GREEK}|{ARC}|{FUNCTIONS}|{OF_SEVERAL}|{INFINITE}|exp|sqrt|cbrt|abs|log(?:2|10)|mod|and|or"
    "|pct|percent"
)
ALONE = r"(?<![a-zA-Z\\{_])"
NAME = re.compile(
    rf"{ALONE}(?:(?P<greek>{GREEK})|(?P<arc>{ARC})|(?P<function>{FUNCTIONS}|(?:{OF_SEVERAL})(?=\s*[({{_]))"
    rf"|(?P<infinite>{INFINITE}))(?![a-zA-Z{{]|(?:2|10)\s*\()"
)
CALL = re.compile(rf"{ALONE}(exp|sqrt|cbrt|abs|log2|log10)\s*\(|\^\s*\(")
ROOT = re.compile(rf"{ALONE}sqrt\s*(\d+(?:\.\d+)?)(?![\w.])")
CALLS = {
    "exp": "e^{%s}",
    "sqrt": "\\sqrt{%s}",
    "cbrt": "\\sqrt[3]{%s}",
    "abs": "|%s|",
    "log2": "\\log_{2}(%s)",
    "log10": "\\log_{10}(%s)",
    None: "^{%s}",
}
"""How a function before a bracket is written in LaTeX; a power has none before it."""
UNION = re.compile(r"(?<=[)\]}])\s*U\s*(?=[(\[{\\])")
SET_AS_TEXT = re.compile(r"\\[a-zA-Z]+\s*(?:\{[^{}]*\})?")
WORD = re.compile(r"[a-zA-Z]{3,}")


def in_latex(text: str) -> str:
    """Returns a formula with the names in it as commands; a text in words as it is."""
    text = UNION.sub(r"\\cup ", text)
    words = WORD.findall(SET_AS_TEXT.sub(" ", text))
    if any(not re.fullmatch(KNOWN, word) for word in words):
        return text
    text = ROOT.sub(r"\\sqrt{\1}", NAME.sub(_command, text))
    at = 0
    while (call := CALL.search(text, at)) is not None:
        end = _closing(text, call.end())
        if end < 0:
            break
        inner = CALLS[call[1]] % text[call.end() : end]
        text, at = text[: call.start()] + inner + text[end + 1 :], call.start() + 1
    return text


def _command(match: re.Match[str]) -> str:
    if match["infinite"]:
        return "\\infty "
    if match["arc"]:
        return f"\\arc{match[3]} "
    return f"\\{match[0]} "


def _closing(text: str, at: int) -> int:
    depth = 1
    for index in range(at, len(text)):
        depth += (text[index] == "(") - (text[index] == ")")
        if depth == 0:
            return index
    return -1
