"""A text that was redacted in one store does not come back from another one that still has it."""

from __future__ import annotations

import hmac
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Cli, one_line_error
from sync_helpers import sound

from tfgrpo.mirror.from_git import bring_back
from tfgrpo.mirror.to_git import mirror
from tfgrpo.redaction import plan_everywhere, redact_everywhere
from tfgrpo.store import Operation, Store
from tfgrpo.store.activity.decisions import decide, decisions
from tfgrpo.store.errors import InvalidOperation, TransferError
from tfgrpo.store.redact import Target, redact
from tfgrpo.store.transfer import bundle, locations, sync
from tfgrpo.store.withheld_texts import WORD, key_path, withheld

NAME = "Klaus Mustermann"
TEXT = f"{NAME}, of Bonn, pays by card."


@pytest.fixture(params=["a file", pytest.param("a database", marks=pytest.mark.postgres)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the store that redacts is."""
    if request.param == "a database":
        return str(request.getfixturevalue("shared"))
    (tmp_path / "a").mkdir()
    return str(tmp_path / "a" / "store.db")


def pair(place: str, tmp_path: Path, text: str = TEXT) -> tuple[Store, Store, str]:
    """A store with a text, a clone of it from before it was redacted, and the experience."""
    ours = Store.init(place, author="ann")
    ours.commit(
        "main", [Operation("ADD", text=text), Operation("ADD", text="Be brief.")], message="x"
    )
    there = locations.parse(place)
    theirs = tmp_path / "b.db"
    locations.clone(there, theirs, author="bob")
    return ours, Store.open(theirs, author="bob"), next(iter(ours.library())).id


def pushed(theirs: Store, place: str) -> None:
    with locations.peer(locations.parse(place), author="bob") as peer:
        sync.push(theirs, peer, ["main"], remote=None, force=True)


def fetched(theirs: Store, place: str) -> None:
    there = locations.source(locations.parse(str(theirs.path)), author="ann")
    with Store.open(place) as ours, there as source:
        sync.fetch(ours, source, "bob")


def bundled(theirs: Store, place: str) -> None:
    path = theirs.path.with_name("news.bundle")
    bundle.create(theirs, path, ["main"])
    with (
        Store.open(place) as ours,
        locations.source(locations.parse(str(path)), author="ann") as source,
    ):
        sync.pull(ours, source, None, "main", into="main", called="news")


def from_git(theirs: Store, place: str) -> None:
    folder = theirs.path.with_name("mirror")
    shutil.rmtree(folder, ignore_errors=True)
    mirror(theirs, folder)
    with Store.open(place) as ours:
        bring_back(ours, folder)


WAYS: dict[str, Callable[[Store, str], None]] = {
    "a push": pushed,
    "a fetch": fetched,
    "a bundle": bundled,
    "a git mirror": from_git,
}


def again(theirs: Store, id: str) -> None:
    """Brings the text of v1 to the tip under a new event, as a cherry-pick does."""
    theirs.commit("main", [Operation("DELETE", id, None, "gone")], message="gone")
    theirs.commit("main", [Operation("ADD", id, TEXT, "back")], message="cherry-pick v1")


CARRIED: dict[str, Callable[[Store, str], None]] = {
    "the same text again": again,
    "a sentence with the name": lambda store, id: _commit(store, f"Ask ({NAME})!"),
    "the name in a reason": lambda store, id: _commit(store, "Ask.", f"so says {NAME}"),
    "the name in another layout": lambda store, id: _commit(store, "Ask\n Klaus\tMustermann."),
}


def _commit(store: Store, text: str, reason: str | None = None) -> None:
    store.commit("main", [Operation("ADD", text=text, reason=reason)], message="more")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("carried", CARRIED)
def test_what_brings_a_redacted_text_back_is_refused_until_it_is_redacted_there_too(
    place: str, way: str, carried: str, tmp_path: Path
) -> None:
    ours, theirs, id = pair(place, tmp_path)
    with ours, theirs:
        redact(ours, Target(texts=(NAME,)), reason="a customer")
        CARRIED[carried](theirs, id)
        before = ours.port.last_version()
        with pytest.raises(TransferError, match="redacted") as caught:
            WAYS[way](theirs, place)
        said = f"{caught.value} {caught.value.hint}"
        assert NAME not in said
        assert "redact it in the store that sends it" in said
        assert ours.port.last_version() == before
        for _ in range(2):  # a git mirror has the text of v1 too, which is here as a file
            named = re.search(r"tfgrpo redact (\w{12})", f"{caught.value.hint}")
            assert named is not None
            redact(theirs, Target(named[1]), reason="a customer")
            try:
                WAYS[way](theirs, place)
            except TransferError as error:
                caught.value.hint = error.hint
            else:
                break
        assert ours.port.last_version() > before
        rows = ours.port.events(0, 1 << 60)
        assert not [row for row in rows if NAME in f"{row.text} {row.reason}"]


@pytest.mark.parametrize(
    "text", ["Klaus pays. Mustermann too.", "Be brief.", "Mustermann, Klaus", "klaus mustermann"]
)
def test_what_is_another_text_arrives(place: str, text: str, tmp_path: Path) -> None:
    ours, theirs, _ = pair(place, tmp_path)
    with ours, theirs:
        redact(ours, Target(texts=(NAME,)), reason="a customer")
        _commit(theirs, text)
        fetched(theirs, place)


@pytest.mark.parametrize("part", [None, "uster"], ids=["by its id", "by a part of a word"])
def test_an_experience_that_was_redacted_is_known_by_its_whole_text(
    part: str | None, place: str, tmp_path: Path
) -> None:
    ours, theirs, id = pair(place, tmp_path)
    with ours, theirs:
        redact(
            ours, Target(id if part is None else None, texts=(part,) if part else ()), reason="x"
        )
        again(theirs, id)
        with pytest.raises(TransferError, match=id):
            fetched(theirs, place)


def test_neither_the_text_nor_the_key_is_in_the_file_of_a_store(tmp_path: Path) -> None:
    place = str(tmp_path / "store.db")
    ours, theirs, _ = pair(place, tmp_path)
    with ours, theirs:
        redact(ours, Target(texts=(NAME,)), reason="a customer")
        redact(ours, Target(texts=("Be brief.",)), reason="too")
        known = withheld(ours)
        assert set(known.digests) == {2, len(WORD.findall(TEXT))}
        path = key_path(ours)
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.read_bytes() == known.key
        sound(ours)
        for file in tmp_path.glob("store.db*"):
            assert NAME.encode() not in file.read_bytes()
            if file != path:
                assert known.key not in file.read_bytes()
                assert known.key.hex().encode() not in file.read_bytes()
        path.unlink()  # as in a copy of the store's file alone
        assert not withheld(ours).holds(NAME)
        locations.clone(locations.parse(place), tmp_path / "c.db", author="cy")
        with Store.open(tmp_path / "c.db") as copy:
            assert not withheld(copy).digests, "what a clone has never seen it does not know"


@pytest.mark.parametrize(
    ("given", "other", "same"),
    [
        ("$100", "Boil water at 100 degrees.", "It costs ($100)."),
        ("50 %", "Take 50 of them.", "Give 50\n%, no more."),
        ("4711", "Room 47 11 is free.", "The code is 4711!"),
        ("1.234,50", "Do 1, 234, 50.", "Pay 1.234,50."),
        ("No.", "No, they differ.", "No."),
        ("2024", "Since 2024/25 it is free.", "2024"),
    ],
)
def test_of_what_is_short_or_a_number_its_marks_count(
    place: str, given: str, other: str, same: str
) -> None:
    with Store.init(place) as ours:
        ours.commit("main", [Operation("ADD", text=given)], message="x")
        (one,) = ours.library()
        by_id = given in ("No.", "2024")
        redact(ours, Target(one.id) if by_id else Target(texts=(given,)), reason="a price")
        known = withheld(ours)
        assert known.holds(same)
        assert not known.holds(other)


def test_what_only_files_or_traffic_held_is_known_too(place: str, tmp_path: Path) -> None:
    with Store.init(place) as ours:
        path = ours.path.parent / "bisect-x.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        for _ in range(2):
            path.write_text(json.dumps({"why": f"asked by {NAME}"}))
            with pytest.raises(InvalidOperation, match="the reason contains"):
                redact_everywhere(ours, Target(texts=(NAME,)), reason=f"{NAME} asked")
            redact_everywhere(ours, Target(texts=(NAME,)), reason="a customer")
            assert NAME not in path.read_text()
            assert withheld(ours).holds(f"{NAME} pays.")
        assert len(decisions(ours, kind="redaction")) == 1, "it is known once"


def test_a_long_text_is_looked_through_in_no_time(tmp_path: Path) -> None:
    with Store.init(str(tmp_path / "store.db")) as ours:
        for count in range(4, 24):
            text = " ".join(f"word{n}" for n in range(count))
            ours.commit("main", [Operation("ADD", text=text)], message="x")
            redact(ours, Target(texts=(text,)), reason="x")
        known, made = withheld(ours), Counter[str]()
        digest, module = hmac.digest, "tfgrpo.store.withheld_texts.hmac.digest"
        long = " ".join(f"w{n}" for n in range(8_000))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, lambda *of: made.update(["digest"]) or digest(*of))
            assert not known.holds(long)
            assert not known.holds(long)
        assert made["digest"] < 8_400, "one for a position, and some by chance"
        assert known.holds(f"{long} {' '.join(f'word{n}' for n in range(30))}")


def test_what_was_recorded_without_first_words_is_known(place: str) -> None:
    with Store.init(place) as ours, Store.init(f"{place}x") as older:
        ours.commit("main", [Operation("ADD", text=TEXT)], message="x")
        redact(ours, Target(texts=(NAME,)), reason="x")
        (made,) = decisions(ours, kind="redaction", subject="texts")
        pairs = [one[:2] for one in made.content["withheld"]]  # type: ignore[attr-defined]
        content = {**made.content, "withheld": pairs}
        if key_path(ours).exists():
            shutil.copy(key_path(ours), key_path(older))
        decide(older, "redaction", "texts", content)
        assert withheld(older).holds(f"So says {TEXT}")
        assert withheld(older).holds(f"Ask ({NAME})")
        assert not withheld(older).holds("Klaus pays.")


def test_whatever_the_text_it_is_taken_out_and_what_is_known_of_others_stays(place: str) -> None:
    with Store.init(place) as ours:
        ours.commit("main", [Operation("ADD", text=TEXT)], message="x")
        redact(ours, Target(texts=(NAME,)), reason="asked by Walter")
        digest = next(iter(next(iter(withheld(ours).digests.values())))).hex()
        for text in ("held", "texts", digest[:8], "records", "Walter"):
            _commit(ours, f"Keep {text} back.")
            plan = plan_everywhere(ours, Target(texts=(text,)))[0]
            assert {place.table for place in plan.records} == (
                {"decisions"} if text == "Walter" else set()
            )
            done = redact_everywhere(ours, Target(texts=(text,)), reason="another one")
            assert {place.table for place in done.store.plan.kept} == (
                {"redactions"} if text == "Walter" else set()
            ), "reasons are append-only"
            if text not in ("texts", "Walter"):  # so is a table called
                assert done.around.left == []
            assert withheld(ours).holds(NAME)
            assert withheld(ours).holds(f"Keep {text} back.")
        assert not [row for row in ours.port.events(0, 1 << 60) if "Keep" in f"{row.text}"]


def test_a_key_that_was_not_redacted_is_known_by_no_other(tmp_path: Path) -> None:
    places = [str(tmp_path / name) for name in ("one.db", "two.db")]
    digests = []
    for place in places:
        with Store.init(place) as store:
            store.commit("main", [Operation("ADD", text=TEXT)], message="x")
            redact(store, Target(texts=(NAME,)), reason="a customer")
            digests.append(withheld(store).digests)
    assert digests[0] != digests[1]


def test_a_shop_and_its_clone_at_a_prompt(cli: Cli, tmp_path: Path) -> None:
    cli("-C", ".", "init")
    cli("add", TEXT)
    cli("clone", ".", "b")
    cli("redact", "--text", NAME, "--reason", "a customer", "--yes")
    told = cli("-C", "b", "pull").stdout
    (id,) = json.loads(cli("log", "-1", "--json").stdout)[0]["meta"]["redacts"]
    assert f"{id} was redacted on the other side, and has texts here still" in told
    assert "redacted on the other side" not in cli("-C", "b", "fetch").stdout
    cli("-C", "b", "cherry-pick", "v1")
    refused = cli("-C", "b", "push", ok=False)
    one_line_error(refused, "that the store which gets it has redacted")
    assert NAME not in refused.stderr
    assert NAME not in cli("export", "--format", "prompt").stdout
    cli("-C", "b", "redact", id, "--reason", "a customer", "--yes")
    cli("-C", "b", "push")
    assert NAME not in cli("export", "--format", "prompt").stdout
    assert "no problems" in cli("fsck").stdout
