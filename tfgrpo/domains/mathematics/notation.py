"""Answers in the notation that math-verify reads, where it reads another one wrongly or not at all.

What is written stays what is meant: signs of Unicode become LaTeX (`2½`, `x²`, `√5`, `∞`), mixed
numbers, scientific notation (`1e5`) and repeating decimals become fractions and powers, and what
says nothing goes (`\\big`, bold, quotation marks, "the answer is").
"""

from __future__ import annotations

import re
import unicodedata

from tfgrpo.domains.mathematics.doubt import any_of
from tfgrpo.domains.mathematics.number_words import as_numbers

WRAPPING = re.compile(r"\\(?:text|mathrm|textbf|mathbf)\s*\{([^{}]*)\}")
SIGNS = str.maketrans({
    "、": ", ", "−": "-", "‐": "-", "‑": "-", "٪": "%", "٫": ".", "٬": ",", "×": "\\times ",
    "÷": "/", "·": "\\cdot ", "⋅": "\\cdot ", "∞": "\\infty ", "∅": "\\emptyset ", "∪": "\\cup ",
    "∩": "\\cap ", "∈": "\\in ", "±": "\\pm ", "℃": "°C", "℉": "°F",
})  # fmt: skip
EDGES = r"(?:[\s~]|\\[,;:! ]|\\q?quad(?![a-zA-Z])|\\(?:display|text)style(?![a-zA-Z]))+"
"""Spaces and styles, which say nothing before an answer or behind it."""
AROUND = re.compile(rf"\A{EDGES}|{EDGES}\Z")
LAST_BLANK = re.compile(r"\s*\\\\\s*\Z")
"""The end of a row behind an answer."""
HEADED = re.compile(
    rf"\A(?:\\text\w*\s*\{{\s*{any_of('answer')}\s*[:：]\s*\}}|{any_of('answer')}\s*[:：]"
    r"|\\text\w*\s*\{\s*([A-Z]{3}\s*)\})\s*(?=[-\\$\d.])",
    re.IGNORECASE,
)
"""Words before an answer that say that it is one, and the name of a currency, set as words."""
NEGATED = re.compile(r"\A(?:minus|negative|menos|moins|meno)\s+(?=\.?\d)", re.IGNORECASE)
"""A sign in words, before a number."""
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
SETTING = (
    (re.compile(r"\\(?:nice|s|x)frac(?![a-zA-Z])"), r"\\frac"),
    (re.compile(r"\\(?:bf|it|sf|tt|em|bfseries|itshape)(?![a-zA-Z])|\\tag\*?\s*\{[^{}]*\}"), ""),
    (re.compile(r"\\rm(?![a-zA-Z])(?=\s*-?\d[\d.,]*\Z)"), ""),
    (re.compile(r"\\lbrace(?![a-zA-Z])\s*"), r"\\{"),
    (re.compile(r"\s*\\rbrace(?![a-zA-Z])"), r"\\}"),
    (re.compile(r"(?<=\d)\\(?:mathrm|text)\s*\{\s*E\s*\}(?=[-+]?\d)"), "E"),
    (re.compile(r"\\hspace\*?\s*\{[^{}]*\}"), r"\\,"),
    (re.compile(r"\{([^{}]*)\\choose(?![a-zA-Z])([^{}]*)\}"), r"\\binom{\1}{\2}"),
    (re.compile(r"\\(?:pounds|textsterling)(?![a-zA-Z])\s*(?:\{([^{}]*)\})?"), r"£\1"),
    (re.compile(r"\AUS(?=\\?\$)"), ""),
    (re.compile(r"\A<(b|i|u|em|strong|mark)>(.*)</\1>\Z", re.DOTALL), r"\2"),
)
"""What says how a formula is set, and other names of what is set elsewhere."""
MEASURED = re.compile(r"\\(?:SI|qty)\s*(?:\[[^\]]*\])?\{([^{}]*)\}\s*\{([^{}]*)\}")
"""A quantity as siunitx sets it: `\\SI{5}{\\kilo\\gram}`."""
PREFIXED = re.compile(r"\\(pico|nano|micro|milli|centi|deci|kilo|mega|giga|tera)\s*\\")
FACED = re.compile(
    r"((?:\\(?:boldsymbol|bm|underline|mathbf|textbf|mathrm|mathit|mathsf|mathtt|texttt|textsf|textit|emph|num"
    r"|ensuremath)\s*"
    r"\{[\s{]*)+)\$?\s*(-?\d[\d.,]*)\s*\$?((?:\s*\})+)"
)
"""A number with a face of its own."""
BLANKED = re.compile(
    r"(?<![\d.,])[1-9]\d{0,2}(\\[;:]|\{\\[,;:]\})\d{3}(?:\1\d{3})*(?![\d,]|\.\d{3}|\1)"
)
"""Thousands with wide blanks between them."""
ONE_OF = re.compile(r"[\s$]*[a-zA-Z]\s*\\in\s*\\\{([^{},;|:\\]+)\\\}[\s$]*\Z")
"""A variable in a set of one element, which is its value."""
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
    text = LAST_BLANK.sub("", re.sub(r"(\s)\s+", r"\1", text))
    text = NEGATED.sub("-", AROUND.sub("", HEADED.sub(r"\1", text)))
    if (within := DELIMITED.match(text)) is not None:
        text = AROUND.sub("", within["one"] or within["two"] or within["three"])
    text = PER_CENT.sub(r"\\%", WHOLE.sub(r"\1", TRAILING.sub("", text)))
    if "\\begin" not in text:
        text = CONSTANT.sub("", JOINED.sub(r" \1 ", DOUBLED.sub(r"\\", text)))
    if not text.isascii():
        text = _ascii(text)
    text = _others(as_numbers(_set(EURO.sub("€", text))))
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


def _set(text: str) -> str:
    """Returns an answer without what says how it is set, where other names say the same."""
    for pattern, plain in SETTING:
        text = pattern.sub(plain, text)
    text = BLANKED.sub(lambda match: match[0].replace(match[1], ""), text)
    return MEASURED.sub(_measured, text)


def _measured(match: re.Match[str]) -> str:
    unit = PREFIXED.sub(r"\1", match[2]).replace("\\", " ")
    return f"{match[1]}\\text{{ {unit} }}"


def _others(text: str) -> str:
    """Returns an answer without colours and spaces of rows, and with brackets, separators and
    joints as they are compared."""
    text = DRESS.sub("", ROW_SPACE.sub(r"\1 ", ROW_END.sub(r"\\\\ ", text)))
    text = FACED.sub(_without_face, text)
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


def _without_face(match: re.Match[str]) -> str:
    left = match[3].count("}") - match[1].count("{")
    return match[0] if left < 0 else match[2] + "}" * left


def _joined(match: re.Match[str]) -> str:
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
        unicodedata.normalize("NFKC", c) if c.isdecimal() or "！" <= c <= "～" else c for c in text
    )


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


# names that are written without LaTeX:

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
NAMED_ROOT = re.compile(rf"{ALONE}sqrt\s*(\d+(?:\.\d+)?)(?![\w.])")
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
    """Returns a formula with the names in it as commands; a text in words as it is. `2*pi` and
    `alpha + beta` would be read as products of letters. `xi`, `mu` and `nu` stay products, as x·i
    is as likely."""
    text = UNION.sub(r"\\cup ", text)
    words = WORD.findall(SET_AS_TEXT.sub(" ", text))
    if any(not re.fullmatch(KNOWN, word) for word in words):
        return text
    text = NAMED_ROOT.sub(r"\\sqrt{\1}", NAME.sub(_command, text))
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


# numbers with counters and units in Chinese, Japanese and Korean characters:

UNITS = {
    "毫米": "mm", "厘米": "cm", "公分": "cm", "千米": "km", "公里": "km", "米": "m",
    "毫克": "mg", "千克": "kg", "公斤": "kg", "克": "g", "吨": "tonne",
    "毫升": "mL", "升": "L", "秒": "s", "分钟": "minutes", "小时": "hours", "天": "days",
    "元": "yuan", "圆": "yuan", "円": "yen", "원": "won", "美元": "dollars", "欧元": "euros",
    "牛顿": "newton", "焦耳": "joule", "瓦": "watt", "度": "degrees",
}  # fmt: skip
POWERS = {"平方": 2, "立方": 3, "": 1}
COUNTERS = "个個人名只张張条條件次种種支本位棵朵辆輛台把匹枚倍岁歳つ개명권"
OTHER = "以上下多余約约不或和左右内外半倍百千万亿分之前后至第方成折"
"""Characters of words that make another number of the one before them."""
NUMBER = (
    r"(?P<number>[-+]?(?:\d+(?:[.,]\d+)*|\\[dt]?frac\{\d+\}\{\d+\})(?:\s*\\times 10\^\{\d+\})?)"
)
HAN = "\u4e00-\u9fff"
COUNTED = re.compile(
    rf"\A\s*{NUMBER}\s*"
    rf"(?:(?P<power>平方|立方)?(?P<unit>{'|'.join(sorted(UNITS, key=len, reverse=True))})"
    rf"|[{COUNTERS}](?:(?![{OTHER}])[{HAN}]){{0,6}})?\s*\Z"
)
PERCENT = re.compile(rf"\A\s*百分之\s*{NUMBER}\s*\Z")
TEXT = re.compile(
    rf"\\(?:text|mathrm|mbox|textrm)\s*\{{\s*([{HAN}\u3040-\u30ff\uac00-\ud7af]+)\s*\}}"
)


def in_latin(text: str) -> str:
    """Returns a number with its unit in Latin letters and without its counter; any other text as it
    is: `5个` is 5, `5个半` is no 5."""
    bare = TEXT.sub(r"\1", text)
    percent = PERCENT.match(bare)
    if percent is not None:
        return f"{percent['number']}\\%"
    match = COUNTED.match(bare)
    if match is None:
        return text
    number = match["number"]
    if not match["unit"]:
        return number
    power = POWERS[match["power"] or ""]
    return f"{number} \\text{{ {UNITS[match['unit']]}}}" + (f"^{power}" if power > 1 else "")
