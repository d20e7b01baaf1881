"""`tfgrpo init --from`: labels that are misspelled, and numbers and dates as people write them."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tfgrpo.data import readers
from tfgrpo.data.problems import Problem
from tfgrpo.domains.json_fields import DOMAIN as JSON
from tfgrpo.domains.json_fields import FieldRules
from tfgrpo.init_from_data import DataPlan, OwnData, plan_files, read_table


def planned(path: Path, rows: Sequence[dict[str, Any]], **own: Any) -> DataPlan:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return plan_files(path, read_table(path), OwnData(**own))


def problems(plan: DataPlan) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for name, text in plan.files.items()
        if name.startswith("data/")
        for line in text.splitlines()
    ]


def labelled(counts: dict[str, int]) -> list[dict[str, Any]]:
    texts = [label for label, count in counts.items() for _ in range(count)]
    return [{"text": f"Message {n} here", "label": label} for n, label in enumerate(texts)]


MISSPELLED = [
    *(
        ("biling", "billing"),
        ("delvery", "delivery"),
        ("Acount", "account"),
        ("Billing", "billing"),
    ),
    *(("acocunt", "account"), ("refund-request", "refund request"), ("sign up", "signup")),
    *(("cancelation request", "cancellation request"), ("Livraisson", "livraison")),
    *(("доставкa", "доставка"), ("Zahlungg", "Zahlung"), ("delivery.", "delivery")),
]
OTHERS = [
    *(("version 2", "version 1"), ("level10", "level11"), ("atypical", "typical")),
    *(("incomplete", "complete"), ("type b", "type a"), ("gold", "cold"), ("filling", "billing")),
    *(("up", "us"), ("class iii", "class ii"), ("card lost", "card stolen"), ("+1", "-1")),
]


@pytest.mark.parametrize(("label", "right"), MISSPELLED)
def test_a_misspelled_label_is_told_and_not_offered(tmp_path: Path, label: str, right: str) -> None:
    plan = planned(tmp_path / "data.jsonl", labelled({right: 35, "unlike it": 30, label: 1}))
    words = " ".join(plan.lines)
    assert f"{label} (1) looks like {right} (35)" in words
    assert "line-66" in words
    assert plan.files["labels.txt"].splitlines() == sorted([right, "unlike it"])
    assert label not in {row["answer"] for row in problems(plan)}


@pytest.mark.parametrize(("label", "other"), OTHERS)
def test_a_rare_label_that_is_another_is_offered(tmp_path: Path, label: str, other: str) -> None:
    counts = {other: 35, "unlike it": 30, label: 1}
    plan = planned(tmp_path / "data.jsonl", labelled(counts), kind="choice")
    assert plan.files["labels.txt"].splitlines() == sorted([other, "unlike it", label])
    assert "looks like" not in " ".join(plan.lines)


def test_labels_that_differ_by_case_alone_are_told_where_both_are_frequent(tmp_path: Path) -> None:
    plan = planned(tmp_path / "data.jsonl", labelled({"late": 35, "Late": 30, "lost": 30}))
    assert "Late (30) looks like late (35)" in " ".join(plan.lines)
    assert plan.files["labels.txt"].splitlines() == ["Late", "late", "lost"]


def test_similar_labels_that_are_as_frequent_stay(tmp_path: Path) -> None:
    plan = planned(tmp_path / "data.jsonl", labelled({"delivery": 20, "delivers": 18, "lost": 9}))
    assert len(plan.files["labels.txt"].splitlines()) == 3
    assert "looks like" not in " ".join(plan.lines)


def test_all_labels_are_listed(tmp_path: Path) -> None:
    names = [f"{a}{b} things" for a in "abcdefghij" for b in "klmno"]
    plan = planned(tmp_path / "data.jsonl", labelled(dict.fromkeys(names, 6)))
    assert all(f"{name} 6" in " ".join(plan.lines) for name in names)


def test_ids_are_the_rows_numbers_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    texts = [f'"Message {n},\nin two lines"' if n % 5 == 0 else f"Message {n}" for n in range(30)]
    path.write_text("text,label\n" + "".join(f"{t},{'ab'[n % 2]}\n" for n, t in enumerate(texts)))
    lines = path.read_text().split("\n")
    rows = problems(plan_files(path, read_table(path), OwnData()))
    assert len(rows) == 30
    for row in rows:
        number = int(row["id"].removeprefix("line-"))
        assert row["problem"].split("\n")[0] in lines[number - 1]
    jsonl = tmp_path / "data.jsonl"
    texts = [json.dumps({"text": f"Message {n}", "label": "ab"[n % 2]}) for n in range(30)]
    jsonl.write_text("\n\n".join(texts))
    ids = {row["id"] for row in problems(plan_files(jsonl, read_table(jsonl), OwnData()))}
    assert ids == {f"line-{1 + 2 * n}" for n in range(30)}


def golds(plan: DataPlan, name: str) -> list[Any]:
    rows = sorted(problems(plan), key=lambda row: int(row["problem"].split()[-1]))
    return [json.loads(row["answer"])[name] for row in rows]


def bills(cells: Sequence[Any]) -> list[dict[str, Any]]:
    filled = [cells[n % len(cells)] for n in range(24)]
    return [{"text": f"Bill {n}", "vendor": "V", "cell": cell} for n, cell in enumerate(filled)]


FIELD = {"answers": ("vendor", "cell")}
NUMBERS: dict[str, tuple[list[Any], list[Any]]] = {
    "points": (["1.50", "20"], [1.5, 20]),
    "one comma": ([*["7.50"] * 11, "12,50"], [*[7.5] * 11, 12.5]),
    "a comma among numbers": ([*[7.5] * 11, "12,50"], [*[7.5] * 11, 12.5]),
    "commas": (["12,50", "0,125", "7"], [12.5, 0.125, 7]),
    "European thousands": (["1.234,50", "2.500", "1.250.000,75"], [1234.5, 2500, 1250000.75]),
    "American thousands": (["1,234.50", "2,500", "12.25"], [1234.5, 2500, 12.25]),
    "thousands": (["1,250", "2,500,000", "300"], [1250, 2500000, 300]),
    "spaces": (["1 234,50", "12\u202f500,00", "7,25"], [1234.5, 12500, 7.25]),
    "apostrophes": (["1'234.50", "12'500.00"], [1234.5, 12500]),
    "signs": (["-12,50", "+3,25"], [-12.5, 3.25]),
    "one that is none": ([*["7.50"] * 11, "n/a"], [*[7.5] * 11, "n/a"]),
    "empty": (["7.50", "", None], [7.5, None, None]),
    "both, and unclear": (["12,50", "12.50", "1,250"], ["12,50", "12.50", "1,250"]),
    "codes": (["0012", "12"], ["0012", "12"]),
    "words": (["12", "twelve"], ["12", "twelve"]),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_column_of_numbers_is_numbers(tmp_path: Path, name: str) -> None:
    cells, right = NUMBERS[name]
    plan = planned(tmp_path / "data.jsonl", bills(cells), **FIELD)
    assert golds(plan, "cell") == [right[n % len(right)] for n in range(24)]
    words = " ".join(plan.lines)
    assert ("careful: 'cell'" in words or "'cell':" in words) is (
        name not in ("points", "codes", "words")
    )


DATES: dict[str, tuple[list[Any], list[Any]]] = {
    "ISO": (["2024-03-05", "2024-12-31"], ["2024-03-05", "2024-12-31"]),
    "with dots": (["05.03.2024", "31.12.2024"], ["2024-03-05", "2024-12-31"]),
    "without zeros": (["5.3.2024", "31.12.2024"], ["2024-03-05", "2024-12-31"]),
    "month first": (["03/05/2024", "12/31/2024"], ["2024-03-05", "2024-12-31"]),
    "day first": (["05/03/2024", "31/12/2024"], ["2024-03-05", "2024-12-31"]),
    "year first": (["2024/03/05", "2024/12/31"], ["2024-03-05", "2024-12-31"]),
    "midnight": (["2024-03-05T00:00:00", "2024-12-31 00:00:00"], ["2024-03-05", "2024-12-31"]),
    "empty": (["2024-03-05", "", None], ["2024-03-05", None, None]),
    "unclear": (["03/05/2024", "04/06/2024"], ["03/05/2024", "04/06/2024"]),
    "no date": (["31.02.2024", "99.99.2024"], ["31.02.2024", "99.99.2024"]),
}


@pytest.mark.parametrize("name", DATES)
def test_a_column_of_dates_is_dates(tmp_path: Path, name: str) -> None:
    cells, right = DATES[name]
    plan = planned(tmp_path / "data.jsonl", bills(cells), **FIELD)
    assert golds(plan, "cell") == [right[n % len(right)] for n in range(24)]
    is_date = name not in ("unclear", "no date")
    assert ('[fields."cell"]\ntype = "date"' in plan.files["fields.toml"]) is is_date
    if name in ("empty", "unclear", "with dots"):
        assert "'cell'" in " ".join(plan.lines[1:])


def test_a_date_is_right_however_it_is_written() -> None:
    assert JSON.options_from is not None
    assert JSON.configure is not None
    problem = Problem("p", "When?", '{"due": "2024-03-05", "vendor": "V"}')
    domain = JSON.configure(JSON.options_from([problem]))
    verify = domain.function
    assert verify is not None
    for text in ("2024-03-05", "2024-3-5", "05.03.2024", "5.3.2024", "2024/03/05"):
        assert verify(problem, json.dumps({"due": text, "vendor": "V"})).reward == 1.0
    for text in (
        "2024-05-03",
        "05/03/2024",
        "03.05.2024",
        "2024-03-06",
        "5.3.24",
        "2024",
        "",
        None,
    ):
        assert verify(problem, json.dumps({"due": text, "vendor": "V"})).reward == 0.5
    rules = FieldRules(**json.loads(JSON.options_from([problem])))
    assert "- due (date, as YYYY-MM-DD)" in rules.told().splitlines()


def test_rows_without_any_of_several_answers_are_left_out(tmp_path: Path) -> None:
    rows = bills(["7"])
    rows[3] |= {"vendor": "", "cell": None}
    assert len(problems(planned(tmp_path / "data.jsonl", rows, **FIELD))) == 23


def test_dates_of_parquet_are_text(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    days = [datetime.date(2024, 3, 1 + n) for n in range(24)]
    times = [datetime.datetime(2024, 3, 1 + n) for n in range(24)]
    table = pyarrow.table({"text": [f"Bill {n}" for n in range(24)], "due": days, "sent": times})
    path = tmp_path / "data.parquet"
    pyarrow.parquet.write_table(table, path)
    assert next(iter(readers.read(path))).fields["sent"] == "2024-03-01"
    plan = plan_files(path, read_table(path), OwnData(answers=("due", "sent")))
    assert plan.files["fields.toml"].count('type = "date"') == 2
