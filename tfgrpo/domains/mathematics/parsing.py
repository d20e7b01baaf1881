"""From a text to the one expression that it is: the whole of it, or nothing.

A formula of which only a part can be read says nothing: a number inside it is not the answer.
Functions here may take seconds on hostile input and run in worker processes that are killed.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

from tfgrpo.domains.mathematics import arithmetic
from tfgrpo.domains.mathematics.numerals import without_full_stop

DELIMITERS = (("$$", "$$"), ("\\(", "\\)"), ("\\[", "\\]"), ("$", "$"))
GLUED = re.compile(r"(\\q?quad)(?=[a-zA-Z])")
ARGUMENT = r"(?:\\[a-zA-Z]+(?![a-zA-Z{])|[a-zA-Z0-9])"
FRACTION = re.compile(
    rf"(\\[dtc]?frac|\\[dt]?binom)\s*(?:({ARGUMENT})|(\{{(?:[^{{}}]|\{{[^{{}}]*\}})*\}}))\s*"
    rf"(?:({ARGUMENT})|(?=\{{))"
)
ROOT = re.compile(rf"(\\sqrt(?:\[[^\]]*\])?)\s*({ARGUMENT})")
INDEXED_NUMBER = re.compile(r"(?<![\w.^\\}])\d[\d.,]*\s*_")
"""A number with an index, which the parser drops: `5_2 + x`."""
INFINITY = re.compile(
    r"(?:\d|(?<![\\a-zA-Z])[a-zA-Z]|[)}])\s*[-+*/]?\s*\\infty|\\(?:cdot|times)\s*[-+]?\s*\\infty"
    r"|\\[dt]?frac\s*\{[^{}]*\\infty|(?<!\^)\\infty\s*(?:[-+*/!^a-zA-Z\d(]|\\(?:cdot|times))"
)
"""Infinity that is reckoned with, which has no value."""
DOTS = re.compile(r"\\[lcd]?dots[bco]?(?![a-zA-Z])|\.\.\.|…")
ARROW = re.compile(r"->|=>|→|⇒|\\(?:to|mapsto|rightarrow|Rightarrow|implies|leftarrow)(?![a-zA-Z])")
APPROXIMATELY = re.compile(r"\A\s*(?:\\approx|≈|\\simeq|\\sim|=)\s*")
APART = re.compile(r"(?<![\w.\\^_{])\d[\d.]*(?:\s|\\[ ,;:])+\d")
WORDS = re.compile(
    r"(?<![a-zA-Z\\\d)}{_^])[a-zA-Z]{2,}[\s~,.]+[a-zA-Z]{2,}(?![a-zA-Z(])"
    r"|(?<![a-zA-Z\\\d)}{_^])[a-zA-Z]{4,}(?![a-zA-Z({^_])"
)
"""Prose, of which letters would be read as a product."""
READ = re.compile(
    r"and|or|a?sinh?|a?cosh?|a?tanh?|cot|sec|csc|arc(?:sin|cos|tan)|log|ln|exp|sqrt|mod|gcd|lcm"
    r"|max|min|det|inf(?:ty|inity)?|alpha|beta|gamma|delta|theta|lambda|sigma|omega|phi|pct|percent",
    re.I,
)
"""Words that a formula may be written in."""
CONNECTIVES = re.compile(r"\b(?:and|or)\s+(?:and|or)\b", re.I)
"""What joins nothing, of which the letters would be read as a product."""
EITHER_BRACKET = re.compile(r"[(){}\[\]]")
COMMAND_TEXT = re.compile(r"\\(?:text|mathrm|mbox|textrm|textbf|operatorname)\s*\{[^{}]*\}")
POWERED = re.compile(r"(?<!\d)\d{1,40}\s?\^\s*(?:\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}|\d)")
NEGATED = re.compile(r"!=|\\not\s*=|≠")


def parse(text: str) -> Any | None:
    """Returns the sympy expression that a text is; None when it is no mathematics as a whole. May
    raise whatever sympy does."""
    bare = undelimited(text)
    if bare is None or unreadable(bare):
        return None
    for form in (bare, both_signs(bare)) if "\\pm" in bare else (bare,):
        expression = _read(form)
        if expression is not None:
            return expression
    return None


def undelimited(text: str) -> str | None:
    """Returns a formula without what marks it as one; None where several stand in a text."""
    text = without_full_stop(text.strip())
    for opening, closing in DELIMITERS:
        if text.startswith(opening) and text.endswith(closing) and len(text) > len(opening):
            text = text[len(opening) : -len(closing)].strip()
            break
    text = text.replace("\\$", "")
    return None if re.search(r"(?<!\\)\$|\\[()]", text) else text


def unreadable(text: str) -> bool:
    """Whether a text holds what a parser would drop, or read as something else."""
    without = COMMAND_TEXT.sub(" ", text)
    if BELOW.search(without) or INDEXED_NUMBER.search(without) or INFINITY.search(without):
        return True
    if DOTS.search(without) or ARROW.search(without) or "::" in without:
        return True
    if CONNECTIVES.search(without) or deepest(without) > arithmetic.DEEPEST:
        return True
    if APART.search(without) and "matrix" not in text:
        return True
    return any(
        any(not READ.fullmatch(word) for word in re.findall(r"[a-zA-Z]{2,}", match[0]))
        for match in WORDS.finditer(without)
    )


def deepest(text: str) -> int:
    """Returns how deep the brackets of a text are nested."""
    depth = deepest = 0
    for bracket in EITHER_BRACKET.findall(text):
        depth += 1 if bracket in "([{" else -1
        deepest = max(deepest, depth)
    return deepest


def _read(text: str) -> Any | None:
    from latex2sympy2_extended.latex2sympy2 import (
        ConversionConfig,
        NormalizationConfig,
        latex2sympy,
        normalize_latex,
    )
    from math_verify.parser import get_last_eq

    configuration = NormalizationConfig(
        basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="none"
    )
    latex = normalize_latex(rewritten(text), configuration)
    for form in dict.fromkeys((latex, get_last_eq(latex))):
        try:
            return latex2sympy(
                form,
                is_real=True,
                convert_degrees=False,
                normalization_config=None,
                conversion_config=ConversionConfig(lowercase_symbols=False),
            )
        except Exception:
            continue
    return None


def rewritten(text: str) -> str:
    """Returns a formula in the notation of the parser: `\\frac\\pi2` with braces, and so on."""
    text = GLUED.sub(r"\1 ", APPROXIMATELY.sub("", text))
    text = NEGATED.sub(r" \\neq ", COEFFICIENT.sub(r"\\frac{\1}{\2}", text))
    for _ in range(4):
        text, changed = FRACTION.subn(_braced, text)
        if not changed:
            break
    text = ROOT.sub(r"\1{\2}", text)
    return as_variables(with_brackets(text))


def _braced(match: re.Match[str]) -> str:
    above = match[3] or f"{{{match[2]}}}"
    return f"{match[1]}{above}" + (f"{{{match[4]}}}" if match[4] else "")


def warm_up() -> None:
    """Loads what parsing and comparing take, which is seconds on a busy machine."""
    import math_verify  # noqa: F401

    parse("x^{2} + 1")


def both_signs(text: str) -> str:
    """Returns a list with `a ± b` in it written out as two answers, which no parser does."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    signs = ("+", "-")
    return ",".join(
        part.replace("\\pm", sign)
        for part in parts
        for sign in (signs if "\\pm" in part else signs[:1])
    )


def too_large(text: str) -> bool:
    """Whether a formula holds a power that nobody can work out, as `10^{10^{10}} x` does."""
    for match in POWERED.finditer(text):
        if not isinstance(arithmetic.value(match[0]), Fraction | None):
            return True
    return False


# formulas that are compared letter by letter:

VECTOR = (
    r"\\(?:(?:vec|overrightarrow|hat|mathbf|boldsymbol|bm)\s*(?:\{[^{}]*\}|[a-zA-Z])|nabla)"
    r"(?:_(?:\w|\{[^{}]*\}))?"
)
LITERAL = re.compile(
    r"\\(?:angle|measuredangle|triangle|overrightarrow\{\s*[A-Z]{2}|widehat)(?![a-zA-Z])|[∠△]"
    rf"|{VECTOR}\s*\\times(?![a-zA-Z])|[)}}\]a-zA-Z]\s*\\times\s*{VECTOR}"
    r"|\\nabla\s*\\cdot(?![a-zA-Z])|(?<![a-zA-Z\\])[A-Z]\s*\\times\s*[A-Z](?![a-zA-Z])"
    r"|(?:\\|\{\s*)(?:gcd|lcm)(?![a-zA-Z])\s*\}?\s*(?:\\left\s*)?\((?=[^()]*[a-zA-Z])"
    r"|(?:(?<![a-zA-Z\\])[A-Z]|\\mathbb\s*\{?[A-Z]\}?)\s*(?:\\left\s*)?\[(?=[^\]]*[a-zA-Z])"
    r"|\A\s*\([aA1i]\)\s.*\([bB2]\)\s|\A[a-zA-Z]+\d+(?:[\s-]+[a-zA-Z]+\d+)+\Z"
)
"""What a parser would read as a product, or reckon with though nothing is known of it: figures,
a product of vectors or of sets, divisors of symbols, a mean E[X], parts of an answer, moves."""
INVERSE = r"\^\s*\{?\s*(?:-\s*1|T|\\top|\\intercal|H)\s*\}?"
MATRICES = re.compile(
    rf"(?<![a-zA-Z\\])(?:[A-Z]|\([A-Z^{{}}\s]+\))\s*{INVERSE}\s*(?:\\cdot\s*)?[A-Za-z(]"
    rf"|(?<![a-zA-Z\\])[A-Z]\s*(?:\\cdot\s*)?[A-Z]\s*{INVERSE}|\([A-Z]{{2,}}\)\s*{INVERSE}"
    r"|\\(?:mathbf|boldsymbol|bm)\s*\{?[A-Z]\}?\s*\\(?:mathbf|boldsymbol|bm)\s*\{?[A-Z]"
)
"""A product of matrices, whose order counts."""
AMONG = re.compile(r"(?<=\d)\s+([a-zA-Z]{2,})(?=\s+-?\d)")
"""A word between two numbers: `3 to 5`."""


def literal(text: str) -> bool:
    """Whether a text is compared letter by letter, because a parser, which multiplies in any order
    and works out what it may not know, would read it wrongly."""
    among = (READ.fullmatch(match[1]) for match in AMONG.finditer(text))
    matrices = MATRICES.search(COMMAND_TEXT.sub(" ", text))
    return bool(LITERAL.search(text) or matrices) or not all(among)


# where the argument of a function ends that has no brackets:

GROUP = r"\{(?:[^{}]|\{[^{}]*\})*\}"
NAMES = r"(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?|ln|lg|log|exp"
FUNCTION = re.compile(
    rf"\\({NAMES})(?![a-zA-Z])(?:\s*_\s*(?:{GROUP}|\w))?(?:\s*\^\s*(?:{GROUP}|\w))?\s*"
)
AS_TEXT = re.compile(rf"\\(?:operatorname\*?|mathrm|text)\s*\{{\s*(a(?=[sct]))?({NAMES})\s*\}}")
OPENED = re.compile(r"(?:\\left\s*)?\(")
STEP = re.compile(
    r"(?P<open>\\left\s*(?:\\[a-z]+|\S)|\\lvert(?![a-zA-Z])|[({\[])"
    r"|(?P<close>\\right\s*(?:\\[a-z]+|\S)|\\rvert(?![a-zA-Z])|[)}\]])"
    r"|(?P<bar>\|)|(?P<product>\\(?:cdot|times)(?![a-zA-Z])|\*(?=\s*\\))|(?P<over>/)"
    rf"|(?P<end>[-+=<>,;&≤≥]|\\\\|\\(?:{NAMES}|leq?|geq?|pm|mp|quad|text|to|in)(?![a-zA-Z]))"
)


def with_brackets(text: str) -> str:
    r"""Returns a formula with brackets around each argument of which a parser would read more.

    It takes every factor behind a function, so that `\ln{(6)} \cdot \frac12` is ln 3. A sign of a
    product ends an argument here, and so does a bar of division, but for what is an angle:
    `\cos 2\pi/3`, `\tan\theta/2`.
    """
    text = AS_TEXT.sub(lambda match: f"\\{'arc' if match[1] else ''}{match[2]} ", text)
    at = 0
    while (match := FUNCTION.search(text, at)) is not None:
        at = match.end()
        end = _end(text, at, match[1])
        if end is not None:
            argument = text[at:end]
            if argument.startswith("{"):
                argument = argument[1:-1].strip()
            if not OPENED.match(argument):
                argument = rf"\left({argument}\right)"
            text = text[:at] + argument + text[end:]
    return text


def _end(text: str, at: int, name: str) -> int | None:
    """Returns where the argument ends that begins there; None where a parser finds its end."""
    if text[at : at + 1] in ("_", "^") or OPENED.match(text, at):
        return None
    depth, bars = 0, 0
    enclosed = re.match(r"[{\[|]|\\l", text[at:]) is not None
    for step in STEP.finditer(text, at + (text[at : at + 1] == "-")):
        kind = step.lastgroup
        if kind == "bar" and depth == 0 and text[at : step.start()].strip():
            return None
        bars += kind == "bar"
        opens = kind == "open" or (kind == "bar" and bars % 2)
        depth += 1 if opens else -(kind in ("bar", "close"))
        if depth < 0:
            return None
        if depth or opens:
            continue
        if kind in ("bar", "close") and enclosed:
            raised = re.match(r"\s*[\^_]", text[step.end() :])
            return None if raised and not OPENED.match(text[at:].lstrip("{ ")) else step.end()
        if kind == "product" or (kind == "over" and not _is_angle(text, at, step, name)):
            return step.start()
        if kind == "end":
            return None
    return None


def _is_angle(text: str, at: int, bar: re.Match[str], name: str) -> bool:
    """Whether what stands over a bar is an angle together with what stands below: θ/2, nπ/L."""
    logarithm = name in ("ln", "lg", "log", "exp")
    below = text[bar.end() :].lstrip()
    return "\\pi" in text[at : bar.start()] or (not logarithm and below[:1].isdigit())


# names of symbols, written so that no parser takes one for a function or a constant:

INNER = r"(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*"
GREEK = (
    r"(?:var)?(?:alpha|beta|gamma|delta|epsilon|zeta|theta|eta|iota|kappa|lambda|mu|nu|xi|omicron"
    r"|pi|rho|sigma|tau|upsilon|phi|chi|psi|omega)"
    r"|(?:var)?(?:Gamma|Delta|Theta|Lambda|Xi|Pi|Sigma|Upsilon|Phi|Psi|Omega)"
)
COMMAND = rf"\\(?:{GREEK}|hbar|ell|aleph|nabla|wp|imath|jmath|digamma)(?![a-zA-Z])"
FACE = r"\\(?:text(?:rm|it|bf|normal)?|math(?:rm|it|bf|sf|normal)|mbox|boldsymbol|bm)"
"""How a name is set, which makes no other name of it."""
FACTOR = rf"(?:[a-zA-Z\u0370-\u03ff]|{COMMAND}|\\(?:sqrt|{NAMES})(?![a-zA-Z]))"
COEFFICIENT = re.compile(rf"(?<![\w.^_)}}/])(\d+)\s*/\s*(\d+)(?=\s*(?:{FACTOR}|(?:\\left\s*)?\())")
"""A number over a number before a factor: `4/3 \\pi r^3`."""
BELOW = re.compile(rf"(?<![\w.^_)}}/])1\s*/\s*\d+{FACTOR}")
"""One over a number to which a factor is glued, which may stand below the bar as well: `1/2x`."""
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
    r"""Returns a formula with `\variable{…}` for every name that could be read as another thing: a
    letter or a command with its accent, index and marks.

    `\gamma` alone is Euler's constant to the parser, before a bracket it is the gamma function, and
    of `m_e` it makes a number. What stays is what a formula means by it: π without an index, e, ∞,
    and a single letter, which may be the variable of a sum or a function's name.
    """
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
            # as a factor of a bracket behind it: `\pi(2)` is no function
            return "\\pi \\cdot " if BRACKET.match(text, end) else "\\pi ", end
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


def indices_of(name: str) -> str:
    """Returns the index of a variable as it was written; nothing for one without an index."""
    written = bytes.fromhex(name[1:]).decode() if re.fullmatch(r"v(?:[0-9a-f]{2})+", name) else ""
    return written.partition("_")[2]


def encoded(name: str) -> str:
    """Returns a name in the letters that a variable may have, the same for the same name."""
    return name if len(name) == 1 and name.isascii() else f"v{name.encode().hex()}"
