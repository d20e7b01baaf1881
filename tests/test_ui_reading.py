"""What a page says to whoever cannot point, see the whole of it or run a script."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ui_demo import BEGIN, demo
from ui_rig import Visitor, serving, store_at, violations, watched
from ui_rig import chromium as chromium

from tfgrpo import ui
from tfgrpo.store import Store
from tfgrpo.store.canonical import canonical
from tfgrpo.ui.ui_settings import reachable

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return demo(tmp_path_factory.mktemp("demo"), now=BEGIN)


@pytest.mark.parametrize(
    ("address", "section"),
    [
        ("/experience/G0?at=main", "/library"),
        ("/library/order?branch=main", "/library"),
        ("/version/v2", "/history"),
        ("/diff?a=v1&b=v2", "/history"),
        ("/bisect", "/history"),
        ("/attempts/shop", "/runs"),
        ("/group/shop?step=1&problem=hire-1", "/runs"),
        ("/call/call-000000000001", "/production"),
        ("/rollback?branch=prod", "/production"),
        ("/evaluations", "/evaluations"),
    ],
)
def test_the_navigation_says_where_a_page_is(address: str, section: str, store: Path) -> None:
    page = Visitor(store).get(address)
    assert re.findall(r'<a href="([^"]+)" aria-current="(?:page|true)">', page)[0] == section


def test_a_command_on_a_page_is_set_as_one() -> None:
    """No template has a command between back quotes, which a browser shows as they are."""
    templates = Path(ui.__file__).parent / "templates"
    texts = {
        one.name: re.sub(r"{#.*?#}", "", one.read_text(), flags=re.DOTALL)
        for one in templates.glob("*.html")
    }
    assert [name for name, text in texts.items() if "`tfgrpo" in text] == []


def test_word_diffs_say_in_words_what_was_taken_out_and_put_in(store: Path) -> None:
    for address in ("/version/v3", "/diff?a=v1&b=main", "/review", "/experience/G0?at=main"):
        page = Visitor(store).get(address)
        marks = re.findall(r"(.{40})<(del|ins)>", page)
        assert marks, address
        for before, mark in marks:
            said = {"del": "taken out: </span>", "ins": "put in: </span>"}[mark]
            assert before.endswith(said), (address, before, mark)


def test_a_time_is_said_without_pointing_at_it(store: Path) -> None:
    for address in ("/", "/history", "/production", "/review", "/version/v3"):
        page = Visitor(store).get(address)
        times = re.findall(r"<time [^>]*>(.*?)</time>", page, re.S)
        assert times, address
        assert all(re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d", one) for one in times), address
        assert "<time title" not in page


def test_without_a_script_nothing_is_dead(chromium: Browser, store: Path) -> None:
    with serving(store) as url, watched(chromium, java_script_enabled=False) as page:
        page.goto(url)
        page.goto(url.partition("/?")[0] + "/review")
        assert not page.is_visible("[data-opens]")
        assert not page.is_visible("article kbd")
        assert not page.is_visible("#keys")
        assert page.is_visible("summary:has-text('Other words')")


@pytest.mark.parametrize("width", [390, 820, 1024, 1280])
def test_at_every_width_the_navigation_and_the_history_are_whole(
    width: int, chromium: Browser, store: Path
) -> None:
    size = {"width": width, "height": 800}
    with serving(store) as url, watched(chromium, viewport=size) as page:
        page.goto(url)
        page.goto(url.partition("/?")[0] + "/history")
        page.wait_for_selector(".window, ol")
        inside = "one => { const box = one.getBoundingClientRect(); return box.width > 0 && "
        inside += "box.left >= 0 && box.right <= innerWidth; }"
        for selector in (".top nav a", ".versions .what", ".versions .end"):
            found = page.query_selector_all(selector)
            assert found, selector
            for one in found:
                assert one.evaluate(inside), (selector, one.inner_text())
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_long_answer_is_scrolled_by_keyboard(chromium: Browser, tmp_path: Path) -> None:
    store = demo(tmp_path, now=BEGIN)
    with Store.open(store) as opened:
        run = opened.runs.get("shop")
        said = [{"role": "assistant", "content": "A long answer. " * 3000}]
        verdict = canonical({"answer": "36", "reason": "", "messages": said}).decode()
        writer = opened.port.records.writer()
        place = (run.id, 0, "long", 0, opened.tip("main").number)
        writer.append([], [(*place, "[]", "answered", 1.0, verdict, BEGIN)])
        writer.close()
    with serving(store) as url, watched(chromium) as page:
        page.goto(url)
        page.goto(url.partition("/?")[0] + "/group/shop?step=1&problem=long")
        page.evaluate("document.querySelectorAll('details').forEach(d => d.open = 1)")
        assert violations(page) == []


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1", "::"])
def test_the_addresses_that_are_printed_can_be_opened(host: str, tmp_path: Path) -> None:
    found = reachable(host, ["lessons.example"])
    assert found[0] == "lessons.example"
    assert not {"0.0.0.0", "::"} & set(found)
    if host != "0.0.0.0":
        return
    with serving(store_at(tmp_path), host="0.0.0.0", listen="0.0.0.0") as url:
        port = url.rpartition(":")[2].partition("/")[0]
        for place in found[1:]:
            with urllib.request.urlopen(f"http://{place}:{port}/static/ui.css") as answer:
                assert answer.status == 200, place


def test_an_error_leads_back_and_on(store: Path) -> None:
    visitor = Visitor(store)
    at = "http://127.0.0.1:7433"
    for address, section in (
        ("/experience/nothing", "/library"),
        ("/version/v999", "/history"),
        ("/run/none", "/runs"),
        ("/call/none", "/production"),
        ("/review?id=p99", "/review"),
    ):
        answer = visitor.client.get(address, headers={"referer": f"{at}/library?at=main&q=a"})
        assert answer.status_code in (400, 404), address
        assert '<a class="button" href="/library?at=main&amp;q=a">' in answer.text, address
        assert f'<a class="button" href="{section}">' in answer.text, address
        away = visitor.client.get(address, headers={"referer": "http://evil.test/x"})
        assert "evil.test" not in away.text
        assert "Back to the page" not in away.text
    page = visitor.get("/review?id=p99", status=404)
    assert "In a terminal: `tfgrpo proposal list` lists them" in page
