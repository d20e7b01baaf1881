r"""Names of symbols, written so that no parser takes one for a function or a constant.

`\gamma` alone is Euler's constant to the parser, before a bracket it is the gamma function, and of
`m_e` it makes a number. Every name becomes a plain variable before anything is parsed: the letter
or the command with its accent, index and marks. What stays is what a formula means by it: π without
an index, e, ∞, and a single letter, which may be the variable of a sum or a function's name.
"""

from __future__ import annotations

import re

INNER = r"(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*"
GREEK = (
    r"(?:var)?(?:alpha|beta|gamma|delta|epsilon|zeta|theta|eta|iota|kappa|lambda|mu|nu|xi|omicron"
    r"|pi|rho|sigma|tau|upsilon|phi|chi|psi|omega)"
    r"|(?:var)?(?:Gamma|Delta|Theta|Lambda|Xi|Pi|Sigma|Upsilon|Phi|Psi|Omega)"
)
COMMAND = rf"\\(?:{GREEK}|hbar|ell|aleph|nabla|wp|imath|jmath|digamma)(?![a-zA-Z])"
FACE = r"\\(?:text(?:rm|it|bf|normal)?|math(?:rm|it|bf|sf|normal)|mbox|boldsymbol|bm)"
"""How a name is set, which makes no other name of it."""
ACCENT = (
    r"\\(?:hat|widehat|vec|overrightarrow|bar|overline|tilde|widetilde|dot|ddot|breve|check|acute"
    r"|grave|underline|mathcal|mathfrak|mathscr|mathbb)"
)
MARKS = r"'|\^\s*\\(?:prime|ast|star|dagger|circ)(?![a-zA-Z])|\^\s*\*|\^\s*°|°"
RAISED = r"\^\s*\{\s*(?:\\(?:prime|ast|star|dagger|circ)|\*|'|°|\s)+\}"
INDEX = rf"_\s*(?:\{{{INNER}\}}|\\[a-zA-Z]+(?:\s*\{{[^{{}}]*\}})?|[a-zA-Z0-9*+-])"
NAME = re.compile(
    rf"(?P<face>{FACE}\s*\{{\s*(?P<said>[^{{}}]*?)\s*\}})"
    rf"|(?P<accent>{ACCENT}\s*(?:\{{{INNER}\}}|{COMMAND}|[a-zA-Z]))"
    rf"|(?P<command>{COMMAND})|(?P<sign>[\u0370-\u03ff])|(?P<other>\\(?:begin|end|operatorname\*?)\s*\{{[^{{}}]*\}}|\\[a-zA-Z]+|\\.)|(?P<letter>[a-zA-Z])",
    re.DOTALL,
)
TAIL = re.compile(rf"\s*(?:(?P<index>{INDEX})|(?P<mark>{MARKS}|{RAISED}))")
SWAPPED = re.compile(rf"(\^\s*(?:\{{{INNER}\}}|[a-zA-Z0-9]))\s*({INDEX})")
"""An index that stands behind the exponent: `x^2_1`."""
TRANSPOSED = re.compile(
    r"(?<!matrix\})\^\s*(?:T(?![a-zA-Z])|\{\s*(?:T|\\top)\s*\}|\\top(?![a-zA-Z]))"
)
SETS = re.compile(r"\\mathbb\s*\{?\s*[NZQRC]\s*\}?")
PARSER_WORDS = re.compile(r"and|or|pct|percent(?:age)?|th|", re.IGNORECASE)
"""Words set as text that the parser knows, or drops."""
OWN = re.compile(r"\\(?:int|iint|oint|sum|prod|lim|d?frac\s*\{\s*(?:d|\\partial|\\mathrm\s*\{d\}))")
"""Where a letter belongs to a sign: a variable of integration, of a sum or of a limit."""
BRACKET = re.compile(r"\s*(?:\\left\s*)?\(")
"""What makes a function of a name before it, where one symbol or number stands in it."""


def as_variables(text: str) -> str:
    r"""Returns a formula with `\variable{…}` for every name that could be read as another thing."""
    text = TRANSPOSED.sub(r"^{\\variable{T}}", text)
    letters = OWN.search(text) is None
    pieces: list[str] = []
    at = 0
    while (match := NAME.search(text, at)) is not None:
        pieces.append(text[at : match.start()])
        whole, at = _name(text, match, letters)
        pieces.append(whole)
    return "".join([*pieces, text[at:]])


def _name(text: str, match: re.Match[str], letters: bool) -> tuple[str, int]:
    if match["other"] or SETS.fullmatch(match[0]) or PARSER_WORDS.fullmatch(match["said"] or "x"):
        return match[0], match.end()
    end = match.end()
    indices, marks = [], []
    swapped = SWAPPED.match(text, end)
    power = ""
    if swapped is not None:
        power, end = swapped[1], swapped.end()
        indices.append(_bare(swapped[2][1:]))
    while (tail := TAIL.match(text, end)) is not None:
        if tail["index"]:
            indices.append(_bare(tail["index"][1:]))
        else:
            marks.append("".join(re.findall(r"prime|'|\*|ast|star|dagger|circ|°", tail["mark"])))
        end = tail.end()
    name = _spelt(match)
    if not name:
        return match[0], match.end()
    if not indices and not marks:
        plain = len(name) == 1 and name.isascii()
        if name == "pi" and not match["face"]:
            return _before_bracket("\\pi ", text, end), end
        if plain and not (letters and name in "dI") and name not in "iI":
            return name if match["letter"] else f"{{{name}}}", end
    marked = "".join(marks).replace("prime", "'").replace("ast", "*").replace("circ", "°")
    command = "text" if (indices or marks) and BRACKET.match(text, end) else "variable"
    return f"\\{command}{{{encoded('_'.join([name, *indices]) + marked)}}}{power}", end


def _spelt(match: re.Match[str]) -> str:
    """Returns a name alone: `\\mathbf{B}` is B, `\\hat{p}` is hat p, `\\alpha` and α are alpha."""
    if match["face"]:
        return _bare(match["said"])
    if match["sign"]:
        from latex2sympy2_extended.symbols import GREEK_LETTER_MAP

        return str(GREEK_LETTER_MAP.get(match["sign"], match["sign"]))
    return _bare(match["accent"] or match["command"] or match["letter"])


def _bare(text: str) -> str:
    """Returns a part of a name without how it is set."""
    text = re.sub(rf"{FACE}(?![a-zA-Z])", "", text)
    return re.sub(r"[{}\\\s]+", " ", text).strip()


def _before_bracket(sign: str, text: str, at: int) -> str:
    r"""Returns a constant as a factor of a bracket behind it: `\pi(2)` is no function."""
    return f"{sign}\\cdot " if BRACKET.match(text, at) else sign


def indices_of(name: str) -> str:
    """Returns the index of a variable as it was written; nothing for one without an index."""
    written = bytes.fromhex(name[1:]).decode() if re.fullmatch(r"v(?:[0-9a-f]{2})+", name) else ""
    return written.partition("_")[2]


def encoded(name: str) -> str:
    """Returns a name in the letters that a variable may have, the same for the same name."""
    return name if len(name) == 1 and name.isascii() else f"v{name.encode().hex()}"
