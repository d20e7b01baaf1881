"""The formula that a box stands in.

A box that is a side of an equation, or stands between words, is the answer itself. Where more of
the same side stands around it, the box is a part of another value: `-\\boxed{75}` is -75, and
`x > \\boxed{5}` is no number. The whole of that side is then the answer, if nothing but a name
stands before it (`x =`); in any other equation, `2 + \\boxed{3} = 5`, nobody can tell what is.
"""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

from tfgrpo.domains.mathematics.number_words import WORD

MATHS = re.compile(
    r"\$\$(.+?)(?<!\\)\$\$|(?<!\\)\$(?!\d[\d,.]*\s+\w)(.+?)(?<!\\)\$"
    r"|\\\[((?:(?!\\\[).)+?)\\\]|\\\(((?:(?!\\\().)+?)\\\)",
    re.DOTALL,
)
"""A formula between its delimiters."""
NEARBY = 1000
"""How far from a box, in characters, its formula is looked for."""
ARROWS = (
    r"[-=]+>|<[-=]+(?=\s)|[←→↔↦⇐⇒⇔⇨⟵-⟿➔-➾∴∵∎]"
    r"|\\(?:to|(?:[lL]ong)?(?:left)?rightarrow|(?:Long)?(?:[lL]eft)?[rR]ightarrow|Longrightarrow"
    r"|(?:long)?mapsto|leadsto"
    r"|implies|iff|Leftrightarrow|therefore|because|quad|qquad|hline|hfill?|(?:no)?indent|newline"
    r"|linebreak|par|centering|item|(?:big|med|small)skip)(?![a-zA-Z])"
)
TOKEN = re.compile(
    r"(?P<words>\\(?:text\w*|mbox|mathrm|operatorname)\s*\{[^{}]*\})"
    r"|(?P<spoken>\\(?:text(?:bf|it|rm|sf|tt|normal)?|mbox|boxed|fbox|framebox)\s*\{)"
    r"|(?P<apart>\\{2,}(?:\s*\[-?[\d.]+\w+\])?|\\(?:begin|end)\s*\{(?!\w*matrix)[^{}]*\}(?:\s*\{[lcr|]*\})?"
    rf"|{ARROWS}|&|\\(?:tag\*?\s*\{{[^{{}}]*\}})"
    r"|\\(?:blacksquare|square|Box|checkmark|qed)(?![a-zA-Z]))"
    r"|(?P<part>!=|\\not\s*=|[<>]=|≠|!(?!\s*\Z|\s*[\s\"'*]))"
    r"|(?P<equal>:=|==?|≈|≡|≅|\\(?:approx|equiv|cong|simeq|sim)(?![a-zA-Z]))"
    r"|(?P<element></?[a-zA-Z]+[1-6]?(?:\s[^<>]*)?/?>)"
    r"|(?P<open>\\begin\s*\{\w*matrix\*?\}|(?:(?!\\end)\\[a-zA-Z]+(?:\s*\[[^\[\]]*\])?\s*)?\{|\\\{|\((?!\s*\Z)|\(|\[)"
    r"|(?P<close>\\end\s*\{\w*matrix\*?\}|\\?\}|\)|\])"
    r"|(?P<command>\\(?:[a-zA-Z]+|.))"
    r"|(?P<letters>(?:(?![²³¹⁰⁴-⁹₀-₉¼-¾⅐-⅞])[^\W\d_])+)"
    r"|(?P<number>\d+(?:[.,:]\d+)*)"
    r"|(?P<mark>[,;:.?](?=\s|\\|\Z)|[，。；：？！、।॥،؛؟۔…])"
    r"|(?P<line>\n)"
    r"|(?P<other>.)",
    re.DOTALL,
)
"""What a formula is made of: words, what sets sides apart, brackets, names and the rest."""
SILENT = re.compile(
    r"(?:[\s*`\"'“”„‘’«»_#]|(?<!~)~(?!~)|\\[,;:! ]|\\(?:(?:display|text|script)style|bf|rm|it|sf|tt"
    r"|tiny|small|normalsize|large|huge|[bB]igg?[lrm]?)(?![a-zA-Z])|\\?\$|[€£¥₹¢₫]|\\(?:bullet|star|n)(?![a-zA-Z])|\\?%|°|\^\s*\{?\s*\\circ\s*\}?"
    r"|</?(?:b|i|u|em|strong|mark|p|br|span|div|center|answer)\b[^<>]*>|\{\s*\})*\Z",
    re.IGNORECASE,
)
"""What changes no value: blanks, emphasis, sizes, currencies, per cent and degrees."""
ITEM = re.compile(r"\A\s*(?:[-–—+*•·>|]|#+|\d+[.)]|\(?\w[.)])\s+")
"""What begins an item of a list, a quotation or a row of a table, outside of formulas."""
NUMBERED = re.compile(
    r"\s*#?[\w.]{1,20}(?:\s{0,3}[*+/×·÷]\s{0,3}[\w.]{1,20}){0,9}\**\s+(?:[–—]\s+)?\**\Z"
)
"""What a blank sets apart outside of formulas: `Part 2 \\boxed{5}`, `Step 3 – \\boxed{5}`."""
DASH = re.compile(r"[-–—|]\s+\Z")
ONE_NAME = re.compile(
    r"[\s&$]*\\?[a-zA-Z]+(?:_(?:\w|\{[^{}]*\}))?'*(?:\([^()=]*\))?[\s&]*(?::?=)?[\s&]*\Z"
)
"""A name before a side: `x =`, `f(2) =`."""
SIMPLE = re.compile(
    r"\s*(?:\d+(?:[.,]\d+)*|[a-zA-Z]|\\[a-zA-Z]+|\(?[A-J]\)"
    r"|\\(?:text\w*|mathrm|mathbf|mbox)\s*\{[^{}]*\})\s*\Z"
)
"""What needs no brackets within a larger formula."""
JOINS = re.compile(r"[\w})\]]\s*\Z")
OUTER = re.compile(r"(?:(?<![^\s(:=*])[-−±√]|(?<=[^\s>]\s)(?:[<>]=?|[≠≤≥]|!=)\s*)\Z")
"""A sign or a relation right before a formula's delimiter."""
BOX = "\0"
"""What stands for the box behind the text before it."""
ESCAPED = re.compile(r"(?<!\\)\\\Z")
"""The backslash that JSON has before that of a command."""
COUNT = re.compile(rf"(?:\\text\w*\s*\{{)?\s*\b{WORD}\b", re.IGNORECASE)
"""A word behind a number that makes another one of it: `\\text{ million}`."""
MEMBER = ("\\in", "∈")
FURTHER = ("words", "spoken", "apart", "mark", "line")
PARTED = re.compile(r"\\[dt]?frac\s*\{\s*([a-zA-Z]{1,3})\s*\}\s*\{\s*([a-zA-Z]{1,3})\s*\}")
"""A fraction of letters, which may be a unit."""
LETTER = re.compile(
    r"\\(?:text\w*|mathrm|mathbf)\s*\{\s*\(?[A-J]\)?[.)]?\s*\}\Z|\([A-J]\)\Z|([A-J])\Z"
)
OPTION = re.compile(r"(?:\s+[-–—]\s+|\s*(?:\\[,;: ]|~)\s*)(?=\\?[\w$])")
"""What stands between a letter and its option's text."""
NO_MARKS = frozenset("°!/\\*%‰#&@'\"′″‴†‡✗✘❌❎🚫⛔")
"""Symbols that say something, or that are read elsewhere."""
BRACKETS = frozenset("【】「」『』《》〔〕")
LEAST_MARK = 0x483
"""The first mark of a script that has its own for vowels; those before it stand on Latin letters,
or cross something out."""
MODULUS = re.compile(r"\s*(?:\\[,;:! ]|\\quad)*\\?\(?\\?p?mod")
GLUED = re.compile(r"(?:[\d)\]}^_+/\-−]|(?<![^\W\d_])[a-zA-Z]|\\[a-zA-Z]+)\Z")
STRUCK = re.compile(r"~~\s*\Z|<(?:s|del|strike)>\s*\Z", re.IGNORECASE)
BESIDE = re.compile(r"(?:\A|\n|(?<![\\\w])[^\W\d_]{2,20}[:.,]?)[ *]*(?:\$\$?|\\[\[(])?\s*\Z")
BEHIND = re.compile(r"\s*(?:\$\$?|\\[\])])?[ *]*(?:[.!]?[ *]*(?:\Z|\n)|[.,] [A-Za-z]{2})")
"""Nothing but words, a delimiter or a line's ends on both sides of a box."""


class _Side(NamedTuple):
    """What stands on one side of a box in its formula: the part that belongs to the same value,
    what set it apart from the rest, and the rest."""

    part: str
    boundary: str
    rest: str


def stands_alone(text: str, start: int, end: int) -> bool:
    """Returns whether a box that stands there in a text is the answer itself at first sight. Takes
    microseconds; where it is not sure, it says no."""
    before, after = text[max(0, start - 40) : start], text[end : end + 40]
    return BESIDE.search(before) is not None and BEHIND.match(after) is not None


def in_its_formula(text: str, start: int, end: int, body: str) -> str | None:
    """Returns the answer that a box gives which stands there in a text: its body, or the value that
    it is a part of. None where it is a part of an equation that gives no one value."""
    before, after, is_maths = _formula(text, start, end)
    before, after = _plain(before, is_maths), _plain(after, is_maths)
    before, after = (ESCAPED.sub("", side) for side in (before, after))
    if STRUCK.search(before):
        return None
    left, opened = _before(before, is_maths)
    right = _after(after, is_maths, opened)
    if right is None:
        return None
    part, rest = left.part, right.part
    if not is_maths and not left.boundary and not left.rest:
        part = ITEM.sub("", part)
    if not is_maths and left.boundary in ("words", ""):
        part = "" if NUMBERED.match(part) else DASH.sub("", part)
    if MODULUS.match(rest):
        rest = ""
    if SILENT.match(part):
        rest = PARTED.sub(r"\1/\2", rest)
        letter = LETTER.match(body)
        if letter and not (is_maths and letter[1]) and OPTION.match(rest):
            return body
    if SILENT.match(part) and SILENT.match(rest) and not (is_maths and "'" in rest):
        return body
    named = left.boundary != "equal" or ONE_NAME.match(left.rest.rpartition("\n")[2])
    if not named or right.boundary == "equal":
        return None
    simple = SIMPLE.match(body) and not (body[:1].isdigit() and JOINS.search(part))
    return f"{part}{body if simple else f'({body})'}{rest}".strip()


def _plain(text: str, is_maths: bool) -> str:
    """Returns what stands beside a box without the marks that letters of some scripts have, and
    without symbols that say nothing, such as a tick; these set apart what is outside of formulas.
    """
    if text.isascii():
        return text
    plain = ""
    for letter in unicodedata.normalize("NFC", text):
        kind = unicodedata.category(letter)
        if kind in ("Mn", "Mc", "Cf"):
            plain += letter if ord(letter) < LEAST_MARK or 0x20D0 <= ord(letter) <= 0x20DF else ""
        elif letter in BRACKETS or (kind == "So" and letter not in NO_MARKS):
            plain += " " if is_maths else " ; "
        else:
            plain += letter
    return plain


def _formula(text: str, start: int, end: int) -> tuple[str, str, bool]:
    """Returns what stands before a box and behind it in its formula, and whether that has
    delimiters; without any, the line is the formula."""
    first = text.rfind("\n\n", max(0, start - NEARBY), start)
    first = max(0, start - NEARBY) if first < 0 else first
    last = text.find("\n\n", end, end + NEARBY)
    last = min(len(text), end + NEARBY) if last < 0 else last
    for match in MATHS.finditer(text, first, last):
        if match.start() < start and end < match.end():
            inner = match.lastindex or 0
            sign = OUTER.search(text, first, match.start())
            before = (sign[0] if sign else "") + text[match.start(inner) : start]
            return before, text[end : match.end(inner)], True
    first = max(first, text.rfind("\n", first, start) + 1)
    line_end = text.find("\n", end, last)
    return text[first:start], text[end : line_end if line_end >= 0 else last], False


def _before(text: str, is_maths: bool) -> tuple[_Side, int]:
    """Returns what belongs to a box's value before it, and how many brackets stand open there."""
    at, boundary = 0, ""
    opened: list[tuple[int, str]] = []
    for match in TOKEN.finditer(text):
        kind = match.lastgroup or ""
        if kind == "other" and match[0] == "$":
            at, boundary, opened = match.end(), "words", []
        elif kind == "spoken" or (kind == "open" and (is_maths or _is_structure(match, text))):
            opened.append((match.end(), kind))
        elif kind == "open" and not opened:
            at, boundary = match.end(), "words"
        elif kind == "close" and opened:
            opened.pop()
        elif kind == "close":
            at, boundary = match.end(), "words"
        elif not opened and (apart := _sets_apart(match, f"{text}{BOX}", is_maths)):
            at, boundary = match.end(), apart
    within = [end for end, kind in opened if kind == "spoken"]
    if within:
        return _before(text[within[-1] :], is_maths)
    rest = _last_piece(text[:at]) if boundary == "equal" else text[:at]
    return _Side(text[at:], boundary, rest), len(opened)


def _last_piece(text: str) -> str:
    """Returns the equation that a text ends in: what stands behind words, marks and other
    formulas."""
    at = 0
    for match in TOKEN.finditer(text):
        is_word = match.lastgroup == "letters" and _is_prose(match[0])
        if is_word or match[0] == "$" or match.lastgroup in FURTHER:
            at = match.end()
    return text[at:]


def _after(text: str, is_maths: bool, opened: int) -> _Side | None:
    """Returns what belongs to a box's value behind it; None where a bracket before it that is open
    is not closed."""
    depth = opened
    for match in TOKEN.finditer(text):
        kind = match.lastgroup or ""
        if kind == "open":
            aside = match[0] in "([{" and not is_maths and not text[: match.start()].strip()
            if aside and not depth:
                return _Side(text[: match.start()], "words", text[match.start() :])
            depth += 1
        elif kind == "close":
            if depth == 0:
                return _Side(text[: match.start()], "words", text[match.end() :])
            depth -= 1
        elif depth == 0 and (kind == "spoken" or (kind == "other" and match[0] == "$")):
            return _Side(text[: match.start()], "words", text[match.end() :])
        elif depth == 0 and (apart := _sets_apart(match, text, is_maths)):
            if apart == "words" and COUNT.match(text, match.start()):
                continue
            return _Side(text[: match.start()], apart, text[match.end() :])
        elif depth == 0 and (match[0] in MEMBER or (not is_maths and _is_dash(match, text))):
            return _Side(text[: match.start()], "words", text[match.end() :])
    return None if depth else _Side(text, "", "")


def _sets_apart(match: re.Match[str], text: str, is_maths: bool) -> str:
    """Returns what kind of boundary a token is between two values: an equality, words, or another;
    nothing where it is none."""
    kind, token = match.lastgroup or "", match[0]
    before, after = text[match.start() - 1 : match.start()], text[match.end() : match.end() + 1]
    if kind in ("equal", "words", "apart"):
        return kind
    if kind in ("mark", "other") and token in ".:,":
        within = (before.isdigit() or not match.start()) and (after.isdigit() or after == BOX)
        return "" if within or (is_maths and token != ":" and kind == "other") else "apart"
    if kind == "letters":
        is_word = _is_prose(token) or (not is_maths and before.isspace() and not after.strip())
        return "words" if is_word else ""
    outside = kind in ("line", "element") or token in ("!", ";")
    return "apart" if kind == "mark" or (outside and not is_maths) else ""


def _is_prose(letters: str) -> bool:
    """Whether letters are a word: several of them, or one of a script that has no symbols."""
    return len(letters) > 1 or not (letters.isascii() or "Α" <= letters <= "ω")


def _is_structure(bracket: re.Match[str], text: str) -> bool:
    """Whether a bracket outside of formulas belongs to one: behind a command or a symbol."""
    return bracket[0][0] == "\\" or GLUED.search(text[: bracket.start()]) is not None


def _is_dash(match: re.Match[str], text: str) -> bool:
    """Whether a sign outside of formulas has words behind it, and so is none."""
    words = re.match(r"[-–—]?\s*[*_\"'(]*[^\W\d_]{2}|\s*\Z", text[match.end() :])
    return match[0] in "-–—|+*>" and words is not None
