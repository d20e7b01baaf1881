"""What others wrote commands no terminal, whichever command prints it, and leaves pipes alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from io import StringIO
from pathlib import Path

import pytest
from conftest import Cli, environment
from rich.cells import cell_len
from rich.console import Console

from tfgrpo.cli import printing
from tfgrpo.cli.start_context import App
from tfgrpo.result_tables import View
from tfgrpo.settings import TrainSettings
from tfgrpo.store.records import Operation
from tfgrpo.store.store import Store

HOSTILE = "good\x1b[31mred\x1b]0;title\x07\x1b[2J\x1b[8mgone\x9b1A\u202eback\u2066\u200f\x7f"
SEEN = "good\\x1b[31mred\\x1b]0;title\\x07\\x1b[2J\\x1b[8mgone\\x9b1A\\u202eback\\u2066"
MARKS = {"\u200e", "\u200f", "\u061c"}
"""Marks of ordinary Hebrew and Arabic, which command nothing."""
COLOURS = re.compile(r"\x1b\[(?:0|1|2|9|3[1-6])m")
VERBS = (
    *("log", "log -p", "log --oneline", "log --graph", "log --json", "show", "show --json"),
    *("status", "status --json", "diff v0 HEAD", "blame", "reflog", "runs", "runs r"),
    *("runs --json", "cost", "remote", "fsck", "branch", "tag", "show G0", "trust --show"),
    *("export", "export --format md", "export --format prompt", "checkout HEAD -o -"),
    *("train p.jsonl --estimate --skip-unverifiable", "verify cases.jsonl --all", "show nothing"),
    *("eval missing\x1b[2J.jsonl", "export HEAD -o out.nothing\x1b[2J", "help nothing\x1b[2J"),
)
SCRIPT = """
import sys
from tfgrpo.cli.main import main
for line in {verbs!r}:
    sys.argv = ["tfgrpo", "--no-pager", *line.split(" ")]
    try:
        main()
    except SystemExit:
        pass
"""


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which every text that can be anything commands a terminal."""
    monkeypatch.chdir(tmp_path)
    with Store.init(tmp_path / ".tfgrpo" / "store.db", author=HOSTILE) as store:
        models = {"model": HOSTILE, "base_url": "http://127.0.0.1:9/v1"}
        settings = TrainSettings(data=f"{HOSTILE}.jsonl", models=models, agent_objective=HOSTILE)
        run = store.runs.create("r", "0" * 32, "main", 0, settings.model_dump(mode="json"), HOSTILE)
        store.create_tag("r/step_0", store.version(0))
        store.runs.note(run, "failed", HOSTILE)
        adding = Operation("ADD", text=f"Mind {HOSTILE} always.", reason=HOSTILE)
        store.commit("main", [adding], message=HOSTILE, meta={"run": "r"})
        store.port.names.put_remote("origin", f"/nowhere/{HOSTILE}")
    rows = [{"id": HOSTILE, "problem": f"{n} {HOSTILE}", "answer": n} for n in (1, 2)]
    rows += [{"id": f"{HOSTILE}2", "problem": HOSTILE, "answer": HOSTILE}]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    case = {"id": HOSTILE, "gold": "5", "pred": HOSTILE, "expected": True}
    (tmp_path / "cases.jsonl").write_text(json.dumps(case) + "\n")
    return tmp_path


@pytest.mark.skipif(sys.platform == "win32", reason="no terminals to pretend")
def test_no_command_lets_anything_command_a_terminal(hostile: Path) -> None:
    near, far = os.openpty()
    script = SCRIPT.format(verbs=VERBS)
    command = [sys.executable, "-c", script]
    process = subprocess.Popen(command, stdout=far, stderr=far, env=environment(COLUMNS="200"))
    os.close(far)
    told = b""
    with suppress(OSError):  # which is how a terminal ends
        while chunk := os.read(near, 65536):
            told += chunk
    os.close(near)
    assert process.wait() == 0
    left = COLOURS.sub("", told.decode()).replace("\r\n", "\n")
    assert "Traceback" not in left, left
    found = {sign for sign in left if sign != "\n" and not sign.isprintable()} - MARKS
    assert found == set(), [line for line in left.splitlines() if found & set(line)]
    assert left.count("good\\x1b[31mred") > len(VERBS), "it is shown, not lost"


def test_what_is_piped_from_export_is_exact_to_the_byte(hostile: Path, cli: Cli) -> None:
    for format_ in ("md", "prompt", "rows"):
        cli("export", "--format", format_, "-o", f"file.{format_}")
        piped = cli("export", "--format", format_).stdout
        assert piped.encode() == (hostile / f"file.{format_}").read_bytes()
    assert "\x1b[31mred" in cli("export", "--format", "prompt").stdout


def test_a_pager_gets_every_line_once_and_nothing_that_commands_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paged: list[str] = []
    monkeypatch.setattr(printing.sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(printing, "page", paged.extend)
    lines = [printing.style(f"{n} {HOSTILE}", fg="green") for n in range(200)]
    printing.emit(App(None), lines)
    assert [line.split()[0].removeprefix("\x1b[32m") for line in paged] == [
        str(n) for n in range(200)
    ]
    seen = [COLOURS.sub("", line.rstrip("\n")).replace("\u200f", "") for line in paged]
    assert all(line.isprintable() for line in seen)


def test_a_pager_of_the_users_may_be_left_before_the_end_and_sees_colours_where_it_shows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [printing.click.style(f"{n}\n", fg="green") for n in range(50_000)]
    monkeypatch.setenv("PAGER", "true")
    printing.page(lines)
    for name, colours in (("less", True), ("other", False)):
        pager = tmp_path / name
        pager.write_text(f"#!/bin/sh\ncat > {tmp_path}/paged\n")
        pager.chmod(0o755)
        monkeypatch.setenv("PAGER", str(pager))
        printing.page(iter(lines))
        paged = (tmp_path / "paged").read_text()
        assert paged == "".join(lines if colours else map(printing.click.unstyle, lines))


@pytest.mark.parametrize(("name", "marked"), [("less", False), ("other", True)])
def test_a_word_diff_that_is_paged_without_colours_has_marks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, marked: bool
) -> None:
    pager = tmp_path / name
    pager.write_text(f"#!/bin/sh\ncat > {tmp_path}/paged\n")
    pager.chmod(0o755)
    monkeypatch.setenv("PAGER", str(pager))
    for variable in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(printing.sys.stdout, "isatty", lambda: True, raising=False)

    def changed() -> list[str]:
        return printing.wrap(printing.word_diff("Round up.", "Round down."))

    printing.emit(App(None), (line for _ in range(200) for line in changed()))
    paged = (tmp_path / "paged").read_text()
    assert ("[-up.-]" in paged, "{+down.+}" in paged) == (marked, marked)
    assert ("\x1b[" in paged) is not marked
    assert "[-" not in "".join(changed()), "on the terminal itself colours are seen"


WIDE = (
    "時間は丸めないで、両方の日を数えてください。店が閉まる時刻も必ず伝えてください。",
    "한 시간 단위로 계산하고 두 날을 모두 세어 주세요. 자물쇠도 꼭 가져오세요.",
    "料金は hire 1 回ごとに計算する https://shop.example/料金表/2024 を見る",
    "か\u3099き\u3099く\u3099け\u3099こ\u3099" * 6,
    "🚲" * 30,
    "Señales de tráfico: cafe\u0301 con leche, a las cinco de la tarde, sin falta.",
)
"""Texts whose letters take two columns each, or none."""


@pytest.mark.parametrize("text", WIDE)
def test_what_is_wide_is_wrapped_and_aligned_by_its_cells(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(printing, "width", lambda: 40)
    lines = printing.wrapped(f"Say: {text}", first="G0 ", indent=4)
    assert max(map(cell_len, lines)) <= 40
    assert "".join(lines).replace(" ", "") == f"G0 Say: {text}".replace(" ", "")
    assert not any(line.strip().startswith("\u3099") for line in lines)
    short = text[:8]
    rows = printing.table([(short, "| a"), ("x", "| " + text)], header=("text", "| more"))
    assert max(map(cell_len, map(printing.click.unstyle, rows))) <= 40
    view = View("title", ("text", "| more"), [(short, "| a"), ("x", "| b")])
    for aligned in (rows, view.text().splitlines()[1:]):
        plain = [printing.click.unstyle(line) for line in aligned]
        assert len({cell_len(line[: line.index("|")]) for line in plain}) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="no terminals to pretend")
def test_no_line_of_wide_text_is_wider_than_its_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Store.init(tmp_path / ".tfgrpo" / "store.db", author="健") as store:
        for text in WIDE:
            store.commit("main", [Operation("ADD", text=text, reason=text)], message=text)
    verbs = ["log -p", "log --oneline", "show", "diff v0 HEAD", "reflog", "branch -v", "blame"]
    near, far = os.openpty()
    command = [sys.executable, "-c", SCRIPT.format(verbs=verbs)]
    process = subprocess.Popen(command, stdout=far, stderr=far, env=environment(COLUMNS="40"))
    os.close(far)
    told = b""
    with suppress(OSError):
        while chunk := os.read(near, 65536):
            told += chunk
    os.close(near)
    assert process.wait() == 0
    lines = COLOURS.sub("", told.decode()).replace("\r\n", "\n").splitlines()
    assert len(lines) > 6 * len(WIDE)
    assert [line for line in lines if cell_len(line) > 40 and not line.isascii()] == []


def test_a_result_commands_nothing_in_any_of_its_forms() -> None:
    view = View(HOSTILE, ("text", HOSTILE), [(HOSTILE, "a\nb")], [HOSTILE])
    console = Console(record=True, width=400, file=StringIO())
    console.print(view.rich())
    for form in (view.text(), view.html(), console.export_text()):
        left = form.replace("\n", "")
        assert all(sign.isprintable() or sign in MARKS for sign in left), form
        assert form.count("good\\x1b[31mred") == 4


def test_colours_are_ours_alone() -> None:
    assert printing.safe("\x1b[31mred") == "\\x1b[31mred"
    line = printing.safe(
        f"a {printing.style('b', fg='green')} {printing.style(HOSTILE, bold=True)}"
    )
    assert line.count("\x1b") == 4, "two before and two after"
    assert "\\x1b[31mred" in line
    assert "\ud800" not in printing.safe("half \ud800")
