"""What tests of the pages stand on: a visitor without a browser, a server, a browser.

def test_something(tmp_path):
    visitor = Visitor(store_at(tmp_path))
    assert "Count both" in visitor.get("/library/HEAD")

@pytest.mark.browser
@pytest.mark.parametrize("how", ["mouse", "keyboard", "no script"])
def test_something_seen(hand_at, tmp_path):
    hand = hand_at(store_at(tmp_path))
    hand.follow("nav a[href='/search']")
"""

from __future__ import annotations

import atexit
import html
import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urljoin, urlsplit

import pytest
import uvicorn
from anyio.from_thread import BlockingPortal, start_blocking_portal
from conftest import LONG
from starlette.testclient import TestClient
from waiting import until

from tfgrpo.store import Operation, Store
from tfgrpo.ui.site import create_site
from tfgrpo.ui.ui_settings import UiSettings

if TYPE_CHECKING:
    import httpx
    from playwright.sync_api import Browser, Page

CHROMIUM = "/usr/bin/chromium"
AXE = Path(__file__).parent / "vendor/axe.min.js"
WIDTHS = {"telephone": (390, 844), "tablet": (820, 1180), "desk": (1280, 800)}
PATIENCE = 120_000
"""Milliseconds in which a browser on a busy machine does anything."""
TOKEN = "the-token-of-these-tests"
OTHER = "another-token-of-these-tests"


def store_at(folder: Path, *texts: str) -> Path:
    """Makes a store in a folder with these experiences, if any; returns its file."""
    path = folder / ".tfgrpo" / "store.db"
    with Store.init(path, author="tester") as store:
        if texts:
            store.commit("main", [Operation("ADD", text=t) for t in texts], message="first words")
    return path


def settings_of(store: Path, **more: Any) -> UiSettings:
    """Returns settings with two people: `tester` and, under `OTHER`, `other`."""
    return UiSettings(store, {TOKEN: "tester", OTHER: "other"}, **more)


@cache
def portal() -> BlockingPortal:
    """The event loop of all visitors: one of its own for each request would take longer than it."""
    running = start_blocking_portal()
    atexit.register(running.__exit__, None, None, None)
    return running.__enter__()


class Visitor:
    """Somebody who is logged in, and asks without a browser."""

    def __init__(self, store: Path, *, token: str | None = TOKEN, **settings: Any) -> None:
        site = create_site(settings_of(store, **settings))
        self._csrf = ""
        self.client = TestClient(site, base_url="http://127.0.0.1:7433")
        self.client.portal = portal()
        if token is not None:
            self.client.get("/", params={"token": token}, follow_redirects=False)

    def get(self, path: str, *, status: int = 200, fragment: bool = False) -> str:
        """Returns a page's HTML; `fragment` asks as htmx does."""
        headers = {"hx-request": "true"} if fragment else {}
        answer = self.client.get(path, headers=headers)
        assert answer.status_code == status, (path, answer.status_code, answer.text[:2000])
        return answer.text

    def post(self, path: str, fields: Mapping[str, object], *, status: int = 200) -> str:
        """Sends a form with the token of this login; returns the page that it led to."""
        form = {"csrf": self.csrf(), **fields}
        answer = self.client.post(path, data=form, headers={"origin": "http://127.0.0.1:7433"})
        assert answer.status_code == status, (path, answer.status_code, answer.text[:2000])
        return answer.text

    def csrf(self) -> str:
        """Returns the token of this login's forms."""
        if self._csrf:
            return self._csrf
        found = re.search(r'"x-csrf": "([0-9a-f]+)"', self.get("/"))
        assert found is not None
        self._csrf = found[1]
        return self._csrf


def forms(page: str) -> list[str]:
    """Returns the tags of the forms of a page that record something: all but the one that logs
    out."""
    sent = re.findall(r'<form[^>]*method="post"[^>]*>', page)
    return [form for form in sent if 'action="/logout"' not in form]


LINK = re.compile(r'<(?:a|link|script|img)\b[^<>]*?\s(?:href|src)="([^"]*)"')


ARRANGED = re.compile(r"(?:sort-|as=)[^=&]*(?:=[^&]*)?")
"""What an address asks for that only another order or form of the same rows comes of."""
ONCE = ("/playground",)
"""Forms that many pages lead to, each with something else filled in."""
MANY, A_FEW_DOZEN = ("group", "call"), 60
"""Kinds of pages of which there are hundreds, and how many of each are looked at."""
AT_MANY, A_FEW = ("experience", "library"), 4
"""Kinds of pages that are the same in most versions, and how many versions each is looked at in."""


def links(page: str) -> list[str]:
    """Returns the addresses that a page links to or loads."""
    return [html.unescape(found) for found in LINK.findall(page)]


def crawl(visitor: Visitor, start: str = "/", *, most: int = 400) -> dict[str, int]:
    """Follows every link from a page on; returns path → status."""
    return {path: answer.status_code for path, answer in crawled(visitor, start, most=most)}


def crawled(
    visitor: Visitor, start: str = "/", *, most: int = 400
) -> Iterator[tuple[str, httpx.Response]]:
    """Yields each path that links lead to from a page on, with its answer. A link to elsewhere is
    an error. A page is looked at once in each order and in a few versions; of groups and calls, a
    few dozen are."""
    seen: set[str] = set()
    arranged: set[tuple[str, ...]] = set()
    many: Counter[str] = Counter()
    waiting = [start]
    while waiting and len(seen) < most:
        path = waiting.pop(0)
        kind, most_of_it = path.split("/")[1].partition("?")[0], most
        if kind in MANY:
            most_of_it = A_FEW_DOZEN
        elif kind in AT_MANY and not LONG:
            kind, most_of_it = re.sub("=[^&]*", "", path), A_FEW
        if path in seen or many[kind] >= most_of_it:
            continue
        many[kind] += 1
        answer = visitor.client.get(path)
        seen.add(path)
        yield path, answer
        if not answer.headers.get("content-type", "").startswith("text/html"):
            continue
        for link in links(answer.text):
            target = urlsplit(urljoin(f"http://127.0.0.1:7433{path}", link))
            assert target.netloc == "127.0.0.1:7433", f"{path} links to {link}"
            again = ARRANGED.findall(target.query)
            if again or target.path in ONCE:
                if (target.path, *again) in arranged:
                    continue
                arranged.add((target.path, *again))
            waiting.append(target.path + (f"?{target.query}" if target.query else ""))


@contextmanager
def serving(
    store: Path, *, token: str = TOKEN, listen: str = "127.0.0.1", **settings: Any
) -> Iterator[str]:
    """Serves a store's pages on a port of its own; gives the address that logs in."""
    config = uvicorn.Config(
        create_site(settings_of(store, **settings)),
        host=listen,
        port=0,
        log_level="error",
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until(lambda: server.started or not thread.is_alive())
        assert thread.is_alive()
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/?token={token}"
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Debian's Chromium, or a skip that says what is missing.

    For a module: while it runs, `asyncio.run` cannot be used in the same thread.
    """
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not os.access(CHROMIUM, os.X_OK):
        pytest.skip(f"no {CHROMIUM}: `apt-get install chromium` has it")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def watched(browser: Browser, **context: Any) -> Iterator[Page]:
    """Gives a page of a fresh browser context; what its console complains of, and a request to
    another host, fails the test at the end."""
    with browser.new_context(**context) as opened:
        page = opened.new_page()
        page.set_default_timeout(PATIENCE)
        complaints: list[str] = []
        page.on(
            "console",
            lambda said: (
                complaints.append(said.text) if said.type in ("error", "warning") else None
            ),
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        opened.on(
            "request",
            lambda asked: (
                None
                if urlsplit(asked.url).hostname == "127.0.0.1"
                else complaints.append(f"asked {asked.url}")
            ),
        )
        yield page
        assert complaints == []


def violations(page: Page, *rules: str) -> list[str]:
    """Returns what axe-core finds wrong with a page for those who do not see or point, by these
    rules or by all. (What it finds right would take twice as long to fetch as all of it to find.)
    """
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text())
    options = {"resultTypes": ["violations"]} | ({"runOnly": rules} if rules else {})
    run = "options => axe.run(document, options).then(found => found.violations)"
    return [
        f"{one['id']}: {node['html'][:200]} ({node['failureSummary'][:300]})"
        for one in page.evaluate(run, options)
        for node in one["nodes"]
    ]


class Hand:
    """Does things on a page by mouse, or with the keyboard alone: Tab to it, then the key."""

    def __init__(self, page: Page, at: str, *, mouse: bool) -> None:
        self.page, self.at, self.mouse = page, at, mouse

    def open(self, address: str) -> None:
        self.page.goto(self.at + address)

    def reach(self, selector: str) -> None:
        reached = "selector => document.activeElement === document.querySelector(selector)"
        for _ in range(150):
            self.page.keyboard.press("Tab")
            if self.page.evaluate(reached, selector):
                return
        raise AssertionError(f"Tab does not come to {selector}")

    def press(self, selector: str, key: str = "Enter") -> None:
        if self.mouse:
            self.page.click(selector)
        else:
            self.reach(selector)
            self.page.keyboard.press(key)

    def follow(self, selector: str) -> None:
        """Presses what leads to another page, and waits for that."""
        with self.page.expect_navigation():
            self.press(selector)

    def write(self, selector: str, words: str) -> None:
        if self.mouse:
            self.page.click(selector)
        else:
            self.reach(selector)
        self.page.keyboard.press("Control+A")
        self.page.keyboard.type(words)

    def sees(self, words: str, where: str = "main") -> None:
        self.page.wait_for_selector(f"{where} >> text={words}")


HandAt: TypeAlias = Callable[..., Hand]


@pytest.fixture
def hand_at(how: str, chromium: Browser) -> Iterator[HandAt]:
    """Serves a store's pages, and gives a hand on the first one that works as `how` says: by mouse,
    by mouse without a script, or by keyboard alone."""
    with ExitStack() as opened:

        def begin(store: Path, **context: Any) -> Hand:
            url = opened.enter_context(serving(store))
            context["java_script_enabled"] = how != "no script"
            page = opened.enter_context(watched(chromium, **context))
            page.goto(url)
            return Hand(page, url.partition("/?")[0], mouse=how in ("mouse", "no script"))

        yield begin
