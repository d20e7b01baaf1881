"""Every page with every kind of record: what is printed are texts and numbers."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import NamedTuple

import pytest
from jinja2 import UndefinedError
from test_ui_runs import folder as folder
from ui_records import at_work, by_forms, every_record
from ui_rig import Visitor, crawled

from tfgrpo.production.experiment_evidence import Measured
from tfgrpo.store import Store
from tfgrpo.store.errors import InvalidOperation
from tfgrpo.store.history import bisect
from tfgrpo.ui.export_pages import export_site, page_alone
from tfgrpo.ui.template_environment import Unprintable, environment

INTERNAL = re.compile(
    r"<(?:built-in|bound|function|class|generator|\w+ object)\b[^<]*|object at 0x\w+"
    r"|\bNone\b|\bnan\b|\bUndefined\b|\{'|\[\('|\('\w|Decimal\(|datetime\.|\bNotGiven\b|\b0x[0-9a-f]{6,}"
)
"""What Python prints of a value that is neither a text nor a number."""


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Iterator[list[Path]]:
    """Stores with every kind of record: made by hand and at work, trained and with a search that is
    on, and with nothing in it."""
    empty = tmp_path_factory.mktemp("empty") / ".tfgrpo/store.db"
    Store.init(empty, author="tester").close()
    by_hand = every_record(tmp_path_factory.mktemp("records"), now=time.time_ns() // 1000)
    trained = folder / ".tfgrpo/store.db"
    with Store.open(trained) as store:
        bisect.start(store, store.version(2), [store.version(0)])
    with at_work(by_hand):
        yield [by_hand, trained, empty]


def pages(visitor: Visitor) -> Iterator[tuple[str, str]]:
    """Yields every page that is linked from the first one on, and those that ask for something."""
    for path, answer in crawled(visitor, most=1200):
        if answer.headers.get("content-type", "").startswith("text/html"):
            shown = answer.status_code == 200 or "is not shown here" in answer.text
            assert shown, (path, answer.text[:2000])
            yield path, answer.text


def text_of(page: str) -> str:
    """Returns a page's words, without its marks."""
    return unescape(re.sub(r"<[^>]*>", " ", page))


ODD = re.compile(
    r"\bLeave it\b|>Look<|>Elsewhere<|\d (?:ADD|MODIFY|DELETE|KEEP)\b|\d left out|p (?:= )?0\.000"
    r"|[Ii]ts marks go|Say above|went on with it last|stood nowhere|Money left|--(?:ours|theirs)\b"
)
"""Words of the code, of the command line, or of no reader."""


EVERY = {
    "a comment": ("/review", "The till says <so>."),
    "a comment on a change": ("/review", "Which season?"),
    "a question to a reviewer": ("/review", r"Asked to look:\s+ana\s+by ben"),
    "a virtual key": ("/keys", r"shop & co\s+\$1\.25\s+\$5/day\s+60\s+gpt-5\* o4\s+default"),
    "a bound with an alert": ("/production", "of calls failed, more than 0.1%"),
    "a candidate that entered": ("/run/at-work", r"It has entered\.\s+entered"),
    "a candidate that was given up": ("/run/at-work", r"It was given up\.\s+given up"),
    "a candidate on probation": (
        "/run/at-work",
        r"on probation\.\s+on probation\s+\+0\.\d+\s+\[[^]]+\]\s+\d+ %\s+96, 96",
    ),
    "live figures": ("/run/at-work", "making attempts: 40 of 192"),
    "an endpoint's health": ("/run/at-work", "slowed down, 3 of at most 4 in flight"),
    "a call of a tool": ("/call/with-tools", r'called\s+price\s+\{"days": 3\}'),
    "a search that has ended": ("/bisect", "is the first bad version"),
    "a search that is on": ("/bisect", "To be tested:"),
}
"""Kind of record → the page that shows it, and the words that do."""


@pytest.mark.parametrize("settings", [{}, {"read_only": True}, {"content": False}], ids=str)
def test_every_page_with_every_kind_of_record_prints_texts_and_numbers(
    settings: dict[str, bool], stores: list[Path]
) -> None:
    found: list[tuple[str, str]] = []
    seen: set[str] = set()
    count = 0
    for store in stores:
        for path, page in pages(Visitor(store, **settings)):
            text = text_of(page)
            found += [(path, one) for one in INTERNAL.findall(text) + ODD.findall(page)]
            seen |= {
                kind
                for kind, (at, words) in EVERY.items()
                if path.startswith(at) and re.search(words, text)
            }
            count += 1
    assert found == []
    assert count > 150
    assert settings or seen == EVERY.keys()


def test_what_only_a_form_leads_to_prints_texts_and_numbers(tmp_path: Path) -> None:
    answers = by_forms(every_record(tmp_path, now=time.time_ns() // 1000))
    words = {one.template: text_of(one.page) for one in answers}
    assert "as it was before p" in words["undo"]
    assert "the text remains in versions.message" in words["redacted"]
    assert "36 <euros>" in words["trial"]
    found = [
        (one.path, odd)
        for one in answers
        for odd in INTERNAL.findall(text_of(one.page)) + ODD.findall(one.page)
    ]
    assert found == []


def test_a_small_chance_is_told_as_one() -> None:
    assert environment().from_string("{{ 0.0002 | chance }}").render() == "p &lt; 0.001"


class Kept(NamedTuple):
    """A record with a field that has the name of nothing else."""

    size: int
    facts: dict[str, int]


@pytest.mark.parametrize(
    ("template", "error"),
    [
        ("{{ row.count }}", UndefinedError),
        ("{% if row.index %}a{% endif %}", UndefinedError),
        ("{{ name.upper }}", Unprintable),
        ("{{ row.facts }}", Unprintable),
        ("{{ row }}", Unprintable),
        ("{{ flag }}", Unprintable),
        ("{{ nothing }}", UndefinedError),
        ("{{ row.nothing }}", UndefinedError),
        ("{{ arm.count }}", UndefinedError),
    ],
)
def test_a_template_prints_nothing_but_texts_and_numbers(
    template: str, error: type[Exception]
) -> None:
    values = {
        "row": Kept(3, {"a": 1}),
        "name": "x",
        "flag": True,
        "arm": Measured(12, 0.5),
    }
    with pytest.raises(error):
        environment().from_string(template).render(values)


def test_settings_and_verdicts_are_told_in_words() -> None:
    template = environment().from_string("{{ value | in_words }}")
    value = {"stops": ["a", "b"], "cached": None, "on": True, "share": 0.5}
    assert template.render(value=value) == "stops a, b, on yes, share 0.5"
    with pytest.raises(Unprintable):
        template.render(value=Measured(1, 0.5))


def test_a_record_has_its_fields_and_a_mapping_its_keys() -> None:
    values = {"row": Kept(3, {"count": 7, "items": 8}), "unknown": float("nan"), "missing": None}
    template = environment().from_string(
        "{{ row.size }} {{ row.facts.count }} {{ row.facts.items }} {{ unknown }} {{ missing }}"
    )
    assert template.render(values) == "3 7 8 – –"


def test_a_page_alone_says_how_many_an_experiment_counted(stores: list[Path]) -> None:
    page = text_of(page_alone(stores[0], "/production"))
    assert re.search(r"score\s+the metric that decides\s+\d\.\d{3}\s+of\s+\d+", page)
    assert INTERNAL.findall(page) == []


def test_an_export_tells_of_a_page_that_it_has_not(
    stores: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise InvalidOperation("this page is broken")

    monkeypatch.setattr("tfgrpo.ui.pages.cost.cost_report", broken)
    done = export_site(stores[1], tmp_path / "out")
    assert set(done.failed.values()) == {400}
    assert {page.partition("?")[0] for page in done.failed} == {"/cost"}
    assert not (tmp_path / "out/cost.html").exists()
    monkeypatch.setattr("tfgrpo.ui.pages.production.production_report", broken)
    with pytest.raises(InvalidOperation, match="first page could not be made: status 400"):
        export_site(stores[0], tmp_path / "none")
