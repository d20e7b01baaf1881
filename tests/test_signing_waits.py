"""While a key asks a person for a passphrase or a touch, others write."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from store_helpers import add
from waiting import until

from tfgrpo.hand_edits import move_experiences
from tfgrpo.improvement.proposals import Draftsman, accept, propose
from tfgrpo.improvement.regression import propose_expiry
from tfgrpo.store import Operation, Store
from tfgrpo.store import signing as signatures
from tfgrpo.store.fsck import fsck
from tfgrpo.store.history.merge import cherry_pick_all, merge
from tfgrpo.store.redact import Target, redact
from tfgrpo.store.signing import recordings

KEYGEN = shutil.which("ssh-keygen")
pytestmark = pytest.mark.skipif(KEYGEN is None, reason="there is no ssh-keygen here")
SLOW = """#!/bin/sh
case "$*" in *"-Y sign"*)
    echo . >> "{folder}/asked"
    n=0
    while [ ! -e "{folder}/touched" ] && [ $n -lt 6000 ]; do sleep 0.05; n=$((n+1)); done
    echo . >> "{folder}/signs" ;;
esac
exec "{keygen}" "$@"
"""
PATIENCE = 240


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with Ann's key, and an ssh-keygen on the path that signs once there is a file
    `touched` in it."""
    folder = tmp_path / "person"
    folder.mkdir()
    key = str(folder / "ann")
    subprocess.run([str(KEYGEN), "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    program = folder / "bin/ssh-keygen"
    program.parent.mkdir()
    program.write_text(SLOW.format(folder=folder, keygen=KEYGEN))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return folder


def commit(store: Store) -> None:
    rules = [add("Round up."), Operation("MODIFY", store.library("main").readable[0].id, "Count.")]
    store.commit("main", rules, message="signed")


def tag(store: Store) -> None:
    assert store.signer is not None
    signatures.sign_tag(store, "released", "main", store.signer, "", force=False)


def tag_over_another(store: Store) -> None:
    assert store.signer is not None
    signatures.sign_tag(store, "plain", "main", store.signer, "", force=True)


def put_first(store: Store) -> None:
    second = store.library("main").readable[1].id
    move_experiences(store, "main", [second])


def bring_over(store: Store) -> None:
    cherry_pick_all(store, "other", ["side~1", "side"])


def join(store: Store) -> None:
    merge(store, "other", store.tip("side"), message="joined")


def take_a_proposal(store: Store) -> None:
    accept(store, "p1", why="")


def propose_to_delete(store: Store) -> None:
    propose_expiry(store, "main", store.library("main").readable[:1], "spring")


def take_out(store: Store) -> None:
    redact(store, Target(texts=("side words",)), reason="asked for", replacement="Gone.")


def two_at_once(store: Store) -> None:
    for recording in recordings(store, "two"):
        with recording:
            for branch in ("main", "other"):
                store.commit(branch, [add(f"for {branch}")], message="signed")


ACTS: list[Callable[[Store], None]] = [
    commit,
    tag,
    tag_over_another,
    put_first,
    bring_over,
    join,
    take_a_proposal,
    propose_to_delete,
    take_out,
    two_at_once,
]


def prepared(store: Store) -> None:
    """main with two rules, a branch `side` with two more, `other`, a proposal and a tag."""
    store.commit("main", [add("Count both days."), add("Name the day.")], message="rules")
    for name in ("side", "other", "proposal/x"):
        store.create_branch(name, "main")
    for text in ("side words", "more"):
        store.commit("side", [add(text)], message="side")
    store.commit("other", [add("theirs")], message="other")
    store.commit("proposal/x", [add("proposed")], message="proposed")
    propose(store, Draftsman("proposal/x", "main", "test", store.tip("main"), None, {}))
    store.create_tag("plain", "main")


def while_it_asks(where: str, person: Path, act: Callable[[Store], None]) -> None:
    """Has another writer commit while the act waits for a signature, and checks what came of it."""
    with Store.init(where, author="ann") as store:
        prepared(store)
        before = store.port.last_version()
        public = (person / "ann.pub").read_text()
        Path(signatures.allowed_signers(store)).write_text(f"ann@example.org {public}")
    failed: list[BaseException] = []

    def work() -> None:
        try:
            with Store.open(where, author="ann") as own:
                own.signer = signatures.signer(str(person / "ann"))
                act(own)
        except BaseException as error:
            failed.append(error)

    signing = threading.Thread(target=work)
    signing.start()
    try:
        until(lambda: failed or (person / "asked").exists())
        assert not failed
        with Store.open(where, author="bob") as other:
            theirs = other.commit("main", [add("by another")], message="m")
        assert not (person / "signs").exists(), "the other writer waited"
    finally:
        (person / "touched").touch()
        signing.join(PATIENCE)
    assert failed == []
    with Store.open(where) as store:
        assert fsck(store).problems == ()
        assert theirs.number == before + 1
        assert "by another" in {one.text for one in store.library("main")}
        made = store.versions_at(range(theirs.number + 1, store.port.last_version() + 1))
        assert made != []
        assert {signatures.check(store, one).state for one in made} == {"good"}
        times = len((person / "asked").read_text().splitlines())
        assert times <= 2 * len(made), "what did not change is not signed again"


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
def test_another_writer_does_not_wait_for_a_signature(
    tmp_path: Path, person: Path, act: Callable[[Store], None]
) -> None:
    while_it_asks(str(tmp_path / ".tfgrpo/store.db"), person, act)


@pytest.mark.postgres
@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
def test_another_writer_of_a_database_does_not_wait_either(
    shared: str,
    tmp_path: Path,
    person: Path,
    act: Callable[[Store], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "here/.tfgrpo").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    while_it_asks(shared, person, act)


def test_a_key_that_refuses_records_nothing(tmp_path: Path, person: Path) -> None:
    (person / "touched").touch()
    (person / "ann").unlink()
    with Store.init(tmp_path / ".tfgrpo/store.db", author="ann") as store:
        prepared(store)
        before = store.port.last_version()
        store.signer = signatures.signer(str(person / "ann"))
        for act in ACTS:
            with pytest.raises(Exception, match="cannot sign with"):
                act(store)
            assert store.port.last_version() == before
        assert fsck(store).problems == ()
