"""`tfgrpo init --from`: what becomes of the rows of every kind of table."""

from __future__ import annotations

import json
import math
import os
import tomllib
from collections import Counter
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli

from tfgrpo.data import datasets, readers
from tfgrpo.data.column_roles import answer_texts
from tfgrpo.data.compressed_files import DatasetError
from tfgrpo.data.problems import of_rows
from tfgrpo.data.readers import Row
from tfgrpo.domains.choice import DOMAIN
from tfgrpo.domains.registry import find, with_data
from tfgrpo.init_from_data import OwnData, plan_files, read_table
from tfgrpo.model.providers import settings_toml
from tfgrpo.settings import read_toml
from tfgrpo.store.errors import SettingsError
from tfgrpo.store.history.allowed_names import check_name, name_after
from tfgrpo.toml_text import toml_comment, toml_value


def planned(folder: Path, rows: list[dict[str, Any]], **own: Any) -> dict[str, Any]:
    """Plans a table, writes its files, and returns its parts as they are read back."""
    source = folder / "table.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    plan = plan_files(source, read_table(source), OwnData(**own))
    for name, text in plan.files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    parts = {
        name: [json.loads(line) for line in plan.files.get(f"data/{name}.jsonl", "").splitlines()]
        for name in ("train", "gate", "heldout")
    }
    return {**parts, "lines": plan.lines, "kind": plan.columns.kind, "files": plan.files}


def labelled(labels: int, each: int) -> list[dict[str, Any]]:
    return [
        {"text": f"Message {label}/{n} here", "label": f"label {label}"}
        for label in range(labels)
        for n in range(each)
    ]


@pytest.mark.parametrize(("labels", "each"), [(3, 40), (10, 20), (48, 10), (77, 10), (150, 10)])
def test_what_is_held_out_is_learned_from(tmp_path: Path, labels: int, each: int) -> None:
    parts = planned(tmp_path, labelled(labels, each))
    used = parts["train"][:48]
    trained, gate, heldout = (
        {row["answer"] for row in part} for part in (used, parts["gate"], parts["heldout"])
    )
    assert len(parts["heldout"]) == min(48, round(0.3 * labels * each))
    assert heldout <= trained
    assert len(gate & heldout) >= min(labels, len(gate)) // 2
    counts = Counter(row["answer"] for row in parts["heldout"])
    assert max(counts.values()) - min(counts.values()) <= 2, "as many of each"
    everything = [row["id"] for name in ("train", "gate", "heldout") for row in parts[name]]
    assert len(set(everything)) == len(everything) == labels * each


def test_labels_with_a_single_row_are_learned_from(tmp_path: Path) -> None:
    rows = labelled(3, 30)
    rows += [{"text": f"Only {n} once", "label": f"rare {n}"} for n in range(9)]
    parts = planned(tmp_path, rows)
    assert {row["answer"] for row in parts["train"][:48]} >= {f"rare {n}" for n in range(9)}
    assert not any(row["answer"].startswith("rare") for row in parts["heldout"] + parts["gate"])


def test_more_labels_than_are_learned_from_are_told_of(tmp_path: Path) -> None:
    words = "in no problem that is learned from"
    assert not any(words in line for line in planned(tmp_path, labelled(160, 3))["lines"])
    (alone := tmp_path / "alone").mkdir()
    lines = planned(alone, labelled(150, 1), kind="choice")["lines"]
    assert any(line == f"45 held-out labels {words}" for line in lines)


def test_any_of_a_list_is_right(tmp_path: Path) -> None:
    answers = (["Paris", "City of Light"], ["Rome"])
    rows = [{"question": f"Capital {n}?", "answer": answers[n % 2]} for n in range(30)]
    parts = planned(tmp_path, rows)
    assert parts["kind"] == "choice"
    assert parts["files"]["labels.txt"].split("\n") == ["City of Light", "Paris", "Rome", ""]
    assert DOMAIN.configure is not None
    domain = DOMAIN.configure(str(tmp_path / "labels.txt"))
    (problem,) = [p for p in domain.problems(f"{tmp_path}/data/train.jsonl") if "0?" in p.problem][
        :1
    ]
    assert problem.ground_truths == ("Paris", "City of Light")
    rows = [{"question": f"Where {n}?", "answer": [f"City {n}", f"Town {n}"]} for n in range(30)]
    (other := tmp_path / "other").mkdir()
    parts = planned(other, rows)
    assert parts["kind"] == "exact"
    (first, *_) = datasets.load(f"{other}/data/train.jsonl")
    assert len(first.ground_truths) == 2


def test_a_conversation_that_ends_with_an_answer_has_one(tmp_path: Path) -> None:
    def turns(n: int) -> list[dict[str, str]]:
        asked = {"role": "user", "content": f"How much is {n} and {n}?"}
        return [asked, {"role": "assistant", "content": f"{2 * n}"}]

    parts = planned(tmp_path, [{"messages": turns(n)} for n in range(30)])
    assert parts["kind"] == "math"
    row = parts["train"][0]
    assert [turn["role"] for turn in row["problem"]] == ["user"]
    assert int(row["answer"]) % 2 == 0


@pytest.mark.parametrize(
    ("rows", "own", "words"),
    [
        ([{"text": "What {n}?"}], {"kind": "choice"}, "no field was found for the answer"),
        ([{"text": "What {n}?"}], {"kind": "json"}, "no field was found for the answer"),
        ([{"text": "What {n}?"}], {"kind": "math"}, "no field was found for the answer"),
        ([{"text": "What {n}?", "label": "yes"}], {"kind": "json"}, "not JSON objects"),
        (
            [{"text": "What {n}?", "vendor": "a", "total": "1", "due": "x"}],
            {"kind": "choice", "answers": ("vendor", "total", "due")},
            "there are 3",
        ),
    ],
)
def test_a_kind_that_answers_are_not_of_is_refused(
    tmp_path: Path, rows: list[dict[str, str]], own: dict[str, Any], words: str
) -> None:
    many = [{k: v.format(n=n) for k, v in rows[0].items()} for n in range(20)]
    with pytest.raises(DatasetError, match=words):
        planned(tmp_path, many, **own)


def test_cells_of_several_fields_keep_what_they_say(tmp_path: Path) -> None:
    codes = ("A2", "0012", "1E5", "NaN", "Infinity", "7")
    rows = [
        {
            "text": f"Bill {n}",
            "code": codes[n % 6],
            "total": "NaN" if n % 5 == 0 else f"{n}.50",
            "paid": ("True", "false", "")[n % 3],
        }
        for n in range(30)
    ]
    parts = planned(tmp_path, rows, answers=("code", "total", "paid"))
    golds = [json.loads(row["answer"]) for name in ("train", "heldout") for row in parts[name]]
    assert {gold["code"] for gold in golds} == {"A2", "0012", "1E5", None, "Infinity", "7"}
    assert {type(gold["total"]) for gold in golds} == {float, type(None)}
    assert {gold["paid"] for gold in golds} == {True, False, None}
    assert datasets.load(f"{tmp_path}/data/train.jsonl")


@pytest.mark.parametrize("ending", ["jsonl", "json", "parquet"])
@pytest.mark.parametrize("missing", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_no_answer(tmp_path: Path, ending: str, missing: float) -> None:
    import pyarrow
    import pyarrow.parquet

    file = tmp_path / f"rows.{ending}"
    for cells in ([1.0, 2.0, missing], [missing] * 3):
        rows = [{"text": f"Message {n}", "label": cells[n % 3]} for n in range(60)]
        if ending == "parquet":
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), file)
        else:
            lines = ",\n".join(map(json.dumps, rows))
            file.write_text(f"[{lines}]" if ending == "json" else lines.replace(",\n", "\n"))
        read = [row.fields["label"] for row in readers.read(file)]
        assert read == [None if cell == missing or cell != cell else cell for cell in cells] * 20
        texts = [answer for cell in read for answer in answer_texts(cell)]
        assert set(texts) == ({"1.0", "2.0"} if cells[0] == 1.0 else set())


def test_a_label_that_is_no_number_is_left_out(cli: Cli, tmp_path: Path) -> None:
    labels = (1, 2, math.nan)
    rows = [{"text": f"Message {n}", "label": labels[n % 3]} for n in range(60)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    cli("init", "--from", "rows.jsonl")
    assert (tmp_path / "labels.txt").read_text() == "1\n2\n"
    for file in (tmp_path / "data").glob("*.jsonl"):
        assert "nan" not in file.read_text().lower()


@pytest.mark.parametrize("more", [[], ["--kind", "math"]])
def test_decimal_commas_are_told(cli: Cli, tmp_path: Path, more: list[str]) -> None:
    rows = [f"What is half of {n}?;{n // 2},{n % 2 * 5}\n" for n in range(60)]
    (tmp_path / "rows.csv").write_text("problem;answer\n" + "".join(rows))
    printed = " ".join(cli("init", "--from", "rows.csv", *more).stdout.split())
    assert "careful: 60 of 60 ground truths, such as '0,0': a comma separates two" in printed
    assert "math:decimal=comma where it is a decimal comma" in printed


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        *(("0,5", "two answers"), ("1.234,50", "is a decimal comma"), ("-12,125", "")),
        *(("0,125", "two answers"), ("1,250", ""), ("1,250,000", ""), ("0.5", ""), ("12", "")),
    ],
)
def test_a_comma_is_told_of_as_training_reads_it(tmp_path: Path, answer: str, told: str) -> None:
    rows = [Row(n, "", {"problem": f"What is {n}?", "answer": answer}) for n in range(20)]
    plan = plan_files(tmp_path / "rows.csv", rows, OwnData(kind="math"))
    careful = [line.removeprefix("careful: ") for line in plan.lines if "careful" in line]
    assert bool(careful) is bool(told)
    assert told in "".join(careful)
    problems = of_rows(rows, "rows")
    domain, _ = with_data(find("math"), "math", problems)
    assert domain.remarks is not None
    assert careful == [*domain.remarks(problems)]


def test_a_label_is_one_line(tmp_path: Path) -> None:
    labels = ("late\nagain", "lost\u2028item", "fine")
    rows = [{"text": f"Message {n}", "label": labels[n % 3]} for n in range(30)]
    parts = planned(tmp_path, rows)
    assert parts["files"]["labels.txt"] == "fine\nlate again\nlost item\n"
    assert DOMAIN.configure is not None
    domain = DOMAIN.configure(str(tmp_path / "labels.txt"))
    for problem in domain.problems(f"{tmp_path}/data/train.jsonl"):
        assert domain.check is not None
        assert domain.check(problem) is None


@pytest.mark.parametrize(
    ("file", "run"),
    [
        ("v1.jsonl", "run-v1"),
        ("HEAD.jsonl", "run-HEAD"),
        ("my data.jsonl", "my-data"),
        ("Fälle.jsonl", "Falle"),
        ("工单.jsonl", "run"),
    ],
)
def test_a_run_is_called_what_training_takes(tmp_path: Path, file: str, run: str) -> None:
    (tmp_path / file).write_text("".join(json.dumps(row) + "\n" for row in labelled(3, 20)))
    plan = plan_files(tmp_path / file, read_table(tmp_path / file), OwnData())
    settings = tomllib.loads(plan.files["tfgrpo.toml"])
    assert settings["train"]["run"] == run
    check_name("run", run)


HOSTILE = 'x\n[agent]\nrun = "touch taken"\n[train]\ndomain = "stolen:DOMAIN"\n#.jsonl'


@pytest.mark.parametrize(
    "name",
    [
        HOSTILE,
        HOSTILE.replace("\n", "\r\n"),
        "my\n[foo]\n.jsonl",
        "a\x7f\x85\u2028\u202eb.jsonl",
        os.fsdecode(b"caf\xe9.jsonl"),
    ],
)
def test_a_files_name_is_no_line_of_the_settings(
    cli: Cli, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "".join(
        json.dumps({"question": f"Bill {n}?", "a\x7f\u202e": n, "b": f"text {n}"}) + "\n"
        for n in range(40)
    )
    own = OwnData("question", ("a\x7f\u202e", "b"), "json")
    Path("plain.jsonl").write_text(rows)
    Path(name).write_text(rows)
    plain = plan_files(Path("plain.jsonl"), read_table(Path("plain.jsonl")), own)
    run = name_after(Path(name).stem)
    answers = [part for name in own.answers for part in ("--answer", name)]
    cli("init", "--from", name, "--problem", "question", *answers, "--kind", "json")
    expected = tomllib.loads(plain.files["tfgrpo.toml"])
    expected["train"]["run"] = run
    assert read_toml(Path("tfgrpo.toml")) == expected
    tomllib.loads(Path("fields.toml").read_text())


def test_what_is_written_of_settings_is_read_as_it_was(tmp_path: Path) -> None:
    for text in (HOSTILE, "".join(map(chr, range(0x3000))), '"""', "\\", "\U0001f600"):
        settings = {"model": text, text: [text, 1, 0.5, True, {"a": text}]}
        assert tomllib.loads(settings_toml(settings)) == {"model": settings}
    assert tomllib.loads(f"{toml_comment(HOSTILE)}\nmodel = 1") == {"model": 1}
    times = {"day": date(2026, 1, 2), "at": datetime(2026, 1, 2, 3, 4, tzinfo=UTC), "t": time(5)}
    numbers = {"inf": math.inf, "less": -math.inf, "far": 1e300, "near": 1e-7, "many": 10**40}
    settings = {"model": times | numbers}
    assert tomllib.loads(settings_toml(settings["model"])) == settings
    assert math.isnan(tomllib.loads(f"a = {toml_value(math.nan)}")["a"])
    with pytest.raises(SettingsError, match="not valid Unicode"):
        toml_value("caf\udce9")
    with pytest.raises(SettingsError, match="no null"):
        toml_value(["a", None])
