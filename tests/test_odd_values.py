"""Values that no option is meant for: a line of error, never a traceback, and nothing is lost."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from conftest import Cli, one_line_error

DIGITS = "9" * 5000
SURROGATE = "\udcff"
PROBLEMS = '{"problem": "What is 1 + 1?", "answer": "2"}\n'


@pytest.fixture
def store(cli: Cli, tmp_path: Path) -> Path:
    """The file of a store with two versions, beside which calls are on record."""
    cli("init")
    cli("add", "Count both days.")
    cli("add", "Round up.")
    from tfgrpo.store.activity.traffic import traffic_path
    from tfgrpo.store.opening import open_traffic

    path = tmp_path / ".tfgrpo/store.db"
    open_traffic(traffic_path(path), create=True).close()
    (tmp_path / "problems.jsonl").write_text(PROBLEMS)
    (tmp_path / "deep.toml").write_text("a = " + "[" * 20_000)
    return path


@pytest.mark.parametrize(
    "words",
    [
        ["show", "HEAD~99999999999999999999"],
        ["show", f"HEAD~{DIGITS}"],
        ["show", f"HEAD^{DIGITS}"],
        ["show", f"main@{{{DIGITS}}}"],
        ["show", f"v{DIGITS}"],
        ["log", "--since", f"{DIGITS}d"],
        ["log", "--until", "99999999999d"],
        ["traffic", "--since", "99999999999d"],
        ["traffic", "--figures", "--since", "99999999999d"],
        ["traffic", "-n", "9" * 30],
        ["traffic", "--model", SURROGATE],
        ["traffic", "call-1", "--failed"],
        ["log", "--run", "no-such-run"],
        ["plot", "--html", "run.html", "--json"],
        ["power", "--difference", "nan", "--within", "1", "--between", "1"],
        ["power", "--difference", "0.1", "--within", "1e308", "--between", "1"],
        ["power", "--difference", "0.1", "--within", "inf", "--between", "1", "--json"],
        ["cost", "--config", "deep.toml"],
        ["verify", "problems.jsonl", "--domain", "rubric:deep.toml"],
        ["verify", "problems.jsonl", "--domain", "json:deep.toml"],
        ["verify", "problems.jsonl", "--pattern", "(x){99999999999}"],
        ["verify", "problems.jsonl", "--pattern", "(" * 5000 + ")" * 5000],
        ["collect", "--redact", "x{99999999999}"],
        ["proxy", "--upstream", "http://127.0.0.1:9/v1", "--keep", "2026-01-01"],
        ["proxy", "--upstream", "http://127.0.0.1:9/v1", "--keep", "0d"],
    ],
)
def test_what_cannot_be_meant_is_a_line_of_error(store: Path, cli: Cli, words: list[str]) -> None:
    done = cli(*words, ok=False)
    one_line_error(done, code=done.returncode)
    assert done.returncode in (1, 2)
    assert "bug of tfgrpo" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["log", "--since", "99999d"],
        ["traffic", "--since", "99999d"],
        ["traffic", "--figures", "--since", "99999d"],
        ["traffic", "--subject", SURROGATE],
        ["power", "--difference", "1e-320", "--within", "1", "--between", "1"],
    ],
)
def test_what_can_be_meant_is_answered(store: Path, cli: Cli, words: list[str]) -> None:
    assert cli(*words).returncode == 0


@pytest.mark.parametrize("name", ["store.db", "traffic.db"])
@pytest.mark.parametrize(
    "words",
    [
        ["checkout", "main", "-o"],
        ["export", "--format", "json", "-o"],
        ["bundle", "create"],
    ],
)
def test_no_output_takes_the_place_of_a_store(
    store: Path, cli: Cli, words: list[str], name: str
) -> None:
    before = json.loads(cli("show", "--json").stdout)
    rest = ["main"] if words[0] == "bundle" else []
    done = cli(*words, f".tfgrpo/{name}", *rest, ok=False)
    assert done.returncode == 1
    assert "database is not overwritten" in done.stderr
    with sqlite3.connect(store.with_name(name)) as db:
        assert db.execute("pragma integrity_check").fetchone() == ("ok",)
    db.close()
    assert json.loads(cli("show", "--json").stdout) == before
