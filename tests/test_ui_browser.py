"""The pages in a real browser: by mouse and by keyboard, on a telephone and in the dark.

`TFGRPO_SCREENSHOTS=docs/ui pytest tests/test_ui_browser.py -k seen` takes the pictures of the
documentation anew.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ui_demo import add_proposals, demo
from ui_rig import OTHER, PATIENCE, WIDTHS, HandAt, serving, store_at, watched
from ui_rig import chromium as chromium
from ui_rig import hand_at as hand_at

from tfgrpo.improvement.proposals import list_proposals
from tfgrpo.store import Operation, Store
from tfgrpo.terminal_safe import shown

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser
PAGES = {
    "home": "/",
    "library": "/library?at=main",
    "experience": "/experience/G0?at=main",
    "credit": "/experience/G2/credit?at=main",
    "version": "/version/v5",
    "diff": "/diff?a=v1&b=main",
    "conflict": "/combine?kind=merge&version=web&branch=main",
    "history": "/history",
    "bisect": "/bisect",
    "review": "/review",
    "production": "/production",
    "order": "/library/order?branch=main",
    "change": "/library/change?branch=main&experience=G0",
}

PICTURED = ("library", "credit", "history", "review")
"""Of which the documentation has pictures."""


@pytest.fixture(scope="module")
def demonstration(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The demonstration's address that logs in."""
    store = demo(tmp_path_factory.mktemp("demo"), now=time.time_ns() // 1000)
    with serving(store) as url:
        yield url


@pytest.mark.parametrize("name", PICTURED)
def test_a_page_is_seen_at_every_width_in_light_and_dark(
    name: str, chromium: Browser, demonstration: str
) -> None:
    folder = os.environ.get("TFGRPO_SCREENSHOTS")
    with watched(chromium, reduced_motion="reduce") as page:
        page.goto(demonstration)
        page.goto(demonstration.partition("/?")[0] + PAGES[name])
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            for width, (across, down) in WIDTHS.items():
                page.set_viewport_size({"width": across, "height": down})
                assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
                if folder:
                    Path(folder).mkdir(parents=True, exist_ok=True)
                    page.screenshot(path=f"{folder}/{name}-{width}-{scheme}.png")


CUT = """rows => rows.flatMap(row => [...row.querySelectorAll('.second .name, .end .clock')])
  .filter(one => one.textContent.length <= 20).filter(one => {
    const own = one.getBoundingClientRect(), row = one.closest('.row').getBoundingClientRect();
    const out = own.left < row.left || own.right > row.right + 1 || own.bottom > row.bottom + 1;
    return own.width && own.top < row.bottom && (out || one.scrollWidth > one.clientWidth + 1);
  }).map(one => one.textContent)"""


def test_names_are_whole_and_times_are_there_at_every_width(
    chromium: Browser, tmp_path: Path
) -> None:
    store = store_at(tmp_path, "One.", "Two.")
    long = "Say both days of a hire, and which of them is the first and the last of the two"
    with Store.open(store) as opened:
        words = Operation("ADD", text="Three, which is a long text, so that an excerpt is long.")
        version = opened.commit("main", [words], message=long)
        for name in ("approved", "shop-2026", "of-the-web", "a-name-that-is-much-too-long-to-show"):
            opened.create_tag(name, version.name)
    with serving(store) as url, watched(chromium) as page:
        page.goto(url)
        at = url.partition("/?")[0]
        for width, (across, down) in WIDTHS.items():
            page.set_viewport_size({"width": across, "height": down})
            page.goto(at + "/history")
            assert page.eval_on_selector_all(".versions li", CUT) == [], width
            assert page.locator(".versions .name:visible").first.inner_text() == "HEAD -> main"
            clocks = page.locator(".versions .end .clock")
            shown = [clocks.nth(n).is_visible() for n in range(clocks.count())]
            assert shown == [True, True], width
            page.goto(at + "/")
            clocks = page.locator(".versions.short .clock")
            assert [clocks.nth(n).is_visible() for n in range(clocks.count())] == [True, True]
            wide = "one => one.scrollWidth > one.clientWidth || one.scrollHeight > one.clientHeight"
            cut = f"rows => rows.filter({wide}).map(one => one.textContent)"
            assert page.eval_on_selector_all(".versions.short li", cut) == [], width
        page.set_viewport_size({"width": 390, "height": 844})
        page.goto(at + "/history")
        lines = "one => one.clientHeight / parseFloat(getComputedStyle(one).lineHeight)"
        assert page.eval_on_selector(".versions .what", lines) == 2
        whole = "one => one.clientWidth === one.closest('.row').clientWidth"
        assert page.eval_on_selector(".versions .what", whole), "a time takes nothing of a subject"
        page.set_viewport_size({"width": 1280, "height": 800})
        places = (
            "rows => rows.map(one => one.getBoundingClientRect()).map(one => [one.top, one.bottom])"
        )
        first, second, third = page.eval_on_selector_all(".versions li", places)
        assert first[1] == second[0]
        assert second[1] == third[0]
        ends = "end => document.querySelector('.versions').getBoundingClientRect().bottom === end"
        page.wait_for_function(ends, arg=third[1])  # the list is as high as its rows are now


def test_a_page_is_used_by_keyboard_alone(chromium: Browser, tmp_path: Path) -> None:
    with serving(store_at(tmp_path, "Count both days.")) as url, watched(chromium) as page:
        page.goto(url)
        page.keyboard.press("Tab")
        assert page.inner_text(":focus") == "Skip to the content"
        page.keyboard.press("Enter")
        page.wait_for_function("document.activeElement.id === 'main'")
        page.goto(page.url.partition("#")[0] + "library")
        page.keyboard.press("/")
        page.keyboard.type("nothing")
        page.wait_for_selector("text=No experience says that.")
        page.keyboard.press("Control+A")
        page.keyboard.type("both")
        page.wait_for_url("**q=both**")
        page.wait_for_function("document.querySelectorAll('tbody tr').length === 1")
        page.focus("summary:has-text('Add experiences')")
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        page.keyboard.type("Round up.")
        page.keyboard.press("Tab")
        page.keyboard.type("the shop does")
        with page.expect_navigation():
            page.keyboard.press("Enter")
        assert "add 1 experience" in page.inner_text(".notice")
        assert page.locator("tbody tr").count() == 2
        page.reload()
        assert page.locator("tbody tr").count() == 2, "a reload sends nothing twice"
        assert page.locator(".notice").count() == 0


def test_a_library_is_put_in_order_by_keys_and_by_mouse(chromium: Browser, tmp_path: Path) -> None:
    store = store_at(tmp_path, "One.", "Two.", "Three.")
    with serving(store) as url, watched(chromium) as page:
        page.goto(url)
        page.goto(url.partition("/?")[0] + "/library")
        page.click("text=put it in another order")
        page.focus("button[aria-label='Move G2 up']")
        page.keyboard.press("Enter")
        page.wait_for_selector("text=1 experience moved")
        assert page.get_attribute(":focus", "aria-label") == "Move G2 up"
        page.keyboard.press("Enter")
        page.wait_for_selector("li:first-child.moved")
        page.go_back()
        page.go_forward()
        with page.expect_navigation():
            page.click("button[aria-label='Move G0 to the end']")
        page.focus("#reason")
        page.keyboard.type("the last is first")
        page.keyboard.press("Enter")
        page.wait_for_selector(".notice:has-text('the last is first')")
        page.reload()
    with Store.open(store) as opened:
        assert [e.text for e in opened.library()] == ["Three.", "Two.", "One."]
        assert opened.tip("main").name == "v2"


def test_twenty_proposals_are_reviewed_in_under_two_minutes_by_keys(
    chromium: Browser, tmp_path: Path
) -> None:
    store = store_at(tmp_path, *(f"Lesson {n}." for n in range(24)))
    with Store.open(store, author="tfgrpo") as opened:
        add_proposals(opened, 20)
    with serving(store) as url, watched(chromium) as page:
        page.goto(url)
        page.goto(url.partition("/?")[0] + "/review")
        began = time.monotonic()
        for n in range(20):
            heading = page.inner_text("article h2")
            if n % 4 == 3:
                page.keyboard.press("r")
                page.keyboard.type("not so in this shop")
            with page.expect_navigation():
                page.keyboard.press("Enter" if n % 4 == 3 else "a")
            assert page.locator("article h2").all_inner_texts() != [heading]
        assert time.monotonic() - began < 120
        assert "Nothing waits" in page.inner_text("main")
        with page.expect_navigation():
            page.keyboard.press("u")
        page.wait_for_selector("article")
        page.keyboard.press("e")
        page.keyboard.press("Control+A")
        page.keyboard.type("Other words.")
        page.keyboard.press("Escape")
        page.keyboard.press("s")
        page.wait_for_selector("text=put off")
    with Store.open(store) as opened:
        states = [one.state for one in list_proposals(opened)]
    assert (states.count("open"), states.count("rejected")) == (1, 4)


def test_what_nobody_touched_is_as_it_was_after_the_whole_library_was_saved(
    chromium: Browser, tmp_path: Path
) -> None:
    """Every character below U+3000 that is not printable, those of direction, and words in which
    they are ordinary; but NUL and surrogates, which no form can hold."""
    odd = [chr(n) for n in range(1, 0x3000) if not chr(n).isprintable() or 0x200B <= n < 0x2070]
    odd = [letter for letter in odd if not letter.isspace()]
    texts = [f"Word{letter}word {n}." for n, letter in enumerate(odd)]
    texts += ["\u05e9\u05dc\u05d5\u05dd\u200f (2).", "<b>&amp; \\u202e \\x1b</b>", "Last."]
    store = store_at(tmp_path, *texts)
    with serving(store) as url, watched(chromium) as page:
        page.goto(url)
        at = url.partition("/?")[0]
        page.goto(at + "/library/whole?branch=main")
        content = page.input_value("#content")
        page.fill("#content", content.replace("- Last.", "- Very last."))
        page.fill("#reason", "clearer")
        page.click("button.main")
        page.wait_for_selector(".notice")
        page.goto(at + f"/library/change?branch=main&experience=G{odd.index(chr(0x1B))}")
        assert "U+001B" in page.inner_text("main")
        page.goto(at + "/library/change?branch=main&experience=G0")
        page.fill("#text", page.input_value("#text") + " More.")
        page.fill("#reason", "more")
        page.click("button[value=modify]")
        page.wait_for_selector(".notice")
    with Store.open(store) as opened:
        now = [e.text for e in opened.library()]
        assert now == [f"{texts[0]} More.", *texts[1:-1], "Very last."]
        assert [len(opened.events(opened.version(n))) for n in (2, 3)] == [1, 1]
        marks = "\u05e9\u200f\u05e9\u200e\u05e9\u061c"
    assert shown(marks) == marks


def test_a_held_key_decides_once_and_single_keys_can_be_switched_off(
    chromium: Browser, tmp_path: Path
) -> None:
    store = store_at(tmp_path, *(f"Lesson {n}." for n in range(9)))
    with Store.open(store, author="tfgrpo") as opened:
        add_proposals(opened, 3)
    with serving(store) as url, watched(chromium) as page:
        page.goto(url)
        page.goto(url.partition("/?")[0] + "/review")
        with page.expect_navigation():
            page.keyboard.down("a")
        page.wait_for_selector("h1:has-text('2 proposals waiting')")
        for _ in range(5):  # as a keyboard repeats a key that is held
            page.keyboard.down("a")
        page.keyboard.up("a")
        page.reload()
        page.wait_for_selector("h1:has-text('2 proposals waiting')")
        page.click("#keys")
        assert page.get_attribute("#keys", "aria-pressed") == "false"
        assert not page.is_visible("article kbd")
        page.keyboard.press("a")
        page.reload()
        page.keyboard.press("a")
        page.wait_for_selector("h1:has-text('2 proposals waiting')")
        page.click("#keys")
        page.keyboard.press("a")
        page.wait_for_selector("h1:has-text('1 proposal waiting')")


PRESSED = """key => {
  const pressed = [];
  for (const one of document.querySelectorAll("[data-key]")) {
    one.addEventListener("click", event => { pressed.push(1); event.preventDefault(); });
    one.addEventListener("focus", () => { pressed.push(1); one.blur(); });
  }
  const down = (repeat, more) => document.body.dispatchEvent(
    new KeyboardEvent("keydown", { key, repeat, bubbles: true, cancelable: true, ...more }));
  down(false, {});
  for (let n = 0; n < 20; n++) down(true, {});
  for (const more of ["ctrlKey", "metaKey", "altKey"]) down(false, { [more]: true });
  return pressed.length;
}"""


def test_every_shortcut_presses_once_however_long_it_is_held(
    chromium: Browser, demonstration: str
) -> None:
    keys: set[str] = set()
    with watched(chromium) as page:
        page.goto(demonstration)
        at = demonstration.partition("/?")[0]
        for path in (
            "/library",
            "/history",
            "/review",
            "/bisect",
            "/search",
            "/group/shop?step=1&problem=hire-1",
        ):
            page.goto(at + path)
            there = page.evaluate(
                "[...document.querySelectorAll('[data-key]')]"
                ".filter(one => one.offsetParent).map(one => one.dataset.key)"
            )
            for key in sorted(set(there)):
                page.goto(at + path)
                assert page.evaluate(PRESSED, key) == 1, (path, key)
                keys.add(key)
    assert keys >= set("/aersgbjk")


@pytest.mark.parametrize("how", ["mouse", "keyboard"])
def test_the_main_act_of_every_page(hand_at: HandAt, tmp_path: Path) -> None:
    store = demo(tmp_path, now=time.time_ns() // 1000)
    hand = hand_at(store, reduced_motion="reduce")
    page = hand.page
    hand.open("/")
    hand.follow("main a[href='/library?at=main']")
    hand.press("details:has(#texts) > summary")
    hand.write("#texts", "Name the season.")
    hand.write("#why", "asked for")
    hand.follow("form[action='/library/add'] button")
    hand.sees("add 1 experience", ".notice")
    hand.open("/experience/G1?at=main")
    hand.follow("main a[href^='/library/change?branch=main']")
    hand.write("#text", "Convert prices to euros first.")
    hand.write("#reason", "shorter")
    hand.follow("button[value=modify]")
    hand.sees("modify", ".notice")
    hand.open("/version/HEAD")
    hand.follow("main a[href^='/combine?kind=revert']")
    hand.follow("main button.main")
    hand.sees("take back", ".notice")
    hand.open("/diff?a=v1&b=main")
    hand.follow("main a.button")
    page.wait_for_url("**/diff?a=main&b=v1")
    hand.open(PAGES["conflict"])
    hand.press("input[value=ours]", "Space")
    hand.follow("main button.main")
    hand.sees("is now at", ".notice")
    hand.open("/history")
    hand.write("main input[name=q]", "clearer")
    hand.follow("main form.line button")
    page.wait_for_url("**q=clearer**")
    hand.open("/bisect")
    before = page.inner_text("main")
    hand.follow("button[value=good]")
    page.wait_for_function("b => document.querySelector('main').innerText !== b", arg=before)
    hand.open("/review")
    heading = page.inner_text("article h2")
    hand.follow("button[data-key=a]")
    page.wait_for_function("b => document.querySelector('article h2').innerText !== b", arg=heading)
    hand.open("/production")
    hand.follow("a[href='/rollback?branch=prod']")
    hand.write("#why", "it got worse")
    hand.follow("main button.danger")
    hand.sees("prod", ".notice")
    hand.open("/runs")
    hand.follow("a[href='/run/shop']")
    hand.sees("finished")
    hand.open("/attempts/shop?step=1")
    hand.follow(".group-name")
    page.wait_for_url("**/group/shop?**")
    hand.follow("nav a[href='/cost']")
    page.wait_for_url("**/cost")
    hand.open("/experience/G3/redact?at=main")
    hand.write("#reason", "a customer asked")
    hand.write("#sure", page.inner_text("main h1 .id"))
    hand.follow("main button.danger")
    hand.sees("redacted", ".notice")


def test_a_conflict_is_solved_by_mouse_and_the_back_button_shows_what_was(
    chromium: Browser, tmp_path: Path
) -> None:
    store = demo(tmp_path)
    with serving(store) as url, watched(chromium) as page:
        page.goto(url)
        page.goto(url.partition("/?")[0] + PAGES["conflict"])
        page.click("label:has-text('this text')")
        page.fill("textarea", "Count the first day and the last.")
        with page.expect_navigation():
            page.click("button:has-text('Merge')")
        assert "is now at" in page.inner_text(".notice")
        assert "Count the first day and the last." in page.inner_text("main")
        page.go_back()
        page.wait_for_selector("text=contains it already")
        page.go_forward()
        assert "Count the first day and the last." in page.inner_text("main")


def test_a_long_history_is_scrolled_anywhere(chromium: Browser, tmp_path: Path) -> None:
    store = store_at(tmp_path, "First.")
    with Store.open(store) as opened, opened.port.transaction():
        (id,) = (e.id for e in opened.library())
        for n in range(1200):
            opened.commit("main", [Operation("KEEP", id)], message=f"step {n}")
    with serving(store) as url, watched(chromium) as page:
        page.goto(url)
        page.goto(url.partition("/?")[0] + "/history")
        page.wait_for_selector("[data-number='1201']")
        page.evaluate("scrollTo(0, document.documentElement.scrollHeight / 2)")
        page.wait_for_selector("[data-number='600']")
        page.keyboard.press("End")
        page.wait_for_selector("[data-number='0']")
        # what is far away is let go
        page.wait_for_function("document.querySelectorAll('li[data-number]').length <= 700")
        page.goto(url.partition("/?")[0] + "/history?at=v350")
        row = page.wait_for_selector(".at[data-number='350']")
        assert row is not None
        assert row.is_visible()


def test_hostile_texts_do_nothing_in_a_browser(chromium: Browser, tmp_path: Path) -> None:
    from test_ui_library import HOSTILE

    store = store_at(tmp_path, *HOSTILE)
    with serving(store) as url, watched(chromium) as page:
        page.on("dialog", lambda dialog: pytest.fail(f"a dialog opened: {dialog.message}"))
        page.goto(url)
        at = url.partition("/?")[0]
        for path in ("/library", "/version/v1", "/history", "/experience/G0", "/experience/G5"):
            page.set_viewport_size({"width": 390, "height": 844})
            page.goto(at + path)
            assert page.locator("main img, main script").count() == 0
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path


def test_two_people_change_the_same_words_at_once(chromium: Browser, tmp_path: Path) -> None:
    store = store_at(tmp_path, "Count both days.")
    with (
        serving(store) as url,
        chromium.new_context() as first,
        chromium.new_context() as second,
    ):
        ana, ben = first.new_page(), second.new_page()
        at, _, token = url.partition("/?token=")
        for page, own in ((ana, token), (ben, OTHER)):
            page.set_default_timeout(PATIENCE)
            page.goto(f"{at}/?token={own}")
            page.goto(f"{at}/library/change?branch=main&experience=G0")
            page.fill("#text", f"Words of {own}.")
            page.fill("#reason", "better")
        ana.click("text=Change the text")
        ana.wait_for_selector(".notice")
        with ben.expect_navigation():
            ben.click("text=Change the text")
        ben.wait_for_selector("[role=alert]")
        assert f"Words of {OTHER}." in ben.input_value("#text")
        ben.click("text=Change the text")
        ben.wait_for_selector(".notice")
    with Store.open(store) as opened:
        assert [e.text for e in opened.library()] == [f"Words of {OTHER}."]
        assert [v.author for v in opened.log()][:2] == ["other", "tester"]
