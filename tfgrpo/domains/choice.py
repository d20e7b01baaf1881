"""Choice: one label of a known set. `--domain choice`

choice                    the labels are those in the data, and go into the run's record
choice:labels.txt         the labels in a file, one a line
choice:["no","yes"]       the labels themselves, as a JSON list

The labels are told to the model in the prompt. The answer is a label that stands in the last box
or `<answer>`, alone on the last line or after `Label:`, or in a JSON object under `label`,
`answer`, a key that ends in `label` or one that the problem names; case, spaces, and `_` and `-`
between words do not matter where labels stay apart without them. A letter may stand before its
option's text. A box that holds no label does not stand in the way of `Label:` on the last line.
Naming several labels, mentioning one in a sentence, or taking it back is no answer.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from tfgrpo.data.problems import Problem
from tfgrpo.domains.answer_reading import (
    FENCE,
    GivenAnswer,
    NoAnswer,
    find_answer,
    is_declared,
    is_taken_back,
    option_letter,
    own_option,
    show,
    unwrap_latex,
    variants,
    whole_and_first,
)
from tfgrpo.domains.base import Domain, DomainInvalid, Verdict, problem_messages
from tfgrpo.domains.json_reading import last_place, parse_json
from tfgrpo.domains.mathematics.doubt import any_of, pattern
from tfgrpo.domains.mathematics.extract import NEGATIVE, spoken, without_unseen
from tfgrpo.domains.mathematics.notation import WRAPPING
from tfgrpo.rendering.prompt_templates import Message, Template
from tfgrpo.store.canonical import digest
from tfgrpo.store.records import Library

AGENT_OBJECTIVE = (
    "Say which label fits. Think in one short sentence, then write the label alone on the last "
    "line, as `Label: NAME`."
)
LEARNING_OBJECTIVE = "Rules that tell apart labels which are easily confused: which fits when."
KEYS = (
    *("label", "labels", "answer", "category", "class", "intent", "output", "prediction"),
    "classification",
)
"""What the field of a JSON object is called that holds a label."""
CALLED = pattern("answer")
WRONG = pattern("wrong")
DOUBT = pattern("doubt")
ENDS_IN_LABEL = re.compile(r"(?:.*[\s_-]|\w*[^\WA-Z_])?[lL]abel\Z|.*_LABEL\Z")
"""Another name of such a field: `predicted_label`, `topicLabel`."""
OTHER_KEY = re.compile(
    rf"{any_of('denied', 'wrong', 'doubt', 'otherwise')}"
    r"|reject|exclu|discard|previous|prior|old|former|second|other|altern|example|ruled|runner",
    re.IGNORECASE,
)
"""What a field is called that holds another label than the answer: `wrong_label`."""
OF_THE_LABEL = re.compile(
    r"(?:(?:is|label|answer)\s)?(?:appl(?:ies|y|icable)|correct|right|true|valid|holds?|fits?"
    r"|match(?:es)?|accepted|confirmed|korrekt|richtig|gültig|zutreffend|passt|correcte?|exacte?"
    r"|valide|correct[oa]|válid[oa]|верно|правильно|正确|有效|適切|正しい|맞음)",
    re.IGNORECASE,
)
"""What a field is called that says whether the label holds: `"applies": false` denies it."""
DASHED = re.compile(r"\A\(?(\w)\)?\s+[-–—]\s+")
"""A letter with a dash before the text of its option: `D - 4.5 J`."""
DASH = re.compile(r"[‐-―−]")
BOUND = re.compile(r"\A([<>≤≥]=?)\s+")
BETWEEN = re.compile(
    r"(?<=[^\W_])(?:\s*_+\s*(?=[^\W_])|\s*-+\s*(?=[^\W\d_]))|(?<=[^\W\d_])-+(?=\d)"
)
"""What stands between two words as a blank does. Between digits a dash or `_` is a sign, and so is
a dash before a digit behind a blank."""
HINT = 'write choice, choice:labels.txt (a label a line), or choice:["no","yes"]'


@dataclass(frozen=True)
class Labels:
    """The labels that there are, and which of them a text is."""

    names: tuple[str, ...] = ()

    @cached_property
    def _known(self) -> dict[str, str | None]:
        """Every way to write a label, with the label, or None where two are written so."""
        known: dict[str, str | None] = {}
        for write in (_exactly, fold, _unmarked, _unsigned):
            ways: dict[str, set[str]] = {}
            for name in self.names:
                ways.setdefault(write(name), set()).add(name)
            for way, names in ways.items():
                if way:
                    known.setdefault(way, min(names) if len(names) == 1 else None)
        return known

    def label_of(self, text: str) -> str | None:
        """Returns the label that a text is, markup and words like `Label:` apart; None for what
        is no label, or could be two."""
        text = unwrap_latex(text)
        for variant in variants(text, lambda *_: False):
            label = self._written(variant)
            if label is not None:
                return label
        labels = (self._written(variant) for variant in variants(text))
        label = next(filter(None, labels), None)
        return None if label in self._signed else label

    def named(self, text: str) -> str | None:
        """Returns the label that a text is, or that follows one word of it: `maybe refund`."""
        return self.label_of(text) or self.label_of(text.partition(" ")[2])

    def _written(self, text: str) -> str | None:
        """Returns the label that is written so; None for no label, or for two."""
        ways = (_exactly(text), fold(text), _unsigned(text))
        return next((self._known[way] for way in ways if way in self._known), None)

    @cached_property
    def _signed(self) -> frozenset[str]:
        """The labels that differ from another one by signs alone, such as `-1` and `1`, or by what
        may be a mark before it. No bullet and no bracket is taken off these."""
        alike: dict[str, set[str]] = {}
        for name in self.names:
            for way in {re.sub(r"[\W_]+", "", fold(part)) for part in variants(name)}:
                alike.setdefault(way, set()).add(name)
        return frozenset(name for names in alike.values() if len(names) > 1 for name in names)

    def chosen(self, text: str, question: str = "") -> str | None:
        """Returns the label that an answer to a question is, also where it is a letter with its
        option's text."""
        label = self.label_of(text)
        if label is None:
            parts = variants(unwrap_latex(WRAPPING.sub(r"\1", text)))
            letters = (self._letter_of(own_option(part, question)) for part in parts)
            label = next(filter(None, letters), None)
        return label

    def _letter_of(self, text: str) -> str | None:
        """Returns the letter before an option's text, `D. 4.5 J`, where the labels are letters.
        None where what follows names another label, or takes it back."""
        if any(len(name) > 1 for name in self.names):
            return None
        letter = option_letter(DASHED.sub(r"\1. ", text), "".join(self.names))
        return self._known.get(fold(letter)) if letter else None


def _exactly(text: str) -> str:
    return "=" + " ".join(unicodedata.normalize("NFC", without_unseen(text)).split())


def fold(text: str) -> str:
    """Returns a label without what does not tell labels apart: case, runs of spaces, and `_` and
    `-` between words. Elsewhere these are signs: `-1`, `O-`, `1-5`."""
    text = unicodedata.normalize("NFKC", without_unseen(text)).casefold()
    text = " ".join(BOUND.sub(r"\1", DASH.sub("-", text)).split())
    return " ".join(BETWEEN.sub(" ", text).split())


def _unmarked(name: str) -> str:
    return fold(name.rstrip(".!?"))


def _unsigned(text: str) -> str:
    """Returns a label without the plus before a number, which changes nothing."""
    return re.sub(r"\A\+(?=\d)", "", fold(text))


def verify(problem: Problem, response: str, labels: Labels) -> Verdict:
    """Judges a response. Takes microseconds; raises nothing."""
    labels = labels if labels.names else Labels(tuple(problem.ground_truths))
    golds = [labels.label_of(gold) or gold for gold in problem.ground_truths]
    question = problem.problem
    given = _in_json(response, labels, question) or _in_words(response, labels, question)
    if isinstance(given, NoAnswer):
        return Verdict(0.0, None, given.reason)
    label, place = given
    if label in golds:
        return Verdict(1.0, label, f"{place}: equal")
    return Verdict(0.0, label, f"{place}: {show(label)} is not {show(golds[0])}")


def read(problem: Problem, response: str, labels: Labels) -> str | None:
    """Returns the label that a response gives; None where it gives none, or several."""
    question = problem.problem
    given = _in_json(response, labels, question) or _in_words(response, labels, question)
    return None if isinstance(given, NoAnswer) else given[0]


def _in_words(response: str, labels: Labels, question: str) -> tuple[str, str] | NoAnswer:
    """Returns the label that a response to a question gives in words, and where; or why it
    gives none."""
    given = find_answer(response)
    if isinstance(given, NoAnswer):
        return given
    label = labels.chosen(given.text, question)
    if label is None and is_declared(given.after_box):
        given = GivenAnswer(given.after_box, "last line", others=given.others)
        label = labels.chosen(given.text, question)
    if label is None:
        return NoAnswer(f"no label: {given.place}: {show(given.text)} is none of the labels")
    others = {labels.named(part) for text in given.others for part in whole_and_first(text)}
    others.add(labels.label_of(given.after_box or given.line_before))
    for other in sorted(filter(None, others - {label})):
        return NoAnswer(f"{given.place}: {show(label)} and {show(other)}: several are no answer")
    return label, given.place


def _in_json(response: str, labels: Labels, question: str) -> tuple[str, str] | NoAnswer | None:
    """Returns the label that a response ends in as JSON; None where it ends in no JSON."""
    text = spoken(response).strip()
    if not _ends_in_json(text):
        return None
    last = last_place(text)
    if isinstance(last, NoAnswer):
        return last if text.startswith("{") else None
    before = text[: last.start].rstrip().removesuffix("```json").rstrip("` \n")
    line = before.rpartition("\n")[2]
    if is_taken_back(line):
        return NoAnswer(f"JSON: taken back by {show(line)}")
    label = _label_in(last.value, labels, question)
    if label is None:
        return NoAnswer(
            f"no label: JSON: {show(text[last.start : last.end])} gives none, or several"
        )
    beside = find_answer(f"{text[: last.start]}\n{text[last.end :]}")
    if isinstance(beside, GivenAnswer) and (beside.place == "box" or is_declared(beside.text)):
        other = labels.chosen(beside.text, question)
        if other is not None and other != label:
            return NoAnswer(f"JSON: {show(label)} and {show(other)}: several are no answer")
    line = text[last.end :].strip("` \n").rpartition("\n")[2]
    other = _other_in(line, label, labels)
    if other is not None:
        return NoAnswer(f"JSON: {show(label)} and {show(other)} behind it: several are no answer")
    return label, "JSON"


def _other_in(line: str, label: str, labels: Labels) -> str | None:
    """Returns another label that a line behind JSON is, ends in (`I think it is refund.`) or
    doubts with: `Not sure, maybe refund.`"""
    folded = fold(line).rstrip(".!* ")
    for name in labels.names:
        word = rf"(?<!\w){re.escape(fold(name))}(?!\w)"
        ends = re.search(rf"(?:\A|{any_of('be')}\s+){word}\Z", folded, re.IGNORECASE)
        doubted = DOUBT.search(folded) and len(name) > 1 and re.search(word, folded)
        if name != label and (ends or doubted or labels.label_of(line) == name):
            return name
    return None


def _ends_in_json(text: str) -> bool:
    """Whether a response is JSON, or ends in some: in a block of code or on its last line."""
    if text.startswith("{"):
        return True
    if text.startswith(("[", '"')):
        try:
            parse_json(text)
        except ValueError:
            pass
        else:
            return True
    blocks = FENCE.findall(text) if text.endswith("```") else []
    last = blocks[-1] if blocks else text.rpartition("\n")[2]
    return last.strip().startswith(("{", "[", '"') if blocks else "{")


def _label_in(value: Any, labels: Labels, question: str) -> str | None:
    """Returns the label that JSON gives: itself, or under a key that stands for an answer. None
    where it gives several, or another field denies it."""
    values = [value]
    if isinstance(value, dict):
        named = {key for key in value if _holds_label(key, question)}
        named = named or {key for key in value if _ends_in_label(key)}
        values = [value[key] for key in named]
        if any(_denies(key, value[key]) for key in value.keys() - named if key not in question):
            return None
    flat = [one for value in values for one in (value if isinstance(value, list) else [value])]
    texts = {text for value in flat for text in _texts_of(value, labels)}
    if len(texts) != 1 or len(flat) != len(values):
        return None
    return labels.chosen(texts.pop(), question)


def _holds_label(key: str, question: str) -> bool:
    """Whether a key of an object stands for the answer: it is called so, or the problem names
    it in quotation marks."""
    return key.casefold() in KEYS or bool(CALLED.fullmatch(_spaced(key))) or f'"{key}"' in question


def _ends_in_label(key: str) -> bool:
    return ENDS_IN_LABEL.fullmatch(key) is not None and not OTHER_KEY.search(_spaced(key))


def _denies(key: str, value: object) -> bool:
    """Whether a field says of the label that it does not hold: `"applies": false`."""
    words = _spaced(key)
    if OF_THE_LABEL.fullmatch(words) is None:
        return value is True and WRONG.fullmatch(words) is not None
    return value is False or (isinstance(value, str) and NEGATIVE.fullmatch(value) is not None)


def _spaced(key: str) -> str:
    return re.sub(r"[\s_-]+", " ", key)


def _texts_of(value: object, labels: Labels) -> list[str]:
    """Returns a value of JSON as the text that may be a label: numbers and booleans where one is
    written so, 4.0 also as 4."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, bool):
        ways = [str(value).lower()]
    elif isinstance(value, int | float):
        whole = isinstance(value, float) and value.is_integer()
        ways = [str(value), *([str(int(value))] if whole else [])]
    else:
        return []
    return [way for way in ways if labels.label_of(way)][:1]


def check(problem: Problem, labels: Labels) -> str | None:
    """Returns what is wrong with the ground truth, or None."""
    if not any(gold.strip() for gold in problem.ground_truths):
        return "there is none"
    unknown = [gold for gold in problem.ground_truths if labels.names and not labels.label_of(gold)]
    return f"it is none of the {len(labels.names)} labels" if unknown else None


def render(
    template: Template, library: Library, problem: Problem, agent_objective: str, labels: Labels
) -> tuple[Message, ...]:
    """Returns the messages of a rollout: the labels follow the objective."""
    listing = "\n".join(f"- {name}" for name in labels.names)
    objective = f"{agent_objective}\n\nThe labels are:\n{listing}" if listing else agent_objective
    return problem_messages(template, library, problem, objective)


def answers(problem: Problem, labels: Labels) -> tuple[str, ...]:
    """Returns the labels, whichever problem is asked."""
    return labels.names


def labels_in(problems: Sequence[Problem], labels: Labels) -> str:
    """Returns the labels as the domain's options: those that are known, else those of some
    problems, in the order of the alphabet. A record with them needs no file."""
    names = list(labels.names) or sorted(
        {gold for problem in problems for gold in problem.ground_truths if gold}
    )
    return json.dumps(names, ensure_ascii=False)


def with_options(options: str) -> Domain:
    """Returns the domain of some labels: a JSON list, or a file of them. Raises DomainError."""
    if options.lstrip().startswith("["):
        try:
            names = json.loads(options)
        except ValueError as error:
            raise DomainInvalid(f"the labels are no JSON list: {error}", hint=HINT) from None
    else:
        try:
            lines = Path(options).read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is no UTF-8 text"
            raise DomainInvalid(
                f"cannot read the labels in {options}: {reason}", hint=HINT
            ) from None
        names = [line.strip() for line in lines if line.strip()]
    if not names or not all(isinstance(name, str) and name.strip() for name in names):
        raise DomainInvalid(f"there are no labels in {options[:80]}", hint=HINT)
    return _domain(Labels(tuple(dict.fromkeys(name.strip() for name in names))))


def _domain(labels: Labels) -> Domain:
    judge = partial(verify, labels=labels)
    return Domain(
        name="choice",
        verify=judge,
        at_once=judge,
        check=partial(check, labels=labels),
        render=partial(render, labels=labels),
        agent_objective=AGENT_OBJECTIVE,
        learning_objective=LEARNING_OBJECTIVE,
        identity=digest(["labels", list(labels.names)]).hex()[:16] if labels.names else "",
        configure=with_options,
        options_from=partial(labels_in, labels=labels),
        shared_answers=True,
        answers=partial(answers, labels=labels),
        read=partial(read, labels=labels),
    )


DOMAIN = _domain(Labels())
