"""What an experience does to the reward, in the browser: now and over time, with intervals."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import unescape
from pathlib import Path

import pytest
from conftest import problems
from scripted import ScriptedEndpoint
from test_credit import HARMS, HELPS, IDLE, swayed
from ui_rig import Visitor, store_at

import tfgrpo
from tfgrpo.display.library_figures import credits_of
from tfgrpo.evaluation.credit import credit_history, credit_points, credits
from tfgrpo.evaluation.presence_effects import Credit
from tfgrpo.store import Operation, Store
from tfgrpo.store.records import Version
from tfgrpo.ui import shown_project
from tfgrpo.ui.pages import library
from tfgrpo.ui.store_per_thread import THREADS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a run of three steps that left experiences out by chance."""
    where = tmp_path_factory.mktemp("credit")
    (where / "p.jsonl").write_text(problems(range(12)))
    store_at(where, HELPS, HARMS, IDLE)
    with pytest.MonkeyPatch.context() as patch, ScriptedEndpoint(swayed) as server:
        patch.chdir(where)
        sizes = {"epochs": 1, "batch_size": 4, "group_size": 8, "policy": "probation"}
        tfgrpo.train_sync("p.jsonl", run="r", model="m", base_url=server.base_url, **sizes)
    return where


def figures(page: str) -> list[tuple[str, str, str]]:
    """Returns the rows below the curve: when, effect, interval."""
    cells = re.findall(
        r'<tr><th scope="row">(.*?)</th><td class="number">(.*?)</td>'
        r'<td class="number quiet">(.*?)</td></tr>',
        page,
    )
    return [(unescape(a), unescape(b), unescape(c).strip()) for a, b, c in cells]


def test_credit_is_shown_with_its_interval_and_over_time(folder: Path) -> None:
    path = folder / ".tfgrpo/store.db"
    with Store.open(path) as store:
        now = {one.experience.text: one for one in credits(store, store.tip("main"))}
    helps = now[HELPS]
    assert helps.credit is not None
    interval = f"{helps.credit.effect:+.3f}", f"[{helps.credit.low:+.3f}, {helps.credit.high:+.3f}]"
    visitor = Visitor(path)
    id = helps.experience.id
    for address in ("/library", f"/experience/{id}"):
        page = re.sub(r"<[^>]+>", "", visitor.get(address)).replace("−", "-")
        assert all(part in page for part in interval), address
    page = visitor.get(f"/experience/{id}")
    there = re.search(r'href="(/experience/[^"]+/credit\?at=v\d+)"', page)
    assert there is not None
    rows = figures(visitor.get(there[1]))
    assert [name.split(", ")[1] for name, _, _ in rows] == ["step 1", "step 2", "step 3"]
    assert rows[-1][1].replace("−", "-") == f"{helps.credit.effect:+.2f}"
    assert rows[-1][2].startswith("[")
    assert visitor.get(there[1], fragment=True).count("<polyline") == 1


def test_other_words_start_anew_and_the_unknown_is_a_gap(folder: Path, tmp_path: Path) -> None:
    path = folder / ".tfgrpo/store.db"
    with Store.open(path, author="tests") as store:
        before = store.tip("main")
        id = next(e.id for e in store.library(before) if e.text == HELPS)
        store.create_branch("other", before)
        other = store.commit(
            "other", [Operation("MODIFY", id, "When in doubt, go on.")], message="by hand"
        )
        new = store.commit("other", [Operation("ADD", text="Never tried.")], message="new")
        never = next(e.id for e in store.library(new) if e.text == "Never tried.")
        points = credit_points(credit_history(store, other), id)
        assert [one.credit is None for one in points] == [False, False, False, True]
        assert points[-1].name == f"v{other.number}, other words"
        assert len(credit_history(store, before, most=2)) == 3, "two steps, and now"
    visitor = Visitor(path)
    page = visitor.get(f"/experience/{id}/credit?at=other")
    assert figures(page)[-1][1] == "unknown"
    assert page.count("<circle") == 3 + 3, "three points beside the three of the page's own sign"
    page = visitor.get(f"/experience/{never}/credit?at=other")
    assert "Nothing is known of its effect" in page
    assert "<polyline" not in page


def test_effects_are_worked_out_once_while_nobody_records_anything(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / ".tfgrpo/store.db"
    looks: list[int] = []

    def counting(store: Store, version: Version) -> Mapping[str, Credit]:
        looks.append(version.number)
        return credits_of(store, version)

    monkeypatch.setattr(library, "credits_of", counting)
    visitor = Visitor(path)
    for _ in range(3):
        visitor.get("/library?at=main")
    assert len(looks) == 1
    monkeypatch.setattr(shown_project, "REMEMBERED", 0.0)
    visitor = Visitor(path)
    for _ in range(2 * THREADS):
        visitor.get("/library?at=main")
    known = len(looks)
    assert 1 < known <= 1 + THREADS, "once for each thread, which has a store of its own"
    with Store.open(path, author="tests") as store:
        store.create_tag("now", "main")
    visitor.get("/library?at=main")
    assert len(looks) == known + 1


def test_without_dropout_no_page_speaks_of_an_effect_over_time(tmp_path: Path) -> None:
    store = store_at(tmp_path, "Count both days.")
    visitor = Visitor(store)
    assert "Effect over time" not in visitor.get("/experience/G0")
    assert "no step measured it" in visitor.get("/experience/G0/credit")
