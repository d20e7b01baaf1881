"""The text of rows that is in no problem is said, with its share, from every door."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli
from scripted import ScriptedEndpoint

import tfgrpo
from tfgrpo.data.datasets import load
from tfgrpo.data.problems import describe_unread
from tfgrpo.notices import WarningNotice

FILES = ("train", "gate", "heldout", "sealed")
TEXT = "x" * 60


def rows(start: int, **more: Any) -> list[dict[str, Any]]:
    return [
        {"question": f"What is {n} op {n + 3}?", "answer": str(2 * n + 4), **more}
        for n in range(start, start + 14)
    ]


def write(path: Path, some: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in some))
    return path


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for number, name in enumerate(FILES):
        write(tmp_path / f"{name}.jsonl", rows(10 * number, hint=f"{name} {TEXT}", level="easy"))
    return tmp_path


def said(printed: str, name: str) -> bool:
    words = " ".join(printed.split())
    return any(
        f"{name}.jsonl: not used: hint, level ({share}% of the text)" in words
        for share in range(75, 85)
    )


def test_train_says_it_of_every_file(cli: Cli, files: Path, endpoint: ScriptedEndpoint) -> None:
    flags = [f"--{name}={name}.jsonl" for name in FILES[1:]]
    where = ["--model", "m", "--base-url", endpoint.base_url]
    printed = cli("train", "train.jsonl", *flags, *where, "--estimate")
    assert all(said(printed.stderr, name) for name in FILES)


@pytest.mark.parametrize("verb", [["eval"], ["eval", "--against", "v0"], ["compare"]])
def test_eval_and_compare_say_it(
    cli: Cli, files: Path, endpoint: ScriptedEndpoint, verb: list[str]
) -> None:
    cli("init")
    where = ["--model", "m", "--base-url", endpoint.base_url, "--samples", "1"]
    printed = cli(verb[0], "train.jsonl", *verb[1:], *where)
    assert said(printed.stderr, "train")


def test_init_says_it(cli: Cli, files: Path) -> None:
    words = " ".join(cli("init", "--from", "train.jsonl").stdout.split())
    assert "not used: hint, level (" in words


def test_python_says_it_of_files_and_rows(files: Path, endpoint: ScriptedEndpoint) -> None:
    notices: list[Any] = []
    model: Any = {"model": "m", "base_url": endpoint.base_url, "on_progress": notices.append}
    tfgrpo.train_sync(str(files / "train.jsonl"), store=files, epochs=1, keep_going=True, **model)
    tfgrpo.evaluate_sync(rows(9, tests=TEXT), store=files, samples=1, **model)
    texts = [str(notice) for notice in notices if isinstance(notice, WarningNotice)]
    assert any(said(text, "train") for text in texts)
    assert any("not used: tests (" in text for text in texts)


SHAPES: dict[str, tuple[dict[str, Any], str]] = {
    "all is used": ({"question": "How many?", "answer": "4"}, ""),
    "options": ({"question": "Which?", "choices": ["4", "5"], "answer": 1, "why": "w"}, "why"),
    "context": ({"context": "A hut.", "question": "How high?", "answer": "4"}, ""),
    "an instruction": ({"instruction": "Add.", "input": "2 and 2", "output": "4"}, ""),
    "an instruction alone": ({"instruction": "Add 2 and 2.", "input": "", "output": "4"}, ""),
    "a solution": ({"problem": "2+2?", "answer": "4", "solution": "2+2=4"}, "solution"),
    "a turn's answer": ({"messages": [{"role": "user", "content": "2+2?"}], "answer": "4"}, ""),
    "an object": (
        {
            "prompt": [{"role": "user", "content": "2+2?"}],
            "reward_model": {"style": "rule", "ground_truth": "4"},
            "extra_info": {"index": 3, "split": "train"},
        },
        "extra_info.split, reward_model.style, extra_info.index",
    ),
    "what is empty": ({"question": "How many?", "answer": "4", "a": None, "b": "", "c": [""]}, ""),
    "a collected problem": (
        {"problem": "2+2?", "answer": "4", "from": {"because": "corrected", "said": "5"}},
        "",
    ),
    "seven": (
        {"question": "Q?", "answer": "4", **dict.fromkeys("tuvwxyz", "xx")},
        "t, u, v, w, x, y and 1 more",
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_field_is_told_where_nothing_is_made_of_it(tmp_path: Path, name: str) -> None:
    row, unread = SHAPES[name]
    lines = describe_unread(load(str(write(tmp_path / "data.jsonl", [row]))), "data.jsonl")
    assert [line.partition(" (")[0] for line in lines] == [
        f"data.jsonl: not used: {unread}" for _ in [1] if unread
    ]


def test_the_share_is_of_the_rows_text(tmp_path: Path) -> None:
    row = {"question": "q" * 70, "answer": "a" * 5, "note": "n" * 25}
    path = write(tmp_path / "data.jsonl", [row, {**row, "id": "2", "note": ""}])
    assert describe_unread(load(str(path)), "d") == ["d: not used: note (14% of the text)"]
    path = write(path, [{"question": "q" * 700, "answer": "a", "note": "n"}])
    assert describe_unread(load(str(path)), "d") == ["d: not used: note (less than 1% of the text)"]


def test_a_field_that_is_mapped_is_used(tmp_path: Path) -> None:
    path = write(tmp_path / "data.jsonl", [{"a": {"q": "2+2?", "r": "rest"}, "b": "4"}])
    loaded = load(str(path), {"problem": "a.q", "answer": "b"})
    assert loaded[0].unread == {"a.r": 4}
