"""Every page, as axe-core sees it, in both themes and at three widths, long answers included."""

from __future__ import annotations

import importlib
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import conftest
import pytest
from conftest import problems
from scripted import ScriptedEndpoint, stage, teachable
from test_ui_browser import PAGES as SHOWN
from ui_records import Answer, at_work, by_forms, every_record
from ui_rig import PATIENCE, WIDTHS, Visitor, crawl, serving, violations
from ui_rig import chromium as chromium

import tfgrpo
from tfgrpo.store import Operation, Store
from tfgrpo.store.history import bisect
from tfgrpo.ui.pages import PAGES

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

pytestmark = pytest.mark.browser
LONG = (
    "word " * 400 + "x" * 3000 + "\n" + "\n".join(f"line {n} of a long answer" for n in range(300))
)
EACH = 2 if conftest.LONG else 1
"""Pages of a route and store that are looked at: the first that are linked."""
NOT_PAGES = ("/experience/{id}/text", "/playground/{id}")
"""What answers with plain text, and what only a form leads to: `by_forms` has the latter."""
BY_FORMS = ("undo", "redacted", "trial")
"""Templates that only a form leads to."""
ERRORS = ("/nothing", "/version/v999", "/library?at=nowhere", "/attempts/nothing?step=x")


def long_answers(request: dict[str, Any]) -> str:
    answer = teachable(request)
    return f"{LONG}\n{answer}" if stage(request) == "rollout" else answer


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    """A store with every kind of record and a library of long texts, and one with long answers."""
    by_hand = every_record(tmp_path_factory.mktemp("records"), now=time.time_ns() // 1000)
    with Store.open(by_hand, author="ana") as store:
        store.commit("main", [Operation("ADD", text="y" * 2000 + " " + LONG)], message="z" * 3000)
    where = tmp_path_factory.mktemp("long")
    (where / "p.jsonl").write_text(problems((2, 5, 9)))
    (where / "held.jsonl").write_text(problems((11, 12)))
    with pytest.MonkeyPatch.context() as patch, ScriptedEndpoint(long_answers) as server:
        patch.chdir(where)
        sizes = {"epochs": 1, "batch_size": 3, "group_size": 3, "policy": "paper"}
        asked: dict[str, Any] = {"base_url": server.base_url, "model": "m"}
        tfgrpo.train_sync("p.jsonl", run="long", **sizes, **asked)
        tfgrpo.compare_sync("v0", "HEAD", "held.jsonl", samples=2, **asked)
    with Store.open(where / ".tfgrpo/store.db") as store:
        tip = store.commit("main", [Operation("ADD", text="Say both days.")], message="a search")
        bisect.start(store, tip, [store.version(0)])
    with at_work(by_hand):
        yield [by_hand, where / ".tfgrpo/store.db"]


def routes() -> dict[str, re.Pattern[str]]:
    """Returns each path that answers with a page, and what fits it."""
    found = {}
    for page in PAGES:
        for route in importlib.import_module(f"tfgrpo.ui.pages.{page.module}").ROUTES:
            if route.method == "GET" and not route.live and route.path not in NOT_PAGES:
                fits = re.sub(r"\\\{[^}]+\}", ".+", re.escape(route.path))
                found[route.path] = re.compile(fits)
    return found


ROUTES = routes()


@pytest.fixture(scope="module")
def site(
    chromium: Browser, stores: list[Path]
) -> Iterator[tuple[Page, dict[str, list[tuple[str, str]]]]]:
    """A page that is logged in at both stores, and the pages to look at by their route: the site
    and the path of each. What a form leads to is at a path that the page answers for itself."""
    looked: dict[str, list[tuple[str, str]]] = {}
    with ExitStack() as stack:
        context = stack.enter_context(chromium.new_context(reduced_motion="reduce"))
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        for number, store in enumerate(stores):
            url = stack.enter_context(serving(store))
            page.goto(url)
            at = url.partition("/?")[0]
            for place, answer in enumerate([] if number else by_forms(store)):
                looked.setdefault(answer.template, []).append((at, f"/by-form-{place}"))
                page.route(f"{at}/by-form-{place}", partial(show, answer))
            paths = [] if number else list(SHOWN.values())
            paths += [path for path in crawl(Visitor(store), most=1200) if "as=" not in path]
            for route, fits in ROUTES.items():
                there = [p for p in dict.fromkeys(paths) if fits.fullmatch(p.partition("?")[0])]
                looked.setdefault(route, []).extend((at, path) for path in there[:EACH])
            looked.setdefault("error", []).extend((at, path) for path in ERRORS[: 4 - 4 * number])
        yield page, looked


def show(answer: Answer, route: Route) -> None:
    """Answers with a page that a form led to."""
    route.fulfill(body=answer.page, content_type="text/html; charset=utf-8")


@pytest.mark.parametrize("route", [*ROUTES, *BY_FORMS, "error"])
def test_axe_finds_nothing_in_either_theme_at_any_width(
    route: str, site: tuple[Page, dict[str, list[tuple[str, str]]]]
) -> None:
    page, looked = site
    assert looked[route]
    found: dict[str, list[str]] = {}
    for at, path in looked[route]:
        page.emulate_media(color_scheme="light")
        page.goto(at + path)
        page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        for width, (across, down) in WIDTHS.items():
            page.set_viewport_size({"width": across, "height": down})
            if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                found.setdefault("wider than the screen", []).append(f"{path} {width}")
            for one in violations(page):
                found.setdefault(one, []).append(f"{path} light {width}")
        page.emulate_media(color_scheme="dark")  # which changes colours alone, at every width
        for one in violations(page, "color-contrast"):
            found.setdefault(one, []).append(f"{path} dark")
    assert found == {}
