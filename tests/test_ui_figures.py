"""The figures of the pages of experiences and production: each counts what it says it counts."""

from __future__ import annotations

import re
import time
from pathlib import Path

from ui_demo import demo
from ui_rig import Visitor, store_at

from tfgrpo.improvement.proposal_reopening import reopen
from tfgrpo.improvement.proposals import Draftsman, accept, propose
from tfgrpo.production.experiment import change_share, promote, start
from tfgrpo.production.rollback import rollback
from tfgrpo.store import Operation, Store
from tfgrpo.store.redact import Target, redact


def test_an_attempt_counts_once_and_a_confirmation_where_it_is_in_force(tmp_path: Path) -> None:
    """One evidence that was proposed, accepted, taken back and accepted again; and confirmations
    of which a gate rejected some and another branch has one."""
    store = store_at(tmp_path, "Count both days.")
    rewards = [[0, 1.0], [1, 1.0], [2, 1.0], [3, 0.0], [4, 0.0]]
    evidence = {"run": "quick", "step": 0, "problem": "hire-12", "rollouts": rewards}
    with Store.open(store, author="tfgrpo") as opened:
        base = opened.tip("main")
        opened.create_branch("proposal/1", base)
        add = Operation("ADD", None, "Name the season.", "seen", evidence)
        made = opened.commit("proposal/1", [add], message="learned")
        id = list(opened.library(made))[-1].id
        proposal = propose(opened, Draftsman("proposal/1", "main", "a test", base)).id
        accept(opened, proposal)
        reopen(opened, proposal)
        accept(opened, proposal)
        for branch in ("main", "main", "gate", "gate", "gate"):
            if branch not in opened.branches():
                opened.create_branch(branch, "main")
            opened.commit(branch, [Operation("KEEP", id, None, "again", evidence)], message="-")
    visitor = Visitor(store)
    page = re.sub(r"<[^>]+>", "", visitor.get(f"/experience/{id}?at=main"))
    assert "hire-12: 3 of 5 right" in page
    assert "Confirmed2 times, up to" in page
    listed = re.findall(r'data-title="Confirmed">(\d+)<', visitor.get("/library?at=main"))
    assert listed[-1] == "2"
    assert "Confirmed5 times" in re.sub(r"<[^>]+>", "", visitor.get(f"/experience/{id}?at=gate"))


def test_a_life_is_told_in_the_order_in_which_it_happened_on_all_branches(tmp_path: Path) -> None:
    path = store_at(tmp_path, "Count both days.")
    with Store.open(path) as opened:
        (id,) = (e.id for e in opened.library())
        opened.create_branch("web")
        for n, branch in enumerate(("main", "web", "main", "web", "main")):
            opened.commit(branch, [Operation("MODIFY", id, f"Words {n}.")], message="-")
        assert [event.version for event in opened.history(id)] == [1, 2, 3, 4, 5, 6]
    page = Visitor(path).get(f"/experience/{id}")
    life = page[page.index('class="life"') :]
    assert re.findall(r"/version/v(\d)", life) == ["6", "5", "4", "3", "2", "1"]


def test_an_experience_has_one_verdict(tmp_path: Path) -> None:
    """That of the words that the page is about; a branch with other words has its own."""
    path = demo(tmp_path, now=time.time_ns() // 1000)
    visitor = Visitor(path)
    for at, verdicts in (("main", 2), ("web", 3)):
        page = visitor.get(f"/experience/G2?at={at}")
        facts = page[page.index("<dl") : page.index("</dl>")]
        assert facts.count('class="verdict"') == verdicts, at
        assert facts.count("in these words") == (2 if at == "main" else 1), at
    assert "measured these words" in visitor.get("/experience/G0?at=main")


def test_a_version_of_the_history_shows_what_it_changed(tmp_path: Path) -> None:
    path = store_at(tmp_path, "Count both days.", "A key: sk-123.")
    with Store.open(path) as opened:
        first, second = (e.id for e in opened.library())
        opened.commit("main", [Operation("KEEP", first, None, "again")], message="seen again")
        opened.commit("main", [Operation("DELETE", first)], message="gone")
        redact(opened, Target(second), reason="a key")
        opened.commit("main", [Operation("ADD", text="Round up.")], message="Round up.")
    visitor = Visitor(path)
    for page in ("/history", "/history?since=1d"):
        rows = re.findall(r'data-number="(\d+)".*?</li>', visitor.get(page), re.S)
        said = dict(
            re.findall(
                r'data-number="(\d+)"(?:(?!</li>).)*?excerpt quiet">([^<]*)<', visitor.get(page)
            )
        )
        assert rows
        assert said == dict.fromkeys("123", "Count both days.") | {"4": "[redacted]"}


def test_production_says_since_when_a_version_is_in_force_and_from_where_decisions_went(
    tmp_path: Path,
) -> None:
    """A version made in 2001 that came into force in 2002, by the clock of the store."""
    clock = [1_000_000_000_000_000]
    path = tmp_path / ".tfgrpo/store.db"
    with Store.init(path, author="ana", now=lambda: clock[0]) as opened:
        opened.commit("main", [Operation("ADD", text="Count both days.")], message="first")
        opened.create_branch("prod", "v0")
        clock[0] += 365 * 86_400_000_000
        opened.move_branch("prod", opened.tip("main"))
        opened.create_branch("web", "v1")
        start(opened, "trial", ("prod", "v0"), 0.2, why="to see")
        change_share(opened, "trial", 0.5, why="more of it")
        with opened.forced():  # v0 has nothing of what prod has
            promote(opened, "trial", why="better")
        rollback(opened, "prod", to="v1", why="worse")
    page = Visitor(path).get("/production")
    rows = re.findall(r'<tr><th scope="row"><a [^>]*>(\w+)</a>.*?datetime="(\d{4})', page)
    assert dict(rows) == {"main": "2001", "prod": "2002", "web": "2002"}
    words = re.sub(r"<[^>]+>", "", page)
    for said in (
        "rollback prod, from v0 to v1",
        "experiment: promote trial, from v1 to v0",
        "experiment: share trial, from 20 % to 50 %",
        "experiment: start trial, from prod (v1) to v0 (v0), which 20 % get",
    ):
        assert said in words, said
