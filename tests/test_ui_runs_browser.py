"""A run at work in a real browser: followed, reloaded in the middle, stopped, gone on with."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from conftest import OWN, problems
from scripted import ScriptedEndpoint, stage, teachable
from ui_rig import chromium as chromium
from ui_rig import serving, violations, watched
from waiting import until

import tfgrpo
from tfgrpo.learn import run as running
from tfgrpo.store import Store
from tfgrpo.ui import watched_runs

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser
PATIENCE = 240.0


class Gates:
    """A script that holds the comparisons of each step back until its gate is opened."""

    def __init__(self) -> None:
        self.open = threading.Event()

    def __call__(self, request: dict[str, Any]) -> str:
        if stage(request) == "comparison":
            self.open.wait(PATIENCE)
        return teachable(request)


def test_a_run_is_followed_reloaded_and_stopped(
    chromium: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(watched_runs, "EVERY", 0.05)
    (tmp_path / "p.jsonl").write_text(problems((2, 5, 9)))
    path = tmp_path / ".tfgrpo/store.db"
    Store.init(path, author="tester").close()
    gates = Gates()
    ended: list[object] = []

    def train() -> None:
        sizes = {"epochs": 2, "batch_size": 3, "group_size": 3}
        where = {"store": tmp_path, "base_url": server.base_url}
        try:
            data = tmp_path / "p.jsonl"
            ended.append(tfgrpo.train_sync(data, run="live", model="m", **sizes, **where))
        except BaseException as error:
            ended.append(error)

    monkeypatch.setenv("TFGRPO_TRUST", os.pathsep.join((OWN, str(tmp_path))))
    with ScriptedEndpoint(gates) as server, serving(path) as url:
        thread = threading.Thread(target=train)
        thread.start()
        try:
            with watched(chromium, viewport={"width": 390, "height": 800}) as page:
                page.set_default_timeout(1000 * PATIENCE)
                page.goto(url)
                page.goto(url.partition("/?")[0] + "/runs")
                until(lambda: page.reload() and page.query_selector("a[href='/run/live']"))
                page.press("body", "Tab")
                page.focus("a[href='/run/live']")
                page.keyboard.press("Enter")
                page.wait_for_selector("text=comparing groups: 0 of")
                assert page.inner_text(".run-state").startswith("running")
                page.reload()
                page.wait_for_selector("text=comparing groups: 0 of")
                wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
                assert not page.evaluate(wide), "nothing is wider than a telephone"
                page.on("dialog", lambda dialog: dialog.accept())
                page.keyboard.press("s")
                page.wait_for_selector("text=was asked to stop")
                gates.open.set()
                page.wait_for_selector("text=interrupted")
                page.wait_for_selector("text=stopped by tester")
                page.wait_for_selector("button:has-text('Go on')")
                base = url.partition("/?")[0]
                groups = base + "/attempts/live?step=1&show=mixed"
                page.goto(groups)
                group = page.get_attribute(".group-name", "href")
                for address in ("/runs", "/run/live", f"{group}", groups.removeprefix(base)):
                    page.goto(base + address)
                    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = 1)")
                    assert violations(page) == [], address
                    assert not page.evaluate(wide), address
                page.goto(base + "/cost")
                page.emulate_media(color_scheme="dark")
                assert violations(page) == []
                page.goto(base + str(group))
                assert violations(page) == []
                page.keyboard.press("j")
                page.wait_for_selector("text=group 2 of 3")
                page.go_back()
                page.wait_for_selector("text=group 1 of 3")
                page.goto(base + "/run/live")
                page.keyboard.press("r")
                page.wait_for_selector("text=goes on in a process of its own")
                page.wait_for_selector(".run-state:has-text('finished')")
        finally:
            gates.open.set()
            thread.join(PATIENCE)
        assert type(ended[0]).__name__ == "RunStopped"
