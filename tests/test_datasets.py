"""Datasets: from files of every kind and from the hub, in samples, with the fields they have."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, environment, one_line_error
from conftest import problems as lines
from scripted import ScriptedEndpoint

from tfgrpo.data import compressed_files, datasets
from tfgrpo.data.datasets import KNOWN, DatasetSpec, Known, load, parse, stem
from tfgrpo.data.problems import REST, Problem
from tfgrpo.data.readers import DatasetError

ROWS = [{"problem": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(20)]
TEXTS = [(row["problem"], row["answer"]) for row in ROWS]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Writes rows as what the file's name says."""
    if path.suffix == ".parquet":
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif path.suffix in (".csv", ".tsv"):
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(
                file, list(rows[0]), delimiter="\t" if path.suffix == ".tsv" else ","
            )
            writer.writeheader()
            writer.writerows(rows)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def texts(found: tuple[Problem, ...]) -> list[tuple[str, str]]:
    return [(problem.problem, problem.answer) for problem in found]


# files:


@pytest.mark.parametrize("ending", ["jsonl", "json", "csv", "tsv", "parquet", "txt"])
def test_a_file_of_any_kind_gives_the_same_problems(tmp_path: Path, ending: str) -> None:
    found = load(str(write(tmp_path / f"d.{ending}", ROWS)))
    assert texts(found) == TEXTS
    assert len({problem.id for problem in found}) == 20


def test_json_may_be_lines_an_object_with_one_list_or_a_single_row(tmp_path: Path) -> None:
    file = tmp_path / "d.json"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    assert texts(load(str(file))) == TEXTS
    file.write_text(json.dumps({"version": 1, "data": ROWS}))
    assert texts(load(str(file))) == TEXTS
    file.write_text(json.dumps(ROWS[0]))
    assert texts(load(str(file))) == TEXTS[:1]


def test_csv_may_have_commas_quotes_and_line_ends_in_a_field(tmp_path: Path) -> None:
    row = {"problem": 'One, "two"\nand three?', "answer": "1,250"}
    assert texts(load(str(write(tmp_path / "d.csv", [row])))) == [(row["problem"], row["answer"])]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("d.csv", "problem,answer\nq\n", "as many fields"),
        ("d.csv", "problem,answer\nq,1,2\n", "as many fields"),
        ("d.csv", 'problem,answer\n"q,1\n', "d.csv:2: unexpected end"),
        ("d.json", "5", "d.json"),
        ("d.json", '["q"]', "not an object"),
        ("d.parquet", "not parquet", "cannot read"),
        ("d.csv", "problem,answer\n", "no problems"),
        ("d.csv", "", "no problems"),
    ],
)
def test_a_file_that_is_not_what_its_name_says_is_refused(
    tmp_path: Path, name: str, content: str, said: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DatasetError, match=said) as caught:
        load(str(tmp_path / name))
    assert caught.value.hint


def test_without_pyarrow_or_datasets_the_error_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "d.parquet").write_bytes(b"")
    for name, missing in (("d.parquet", "pyarrow"), ("gsm8k:100", "datasets")):
        script = (
            "import sys; sys.modules['pyarrow'] = sys.modules['datasets'] = None\n"
            f"sys.argv = ['tfgrpo', 'train', '{name}']\n"
            "from tfgrpo.cli.main import main\nmain()"
        )
        done = subprocess.run(
            [sys.executable, "-c", script],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
        )
        one_line_error(done, missing, "pip install 'datasets>=", "'pyarrow>=")


# fields:


@pytest.mark.parametrize(
    "row",
    [
        {"question": "q", "answer": "6 * 7 = <<6*7=42>>42 in all.\n#### 42"},
        {"problem": "q", "solution": "long", "answer": "42", "unique_id": "a/b/1.json"},
        {"prompt": "q", "solution": "42", "data_source": "x"},
        {"prompt": [{"role": "user", "content": "q"}], "reward_model": {"ground_truth": "42"}},
        {"Question": "q", "Answer": 42},
        {"question": "q", "gold": "42", "target": "7"},
    ],
)
def test_the_fields_of_well_known_datasets_are_recognised(
    tmp_path: Path, row: dict[str, Any]
) -> None:
    (found,) = load(str(write(tmp_path / "d.jsonl", [row])))
    assert (found.problem, found.answer, found.messages) == ("q", "42", ())


def test_a_field_that_is_named_is_the_one_that_is_taken(tmp_path: Path) -> None:
    row = {"problem": "no", "question": "q", "answer": "no", "a": {"b": {"c": "42"}}, "n": 3}
    file = str(write(tmp_path / "d.jsonl", [row]))
    found = load(file, {"problem": "question", "answer": "a.b.c", "id": "n"})
    assert found == (Problem("3", "q", "42"),)
    with pytest.raises(DatasetError, match=r"no 'a\.x'"):
        load(file, {"answer": "a.x"})


# samples:


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("gsm8k", DatasetSpec("gsm8k", on_hub=True)),
        ("gsm8k:100", DatasetSpec("gsm8k", 100, on_hub=True)),
        ("gsm8k/train:100@seed42", DatasetSpec("gsm8k/train", 100, 42, True)),
        ("some/d.jsonl:7@seed0", DatasetSpec("some/d.jsonl", 7, 0)),
        ("d.jsonl:x", DatasetSpec("d.jsonl:x")),
        ("d.jsonl@seed4", DatasetSpec("d.jsonl@seed4")),
    ],
)
def test_a_name_says_the_source_and_the_sample(name: str, spec: DatasetSpec) -> None:
    assert parse(name) == spec
    assert spec.source + spec.sample == name


def test_a_sample_is_the_first_ones_or_drawn_with_a_seed_in_the_files_order(
    tmp_path: Path,
) -> None:
    file = str(write(tmp_path / "d.jsonl", ROWS))
    assert texts(load(f"{file}:5")) == TEXTS[:5]
    drawn = load(f"{file}:5@seed42")
    assert drawn == load(f"{file}:5@seed42")
    assert len({load(f"{file}:5@seed{seed}") for seed in range(5)}) == 5
    order = [int(problem.id.removeprefix("line-")) for problem in drawn]
    assert order == sorted(order)
    assert set(load(f"{file}:20@seed1")) == set(load(file))
    for count in (0, 21):
        with pytest.raises(DatasetError, match="has 20 problems") as caught:
            load(f"{file}:{count}")
        assert caught.value.hint


def test_a_file_wins_over_a_name_and_over_a_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "gsm8k", ROWS)
    write(tmp_path / "d:5", ROWS)
    assert len(load("gsm8k")) == len(load("d:5")) == 20
    assert len(load("gsm8k:3")) == 3


def test_a_sample_of_a_file_is_trained_on_and_gone_on_with_from_another_folder(
    cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "d.jsonl").write_text(lines(range(8)))
    with ScriptedEndpoint() as server:
        model = ("--model", "m", "--base-url", server.base_url)
        once = ("--epochs", "1", "--batch-size", "3", "--group-size", "2")
        said = cli("train", "d.jsonl:3@seed7", *once, *model).stdout
        assert "run d: 3 problems" in said
        assert server.stages["rollout"] == 6
        record = cli("runs", "d", "--json").stdout
        assert "d.jsonl:3@seed7" in record
        (tmp_path / "below").mkdir()
        done = cli("eval", "d.jsonl:2@seed7", "--samples", "1", *model)
        assert "2 of 2 evaluation problems are in d.jsonl:3@seed7 too" in done.stderr


# the hub:


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of the hub's form in a folder, under the name `ours`."""
    pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = tmp_path / "repository"
    folder.mkdir()
    rows = [{"question": f"q{n}", "answer": f"Thus {n}.\n#### {n}"} for n in range(6)]
    write(folder / "train.jsonl", rows)
    write(folder / "test.jsonl", rows[:2])
    monkeypatch.setattr(datasets, "KNOWN", known := dict(KNOWN))
    known["ours"] = Known(str(folder), None, "test")
    return folder


def test_a_dataset_of_the_hub_is_loaded_by_name_split_and_sample(hub: Path) -> None:
    assert texts(load("ours")) == [("q0", "0"), ("q1", "1")]
    assert texts(load("ours/train:3")) == [("q0", "0"), ("q1", "1"), ("q2", "2")]
    assert len(load("ours/train:4@seed42")) == 4
    assert stem("ours/train:4@seed42") == "ours-train"


def test_what_the_hub_cannot_give_is_one_error_with_a_hint(hub: Path) -> None:
    datasets.KNOWN["gone"] = Known(str(hub / "gone"), None, "test")
    for name in ("ours/nothing", "gone"):
        with pytest.raises(DatasetError, match="cannot get") as caught:
            load(name)
        assert "use a file" in str(caught.value.hint)


def test_a_name_that_is_nearly_one_is_asked_back(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="did you mean gsm8k"):
        load("gsm8")
    with pytest.raises(DatasetError, match="no file") as caught:
        load("gsm8.jsonl")
    assert caught.value.hint


def test_the_names_are_those_that_the_documentation_tells(tmp_path: Path) -> None:
    page = (Path(__file__).parent.parent / "docs" / "datasets.md").read_text()
    for name, known in datasets.KNOWN.items():
        assert f"`{name}`" in page
        assert known.repository in page


# as other programs write them:


QUESTIONS = [{"problem": "Is 1 < 2?", "answer": "yes"}, {"problem": "a; b, c", "answer": "é"}]
AS_TEXTS = [("Is 1 < 2?", "yes"), ("a; b, c", "é")]
SEMICOLONS = 'problem;answer;;\r\nIs 1 < 2?;yes;;\r\n"a; b, c";é;;\r\n;;;\r\n'
WRITTEN: dict[str, Callable[[], bytes]] = {
    "excel.csv": lambda: ("\ufeff" + SEMICOLONS).encode(),
    "separator.csv": lambda: ("sep=;\r\n" + SEMICOLONS).encode(),
    "unicode.csv": lambda: SEMICOLONS.replace(";", "\t").replace("a\t b", "a; b").encode("utf-16"),
    "big.csv": lambda: codecs.BOM_UTF16_BE + SEMICOLONS.encode("utf-16-be"),
    "packed.csv.gz": lambda: gzip.compress(SEMICOLONS.encode()),
    "packed.jsonl.gz": lambda: gzip.compress(as_lines(QUESTIONS).encode()),
    "packed.zip": lambda: zipped({"__MACOSX/._x": b"", "in/d.csv": SEMICOLONS.encode()}),
    "lines.zip": lambda: zipped({"d.jsonl": as_lines(QUESTIONS).encode()}),
    "book.xlsx": lambda: workbook([["problem", "answer"], *map(list, AS_TEXTS)]),
}


def as_lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def zipped(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


def workbook(*sheets: list[list[Any]]) -> bytes:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for number, rows in enumerate(sheets):
        sheet = book.active if not number else book.create_sheet()
        for row in rows:
            sheet.append(row)
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


@pytest.mark.parametrize("name", WRITTEN)
def test_a_file_is_read_as_other_programs_write_and_pack_it(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(WRITTEN[name]())
    assert texts(load(str(tmp_path / name))) == AS_TEXTS


@pytest.mark.parametrize("stale", ["A1:C4", "A1:A9", "A1", "A1:XFD1048576", None])
def test_a_workbook_is_read_whole_whatever_size_it_says_that_it_has(
    tmp_path: Path, stale: str | None
) -> None:
    rows = [
        ["problem", "answer", "note"],
        *([f"q{n}", n, None] for n in range(1, 9)),
        ["q9", 9, "x"],
    ]
    packed = io.BytesIO(workbook(rows))
    with zipfile.ZipFile(packed) as book, zipfile.ZipFile(tmp_path / "d.xlsx", "w") as changed:
        for info in book.infolist():
            content = book.read(info)
            if info.filename == "xl/worksheets/sheet1.xml":
                size = f'<dimension ref="{stale}"/>'.encode() if stale else b""
                content, count = re.subn(rb'<dimension ref="[^"]*" ?/>', size, content)
                assert count == 1
            changed.writestr(info, content)
    assert texts(load(str(tmp_path / "d.xlsx"))) == [(f"q{n}", str(n)) for n in range(1, 10)]


def test_cells_of_a_workbook_read_as_they_are_seen(tmp_path: Path) -> None:
    rows = [["Question", "Answer", None], ["q", 3.0], ["r", True], ["s", date(2026, 2, 1)], [None]]
    (tmp_path / "d.xlsx").write_bytes(workbook(rows, []))
    assert texts(load(str(tmp_path / "d.xlsx"))) == [("q", "3"), ("r", "true"), ("s", "2026-02-01")]


def test_a_folder_that_datasets_saved_is_read_by_split(tmp_path: Path) -> None:
    saved = pytest.importorskip("datasets")
    dataset = saved.Dataset.from_list(QUESTIONS)
    dataset.save_to_disk(tmp_path / "one")
    saved.DatasetDict({"train": dataset, "test": dataset}).save_to_disk(tmp_path / "both")
    assert texts(load(str(tmp_path / "one"))) == AS_TEXTS
    assert texts(load(str(tmp_path / "both" / "train") + ":1")) == AS_TEXTS[:1]
    with pytest.raises(DatasetError, match="has the splits train, test") as caught:
        load(str(tmp_path / "both"))
    assert "both/train" in str(caught.value.hint)


TURNS = [
    {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]},
    {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "q"}]}], "label": "a"},
    {"input": [{"role": "user", "content": "q"}], "ideal": ["a"]},
    {"prompt": "q", "ideal": "a"},
]


@pytest.mark.parametrize("row", TURNS, ids=lambda row: next(iter(row)))
def test_conversations_of_every_kind_are_problems(tmp_path: Path, row: dict[str, Any]) -> None:
    file = str(write(tmp_path / "d.jsonl", [row]))
    (found,) = load(file, {"answer": "label"} if "label" in row else None)
    assert (found.problem, found.answer, found.messages) == ("q", "a", ())


@pytest.mark.parametrize("name", ["input", "sentence", "ctx"])
@pytest.mark.parametrize("instruction", ["Translate.", " ", None])
@pytest.mark.parametrize("context", ["A passage.", None])
@pytest.mark.parametrize("choices", [["one", "two"], None])
def test_a_row_is_read_alike_whatever_stands_beside_it(
    name: str, instruction: str | None, context: str | None, choices: object, tmp_path: Path
) -> None:
    beside = {"instruction": instruction, "context": context, "choices": choices}
    row = {name: "The thing.", "answer": "one"} | {k: v for k, v in beside.items() if v is not None}
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row))
    (problem,) = load(str(path))
    asked = [text for text in (instruction, context, "The thing.") if text and text.strip()]
    options = ["A. one\nB. two", "Answer with the letter of the right option."]
    assert problem.problem == "\n\n".join([*asked, *(options if choices else ())])
    assert not problem.unread or instruction == " "


def test_an_instruction_goes_with_its_input(tmp_path: Path) -> None:
    rows = [
        {"instruction": "Translate.", "input": "bonjour", "output": "hello"},
        {"instruction": "Say hello.", "input": "", "output": "hello"},
        {"instruction": "Double it.", "input": 7, "output": 14},
        {"instruction": "Deny it.", "input": False, "output": True},
    ]
    found = load(str(write(tmp_path / "d.jsonl", rows)), {"answer": "output"})
    assert texts(found) == [
        ("Translate.\n\nbonjour", "hello"),
        ("Say hello.", "hello"),
        ("Double it.\n\n7", "14"),
        ("Deny it.\n\nfalse", "true"),
    ]


def test_a_json_file_may_be_one_conversation(tmp_path: Path) -> None:
    (tmp_path / "d.json").write_text(json.dumps(TURNS[0] | {"id": "c"}))
    (found,) = load(str(tmp_path / "d.json"))
    assert (found.id, found.problem, found.answer) == ("c", "q", "a")


def test_a_list_of_ideals_is_several_ground_truths_and_true_is_one(tmp_path: Path) -> None:
    rows = [{"problem": "q", "ideal": ["Paris", "paris, France"]}, {"problem": "r", "answer": True}]
    first, second = load(str(write(tmp_path / "d.jsonl", rows)))
    assert first.ground_truths == ("Paris", "paris, France")
    assert second.ground_truths == ("true",)


REFUSED: dict[str, tuple[Callable[[], bytes], str]] = {
    "latin.csv": (
        lambda: "problem;answer\nq;é\n".encode("latin-1"),
        r"latin.csv: line 2: byte 0xe9 is not UTF-8",
    ),
    "twice.csv": (lambda: b"problem,answer,answer\nq,1,2\n", "twice.csv:1: two columns .*'answer'"),
    "nameless.csv": (lambda: b"problem,,answer\nq,x,2\n", "nameless.csv:2: column 2 .*'x'"),
    "short.csv": (
        lambda: b"problem;answer\nq;1\nq\n",
        r"short.csv:3: has 1 values, not as many fields as the first line \(2: problem, answer",
    ),
    "two.zip": (lambda: zipped({"a.csv": b"", "b.csv": b""}), r"two.zip holds 2 files \(a.csv, b"),
    "no.zip": (lambda: b"PK", "cannot read .*no.zip"),
    "cut.csv.gz": (lambda: gzip.compress(b"problem,answer\n")[:-6], "cannot read .*cut.csv.gz"),
    "no.xlsx": (lambda: b"PK", "cannot read .*no.xlsx"),
    "old.xls": (lambda: b"\xd0\xcf", "old.xls is a workbook of Excel's old kind"),
    "sheets.xlsx": (lambda: workbook([["a"]], [["b"]]), "rows in 2 sheets"),
    "list.jsonl": (lambda: b'["q"]\n', "list.jsonl:1: not an object but a list"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_told_by_its_cause(tmp_path: Path, name: str) -> None:
    content, said = REFUSED[name]
    (tmp_path / name).write_bytes(content())
    with pytest.raises(DatasetError, match=said) as caught:
        load(str(tmp_path / name))
    assert caught.value.hint


def test_nothing_unpacks_beyond_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed_files, "LARGEST", 1_000_000)
    bomb = b"problem,answer\n" + b"a" * 5_000_000
    book = zipped({"xl/workbook.xml": bomb})
    for name, data in (
        ("d.csv.gz", gzip.compress(bomb)),
        ("d.zip", zipped({"d.csv": bomb})),
        ("d.xlsx", book),
    ):
        assert len(data) < 20_000
        (tmp_path / name).write_bytes(data)
        with pytest.raises(DatasetError, match="unpacks to") as caught:
            load(str(tmp_path / name))
        assert caught.value.hint


def test_without_openpyxl_the_error_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "d.xlsx").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(DatasetError, match="openpyxl is not installed") as caught:
        load(str(tmp_path / "d.xlsx"))
    assert caught.value.hint == "pip install 'openpyxl>=3.1' 'defusedxml>=0.7'"


# as others call them:


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("AIME24", "aime24"),
        ("AIME2025", "aime25"),
        ("HuggingFaceH4/aime_2024", "aime24"),
        ("DAPO-Math-17k:100", "dapo-math-17k:100"),
        ("DAPO_Math_17K:100@seed1", "dapo-math-17k:100@seed1"),
        ("BytedTsinghua-SIA/DAPO-Math-17k", "dapo-math-17k"),
        ("open-r1/DAPO-Math-17k-Processed/train", "dapo-math-17k/train"),
        ("AFM_web_RL", "afm-web"),
        ("WebWalkerQA", "webwalkerqa"),
        ("GSM8K/train", "gsm8k/train"),
    ],
)
def test_datasets_go_by_the_names_that_others_give_them(name: str, ours: str) -> None:
    spec = parse(name)
    assert spec.on_hub
    assert spec.source + spec.sample == ours
    assert stem(name) == stem(ours)


def test_a_file_wins_over_another_spelling_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "AIME24", ROWS)
    assert len(load("AIME24:3")) == 3
    assert datasets.known("aime") is None
    assert datasets.known("/aime24") is None


def test_a_column_with_a_dot_that_goes_along_is_not_told_as_unused(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("problem,answer,Ticket No.,a.b\nWhat?,1,T1,x\n")
    (whole,) = load(str(tmp_path / "d.csv"), {}, extra=REST)
    assert whole.meta.keys() == {"Ticket No.", "a.b"}
    assert not whole.unread
    (some,) = load(str(tmp_path / "d.csv"), {}, extra=())
    assert some.unread.keys() == {"Ticket No.", "a.b"}
