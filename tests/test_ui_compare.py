"""Two runs side by side, and the candidates of a run with what they were measured to do."""

from __future__ import annotations

import html
import re
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from test_ui_runs import folder as folder
from ui_demo import demo
from ui_records import AT_WORK, add_candidates, add_step, at_work
from ui_rig import WIDTHS, HandAt, Visitor, links, serving, store_at, violations
from ui_rig import chromium as chromium
from ui_rig import hand_at as hand_at

from tfgrpo.runs.run_record import candidates
from tfgrpo.runs.run_record import lessons as of_run
from tfgrpo.store import Operation, Store
from tfgrpo.store.activity.runs import Run, Runs

RUN = {"models": {"model": "m"}, "data": "x.jsonl", "domain": "math"}
FIGURES = {"effect": [0.2, 0.1, 0.3], "chance": 0.99, "attempts": [40, 41]}


def test_two_runs_are_read_at_every_step(folder: Path) -> None:
    visitor = Visitor(folder / ".tfgrpo/store.db")
    page = visitor.get("/compare-runs?a=quick&b=a/b")
    for words in ("Mean reward of attempts, quick", "Mean reward of attempts, a/b", "Step by step"):
        assert words in page
    settings = page.partition("Settings that differ")[2].partition("Lessons that differ")[0]
    assert re.search(r">model<.*?>m<.*?>n<", settings, re.S)
    lessons = page.partition("Lessons that differ")[2]
    only = [part.partition("</section>")[0] for part in lessons.split("Only of ")[1:]]
    assert [part.partition("<")[0] for part in only] == ["quick", "a/b"]
    with Store.open(folder / ".tfgrpo/store.db") as store:
        learned = [set(of_run(store, store.runs.get(name))) for name in ("quick", "a/b")]
    for own, other, part in zip(learned, learned[::-1], only, strict=True):
        assert {one for one in own | other if html.escape(one) in part} == own - other
    assert learned[0] != learned[1]
    assert "unknown" in page, "a price that nobody knows is not nothing"
    same = visitor.get("/compare-runs?a=quick&b=quick")
    assert "No setting differs." in same
    visitor.get("/compare-runs?a=quick&b=none", status=404)
    assert "/compare-runs" in visitor.get("/runs")


def test_without_runs_nothing_is_compared(tmp_path: Path) -> None:
    assert "there are fewer" in Visitor(store_at(tmp_path, "One.")).get("/compare-runs")


def candidates_at(folder: Path) -> tuple[Path, list[str]]:
    """Makes a store with a run `r` and three candidates: one entered, one was given up and one
    waits; returns its file and their ids."""
    store = store_at(folder, "One.")
    ids = ["a" * 12, "b" * 12, "c" * 12]
    with Store.open(store) as opened:
        opened.runs.create("r", "7" * 32, "main", 1, RUN, "ana")
        opened.create_branch("r/candidates", "main")
        words = ["It enters.", "It is given up.", "It waits."]
        adds = [Operation("ADD", id, text) for id, text in zip(ids, words, strict=True)]
        opened.commit("r/candidates", adds, message="candidates")
        opened.commit("main", [Operation("ADD", ids[0], words[0], "x", FIGURES)], message="in")
        worse = {"effect": [-0.2, -0.3, -0.1], "chance": 0.01, "attempts": [30, 30]}
        drop = [Operation("DELETE", ids[1], None, "harm", worse)]
        opened.commit("r/candidates", drop, message="out")
    return store, ids


def test_candidates_say_what_became_of_them_and_on_which_figures(tmp_path: Path) -> None:
    store, ids = candidates_at(tmp_path)
    with Store.open(store) as opened:
        listed = {one.experience: one for one in candidates(opened, opened.runs.get("r"))}
    assert {id: one.state for id, one in listed.items()} == {
        ids[0]: "entered",
        ids[1]: "given up",
        ids[2]: "on probation",
    }
    assert [one.text for one in listed.values() if one.experience == ids[1]] == ["It is given up."]
    first, second, third = (listed[id].measured for id in ids)
    assert first is not None
    assert (first.effect, first.chance, first.shown, first.hidden) == (0.2, 0.99, 40, 41)
    assert second is not None
    assert second.effect == -0.2
    assert third is None
    page = Visitor(store).get("/run/r")
    assert "not measured yet" in page
    assert "given up" in page
    assert "99 %" in page
    for path in ("/production", "/experiment/new?branch=main", "/search?text=waits"):
        assert "r/candidates" not in Visitor(store).get(path), path


def section(page: str) -> str:
    """Returns the words of the candidates in a page of a run, or in the live part of one."""
    return " ".join(re.sub(r"<[^>]*>", " ", page.partition("Candidates</h2>")[2]).split())


def test_candidates_on_probation_are_shown_as_they_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the page and in the live part, at the price of one reading of each step."""
    path, read = demo(tmp_path), list[int | None]()
    with Store.open(path) as store:
        add_candidates(store)
        run = store.runs.get(AT_WORK)
    rollouts, until = Runs.rollouts, time.monotonic() + 120

    def counted(runs: Runs, run: Run, step: int | None = None, problem: str | None = None) -> Any:
        read.append(step)
        return rollouts(runs, run, step, problem)

    monkeypatch.setattr(Runs, "rollouts", counted)
    with at_work(path), serving(path) as url:
        at, _, token = url.partition("/?")
        with httpx2.Client(base_url=at, follow_redirects=True, timeout=60) as client:
            page = section(client.get(f"/?{token}") and client.get(f"/run/{AT_WORK}").text)
            so_far = r"on probation +\+0\.\d+ \[\+0\.\d+, \+0\.\d+\] +(\d+) % 96, 96"
            found = re.search(so_far, page)
            assert found is not None, page
            assert int(found[1]) > 90
            assert "It is new. on probation not measured yet" in page
            assert "Quote the price list" not in page, "nobody tried that in this run"
            assert section(client.get(f"/run/{AT_WORK}").text) == page
            with client.stream("GET", f"/run-live/{AT_WORK}") as stream:
                part = ""
                for line in stream.iter_lines():
                    part += line.removeprefix("data: ") + " "
                    assert time.monotonic() < until, section(part)
                    if line:
                        continue
                    if re.search(so_far, section(part)):
                        with Store.open(path) as store:
                            add_step(store, run, 2)
                    elif "192, 192" in section(part):
                        break
                    part = ""
    assert read == [1, 2]


def test_a_problem_has_a_history_over_runs_and_evaluations(folder: Path) -> None:
    visitor = Visitor(folder / ".tfgrpo/store.db")
    with Store.open(folder / ".tfgrpo/store.db") as store:
        row = store.runs.rollouts(store.runs.get("quick"))[0]
        scored = store.runs.scores(store.runs.all_evaluations()[0])[0].problem
    page = visitor.get(f"/problem?id={quote(row.problem)}")
    assert "run quick" in page
    assert "run a/b" in page
    group = next(link for link in links(page) if link.startswith("/group/quick"))
    assert f"/problem?id={quote(row.problem)}" in visitor.get(group)
    page = visitor.get(f"/problem?id={quote(scored)}")
    assert "held.jsonl" in page
    visitor.get(next(link for link in links(page) if link.startswith("/evaluation-group/")))
    visitor.get("/problem?id=none", status=404)


@pytest.mark.browser
@pytest.mark.parametrize("how", ["mouse", "keyboard", "no script"])
def test_runs_are_compared_in_a_browser(how: str, hand_at: HandAt, folder: Path) -> None:
    store = folder / ".tfgrpo/store.db"
    hand = hand_at(store)
    page = hand.page
    hand.open("/runs")
    hand.follow("main a[href='/compare-runs']")
    page.select_option("select[name=a]", "quick")
    page.select_option("select[name=b]", "quick")
    hand.follow("main form.line button")
    hand.sees("quick and quick")
    if how == "mouse":
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            assert violations(page) == []
        for width, (across, down) in WIDTHS.items():
            page.set_viewport_size({"width": across, "height": down})
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
