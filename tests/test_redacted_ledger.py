"""Redaction in the files that the proxy keeps beside a store: its keys, and its record of calls."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from conftest import Cli, one_line_error
from store_helpers import child, kill_after_ready, kills
from test_collected_problems import BLANK

from tfgrpo.proxy.keys_and_limits import Spending, SpendingSettings
from tfgrpo.store import Store
from tfgrpo.store.activity.key_ledger import (
    Budget,
    KeyLimits,
    VirtualKey,
    allows,
    key_digest,
    ledger_path,
    redact_ledger,
    spent_by,
)
from tfgrpo.store.activity.traffic import Scale, Traffic, traffic_path
from tfgrpo.store.opening import open_ledger, open_traffic
from tfgrpo.store.sqlite.ledger_file import SqliteLedger

NAME, OTHER = "Zebediah Quux", "Klaus Mustermann"
DAY = "2026-11-25"
REDACTING = ("--reason", "names a customer", "--yes")


@pytest.fixture
def folder(cli: Cli, tmp_path: Path) -> Path:
    cli("init")
    return tmp_path / ".tfgrpo"


@pytest.fixture
def ledger(folder: Path) -> Iterator[SqliteLedger]:
    with closing(open_ledger(str(folder / "ledger.db"), create=True)) as ledger:
        yield ledger


@pytest.fixture
def traffic(folder: Path) -> Iterator[Traffic]:
    with closing(open_traffic(str(folder / "traffic.db"), create=True)) as traffic:
        yield traffic


def key(name: str, **limits: object) -> VirtualKey:
    return VirtualKey(0, name, key_digest(name), "ann", 1, None, KeyLimits(**limits))  # type: ignore[arg-type]


def holding(folder: Path, *texts: str) -> list[str]:
    return [
        path.name
        for path in folder.rglob("*")
        if path.is_file() and any(text.encode() in path.read_bytes() for text in texts)
    ]


def test_a_keys_name_goes_and_the_key_stays_in_force(cli: Cli, folder: Path) -> None:
    secret = cli("key", "new", NAME, "--budget", "5/day").stdout
    assert holding(folder, NAME)
    dry = cli("redact", "--text", NAME, "--dry-run")
    assert "would take 1 row of the ledger of keys" in dry.stdout.replace(" the text out of", "")
    assert json.loads(cli("redact", "--text", NAME, "--dry-run", "--json").stdout)["ledger"] == 1
    assert holding(folder, NAME), "a trial changes nothing"
    done = cli("redact", "--text", NAME, *REDACTING)
    assert "redacted 1 row of the ledger of keys" in done.stdout
    assert holding(folder, NAME) == []
    (kept,) = json.loads(cli("key", "list", "--json").stdout)
    assert (kept["name"], kept["limits"]["budget"]) == ("[redacted]", {"dollars": 5, "per": "day"})
    assert secret
    one_line_error(cli("redact", "--text", NAME, *REDACTING, ok=False), "nothing in the store")


def test_each_key_keeps_its_spending_and_its_calls_under_its_new_name(
    cli: Cli, folder: Path, ledger: SqliteLedger, traffic: Traffic
) -> None:
    names = (NAME, OTHER, f"{NAME} 2", "shop")
    for number, name in enumerate(names):
        ledger.add_key(key(name, budget=Budget(5.0 + number, "total")))
        ledger.note(f"key:{name} ${5 + number} total 0.8")
        owed = {f"call-{number}": {(f"key:{name}", DAY): 1.0 + number}}
        ledger.spend("w", owed)
        call = BLANK._replace(id=f"call-{number}", time=number, worker=f"w{number}", key=name)
        traffic.add([call], [], None, owed)
    for text in (NAME, OTHER):
        cli("redact", "--text", text, *REDACTING)
        assert holding(folder, text) == []
    keys, spent = ledger.virtual_keys(), ledger.spent("")
    assert [spent_by(one, spent) for one in keys] == [1.0, 2.0, 3.0, 4.0]
    assert len({one.name for one in keys}) == 4
    assert keys[3].name == "shop"
    for number, one in enumerate(keys):
        assert traffic.call(f"call-{number}").key == one.name
        assert traffic.recorded(f"w{number}").owed == {
            f"call-{number}": {(f"key:{one.name}", DAY): 1.0 + number}
        }
        assert f"key:{one.name} ${5 + number} total 0.8" in ledger.notes(), "it is told once"


def test_every_text_of_the_ledger_goes_and_no_key_may_more_than_before(
    cli: Cli, folder: Path, ledger: SqliteLedger
) -> None:
    globs = (f"{NAME}*", "gpt-*")
    ledger.add_key(key("shop", models=globs, libraries=globs, paths=(f"/v1/{NAME}/*",)))
    ledger.add_key(key("desk")._replace(author=NAME))
    ledger.spend("w", {"b": {(f"library:{NAME}", DAY): 2.0}})
    ledger.note(f"library:{NAME} $5 0.8")
    with closing(sqlite3.connect(folder / "ledger.db")) as database:
        database.execute("pragma secure_delete = off")
        database.execute("create table notes (note text)")
        database.execute("insert into notes values (?)", [NAME])
        database.execute("drop table notes")
        database.commit()
    cli("redact", "--text", NAME, *REDACTING)
    assert holding(folder, NAME) == []
    shop, desk = ledger.virtual_keys()
    assert desk.author == "[redacted]"
    limits = shop.limits
    for patterns in (limits.models, limits.libraries):
        assert allows(patterns, "gpt-5")
        for name in ("r", "domain", "ed", "trial", NAME):
            assert not allows(patterns, name), "a text that is taken out is no set of letters"
    assert not allows(limits.paths, "/v1/r/x")
    assert ledger.spent("") == {("library:[redacted]", DAY): 2.0}


def test_every_name_in_the_record_of_traffic_goes(cli: Cli, folder: Path, traffic: Traffic) -> None:
    names = dict.fromkeys(("key", "library", "arm", "provider", "model"), f"{NAME}'s")
    traffic.add([BLANK._replace(id="call-1", time=1, **names)], [])
    traffic.set_scale(NAME, Scale(1, 5))
    old = BLANK._replace(id="call-0", time=0, arm=f"{NAME}:candidate")
    traffic.add([old], [])
    traffic.delete_before(1)
    done = cli("redact", "--text", NAME, *REDACTING)
    assert "3 rows of the record of traffic" in done.stdout
    assert holding(folder, NAME) == []
    assert traffic.call("call-1").library == "[redacted]'s"
    assert traffic.scales() == {"[redacted]": Scale(1, 5)}
    assert traffic.deleted(["[redacted]:candidate"]) == 0


def test_what_names_a_place_in_the_files_is_no_text(
    cli: Cli, folder: Path, traffic: Traffic, ledger: SqliteLedger
) -> None:
    words = ("secret", "lost", "scale", "deleted", "library", "candidate", "control", "month")
    ledger.spend("w", {"1": {("library:library", DAY): 2.0, ("key:lost", DAY): 1.0}})
    notes = {f"library:x $5/month {DAY} 0.8", f"key:some one $5/month {DAY} 0.8"}
    for note in notes:
        ledger.note(note)
    calls = [
        BLANK._replace(id=f"call-{n}", time=n, arm=f"scale control/{arm}")
        for n, arm in enumerate(["candidate", "control", "candidate", "control"])
    ]
    traffic.add(calls, [], None, {"w": {("library:lost", DAY): 1.0}})
    traffic.set_scale("lost deleted", Scale(1, 5))
    traffic.count_lost(BLANK.worker, 9)
    traffic.delete_before(2)
    secret, lost = traffic.secret(), traffic.lost()
    for word in words:
        done = cli("redact", "--text", word, *REDACTING, ok=False)
        assert "reading the store" not in done.stderr
    assert (traffic.secret(), traffic.lost()) == (secret, lost)
    assert traffic.scales() == {"[redacted] [redacted]": Scale(1, 5)}
    arms = [f"[redacted] [redacted]/{arm}" for arm in ("candidate", "control")]
    assert [call.arm for call in traffic.arm_calls(arms, 0)] == arms
    assert traffic.deleted(arms) == 1
    assert traffic.recorded(BLANK.worker).owed == {"w": {("library:[redacted]", DAY): 1.0}}
    assert ledger.spent("") == {("library:[redacted]", DAY): 2.0, ("key:[redacted]", DAY): 1.0}
    assert ledger.notes() == notes


@pytest.mark.parametrize("name", ["locks/r.live", "locks/r.stop", "search/0-1/vocab.json"])
def test_other_files_of_ours_are_treated_too(cli: Cli, folder: Path, name: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"trouble": f"no {NAME} here"}))
    would = cli("redact", "--text", NAME, "--dry-run")
    assert "not ours" not in would.stdout
    done = cli("redact", "--text", NAME, *REDACTING)
    assert holding(folder, NAME) == []
    assert ("removed" if name.startswith("search") else "wrote") in done.stdout


def test_a_ledger_beside_a_store_of_another_name_is_treated(cli: Cli, tmp_path: Path) -> None:
    given = ("--store", "library.db")
    cli(*given, "init")
    cli(*given, "key", "new", NAME)
    assert holding(tmp_path, NAME)
    cli(*given, "redact", "--text", NAME, *REDACTING)
    assert holding(tmp_path, NAME) == []


def test_a_proxy_that_reads_the_ledger_has_it_finished_later(
    cli: Cli, folder: Path, ledger: SqliteLedger
) -> None:
    ledger.add_key(key(NAME))
    with closing(sqlite3.connect(folder / "ledger.db")) as reader:
        reader.execute("begin")
        reader.execute("select * from keys").fetchall()
        done = cli("redact", "--text", NAME, *REDACTING, ok=False)
        assert done.returncode == 1
        assert "redact --finish" in done.stderr
    cli("redact", "--finish")
    assert holding(folder, NAME) == []


REDACT = """
import sys
from tfgrpo.redaction import redact_everywhere
from tfgrpo.store import Store
from tfgrpo.store.redact import Target
with Store.open(sys.argv[1]) as store:
    print("ready", flush=True)
    redact_everywhere(store, Target(texts=(sys.argv[2],)), reason="leaked")
    print("done", flush=True)
"""


def test_a_redaction_of_the_ledger_killed_at_any_instant_is_finished_by_who_opens_next(
    cli: Cli, tmp_path: Path
) -> None:
    import random

    dice = random.Random(11)
    for attempt in range(kills(8)):
        path = tmp_path / str(attempt) / ".tfgrpo" / "store.db"
        path.parent.mkdir(parents=True)
        Store.init(path).close()
        with (
            closing(open_ledger(ledger_path(path), create=True)) as ledger,
            closing(open_traffic(traffic_path(path), create=True)) as traffic,
        ):
            for number in range(50):
                name = f"{NAME} {number}"
                ledger.add_key(key(name))
                ledger.spend("w", {f"b{number}": {(f"key:{name}", DAY): float(number)}})
                traffic.add([BLANK._replace(id=f"call-{number}", time=1, key=name)], [])
        printed = kill_after_ready(child(REDACT, path, NAME), dice, 0.25)
        marked = path.with_name("store.db-redacting").exists()
        cli("--store", str(path), "log")  # which opens it, and finishes what was begun
        if printed or marked:
            assert holding(path.parent, NAME) == []
        with (
            closing(open_ledger(ledger_path(path))) as ledger,
            closing(open_traffic(traffic_path(path))) as traffic,
        ):
            spent = ledger.spent("")
            for number, one in enumerate(ledger.virtual_keys()):
                assert spent_by(one, spent) == number
                assert traffic.call(f"call-{number}").key == one.name


def test_a_budget_that_was_told_of_is_not_told_again(
    cli: Cli, folder: Path, ledger: SqliteLedger
) -> None:
    told: list[str] = []
    ledger.add_key(key(NAME, budget=Budget(1.0, "total")))
    settings = SpendingSettings(str(folder / "ledger.db"), {}, [], None, "d")
    spending = Spending(settings, told.append)
    spending.spend("w", {"b": {(f"key:{NAME}", DAY): 2.0}})
    spending.close()
    assert len(told) == 2
    assert redact_ledger(folder / "store.db", [NAME]) == 4
    again = Spending(settings, told.append)
    again.spend("w", {"c": {("key:[redacted]", DAY): 2.0}})
    again.close()
    assert len(told) == 2
    assert ledger.spent("") == {("key:[redacted]", DAY): 4.0}
