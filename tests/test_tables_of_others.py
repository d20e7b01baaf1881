"""Tables as others write them, and columns that are no answer."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tfgrpo.data.readers import DatasetError, read
from tfgrpo.init_from_data import OwnData, plan_files, read_table

ROWS = [{"question": f"What is {n} + 1?", "answer": n + 1} for n in range(30)]
NAMES = ("question", "answer")
TABLES: dict[str, Any] = {
    "a list a column": {name: [row[name] for row in ROWS] for name in NAMES},
    "pandas": {name: {str(n): row[name] for n, row in enumerate(ROWS)} for name in NAMES},
    "pandas' split": {"columns": NAMES, "data": [list(row.values()) for row in ROWS]},
    "pages of the Hub": {
        "features": [{"name": "question"}],
        "rows": [{"row_idx": n, "row": row, "truncated_cells": []} for n, row in enumerate(ROWS)],
    },
    "pandas' index": {str(n): row for n, row in enumerate(ROWS)},
    "pandas' table": {"schema": {"fields": [{"name": "question"}]}, "data": ROWS},
    "pandas' split with an index": {
        "columns": NAMES,
        "index": list(range(30)),
        "data": [list(row.values()) for row in ROWS],
    },
    "pandas, rows with names": {
        name: {f"r{n}": row[name] for n, row in enumerate(ROWS)} for name in NAMES
    },
    "columns in an object": {"data": {name: [row[name] for row in ROWS] for name in NAMES}},
    "a list": ROWS,
    "a list in an object": {"data": ROWS},
}
HEADERS = {
    "German": ("Frage", "Kategorie"),
    "French": ("Texte", "Catégorie"),
    "Spanish": ("Pregunta", "Categoría"),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_read_however_it_is_written(tmp_path: Path, name: str) -> None:
    path = tmp_path / "table.json"
    path.write_text(json.dumps(TABLES[name]))
    assert [row.fields for row in read(path)] == ROWS


OTHERS: dict[str, tuple[Any, list[dict[str, Any]]]] = {
    "one column": ({"question": ["2+2?", "2+3?"]}, [{"question": "2+2?"}, {"question": "2+3?"}]),
    "one column of pandas": ({"question": {"0": "2+2?"}}, [{"question": "2+2?"}]),
    "one row": ({"question": ["2+2?"], "answer": [4]}, [{"question": "2+2?", "answer": 4}]),
    "objects in a column": (
        {"question": ["2+2?"], "choices": [{"text": ["3", "4"], "label": ["A", "B"]}]},
        [{"question": "2+2?", "choices": {"text": ["3", "4"], "label": ["A", "B"]}}],
    ),
    "conversations in a column": (
        {"messages": [[{"role": "user", "content": "2+2?"}]], "answer": [4]},
        [{"messages": [{"role": "user", "content": "2+2?"}], "answer": 4}],
    ),
    "rows by name": (
        {"a": {"question": "2+2?", "answer": 4}, "b": {"question": "2+3?", "answer": 5}},
        [
            {"id": "a", "question": "2+2?", "answer": 4},
            {"id": "b", "question": "2+3?", "answer": 5},
        ],
    ),
    "a list in an object that says more": (
        {"title": "Sums", "description": "of two", "data": [{"frage": "2+2?"}]},
        [{"frage": "2+2?"}],
    ),
    "a list of questions": ({"text": "Sums.", "rows": [{"question": "2?"}]}, [{"question": "2?"}]),
    "a row with options": (
        {"question": "2+2?", "choices": [{"label": "A", "text": "4"}], "answer": "A"},
        [{"question": "2+2?", "choices": [{"label": "A", "text": "4"}], "answer": "A"}],
    ),
    "a row": ({"question": "2+2?", "answer": [4]}, [{"question": "2+2?", "answer": [4]}]),
    "a row of lists": (
        {"problem": [{"role": "user", "content": "2+2?"}], "answer": ["4"]},
        [{"problem": [{"role": "user", "content": "2+2?"}], "answer": ["4"]}],
    ),
    "a row with an object": (
        {"extra_info": {"question": "2+2?"}, "reward_model": {"ground_truth": "4"}},
        [{"extra_info": {"question": "2+2?"}, "reward_model": {"ground_truth": "4"}}],
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_small_tables_and_single_rows_are_told_apart(tmp_path: Path, name: str) -> None:
    written, rows = OTHERS[name]
    path = tmp_path / "table.json"
    path.write_text(json.dumps(written))
    assert [row.fields for row in read(path)] == rows


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ({"question": ["2+2?", "2+3?"], "answer": [4]}, "'question' has 2 cells and 'answer' 1"),
        (
            {"rows": [{"row_idx": 7, "row": {"question": "2+"}, "truncated_cells": ["question"]}]},
            "row 7: 'question' was cut short",
        ),
    ],
)
def test_half_a_table_is_an_error(tmp_path: Path, written: Any, words: str) -> None:
    path = tmp_path / "table.json"
    path.write_text(json.dumps(written))
    with pytest.raises(DatasetError, match=re.escape(words)):
        list(read(path))


@pytest.mark.parametrize("codes", ["T-{}", "a{}f", "ticket_{}"])
@pytest.mark.parametrize("header", ["ref", "ticket no", "vorgang"])
def test_a_column_of_codes_is_never_the_answer(tmp_path: Path, codes: str, header: str) -> None:
    rows = [{"message": f"The {n}th message.", header: codes.format(n)} for n in range(30)]
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert plan_files(path, read_table(path), OwnData()).columns.answers == ()


@pytest.mark.parametrize(
    ("header", "code"),
    [
        ("hash", "{0:08x}"),
        ("nummer", "10{0:03}"),
        ("n°", "{0}"),
        ("web", "https://example.org/{0}"),
        ("contact", "person{0}@example.org"),
    ],
)
def test_what_tells_rows_apart_is_never_the_answer(tmp_path: Path, header: str, code: str) -> None:
    rows = [{"message": f"Message {n} in words.", header: code.format(n * 97)} for n in range(30)]
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert plan_files(path, read_table(path), OwnData()).columns.answers == ()


def test_a_column_of_codes_is_not_asked_whatever_it_is_called(tmp_path: Path) -> None:
    rows = [
        {"ticket": f"K{n}x", "Anfrage": f"Message {n} in words.", "Thema": "abc"[n % 3]}
        for n in range(30)
    ]
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    columns = plan_files(path, read_table(path), OwnData()).columns
    assert (columns.problem, columns.answers) == ("Anfrage", ("Thema",))


@pytest.mark.parametrize("language", HEADERS)
def test_headers_of_other_languages_are_known(tmp_path: Path, language: str) -> None:
    asked, answered = HEADERS[language]
    rows = [{"note": "n" * 90, answered: "ab"[n % 2], asked: f"Text {n}"} for n in range(30)]
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    columns = plan_files(path, read_table(path), OwnData()).columns
    assert (columns.problem, columns.answers, columns.kind) == (asked, (answered,), "choice")


@pytest.mark.parametrize("empty", [[], [""], [None], "", None])
def test_empty_answers_are_problems_without_ground_truth(tmp_path: Path, empty: Any) -> None:
    rows = [{"question": f"What is {n}?", "answer": empty} for n in range(30)]
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert plan_files(path, read_table(path), OwnData()).columns.kind == "rubric"
