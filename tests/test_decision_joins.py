"""Where proposals and experiments meet: each verb in each state in which another has left a store.

A cell of `JOINS` is what comes of it: how the proposal stands and the experiment, and what is in
the library that is served; `-` where the verb is refused, and then nothing at all is recorded.
A proposal that was decided is no candidate until it is reopened.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from proxy_fixtures import make

from tfgrpo.cli.main import tfgrpo
from tfgrpo.improvement.proposals import Draftsman, get_proposal, propose
from tfgrpo.production.experiment import Experiment, experiments
from tfgrpo.production.experiment_end import settle_all
from tfgrpo.store import Operation, Store, TfgrpoError
from tfgrpo.store.activity.decisions import decisions
from tfgrpo.store.fsck import fsck

TEXTS = {"Count both days.": "c", "Give units.": "1", "Say please.": "2", "Other.": "m"}
"""What a library may have, and its letter: the control's, the proposal's two, another branch's."""
TRIAL = "experiment start e --control prod --candidate p1"
OTHER = "experiment start e --control prod --candidate main"
ACCEPT, REJECT = "proposal accept p1 --why w", "proposal reject p1 --why w"
PROMOTE = "experiment promote e --force"
STATES = {
    "open": (),
    "part": (f"{ACCEPT} --only G1",),
    "accepted": (ACCEPT,),
    "part, rest not": (f"{ACCEPT} --only G1", REJECT),
    "rejected": (REJECT,),
    "on trial": (TRIAL,),
    "part on trial": (f"{ACCEPT} --only G1", TRIAL),
    "stopped": (TRIAL, "experiment stop e"),
    "rolled back": (TRIAL, "experiment rollback e"),
    "promoted": (TRIAL, PROMOTE),
    "part promoted": (f"{ACCEPT} --only G1", TRIAL, PROMOTE),
    "promoted and back": (TRIAL, PROMOTE, "experiment rollback e"),
    "forced in": (TRIAL, f"{ACCEPT} --force"),
    "forced out": (TRIAL, f"{REJECT} --force"),
    "accepted, other on trial": (ACCEPT, OTHER),
    "other on trial": (OTHER,),
    "other promoted": (OTHER, PROMOTE),
    "accepted, undone": (ACCEPT, "undo"),
    "accepted, back": (ACCEPT, "branch --back prod --why w"),
    "accepted, reverted": (ACCEPT, "revert v5"),
    "promoted, undone": (TRIAL, PROMOTE, "undo"),
    "promoted, back": (TRIAL, PROMOTE, "branch --back prod --why w"),
    "promoted, moved": (TRIAL, PROMOTE, "undo", "add -m w Other."),
    "branch gone": ("branch -d proposal/x --force",),
    "checked out": ("checkout proposal/x",),
    "target gone": ("checkout main", "branch -d prod --force"),
    "target gone on trial": (TRIAL, "checkout main", "branch -d prod --force"),
}
VERBS = {
    "accept": ACCEPT,
    "accept G2": f"{ACCEPT} --only G2",
    "reject": REJECT,
    "reopen": "proposal reopen p1",
    "start": "experiment start f --control prod --candidate p1",
    "promote": "experiment promote e",
    "rollback": "experiment rollback e",
    "stop": "experiment stop e",
    "back": "branch --back prod --why w",
    "rejoin": "proposal reopen p1 --force",
}
ENDS = {"running": "runs", "promoted": "won", "rolled back": "back", "stopped": "ends"}
JOINS = """
open:
    a c12; o2 c2; r c; -; o f runs c; -; -; -; -; -
part:
    a c12; a c12; a2 c1; o c; o2 f runs c1; -; -; -; o2 c; o c
accepted:
    -; -; -; o c; -; -; -; -; a c; o c
part, rest not:
    -; -; -; o c; -; -; -; -; a2 c; o c
rejected:
    -; -; -; o c; -; -; -; -; -; o c
on trial:
    -; -; -; -; -; a e won c12; o e back c; o e ends c; -; -
part on trial:
    -; -; -; -; -; a e won c12; o2 e back c1; o2 e ends c1; o2 e ends c; o e runs c
stopped:
    a e ends c12; o2 e ends c2; r e ends c; -; o e ends f runs c; -; -; -; -; -
rolled back:
    a e back c12; o2 e back c2; r e back c; -; o e back f runs c; -; -; -; -; -
promoted:
    -; -; -; -; -; -; o e back c; -; a e won c; -
part promoted:
    -; -; -; -; -; -; o2 e back c1; -; a e won c1; -
promoted and back:
    a e back c12; o2 e back c2; r e back c; -; o e back f runs c; -; -; -; -; -
forced in:
    -; -; -; o e runs c; -; -; a e back c12; a e ends c12; a e ends c; o e runs c
forced out:
    -; -; -; o e runs c; -; a e won c12; r e back c; r e ends c; -; o e runs c
accepted, other on trial:
    -; -; -; -; -; -; a e back c12; a e ends c12; a e ends c; o e runs c
other on trial:
    -; -; r e runs c; -; -; o e won cm; o e back c; o e ends c; -; -
other promoted:
    a e won cm12; o2 e won cm2; r e won cm; -; o e won f runs cm; -; o e back c; -; o e won c; -
accepted, undone:
    -; -; -; o c; -; -; -; -; -; o c
accepted, back:
    -; -; -; o c; -; -; -; -; -; o c
accepted, reverted:
    -; -; -; o c; -; -; -; -; a c12; o c
promoted, undone:
    -; -; -; o e won c; -; -; o e back c; -; -; o e won c
promoted, back:
    -; -; -; o e won c; -; -; o e back c; -; -; o e won c
promoted, moved:
    -; -; -; o e won cm; -; -; -; -; a e won c; o e won cm
branch gone:
    a c12; o2 c2; r c; -; o f runs c; -; -; -; -; -
checked out:
    a c12; o2 c2; r c; -; o f runs c; -; -; -; -; -
target gone:
    -; -; r ∅; -; -; -; -; -; -; -
target gone on trial:
    -; -; -; -; -; -; o e back ∅; o e ends ∅; -; -
"""


def run(path: Path, line: str) -> str | None:
    """Runs a command; returns why it was refused, None where it was not."""
    done = CliRunner().invoke(tfgrpo, ["--store", str(path), "--no-pager", *shlex.split(line)])
    if isinstance(done.exception, TfgrpoError):
        assert done.exception.hint, f"{line}: {done.exception} and no way on"
        return f"{done.exception} ({done.exception.hint})"
    assert done.exit_code == 0, (line, done.output, done.exception)
    return None


def stands(path: Path) -> str:
    """How all stands, as a cell has it."""
    with Store.open(path) as store:
        proposal = get_proposal(store, "p1")
        states = {one.state for one in proposal.changes}
        state = proposal.state[0] if len(states) == 1 else f"{proposal.state[0]}{len(states)}"
        trials = "".join(f" {one.name} {ENDS[one.state]}" for one in experiments(store))
        branches = store.branches()
        served = store.library("prod") if "prod" in branches else ()
        assert fsck(store).problems == ()
        named = "".join(TEXTS[e.text] for e in served)
    return f"{state}{trials} {named or '∅'}"


def recorded(path: Path) -> tuple[object, ...]:
    """All that a refused verb leaves as it is."""
    with Store.open(path) as store:
        return decisions(store), store.branches(), store.head, store.port.last_version()


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`prod`, a branch `main` beside it, and a proposal p1 of two additions."""
    path = tmp_path_factory.mktemp("begun") / ".tfgrpo/store.db"
    with closing(make(path, "Count both days.")) as store:
        store.create_branch("prod")
        store.commit("main", [Operation("ADD", text="Other.")], message="other")
        store.create_branch("proposal/x", "prod")
        for text in ("Give units.", "Say please."):
            store.commit("proposal/x", [Operation("ADD", text=text)], message=text)
        propose(store, Draftsman("proposal/x", "prod", "improve", store.tip("prod")))
        store.checkout("prod")
    return path.parent


def joined(begun: Path, folder: Path, state: str) -> Iterator[tuple[str, str, str | None, Path]]:
    """Yields for each verb in a state: the verb, the state before as a cell, why it was refused,
    and the store after."""
    base = folder / "state"
    shutil.copytree(begun, base)
    for line in STATES[state]:
        assert run(base / "store.db", line) is None, (state, line)
    for verb, line in VERBS.items():
        there = folder / verb.replace(" ", "-")
        shutil.copytree(base, there)
        yield verb, stands(base / "store.db"), run(there / "store.db", line), there / "store.db"


def can_wait_again(path: Path) -> bool:
    """Whether a decided proposal can be had to wait again, by a verb that needs no force."""
    with Store.open(path) as store:
        if get_proposal(store, "p1").state == "open":
            return True
        names = [one.name for one in experiments(store)]
        if "prod" not in store.branches():
            return True
    tries = ["proposal reopen p1"]
    tries += [f"experiment {verb} {name}" for name in names for verb in ("rollback", "stop")]
    for line in tries:
        run(path, line)
    refused = run(path, "proposal reopen p1")
    with Store.open(path) as store:
        return get_proposal(store, "p1").state == "open" or refused is None


def tabulated(begun: Path, folder: Path, state: str) -> str:
    cells = []
    for verb, before, refused, path in joined(begun, folder, state):
        after = stands(path)
        if refused is not None:
            assert after == before, (state, verb)
            assert recorded(path) == recorded(folder / "state/store.db"), (state, verb)
        cells.append("-" if refused else after)
        assert can_wait_again(path), (state, verb, after, refused)
    return "; ".join(cells)


ROWS = dict(row.split(":\n    ") for row in re.split(r"\n(?=\S)", JOINS.strip()))


@pytest.mark.parametrize("state", STATES)
def test_each_verb_in_each_state(state: str, begun: Path, tmp_path: Path) -> None:
    assert tabulated(begun, tmp_path, state) == ROWS[state]


def test_what_was_taken_in_two_parts_is_in_no_branch_of_what_was_rejected(
    begun: Path, tmp_path: Path
) -> None:
    path = Path(shutil.copytree(begun, tmp_path / "store"), "store.db")
    for line in (f"{ACCEPT} --only G1", ACCEPT):
        assert run(path, line) is None
    with Store.open(path) as store:
        assert sorted(store.branches()) == ["main", "prod"]


def test_a_promotion_of_what_was_taken_in_part_counts_each_change_once(
    begun: Path, tmp_path: Path
) -> None:
    path = Path(shutil.copytree(begun, tmp_path / "store"), "store.db")
    for line in STATES["part promoted"]:
        assert run(path, line) is None
    with Store.open(path) as store:
        proposal = get_proposal(store, "p1")
        assert list(proposal.accepted) == [one.experience for one in proposal.changes]


def test_a_branch_that_is_gone_keeps_no_other_experiment_from_its_end(
    begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(shutil.copytree(begun, tmp_path / "store"), "store.db")
    with Store.open(path) as store:
        store.create_branch("shop", "v1")
    for line in (f"{TRIAL} --auto", "experiment start f --control shop --candidate main --auto"):
        assert run(path, line) is None
    for line in ("checkout main", "branch -d prod --force"):
        assert run(path, line) is None
    settled: list[str] = []

    def noted(store: Store, one: Experiment) -> None:
        settled.append(one.name)

    monkeypatch.setattr("tfgrpo.production.experiment_end.settle", noted)
    settle_all(str(path))
    assert settled == ["f"]
