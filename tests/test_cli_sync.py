"""clone, fetch, pull, push, remote, bundle and serve as commands."""

from __future__ import annotations

import ast
import json
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import TFGRPO, Cli, environment, one_line_error, problems, run_command
from scripted import ScriptedEndpoint
from store_helpers import broken
from sync_helpers import far_ssh

from tfgrpo.cli.start_context import remotes, revisions
from tfgrpo.store import Store

In = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def at(tmp_path: Path, cli: Cli) -> In:
    """Runs `tfgrpo` in a folder below `tmp_path`, with a far machine that is this one."""
    ssh = shlex.join(far_ssh(tmp_path))

    def run(folder: str, *arguments: str, **more: object) -> subprocess.CompletedProcess[str]:
        store = tmp_path / folder / ".tfgrpo/store.db"
        env = {"TFGRPO_STORE": str(store), "TFGRPO_SSH": ssh}
        return cli(*arguments, env=env, **more)

    (tmp_path / "team").mkdir()
    run("team", "init")
    run("team", "add", "Count both days.", "Round up.")
    run("team", "tag", "approved")
    return run


def clone(at: In, tmp_path: Path, name: str = "copy", location: str = "team") -> None:
    env = environment(TFGRPO_SSH=shlex.join(far_ssh(tmp_path)))
    done = run_command(["clone", location, name], tmp_path, env)
    assert done.returncode == 0, done.stderr


def test_clone_says_what_came_and_where_it_is(at: In, tmp_path: Path, cli: Cli) -> None:
    done = cli("clone", "team", "copy")
    assert done.stdout == (
        "cloned 1 version, 2 events into copy/.tfgrpo/store.db\n"
        "on branch main, at v1, 2 experiences\n"
    )
    assert broken(tmp_path / "copy/.tfgrpo/store.db") == []
    one_line_error(cli("clone", "team", "copy", ok=False), "there is already a store at")


def test_clone_names_the_folder_after_the_location(at: In, tmp_path: Path) -> None:
    here = tmp_path / "elsewhere"
    here.mkdir()
    run_command(["clone", "../team"], here)
    assert (here / "team/.tfgrpo/store.db").is_file()


def test_two_clones_share_through_a_third(at: In, tmp_path: Path) -> None:
    for name in ("ann", "bob"):
        clone(at, tmp_path, name, "far:team")
    at("ann", "add", "From Ann.")
    assert "  main  v1 → v2" in at("ann", "push").stdout
    at("bob", "add", "From Bob.")
    one_line_error(at("bob", "push", ok=False), "main would not move forward", "tfgrpo pull")
    pulled = at("bob", "pull").stdout
    assert "fetched 1 version, 1 event from origin" in pulled
    assert "merge origin main into main" in pulled
    assert "From Ann." in (tmp_path / "bob/.tfgrpo/experiences.json").read_text()
    at("bob", "push")
    assert "fast-forwarded main" in at("ann", "pull").stdout
    assert "main contains origin main" in at("ann", "pull").stdout
    for name in ("ann", "bob", "team"):
        assert at(name, "show", "main").stdout.count("] From ") == 2
        assert "no problems" in at(name, "fsck").stdout


def test_undo_takes_back_a_pull(at: In, tmp_path: Path) -> None:
    clone(at, tmp_path)
    at("team", "add", "New.")
    at("copy", "pull")
    undone = at("copy", "undo").stdout
    assert undone.startswith("undid pull origin main\n")
    assert "main is back at v1" in undone
    assert "New." not in (tmp_path / "copy/.tfgrpo/experiences.json").read_text()


def test_a_conflict_is_listed_and_decided_by_a_flag(at: In, tmp_path: Path) -> None:
    clone(at, tmp_path)
    at("team", "modify", "G0", "Count every day.")
    at("copy", "modify", "G0", "Count no day.")
    refused = at("copy", "pull", ok=False)
    one_line_error(refused, "changed on both sides")
    assert "theirs: Count every day." in refused.stderr
    at("copy", "pull", "--theirs")
    assert "Count every day." in at("copy", "show").stdout


def test_log_shows_where_the_remotes_branches_stand(at: In, tmp_path: Path) -> None:
    clone(at, tmp_path)
    assert "(HEAD -> main, origin/main, approved)" in at("copy", "log", "--oneline").stdout
    assert at("copy", "log", "origin/main..main", "--json").stdout == "[]\n"
    at("copy", "add", "Mine.")
    ahead = at("copy", "log", "origin/main..main", "--json").stdout
    assert [row["version"] for row in json.loads(ahead)] == ["v2"]


def test_remotes_are_listed_for_people_and_programs(at: In, tmp_path: Path) -> None:
    clone(at, tmp_path)
    at("copy", "remote", "add", "lab", "far:team")
    assert at("copy", "remote").stdout.splitlines()[1:] == [
        "lab     not fetched  far:team",
        f"origin  main v1      {tmp_path}/team",
    ]
    at("copy", "fetch", "lab")
    found = json.loads(at("copy", "remote", "list", "--json").stdout)
    assert found["lab"] == {"location": "far:team", "branches": {"main": 1}}
    at("copy", "remote", "set-url", "lab", "ssh://far/x")
    assert "removed lab and its branches here (1)" in at("copy", "remote", "remove", "lab").stdout
    assert "no remotes" in at("team", "remote").stdout


@pytest.mark.parametrize("command", [["fetch"], ["pull"], ["push"]])
def test_without_a_remote_the_hint_says_how_to_add_one(at: In, command: list[str]) -> None:
    one_line_error(at("team", *command, ok=False), "there is no remote", "tfgrpo remote add")
    one_line_error(at("team", *command, "nobody", ok=False), "no remote 'nobody'")


def test_a_password_is_refused_and_never_printed(at: In, cli: Cli) -> None:
    secret = "ssh://ada:hunter2@far/x"
    for command in (
        ["remote", "add", "x", secret],
        ["pull", secret],
        ["push", "ada:hunter2@far:x"],
    ):
        refused = at("team", *command, ok=False)
        one_line_error(refused, "password", code=2)
        assert "hunter2" not in refused.stderr + refused.stdout
    refused = cli("clone", secret, ok=False)
    one_line_error(refused, "password", code=2)
    assert "hunter2" not in refused.stderr


def test_bundles_carry_versions(at: In, tmp_path: Path, cli: Cli) -> None:
    assert "wrote 1 version to all.bundle" in at("team", "bundle", "create", "all.bundle").stdout
    heads = cli("bundle", "list-heads", "all.bundle").stdout
    assert "main  (HEAD)" in heads
    assert "tag approved" in heads
    assert set(json.loads(cli("bundle", "list-heads", "all.bundle", "--json").stdout)) == {
        "heads/main",
        "tags/approved",
    }
    cli("clone", "all.bundle", "copy")
    at("team", "add", "New.")
    at("team", "bundle", "create", "new.bundle", "main", "--since", "v1")
    verified = json.loads(at("copy", "bundle", "verify", "new.bundle", "--json").stdout)
    assert (verified["versions"], verified["lacking"]) == (1, [])
    at("copy", "pull", "new.bundle")
    assert "New." in at("copy", "show").stdout
    at("other", "init")
    lacking = at("other", "bundle", "verify", "new.bundle", ok=False)
    assert (lacking.returncode, lacking.stderr) == (1, "")
    assert "lacks versions it builds on" in lacking.stdout
    one_line_error(at("other", "pull", "new.bundle", ok=False), "which this store lacks")
    whole = (tmp_path / "all.bundle").read_bytes()
    (tmp_path / "all.bundle").write_bytes(whole[:-20])
    one_line_error(at("team", "bundle", "verify", "all.bundle", ok=False), "all.bundle")
    one_line_error(at("team", "push", "all.bundle", ok=False), "bundle create")


def test_a_merge_that_was_made_elsewhere_is_fast_forwarded_to(at: In, tmp_path: Path) -> None:
    clone(at, tmp_path)
    at("team", "switch", "-c", "web", "v0")
    at("team", "add", "From the web.")
    at("team", "switch", "main")
    at("team", "merge", "web")
    assert "fast-forwarded main from v1 to v3" in at("copy", "pull").stdout


def test_push_moves_all_branches_forces_and_deletes(at: In, tmp_path: Path) -> None:
    clone(at, tmp_path)
    at("copy", "branch", "web", "v0")
    assert "  web  new, at v0" in at("copy", "push", "--all").stdout
    at("copy", "reset", "v0")
    one_line_error(at("copy", "push", ok=False), "would not move forward", "--force")
    assert "  main  v1 → v0" in at("copy", "push", "--force").stdout
    assert "  web  v0 → deleted" in at("copy", "push", "origin", "web", "--delete").stdout
    assert "web" not in at("team", "branch").stdout


@pytest.mark.parametrize(
    "flags",
    [
        ("origin", "web", "--delete", "--tags"),
        ("origin", "web", "--delete", "--all"),
        ("--delete",),
        ("origin", "main", "--all"),
    ],
    ids=" ".join,
)
def test_push_deletes_and_sends_no_names_that_were_not_given(
    at: In, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    clone(at, tmp_path)
    at("copy", "branch", "web", "v0")
    at("copy", "push", "origin", "web")
    one_line_error(at("copy", "push", *flags, ok=False), code=2)
    assert "web" in at("team", "branch").stdout
    assert "approved" in at("team", "tag").stdout


def test_completion_offers_remotes_and_their_branches(at: In, tmp_path: Path) -> None:
    clone(at, tmp_path)
    with Store.open(tmp_path / "copy/.tfgrpo/store.db") as store:
        assert ("origin/main", "remote branch at v1") in revisions(store)
        assert remotes(store) == [("origin", str(tmp_path / "team"))]


def test_serve_answers_what_the_format_page_says(at: In, tmp_path: Path) -> None:
    def serve(*requests: dict[str, object]) -> list[dict[str, object]]:
        said = "".join(json.dumps(r) + "\n" for r in requests)
        done = run_command(["serve"], tmp_path, input=said)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    hello = {"ask": "hello", "protocol": 1, "path": "team"}
    (names,) = serve(hello)
    tip = names["names"]["heads/main"]  # type: ignore[index]
    assert (names["protocol"], names["head"]) == (1, "main")
    _, history, known = serve(
        hello,
        {"ask": "history", "tips": [tip], "limit": 1},
        {"ask": "known", "digests": [tip, "00" * 32]},
    )
    ((newest, (before,)),) = history["history"]  # type: ignore[misc]
    assert (newest, known) == (tip, {"known": [tip]})
    _, header, version, end = serve(hello, {"ask": "versions", "wants": [tip], "stops": [before]})
    assert (header["tfgrpo"], version["version"], end["end"]) == ("bundle", tip, 1)
    done = subprocess.run(
        [TFGRPO, "--store", "team/.tfgrpo/store.db", "serve"],
        cwd=tmp_path,
        env=environment(),
        input=json.dumps({**hello, "path": "elsewhere"}) + "\n",
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == names, "a store that is named is served alone"
    for bad in (
        [{"ask": "known", "digests": []}],
        [{**hello, "protocol": 9}],
        [{**hello, "path": "nowhere"}],
        [hello, {"ask": "versions", "wants": ["00" * 32], "stops": []}],
        [hello, {"ask": "dance"}],
        [hello, {"ask": 7}],
        [[]],
    ):
        assert set(serve(*bad)[-1]) == {"error", "hint", "kind"}  # type: ignore[arg-type]


def test_a_clone_renders_and_evaluates_a_library_as_it_was_trained(
    cli: Cli, tmp_path: Path, endpoint: ScriptedEndpoint
) -> None:
    (tmp_path / "problems.jsonl").write_text(problems(range(4)))
    model = ("--model", "m", "--base-url", endpoint.base_url)
    objective = "Add up, and box the sum: \\boxed{}."
    flags = ("--epochs", "1", "--batch-size", "4", "--agent-objective", objective)
    cli("train", "problems.jsonl", *model, *flags)
    cli("clone", ".", "copy")
    script = "import tfgrpo; print(tfgrpo.library().render('What?')); print(len(tfgrpo.library()))"
    said = []
    for folder in (tmp_path, tmp_path / "copy"):
        done = subprocess.run(
            [TFGRPO.with_name("python"), "-c", script],
            cwd=folder,
            env=environment(),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    assert said[0] == said[1]
    assert objective in ast.literal_eval(said[0].splitlines()[0])[0]["content"]
    store = ("--store", str(tmp_path / "copy/.tfgrpo/store.db"))
    scored = json.loads(cli(*store, "eval", "problems.jsonl", *model, "--json").stdout)
    assert scored
    again = cli(*store, "train", "problems.jsonl", *model, "--epochs", "1", "--keep-going").stdout
    assert "run problems-2" in again
