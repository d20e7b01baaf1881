"""Every verb of the command line on a library in a PostgreSQL database."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from conftest import TFGRPO, command_server, environment, problems
from postgres import Cluster, binaries
from scripted import ScriptedEndpoint

from tfgrpo.cli.main import COMMANDS, tfgrpo
from tfgrpo.store import Operation, Store
from tfgrpo.ui.export_pages import page_alone

pytestmark = pytest.mark.postgres

DRIVEN: set[str] = set()
ELSEWHERE = {
    *("ui", "proxy", "mcp", "watch", "model", "serve", "completion", "help", "verify"),
    *("workers", "store", "collect", "feedback", "improve", "regress", "rollout"),
    *("clone", "fetch", "pull", "push"),
}
"""They run until they are ended, have no store, stand on a file of their own, are below, or
in test_postgres_shared.py."""


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
def run(shared: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TFGRPO_AUTHOR", "tester")
    return Shell(shared)


def test_every_verb_works_on_a_shared_database(
    run: Shell, tmp_path: Path, endpoint: ScriptedEndpoint
) -> None:
    # begin and change
    assert run.store in run("init").output.replace("\n", "")
    assert "already a store" in run("init").output
    for text in ("Count both days.", "Round up.", "Say why."):
        run("add", text)
    ids = [one.id for one in Store.open(run.store).library()]
    run("modify", ids[0], "Count both ends.")
    run("keep", ids[1])
    run("move", ids[2], "--first")
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
        "status", "log --oneline", "show HEAD", "diff v1 HEAD", f"show {ids[0]}", "blame",
        "credit", "status", "reflog", "export HEAD --format md", "bisect start HEAD v1",
        "bisect reset", "power --difference 0.1 --within 0.4 --between 0.2", "trust --show",
        "proposal", "experiment list",
    ):  # fmt: skip
        run(*line.split())
    run("traffic", code=1)  # nothing went through a proxy here
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
    run("compare", "problems.jsonl", "--against", "v0", "--samples", "1", *model)
    run("prove", "main", "--data", "problems.jsonl", *small, *model)
    # in production
    run("branch", "prod")
    run("switch", "prod")
    run("add", "Speak plainly.")
    run("branch", "--back", "prod", "--why", "in the wrong tone")
    run("switch", "main")
    run("key", "new", "shop", "--budget", "5/day")
    assert "shop" in run("key", "list").output
    run("key", "revoke", "shop")
    # maintain
    secret = "sk-verysecret"
    run("add", f"the key is {secret}")
    run("redact", "--text", secret, "--reason", "leaked", "--yes")
    assert secret not in run("export", "HEAD", "--format", "md").output
    assert "no problems" in run("fsck").output
    run("fsck", "--repair")
    run("store", "members")
    assert set(COMMANDS) - DRIVEN - ELSEWHERE == set()


def digests(store: str | Path) -> list[bytes]:
    with Store.open(store) as opened:
        return [version.digest for version in opened.log()]


def test_libraries_go_between_a_file_and_a_database_with_equal_digests(
    run: Shell, tmp_path: Path, cluster: Cluster
) -> None:
    here = Shell(str(tmp_path / "own" / ".tfgrpo" / "store.db"))
    here("init")
    here("add", "Count both days.")
    here("tag", "first")
    run("clone", here.store)
    assert digests(run.store) == digests(here.store)
    again = run("clone", here.store, code=1)
    assert "already a store" in str(again.exception)
    # from the file into the database
    here("remote", "add", "team", run.store)
    here("add", "Round up.")
    here("push", "team")
    assert digests(run.store) == digests(here.store)
    # from the database into the file
    with Store.open(run.store) as store:
        store.commit("main", [Operation("ADD", text="Say why.")], message="m")
    here("fetch", "team")
    here("pull", "team")
    assert digests(run.store) == digests(here.store)
    # from one database into a file that was not there, and into another library
    copy = Shell(str(tmp_path / "copy.db"))
    copy("clone", run.store)
    other = Shell(run.store + "-copy")
    other("clone", run.store)
    assert digests(copy.store) == digests(other.store) == digests(run.store)
    assert "no problems" in copy("fsck").output
    assert "no problems" in other("fsck").output
    run("add", "And more.")
    other("pull")
    assert digests(other.store) == digests(run.store)


def test_a_clone_into_a_database_that_fails_leaves_no_library(run: Shell, tmp_path: Path) -> None:
    (tmp_path / "no.bundle").write_text("nothing")
    run("clone", "no.bundle", code=1)
    assert "there is no library" in str(run("log", code=1).exception)


CLONE = """
import sys, time
from tfgrpo.cli.main import main
from tfgrpo.store.transfer import sync
def landed(*arguments, land=sync._land):
    done = land(*arguments)
    print("ready", flush=True)
    time.sleep(60)
    return done
sync._land = landed
main()
"""


def test_a_clone_into_a_database_that_is_killed_leaves_no_library(
    run: Shell, tmp_path: Path, cluster: Cluster
) -> None:
    here = Shell(str(tmp_path / "own.db"))
    here("init")
    here("add", "Count both days.")
    command = [sys.executable, "-c", CLONE, "--store", run.store, "clone", here.store]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=tmp_path) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == b"ready\n", "everything has arrived"
        killed.kill()
    assert "there is no library" in str(run("log", code=1).exception)
    run("clone", here.store)
    assert digests(run.store) == digests(here.store)


def test_who_was_connected_is_shown_where_the_author_has_another_name(
    run: Shell, cluster: Cluster
) -> None:
    run("init")
    run("add", "Count both days.")
    with Store.open(run.store) as store:
        user = store.port.storage.recorder(1)
        assert user
        store.commit("main", [Operation("ADD", text="Round up.")], message="m", author=user)
        page = page_alone(store.path, "/version/v1", author="x")
    for output in (run("log", "v1", "-n", "1").output, run("show", "v1").output, page):
        assert f"by tester, recorded by {user}" in " ".join(output.split())
    assert "recorded by" not in run("log", "-n", "1").output, "as its author is the same"
    for said in (
        json.loads(run("log", "--json", "v1", "-n", "1").output)[0],
        json.loads(run("show", "v1", "--json").output),
        json.loads(run("blame", "v1", "--json").output)[0],
    ):
        assert (said["author"], said["recorded_by"]) == ("tester", user)


PAGE = Path(__file__).parent.parent / "docs" / "scale.md"


def test_each_step_of_the_page_on_a_shared_database_runs(cluster: Cluster, tmp_path: Path) -> None:
    section = PAGE.read_text().split("\n## A shared database\n")[1].split("\n## ")[0]
    script = "\n".join(re.findall(r"^```sh\n(.*?)^```", section, re.S | re.M))
    script = script.replace("ann@db.example/team?", f"ann@/team?host={cluster.folder}&")
    assert "db.example" not in script
    Store.init(tmp_path / "new.db").close()
    (tmp_path / "old" / ".tfgrpo").mkdir(parents=True)
    (tmp_path / "new.db").rename(tmp_path / "old" / ".tfgrpo" / "store.db")
    programs = binaries()
    done = subprocess.run(
        ["sh", "-e", "-c", script],
        cwd=tmp_path,
        env=environment(
            PATH=f"{command_server().programs}:{TFGRPO.parent}:{programs}:{os.environ['PATH']}",
            PGHOST=str(cluster.folder),
            PGUSER="postgres",
        ),
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "bob     trainer" in done.stdout
