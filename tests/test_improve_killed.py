"""An improvement that is killed at each of its writes, and goes on: nothing is lost, nothing is
there twice, and nothing is half done.

A command is forked with its writes counted, of files and of the store; at one of them it ends as
by `kill -9`, just before it. What is written between two such points is written by neither. The
journal's own thread is left out: `test_training_killed.py` kills at random instants. With
TFGRPO_LONG=1 each way on is taken from each point; else they take turns.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import LONG
from scripted import LESSON, Numbered, ScriptedEndpoint, teachable
from store_helpers import child, fixed
from test_decision_joins import ROWS, STATES, VERBS, begun, stands  # noqa: F401
from test_decision_joins import run as decide
from test_improve import SETTINGS, wrong_calls
from test_regress import ADD_ONE, BRIEF, Models
from test_regress import SETTINGS as REGRESS_SETTINGS
from test_training import identity, journalled

from tfgrpo.improvement import improvement_record
from tfgrpo.improvement.proposals import list_proposals
from tfgrpo.store import Operation, Store
from tfgrpo.store.activity.decisions import decisions
from tfgrpo.store.fsck import fsck

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="commands are forked")
MORTAL = """
import os, signal, sqlite3, sys, threading
at, *arguments = sys.argv[1:]
passed = 0

def point():
    global passed
    if threading.current_thread() is threading.main_thread():
        passed += 1
        if passed == int(at):
            os.kill(os.getpid(), signal.SIGKILL)

class Mortal(sqlite3.Connection):
    def execute(self, query, *values):
        if query == "commit":
            point()
        return super().execute(query, *values)

def audit(event, given):
    if event in ("os.rename", "os.remove", "os.link"):
        point()

connect = sqlite3.connect
sqlite3.connect = lambda *given, **more: connect(*given, **{**more, "factory": Mortal})
sys.addaudithook(audit)
from tfgrpo.cli.main import main
sys.argv = ["tfgrpo", *arguments]
main()
"""
PROBLEMS = 30
END = 1_000
"""More points than a command has."""


def run(folder: Path, at: int, *arguments: str) -> tuple[int, str]:
    """Runs a command that is killed at a point; returns its exit code and what it printed."""
    os.chdir(folder)
    process = child(MORTAL, at, "--no-pager", *arguments)
    out, err = process.communicate(timeout=240)
    assert process.returncode in (0, -signal.SIGKILL), err
    assert "Traceback" not in err, err
    return process.returncode, out


@pytest.fixture
def script() -> Numbered:
    return Numbered(teachable)


@pytest.fixture
def folder(tmp_path: Path, script: Numbered) -> Iterator[Path]:
    """A project with a branch prod and calls on record that went wrong."""
    base = tmp_path / "base"
    with (
        ScriptedEndpoint(script) as endpoint,
        Store.init(base / ".tfgrpo/store.db", author="ann") as store,
    ):
        settings = SETTINGS.replace("group_size = 3", "group_size = 2")
        (base / "tfgrpo.toml").write_text(settings.format(base_url=endpoint.base_url))
        store.commit("main", [Operation("ADD", text="Be brief.")], message="by hand")
        store.create_branch("prod")
        wrong_calls(store, range(PROBLEMS))
        yield base


def copies(base: Path, ways: int, name: str = "at") -> Iterator[tuple[int, int, Path]]:
    """Yields points, a way to go on from each, and a copy of the project, without an end."""
    point = 0
    while True:
        point += 1
        for way in range(ways) if LONG else (point % ways,):
            folder = base.parent / f"{name}-{point}-{way}"
            shutil.copytree(base, folder)
            yield point, way, folder


@pytest.mark.parametrize("state", ["open", "accepted", "on trial", "promoted", "rejected"])
def test_a_decision_killed_at_each_write_is_whole_or_not_there(
    state: str,
    begun: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    verbs = {
        "open": ("accept", "accept G2", "reject", "start"),
        "accepted": ("reopen", "back"),
        "on trial": ("promote", "rollback"),
        "promoted": ("rollback", "back"),
        "rejected": ("reopen",),
    }[state]
    base = Path(shutil.copytree(begun, tmp_path / "base/.tfgrpo")).parent
    for line in STATES[state]:
        assert decide(base / ".tfgrpo/store.db", line) is None
    before = stands(base / ".tfgrpo/store.db")
    for verb in verbs:
        comes_to = ROWS[state].split("; ")[list(VERBS).index(verb)]
        for point, _, there in copies(base, 1, verb.replace(" ", "-")):
            path, command = there / ".tfgrpo/store.db", shlex.split(VERBS[verb])
            code, _ = run(there, point, *command)
            assert stands(path) in (before, comes_to), (verb, point)
            if stands(path) == before:
                assert run(there, END, *command)[0] == 0
            assert stands(path) == comes_to, (verb, point)
            if code == 0:
                break
        assert point > 1, verb


def check_store(folder: Path) -> None:
    with Store.open(folder / ".tfgrpo/store.db") as store:
        assert fsck(store).problems == ()
        rounds = improvement_record.rounds(store, "prod")
        waiting = {one.branch for one in list_proposals(store, "open")}
        begun = {one.branch for one in rounds if one.ended is None}
        left = {name for name in store.branches() if name.startswith("proposal/")}
        assert left == waiting | begun, "a branch that nothing is about any more, or none"


def lives_of_problems(folder: Path) -> Counter[str]:
    """Problem → in how many parts it is of improvements that count."""
    lives: Counter[str] = Counter()
    with Store.open(folder / ".tfgrpo/store.db") as store:
        for one in improvement_record.rounds(store, "prod"):
            if one.ended in improvement_record.RETURNED:
                continue
            for part in one.parts:
                lines = (folder / part).read_text().splitlines() if part else []
                lives.update(json.loads(line)["problem"] for line in lines)
    return lives


GOING_ON = (("improve", "--accept-better"), ("improve", "--accept-better", "--new"))


@pytest.mark.parametrize("first", [(), ("--new",)])
def test_an_improvement_killed_at_each_write_comes_to_the_same(
    first: tuple[str, ...], folder: Path, script: Numbered
) -> None:
    """Killed in `improve --accept-better`, or in the same with --new after an interrupted one."""
    if first:
        assert run(folder, 14, *GOING_ON[0])[0] != 0
    for point, way, there in copies(folder, len(GOING_ON)):
        if not LONG and (point % 4 > 1 or (first and way)):
            continue
        asked = len(script.requests)
        code, _ = run(there, point, *GOING_ON[0], *first)
        killed = len(script.requests)
        if code == 0:
            break
        paid_before = journalled(there / ".tfgrpo/store.db")
        ends = [run(there, END, *GOING_ON[way]) for _ in range(2)]
        assert [code for code, _ in ends] == [0, 0], (point, way)
        if way == 0:
            paid = {identity(script.requests[n - 1]) for n in paid_before if n > asked}
            again = paid & {identity(one) for one in script.requests[killed:]}
            assert not again, (point, way)
        check_store(there)
        assert "nothing to do: 0 of" in ends[1][1], (point, way, ends)
        lives = lives_of_problems(there)
        with Store.open(there / ".tfgrpo/store.db") as store:
            rounds = improvement_record.rounds(store, "prod")
            proposals = list_proposals(store)
            texts = [e.text for e in store.library("prod")]
        assert not [problem for problem, count in lives.items() if count > 1], (point, way)
        given_up = [one for one in rounds if one.ended == "given up"]
        if not given_up:
            assert len(lives) == PROBLEMS, (point, way)
        if not lives:
            assert not proposals, (point, way)
            continue
        (proposal,) = proposals
        assert proposal.effect is not None
        better = proposal.effect.verdict == "better"
        assert better or given_up, (point, way)
        assert proposal.state == ("accepted" if better else "open"), (point, way, ends)
        assert texts == (["Be brief.", LESSON] if better else ["Be brief."]), (point, way)
    assert point > 15


def test_a_regression_killed_at_each_write_proposes_once(tmp_path: Path) -> None:
    models, base = Models(), tmp_path / "base"
    base.mkdir()
    rows = [{"problem": f"What is {n} op {n + 3}?", "answer": str(2 * n + 4)} for n in range(20)]
    (base / "heldout.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ("regress", "heldout.jsonl", "--model", "new", "--propose", "prod", "--json")
    with ScriptedEndpoint(models) as endpoint:
        (base / "tfgrpo.toml").write_text(REGRESS_SETTINGS.format(base_url=endpoint.base_url))
        with Store.init(base / ".tfgrpo/store.db", author="ann") as store:
            store.commit("main", map(fixed, (ADD_ONE, BRIEF)), message="learned")
            store.create_branch("prod")
        for point, _, there in copies(base, 1):
            if point % 2 and not LONG:
                continue
            code, _ = run(there, point, *command)
            if code != 0:
                assert run(there, END, *command)[0] == 0, point
            with Store.open(there / ".tfgrpo/store.db") as store:
                proposals = list_proposals(store)
                looks = [one.content["model"] for one in decisions(store, kind="regression")]
                left = [name for name in store.branches() if name.startswith("proposal/")]
                assert fsck(store).problems == ()
            assert len(proposals) == len(left) == 1, point
            assert looks == ["new"], point
            if code == 0:
                break
        assert point > 4
