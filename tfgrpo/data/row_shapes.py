"""Known shapes of rows, read as what they are: options and context are part of what is asked.

    {"question", "choices": ["…", …], "answer": 1}                  MMLU: an index, or a letter
    {"question", "choices": {"text", "label"}, "answerKey": "B"}    ARC, CommonsenseQA
    {"question", "A", "B", "C", "D", "answer": "B"}                 columns that are letters
    {"Question", "Correct Answer", "Incorrect Answer 1", …}         GPQA, SciQ: shuffled by the text
    {"context", "question", "answer"}                               SQuAD and its like
    {"instruction", "input", "output"}                              Alpaca

A row of options asks them under letters, and its answer is the letter, unless a field is named.
"""

from __future__ import annotations

import ast
import json
import random
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from string import ascii_uppercase
from typing import Any, NamedTuple

from tfgrpo.data.compressed_files import DatasetError
from tfgrpo.store.damaged_values import listed

QUESTIONS = (
    *("problem", "question", "query", "prompt", "stem", "question_stem", "input", "text"),
    *("sentence", "ctx", "instruction"),
)
ABOUT = ("input", "sentence", "ctx")
"""Questions that an instruction stands before, where a row has one."""
LISTS = (
    *("choices", "options", "answer_choices", "candidates", "endings", "alternatives"),
    "mc_options",
)
KEYS = (
    *("answerkey", "answer_key", "answer", "label", "correct", "correct_answer", "correct_option"),
    *("answer_index", "answer_idx", "correct_index", "correct_choice", "gold", "target", "cop"),
    "answers",
)
OTHER_KEYS = (
    *("final_answer", "ground_truth", "groundtruth", "expected_answer", "ideal", "output"),
    *("response", "completion", "solution"),
)
"""Fields that may name the right option, or hold an answer in words."""
CONTEXTS = (
    *("context", "passage", "article", "document", "background", "paragraph", "premise"),
    *("story", "body", "table", "scenario", "facts"),
)
RIGHT = ("correct_answer", "best_answer")
WRONG = re.compile(
    r"(?:incorrect|wrong)[ _]?(?:answers?|choices?|options?)[ _]?\d*|distractors?[ _]?\d*"
)
LETTERED = re.compile(r"(?:(?:option|choice|answer|op|ending|opt|sol)[ _]?([a-j]|\d)|([a-j]))")
NUMBER = re.compile(r"[-+]?[\d.,]+(?:e[-+]?\d+)?", re.IGNORECASE)
PROBLEM = "problem"
ANSWER = "answer"


def in_our_shape(
    row: Mapping[str, Any], where: str = "a row", base: int = 0, key: str | None = None
) -> dict[str, Any]:
    """A row with options (indices from `base`) and context in `problem`, and `answer`; itself
    where it has neither. `key` is the field of the answer, where somebody has named it. Raises
    DatasetError where an answer names no option."""
    names = {fold(name): name for name in row}
    question = next((names[one] for one in QUESTIONS if _filled(row, names.get(one))), None)
    if question is None or not isinstance(row[question], str):
        return dict(row)
    fields = dict(row)
    text = row[question].strip()
    used = {question}
    context = next((names[one] for one in CONTEXTS if _filled(row, names.get(one))), None)
    if context is not None and context != question and (about := _text(row[context])):
        text, used = f"{about}\n\n{text}", used | {context}
    instruction = names.get("instruction")
    if instruction is not None and _filled(row, instruction) and fold(question) in ABOUT:
        text, used = f"{str(row[instruction]).strip()}\n\n{text}", used | {instruction}
    options = _options(row, names, key)
    spans = row[names["answers"]] if "answers" in names else None
    if options is None and isinstance(spans, dict) and isinstance(spans.get("text"), list):
        fields, used = {ANSWER: spans["text"]} | fields, used | {names["answers"]}  # SQuAD
    if options is None:
        return fields if used == {question} else _replaced(fields, used, {PROBLEM: text})
    right = _right(row, options, where, base)
    pairs = zip(options.labels, options.texts, strict=True)
    listed = "\n".join(f"{label}. {option}" for label, option in pairs if option is not None)
    prompt = f"{text}\n\n{listed}"
    used |= {*options.columns}
    if right is not None or options.key is None:
        prompt += "\n\nAnswer with the letter of the right option."
        used |= {name for name in (options.key,) if name is not None}
    return _replaced(fields, used, {PROBLEM: prompt} | ({ANSWER: right} if right else {}))


def _replaced(
    fields: Mapping[str, Any], used: Collection[str], ours: Mapping[str, Any]
) -> dict[str, Any]:
    return {**ours, **{n: value for n, value in fields.items() if n not in used and n not in ours}}


class Options(NamedTuple):
    """A row's options by their labels, None where a column is blank; the fields that they come
    from, the field that names the right one (surely, or it may be in words), and its label where
    that is known."""

    labels: list[str]
    texts: Sequence[str | None]
    columns: list[str]
    key: str | None = None
    is_sure: bool = True
    right: str | None = None


def _right(row: Mapping[str, Any], options: Options, where: str, base: int) -> str | None:
    """The label of the right option; None where no field names one, or one that may be in words
    does not. Raises DatasetError."""
    if options.right is not None or options.key is None:
        return options.right
    try:
        return _label(row[options.key], options, where, base)
    except DatasetError:
        if options.is_sure:
            raise
        return None


class Indices(NamedTuple):
    """From where the answers of a table that are indices of options count, and whether its rows
    tell."""

    first: int
    is_certain: bool


def option_indices(rows: Iterable[Mapping[str, Any]], key: str | None = None) -> Indices | None:
    """How the answers of a table that are indices of options are read; None where none is one. They
    count from 1 where none is 0 and one is the number of its options, or the columns count so."""
    indices = None
    for row in rows:
        options = _options(row, {fold(name): name for name in row}, key)
        if options is None or options.key is None or options.right is not None:
            continue
        value = row[options.key]
        text = _text(value)
        by_text = text in options.texts and not isinstance(value, int)
        if not re.fullmatch(r"\d{1,2}", text) or text in options.labels or by_text:
            continue
        first = min(map(fold, options.columns))
        if int(text) == 0:
            return Indices(0, True)
        if int(text) == len(options.texts) or first.endswith("1"):
            indices = Indices(1, True)
        elif indices is None:
            indices = Indices(0, first.endswith("0"))
    return indices


def _options(
    row: Mapping[str, Any], names: Mapping[str, str], named: str | None = None
) -> Options | None:
    """A row's options, None where it has none. A row without its answer has them too: in production
    the same is asked as in training. `named` is the field of the answer, where it is known."""
    sure, unsure = (
        [names[one] for one in keys if _filled(row, names.get(one))] for keys in (KEYS, OTHER_KEYS)
    )
    if named is not None:
        sure, unsure = [], [named] if _filled(row, named) else []
    key = next(iter((*sure, *unsure)), None)
    for one in LISTS:
        name = names.get(one)
        value = row.get(name) if name else None
        if name is None or not value:
            continue
        labels, listed = _listed(value)
        if len(listed) >= 2 and (key is not None or _are_letters(labels)):
            return Options(labels, listed, [name], key, bool(sure))
    right = next((names[one] for one in RIGHT if _filled(row, names.get(one))), None)
    wrong = [name for name in row if WRONG.fullmatch(fold(name, " ")) and _filled(row, name)]
    if right is not None and wrong:
        others = [text for name in wrong for text in _texts(row[name])]
        shuffled = [_text(row[right]), *others]
        random.Random(f"tfgrpo/options/{shuffled}").shuffle(shuffled)
        labels = _letters(len(shuffled))
        label = labels[shuffled.index(_text(row[right]))]
        return Options(labels, shuffled, [right, *wrong], right, right=label)
    columns = {
        match[1] or match[2]: name for name in row if (match := LETTERED.fullmatch(fold(name)))
    }
    for series in ("abcdefghij", "0123456789", "1234567890"):
        run = []
        for letter in series:
            if letter not in columns or columns[letter] == key:
                break
            run.append(columns[letter])
        texts = [_text(row[name]) if _filled(row, name) else None for name in run]
        if len(texts) - texts.count(None) >= 2 and _are_options(row, run, key):
            return Options(_letters(len(run)), texts, run, key, bool(sure))
    return None


def _are_letters(labels: Sequence[str]) -> bool:
    """Whether texts are such as stand before options, and not the names of settings."""
    return all(len(label) <= 2 for label in labels)


def _are_options(row: Mapping[str, Any], columns: list[str], key: str | None) -> bool:
    """Whether columns with the names of options hold some: the answer is one of them, if there is
    one."""
    filled = [name for name in columns if _filled(row, name)]
    texts = [_text(row[name]).upper() for name in filled]
    # Columns that are letters may be the numbers of an equation.
    few = len(texts) < 4 and all(len(fold(name)) == 1 for name in filled)
    may_be_numbers = few and all(NUMBER.fullmatch(text) for text in texts)
    if key is None:  # `answer1` and `answer2` may both be right
        may_be_answers = any(fold(name).startswith(("answer", "sol")) for name in filled)
        few = len(texts) < 3 or filled[0][-1].isdigit()
        return not (may_be_numbers or (may_be_answers and few))
    text = _text(row[key]).strip("()[]. ").upper()
    if text in _letters(len(columns)) or text in (fold(name).upper() for name in columns):
        return True
    if may_be_numbers:
        return False
    return text in texts or (text.isdigit() and int(text) <= len(columns))


def _listed(value: Any) -> tuple[list[str], list[str]]:
    value = _unpacked(value)
    if isinstance(value, dict) and isinstance(value.get("text"), list):
        texts = [_text(one) for one in value["text"]]
        labels = [str(one) for one in listed(value.get("label"))]
        return labels if len(labels) == len(texts) else _letters(len(texts)), texts
    if isinstance(value, dict):
        return [str(one) for one in value], [_text(one) for one in value.values()]
    if not isinstance(value, list):
        return [], []
    if all(isinstance(one, dict) for one in value):
        pairs = [
            (one.get("label", one.get("key", one.get("id"))), one.get("text")) for one in value
        ]
        if all(text is not None for _, text in pairs):
            labels = [str(label) for label, _ in pairs]
            known = len(set(labels)) == len(labels)
            return labels if known else _letters(len(pairs)), [_text(text) for _, text in pairs]
        return [], []
    texts = [_text(one) for one in value]
    head = [re.match(r"\(([A-J])\)\s*|([A-J])[).:]\s+", text) for text in texts]
    if texts and all(
        one and (one[1] or one[2]) == ascii_uppercase[n] for n, one in enumerate(head)
    ):
        texts = [text[one.end() :] for text, one in zip(texts, head, strict=True) if one]
    return _letters(len(texts)), texts


def _unpacked(value: Any) -> Any:
    if not isinstance(value, str) or not value.lstrip().startswith(("[", "{")):
        return value
    for read in (json.loads, ast.literal_eval):
        with suppress(ValueError, SyntaxError, RecursionError):
            return read(value.strip())
    return value


def _label(key: Any, options: Options, where: str, base: int) -> str:
    """The label that an answer names, as one, by its text or by an index from `base`. Blank columns
    count as those beside them do, and are no answer."""
    text, labels = _text(key), options.labels
    pairs = zip(labels, options.texts, strict=True)
    there = [(label, option) for label, option in pairs if option is not None]
    by_text = [label for label, option in there if option == text]
    bare = text.strip("()[]. ")
    by_label = [one for one in labels if one.upper() == bare.upper()]
    if not by_label:
        columns = zip(labels, options.columns, strict=False)
        by_label = [label for label, name in columns if fold(name) == fold(bare)]
    if not by_label and (match := LETTERED.fullmatch(fold(bare))) and match[1]:  # option_b
        by_label = [one for one in labels if one.lower() == match[1]]
    number = int(bare) if re.fullmatch(r"\d{1,2}", bare) else None
    at = -1 if number is None else number - base
    by_index = [labels[at]] if 0 <= at < len(labels) else []
    index = isinstance(key, int) and not isinstance(key, bool)
    order = (by_label, by_index, by_text) if index else (by_label, by_text, by_index)
    named = next(filter(None, order), [])
    if not named or options.texts[labels.index(named[0])] is None:
        raise DatasetError(
            f"{where}: the answer {text[:40]!r} is none of the {len(there)} options",
            hint="give an option's label, text or index from 0; --field problem=NAME asks "
            "one field as it is",
        )
    return named[0]


def _letters(count: int) -> list[str]:
    return [ascii_uppercase[n] if n < 26 else str(n) for n in range(count)]


def _texts(value: Any) -> list[str]:
    return [_text(one) for one in value] if isinstance(value, list) else [_text(value)]


def _text(value: Any) -> str:
    if isinstance(value, list):
        texts: list[str] = []
        left = [value]
        while left:
            one = left.pop()
            if isinstance(one, list):
                left += reversed(one)
            elif text := _text(one):
                texts.append(text)
        return "\n".join(texts)
    if isinstance(value, bool) or value is None or isinstance(value, dict):
        return "" if value is None or isinstance(value, dict) else str(value).lower()
    return str(value).strip()


def _filled(row: Mapping[str, Any], name: str | None) -> bool:
    value = row.get(name) if name is not None else None
    return value is not None and value != [] and (not isinstance(value, str) or bool(value.strip()))


def fold(name: str, gap: str = "_") -> str:
    """A field's name as names are compared: without regard to case and to what joins its words."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", str(name).strip())
    return re.sub(r"[\s_\-]+", gap, apart.casefold())
