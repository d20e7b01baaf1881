"""A redacted text is gone, to the byte, and everything else stands: digests, libraries, records."""

from __future__ import annotations

import asyncio
import json
import random
import re
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from store_helpers import add, broken, child, kill_after_ready, kills, run_child

import tfgrpo
from tfgrpo import interchange
from tfgrpo.domains.prompt_library import LiveLibrary
from tfgrpo.model.endpoint import Answer
from tfgrpo.rendering.render import prompt_text
from tfgrpo.store import InvalidOperation, Operation, Store, TfgrpoError, derived_id
from tfgrpo.store import redact as redactions
from tfgrpo.store.activity.journal import Journal
from tfgrpo.store.activity.runs import Call, RolloutRow, Score
from tfgrpo.store.fsck import fsck
from tfgrpo.store.history import merge as merges
from tfgrpo.store.history import name_moves as undos
from tfgrpo.store.redact import Target, plan, redact
from tfgrpo.store.text_occurrences import forms, matcher, matches_bytes

SECRET = 'sk-"Zürich"\\7f3a'
LEAK, CLEAN = derived_id("leak"), derived_id("clean")
BY_TEXT = Target(texts=(SECRET,))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / ".tfgrpo").mkdir()
    return tmp_path / ".tfgrpo" / "store.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    """The secret in a text, in reasons, on two branches, in every record of training."""
    with Store.init(path, author="ann") as store:
        first = Operation("ADD", LEAK, f"Log in with {SECRET} first.", "seen", {"reward": 1})
        store.commit("main", [first, add("Round up.", CLEAN)], message="one", tags=["one"])
        store.create_branch("web")
        store.commit("main", [Operation("MODIFY", LEAK, "Log in.", f"no {SECRET}")], message="two")
        store.commit("main", [Operation("KEEP", CLEAN, reason="votes")], message="three")
        train(store)
        yield store


def train(store: Store) -> None:
    """Leaves the secret in the journal (plain, escaped and twice escaped) and in scores."""
    run = store.runs.create("R", "uid", "main", 1, {"data": "d"}, "ann")
    nested = json.dumps({"text": f"say {SECRET}"})
    answer = asdict(Answer(nested, "stop", prompt_tokens=3, seconds=0.5))
    plain = answer | {"content": "nothing here"}
    journal = Journal(store.port.records.writer())

    async def write() -> None:
        for number, (said, asked) in enumerate(
            [(answer, [["user", "hi"]]), (plain, [["user", nested]]), (plain, [["user", "x"]])]
        ):
            key = bytes([number]) * 32
            await journal.append(
                Call(key, run.id, "rollout", 0, "m", json.dumps(asked), said, 3, 0, 0, 0, 1, 0.5, 1)
            )
        verdict = {"answer": SECRET, "reason": ""}
        calls = ("00" * 32,)
        await journal.rollout(RolloutRow(run.id, 0, "p", 0, 1, calls, "answered", 1.0, verdict, 1))

    asyncio.run(write())
    journal.close()
    config, summary = {"model": "m", "note": SECRET}, {"mean": [1.0, None, None]}
    scores = [Score("p", 0, None, 1.0, f"the answer is {SECRET}")]
    store.runs.put_evaluation(1, "d", "e", config, summary, scores)


def bytes_left(path: Path, *secrets: str) -> list[str]:
    """The files beside a store that hold one of these, in UTF-8 or escaped as JSON."""
    written = {s.encode() for s in secrets}
    written |= {
        json.dumps(s, ensure_ascii=a)[1:-1].encode() for s in secrets for a in (True, False)
    }
    files = [p for p in path.parent.iterdir() if p.is_file()]
    return [p.name for p in files if any(w in p.read_bytes() for w in written)]


def test_by_text_it_is_gone_from_every_byte_of_the_file_and_all_digests_verify(
    store: Store, path: Path
) -> None:
    digests = [v.digest for v in store.log()]
    assert bytes_left(path, SECRET)
    done = redact(store, BY_TEXT, reason="leaked")
    assert done.finished
    assert [(e.version, e.op) for e in done.plan.events] == [(1, "ADD"), (2, "MODIFY")]
    assert done.plan.kept == ()
    assert {(t.table, t.column) for t in done.plan.records} == {
        ("texts", "text"),
        ("journal", "answer"),
        ("rollouts", "verdict"),
        ("evaluations", "config"),
        ("scores", "answer"),
    }
    assert bytes_left(path, SECRET) == []
    assert not broken(path)
    assert fsck(store).problems == ()
    assert [v.digest for v in store.log()][1:] == digests
    assert redactions.copies(store, done.plan.written) == []
    store.close()
    assert bytes_left(path, SECRET) == []


def test_where_it_was_in_force_it_is_deleted_and_elsewhere_nothing_is_appended(
    store: Store,
) -> None:
    store.create_branch("old", "v0")
    done = redact(store, BY_TEXT, reason="leaked")
    # main's text was clean, but its event's reason was not, and text and reason go together
    assert done.plan.live == {"main": (LEAK,), "web": (LEAK,)}
    assert [v.name for v in done.versions] == ["v4", "v5"]
    assert [e.id for e in store.library("main")] == [e.id for e in store.library("web")] == [CLEAN]
    assert store.tip("old").number == 0
    (event,) = store.events(done.versions[0])
    assert (event.op, event.reason) == ("DELETE", "leaked")


def test_by_experience_every_event_of_it_goes_and_its_texts_wherever_they_are(
    store: Store, path: Path
) -> None:
    copy = store.commit("web", [add(f"Log in with {SECRET} first.")], message="a copy")
    done = redact(store, Target(LEAK), reason="leaked")
    assert [e.version for e in done.plan.events] == [1, 2, copy.number]
    assert bytes_left(path, f"Log in with {SECRET} first.") == []
    assert [e.id for e in store.library("web")] == [CLEAN]
    assert [e.redacted for e in store.history(LEAK)] == [True, True, False, False]
    with pytest.raises(TfgrpoError, match="nothing"):
        plan(store, Target(texts=(f"Log in with {SECRET} first.",)))


def test_one_version_of_an_experience_may_go_alone(store: Store) -> None:
    redact(store, Target(LEAK, version=store.version(1)), reason="leaked")
    assert [e.redacted for e in store.history(LEAK)][:2] == [True, False]
    assert [e.text for e in store.library("main")] == ["Log in.", "Round up."]
    assert [e.id for e in store.library("web")] == [CLEAN]
    row = store.history(LEAK)[1].row
    redact(store, Target(LEAK, row=row), reason="leaked")
    assert [e.id for e in store.library("main")] == [CLEAN]


def test_a_replacement_stands_where_the_text_was_in_force(store: Store) -> None:
    redact(store, BY_TEXT, reason="leaked", replacement="Log in with your own key.")
    for branch in ("main", "web"):
        assert [e.text for e in store.library(branch)] == ["Log in with your own key.", "Round up."]
        assert [e.id for e in store.library(branch)] == [LEAK, CLEAN]


def test_a_redaction_is_on_record(store: Store) -> None:
    redact(store, BY_TEXT, reason="leaked in a rollout", author="bob")
    assert store.port.redactions.rows() == [1, 3]
    for row in (1, 3):
        (said,) = store.port.redactions.of(row)
        assert (said.author, said.reason) == ("bob", "leaked in a rollout")


def test_no_placeholder_reaches_prompts_or_files_from_older_versions(store: Store) -> None:
    redact(store, BY_TEXT, reason="leaked")
    library = store.library("one")
    assert [(e.text, e.redacted) for e in library] == [("[redacted]", True), ("Round up.", False)]
    assert [e.id for e in library.readable] == [CLEAN]
    assert prompt_text(library) == "[G1] Round up.", "labels stay as they were in old prompts"
    for format in set(interchange.written()) - {"events"}:  # which refuses a redacted history
        file = "".join(interchange.export(store, "one", format))
        assert "Round up." in file
        assert "redacted" not in file, format


@pytest.mark.parametrize("field", ["reason", "author", "replacement"])
def test_what_goes_on_record_must_not_hold_the_text(store: Store, path: Path, field: str) -> None:
    before = broken(path), [v.digest for v in store.log()]
    said = {"reason": "leaked"} | {field: f"it was {SECRET}"}
    with pytest.raises(InvalidOperation, match=field) as caught:
        redact(store, BY_TEXT, **said)  # type: ignore[arg-type]
    assert caught.value.hint
    assert SECRET not in str(caught.value)
    assert (broken(path), [v.digest for v in store.log()]) == before
    assert store.port.redactions.rows() == []
    assert not redactions.unfinished(store)


def test_a_short_text_an_unknown_text_and_an_unknown_event_are_refused(store: Store) -> None:
    for target in (
        Target(texts=("a",)),
        Target(texts=("nobody said this",)),
        Target(LEAK, row=999),
        Target(CLEAN, version=store.version(2)),
    ):
        with pytest.raises(TfgrpoError) as caught:
            redact(store, target, reason="r")
        assert caught.value.hint
    assert store.port.redactions.rows() == []


def test_what_digests_cover_is_reported_and_left(store: Store, path: Path) -> None:
    secret = "hunter2-in-a-message"
    evidence = {"note": secret}
    store.commit("main", [Operation("ADD", None, f"x {secret}", None, evidence)], message=secret)
    done = redact(store, Target(texts=(secret,)), reason="leaked")
    kept = {(t.table, t.column): t.kept for t in done.plan.kept}
    assert set(kept) == {("versions", "message"), ("events", "evidence"), ("reflog", "action")}
    assert all(kept.values())
    assert not broken(path)
    assert redactions.copies(store, done.plan.written) == [path]


def test_a_table_from_a_later_schema_is_searched_too(store: Store, path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("create table notes (id integer primary key, note text)")
        db.execute("insert into notes values (7, ?)", (SECRET,))
    db.close()
    (place,) = plan(store, BY_TEXT).kept
    assert (*place[:3], bool(place.kept)) == ("notes", "note", 7, True)


def test_the_journal_stays_whole_and_a_redacted_answer_says_so(store: Store) -> None:
    redact(store, BY_TEXT, reason="leaked")
    first, second, third = (store.runs.call(bytes([n]) * 32) for n in range(3))
    assert first is not None
    assert second is not None
    assert third is not None
    assert json.loads(first.answer["content"]) == {"text": "say [redacted]"}
    assert first.answer["finish_reason"] == "redacted"
    assert (first.answer["prompt_tokens"], first.answer["seconds"]) == (3, 0.5)
    assert json.loads(json.loads(second.request)[0][1]) == {"text": "say [redacted]"}
    assert second.answer["finish_reason"] == third.answer["finish_reason"] == "stop"
    (rollout,) = store.runs.rollouts(store.runs.get("R"))
    assert rollout.verdict == {"answer": "[redacted]", "reason": ""}
    (evaluation,) = store.runs.evaluations(1)
    assert store.runs.scores(evaluation)[0].answer == "the answer is [redacted]"


def test_requests_that_differed_in_the_secret_alone_become_one(store: Store) -> None:
    journal = Journal(store.port.records.writer())

    async def write() -> None:
        for number, text in enumerate((SECRET, "[redacted]")):
            asked = json.dumps([["user", f"key {text}"]], separators=(",", ":"), ensure_ascii=False)
            key = bytes([50 + number]) * 32
            answer = asdict(Answer("", "stop", seconds=0.5))
            await journal.append(
                Call(key, None, "rollout", 0, "m", asked, answer, 0, 0, 0, 0, 1, 0.5, 1)
            )

    asyncio.run(write())
    journal.close()
    redact(store, BY_TEXT, reason="leaked")
    calls = [store.runs.call(bytes([50 + n]) * 32) for n in range(2)]
    assert {call.request for call in calls if call} == {'[["user","key [redacted]"]]'}
    assert fsck(store).problems == ()


def test_a_run_under_way_is_not_redacted_behind_its_back(store: Store) -> None:
    from tfgrpo.store import process_lock

    with process_lock.held(store.runs.lock_path(store.runs.get("R"))):
        with pytest.raises(InvalidOperation, match="in progress"):
            redact(store, BY_TEXT, reason="leaked")
        with pytest.raises(InvalidOperation, match="in progress"):
            redactions.redact_around(
                store, Target(texts=("only in files",)), lambda written: True, reason="x"
            )


# what is done afterwards does not bring it back:


def test_undo_refuses_to_take_back_a_redaction(store: Store) -> None:
    redact(store, Target(LEAK), reason="leaked")
    with pytest.raises(TfgrpoError, match="redaction") as caught:
        undos.undo(store)
    assert caught.value.hint
    assert [e.id for e in store.library("main")] == [CLEAN]


def test_names_that_moved_onto_a_redaction_are_taken_back(store: Store) -> None:
    redact(store, Target(LEAK), reason="leaked")
    redacted = store.tip("main")
    acts: dict[str, Callable[[], object]] = {
        "tag": lambda: store.create_tag("approved", "main"),
        "branch": lambda: store.create_branch("new", "main"),
        "checkout": lambda: store.checkout(redacted.name),
        "fast-forward": lambda: merges.merge(store, "side", redacted, message="m"),
        "rename": lambda: undos.rename(store, "branch", "web", "net"),
    }
    store.create_branch("side", redacted.name + "~1")
    names = store.branches(), store.tags()
    for act in acts.values():
        for take_back in (undos.undo, lambda s: undos.take_back(s, last_batch(s))):
            act()
            take_back(store)
            assert ((store.branches(), store.tags()), store.head.branch) == (names, "main")
    with pytest.raises(InvalidOperation, match="redaction"):
        undos.take_back(store, next(store.port.names.ref_log("heads/main")).batch)


def last_batch(store: Store) -> int:
    return next(store.port.names.ref_log(None)).batch


def test_revert_and_cherry_pick_of_redacted_texts_are_conflicts(store: Store) -> None:
    done = redact(store, BY_TEXT, reason="leaked")
    for act, version in (
        (merges.revert, done.versions[0]),
        (merges.cherry_pick, store.version(1)),
    ):
        with pytest.raises(merges.MergeConflict, match="redacted") as conflict:
            act(store, "main", version, message="back")
        assert "--theirs" not in (conflict.value.hint or ""), "it would be refused"
        with pytest.raises(InvalidOperation, match="redacted"):
            act(store, "main", version, message="back", resolve=merges.side("theirs"))
        assert [e.id for e in store.library("main")] == [CLEAN]
    fixed = merges.revert(
        store, "main", done.versions[0], message="anew", resolve=lambda _: "Log in properly."
    )
    assert [e.text for e in store.library(fixed)] == ["Log in properly.", "Round up."]
    assert fsck(store).problems == ()


def test_merging_a_branch_that_still_has_the_placeholder_brings_nothing_back(store: Store) -> None:
    redact(store, BY_TEXT, reason="leaked")
    store.create_branch("old", "one")
    store.commit("old", [add("new on old")], message="m")
    merged = merges.merge(store, "main", store.tip("old"), message="merge")
    assert [e.text for e in store.library(merged)] == ["Round up.", "new on old"]
    store.commit("old", [Operation("MODIFY", LEAK, "Log in anew.")], message="m")
    with pytest.raises(merges.MergeConflict):
        merges.merge(store, "main", store.tip("old"), message="merge")
    store.commit("old", [Operation("DELETE", LEAK)], message="m")
    merges.merge(store, "main", store.tip("old"), message="merge")
    assert fsck(store).problems == ()


# fsck and interruptions:


def test_fsck_finds_a_text_blanked_by_hand_and_a_record_without_a_blank(
    store: Store, path: Path
) -> None:
    with sqlite3.connect(path) as db:
        trigger = db.execute("select sql from sqlite_master where name = 'events_no_update'")
        (sql,) = trigger.fetchone()
        db.execute("drop trigger events_no_update")
        db.execute("update events set text = null, reason = null, salt = null where row = 1")
        db.execute("insert into redactions (event, author, time, reason) values (3, 'x', 1, 'y')")
        db.execute(sql)
    db.close()
    problems = [(p.where, p.what) for p in fsck(store).problems]
    assert [where for where, _ in problems] == ["event 1", "event 3"]
    assert "no redaction" in problems[0][1]


def test_a_reader_delays_only_the_removal_of_bytes(store: Store, path: Path) -> None:
    with sqlite3.connect(path, isolation_level=None) as reader:
        reader.execute("begin")
        reader.execute("select count(*) from events").fetchone()
        done = redact(store, BY_TEXT, reason="leaked")
        assert not done.finished
        assert [e.id for e in store.library("main")] == [CLEAN]
        assert any(p.where == "redaction" for p in fsck(store).problems)
        assert not redactions.finish(store)
        reader.execute("rollback")
    reader.close()
    assert redactions.finish(store)
    assert fsck(store).problems == ()
    assert bytes_left(path, SECRET) == []


@pytest.mark.parametrize("opened", [Store.open, lambda path: tfgrpo.live(store=path)])
def test_who_opens_a_store_next_finishes_a_redaction(
    store: Store,
    path: Path,
    opened: Callable[[Path], Store | LiveLibrary],
    capsys: pytest.CaptureFixture[str],
) -> None:
    with sqlite3.connect(path, isolation_level=None) as reader:
        reader.execute("begin")
        reader.execute("select count(*) from events").fetchone()
        assert not redact(store, BY_TEXT, reason="leaked").finished
        opened(path).close()  # where it cannot be finished yet, it is opened all the same
        assert redactions.unfinished(store)
        assert not capsys.readouterr().err
        reader.execute("rollback")
    reader.close()
    assert bytes_left(path, SECRET)
    opened(path).close()
    assert "finished a redaction" in capsys.readouterr().err
    assert not redactions.unfinished(store)
    assert bytes_left(path, SECRET) == []
    opened(path).close()
    assert not capsys.readouterr().err


REDACT = """
import sys
from tfgrpo.store import Store
from tfgrpo.store.redact import Target, redact
with Store.open(sys.argv[1]) as store:
    print("ready", flush=True)
    redact(store, Target(texts=(sys.argv[2],)), reason="leaked")
    print("done", flush=True)
"""


def test_a_redaction_killed_at_any_instant_is_wholly_done_or_not_at_all(tmp_path: Path) -> None:
    dice = random.Random(7)
    secret = "sk-kill-9f3a77aa"
    ended = {"nothing": 0, "everything": 0}
    for attempt in range(kills(12)):
        path = tmp_path / str(attempt) / "store.db"
        path.parent.mkdir()
        with Store.init(path) as store:
            for n in range(40):
                store.commit("main", [add(f"{n} {secret} " + "x" * 500)] * 3, message="m")
        printed = kill_after_ready(child(REDACT, path, secret), dice, 0.25)
        with Store.open(path, unchecked=True) as store:
            assert not broken(path)
            gone = sum(event.redacted for v in store.log() for event in store.events(v))
            assert gone in (0, 120)
            assert len(store.library()) == (120 if gone == 0 else 0)
            assert len(store.port.redactions.rows()) == gone
            ended["everything" if gone else "nothing"] += 1
            assert gone or not printed
            if redactions.unfinished(store):
                assert any(p.where == "redaction" for p in fsck(store).problems)
                assert redactions.finish(store)
            assert fsck(store).problems == ()
            assert (bytes_left(path, secret) == []) is bool(gone)
    assert sum(ended.values()) == kills(12)


FULL = """
import resource, signal, sys
from tfgrpo.store import Store, StoreError
from tfgrpo.store.redact import Target, redact
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with Store.open(sys.argv[1]) as store:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), hard))
    try:
        redact(store, Target(texts=(sys.argv[2],)), reason="leaked")
    except StoreError as error:
        print(bool(error.hint))
"""


@pytest.mark.parametrize("most", [30_000, 90_000, 140_000])
def test_a_disk_that_fills_leaves_a_redaction_done_or_not_and_says_what_is_left(
    tmp_path: Path, most: int
) -> None:
    path = tmp_path / "store.db"
    secret = "sk-full-9f3a77aa"
    with Store.init(path) as store:
        store.commit("main", [add(f"{n} {secret} " + "x" * 900) for n in range(100)], message="m")
    assert run_child(FULL, path, secret, most) == "True\n"
    assert not broken(path)
    with Store.open(path) as store:
        gone = len(store.port.redactions.rows())
        assert gone in (0, 100)
        assert len(store.library()) == 100 - gone
        assert redactions.unfinished(store) is bool(gone)
        if gone == 0:
            redact(store, Target(texts=(secret,)), reason="leaked")
        else:
            assert redactions.finish(store)
        assert fsck(store).problems == ()
        assert bytes_left(path, secret) == []


# laws:

secrets = st.text(
    st.characters(exclude_categories=("Cs",), exclude_characters="\x00"), min_size=4, max_size=12
).filter(lambda text: len(text.strip()) >= 4)


@given(secret=secrets, around=st.lists(st.text('ab \n"\\', max_size=4), max_size=6))
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_whatever_the_secret_no_form_of_it_is_found_again(
    tmp_path_factory: pytest.TempPathFactory, secret: str, around: list[str]
) -> None:
    path = tmp_path_factory.mktemp("redact") / "store.db"
    with Store.init(path) as store:
        assume(not redactions.copies(store, [secret]))  # the schema has words of its own
        for some in around:
            store.commit("main", [add(f"{some}{secret}{some}"), add("keep")], message="m")
        store.commit("main", [Operation("ADD", LEAK, "clean", f"why {secret}")], message="m")
        try:
            done = redact(store, Target(texts=(secret,)), reason="#")
        except InvalidOperation:  # the secret is nothing but what a record must hold
            return
        holding = [
            event
            for version in store.log()
            for event in store.events(version)
            for said in (event.text, event.reason)
            if said is not None and secret in said
        ]
        assert holding == []
        assert not broken(path)
        assert fsck(store).problems == ()
        if not done.plan.kept:
            assert redactions.copies(store, [secret]) == []
            with pytest.raises(TfgrpoError):
                plan(store, Target(texts=(secret,)))


def spelt(text: str, kind: int) -> str:
    """A text within JSON, as different clients write it."""
    match kind:
        case 0:
            return json.dumps(text)[1:-1]
        case 1:
            return json.dumps(text, ensure_ascii=False)[1:-1].replace("/", "\\/")
        case 2:
            return re.sub(r"(?<=\\u)[0-9a-f]{4}", lambda m: m[0].upper(), json.dumps(text)[1:-1])
    marks = "&'<>+"
    plain = json.dumps(text, ensure_ascii=False)[1:-1]
    return "".join(f"\\u{ord(one):04X}" if one in marks else one for one in plain)


@given(
    texts=st.lists(st.text(min_size=4, max_size=20), min_size=1, max_size=3),
    kinds=st.lists(st.integers(0, 3), max_size=4),
)
@example(texts=["O'Neill/Müller & Co\n\U0001f6b2"], kinds=[3, 2, 1])
@example(texts=['C:\\\\temp\\new "x"'], kinds=[1, 0])
def test_a_text_is_found_however_it_was_escaped(texts: list[str], kinds: list[int]) -> None:
    pattern, in_bytes = matcher(forms(texts)), matches_bytes(forms(texts))
    for text in texts:
        for form in (text, " ".join(text.split())):
            escaped = form
            for kind in kinds:
                escaped = spelt(escaped, kind)
            assert escaped not in pattern.sub("", f"<{escaped}>")
            assert pattern.search(f"<{escaped}>")
            assert in_bytes.search(f"<{escaped}>".encode(errors="surrogatepass"))


def test_a_long_run_of_backslashes_takes_no_time() -> None:
    pattern = matcher(forms(["\\" * 8 + "end \\x\\y"]))
    assert pattern.search("\\" * 20_000 + "x") is None
