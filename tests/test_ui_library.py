"""The pages of the library without a browser: what they show, and what their forms record."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
from ui_rig import OTHER, Visitor, crawl, forms, store_at

from tfgrpo.improvement.proposals import Draftsman, Effect, get_proposal, propose
from tfgrpo.learn.turned_down import turned_down
from tfgrpo.store import Operation, Store

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{ 7 * 7 }} ${7*7}",
    "\x1b[31mred\x1b[0m and \u202eturned round\u202c",
    "</textarea><script>alert(2)</script>",
    "x" * 1_000_000,
)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return store_at(tmp_path, "Count both days.", "Round up.", "Name the unit.")


def ids(store: Path, branch: str = "main") -> list[str]:
    with Store.open(store) as opened:
        return [e.id for e in opened.library(opened.tip(branch))]


def texts(store: Path, branch: str = "main") -> list[str]:
    with Store.open(store) as opened:
        return [e.text for e in opened.library(opened.tip(branch))]


def commit(store: Path, branch: str, *operations: Operation) -> str:
    with Store.open(store, author="writer") as opened:
        return opened.commit(branch, operations, message="meanwhile").name


def test_a_persons_operations_are_events_with_a_reason_under_the_persons_name(store: Path) -> None:
    visitor = Visitor(store, token=OTHER)
    first, second, third = ids(store)
    change = {"branch": "main", "onto": "HEAD", "reason": "the shop says so"}
    page = visitor.post("/library/add", {"branch": "main", "reason": "new", "texts": "A.\nB.\n"})
    assert "add 2 experiences" in page
    visitor.post("/library/change", {**change, "experience": first, "text": "Count all days."})
    visitor.post("/library/change", {**change, "experience": second, "act": "delete"})
    visitor.post("/library/change", {**change, "experience": third, "act": "keep"})
    assert texts(store) == ["Count all days.", "Name the unit.", "A.", "B."]
    assert (store.parent / "experiences.json").read_text().count("Count all days.") == 1
    with Store.open(store) as opened:
        made = [opened.version(n) for n in range(2, 6)]
        events = [event for version in made for event in opened.events(version)]
    assert {version.author for version in made} == {"other"}
    assert [e.op for e in events] == ["ADD", "ADD", "MODIFY", "DELETE", "KEEP"]
    assert {e.reason for e in events[2:]} == {"the shop says so"}


def test_a_form_without_a_reason_or_token_records_nothing(store: Path) -> None:
    visitor = Visitor(store)
    fields = {"branch": "main", "onto": "HEAD", "experience": ids(store)[0], "text": "Else."}
    assert "why is missing" in visitor.post("/library/change", fields, status=400)
    bad = visitor.client.post("/library/change", data={**fields, "reason": "x", "csrf": "0" * 64})
    assert bad.status_code == 400
    other = Visitor(store, token=OTHER)
    stolen = {**fields, "reason": "x", "csrf": other.csrf()}
    assert visitor.client.post("/library/change", data=stolen).status_code == 400
    assert texts(store)[0] == "Count both days."


def test_read_only_shows_and_records_nothing(store: Path) -> None:
    visitor = Visitor(store, read_only=True)
    assert not forms(visitor.get("/library"))
    fields = {"branch": "main", "texts": "New.", "reason": "x"}
    assert "the pages are read-only" in visitor.post("/library/add", fields, status=400)
    assert len(texts(store)) == 3


def test_a_text_that_another_changed_meanwhile_is_shown_and_nothing_is_lost(store: Path) -> None:
    visitor = Visitor(store)
    first = ids(store)[0]
    page = visitor.get(f"/library/change?branch=main&experience={first}")
    onto = re.search(r'name="onto" value="(v\d+)"', page)
    assert onto is not None
    commit(store, "main", Operation("MODIFY", first, "Count each day."))
    commit(store, "main", Operation("ADD", text="Unrelated."))
    fields = {"branch": "main", "experience": first, "onto": onto[1], "reason": "better"}
    page = visitor.post("/library/change", {**fields, "text": "My own words."}, status=409)
    assert "My own words." in page
    assert "<ins>Count each day.</ins>" in page
    assert texts(store)[0] == "Count each day."


def test_a_text_of_an_experience_that_another_deleted_meanwhile_is_kept(store: Path) -> None:
    visitor = Visitor(store)
    first = ids(store)[0]
    commit(store, "main", Operation("DELETE", first))
    fields = {"branch": "main", "experience": first, "onto": "v1", "reason": "better"}
    page = visitor.post("/library/change", {**fields, "text": "My own words."}, status=409)
    assert "it was deleted" in page
    assert ">My own words.</textarea>" in page
    assert 'value="better"' in page
    assert 'action="/library/add"' in page


def test_an_unrelated_writer_is_no_conflict(store: Path) -> None:
    visitor = Visitor(store)
    first, second, _ = ids(store)
    commit(store, "main", Operation("MODIFY", second, "Always round up."))
    fields = {"branch": "main", "experience": first, "onto": "v1", "reason": "better"}
    visitor.post("/library/change", {**fields, "text": "Mine."})
    assert texts(store)[:2] == ["Mine.", "Always round up."]


def test_a_library_is_arranged_and_then_recorded_as_one_version_beside_a_writer(
    store: Path,
) -> None:
    visitor = Visitor(store, token=OTHER)
    page = visitor.get("/library/order?branch=main")
    assert "Nothing is moved yet" in page
    page = visitor.get("/library/order?branch=main&onto=v1&last=0")
    page = visitor.get(f"/library/order?branch=main&onto=v1&order={shown_order(page)}&up=2")
    assert shown_order(page) == "2.1.0"
    assert len(ids(store)) == 3, "looking at an order records nothing"
    commit(store, "main", Operation("ADD", text="Unrelated."))
    fields = {"branch": "main", "onto": "v1", "order": shown_order(page)}
    assert "why is missing" in visitor.post("/library/order", fields, status=400)
    page = visitor.post("/library/order", {**fields, "reason": "most used first"})
    assert texts(store) == ["Name the unit.", "Round up.", "Count both days.", "Unrelated."]
    assert "most used first" in page
    for address in ("/version/HEAD", "/diff?a=v2&b=v3", "/combine?kind=revert&version=v3"):
        assert re.search(r"G\d → G\d", visitor.get(address)), address
    again = {**fields, "order": "1.0.2", "reason": "mine"}
    page = visitor.post("/library/order", again, status=409)
    assert "another order meanwhile" in page
    assert shown_order(page) == "1-2.0.3", "nothing is lost: places are those of the new order"
    with Store.open(store) as opened:
        assert opened.tip("main").name == "v3"
        assert opened.tip("main").author == "other"
        assert opened.events(opened.tip("main")) == ()


def shown_order(page: str) -> str:
    found = re.search(r'name="order" value="([^"]*)"', page)
    assert found is not None
    return found[1]


def test_the_whole_library_is_edited_as_one_version(store: Path) -> None:
    visitor = Visitor(store)
    fields = whole_form(visitor.get("/library/whole?branch=main"))
    content = fields["content"].replace("Round up.", "Round to cents.") + "- Another.\n"
    visitor.post("/library/whole", {**fields, "content": content, "reason": "spring clean"})
    assert texts(store) == ["Count both days.", "Round to cents.", "Name the unit.", "Another."]


def whole_form(page: str) -> dict[str, str]:
    """What the form of the whole library would send again."""
    content = re.search(r"<textarea[^>]*>(.*?)</textarea>", page, re.S)
    onto = re.search(r'name="onto" value="(v\d+)"', page)
    assert content is not None
    assert onto is not None
    return {"branch": "main", "onto": onto[1], "content": html.unescape(content[1])}


def test_who_edits_the_whole_library_is_in_nobodys_way(store: Path) -> None:
    visitor = Visitor(store)
    fields = whole_form(visitor.get("/library/whole?branch=main"))
    commit(store, "main", Operation("ADD", text="Ben's."))
    content = fields["content"].replace("Round up.", "Round to cents.") + "- Another.\n"
    visitor.post("/library/whole", {**fields, "content": content, "reason": "mine"})
    assert texts(store) == [
        *("Count both days.", "Round to cents.", "Name the unit.", "Ben's.", "Another.")
    ]


@pytest.mark.parametrize("moved", [False, True])
def test_of_the_same_experiences_both_texts_are_shown_and_recorded_if_still_right(
    store: Path, moved: bool
) -> None:
    visitor = Visitor(store)
    first, second, third = ids(store)
    fields = whole_form(visitor.get("/library/whole?branch=main"))
    commit(store, "main", Operation("MODIFY", first, "Count each day."), Operation("DELETE", third))
    commit(store, "main", Operation("ADD", text="Ben's."))
    content = fields["content"].replace("both days", "my days").replace("the unit", "my unit")
    if moved:
        line = f"- Round up. <!-- {second} -->\n"
        content = content.replace(line, "") + line
    content += "- Another.\n"
    page = visitor.post(
        "/library/whole", {**fields, "content": content, "reason": "mine"}, status=409
    )
    assert "main has moved on to v3, which changed the same experiences" in page
    assert "there: Count each day." in page
    assert "<ins>my days.</ins>" in page
    assert "there: deleted" in page
    assert 'value="mine"' in page
    assert texts(store) == ["Count each day.", "Round up.", "Ben's."]
    again = whole_form(page)
    visitor.post("/library/whole", {**again, "reason": "mine"})
    if moved:
        assert texts(store) == [
            *("Count my days.", "Name my unit.", "Round up.", "Another.", "Ben's.")
        ]
    else:
        assert texts(store) == [
            *("Count my days.", "Round up.", "Ben's.", "Name my unit.", "Another.")
        ]
    assert ids(store)[0] == first


def test_a_whole_library_that_is_refused_is_still_on_the_page(store: Path) -> None:
    visitor = Visitor(store)
    fields = whole_form(visitor.get("/library/whole?branch=main"))
    own = fields["content"] + "- Mine.\n"
    for content, reason, why in ((own, "", "why is missing"), (own + "odd", "mine", "odd")):
        sent = {**fields, "content": content, "reason": reason}
        page = visitor.post("/library/whole", sent, status=400)
        assert why in page
        assert "Nothing was recorded; what you wrote is below" in page
        assert whole_form(page) == {**fields, "content": content}
    assert len(texts(store)) == 3


def test_search_sort_and_pages_of_a_library(tmp_path: Path) -> None:
    store = store_at(tmp_path, *(f"Lesson number {n:03}." for n in range(120)))
    commit(store, "main", *(Operation("KEEP", ids(store)[77]) for _ in range(2)))
    visitor = Visitor(store)
    page = visitor.get("/library")
    assert page.count('scope="row"') == 50
    assert "1 to 50 of 120" in page
    assert visitor.get("/library?start=100").count('scope="row"') == 20
    assert visitor.get("/library?q=077").count('scope="row"') == 1
    first = visitor.get("/library?sort-library=confirmed").split('scope="row"')[1]
    assert "Lesson number 077." in first
    assert "is not sorted by" in visitor.get("/library?sort-library=colour", status=400)


def test_an_experiences_life_is_told_with_word_diffs_reasons_and_evidence(store: Path) -> None:
    first = ids(store)[0]
    evidence = {"run": "quick", "step": 0, "problem": "hire-12", "rollouts": [[0, 1.0], [1, 0.0]]}
    commit(
        store,
        "main",
        Operation("MODIFY", first, "Count all the days.", "seen twice", evidence),
        Operation("KEEP", first, None, "again", {**evidence, "rollouts": [[0, None]]}),
    )
    page = Visitor(store).get(f"/experience/{first}")
    assert "<del>both</del>" in page
    assert "<ins>all the</ins>" in page
    assert "because seen twice" in page
    assert "hire-12: 1 of 2 right" in page
    assert page.count('class="rate won"') == 1
    assert page.count('class="rate lost"') == 1
    assert '<span class="rate ">–</span>' in page  # what was not scored is not a zero
    assert "unknown" in page  # an effect that nothing measured
    assert "+0.000" not in page
    assert Visitor(store).get("/experience/nothing", status=404)


def test_a_redaction_needs_to_be_meant(store: Path) -> None:
    visitor = Visitor(store)
    visitor.post("/library/add", {"branch": "main", "reason": "new", "texts": "A file is there."})
    first = ids(store)[0]
    assert "It cannot be undone" in visitor.get(f"/experience/{first}/redact")
    path, fields = f"/experience/{first}/redact", {"reason": "names a customer"}
    assert "nothing was redacted" in visitor.post(path, {**fields, "sure": "yes"}, status=400)
    for name in ("collected.jsonl", "mine.csv"):
        (store.parent.parent / name).write_text('{"problem": "Count both days."}\n')
    page = visitor.post(path, {**fields, "sure": first})
    assert "redacted 1 event; wrote " in page
    assert "mine.csv, which is yours, contains it as well" in page
    assert "/collected.jsonl." in page
    assert "Count both days." not in page
    assert b"Count both days." not in store.read_bytes()
    assert "Count both days." not in (store.parent / "experiences.json").read_text()


def test_what_a_redaction_cannot_reach_is_named(store: Path) -> None:
    first = ids(store)[0]
    with Store.open(store) as opened:
        opened.commit("main", [Operation("KEEP", first)], message="why: Count both days.")
    (store.parent.parent / "mine.csv").write_text("Count both days.\n")
    path, fields = f"/experience/{first}/redact", {"reason": "a customer", "sure": first}
    page = Visitor(store).post(path, fields, status=400)
    assert "The text is still elsewhere." in page
    assert "the text remains in versions.message" in page
    assert "mine.csv, which is yours" in page


def test_a_conflict_of_a_merge_is_solved_in_the_page(store: Path) -> None:
    first, second, _ = ids(store)
    with Store.open(store) as opened:
        opened.create_branch("web")
    commit(store, "web", Operation("MODIFY", first, "Count the web's days."))
    commit(store, "web", Operation("MODIFY", second, "Round up, always."))
    commit(store, "main", Operation("MODIFY", first, "Count the main days."))
    visitor = Visitor(store)
    page = visitor.get("/combine?kind=merge&version=web&branch=main")
    assert "1 conflict" in page
    merge = {"kind": "merge", "branch": "main", "version": "web", "reason": "both", "onto": "main"}
    page = visitor.post("/combine", merge, status=409)
    assert "Nothing was recorded" in page
    assert texts(store)[0] == "Count the main days."
    own = {f"take-{first}": "text", f"words-{first}": "Count both sides' days."}
    for wrong, status, why in (
        ({f"words-{first}": " "}, 409, f"{first} has no text"),
        ({"reason": " "}, 400, "why is missing"),
    ):
        page = visitor.post("/combine", merge | own | wrong, status=status)
        assert why in page
        assert f'name="take-{first}" value="text" checked' in page
        words = "Count both sides&#39; days." if why == "why is missing" else " "
        assert f">{words}</textarea>" in page
    page = visitor.post("/combine", merge | own)
    assert texts(store) == ["Count both sides' days.", "Round up, always.", "Name the unit."]
    with Store.open(store) as opened:
        assert len(opened.head.version.parents) == 2
    assert "contains it already" in visitor.get("/combine?kind=merge&version=web&branch=main")


def test_a_version_is_taken_back_and_applied_elsewhere(store: Path) -> None:
    with Store.open(store) as opened:
        opened.create_branch("web")
    version = commit(store, "main", Operation("ADD", text="To be taken back."))
    visitor = Visitor(store)
    pick = {
        "kind": "cherry-pick",
        "branch": "web",
        "version": version,
        "reason": "wanted there",
        "onto": "web",
    }
    visitor.post("/combine", pick)
    revert = {
        "kind": "revert",
        "branch": "main",
        "version": version,
        "reason": "wrong",
        "onto": "main",
    }
    visitor.post("/combine", revert)
    assert "To be taken back." not in texts(store)
    assert "To be taken back." in texts(store, "web")
    assert "nothing left of it" in visitor.get(f"/combine?kind=revert&version={version}")


def test_the_history_is_drawn_windowed_and_filtered(store: Path) -> None:
    with Store.open(store, author="ana") as opened:
        for n in range(150):
            opened.commit("main", [Operation("ADD", text=f"Number {n}.")], message=f"step {n}")
        opened.create_branch("side", "v100")
        opened.commit("side", [Operation("ADD", text="Aside.")], message="on the side")
        opened.create_tag("good", "v7")
    visitor = Visitor(store)
    page = visitor.get("/history")
    assert page.count("<li data-number=") == 100
    assert "on the side" in page
    assert 'data-newest="152"' in page
    window = visitor.get("/history?from=50", fragment=True)
    assert "<html" not in window
    assert re.findall(r'data-number="(\d+)"', window) == [str(n) for n in range(50, -1, -1)]
    assert ">good</span>" in window
    found = visitor.get("/history?in=side&q=step+4")
    assert re.findall(r'data-number="(\d+)"', found) == [*map(str, range(51, 41, -1)), "6"]
    assert "No version fits." in visitor.get("/history?author=nobody")
    assert visitor.get("/history?in=nowhere", status=404)


def test_two_revisions_are_compared(store: Path) -> None:
    commit(store, "main", Operation("DELETE", ids(store)[0]), Operation("ADD", text="New."))
    visitor = Visitor(store)
    page = visitor.get("/diff?a=v1&b=HEAD")
    assert "<del>Count both days.</del>" in page
    assert "<ins>New.</ins>" in page
    assert "hold the same library" in visitor.get("/diff?a=HEAD&b=main")
    assert visitor.get("/diff?a=v99&b=HEAD", status=404)


def proposed(store: Path, number: int, *, effect: Effect | None = None) -> str:
    """Makes a proposal that adds two experiences; returns its id."""
    with Store.open(store, author="tfgrpo") as opened:
        base, branch = opened.tip("main"), f"proposal/{number}"
        opened.create_branch(branch, base)
        words = [Operation("ADD", text=f"Proposed {number}{x}.", reason="seen") for x in "ab"]
        opened.commit(branch, words, message="learned")
        return propose(opened, Draftsman(branch, "main", "a test", base, effect)).id


def test_proposals_are_accepted_in_part_with_other_words_turned_down_and_taken_back(
    store: Path,
) -> None:
    effect = Effect(0.4, 0.5, 0.1, -0.05, 0.25, 0.2, "undecided", 20, 4, "m")
    first, second = proposed(store, 1, effect=effect), proposed(store, 2)
    visitor = Visitor(store, token=OTHER)
    page = visitor.get("/review")
    assert "2 proposals waiting" in page
    assert f"{first}: 2 additions for main" in page
    assert "interval-inconclusive" in page
    assert "not measured" in visitor.get(f"/review?id={second}")
    with Store.open(store) as opened:
        a, b = (change.experience for change in get_proposal(opened, first).changes)
    part = {"id": first, "seen": "1", "act": "accept", f"text-{a}": "Other words."}
    refused = visitor.post("/review", {**part, f"do-{b}": "reject"}, status=400)
    assert "why G4 is turned down is missing" in refused
    page = visitor.post("/review", {**part, f"do-{b}": "open"})
    assert "1 change accepted: main is now at" in page
    assert "1 change still open" in page
    assert "not measured of a part" in page
    assert "+0.100" not in page, "what was measured is the whole, and in other words"
    assert texts(store)[3:] == ["Other words."]
    again = {**part, f"do-{b}": "open"}
    page = visitor.post("/review", again, status=409)
    assert "other has decided about proposal p1 meanwhile" in page
    reasons = {f"do-{b}": "reject", f"why-{b}": "the till says so"}
    visitor.post("/review", {"id": first, "seen": "2", "act": "accept", **reasons})
    with Store.open(store) as opened:
        decided = get_proposal(opened, first)
        assert [(one.state, one.why) for one in decided.changes] == [
            ("accepted", None),
            ("rejected", "the till says so"),
        ]
        declined = turned_down(opened, opened.tip("main"), before=2**62)
        assert [*declined.values()] == ["Proposed 1b."], "and nothing of what was accepted"
    page = visitor.post("/review", {"id": second, "seen": "1", "act": "reject"}, status=400)
    assert "why it is turned down is missing" in page
    visitor.post("/review", {"id": second, "seen": "1", "act": "reject", "why": "the till rounds"})
    with Store.open(store) as opened:
        decided = get_proposal(opened, second)
        assert (decided.state, decided.author, decided.why) == (
            "rejected",
            "other",
            "the till rounds",
        )
    for id, seen in ((first, "3"), (second, "2")):
        visitor.post("/review/undo", {"id": id, "seen": seen})
    assert len(texts(store)) == 3
    with Store.open(store) as opened:
        assert {get_proposal(opened, id).state for id in (first, second)} == {"open"}
        assert {"proposal/1", "proposal/2"} <= set(opened.branches())
    assert b not in ids(store)


def test_the_facts_of_a_proposal_are_listed_and_linked_where_their_run_is_here(store: Path) -> None:
    with Store.open(store) as opened:
        base = opened.tip("main")
        opened.runs.create("week/1", "5" * 32, "main", base.number, {}, opened.author)
        for n, run in enumerate(("week/1", "elsewhere")):
            branch, words = f"proposal/{n}", Operation("ADD", text=f"Be brief {n}.")
            opened.create_branch(branch, base)
            opened.commit(branch, [words], message="learned")
            details = {"run": run, "problems": 7, "model": "m", "season_price": 3}
            if n:
                details |= {"learned_from": 3, "gate": 2, "held_out": 2}
            propose(opened, Draftsman(branch, "main", "a test", base, None, details))
    visitor = Visitor(store)
    page = visitor.get("/review?id=p1")
    facts = re.findall(r"<dt>(.*?)</dt>", page)
    assert facts == ["Effect", "From", "Run", "Problems", "Model", "Season price"]
    assert '<a href="/attempts/week/1">7 problems collected from what went wrong</a>' in page
    assert '<a href="/run/week/1">week/1</a>' in page
    page = visitor.get("/review?id=p2")
    assert "<dd>elsewhere</dd>" in page
    words = "3 of 7 problems collected from what went wrong (2 for the gate, 2 held out)"
    assert f"<dt>Learned from</dt><dd>{words}</dd>" in page


def test_a_proposal_that_conflicts_is_asked_about(store: Path) -> None:
    first = ids(store)[0]
    with Store.open(store) as opened:
        base = opened.tip("main")
        opened.create_branch("proposal/1", base)
        opened.commit("proposal/1", [Operation("MODIFY", first, "Theirs.")], message="learned")
        id = propose(opened, Draftsman("proposal/1", "main", "a test", base)).id
    commit(store, "main", Operation("MODIFY", first, "Ours."))
    visitor = Visitor(store)
    choice = {"seen": "1", f"text-{first}": "Other words.", "why": "tried"}
    page = visitor.post("/review", {"id": id, "act": "accept", **choice}, status=409)
    assert "has changed the same words meanwhile" in page
    assert ">Other words.</textarea>" in page
    assert 'value="tried"' in page
    commit(store, "main", Operation("MODIFY", first, "Ours again."))
    side = {"id": id, "seen": "1", "act": "accept", f"take-{first}": "theirs", "onto": "v3"}
    page = visitor.post("/review", side, status=409)
    assert "Ours again." in page, "a side was chosen against what is no longer there"
    visitor.post("/review", {**side, "onto": "v4"})
    assert texts(store)[0] == "Theirs."


def test_hostile_texts_are_harmless_on_every_page(tmp_path: Path) -> None:
    store = store_at(tmp_path, *HOSTILE)
    with Store.open(store, author="<b>mallory</b>\x1b[2J") as opened:
        opened.commit(
            "main",
            [
                Operation("MODIFY", e.id, e.text + "!", f"because {e.text[:99]}")
                for e in opened.library()
            ],
            message="<script>alert(3)</script>\u202e",
        )
    visitor = Visitor(store)
    statuses = crawl(visitor, most=60)
    assert set(statuses.values()) == {200}
    for path in statuses:
        page = visitor.client.get(path)
        if not page.headers["content-type"].startswith("text/html"):
            continue
        assert len(page.text) < 60_000 or path.startswith(("/library/", "/combine")), path
        # what a control of a form holds is sent back, and must be as it was
        shown = re.sub(r"<textarea[^>]*>[^<]*</textarea>| value=\"[^\"]*\"", "", page.text)
        for bad in ("<script>alert", "<img src=x", "\x1b", "\u202e", "<b>mallory", "49 "):
            assert bad not in shown, (path, bad)
