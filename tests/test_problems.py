"""Datasets: what is read, what is refused and where, and in which order batches come."""

from __future__ import annotations

import json
from collections import Counter
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.data.datasets import load
from tfgrpo.data.problems import (
    DatasetError,
    Problem,
    batches,
    digest,
    of_rows,
    without_answer,
)
from tfgrpo.data.readers import Row

ROW = '{"problem": "What is 1 + 1?", "answer": "2"}'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "data.jsonl"


def problems(count: int) -> list[Problem]:
    return [Problem(f"p{n}", f"q{n}", str(n)) for n in range(count)]


def test_rows_are_read_in_order_with_their_own_ids(file: Path) -> None:
    file.write_text('{"id": "b", "problem": "q", "answer": "1"}\n{"id": 7, "problem": "r"}\n')
    with pytest.raises(DatasetError):
        load(str(file))
    file.write_text(
        '{"id": "b", "problem": " q ", "answer": 1.5}\n{"id": 7, "problem": "r", "answer": 0}\n'
    )
    assert load(str(file)) == (Problem("b", "q", "1.5"), Problem("7", "r", "0"))


def test_rows_without_an_id_are_called_after_their_line_in_the_file(file: Path) -> None:
    file.write_text(f"\n{ROW}\n   \n\n{ROW}\n")
    assert [p.id for p in load(str(file))] == ["line-2", "line-5"]


def test_fields_map_our_names_to_the_files_own(file: Path) -> None:
    file.write_text('{"n": "a", "question": "q", "gold": 3, "answer": "not this"}\n')
    found = load(str(file), {"problem": "question", "answer": "gold", "id": "n"})
    assert found == (Problem("a", "q", "3"),)


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbf" + f"{ROW}\r\n{ROW}\r\n".encode())
    assert [p.id for p in load(str(file))] == ["line-1", "line-2"]


def test_text_in_any_script_is_kept_as_it_is(file: Path) -> None:
    file.write_text('{"problem": "Сколько будет ½ + ½? 🙂", "answer": "１"}\n', encoding="utf-8")
    assert load(str(file))[0] == Problem("line-1", "Сколько будет ½ + ½? 🙂", "１")


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085"])
def test_a_line_ends_at_a_newline_and_at_nothing_else(file: Path, separator: str) -> None:
    row = json.dumps({"problem": f"one{separator}two", "answer": "2"}, ensure_ascii=False)
    file.write_text(row + "\n" + ROW + "\n", encoding="utf-8")
    found = load(str(file))
    assert [p.id for p in found] == ["line-1", "line-2"]
    assert found[0].problem == f"one{separator}two"


BAD_ROWS = {
    "not JSON": '{"problem": "q", "answer": ',
    "a list": '["q", "1"]',
    "a number": "5",
    "no problem": '{"answer": "1"}',
    "no answer": '{"problem": "q"}',
    "blank answer": '{"problem": "q", "answer": "  "}',
    "null answer": '{"problem": "q", "answer": null}',
    "answer an empty list": '{"problem": "q", "answer": []}',
    "answer a list of objects": '{"problem": "q", "answer": [{"text": "1"}]}',
    "answer a list with a blank": '{"problem": "q", "answer": ["1", " "]}',
    "an image": '{"problem": [{"role": "user", "content": [{"type": "image_url"}]}], "answer": 1}',
    "problem an object": '{"problem": {"text": "q"}, "answer": "1"}',
    "empty object": "{}",
    "a number without end": '{"problem": "q", "answer": ' + "1" * 5000 + "}",
    "brackets without end": "[" * 100_000,
    "half a character": '{"problem": "q \\ud83d", "answer": "1"}',
}


@pytest.mark.parametrize("bad", BAD_ROWS.values(), ids=BAD_ROWS)
def test_a_bad_row_is_refused_by_file_and_line_with_a_hint(file: Path, bad: str) -> None:
    file.write_text(f"{ROW}\n\n{bad}\n{ROW}\n")
    with pytest.raises(DatasetError) as caught:
        load(str(file))
    assert f"{file}:3" in str(caught.value)
    assert caught.value.hint
    assert len(str(caught.value)) < 500


def test_the_hint_for_a_missing_field_names_the_fields_that_are_there(file: Path) -> None:
    file.write_text('{"exercise": "q", "gold": "1"}\n')
    with pytest.raises(DatasetError) as caught:
        load(str(file))
    assert "exercise" in str(caught.value.hint)
    assert "gold" in str(caught.value.hint)


@pytest.mark.parametrize("answer", ["NaN", "-Infinity", "1e999", "null"])
def test_what_is_no_number_is_missing(file: Path, answer: str) -> None:
    file.write_text(f'{{"problem": "q", "answer": {answer}}}')
    with pytest.raises(DatasetError, match="'answer' is empty"):
        load(str(file))


@pytest.mark.parametrize("row", ["1,", "1, ", '{"id": 1, "Anfrage": null}'])
def test_an_empty_cell_is_said_to_be_empty(file: Path, row: str) -> None:
    table = file if row.startswith("{") else file.with_suffix(".csv")
    table.write_text(row if table is file else f"id,Anfrage\n{row}\n")
    with pytest.raises(DatasetError, match="'Anfrage' is empty") as caught:
        load(str(table), {"problem": "Anfrage"}, ground_truth=False)
    assert "the row has" not in str(caught.value.hint)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ('{"problem": "q", "answer": []}', r"'answer' cannot be used: \[\]"),
        ('{"problem": "q", "answer": "#### "}', "'answer' cannot be used"),
        (
            '{"problem": [{"role": "tool", "content": "x"}], "answer": 1}',
            r"'problem' cannot be used \(message 1 has the role 'tool'\)",
        ),
        (
            '{"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": '
            '[{"type": "image_url", "image_url": {}}]}], "answer": 1}',
            "message 2 has a part of the type 'image_url', which is no text",
        ),
    ],
)
def test_a_field_that_is_there_and_cannot_be_used_is_told_so(
    file: Path, row: str, words: str
) -> None:
    file.write_text(row)
    with pytest.raises(DatasetError, match=words) as error:
        load(str(file))
    assert error.value.hint is not None
    assert error.value.hint.startswith("expected text or a number")


def test_an_empty_id_is_none_and_an_empty_field_leaves_others_a_turn(file: Path) -> None:
    rows = [{"id": "", "problem": "a", "answer": None, "gold": "5"}, {"id": None, "problem": "b"}]
    file.write_text("".join(json.dumps(row | {"solution": "6"}) + "\n" for row in rows))
    assert [(p.id, p.answer) for p in load(str(file))] == [("line-1", "5"), ("line-2", "6")]


def test_an_extra_field_that_no_record_could_hold_is_refused() -> None:
    row = Row(1, "x:1", {"problem": "q", "answer": "1", "day": date(2020, 1, 1)})
    with pytest.raises(DatasetError, match="x:1: 'day'"):
        of_rows([row], "x", extra=("day",))
    assert of_rows([row._replace(fields={"problem": "q", "answer": Decimal("1.50")})], "x")


def test_an_id_that_stands_twice_is_refused_where_it_stands_again(file: Path) -> None:
    row = '{"id": "a", "problem": "q", "answer": "1"}'
    file.write_text(f"{row}\n{ROW}\n{row}\n")
    with pytest.raises(DatasetError, match=r":3: .*'a'"):
        load(str(file))


@pytest.mark.parametrize("content", [b"", b"\n \n", b"\xff\xfe\x00\x01"])
def test_a_file_without_problems_or_not_in_utf8_is_refused(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(DatasetError, match=r"data\.jsonl"):
        load(str(file))


def test_a_missing_file_a_folder_and_an_unknown_field_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.jsonl", tmp_path):
        with pytest.raises(DatasetError) as caught:
            load(str(path))
        assert caught.value.hint
    with pytest.raises(DatasetError, match="solution"):
        load(str(tmp_path / "none.jsonl"), {"solution": "gold"})


counts = st.integers(min_value=1, max_value=40)


@given(count=counts, size=counts, epoch=st.integers(1, 5), seed=st.integers(0, 9))
def test_batches_cover_every_problem_once_and_only_the_last_may_be_smaller(
    count: int, size: int, epoch: int, seed: int
) -> None:
    found = batches(problems(count), size, epoch=epoch, seed=seed)
    assert Counter(p.id for batch in found for p in batch) == Counter(p.id for p in problems(count))
    assert all(len(batch) == size for batch in found[:-1])
    assert 1 <= len(found[-1]) <= size


@given(count=counts, size=counts, epoch=st.integers(1, 5), seed=st.integers(0, 9))
def test_the_same_seed_and_epoch_give_the_same_batches(
    count: int, size: int, epoch: int, seed: int
) -> None:
    first = batches(problems(count), size, epoch=epoch, seed=seed)
    assert first == batches(problems(count), size, epoch=epoch, seed=seed)


def test_the_order_differs_by_epoch_and_by_seed() -> None:
    orders = {
        tuple(p.id for p in batches(problems(30), 30, epoch=epoch, seed=seed)[0])
        for epoch in (1, 2, 3)
        for seed in (0, 1, 12)
    }
    assert len(orders) == 9


def test_the_digest_changes_with_any_part_of_any_problem_and_with_their_order() -> None:
    one, two = Problem("a", "q", "1"), Problem("b", "r", "2")
    others = [
        digest(rows)
        for rows in (
            [two, one],
            [one],
            [one, two, one],
            [Problem("c", "q", "1"), two],
            [Problem("a", "p", "1"), two],
            [Problem("a", "q", "3"), two],
        )
    ]
    assert digest([one, two]) == digest((one, two))
    assert len({digest([one, two]), *others}) == 7


def test_hashes_end_a_solution_only_at_the_beginning_of_its_last_line() -> None:
    def answer(text: str) -> str:
        (found,) = of_rows([Row(1, "d:1", {"problem": "q", "answer": text})], "d")
        return found.answer

    assert answer("6 * 7 = 42\n#### 42") == "42"
    assert answer("#### 42") == "42"
    assert answer("C#### D") == "C#### D"
    assert answer("a #### b") == "a #### b"
    assert answer("#### Heading\nand more") == "#### Heading\nand more"


def test_a_list_of_answers_is_several_that_are_right() -> None:
    rows = [Row(1, "d:1", {"problem": "q", "answer": ["080", 81]})]
    (found,) = of_rows(rows, "d")
    assert found.answer == "080"
    assert found.ground_truths == ("080", "81")
    assert Problem("a", "q", "5").ground_truths == ("5",)


def test_what_the_assistant_says_at_the_end_of_a_conversation_is_the_answer_and_not_asked() -> None:
    turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": r"\boxed{42}"}]
    rows = [
        Row(1, "d:1", {"problem": turns}),
        Row(2, "d:2", {"problem": turns, "answer": "43"}),
        Row(3, "d:3", {"problem": [*turns, {"role": "user", "content": "r"}], "answer": "44"}),
    ]
    first, second, third = of_rows(rows, "d")
    assert (first.problem, first.messages, first.answer) == ("q", (), r"\boxed{42}")
    assert (second.problem, second.answer) == ("q", "43")
    assert [role for role, _ in third.messages] == ["user", "assistant", "user"]
    with pytest.raises(DatasetError):
        of_rows([Row(1, "d:1", {"problem": turns[1:], "answer": "42"})], "d")


@pytest.mark.parametrize(
    ("row", "fields"),
    [
        ({"reward_model": {"ground_truth": "8", "style": "rule"}}, None),
        ({"extra_info": {"answer": "3+5\n#### 8", "split": "test"}}, None),
        ({"of": {"is": "8", "page": 17}}, {"problem": "question", "answer": "of.is"}),
        ({"answer": "8", "Gold": "8!", "Solution": "3 + 5", "groundTruth": "eight"}, None),
        ({"answer": "8", "correct_answer": "eight", "reference_answer": ["8.0"]}, None),
        ({"answer": "8", "canonical_solution": "3 + 5", "tests": [{"solution": "3 + 5"}]}, None),
        ({"answer": "8", "answer_text": "eight", "answerIdx": 1, "answer_number": 8.0}, None),
        ({"answer": "8", "correct_idx": 1, "gold_index": 1, "expectedOutput": "eight"}, None),
        ({"answer": "8", "rationale": "3 + 5", "solution_steps": "3 + 5"}, None),
        ({"answer": "8", "info": {"Final Answer": "8.0"}}, None),
        ({"answer": "8", "key": 8, "listed": ["8"], "info": {"right": "3+5\n#### 8"}}, None),
    ],
)
def test_whoever_answers_sees_no_answer_wherever_it_stands(
    row: dict[str, object], fields: dict[str, str] | None
) -> None:
    asked = {"question": "3 + 5?", "level": 3, "of": {"page": 17}, **row}
    (problem,) = of_rows([Row("x:1", 1, asked)], "x", fields, extra=("*",))
    assert problem.answer == "8"
    seen = without_answer(problem)
    assert (seen.answer, seen.meta["level"], seen.meta["of"]) == ("", 3, {"page": 17})
    assert not any(one in json.dumps(seen.meta) for one in ("8", "eight", "3 + 5"))


def test_a_field_that_is_the_answer_in_some_rows_alone_is_another_one() -> None:
    rows = [
        Row(f"x:{n}", n, {"problem": f"q{n}", "answer": str(n), "seats": 2, "same": n})
        for n in (1, 2, 3)
    ]
    metas = [without_answer(one).meta for one in of_rows(rows, "x", extra=("*",))]
    assert metas == [{"seats": 2}] * 3
