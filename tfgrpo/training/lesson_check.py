"""What a lesson must not be: an answer, a piece of our own prompt, or half a sentence.

A model that is shown the right answer likes to write it down, and a small one repeats what it was
told. Such a text would be put into every later prompt. So a text is looked at before it counts:
what is found goes back to the model once, and is then refused on record. The rules go by the
problems that the text was learned from and by the prompt it was asked with; they know no
dictionary, so numbers that any advice may hold (one digit or two, or round ones) pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from tfgrpo.data.problems import Problem
from tfgrpo.rendering.examples import is_example
from tfgrpo.training.label_mentions import denies, is_only, replace_answer, right_answers, tells
from tfgrpo.training.number_lessons import SAYS, for_any_quantity, names_answer
from tfgrpo.training.numbers_in_text import numbers_in, ungrouped
from tfgrpo.training.telling_parts import TellingPart

CODE = re.compile(r"\b(?:[A-Z]{2,}-\d+|[A-Z]+-?\d{2,})\b")
"""What names one thing: `QQ-0`, `X117`."""
WORD = re.compile(r"[^\W_]+")
NAME = re.compile(r"(?<=[\w,;] )[A-Z][a-z]{2,}")
"""A capital letter that does not begin a sentence."""
IDENTIFIER = re.compile(r"\w*\w_\w+")
"""What is written as labels are: `card_linking`."""
ANSWER_WORDS = {"any", "be", "class", "correct", "label", "labels", "option", "other", "should"}
"""What a sentence that names an answer and no more may have in it."""
TELLING_DIGITS = 3
"""The digits from which on a number is no chance find, zeros at its ends apart."""
TELLING_LETTERS = 8
"""The characters from which on an answer in words is no chance find."""
RUN = 6
"""The words in a row from which on a text repeats a prompt."""
QUOTE = 4
"""The words in a row from which on a text with a number in them is about one problem."""
SHARE = 0.6
"""The share of a text's pairs of words from which on it is put together from a prompt's."""
SENTENCE_END = re.compile(r"(?<=[.!?])(?= [\"'“‘(]?[^\W\d_a-z])")
REASON = re.compile(r",? because\b|, (?:as|since|which)\b")
"""What the reason for a rule begins with; `and`, `so` and a bare `as` may go on with the rule."""
CONDITION = re.compile(
    r"(?i)(?:if|when|whenever|where|wherever|for|as|because|since|unless)\b[^,]*"
)
"""What is no rule yet: when it holds, or why."""
UNFINISHED = re.compile(
    r"(?i)(?:an?|and|are|as|at|because|but|by|for|from|if|into?|is|its|of|on|or|so|than|that|the"
    r"|their|then|these|this|those|to|was|were|when|where|which|while|with)"
)
"""Words that no English sentence ends with, or hardly any without its full stop."""


PREFACE = re.compile(
    r"\A(?:the |a |one |our |my )?(?:key )?lesson(?: here)? is(?: that| to|:)\s+", re.I
)
"""How small models begin."""
ABOUT_ANSWER = re.compile(
    r"(?:the |this |its )?(?:right|correct|wrong|incorrect|final|actual) "
    r"(?:answer|attempt|calculation|response|result|solution)s?\b",
    re.I,
)
OF_THESE = "it is about these attempts; say what to do with the next problem, and when"
OF_ATTEMPTS = re.compile(r"\b(?:right|correct|wrong|incorrect) attempts?\b", re.I)
SAYS_WHEN = re.compile(r"\b(?:when|if|where|whenever|for)\b", re.I)
MINUS = r"(?<![^\W\d_])-(?![^\W\d_])"
"""A hyphen that joins no words: not that of `half-day` or `5-day`."""
CALCULATION = re.compile(rf"\d[^=.;]*(?:[*/+\u00d7\u00f7\u00b7]|{MINUS})[^=.;]*=\s*[^\w\s]?\s*\d")
"""Numbers with an operator between them that come to a number: one problem's."""


@dataclass(frozen=True, slots=True)
class LessonCheck:
    """The check of texts that were learned from `problems`, by calls with these `prompts`.

    With `shared_answers` a text may tell the answer, which is one of few, as a label is; and one
    that was learned from a problem whose answer is known has to. Of a text of more than `max_words`
    words only the beginning counts, where that is whole. With `parts`, fields that right attempts
    alone have right, a text has to name one, and may not give the value of this problem.
    """

    problems: tuple[Problem, ...] = ()
    prompts: tuple[str, ...] = ()
    shared_answers: bool = False
    max_words: int | None = None
    ground_truth: bool = True
    parts: tuple[TellingPart, ...] = ()

    def accepted(self, text: str) -> str:
        """Returns what counts of a text: all of it, or the longest beginning of whole sentences, or
        of whole clauses of the first, that is short enough and that nothing is wrong with. A small
        model says the rule first, and then what it was told to say. Raises ValueError with what is
        wrong where there is none.
        """
        text = without_preface(text)
        wrong = self(text)
        if wrong is not None:
            general = self._for_any_quantity(text)
            if general != text and self(general) is None:
                text, wrong = general, None
        if wrong is None and not self._is_long(text):
            return text
        for beginning in beginnings(text):
            if not self._is_long(beginning) and self(beginning) is None:
                return beginning
        if wrong is not None:
            raise ValueError(wrong)
        return text  # whoever decides about it words it anew

    def _for_any_quantity(self, text: str) -> str:
        """Returns a text without quantities of the problems; itself where it says what one of them
        comes to, which holds for those quantities alone."""
        if any(names_answer(text, problem) for problem in self.problems):
            return text
        for problem in self.problems:
            text = for_any_quantity(text, problem.problem)
        return text

    def _without_answers(self, text: str) -> str:
        """Returns a text with one word for each shared answer: a prompt lists them all, and some
        are as long as a sentence."""
        for problem in self.problems if self.shared_answers else ():
            for answer in right_answers(problem):
                text = replace_answer(text, answer, "answer")
        return text

    def _is_long(self, text: str) -> bool:
        return self.max_words is not None and len(text.split()) > self.max_words

    def __call__(self, text: str) -> str | None:
        """Returns what is wrong with a text, as the model is told it, or None."""
        text = " ".join(text.split())
        if not text:
            return None
        if is_example(text):
            return "it is an example; say the rule"
        for problem in self.problems:
            answer = None if self.shared_answers else given_away(text, problem)
            if answer is not None:
                return f"it gives away an answer ({answer!r}); a rule has to help elsewhere"
            name = named(text, problem)
            if name is not None:
                return f"it is about one problem ({name!r}); a rule has no names"
            if not self.shared_answers and is_about_attempts(text):
                return OF_THESE
            quote = quoted(text, problem)
            if quote is not None:
                return f"it is about one problem ({quote!r}); say it for any number"
            answer = None if self.shared_answers else calculated(text, problem)
            if answer is not None:
                return f"it gives away an answer ({answer!r}); a rule has to help elsewhere"
        if wrong := self._fault_about_parts(text):
            return wrong
        if any(repeats(self._without_answers(text), prompt) for prompt in self.prompts):
            return "it repeats the instructions; say what the attempts have shown"
        last = broken_off(text)
        if last is not None:
            return f"it breaks off at {last!r}; write a whole sentence, in fewer words"
        if self.shared_answers and self.ground_truth and len(self.problems) == 1:
            answers = right_answers(self.problems[0])
            if answers and not any(tells(text, answer) for answer in answers):
                return f"it does not name the right answer, {answers[0]!r}; say when it is right"
            if any(is_only(text, answer) for answer in answers):
                return "it is an answer alone; say when it is right"
            denied = next((answer for answer in answers if denies(text, answer)), None)
            if denied is not None:
                return f"it says that {denied!r} is right, and that it is not"
            if answers and not self._says_when(text):
                return "it does not say when; begin with what such a problem says or asks for"
            is_bare = ABOUT_ANSWER.match(text) and not SAYS_WHEN.search(text)
            if is_bare or OF_ATTEMPTS.search(text):
                return OF_THESE
        return None

    def _fault_about_parts(self, text: str) -> str | None:
        if not self.parts:
            return None
        if not any(part.is_named_in(text) for part in self.parts):
            names = " or ".join(part.name for part in self.parts)
            return f"it says nothing of {names}; say what is written there, and when"
        for part in self.parts:
            is_quoted = any(part.is_quoted_in(text, one.problem) for one in self.problems)
            if is_quoted and part.lesson():  # else the value may be what the rule is about
                return f"it is about one problem ({part.right!r}); say it for any"
        return None

    def _says_when(self, text: str) -> bool:
        """Returns whether a text about a shared answer has any word beside answers and what the
        prompts say of every problem."""
        words = _words(IDENTIFIER.sub(" ", self._without_answers(text)))
        instructions = _words(self.prompts[0]) if self.prompts else ()
        everywhere = ANSWER_WORDS.union(instructions)
        return any(word not in everywhere for word in words)


def beginnings(text: str) -> Iterator[str]:
    """Yields the beginnings of a text, the longest first: without its last sentences, then without
    the last reasons that its first one gives."""
    text = " ".join(text.split())
    ends = [match.start() for match in SENTENCE_END.finditer(text)]
    yield from (text[:end] for end in reversed(ends))
    first = text[: ends[0]] if ends else text
    for match in reversed(list(REASON.finditer(first))):
        beginning = first[: match.start()]
        if beginning and not CONDITION.fullmatch(beginning):
            yield f"{beginning}."


def given_away(text: str, problem: Problem) -> str | None:
    """Returns the answer of a problem that a text tells, or None."""
    for answer in _answers(problem):
        value = _number(answer)
        if value is not None:
            if value in numbers_in(text) | _without_commas(text) and (
                len(value.replace(".", "").strip("0")) >= TELLING_DIGITS
                or _calls_it_the_answer(text, answer)
                or (_names(text) & _names(problem.problem))
            ):
                return answer
        elif _plain(answer) in _plain(text) and (
            len(answer) >= TELLING_LETTERS or NAME.search(f"x, {answer}")
        ):
            return answer
    return None


def without_preface(text: str) -> str:
    """Returns a lesson without the words that call it one."""
    rest = PREFACE.sub("", text.strip(), count=1)
    return rest[:1].upper() + rest[1:]


def is_about_attempts(text: str) -> bool:
    """Returns whether a text says what an answer is, or calculates one, and not what to do."""
    patterns = (ABOUT_ANSWER.match(text), OF_ATTEMPTS.search(text), CALCULATION.search(text))
    return any(match is not None for match in patterns)


def named(text: str, problem: Problem) -> str | None:
    """Returns a name of a problem or of something in it that a text uses, or None."""
    telling = len(problem.id) > 3 and any(c.isdigit() for c in problem.id)
    if telling and re.search(rf"(?<![\w-]){re.escape(problem.id)}(?![\w-])", text):
        return problem.id
    codes = set(CODE.findall(text)) & set(CODE.findall(problem.problem))
    return min(codes, default=None)


def quoted(text: str, problem: Problem) -> str | None:
    """Returns words in a row that a text has from a problem, with a number among them, or None."""
    for run in _in_rows(_words(text), QUOTE):
        if any(word.isdecimal() for word in run) and run in _runs(problem.problem, QUOTE):
            return " ".join(run)
    return None


def calculated(text: str, problem: Problem) -> str | None:
    """Returns the answer of a problem that a sentence says one of its numbers comes to (`12 days
    are 96 hours`), or None. With an answer of one digit that may be a rule."""
    for value in filter(None, map(_number, _answers(problem))):
        if len(value) < 2:
            continue
        others = numbers_in(problem.problem) - {value}
        comes_to = rf"(?i){SAYS}\s+(?:[^\W\d]+\s+){{0,2}}{re.escape(value)}(?!\.?\d)"
        for sentence in SENTENCE_END.split(ungrouped(text)):
            answer = re.search(comes_to, sentence)
            if answer and numbers_in(sentence[: answer.start()]) & others:
                return value
    return None


def repeats(text: str, prompt: str) -> bool:
    """Returns whether a text is a piece of a prompt, or put together from pieces of it."""
    words = _words(text)
    if len(words) < 4:
        return False
    if any(run in _runs(prompt, RUN) for run in _in_rows(words, RUN)):
        return True
    pairs = list(_in_rows(words, 2))
    return sum(pair in _runs(prompt, 2) for pair in pairs) >= SHARE * len(pairs)


def broken_off(text: str) -> str | None:
    """Returns where a text ends in the middle of a sentence, or None where it does not."""
    last = text.rsplit(maxsplit=1)[-1]
    opened = sum(text.count(c) for c in "([{") > sum(text.count(c) for c in ")]}")
    if opened or last[-1] in ",;:([{–—-" or UNFINISHED.fullmatch(last):
        return last
    return None


def _answers(problem: Problem) -> Iterator[str]:
    """Yields what is right: the answer, and others where the domain has a list of them."""
    listed = problem.meta.get("answers")
    for answer in (problem.answer, *(listed if isinstance(listed, list) else ())):
        answer = str(answer).strip().strip("$")
        if answer:
            yield answer


def _number(answer: str) -> str | None:
    """Returns the number that an answer is, give or take a unit, or None."""
    numbers = _without_commas(answer)
    return numbers.pop() if len(numbers) == 1 and len(answer.split()) <= 2 else None


def _without_commas(text: str) -> set[str]:
    """Returns the numbers of a text with the commas in them left out, whether those part thousands
    or a fraction."""
    return numbers_in(re.sub(r"(?<=\d),(?=\d)", "", text))


def _calls_it_the_answer(text: str, answer: str) -> bool:
    number = re.escape(answer)
    near = rf"\banswer\b.{{0,30}}?(?<!\d){number}"
    total = rf"\b(?:total|result|sum)\b[^.;]{{0,100}}?\b{SAYS}\s+(?:[^\W\d]+\s+){{0,2}}{number}"
    return len(answer) > 1 and bool(re.search(rf"(?i)(?:{near}|{total})(?!\.?\d)", text))


def _names(text: str) -> set[str]:
    return set(NAME.findall(text))


def _plain(text: str) -> str:
    return f" {' '.join(WORD.findall(text.casefold()))} "


def _words(text: str) -> list[str]:
    return WORD.findall(text.casefold())


def _in_rows(words: list[str], size: int) -> Iterable[tuple[str, ...]]:
    return zip(*(words[start:] for start in range(size)), strict=False)


@lru_cache(maxsize=64)
def _runs(prompt: str, size: int) -> frozenset[tuple[str, ...]]:
    return frozenset(_in_rows(_words(prompt), size))
