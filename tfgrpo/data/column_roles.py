"""What a table is about: the field that is asked, the answer and its kind, guessed by names
(`NAMES`), else by contents, with words for each guess."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal, TypeAlias, get_args

from tfgrpo.data.compressed_files import DatasetError
from tfgrpo.data.row_shapes import fold

Kind: TypeAlias = Literal["math", "exact", "choice", "json", "rubric"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Fields: TypeAlias = dict[str, Any]

QUESTIONS = (
    *("problem", "question", "prompt", "text", "input", "query", "message", "instruction"),
    *("ticket", "request", "utterance", "sentence", "comment", "review", "email", "body"),
    *("content", "document", "description", "subject", "title"),
    *("frage", "aufgabe", "anfrage", "nachricht", "beschreibung", "betreff"),
    *("demande", "texte", "énoncé", "requête", "pregunta", "consulta", "texto", "mensaje"),
)
ANSWERS = (
    *("answer", "final_answer", "label", "output", "target", "gold", "ground_truth"),
    *("expected", "expected_answer", "category", "class", "intent", "sentiment", "tag"),
    *("topic", "completion", "response", "solution", "ideal", "result"),
    *("antwort", "lösung", "ergebnis", "kategorie", "klasse", "thema", "bezeichnung"),
    *("réponse", "reponse", "catégorie", "categorie", "étiquette", "résultat"),
    *("respuesta", "categoría", "categoria", "etiqueta", "clase", "solución", "resultado"),
)
"""What fields are usually called, those first that are taken first."""
LABEL_NAMES = (
    *("label", "category", "class", "intent", "sentiment", "tag", "topic"),
    *("kategorie", "klasse", "thema", "catégorie", "categorie", "étiquette"),
    *("categoría", "categoria", "etiqueta", "clase"),
)
IDS = ("id", "uid", "unique_id", "uuid", "key", "row", "index")
NUMBER = re.compile(
    r"[-+]?[$€£]?\d[\d,. ]*(?:/\d+)?%?\Z|.*\\(?:frac|sqrt|boxed|pi)\b.*|.*####.*", re.DOTALL
)
ID_NAME = re.compile(
    r"(?:^|_)(?:id|uuid|uid|key|nr|no|number|ref|code|url|link|e_?mail|nummer|kennung|n°|num"
    r"|num[eé]ro|n[uú]mero|clé|clave|c[oó]digo)$"
)
CODE = re.compile(
    r"(?=.*\d)(?=.*[A-Za-z_-])[\w-]{2,40}|[0-9a-fA-F-]{8,}|\w+://\S+|[^\s@]+@[^\s@]+\.\w+"
)
LONG_ANSWER = 160
"""Characters from which on an answer is a text that no comparison judges."""
LABEL_LENGTH = 60
MOST_LABELS = 200
NUMERIC_LABELS = 12


@dataclass(frozen=True, slots=True)
class ColumnGuess:
    """The fields of question, answer and id (if any), the kind of answers, and why."""

    problem: str
    answers: tuple[str, ...]
    id: str | None
    kind: Kind
    why: tuple[str, ...]


def guess_columns(
    rows: Sequence[Fields],
    problem: str | None = None,
    answers: Sequence[str] = (),
    kind: Kind | None = None,
) -> ColumnGuess:
    """What rows are about: what is named is taken, the rest guessed. Raises DatasetError without
    rows, for an unknown field, and for answers that are not of the named kind."""
    if not rows:
        raise DatasetError("the file has no rows", hint="the first line names the fields")
    names = list(dict.fromkeys(name for row in rows for name in row))
    for name in (problem, *answers):
        if name is not None and name not in names:
            raise DatasetError(f"there is no field {name!r}", hint="there is " + ", ".join(names))
    filled = [name for name in names if any(is_filled(row.get(name)) for row in rows)]
    id = _named(filled, IDS)
    if id is not None and len({str(row.get(id)) for row in rows}) < len(rows):
        id = None
    left = [name for name in filled if name not in (id, *answers)]
    why = []
    if problem is None:
        texts = [name for name in left if not _is_id(rows, name, False)]
        problem = _named(texts, QUESTIONS)
        if problem is None and all(fold(name) in ANSWERS for name in texts):
            problem = _named(left, QUESTIONS)  # codes are all there is to ask
        if problem is None:
            rest = left or filled
            problem = max(rest, key=lambda name: fmean(len(as_text(r.get(name))) for r in rows))
            why.append(f"{problem!r} has the longest texts, so it is what is asked")
    left = [name for name in left if name != problem]
    if not answers:
        known = _named(left, ANSWERS)
        if known is not None:
            answers = (known,)
        elif rest := [name for name in left if not _is_id(rows, name, len(left) == 1)]:
            answers = tuple(rest)
            quoted = ", ".join(map(repr, rest))
            why.append(f"{quoted}: taken as the answer, since no field has a usual name for it")
    if kind is None:
        kind, reason = guess_kind(rows, tuple(answers))
        why.append(reason)
    else:
        _check_kind(kind, rows, answers)
    return ColumnGuess(problem, tuple(answers), id, kind, tuple(why))


def _is_id(rows: Sequence[Fields], name: str, alone: bool) -> bool:
    """Whether a column tells rows apart and says nothing: each has its own code, and it is
    called so, comes first, or stands alone beside what is asked."""
    texts = [as_text(row.get(name)) for row in rows if is_filled(row.get(name))]
    named = ID_NAME.search(fold(name)) is not None
    placed = alone or next(iter(rows[0])) == name
    codes = named or (placed and all(CODE.fullmatch(text) for text in texts))
    return len(texts) > 2 and len(set(texts)) == len(texts) and codes


def _check_kind(kind: Kind, rows: Sequence[Fields], answers: Sequence[str]) -> None:
    if kind == "rubric":
        return
    if not answers:
        raise DatasetError(
            f"no field was found for the answer, and {kind} compares with one",
            hint="--answer names it; --kind rubric needs none",
        )
    if kind != "json" and len(answers) > 1:
        raise DatasetError(
            f"{kind} compares with one answer field, and there are {len(answers)}: "
            + ", ".join(answers),
            hint="--answer names one; --kind json takes several",
        )
    values = [row.get(answers[0]) for row in rows if is_filled(row.get(answers[0]))]
    if kind == "json" and len(answers) == 1 and not all(map(_is_object, values)):
        raise DatasetError(
            f"the answers in {answers[0]!r} are not JSON objects, as json needs",
            hint="name another --kind, or several fields as the --answer",
        )


def guess_kind(rows: Sequence[Fields], answers: tuple[str, ...]) -> tuple[Kind, str]:
    """The kind of the answers in some fields, and why."""
    if not answers:
        return "rubric", "rubric: there is no answer to compare with, so criteria judge"
    if len(answers) > 1:
        return "json", f"json: an answer has {len(answers)} fields"
    name = answers[0]
    values = [row.get(name) for row in rows if is_filled(row.get(name))]
    if values and all(_is_object(value) for value in values):
        return "json", "json: every answer is an object"
    texts = [text for value in values for text in answer_texts(value)]
    counts = Counter(texts)
    numbers = sum(bool(NUMBER.match(text)) for text in texts) >= 0.8 * max(1, len(texts))
    few = 2 <= len(counts) <= min(MOST_LABELS, max(2, len(values) // 2))
    short = max(map(len, texts), default=0) <= LABEL_LENGTH
    called_label = fold(name) in LABEL_NAMES
    if not texts:
        return "rubric", "rubric: there is no answer to compare with, so criteria judge"
    if few and short and (not numbers or (called_label and len(counts) <= NUMERIC_LABELS)):
        return "choice", f"choice: {len(texts)} answers are {len(counts)} different labels"
    if numbers:
        return "math", "math: answers are numbers or formulas"
    if fmean(map(len, texts)) > LONG_ANSWER:
        return "rubric", "rubric: answers are long texts, which criteria judge better"
    return "exact", f"exact: {len(counts)} different short texts in {len(texts)} answers"


def _named(names: Sequence[str], usual: Sequence[str]) -> str | None:
    folded: dict[str, str] = {}
    for name in names:
        folded.setdefault(fold(name), name)
    return next((folded[name] for name in usual if name in folded), None)


def is_filled(value: object) -> bool:
    """Whether a cell holds something."""
    if isinstance(value, list):
        return any(map(is_filled, value))
    return value is not None and (not isinstance(value, str) or bool(value.strip()))


def answer_texts(value: object) -> tuple[str, ...]:
    """The texts of an answer: of a list, any of which is right, those of its members."""
    members = value if isinstance(value, list) else [value]
    if any(isinstance(one, dict | list) for one in members):
        members = [value]
    return tuple(dict.fromkeys(as_text(one) for one in members if is_filled(one)))


def as_text(value: object) -> str:
    """A cell as text: true and false as JSON writes them, an object as JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, default=float)
    return "" if value is None else str(value).strip()


def _is_object(value: object) -> bool:
    if isinstance(value, dict):
        return True
    if not isinstance(value, str) or not value.lstrip().startswith("{"):
        return False
    try:
        return isinstance(json.loads(value), dict)
    except ValueError:
        return False
