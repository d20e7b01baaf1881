"""Every verb of the command line on a library in a PostgreSQL database."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from conftest import Cli, one_line_error, problems
from postgres import Cluster
from scripted import ScriptedEndpoint

from tfgrpo.cli.main import COMMANDS, tfgrpo
from tfgrpo.store import Store

pytestmark = pytest.mark.postgres

DRIVEN: set[str] = set()
ELSEWHERE = {"ui", "proxy", "mcp", "watch", "model", "serve", "completion", "help", "up", "worker"}
"""They serve until they are ended, or have no store."""


class Shell:
    """Runs commands on one store in this process."""

    def __init__(self, store: str) -> None:
        self.store = store

    def __call__(self, *arguments: str, code: int = 0, input: str = "") -> Result:
        DRIVEN.add(arguments[0])
        command = ["--store", self.store, *arguments]
        result = CliRunner().invoke(tfgrpo, command, input=input)
        if result.exit_code != code and result.exception is not None:
            raise AssertionError(arguments, result.output) from result.exception
        assert result.exit_code == code, (arguments, result.output)
        return result


@pytest.fixture
def run(shared: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TFGRPO_AUTHOR", "tester")
    yield Shell(shared)


def test_every_verb_works_on_a_shared_database(
    run: Shell, tmp_path: Path, endpoint: ScriptedEndpoint
) -> None:
    # begin and change
    assert run.store in run("init").output.replace("\n", "")
    assert "already a store" in run("init").output
    for text in ("Count both days.", "Round up.", "Say why."):
        run("add", text)
    ids = list(Store.open(run.store).library().ids)
    run("modify", ids[0], "Count both ends.")
    run("keep", ids[1])
    run("branch", "web")
    run("switch", "web")
    run("delete", ids[2])
    run("switch", "main")
    run("add", "Mind the units.")
    run("merge", "web")
    run("revert", "HEAD~1")
    run("cherry-pick", "HEAD~2")
    run("undo")
    run("redo")
    run("reset", "HEAD~1")
    run("tag", "approved")
    run("tag", "--protect", "approved")
    # look
    status = json.loads(run("status", "--json").output)
    assert status["store"] == run.store
    assert status["bytes"] > 0
    for line in (
        "status", "log --oneline", "show HEAD", "diff v1 HEAD", f"history {ids[0]}", "blame",
        "credit", "stats", "reflog", "export HEAD --format md", "bisect start HEAD v1",
        "bisect reset", "power --difference 0.1 --within 0.4 --between 0.2", "trust --list",
        "proposals", "decisions", "experiment list", "traffic",
    ):  # fmt: skip
        if line.split()[0] in COMMANDS:
            run(*line.split())
    # move libraries about
    run("checkout", "v1", "-o", "there.json")
    run("checkout", "main")
    run("export", "HEAD", "--format", "md", "-o", "mine.md")
    edited = (tmp_path / "mine.md").read_text().replace("Count both ends.", "Count every end.")
    (tmp_path / "mine.md").write_text(edited)
    run("edit", "--file", "mine.md")
    run("import", "mine.md")
    run("mirror", "git", "mirrored")
    run("bundle", "create", "all.bundle")
    run("bundle", "verify", "all.bundle")
    run("remote", "add", "elsewhere", "all.bundle")
    run("remote")
    run("fetch", "elsewhere")
    run("remote", "remove", "elsewhere")
    # train and look at it
    (tmp_path / "problems.jsonl").write_text(problems([1, 2]))
    model = ("--base-url", endpoint.base_url, "--model", "m", "--no-cache")[:4]
    small = ("--epochs", "1", "--batch-size", "2", "--group-size", "2")
    run("train", "problems.jsonl", *small, *model)
    run("train", "--resume", "problems")
    for line in ("runs", "runs problems", "rollouts", "cost", "plot"):
        run(*line.split())
    run("eval", "problems.jsonl", "--samples", "1", *model)
    run("compare", "v0", "HEAD", "--data", "problems.jsonl", "--samples", "1", *model)
    # in production
    run("branch", "prod")
    run("switch", "prod")
    run("add", "Speak plainly.")
    run("rollback", "prod", "--why", "in the wrong tone")
    run("switch", "main")
    # maintain
    secret = "sk-verysecret"
    run("add", f"the key is {secret}")
    run("redact", "--text", secret, "--reason", "leaked", "--yes")
    assert secret not in run("export", "HEAD", "--format", "md").output
    assert "sound" in run("fsck").output or "problems" not in run("fsck").output
    run("fsck", "--repair")
    missing = set(COMMANDS) - DRIVEN - ELSEWHERE
    assert missing == {"verify", "collect", "feedback", "improve", "regress", "accept", "reject",
        "pull", "push", "clone"}  # fmt: skip
