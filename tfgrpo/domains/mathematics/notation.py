"""Answers in the notation that math-verify reads, where it reads another one wrongly or not at all.

What is written stays what is meant: signs of Unicode become LaTeX (`2½`, `x²`, `√5`, `∞`), mixed
numbers, scientific notation (`1e5`) and repeating decimals become fractions and powers, and what
says nothing goes (`\\big`, bold, quotation marks, "the answer is").
"""

from __future__ import annotations

import re
import unicodedata

from tfgrpo.domains.mathematics.east_asian import in_latin
from tfgrpo.domains.mathematics.names import in_latex

WRAPPING = re.compile(r"\\(?:text|mathrm|textbf|mathbf)\s*\{([^{}]*)\}")
SIGNS = str.maketrans(
    {
        "、": ", ",
        "−": "-",
        "‐": "-",
        "‑": "-",
        "٪": "%",
        "٫": ".",
        "٬": ",",
        "×": "\\times ",
        "÷": "/",
        "·": "\\cdot ",
        "⋅": "\\cdot ",
    }
    | {
        "∞": "\\infty ",
        "∅": "\\emptyset ",
        "∪": "\\cup ",
        "∩": "\\cap ",
        "∈": "\\in ",
        "±": "\\pm ",
    }
)
EDGES = r"(?:[\s~]|\\[,;:! ]|\\q?quad(?![a-zA-Z])|\\(?:display|text)style(?![a-zA-Z]))+"
"""Spaces and styles, which say nothing before an answer or behind it."""
AROUND = re.compile(rf"\A{EDGES}|{EDGES}\Z")
DELIMITED = re.compile(
    r"\A(?:(\$\$?)(?P<one>(?:[^$\\]|\\.)+)\1|\\\((?P<two>(?:(?!\\\)).)+)\\\)"
    r"|\\\[(?P<three>(?:(?!\\\]).)+)\\\])\Z",
    re.DOTALL,
)
PER_CENT = re.compile(
    r"\s*(?:\\(?:text|mathrm|textrm|mbox)\s*\{\s*)?(?:\\?%|(?<![a-zA-Z])(?:percent|per\s?cent|pct"
    r"|Prozent|pour\s?cent|por\s?cien(?:to)?|por\s?cento|procent|процент(?:а|ов)?))\s*\.?\s*\}?\Z",
    re.IGNORECASE,
)
"""Per cent as a sign in a text, and in words."""
DASH = re.compile(r"(?:(?<=[({\[,;=^+*/])|(?<=\A))\s*[–—](?=\s*[\d.\\$(a-z])")
"""A dash that is a sign, and no range."""
RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n")
POWER = re.compile(r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ]+")
LOWERED = str.maketrans("₀₁₂₃₄₅₆₇₈₉ₐₑₕₖₗₘₙₒₚₛₜₓ", "0123456789aehklmnopstx")
INDEX = re.compile(r"[₀-₉ₐₑₕₖₗₘₙₒₚₛₜₓ]+")
VULGAR = re.compile(r"[¼-¾⅐-⅞]")
ROOT = re.compile(r"√\s*(?:(\d+(?:\.\d+)?|[a-zA-Z])|\(([^()]*)\)|(?=\{))")
EURO = re.compile(r"\\(?:euro|texteuro)(?![a-zA-Z])\s*(?:\{\s*\})?")
SIZE = re.compile(r"\\(?:big|Big|bigg|Bigg)[lrm]?(?![a-zA-Z])")
EMPTY = re.compile(r"\\varnothing(?![a-zA-Z])|\\\{\s*\\\}")
STRESS = re.compile(r"\A\s*(\*\*|\*|__|_|`|\"|“)(?=\S)([^*`\"”]+)(?<=\S)(?:\1|”)\s*\.?\s*\Z")
LEAD = re.compile(
    r"\A\s*(?:\\text(?:bf|rm)?\s*\{)?\s*(?:so\s+|thus,?\s+|hence,?\s+)?the\s+(?:final\s+|correct\s+)?"
    r"(?:answer|value|result)\s+is\s*:?\s*(\})?(?=\s*[\d$\\(+-]|\s*[A-J]\s*\.?\Z)",
    re.IGNORECASE,
)
WHOLE = re.compile(r"\A\$?\\(?:text|textrm|mbox)\s*\{\s*([^{}]*[\d(][^{}]*)\}\$?\Z")
TRAILING = re.compile(r"(?<=[\w)}\]$])\s*[.,;]\Z")
STARS = re.compile(r"(?<=[\w)}])\s*\*\*\s*(?=[\w({+-])")
TEN = re.compile(r"(?<=\d)\s*[xX]\s*(?=10\s*\^)")
SCIENTIFIC = re.compile(r"(?<![\w.\\])(\d+(?:\.\d+)?)[eE]([+-]?\d{1,4})(?![\w.])")
MIXED = re.compile(r"(?<![\w./^_{}])(-?\s?\d{1,15})\s+(\d{1,9})/(\d{1,9})(?![\w/.^!])")
REPEATING = re.compile(
    r"(?<![\w.])(\d{0,15})\.(\d{0,15})\\(?:overline|bar|dot)\s*\{(\d{1,30})\}(?!\d)"
)
DEGREES = r"(\d+(?:\.\d+)?)\s*(?:°|\^\s*\{?\s*\\circ\s*\}?|\\degree)\s*"
ANGLE = re.compile(
    rf"(\\(?:sin|cos|tan|cot|sec|csc))\s*(?:(?:\\left)?[({{]\s*{DEGREES}(?:\\right)?[)}}]|{DEGREES})"
)
POLAR = re.compile(
    r"(?:\\(?:operatorname|text|mathrm)\s*\{\s*cis\s*\}|(?<![a-zA-Z\\])cis(?![a-z])"
    rf"|(?<=[\d}})])\s*\\angle)\s*(?:(?:\\left)?\(([^()]*)\)|{DEGREES}"
    r"|(\\frac\{[^{}]*\}\{[^{}]*\}|\{[^{}]*\}|\\[a-zA-Z]+|[\d.]+))"
)
"""`2 cis 60°` and `2∠60°`, which are complex numbers."""
ANY_DEGREES = re.compile(DEGREES)
TIMES_I = re.compile(r"(?<=[\d})])\s*\\cdot\s*i(?![a-zA-Z])")
DOUBLED = re.compile(r"\\\\(?=[a-zA-Z])")
CONSTANT = re.compile(
    r"(?<![a-zA-Z\\])[a-zA-Z]\([a-z]\)\s*=\s*"
    r"(?=-?\d+(?:\.\d+)?\s*(?:\Z|[,$]|(?:and|or)(?![a-z])|\\text))"
)
"""The name of a function that is a number everywhere: `W(n) = 1`."""
JOINED = re.compile(r"(?<=\d)(and|or)(?=\s|-?\d|[a-zA-Z]\()")
TURNED = re.compile(r"\A\s*(-?\d+(?:\.\d+)?)\s*=\s*([a-zA-Z])\s*\Z")


ROW_END = re.compile(r"\\cr(?![a-zA-Z])")
SYSTEM = re.compile(
    r"\A\s*(?:\\left\s*\\\{)?\s*\\begin\{(cases|aligned|array|gathered)\}(?:\{[lcr]+\})?"
    r"((?:(?!&\s*[^&=\s]).)*?)(?:\\\\)?\s*\\end\{\1\}\s*(?:\\right\s*\.)?\s*\Z",
    re.DOTALL,
)
"""Equations that hold together, one below the other."""
COLUMN = re.compile(
    r"(\([^()]*,[^()]*\))\s*\^\s*\{?\s*(?:T|\\top|\\mathsf\s*\{?T\}?|\\intercal)\s*\}?\s*\Z"
)
"""A point that is transposed into a column."""
ROW_SPACE = re.compile(r"(\\\\)\s*\[\s*-?[\d.]+\s*(?:pt|em|ex|mm|cm|px)\s*\]")
DRESS = re.compile(
    r"\\(?:text)?color\s*(?:\[[^\]]*\])?\s*\{[^{}]*\}|\\colorbox\s*\{[^{}]*\}|\\bbox\s*\[[^\]]*\]"
    r"|\\fcolorbox\s*\{[^{}]*\}\s*\{[^{}]*\}|\\(?:style|class|enclose)\s*\{(?![^{}]*strike)[^{}]*\}|\\phantom\s*\{[^{}]*\}"
    r"|\\(?:tiny|small|normalsize|large|Large|LARGE|huge|Huge|(?:display|text|script)style|middle)(?![a-zA-Z])"
)
"""Colours, frames and sizes, which stand before what they dress."""
FACED = re.compile(
    r"\\(?:boldsymbol|bm|underline|mathbf|textbf|mathrm|mathit|mathsf|textit|emph)\s*"
    r"\{\s*\{*\s*\$?\s*(-?\d[\d.,]*)\s*\$?\s*\}*\s*\}"
)
"""A number with a face of its own."""
BRACED = re.compile(r"\A\s*\{+\s*\$?([^{}$]*)\$?\s*\}+\s*\Z")
ANGLES = re.compile(r"(?:\\left\s*)?\\langle(?![a-zA-Z])(.*?)(?:\\right\s*)?\\rangle(?![a-zA-Z])")
BUILDER = re.compile(
    r"\A\s*(?:\\left\s*)?\\\{\s*([a-zA-Z])\s*(?:\\in\s*\\mathbb\s*\{?\s*R\s*\}?\s*)?"
    r"(?:\\[,;: ])*(?:\\mid|\\vert|\\colon|:|\|)(?:\\[,;: ]|\s)*"
    r"((?=[^{}]*\1)(?:[^{}]|\\text\s*\{[^{}]*\})*?)\s*(?:\\right\s*)?\\\}\s*\Z"
)
"""A set that a condition on a real number describes: `\\{x \\mid x > 2\\}`."""
ENDS = re.compile(r"([\[\]])([^\[\]()]*[,;](?:[^\[\]()]|\([^()]*\))*)([\[\]])")
SIDE = re.compile(r"\\(?:left|right)\s*(?=[\[\]])")
DECIMAL_COMMA = re.compile(r"(?<=\d)\{,\}(?=(?:\d{1,2}|\d{4,})(?!\d)|\\overline)")
GERMAN = re.compile(r"(?<=\d)(\.\d{3})\{,\}(?=\d)")
DOTTED = re.compile(r"(?<![\d.,])\d{1,3}(?:\.\d{3}){2,}(?![\d.])")
THIN = re.compile(r"(?<=\d)\\[ ,;:]\s*(?=\d+/\d)")
JOINTS = (
    (re.compile(r"(?<![^\W\d_])(?:oder|ou|или|أو)(?![^\W\d_])|或者?|または|또는"), " or "),
    (re.compile(r"(?<![^\W\d_])(?:und|et|и|و)(?![^\W\d_])|和|以及|且"), " and "),
    (re.compile(r"(?<=\d)\s+(?:\\text\s*\{)?\s*o\s*\}?\s+(?=-?\d|[a-z]\w*\s*=)"), " or "),
    (re.compile(r"(?<=\d)\s+(?:\\text\s*\{)?\s*y\s*\}?\s+(?=-?\d|[a-z]\w*\s*=)"), " and "),
)
"""What joins two answers in languages whose word for it is no letter of a formula, or stands as one
between two numbers."""
LOGIC = (
    (re.compile(r"\\(?:lor|vee)(?![a-zA-Z])|∨"), " or "),
    (re.compile(r"\\(?:land|wedge)(?![a-zA-Z])|∧"), " and "),
)
RELATED = re.compile(r"[<>=≤≥≠]|\\(?:leq?|geq?|lt|gt|neq?|in)(?![a-zA-Z])")
BETWEEN = re.compile(r"\d\s*\\(?:lor|vee|land|wedge)\s*-?\d")
WORD_AND_DIGIT = re.compile(r"\d.*[^\W\d_].*\d", re.DOTALL)


def plainly(text: str) -> str:
    """Returns an answer in the notation that is compared."""
    text = AROUND.sub("", re.sub(r"(\s)\s+", r"\1", text))
    if (within := DELIMITED.match(text)) is not None:
        text = AROUND.sub("", within["one"] or within["two"] or within["three"])
    text = PER_CENT.sub(r"\\%", WHOLE.sub(r"\1", TRAILING.sub("", text)))
    if "\\begin" not in text:
        text = CONSTANT.sub("", JOINED.sub(r" \1 ", DOUBLED.sub(r"\\", text)))
    if not text.isascii():
        text = _ascii(text)
    text = _others(EURO.sub("€", text))
    text = STRESS.sub(r"\2", EMPTY.sub(r"\\emptyset ", SIZE.sub("", text)))
    lead = LEAD.match(text)
    if lead is not None:
        rest = text[lead.end() :]
        text = rest if lead[1] or "\\text" not in lead[0] else rest.replace("}", "", 1)
    text = TEN.sub(r"\\times ", STARS.sub("^", text))
    text = in_latex(text)
    text = SCIENTIFIC.sub(r"\1\\times 10^{\2}", text)
    text = REPEATING.sub(_fraction, MIXED.sub(_mixed, text))
    text = ANGLE.sub(_radians, POLAR.sub(_polar, TIMES_I.sub("i", text)))
    return TURNED.sub(r"\2=\1", text)


def _others(text: str) -> str:
    """Returns an answer without colours and spaces of rows, and with brackets, separators and
    joints as they are compared."""
    text = FACED.sub(r"\1", DRESS.sub("", ROW_SPACE.sub(r"\1 ", ROW_END.sub(r"\\\\ ", text))))
    text = COLUMN.sub(r"\1", SYSTEM.sub(_joined, text.replace("smallmatrix", "matrix")))
    text = BRACED.sub(r"\1", BUILDER.sub(r"\2", ANGLES.sub(r"(\1)", text)))
    sided = SIDE.sub("", text)
    if any((one, other) != ("[", "]") for one, _, other in ENDS.findall(sided)):
        text = ENDS.sub(_inward, sided)
    text = GERMAN.sub(r"\1,", text)
    text = DOTTED.sub(lambda match: match[0].replace(".", ""), DECIMAL_COMMA.sub(".", text))
    for joint, word in JOINTS if WORD_AND_DIGIT.search(text) else ():
        text = joint.sub(word, text)
    for sign, word in LOGIC if RELATED.search(text) or BETWEEN.search(text) else ():
        text = sign.sub(word, text)
    return THIN.sub(" ", text if text.isascii() else in_latin(text))


def _joined(match: re.Match[str]) -> str:
    """Returns the equations of a system as a list."""
    rows = match[2].replace("&", "").split(r"\\")
    return ", ".join(row.strip(" \n,") for row in rows)


def _inward(match: re.Match[str]) -> str:
    """Returns an interval with round brackets for those that open outwards."""
    return f"{'(' if match[1] == ']' else '['}{match[2]}{')' if match[3] == '[' else ']'}"


def _ascii(text: str) -> str:
    text = POWER.sub(lambda match: f"^{{{match[0].translate(RAISED)}}}", text)
    text = INDEX.sub(lambda match: f"_{{{match[0].translate(LOWERED)}}}", text)
    text = VULGAR.sub(_vulgar, text).translate(SIGNS)
    text = re.sub(r"(\d+)⁄(\d+)", r"\\frac{\1}{\2}", DASH.sub("-", text))
    text = ROOT.sub(lambda match: f"\\sqrt{{{match[1] or match[2]}}}" if match[0][1:] else "", text)
    return "".join(
        unicodedata.normalize("NFKC", c) if c.isdecimal() or _wide(c) else c for c in text
    )


def _wide(character: str) -> bool:
    return "！" <= character <= "～"


def _vulgar(match: re.Match[str]) -> str:
    above, _, below = unicodedata.normalize("NFKC", match[0]).partition("⁄")
    return f"\\frac{{{above}}}{{{below}}}"


def _mixed(match: re.Match[str]) -> str:
    whole, above, below = match.groups()
    if int(above) >= int(below):
        return match[0]
    return f"{whole}\\frac{{{above}}}{{{below}}}"


def _fraction(match: re.Match[str]) -> str:
    whole, fixed, again = match.groups()
    above = int(whole + fixed + again) - int(whole + fixed or "0")
    return f"\\frac{{{above}}}{{{10 ** len(fixed) * (10 ** len(again) - 1)}}}"


def _radians(match: re.Match[str]) -> str:
    return f"{match[1]}\\left(\\frac{{{match[2] or match[3]}\\pi}}{{180}}\\right)"


def _polar(match: re.Match[str]) -> str:
    angle = match[1] or match[3] or f"{match[2]}°"
    turned = ANY_DEGREES.sub(r"\\frac{\1\\pi}{180}", angle)
    return f"e^{{i({turned})}}"
