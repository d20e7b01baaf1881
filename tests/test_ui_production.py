"""Production over time, its alerts, and experiments that are started and ended from the page."""

from __future__ import annotations

import csv
import html
import io
import json
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier

import pytest
from test_ui_forms import form_of
from test_ui_undo import line
from ui_demo import demo
from ui_rig import WIDTHS, HandAt, Visitor, links, store_at, violations
from ui_rig import chromium as chromium
from ui_rig import hand_at as hand_at

from tfgrpo.improvement.proposals import Draftsman, propose, reject
from tfgrpo.production.by_day import (
    Bounds,
    bounds,
    month_began,
    production_report,
    set_bounds,
)
from tfgrpo.production.experiment import delete_branch, experiment, running_on, stop
from tfgrpo.store import Operation, Store
from tfgrpo.store.activity.decisions import decisions
from tfgrpo.store.activity.traffic import CallFilter, CallRecord, Feedback, Scale, traffic_path
from tfgrpo.store.activity.traffic_figures import by_dimension
from tfgrpo.store.errors import StoreError
from tfgrpo.store.opening import open_traffic
from tfgrpo.ui.figure_cache import Memory
from tfgrpo.ui.notifications import notices

DAY = 86_400_000_000
NOON = 20_000 * DAY + DAY // 2
BLANK = CallRecord(*[None] * len(CallRecord._fields))._replace(
    worker="w", route="/v1/chat/completions", streamed=0, stale=0, model="m", library="default"
)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return demo(tmp_path, now=time.time_ns() // 1000)


def test_days_are_the_sums_of_their_calls(tmp_path: Path) -> None:
    """Three days, two versions: what each came to, by hand."""
    path = traffic_path(tmp_path / "store.db")
    traffic = open_traffic(path, create=True)
    calls = [
        BLANK._replace(
            id=f"call-{n}",
            time=NOON - (n % 3) * DAY,
            version=f"v{n % 2}",
            status=500 if n == 4 else 200,
            prompt_tokens=None if n == 4 else 1000,
            completion_tokens=None if n == 4 else 100,
            latency=1000 * (n + 1),
            added=5,
        )
        for n in range(12)
    ]
    traffic.add(calls, [])
    traffic.add_feedback(Feedback("call-0", 1, "a", 1.0))
    traffic.add_feedback(Feedback("call-0", 2, "a", 0.0))
    traffic.add_feedback(Feedback("call-3", 2, "a", 1.0))
    measured = traffic.measured(0)
    traffic.close()
    report = production_report(path, 0, {"m": {"prompt": 1.0, "completion": 10.0}})
    unpriced = [one._replace(dollars=None, unpriced=0) for one in report.versions]
    assert unpriced == by_dimension(measured, "version")
    assert sum(one.cost or 0.0 for one in report.versions) == pytest.approx(11 * 0.002)
    assert [f"{one.day}" for one in report.days] == ["2024-10-04", "2024-10-03", "2024-10-02"]
    newest, middle, _ = report.days
    assert (newest.figures.calls, newest.figures.score, newest.figures.scored) == (4, 0.75, 2)
    assert newest.figures.cost == pytest.approx(4 * 0.002)
    assert middle.figures.errors == 1
    assert middle.figures.failed == 0.25
    assert middle.figures.cost == pytest.approx(3 * 0.002), "what failed is not paid for"
    assert newest.figures.p95 == 10_000
    assert sum(one.figures.calls for one in report.by_day) == 12
    assert production_report(path, 0, {}).days[0].figures.cost is None


def test_the_page_shows_days_rollouts_and_files(store: Path) -> None:
    traffic = open_traffic(traffic_path(store))
    newest = traffic.calls(CallFilter(), 1)[0].call.time
    traffic.close()
    with Store.open(store, now=lambda: newest) as opened:
        opened.move_branch("prod", "main")
    visitor = Visitor(store)
    page = visitor.get("/production")
    for words in ("Mean score a day", "Failed calls a day", "95 % of calls took", "Calls a day"):
        assert words in page
    assert 'class="event"' in page
    assert re.search(r"<title>[0-9-]+: \w+ → v\d+</title>", page)
    rows = list(csv.DictReader(io.StringIO(visitor.client.get("/production?as=csv-days").text)))
    assert sum(int(row["calls"]) for row in rows) == 60
    versions = json.loads(visitor.client.get("/production?as=json-versions").text)
    assert sum(one["calls"] for one in versions) == 60
    by_calls = visitor.get("/production?sort-versions=-calls")
    assert 'aria-sort="ascending"' in by_calls
    names = re.findall(r'<th scope="row"><a href="/calls[^"]*">([^<]+)</a>', by_calls)
    assert names == [one["name"] for one in sorted(versions, key=lambda one: one["calls"])]
    assert visitor.get("/production?sort-versions=nothing", status=400)


def test_bounds_are_set_on_record_and_a_day_that_crosses_them_is_an_alert(store: Path) -> None:
    visitor = Visitor(store)
    fields = form_of(visitor.get("/production"), "/production/bounds")
    set_to = {"errors": "1", "score": "0.99", "latency": "", "dollars": ""}
    page = visitor.post("/production/bounds", fields | set_to)
    assert "of calls failed, more than 1.0%" in page
    assert "less than 0.99" in page
    stale = visitor.post("/production/bounds", fields | {"errors": "50"}, status=409)
    assert "meanwhile" in stale
    with Store.open(store) as opened:
        assert bounds(opened) == (Bounds(0.01, 0.99), 1)
    again = form_of(visitor.get("/production"), "/production/bounds")
    page = visitor.post("/production/bounds", again | dict.fromkeys(set_to, ""))
    assert "No bound is set." in page
    assert "more than" not in page.partition("Alerts")[0]
    again = form_of(page, "/production/bounds")
    assert visitor.post("/production/bounds", again | {"errors": "-1"}, status=400)


@pytest.mark.parametrize("form", ["/production/bounds", "/experiment/clearer"])
def test_the_links_of_a_page_with_a_refused_form_answer(form: str, store: Path) -> None:
    visitor = Visitor(store)
    fields = form_of(visitor.get("/production"), form) | {"errors": "x", "act": "share"}
    page = visitor.post(form, fields, status=400)
    there = [link for link in links(page) if "sort-" in link or "as=" in link]
    assert len(there) > 20
    for link in there:
        assert visitor.client.get(link).status_code == 200, link


def test_a_version_leads_to_the_calls_that_it_counts(tmp_path: Path) -> None:
    store = store_at(tmp_path, "One.")
    served = [("default", "v1"), ("default", "v2"), ("web shop & more", "v1"), ("default", None)]
    for n, (library, version) in enumerate([*served, (None, None)]):
        for again in range(n + 1):
            add_call(store, f"call-{n}-{again}", 1, library=library, version=version)
    visitor = Visitor(store)
    versions = json.loads(visitor.client.get("/production?as=json-versions").text)
    counts = {one["name"]: one["calls"] for one in versions}
    assert sorted(counts.values()) == [1, 2, 3, 4, 5]
    rows = re.findall(
        r'<th scope="row"><a href="(/calls[^"]*)">([^<]+)</a>', visitor.get("/production")
    )
    assert {html.unescape(name) for _, name in rows} == counts.keys()
    for link, name in rows:
        listed = visitor.client.get(html.unescape(link) + "&as=json-calls").json()
        assert len(listed) == counts[html.unescape(name)], name


def test_an_empty_time_is_the_usual_one(store: Path) -> None:
    visitor = Visitor(store)
    for path in ("/production", "/calls"):
        usual = re.search(r'name="since" value="(\w+)"', visitor.get(path))
        assert usual is not None
        assert f'name="since" value="{usual[1]}"' in visitor.get(f"{path}?since=")
    assert "Wrote" in visitor.post("/production/collect", {"since": " "})


def test_what_is_set_again_or_taken_back_is_the_number_that_was(tmp_path: Path) -> None:
    store = store_at(tmp_path, "One.")
    exact = Bounds(0.07, 1 / 3, 1234567, 1e-7, 0.1 + 0.2)
    with Store.open(store) as opened:
        set_bounds(opened, exact, seen=0)
    visitor = Visitor(store)
    page = visitor.get("/production")
    assert re.search(r'name="errors"[^>]* value="7"', page)
    values = re.findall(r'<input name="(\w+)" size="\d" inputmode="decimal" value="([^"]*)"', page)
    fields = form_of(page, "/production/bounds") | dict(values)
    visitor.post("/production/bounds", fields)
    with Store.open(store) as opened:
        assert bounds(opened) == (exact, 2)
    page = visitor.post("/production/bounds", {"seen": "2"})
    visitor.post(*line(page))
    with Store.open(store) as opened:
        assert bounds(opened) == (exact, 4)


def test_a_share_is_said_and_taken_back_as_it_is(store: Path) -> None:
    visitor = Visitor(store)

    def changed(share: str) -> str:
        fields = form_of(visitor.get("/production"), "/experiment/clearer")
        return visitor.post(
            "/experiment/clearer", fields | {"act": "share", "share": share, "why": "x"}
        )

    page = changed("0.5")
    assert "which 0.5 % of the traffic" in page
    assert "from 20 % to 0.5 %" in page
    assert "for 0.5 % of the traffic" in visitor.get("/")
    changed("12.3456789")
    page = visitor.get("/production")
    assert re.search(r'name="share"[^>]* value="12.3456789"', page)
    visitor.post(*line(changed("7")))
    with Store.open(store) as opened:
        assert experiment(opened, "clearer").share == 12.3456789 / 100


@pytest.mark.parametrize("status", [0, 499, 502, 504, 599])
def test_the_cost_of_a_call_that_broke_off_is_unknown(status: int, tmp_path: Path) -> None:
    path = traffic_path(tmp_path / "store.db")
    cut = BLANK._replace(id="a", time=NOON, status=status, latency=1, added=1)
    known = cut._replace(id="b", prompt_tokens=1_000_000)
    look_up = cut._replace(id="c", status=200, model=None)
    with closing(open_traffic(path, create=True)) as traffic:
        traffic.add([cut, known, look_up], [])
    (version,) = production_report(path, 0, {"m": {"prompt": 1.0, "completion": 10.0}}).versions
    assert (version.dollars, version.unpriced) == (1.0, 1)


def test_of_several_who_change_a_share_at_once_one_is_recorded(store: Path) -> None:
    visitors = [Visitor(store) for _ in range(4)]
    forms = [
        {"csrf": one.csrf(), "seen": "running 0.2", "act": "share", "share": f"{n}", "why": "x"}
        for n, one in enumerate(visitors)
    ]
    together = Barrier(len(visitors))

    def post(n: int) -> int:
        together.wait()
        origin = {"origin": "http://127.0.0.1:7433"}
        answer = visitors[n].client.post("/experiment/clearer", data=forms[n], headers=origin)
        return answer.status_code

    with ThreadPoolExecutor(len(visitors)) as pool:
        assert sorted(pool.map(post, range(len(visitors)))) == [200, 409, 409, 409]
    with Store.open(store) as opened:
        about = decisions(opened, kind="experiment", subject="clearer")
    assert [one.content["action"] for one in about].count("share") == 1


def test_a_call_of_unknown_price_silences_no_bound_on_the_cost(store: Path) -> None:
    (store.parent.parent / "tfgrpo.toml").write_text("[prices.m]\nprompt = 1e4\ncompletion = 1e4\n")
    visitor = Visitor(store)

    def alert(dollars: float) -> tuple[str, list[str]]:
        fields = form_of(visitor.get("/production"), "/production/bounds")
        visitor.post("/production/bounds", fields | {"dollars": f"{dollars}"})
        with Store.open(store) as opened:
            told = [one.text for one in notices(opened).values() if one.kind == "bound"]
        return visitor.get("/production"), told

    def add(id: str, model: str) -> None:
        with closing(open_traffic(traffic_path(store))) as traffic:
            now = time.time_ns() // 1000
            call = BLANK._replace(id=id, time=now, model=model, status=200, latency=1, added=1)
            traffic.add([call._replace(prompt_tokens=100, completion_tokens=10)], [])

    add("priced", "m")
    assert "unknown for" not in alert(1e6)[0]
    add("unpriced", "nobody-knows")
    visitor = Visitor(store)  # figures are some seconds old
    page, told = alert(1e6)
    assert "the cost is unknown for 1 call" in page
    assert [words for words in told if words.endswith("the cost is unknown for 1 call")] == told
    page, told = alert(1)
    assert "the calls cost at least $" in page
    assert "more than $1.00" in page
    assert any("at least $" in words for words in told)


def test_a_bound_that_is_crossed_is_told_once_whichever_others_are(store: Path) -> None:
    def slow(errors: str) -> set[str]:
        fields = form_of(visitor.get("/production"), "/production/bounds")
        visitor.post("/production/bounds", fields | {"errors": errors, "latency": "1"})
        with Store.open(store) as opened:
            return {key for key, one in notices(opened).items() if "95 % of calls" in one.text}

    visitor = Visitor(store)
    assert slow("") == slow("1") != set()


PRICES = "[prices.m]\nprompt = 1e6\ncompletion = 0\n"
"""A dollar for each token of a prompt."""


def add_call(store: Path, id: str, dollars: int, **more: object) -> None:
    tokens = {"prompt_tokens": dollars, "completion_tokens": 0, "status": 200}
    call = BLANK._replace(id=id, time=time.time_ns() // 1000, latency=1, added=1)
    call = call._replace(**(tokens | more))
    with closing(open_traffic(traffic_path(store), create=True)) as traffic:
        traffic.add([call], [])


def test_a_month_s_budget_is_told_of_when_it_is_nearly_and_when_it_is_spent(
    tmp_path: Path,
) -> None:
    store = store_at(tmp_path, "One.")
    (tmp_path / "tfgrpo.toml").write_text(PRICES)
    add_call(store, "old", 500)
    now = time.time_ns() // 1000
    with closing(open_traffic(traffic_path(store))) as traffic:
        last_month = traffic.call("old")._replace(id="older", time=month_began(now) - 1)
        traffic.add([last_month], [])
        assert sum(one.calls for one in traffic.tokens(0)) == 2

    def told() -> list[str]:
        with Store.open(store) as opened:
            return [one.text for one in notices(opened).values() if one.kind == "budget"]

    visitor = Visitor(store)
    fields = form_of(visitor.get("/production"), "/production/bounds")
    page = visitor.post("/production/bounds", fields | {"month": "1000"})
    assert "500.00 of 1000.00</span></span> dollars are spent" in page
    assert "The budget of a month is $1,000.00: 80 % of it is an alert" in page
    assert "A day is an alert" not in page
    assert told() == []
    undo = line(page)
    add_call(store, "more", 400)
    words = "the calls of the month cost $900.00, more than 80% of the budget of $1,000.00"
    assert [text.partition(": ")[2] for text in told()] == [words]
    assert words in Visitor(store).get("/production"), "figures are some seconds old"
    add_call(store, "failed", 0, status=500, prompt_tokens=None)
    add_call(store, "look-up", 0, model=None, prompt_tokens=None, completion_tokens=None)
    add_call(store, "unknown", 0, model="nobody-knows")
    add_call(store, "too much", 200)
    words = "the calls of the month cost at least $1,100.00, more than the budget of $1,000.00"
    assert [text.partition(": ")[2] for text in told()] == [words]
    page = Visitor(store).get("/production")
    assert words in page
    assert "what 1 call cost is unknown" in page
    with Store.open(store) as opened:
        assert bounds(opened)[0] == Bounds(month=1000)
    assert "No bound is set." in visitor.post(*undo)
    assert told() == []
    fields = form_of(visitor.get("/production"), "/production/bounds")
    page = visitor.post("/production/bounds", fields | {"month": "1e9"})
    assert [text.partition(": ")[2] for text in told()] == ["the cost is unknown for 1 call"]


def test_what_a_model_costs_at_its_provider_is_known_of_each_call(tmp_path: Path) -> None:
    store, model = store_at(tmp_path), "claude-sonnet-4-5"
    add_call(store, "a", 1000, model=model, provider="https://api.anthropic.com")
    report = production_report(traffic_path(store), 0, {})
    assert report.days[0].figures.cost == pytest.approx(0.003)


def test_no_failed_call_is_a_bound_that_is_told_of(tmp_path: Path) -> None:
    store = store_at(tmp_path, "One.")
    add_call(store, "a", 1, status=500)
    with Store.open(store) as opened:
        set_bounds(opened, Bounds(errors=0.0), seen=0)
        (one,) = notices(opened).values()
    assert "100.0% of calls failed, more than 0.0%" in one.text


@pytest.mark.parametrize("days_ago", [1, 2])
def test_a_day_is_held_against_its_bounds_whole(days_ago: int, tmp_path: Path) -> None:
    """Its beginning counts, also where calls are looked at since its middle."""
    store, today = store_at(tmp_path, "One."), time.time_ns() // 1000 // DAY * DAY
    for n in range(4):
        add_call(store, f"early-{n}", 1, time=today - days_ago * DAY + n)
    add_call(store, "late", 1, time=today - (days_ago - 1) * DAY - 1, status=500)
    with Store.open(store) as opened:
        set_bounds(opened, Bounds(errors=0.5), seen=0)
        assert notices(opened) == {}
    page = Visitor(store).get(f"/production?since={24 * days_ago}h")
    assert "of calls failed" not in page
    (row,) = json.loads(
        Visitor(store).client.get(f"/production?since={24 * days_ago}h&as=json-days").text
    )
    assert (row["calls"], row["failed"]) == (5, 1)
    (row,) = json.loads(
        Visitor(store).client.get(f"/production?since={24 * days_ago}h&as=json-versions").text
    )
    assert row["calls"] == 1, "but a version has the calls since then"


def test_bounds_are_lines_in_charts_with_words(store: Path) -> None:
    visitor = Visitor(store)
    assert 'class="limit"' not in visitor.get("/production")
    fields = form_of(visitor.get("/production"), "/production/bounds")
    limits = {"errors": "1", "score": "0.9", "latency": "2500", "dollars": "7"}
    page = visitor.post("/production/bounds", fields | limits)
    images = re.findall(r'role="img" aria-label="([^"]+)"', page)
    for title, words in (
        ("Mean score a day", "alert below 0.90"),
        ("Failed calls a day", "alert above 1.0%"),
        ("95 % of calls took up to, ms", "alert above 2.5 k"),
        ("Mean score, by version", "alert below 0.90"),
        ("Failed calls, by version", "alert above 1.0%"),
    ):
        (label,) = (one for one in images if one.startswith(f"{title}, latest"))
        assert label.endswith(f", {words}")
        assert f">{words}</text>" in page
    heights = re.findall(r'<line class="limit"[^>]* y1="([0-9.]+)"', page)
    assert all(8 <= float(y) <= 104 for y in heights), "a bound beyond all figures is drawn too"
    assert not any(label.startswith("Calls a day") and "alert" in label for label in images)


def test_versions_are_compared_in_charts_with_what_was_rolled_out(store: Path) -> None:
    with Store.open(store) as opened:
        opened.move_branch("web", "main")
        tip = opened.tip("main").name
    page = Visitor(store).get("/production")
    charts = re.findall(r'<figure class="chart">.*?</figure>', page, re.S)
    of_versions = [one for one in charts if ", by version" in one]
    assert len(of_versions) == 3, "nobody knows what the demonstration's model costs"
    for one in of_versions:
        names = re.findall(r'<th scope="row">default v(\d+)</th>', one)
        assert names == sorted(names, key=int)
        assert len(names) == 2
        assert re.search(rf'class="event".*<title>[^<]*web → {tip}</title>', one)
    (store.parent.parent / "tfgrpo.toml").write_text(PRICES)
    page = Visitor(store).get("/production")
    assert "Dollars for 1,000 calls, by version" in page
    rows = json.loads(Visitor(store).client.get("/production?as=json-versions").text)
    assert all(row["dollars"] > 0 for row in rows)


def test_one_call_that_was_lost_is_one(store: Path) -> None:
    with closing(open_traffic(traffic_path(store))) as traffic:
        traffic.count_lost("gone", 1)
        assert "1 call was lost before it was recorded" in Visitor(store).get("/production")
        traffic.count_lost("gone", 2)
        assert "2 calls were lost before they were recorded" in Visitor(store).get("/production")


def test_a_column_has_one_name_in_a_table_and_on_a_card(store: Path) -> None:
    page = Visitor(store).get("/?figures=now")
    for table in re.findall(r'<table class="cards">.*?</table>', page, re.S):
        heads = re.findall(r'<th scope="col"[^>]*>([^<]+)</th>', table)
        for row in re.findall("<tr>(.*?)</tr>", table, re.S):
            cards = re.findall(r'data-title="([^"]+)"', row)
            assert cards == heads[1:] or not cards, (heads, cards)


def test_an_old_figure_is_shown_once_more_while_another_is_computed() -> None:
    memory, go, renewed = Memory(), threading.Event(), threading.Event()

    def slow() -> str:
        assert go.wait(240)
        renewed.set()
        return "new"

    assert memory.fresh("a", 0.0, lambda: "old") == "old"
    assert memory.fresh("a", 60.0, slow) == "old"
    assert memory.fresh("a", 60.0, slow) == "old", "nobody waits, and only one thread computes"
    go.set()
    assert renewed.wait(240)
    while memory.fresh("a", 60.0, slow) == "old":
        threading.Event().wait(0.001)
    failed = threading.Event()

    def failing() -> str:
        failed.set()
        raise StoreError("gone")

    memory.fresh("b", 0.0, lambda: "old")
    memory.fresh("b", 0.0, failing)
    assert failed.wait(240)


def test_no_figure_is_shown_that_is_minutes_old() -> None:
    clock = [1000.0]
    memory = Memory(clock=lambda: clock[0])
    assert not memory.has("a")
    assert memory.fresh("a", 10.0, lambda: "old") == "old"
    clock[0] += 299
    assert memory.has("a")
    clock[0] += 2
    assert not memory.has("a"), "to show it takes time"
    assert memory.fresh("a", 10.0, lambda: "new") == "new"
    assert memory.has("a")


def test_an_experiment_is_started_and_ended_where_others_did_nothing_since(store: Path) -> None:
    visitor = Visitor(store)
    fields = form_of(visitor.get("/production"), "/experiment/clearer")
    choice = {"act": "share", "share": "50", "why": "more of it"}
    assert "50 % get the candidate" in visitor.post("/experiment/clearer", fields | choice)
    page = visitor.post("/experiment/clearer", fields | {"act": "stop", "why": "x"}, status=409)
    assert "meanwhile" in page
    fields = form_of(visitor.get("/production"), "/experiment/clearer")
    assert visitor.post("/experiment/clearer", fields | {"act": "promote"}, status=400)
    page = visitor.post("/experiment/clearer", fields | {"act": "rollback", "why": "worse"})
    assert "is rolled back" in page
    new = form_of(visitor.get("/experiment/new?branch=prod"), "/experiment/new")
    wanted = {"name": "again", "candidate": "v2", "share": "20", "metric": "score", "unit": "call"}
    page = visitor.post("/experiment/new", new | wanted, status=400)
    assert "why is missing" in page
    assert 'value="again"' in page, "what was typed is still there"
    odd = new | wanted | {"why": "y", "onto": "v1"}
    assert "has moved on" in visitor.post("/experiment/new", odd, status=409)
    for share in ("200", "-1", "x", ""):
        visitor.post("/experiment/new", new | wanted | {"why": "y", "share": share}, status=400)
    with Store.open(store) as opened:
        candidate = opened.tip("main").name
        opened.create_branch("proposal/x", "prod")
        opened.commit("proposal/x", [Operation("ADD", text="Say please.")], message="say please")
        propose(opened, Draftsman("proposal/x", "prod", "improve", opened.tip("prod")))
        assert '<option value="p1">' in visitor.get("/experiment/new?branch=prod")
        reject(opened, "p1", why="no better")
    wanted |= {"why": "to see"}
    page = visitor.post("/experiment/new", new | wanted | {"candidate": "p1"}, status=400)
    assert "proposal p1 was rejected" in page
    wanted |= {"other": candidate}
    assert "Experiment again runs" in visitor.post("/experiment/new", new | wanted)
    with Store.open(store) as opened:
        assert experiment(opened, "again").share == 0.2
    assert "/experiment/new" not in Visitor(store, read_only=True).get("/production")


@pytest.mark.parametrize(
    ("moved", "why"),
    [(True, "prod was moved since the experiment began"), (False, "prod is gone")],
)
def test_a_paused_experiment_is_shown_as_paused_with_why(
    moved: bool, why: str, store: Path
) -> None:
    visitor = Visitor(store)
    page = visitor.get("/production")
    assert '<span class="name">running</span>' in page
    assert "of the traffic gets" in page
    assert "paused" not in page + visitor.get("/")
    with Store.open(store) as opened:
        if moved:
            opened.commit("prod", [Operation("ADD", text="Say please.")], message="say please")
        else:
            with opened.forced():
                delete_branch(opened, "prod")
    page = visitor.get("/production")
    assert '<span class="name">paused</span>' in page
    assert why in page
    assert "running</span>" not in page
    assert "of the traffic gets" not in page, "nobody gets it"
    assert why in visitor.get("/")


def test_a_page_tries_a_proposal_with_what_its_branch_gained_and_says_what_would_go(
    store: Path,
) -> None:
    visitor, new = Visitor(store), "/experiment/new"
    with Store.open(store) as opened:
        if running := running_on(opened, "prod"):
            stop(opened, running.name)
        opened.create_branch("proposal/x", "prod")
        opened.commit("proposal/x", [Operation("ADD", text="Say please.")], message="please")
        made = propose(opened, Draftsman("proposal/x", "prod", "improve", opened.tip("prod")))
        opened.commit("prod", [Operation("ADD", text="No refunds.")], message="by hand")
        wanted = {"share": "20", "metric": "score", "unit": "call", "why": "to see"}
        fields = form_of(visitor.get(f"{new}?branch=prod"), new) | wanted
        visitor.post(new, fields | {"name": "asked", "candidate": made.id})
        texts = [one.text for one in opened.library(experiment(opened, "asked").candidate.digest)]
        assert {"No refunds.", "Say please."} < set(texts)
        assert "trial/asked" not in visitor.get(f"{new}?branch=main")
        stop(opened, "asked")
        page = visitor.post(new, fields | {"name": "older", "other": "proposal/x~1"})
        assert "A promotion would take" in page
        assert "No refunds." in page
        seen = form_of(visitor.get("/production"), "/experiment/older")
        page = visitor.post("/experiment/older", seen | {"act": "promote", "why": "w"}, status=400)
        assert "lacks" in page


def test_an_experiment_begins_where_scores_have_a_scale_of_their_own(store: Path) -> None:
    visitor = Visitor(store)
    with closing(open_traffic(traffic_path(store))) as traffic:
        traffic.set_scale("stars", Scale(1, 5))
    visitor.post("/call/call-000000000001", {"score": "4", "label": "stars"})
    for name, branch, metric in (("stars", "web", "score:stars"), ("plain", "main", "score")):
        page = visitor.get(f"/experiment/new?branch={branch}")
        assert f"<option>{metric}</option>" in page
        wanted = {"name": name, "candidate": "v2", "metric": metric, "why": "to see"}
        fields = form_of(page, "/experiment/new") | wanted | {"share": "20", "unit": "call"}
        assert f"Experiment {name} runs" in visitor.post("/experiment/new", fields)
    with Store.open(store) as opened:
        assert experiment(opened, "stars").plan.scale("score:stars") == (1, 5)


@pytest.mark.browser
@pytest.mark.parametrize("how", ["mouse", "keyboard", "no script"])
def test_production_is_worked_with_in_a_browser(how: str, hand_at: HandAt, store: Path) -> None:
    hand = hand_at(store)
    page = hand.page
    page.set_viewport_size({"width": 1280, "height": 800})
    hand.open("/production")
    box = page.locator("figure.chart").first.bounding_box()
    assert box is not None
    assert box["y"] + box["height"] < 800, "what happened is seen before the scroll"
    heads = page.locator("h2").all_inner_texts()
    assert heads[:4] == ["Over time", "Experiments", "By version", "Branches"]
    hand.press("details.act summary")
    hand.write("details.act input[name=why]", "worse")
    hand.follow("details.act button[value=stop]")
    hand.sees("is stopped", ".notice")
    hand.follow("a[href='/experiment/new?branch=prod']")
    hand.write("#name", "second")
    hand.write("#why", "to see")
    hand.follow("main form button.main")
    hand.sees("Experiment second runs", ".notice")
    hand.press("details:has(input[name=errors]) summary")
    hand.write("main input[name=errors]", "1")
    hand.write("main input[name=month]", "200")
    hand.follow("form[action='/production/bounds'] button")
    hand.sees("more than 1.0%")
    hand.sees("The budget of a month is $200.00")
    hand.sees("0.00 of 200.00")
    assert page.locator("svg[aria-label^='Failed calls a day'] text.limit").is_visible()
    assert page.locator("svg[aria-label^='Failed calls, by version']").is_visible()
    hand.press("#days summary")
    hand.follow("#days thead th:nth-child(3) a")
    assert page.get_attribute("#days thead th:nth-child(3)", "aria-sort") == "descending"
    if how != "no script":
        for address in (page.url, hand.at + "/experiment/new?branch=prod"):
            page.goto(address)
            for width, (across, down) in WIDTHS.items():
                page.set_viewport_size({"width": across, "height": down})
                wide = "document.documentElement.scrollWidth <= innerWidth"
                assert page.evaluate(wide), (width, address)
            assert violations(page) == []


@pytest.mark.browser
@pytest.mark.parametrize("how", ["mouse", "keyboard", "no script"])
def test_an_experiment_is_changed_and_promoted_in_a_browser(hand_at: HandAt, store: Path) -> None:
    hand = hand_at(store)
    hand.open("/production")
    hand.press("details.act summary")
    hand.write("details.act input[name=share]", "50")
    hand.write("details.act input[name=why]", "more of it")
    hand.follow("details.act button[value=share]")
    hand.sees("50 % get the candidate", ".notice")
    with Store.open(store) as opened:
        assert experiment(opened, "clearer").share == 0.5
    hand.press("details.act summary")
    hand.write("details.act input[name=why]", "better")
    hand.follow("details.act button[value=promote]")
    hand.sees("is promoted", ".notice")
    with Store.open(store) as opened:
        ended = experiment(opened, "clearer")
        assert ended.state == "promoted"
        assert opened.tip("prod") == opened.tip(ended.candidate.revision)
