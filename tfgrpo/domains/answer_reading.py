"""Which text of a response is its answer, for answers that are words: labels and exact texts.

An answer is what the last `\\boxed{…}` or `<answer>` holds, or else the last line, alone or after
words such as `Answer:`. A text that is merely mentioned is no answer, nor is one of several, nor
one that is taken back. What a model thought (`<think>…</think>`) is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tfgrpo.domains.mathematics.doubt import any_of, pattern
from tfgrpo.domains.mathematics.extract import CLAUSE, JOINT, TAKEN_BACK, ending, spoken
from tfgrpo.domains.mathematics.second_answers import DENIED, texts_behind
from tfgrpo.domains.mathematics.second_answers import LEAD as LEADING

SHOWN = 80
FENCE = re.compile(r"```[\w-]*[ \t]*\n(.*?)\n?[ \t]*```", re.DOTALL)
LEAD = re.compile(LEADING, re.IGNORECASE)
"""Words that say that an answer follows."""
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=\S)")
STOP = re.compile(r"(?<=.)(?:[.。।]|(?<!\d)!)\Z", re.DOTALL)
"""The mark that ends a sentence; `5!` is a factorial."""
MARKUP = re.compile(r"\A(?:[-*•>]\s+|#{1,6}\s+|\d{1,2}[.)]\s+)")
WRAPPED = (
    *((mark, mark) for mark in ("**", "__", "`", '"', "'", "*")),
    *(("“", "”"), ("„", "“"), ("„", "”"), ("‘", "’"), ("‚", "‘"), ("«", "»"), ("»", "«")),
    *(("‹", "›"), ("「", "」"), ("『", "』"), ("$$", "$$"), ("$", "$"), ("\\(", "\\)")),
)
WRAPPED_IN_BRACKETS = (("(", ")"), ("[", "]"), ("<", ">"))
SIGNS = ("(", "[", "<", "__")
"""What stands around an answer, or belongs to it: `[0, 1]`, `<div>`, `__init__`."""
ELEMENT = re.compile(r"\A<(b|i|u|em|strong|mark)>(.*)</\1>\Z", re.DOTALL)
TAIL = re.compile(r"(?:\A|(?<!\s))(?:\s|</s>|(?<=\n)(?:-{3,}|\*{3,}|_{3,})(?=\s*\Z))+\Z")
"""What ends a response and says nothing: a rule below it, and a model's mark of its end."""
LAST = 200
"""Characters of the end of a response, blanks apart, in which that is looked for."""
LATEX = re.compile(r"\A\\(?:text(?:bf|rm|tt|it)?|mathrm|mathbf|texttt)\s*\{(.*)\}\Z", re.DOTALL)
GOES_ON = re.compile(rf"(?:{JOINT}|{any_of('denied')})[\s*_,:]*\Z", re.IGNORECASE)
"""The end of a line that the next one goes on with: `billing or`."""
TAKEN = pattern("denied", "wrong", "wait")
COLON = re.compile(r"[:：=>→⇒—–-][\s*_]*\Z")
WORDS = re.compile(r"[^\W\d_]+|\d+")
FEW = 3
"""Words that may stand between two answers that are given side by side, such as `Second guess:`,
and words of the longest text before a colon that counts as an answer."""
DOUBT = pattern("denied", "wrong", "doubt")
"""Words that take back what the line after them says."""
OPTION = re.compile(
    r"(?:(?:option|answer|choice)\s*:?\s*)?"
    r"(?:\((\w)\)(?!\s*[-+*/^=_]|\w)|(\w)(?:[.):](?=\s|\Z)|\Z))\s*(.*)\Z",
    re.IGNORECASE | re.DOTALL,
)
"""A letter, alone or with the text of its option: `D`, `D. 4.5 J`, `(D) 4.5 J`."""
ANOTHER = re.compile(
    rf"(?<!\w)\((\w)\)|(?:\A|[,;.:!?/]\s*|(?:{JOINT})\s*|(?:{any_of('wait', 'be')})\W+)"
    r"\(?(\w)(?:[.):](?=\s|\Z)|\W*\Z)",
    re.IGNORECASE,
)
"""What may be another letter of an option behind the first: `or B.`, `(B)`, `no, it is B`."""
DOUBTED = re.compile(
    rf"\A\W*(?:{any_of('be')}\W+(?:\w+\W+)?{any_of('wrong', 'denied')}|(?-i:{any_of('denied')}))"
    rf"|{any_of('doubt')}",
    re.IGNORECASE,
)
"""What takes a letter back. An option's own text may begin with a capital: `D. Not enough`."""
COMMAND = re.compile(r"\\[a-zA-Z]+")
MOST_WORDS = 100
"""Words of an option that are looked for in a problem, at most."""


class GivenAnswer(NamedTuple):
    """An answer that a response gives: its text, and the place that decided: box or last line.
    `line_before` is the line before it, and `after_box` the last line where that is not the box's:
    another answer there makes two of them. `others` are the texts that are given as answers too."""

    text: str
    place: str
    line_before: str = ""
    after_box: str = ""
    others: tuple[str, ...] = ()


class NoAnswer(NamedTuple):
    """A response that gives no answer; `reason` begins with the rule that says so."""

    reason: str


def find_answer(response: str) -> GivenAnswer | NoAnswer:
    """Returns the answer that a response gives in words, or why it gives none."""
    response = spoken(response).strip()
    response = (response[:-LAST] + TAIL.sub("", response[-LAST:])).strip()
    if not response:
        return NoAnswer("no answer: the response is empty, but for what was thought")
    end, unfenced = ending(response), FENCE.sub(lambda match: match[1], response)
    lines = [line.strip() for line in unfenced.split("\n") if line.strip()]
    if not lines:
        return NoAnswer("no answer: the response is empty")
    if end.retracted:
        return NoAnswer(f"box: {end.retracted}")
    if end.boxes:
        bodies = list(dict.fromkeys(unwrap_latex(body) for _, body in end.boxes))
        if len(bodies) > 1:
            return NoAnswer(f"box: {' and '.join(map(show, bodies))}: several are no answer")
        last = "" if re.search(r"boxed|fbox|</answer>", lines[-1], re.I) else lines[-1]
        others = tuple(texts_behind(end.rest))
        return GivenAnswer(bodies[0], "box", "", last, others)
    before = lines[-2] if len(lines) > 1 else ""
    if is_taken_back(before):
        return NoAnswer(f"last line: taken back by {show(before)}")
    if GOES_ON.search(before) and not is_declared(lines[-1]):
        return NoAnswer(f"last line: it goes on with {show(before)}")
    return GivenAnswer(lines[-1], "last line", before, others=_declared_before(lines))


def _declared_before(lines: Sequence[str]) -> tuple[str, ...]:
    """Returns the texts that lines before the last one declare as answers and nothing takes back or
    denies: of those before an answer that is declared itself, the ones with a few words between,
    and of those before another one, the ones behind a colon. A remark in small letters right before
    a name is none (`Result: found it`)."""
    texts: list[str] = []
    words, answer, declared = 0, lines[-1].lstrip("*_\"'`"), is_declared(lines[-1])
    for line in reversed(lines[:-1]):
        lead = LEAD.match(_plain(line))
        text = _plain(line)[lead.end() :] if lead else ""
        if lead and text and not text.endswith((":", "：")) and not DENIED.match(text):
            is_remark = not words and text[0].islower() and answer[:1].isupper()
            if declared or (COLON.search(lead[0]) and not is_remark):
                texts.append(text)
                words = 0
            continue
        words += len(WORDS.findall(line))
        if declared and (words > FEW or TAKEN.search(line)):
            break
        if not declared and any(TAKEN_BACK.match(clause[0]) for clause in CLAUSE.finditer(line)):
            break
    return tuple(texts)


def _plain(line: str) -> str:
    return MARKUP.sub("", line.replace("**", ""), count=1).strip()


def whole_and_first(text: str) -> tuple[str, str]:
    """Returns a line, and its first sentence: a full stop may end it, or belong to a name."""
    return text, SENTENCE_END.split(text)[0]


def is_taken_back(line: str) -> bool:
    """Returns whether a line takes back what follows it: `These are wrong:`."""
    return line.rstrip(" *_").endswith((":", "：")) and DOUBT.search(line) is not None


def variants(text: str, says_nothing: Callable[[str, str], bool] | None = None) -> Iterator[str]:
    """Yields a text as it stands, then without markup, the words before an answer, and a full
    stop at its end. All of them are the same answer. `says_nothing` is asked of a mark that may be
    a sign, such as a bullet or a bracket, and of what would be left without it."""
    yield from dict.fromkeys(_variants(text.strip(), says_nothing or (lambda _, __: True)))


def _variants(text: str, says_nothing: Callable[[str, str], bool]) -> Iterator[str]:
    yield text
    mark = MARKUP.match(text)
    plain = ELEMENT.sub(r"\2", text[mark.end() :].strip() if mark else text)
    for candidate in (plain, plain.replace("**", "")):
        lead = LEAD.match(candidate)
        declared = (candidate[lead.end() :] if lead else "", _last_sentence(candidate))
        whole = mark is None or (mark[0][0] != ">" and says_nothing(mark[0].strip(), candidate))
        for part in (candidate if whole else "", *declared):
            yield from _unwrapped(part.strip(), says_nothing)


def _last_sentence(line: str) -> str:
    """Returns what the last sentence of a line declares: `It is late. Label: late` is `late`.
    Nothing where it declares nothing, or something before it does."""
    before, _, sentence = SENTENCE_END.sub("\0", line).rpartition("\0")
    lead = LEAD.match(sentence)
    return sentence[lead.end() :] if before and lead and not LEAD.search(before) else ""


def _unwrapped(text: str, says_nothing: Callable[[str, str], bool]) -> Iterator[str]:
    """Yields a text, and what is within its quotes and marks, with and without a full stop."""
    for _ in range(4):
        if not text:
            return
        yield text
        within = _within(text, says_nothing)
        if within is None and STOP.search(text):
            within = text[:-1].rstrip()
        if within is None:
            return
        text = within


def _within(text: str, says_nothing: Callable[[str, str], bool]) -> str | None:
    for opened, closed in (*WRAPPED, *WRAPPED_IN_BRACKETS):
        size = len(opened) + len(closed)
        if len(text) > size and text.startswith(opened) and text.endswith(closed):
            inner = text[len(opened) : -len(closed)]
            apart = opened not in inner and closed not in inner
            if apart and (opened not in SIGNS or says_nothing(opened, inner)):
                return inner.strip()
    element = ELEMENT.match(text)
    if element is not None and "<" not in element[2]:
        return element[2].strip()
    return unwrap_latex(text) if LATEX.match(text) else None


def unwrap_latex(text: str) -> str:
    """Returns what a box holds as plain text: `\\text{card\\_lost}` is `card_lost`."""
    text = text.strip()
    while (match := LATEX.match(text)) is not None:
        text = match[1].strip()
    return re.sub(r"\\([_&%#$ ])", r"\1", text)


def option_letter(text: str, letters: str, *, is_truth: bool = False) -> str | None:
    """Returns which of some letters a text chooses: `D`, `(D) 4.5 J`. None where what follows names
    another one, or takes it back, as no ground truth does: `(E) not enough information`."""
    match = OPTION.match(text)
    letter = match and (match[1] or match[2])
    if match is None or letter is None or letter.upper() not in letters.upper():
        return None
    rest = match[3]
    for other in map("".join, ANOTHER.findall(rest)):
        alike = other.isupper() == letter.isupper() or len(rest.strip(" .()")) == 1
        if alike and other.upper() in letters.upper() and other.upper() != letter.upper():
            return None
    return None if not is_truth and DOUBTED.search(rest) else letter


def own_option(text: str, question: str) -> str:
    """Returns the letter alone where a text is a letter and its option as the question
    has both: what an option says itself, `(B) cannot be determined`, takes no letter back. Any
    other text stays as it is."""
    match = OPTION.match(text)
    words = re.findall(r"\w+", COMMAND.sub(" ", match[3])) if match is not None else []
    if match is None or not 0 < len(words) <= MOST_WORDS:
        return text
    letter = match[1] or match[2]
    option = r"\W+".join(map(re.escape, (letter, *words)))
    stands = re.search(rf"(?<!\w){option}(?!\w)", COMMAND.sub(" ", question), re.IGNORECASE)
    return letter if stands else text


def is_one_of_several(given: GivenAnswer) -> bool:
    """Returns whether the line before an answer gives one as it does: after words such as
    `Answer:`, or as an item of a list."""
    if is_declared(given.text):
        return is_declared(given.line_before)
    return all(map(MARKUP.match, (given.line_before, given.text)))


def is_declared(line: str) -> bool:
    """Returns whether a line says that an answer follows: `Label: …`."""
    return LEAD.match(_plain(line)) is not None


def show(text: str) -> str:
    """Returns a text in quotes, on one line, shortened for a reason."""
    line = " ".join(text.split())
    return repr(line if len(line) <= SHOWN else line[: SHOWN - 1] + "…")
