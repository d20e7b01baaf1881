"""Errors that say what to type, where somebody took one thing for another."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import TFGRPO, Cli, environment, one_line_error, problems
from scripted import ScriptedEndpoint
from waiting import until

import tfgrpo
from tfgrpo.store import Operation, Store
from tfgrpo.store.errors import SettingsError, StoreError


@pytest.fixture
def shop(cli: Cli, tmp_path: Path) -> Cli:
    cli("init")
    cli("add", "Count both days.")
    (tmp_path / "data.jsonl").write_text(problems(range(3)))
    return cli


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("compare v0 HEAD data.jsonl", "tfgrpo compare data.jsonl --library HEAD --against v0"),
        ("compare v1 data.jsonl", "tfgrpo compare data.jsonl --library v1"),
        ("compare main", "tfgrpo compare DATA.jsonl --library main"),
        ("eval HEAD data.jsonl", "tfgrpo eval data.jsonl --library HEAD"),
        ("eval v0", "tfgrpo eval DATA.jsonl --library v0"),
        ("blame G0", "tfgrpo show G0"),
        ("log -- G0", "tfgrpo log --experience G0"),
        ("log G0", "tfgrpo log --experience G0"),
        ("diff G0", "tfgrpo show G0"),
        ("checkout G0", "tfgrpo show G0"),
        ("trust data.jsonl", "a settings file (.toml)"),
    ],
)
def test_what_was_meant_is_told(shop: Cli, command: str, hint: str) -> None:
    verb = command.split()[0]
    code = 2 if verb in ("compare", "eval") else 1
    one_line_error(shop(*command.split(), ok=False), hint, code=code)


def test_an_experiences_whole_id_is_known_too(shop: Cli, tmp_path: Path) -> None:
    with Store.open(tmp_path / ".tfgrpo/store.db") as store:
        (experience,) = store.library()
    one_line_error(shop("blame", experience.id, ok=False), f"tfgrpo show {experience.id}")


def test_eval_takes_one_file(shop: Cli) -> None:
    one_line_error(shop("eval", "data.jsonl", "data.jsonl", ok=False), "one DATA", code=2)


def test_a_store_can_be_trusted_by_its_file_or_a_link_to_it(shop: Cli, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(".tfgrpo/store.db")
    for place in (".tfgrpo/store.db", "link", "."):
        assert "nothing in" in shop("trust", place).stdout


@pytest.mark.parametrize("place", [".", ".tfgrpo", ".tfgrpo/store.db"])
def test_a_folder_is_its_store(
    shop: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for named in (place, Path(place), tmp_path / place):
        with Store.open(named) as store:
            assert len(store.library()) == 1
            assert store.path.resolve() == tmp_path / ".tfgrpo/store.db"
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreError, match=r"no store at empty/\.tfgrpo"):
        Store.open("empty")


def test_a_store_is_made_in_a_folder(tmp_path: Path) -> None:
    with Store.init(tmp_path) as store:
        store.commit("main", [Operation("ADD", text="Round up.")], message="m", author="a")
    assert (tmp_path / ".tfgrpo/store.db").is_file()


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        *(("rollout", "domain=tfgrpo.Domain("), ("render", "render=…"), ("check", "check=…")),
        *(("epoch", "did you mean epochs?"), ("base_urls", "did you mean base_url?")),
        ("quite_another", "`--help-all` lists them"),
    ],
)
def test_an_option_that_there_is_not_says_what_to_write(
    tmp_path: Path, option: str, hint: str
) -> None:
    rows = [{"problem": "2+2?", "answer": "4"}]
    with pytest.raises(SettingsError, match=f"unknown setting '{option}'") as raised:
        tfgrpo.train_sync(rows, store=tmp_path, **{option: 1})
    assert hint in (raised.value.hint or "")


WEB = ("--domain", "web")


@pytest.mark.parametrize("verb", ["train", "eval", "compare"])
@pytest.mark.parametrize(
    ("more", "told"),
    [
        ((), "is no agent"),
        (("--mode", "agent"), "has no search tool"),
        (("--corpus", "passages.jsonl"), "is no agent"),
    ],
)
def test_questions_that_take_searching_need_an_agent_that_can(
    shop: Cli,
    endpoint: ScriptedEndpoint,
    tmp_path: Path,
    verb: str,
    more: tuple[str, ...],
    told: str,
) -> None:
    (tmp_path / "passages.jsonl").write_text('{"text": "Two and two are four."}\n')
    model = ("--model", "m", "--base-url", endpoint.base_url)
    done = shop(verb, "data.jsonl", *WEB, *more, *model, ok=False)
    one_line_error(done, told, "--mode agent --corpus", code=2)
    assert not endpoint.requests


def test_an_agent_that_can_search_is_estimated(shop: Cli, tmp_path: Path) -> None:
    (tmp_path / "passages.jsonl").write_text('{"text": "Two and two are four."}\n')
    searching = ("--mode", "agent", "--corpus", "passages.jsonl")
    model = ("--model", "m", "--base-url", "http://127.0.0.1:9")
    assert shop("train", "data.jsonl", *WEB, *searching, *model, "--estimate").returncode == 0
    (tmp_path / "tfgrpo.toml").write_text('[tools]\nuse = []\n[tools.mcp.find]\ncommand = "find"\n')
    shop("trust", "--yes")
    shop("train", "data.jsonl", *WEB, "--mode", "agent", *model, "--estimate")


LOADING = """
import os, signal, sys
class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Stop())
sys.argv[1:] = [sys.argv[1]]
import tfgrpo.cli.main
"""


@pytest.mark.parametrize("module", ["click", "tfgrpo.cli.start_context", "tfgrpo.cli.help"])
def test_ctrl_c_while_modules_load_prints_no_traceback(tmp_path: Path, module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", LOADING, module],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment(),
        check=False,
        timeout=240,
    )
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


def test_workers_that_are_starting_leave_ctrl_c_to_their_parent(
    tmp_path: Path, endpoint: ScriptedEndpoint
) -> None:
    """Ctrl-C goes to the group as soon as there is a worker: its modules are not loaded by then."""
    (tmp_path / "data.jsonl").write_text(problems(range(40)))
    command = [TFGRPO, "train", "data.jsonl", "--model", "m", "--base-url", endpoint.base_url]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        workers = until(lambda: process.poll() is not None or workers_of(process.pid), pause=0.002)
        assert process.poll() is None
        assert all(map(is_left_alone, workers))
        os.killpg(process.pid, signal.SIGINT)
        assert process.stderr is not None
        said = process.stderr.read()
        process.wait(timeout=240)
    assert "Traceback" not in said
    assert process.returncode == 130


def is_left_alone(worker: int) -> bool:
    """Returns whether Ctrl-C does nothing to a process yet: the signal is blocked, or ignored."""
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{worker}/status").read_text().splitlines()
    )
    masks = [int(status[name], 16) for name in ("SigBlk", "SigIgn")]
    return any(mask >> (signal.SIGINT - 1) & 1 for mask in masks)


def workers_of(parent: int) -> list[int]:
    """Returns the processes that a process has spawned for its workers."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            status, line = (place / "stat").read_text(), (place / "cmdline").read_text()
        except OSError:
            continue  # it has ended
        if int(status.rpartition(")")[2].split()[1]) == parent and "spawn_main" in line:
            found.append(int(place.name))
    return found
