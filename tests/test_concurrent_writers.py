"""Many processes write at once: what does not depend on what it has not seen is never refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from conftest import environment
from store_helpers import add

from tfgrpo.cli.main import tfgrpo
from tfgrpo.store import Operation, StaleVersion, Store, derived_id
from tfgrpo.store.fsck import fsck

PROCESSES, VERBS = 8, 5

PERSON = """
import sys
from tfgrpo.cli.main import tfgrpo
name, verbs = sys.argv[1], int(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
for number in range(verbs):
    for verb in (["add", f"rule {number} of {name}"], ["keep", "G0"], ["tag", f"{name}-{number}"]):
        tfgrpo(verb, standalone_mode=False)
"""


def test_eight_people_who_add_keep_and_tag_at_once_all_get_through(tmp_path: Path) -> None:
    with Store.init(tmp_path / ".tfgrpo" / "store.db") as store:
        store.commit("main", [add("the first")], message="m")
    people = [
        subprocess.Popen(
            [sys.executable, "-c", PERSON, f"p{n}", str(VERBS)],
            cwd=tmp_path,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for n in range(PROCESSES)
    ]
    for person in people:
        assert person.stdout is not None
        assert person.stdout.readline() == "ready\n"
    ended = [person.communicate("go\n", timeout=300) for person in people]
    assert [person.returncode for person in people] == [0] * PROCESSES, [e for _, e in ended]
    with Store.open(tmp_path / ".tfgrpo" / "store.db") as store:
        texts = {e.text for e in store.library()}
        assert texts == {"the first"} | {
            f"rule {i} of p{n}" for n in range(PROCESSES) for i in range(VERBS)
        }
        assert len(store.tags()) == PROCESSES * VERBS
        assert store.head.version.number == 1 + 2 * PROCESSES * VERBS
        assert fsck(store).problems == ()
        snapshot = (tmp_path / ".tfgrpo" / "experiences.json").read_text()
        assert all(text in snapshot for text in texts), "the last one writes what is there now"


A, B = derived_id("a"), derived_id("b")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store.init(tmp_path / "store.db")
    store.commit("main", [add("a", A), add("b", B)], message="m")
    return store


def test_operations_on_what_nobody_touched_go_onto_the_new_tip(store: Store) -> None:
    onto = store.tip("main")
    store.commit("main", [Operation("MODIFY", A, "a of another"), add("c")], message="m")
    mine = [Operation("MODIFY", B, "mine"), Operation("KEEP", B), add("d")]
    store.commit("main", mine, message="m", onto=onto)
    assert [e.text for e in store.library()] == ["a of another", "mine", "c", "d"]


@pytest.mark.parametrize("op", ["MODIFY", "DELETE", "KEEP"])
def test_an_operation_on_what_somebody_else_has_changed_is_refused(store: Store, op: str) -> None:
    onto = store.tip("main")
    store.commit("main", [Operation("MODIFY", A, "a of another")], message="m")
    mine = Operation(op, A, "mine" if op == "MODIFY" else None)  # type: ignore[arg-type]
    with pytest.raises(StaleVersion) as caught:
        store.commit("main", [mine], message="m", onto=onto)
    assert caught.value.hint
    assert [e.text for e in store.library()] == ["a of another", "b"]


@pytest.mark.parametrize(
    "verb",
    [
        ["add", "mine"],
        ["keep", "G1"],
        ["modify", "G1", "mine"],
        ["delete", "G1"],
        ["merge", "web"],
        ["cherry-pick", "web"],
        ["import", "list.md"],
    ],
)
def test_a_verb_goes_on_where_another_process_commits_just_before_it(
    store: Store, verb: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store.create_branch("web")
    store.commit("web", [add("theirs")], message="theirs")
    store.commit("main", [add("ours")], message="ours")
    (tmp_path / "list.md").write_text("- imported\n")
    real = Store.commit
    meanwhile = [[Operation("MODIFY", A, "a of another")]]

    def commit(self: Store, *arguments: object, **details: object) -> object:
        if meanwhile:
            real(store, "main", meanwhile.pop(), message="in between")
        return real(self, *arguments, **details)  # type: ignore[arg-type]

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Store, "commit", commit)
    done = CliRunner().invoke(tfgrpo, ["--store", str(store.path), *verb])
    assert done.exit_code == 0, (done.output, done.exception)
    assert [v.message for v in store.log()][1] == "in between"
    assert "a of another" in [e.text for e in store.library()]
    assert fsck(store).problems == ()


def test_a_verb_that_would_undo_what_another_process_wrote_is_refused(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Store.commit
    meanwhile = [[Operation("MODIFY", A, "a of another")]]

    def commit(self: Store, *arguments: object, **details: object) -> object:
        if meanwhile:
            real(store, "main", meanwhile.pop(), message="in between")
        return real(self, *arguments, **details)  # type: ignore[arg-type]

    monkeypatch.setattr(Store, "commit", commit)
    done = CliRunner().invoke(tfgrpo, ["--store", str(store.path), "modify", "G0", "mine"])
    assert isinstance(done.exception, StaleVersion)
    assert [e.text for e in store.library()] == ["a of another", "b"]
