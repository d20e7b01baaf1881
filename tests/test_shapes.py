"""Options and context are part of what is asked, whatever shape a row has and whoever reads it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli
from scripted import ScriptedEndpoint

from tfgrpo.data.datasets import load
from tfgrpo.data.problems import describe_indices, of_rows
from tfgrpo.data.readers import DatasetError, Row
from tfgrpo.domains.prompt_library import PromptLibrary
from tfgrpo.init_from_data import OwnData, plan_files, read_table
from tfgrpo.store import ROOT, Library

ASKED = "Which is the square of {}?"
LABELS = {"label": ["A", "B", "C"]}


def _options(n: int) -> list[str]:
    return [f"{n} apples", f"{n * n} apples", f"{2 * n} apples"]


def _columns(names: str, n: int) -> dict[str, str]:
    return dict(zip(names.split("|"), _options(n), strict=True))


RIGHT: dict[str, Callable[[int], dict[str, Any]]] = {
    "an index": lambda n: {"choices": _options(n), "answer": 1},
    "an index as text": lambda n: {"options": _options(n), "answer": "1"},
    "a letter": lambda n: {"choices": _options(n), "answer": "B"},
    "a letter in parentheses": lambda n: {"choices": _options(n), "answer": "(B)"},
    "the text": lambda n: {"choices": _options(n), "answer": _options(n)[1]},
    "ARC": lambda n: {"choices": {"text": _options(n), **LABELS}, "answerKey": "B"},
    "by label": lambda n: {"options": dict(zip("ABC", _options(n), strict=True)), "answer": "B"},
    "objects": lambda n: {
        "choices": [{"label": a, "text": t} for a, t in zip("ABC", _options(n), strict=True)],
        "answerKey": "B",
    },
    "letters before": lambda n: {
        "options": [f"{a}. {t}" for a, t in zip("ABC", _options(n), strict=True)],
        "answer": "B",
    },
    "columns": lambda n: {**_columns("A|B|C", n), "answer": "B"},
    "small columns": lambda n: {**_columns("a|b|c", n), "label": "b"},
    "named columns": lambda n: {**_columns("option_a|option_b|option_c", n), "answer": "option_b"},
    "Option A": lambda n: {**_columns("Option A|Option B|Option C", n), "Correct": "B"},
    "opa": lambda n: {**_columns("opa|opb|opc", n), "cop": 1},
    "ending0": lambda n: {**_columns("ending0|ending1|ending2", n), "label": 1},
    "option1": lambda n: {**_columns("option1|option2|option3", n), "answer": "2"},
    "camel case": lambda n: {"options": _options(n), "correctAnswer": "B"},
    "camel case columns": lambda n: {**_columns("optionA|optionB|optionC", n), "answer": "B"},
    "columns with numbers": lambda n: {**_columns("option_1|option_2|option_3", n), "answer": 2},
    "a list of one letter": lambda n: {"options": _options(n), "answers": ["B"]},
    "a list of one index": lambda n: {
        "choices": [f"({a}){t}" for a, t in zip("ABC", _options(n), strict=True)],
        "gold": [1],
    },
    "JSON as text": lambda n: {"options": json.dumps(_options(n)), "answer": "B"},
    "as Python prints it": lambda n: {"options": str(_options(n)), "answer": "B"},
    "GPQA": lambda n: _columns("Incorrect Answer 1|Correct Answer|Incorrect Answer 2", n),
    "SciQ": lambda n: _columns("distractor1|correct_answer|distractor2", n),
    "a list of wrong ones": lambda n: {
        "correct_answer": _options(n)[1],
        "incorrect_answers": [_options(n)[0], _options(n)[2]],
    },
}
ABOUT = {
    name: {name: "The hut stands at 300 metres."}
    for name in (
        *("context", "passage", "article", "document", "Context", "background"),
        *("story", "Body", "table", "scenario", "facts"),
    )
}


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("name", RIGHT)
def test_a_row_of_options_asks_them_and_its_answer_is_the_right_one(
    tmp_path: Path, name: str
) -> None:
    rows = [{"question": ASKED.format(n), **RIGHT[name](n)} for n in range(3, 27)]
    path = write(tmp_path / "data.jsonl", rows)
    for n, one in enumerate(load(str(path)), 3):
        assert one.problem.startswith(ASKED.format(n))
        assert all(option in one.problem for option in _options(n))
        assert f"\n{one.answer}. {_options(n)[1]}\n" in one.problem
    plan = plan_files(path, read_table(path), OwnData())
    first = json.loads(plan.files["data/train.jsonl"].split("\n")[0])
    assert " apples" in first["problem"]
    assert len(first["answer"]) == 1


@pytest.mark.parametrize("name", ABOUT)
def test_context_is_asked_with_its_question(tmp_path: Path, name: str) -> None:
    rows = [{**ABOUT[name], "question": f"How high is hut {n}?", "answer": n} for n in range(24)]
    path = write(tmp_path / "data.jsonl", rows)
    assert load(str(path))[0].problem == "The hut stands at 300 metres.\n\nHow high is hut 0?"
    train = plan_files(path, read_table(path), OwnData()).files["data/train.jsonl"]
    assert "300 metres.\\n\\nHow high" in train.split("\n")[0]


def test_an_instruction_is_asked_with_its_input(tmp_path: Path) -> None:
    rows = [
        {"instruction": "Even or odd?", "input": str(n), "output": "odd" if n % 2 else "even"}
        for n in range(24)
    ]
    path = write(tmp_path / "data.jsonl", rows)
    assert load(str(path))[3].problem == "Even or odd?\n\n3"
    train = plan_files(path, read_table(path), OwnData()).files["data/train.jsonl"]
    assert "Even or odd?\\n\\n" in train.split("\n")[0]


def test_an_instruction_is_asked_with_its_context(tmp_path: Path) -> None:
    rows = [
        {"instruction": "How high?", "context": f"Hut {n}.", "response": str(n), "category": "qa"}
        for n in range(3)
    ]
    got = load(str(write(tmp_path / "data.jsonl", rows)))
    assert [(one.problem, one.answer) for one in got] == [
        (f"Hut {n}.\n\nHow high?", str(n)) for n in range(3)
    ]


def test_a_stem_is_a_question(tmp_path: Path) -> None:
    row = {"question_stem": "Which?", "choices": {"text": ["x", "y"], "label": ["A", "B"]}}
    (one,) = load(str(write(tmp_path / "data.jsonl", [{**row, "answerKey": "B"}])))
    assert (one.problem.startswith("Which?\n\nA. x\nB. y"), one.answer) == (True, "B")


@pytest.mark.parametrize(
    "row",
    [
        {"problem": "What is a + b?", "a": 3, "b": 4, "answer": 7},
        {"problem": "What is a + b?", "a": 1, "b": 0, "answer": 1},
        {"question": "How many?", "answer": "4", "subject": "sums"},
        {"question": "Which?", "choices": [], "answer": "4"},
        {"question": "Which?", "label": "B"},
    ],
)
def test_a_row_without_options_is_asked_as_it_is(tmp_path: Path, row: dict[str, Any]) -> None:
    (one,) = load(str(write(tmp_path / "data.jsonl", [row])))
    assert one.problem == row.get("problem", row.get("question"))
    assert one.answer == str(row.get("answer", row.get("label")))


def test_an_answer_that_names_no_option_is_an_error_with_its_line(tmp_path: Path) -> None:
    row = {"question": "Which?", "choices": ["red", "blue"], "answer": "E"}
    with pytest.raises(DatasetError, match="'E' is none of the 2 options"):
        load(str(write(tmp_path / "data.jsonl", [row])))


def test_a_field_that_is_named_is_asked_alone(tmp_path: Path) -> None:
    row = {"question": "Which?", "choices": ["red", "blue"], "answer": "1"}
    (one,) = load(str(write(tmp_path / "data.jsonl", [row])), {"problem": "question"})
    assert (one.problem, one.answer) == ("Which?", "1")


BLANKS: dict[str, tuple[dict[str, Any], str, str]] = {
    "letters": ({"A": "x", "B": "", "C": "y", "D": "z", "answer": "C"}, "C", "y"),
    "indices": ({"A": "x", "B": None, "C": "y", "D": "z", "answer": 3}, "D", "z"),
    "columns from 1": (
        {"option1": "x", "option2": "", "option3": "w", "option4": "z", "answer": 3},
        "C",
        "w",
    ),
    "columns from 0": ({"ending0": " ", "ending1": "v", "ending2": "w", "label": 2}, "C", "w"),
    "a column's name": (
        {"option_a": "x", "option_b": "", "option_c": "y", "answer": "option_c"},
        "C",
        "y",
    ),
    "a column's name with a number": (
        {"option1": "x", "option2": "", "option3": "w", "option4": "z", "answer": "option3"},
        "C",
        "w",
    ),
    "a text": ({"A": "x", "B": "", "C": "y", "D": "z", "answer": "z"}, "D", "z"),
    "the last": ({"A": "x", "B": "y", "C": "", "D": "", "answer": "B"}, "B", "y"),
}


@pytest.mark.parametrize("name", BLANKS)
def test_a_blank_option_moves_no_other(tmp_path: Path, name: str) -> None:
    row, label, right = BLANKS[name]
    first = {
        "question": "Which first?",
        **{key: value if str(value or "").strip() else "u" for key, value in row.items()},
    }
    first |= {list(row)[-1]: 0} if name in ("indices", "columns from 0") else {}
    path = write(tmp_path / "data.jsonl", [{"question": "Which?", **row}, first])
    one, _ = load(str(path))
    assert one.answer == label
    assert f"\n{label}. {right}\n" in one.problem
    options = one.problem.split("\n\n")[1].splitlines()
    assert all(len(option.split(". ")[1]) == 1 for option in options)


def test_an_answer_that_names_a_blank_option_is_an_error(tmp_path: Path) -> None:
    row = {"question": "Which?", "A": "x", "B": "", "C": "y", "D": "z", "answer": "B"}
    with pytest.raises(DatasetError, match="'B' is none of the 3 options"):
        load(str(write(tmp_path / "data.jsonl", [row])))


def test_the_right_one_of_numbers_is_no_index(tmp_path: Path) -> None:
    rows = [
        {"question": f"{n} + 1?", "correct_answer": n + 1, "incorrect_answers": [n, 0, 9]}
        for n in range(1, 4)
    ]
    for n, one in enumerate(load(str(write(tmp_path / "data.jsonl", rows))), 1):
        assert f"\n{one.answer}. {n + 1}\n" in one.problem


MAPPED: list[tuple[dict[str, Any], str, str]] = [
    (
        {"problem": "Who won?", "context": "Ann beat Bob.", "gold": "Ann"},
        "Ann beat Bob.\n\nWho won?",
        "Ann",
    ),
    (
        {"problem": "Which?", "choices": ["x", "y"], "gold": 1},
        "Which?\n\nA. x\nB. y\n\nAnswer",
        "B",
    ),
    ({"problem": "Which?", "choices": ["x", "y"], "own": "y"}, "Which?\n\nA. x\nB. y\n\nAns", "B"),
    (
        {"question": "Which?", "choices": ["x", "y"], "own": "y", "answer": "why"},
        "Which?\n\nA. x\nB. y\n\nAns",
        "B",
    ),
    ({"problem": "Which?", "choices": ["x", "y"], "own": "why"}, "Which?\n\nA. x\nB. y", "why"),
    (
        {"question": "Which?", "choices": ["x", "y"], "answer": 1},
        "Which?\n\nA. x\nB. y\n\nAns",
        "B",
    ),
    ({"problem": "Which?", "A": "x", "B": "y", "own": "B"}, "Which?\n\nA. x\nB. y\n\nAns", "B"),
]


@pytest.mark.parametrize(("row", "problem", "answer"), MAPPED)
def test_options_and_context_are_asked_where_the_answer_is_mapped(
    tmp_path: Path, row: dict[str, Any], problem: str, answer: str
) -> None:
    name = next(name for name in ("gold", "own", "answer") if name in row)
    (one,) = load(str(write(tmp_path / "data.jsonl", [row])), {"answer": name})
    assert one.problem.startswith(problem)
    assert one.problem == problem or "with the letter" in one.problem
    assert one.answer == answer
    nested = {key: value for key, value in row.items() if key not in (name, "answer")}
    path = write(tmp_path / "nested.jsonl", [{**nested, "more": {"own": row[name]}}])
    (same,) = load(str(path), {"answer": "more.own"})
    assert (same.problem, same.answer) == (one.problem, one.answer)


def test_a_blank_field_called_as_ours_hides_nothing(tmp_path: Path) -> None:
    row = {"problem": "", "question": "Which?", "choices": ["x", "y"], "answer": "", "label": 1}
    (one,) = load(str(write(tmp_path / "data.jsonl", [row])))
    assert (one.problem[:6], one.answer) == ("Which?", "B")


@pytest.mark.parametrize("name", [name for name in RIGHT if name not in ("GPQA", "SciQ")])
def test_a_row_without_its_answer_is_asked_as_one_with_it(name: str) -> None:
    row = {"question": ASKED.format(5), **RIGHT[name](5)}
    if "incorrect_answers" in row:
        return  # without the right one there is an option less
    answer = list(row)[-1]
    render = PromptLibrary(Library(ROOT, ())).render
    trained = of_rows([Row(1, "it", row)], "it")[0].problem
    assert "with the letter" in trained
    for without in ({**row, answer: ""}, {**row, answer: None}, dict(list(row.items())[:-1])):
        assert trained in render(without)[-1]["content"], name


@pytest.mark.parametrize(
    "row",
    [
        {"problem": "What is a + b?", "a": 3, "b": 4},
        {"question": "What is x?", "A": "1.5", "B": "-4", "C": 1e9},
        {"prompt": "How?", "answer1": "So.", "answer2": "Thus."},
        {"prompt": "How?", "answer_a": "So.", "answer_b": "Thus."},
        {"prompt": "How?", "options": {"temperature": 0.5, "top_p": 1}},
    ],
)
def test_fields_that_may_be_no_options_are_none(row: dict[str, Any]) -> None:
    (one,) = of_rows([Row(1, "it", row)], "it", ground_truth=False)
    assert one.problem == next(iter(row.values()))


@pytest.mark.parametrize(
    ("output", "answer", "is_letter"),
    [("ruby", "A", True), ("A", "A", True), ("It is.", "", False)],
)
def test_an_answer_in_words_stays_as_it_is(output: str, answer: str, is_letter: bool) -> None:
    row = {"question": "Which is red?", "choices": ["ruby", "sapphire"], "output": output}
    (one,) = of_rows([Row(1, "it", row)], "it")
    assert one.answer == (answer or output)
    assert ("with the letter" in one.problem) is is_letter


def numbered(answers: list[Any], **more: Any) -> list[dict[str, Any]]:
    options = {"choices": ["x", "y", "z", "w"], **more}
    return [
        {"question": f"What is {n} op {n + 3}?", **options, "answer": a}
        for n, a in enumerate(answers)
    ]


DOUBT = "d: the answers are read as option numbers from 0"


@pytest.mark.parametrize(
    ("rows", "right", "is_doubted"),
    [
        (numbered([1, 2, 3]), "BCD", True),
        (numbered(["1", "2", "3"]), "BCD", True),
        (numbered([0, 2, 3]), "ACD", False),
        (numbered([1, 2, 4]), "ABD", False),
        (numbered(["A", "y", "D"]), "ABD", False),
        (numbered(["2"], choices=["1", "2", "3"]), "B", False),
        (numbered(["2"], choices={"label": ["1", "2", "3"], "text": ["x", "y", "z"]}), "2", False),
        (
            [{"question": "Which?", "option1": "x", "option2": "y", "option3": "z", "answer": 1}],
            "A",
            0,
        ),
        (
            [{"question": "Which?", "ending0": "x", "ending1": "y", "ending2": "z", "label": 1}],
            "B",
            0,
        ),
    ],
)
def test_indices_that_do_not_tell_where_they_begin_are_warned_of(
    tmp_path: Path, rows: list[dict[str, Any]], right: str, is_doubted: bool
) -> None:
    loaded = load(str(write(tmp_path / "data.jsonl", rows)))
    assert [one.answer for one in loaded] == list(right)
    assert [line.split(";")[0] for line in describe_indices(loaded, "d")] == [DOUBT] * is_doubted


def test_sets_that_count_options_otherwise_than_the_training_data_are_warned_of(
    tmp_path: Path,
) -> None:
    train, heldout = (
        load(str(write(tmp_path / f"{name}.jsonl", numbered(answers))))
        for name, answers in (("train", [1, 2, 4]), ("heldout", [1, 2, 3]))
    )
    first, second = describe_indices(heldout, "h", train, "t")
    assert first.startswith("h: the answers are read as option numbers")
    assert second.startswith("h: its answers are read as option numbers from 0, those of t from 1")
    assert describe_indices(train, "t", train, "t") == []


def test_a_new_project_and_a_run_say_how_indices_are_read(
    cli: Cli, tmp_path: Path, endpoint: ScriptedEndpoint
) -> None:
    write(tmp_path / "data.jsonl", numbered([1, 2, 3, 1, 2, 3] * 5))
    write(tmp_path / "held.jsonl", numbered([1, 2, 4]))
    where = ["--model", "m", "--base-url", endpoint.base_url, "--domain", "choice"]
    started = cli("init", "--from", "data.jsonl")
    assert "read as option numbers from 0; none is 0" in " ".join(
        (started.stdout + started.stderr).split()
    )
    run = cli("train", "data.jsonl", "--heldout", "held.jsonl", *where, "--estimate")
    words = " ".join(run.stderr.split())
    assert "data.jsonl: the answers are read as option numbers" in words
    assert (
        "held.jsonl: its answers are read as option numbers from 1, those of data.jsonl from 0"
        in words
    )
    shown = cli("eval", "data.jsonl", *where, "--problems", "1", "--samples", "1")
    assert "data.jsonl: the answers are read as option numbers" in " ".join(shown.stderr.split())
