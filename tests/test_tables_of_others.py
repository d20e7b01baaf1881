"""Tables as others write them, and columns that are no answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tfgrpo.data.readers import read
from tfgrpo.own_data import OwnData, plan_files, read_table

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


@pytest.mark.parametrize("codes", ["T-{}", "a{}f", "ticket_{}"])
@pytest.mark.parametrize("header", ["ref", "ticket no", "vorgang"])
def test_a_column_of_codes_is_never_the_answer(tmp_path: Path, codes: str, header: str) -> None:
    rows = [{"message": f"The {n}th message.", header: codes.format(n)} for n in range(30)]
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert plan_files(path, read_table(path), OwnData()).columns.answers == ()


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
