"""`tfgrpo redact` at a prompt: what it shows, asks, refuses and leaves behind."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from conftest import Cli, one_line_error, run_command
from test_collected_problems import record

from tfgrpo import interchange
from tfgrpo.domains.prompt_library import live
from tfgrpo.hand_edits import ENDINGS
from tfgrpo.serving.kept_file import KeptFile
from tfgrpo.store import Operation, Store
from tfgrpo.store.text_occurrences import forms, matcher

SECRET = "sk-live-51Hq"


@pytest.fixture
def leaked(cli: Cli) -> Cli:
    """A store whose library, history and snapshot hold the secret."""
    cli("init")
    cli("add", f"Call the shop with {SECRET}.", "Round up.")
    cli("modify", "G0", f"Call with {SECRET}.", "-r", "shorter")
    return cli


@pytest.fixture(params=["a file", pytest.param("a database", marks=pytest.mark.postgres)])
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """Where an empty store of either kind is, with a project in the working folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".tfgrpo").mkdir()
    database = request.param == "a database"
    place = request.getfixturevalue("shared") if database else str(tmp_path / ".tfgrpo/store.db")
    Store.init(place).close()
    return str(place)


@pytest.fixture
def either(cli: Cli, place: str) -> Cli:
    """Runs commands on a store of either kind."""

    def run(*arguments: str, ok: bool = True) -> subprocess.CompletedProcess[str]:
        return cli("--store", place, *arguments, ok=ok)

    return run


def piped(folder: Path, given: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_command(arguments, folder, input=given)


def holding(folder: Path) -> list[str]:
    files = (p for p in folder.rglob("*") if p.is_file())
    return [p.name for p in files if SECRET.encode() in p.read_bytes()]


def test_a_secret_from_a_pipe_is_gone_from_every_file(leaked: Cli, tmp_path: Path) -> None:
    assert holding(tmp_path)
    done = piped(tmp_path, SECRET + "\n", "redact", "--text", "-", "--reason", "leak", "--yes")
    assert done.returncode == 0, done.stderr
    assert SECRET not in done.stdout + done.stderr
    assert "copies may remain" in done.stdout
    assert holding(tmp_path) == []
    assert json.loads((tmp_path / ".tfgrpo/experiences.json").read_text()) == {"G0": "Round up."}
    assert "no problems" in leaked("fsck").stdout
    assert "[redacted]" in leaked("show", "v1").stdout
    assert "[redacted]" not in leaked("export", "v1", "--format", "prompt").stdout


def test_a_dry_run_changes_nothing_and_says_no_secret(leaked: Cli, tmp_path: Path) -> None:
    before = leaked("reflog").stdout
    shown = leaked("redact", "G0", "--dry-run").stdout
    assert "would blank 2 events" in shown
    assert "current on main" in shown
    assert SECRET not in shown
    found = json.loads(leaked("redact", "--text", SECRET, "--dry-run", "--json").stdout)
    assert [event["version"] for event in found["events"]] == ["v1", "v2"]
    assert leaked("reflog").stdout == before
    assert holding(tmp_path)


def test_it_asks_first_and_a_no_leaves_everything(leaked: Cli, tmp_path: Path) -> None:
    done = piped(tmp_path, "n\n", "redact", "G0", "--reason", "leak")
    assert done.returncode == 1
    assert "cannot be undone" in done.stderr
    assert holding(tmp_path)
    done = piped(tmp_path, "y\n", "redact", "G0", "--reason", "leak")
    assert done.returncode == 0, done.stderr
    assert holding(tmp_path) == []


def test_a_replacement_stands_and_undo_does_not_bring_it_back(leaked: Cli, tmp_path: Path) -> None:
    again = ("--reason", "leak", "--replace", "Call with your own key.", "--yes")
    assert "current on main, and reworded there: " in leaked("redact", "G0", *again).stdout
    texts = json.loads((tmp_path / ".tfgrpo/experiences.json").read_text())
    assert texts == {"G0": "Call with your own key.", "G1": "Round up."}
    one_line_error(leaked("undo", ok=False), "redaction")


def test_one_event_goes_alone(leaked: Cli) -> None:
    leaked("modify", "G0", "Call with a key.")
    done = leaked("redact", "G0", "--event", "v1", "--reason", "leak", "--yes")
    assert "redacted 1 event" in done.stdout
    assert "Call with a key." in leaked("export", "--format", "prompt").stdout
    assert "v2" in leaked("log").stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--reason", "x", "--yes"], "give an EXPERIENCE"),
        (["G0", "--yes"], "--reason"),
        (["--text", "-", "--reason", "x"], "--yes"),
        (["--text", "x", "--event", "v1", "--dry-run"], "--event"),
    ],
)
def test_bad_usage_is_said_and_exits_with_2(leaked: Cli, arguments: list[str], said: str) -> None:
    one_line_error(leaked("redact", *arguments, ok=False), said, code=2)


def test_errors_are_one_line_with_a_hint(leaked: Cli) -> None:
    yes = ("--reason", "x", "--yes")
    one_line_error(leaked("redact", "--text", "abc", *yes, ok=False), "fewer than 4")
    one_line_error(leaked("redact", "--text", "not there", *yes, ok=False), "nothing")
    one_line_error(leaked("redact", "G9", *yes, ok=False), "G9")
    one_line_error(leaked("redact", "G0", "--event", "v0", *yes, ok=False), "no such event")
    reason = ("--reason", f"it was {SECRET}", "--yes")
    done = leaked("redact", "--text", SECRET, *reason, ok=False)
    one_line_error(done, "reason contains")


def test_what_cannot_be_changed_is_listed_and_exits_with_1(leaked: Cli, tmp_path: Path) -> None:
    (tmp_path / "more.json").write_text('{"G0": "More."}')
    leaked("import", "more.json", "-m", f"with {SECRET}")
    (tmp_path / ".tfgrpo" / "notes.txt").write_text(SECRET)
    done = leaked("redact", "--text", SECRET, "--reason", "x", "--yes", ok=False)
    one_line_error(done, "still in the places listed")
    assert "versions.message, row 3: the digest of its version covers it" in done.stdout
    assert "reflog.action" in done.stdout
    assert "notes.txt still contains the text" in done.stdout
    assert "no problems" in leaked("fsck").stdout


def test_an_interrupted_redaction_is_said_and_finished(leaked: Cli, tmp_path: Path) -> None:
    (tmp_path / ".tfgrpo/store.db-redacting").touch()
    assert "redact --finish" in leaked("fsck", ok=False).stdout
    assert "rewrote the file" in leaked("redact", "--finish").stdout
    assert "no problems" in leaked("fsck").stdout


def test_a_library_that_bisect_has_out_is_written_again(leaked: Cli, tmp_path: Path) -> None:
    leaked("bisect", "start", "HEAD", "v0")
    trial = tmp_path / ".tfgrpo/bisect/experiences.json"
    assert SECRET in trial.read_text()
    done = leaked("redact", "--text", SECRET, "--reason", "x", "--yes")
    assert "wrote .tfgrpo/bisect/experiences.json" in done.stdout
    assert SECRET not in trial.read_text()
    leaked("bisect", "reset")
    assert not trial.exists()


def test_files_of_problems_are_rewritten_and_files_of_ones_own_are_named(
    leaked: Cli, tmp_path: Path
) -> None:
    row = json.dumps({"problem": f'Call "{SECRET}"?', "answer": "1"})
    other = json.dumps({"problem": "1 + 1?", "answer": "2"})
    improved = tmp_path / ".tfgrpo" / "improvements" / "v3-1" / "train.jsonl"
    improved.parent.mkdir(parents=True)
    for path in (improved, tmp_path / "collected.jsonl", tmp_path / "mine.csv"):
        path.write_text(f"{other}\n{row}\n")
    would = leaked("redact", "--text", SECRET, "--dry-run").stdout
    assert "collected.jsonl" in would
    assert "mine.csv, which is yours" in " ".join(would.split())
    done = leaked("redact", "--text", SECRET, "--reason", "leak", "--yes")
    assert holding(tmp_path) == ["mine.csv"]
    assert "mine.csv, which is yours" in " ".join(done.stdout.split())
    for path in (improved, tmp_path / "collected.jsonl"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        assert [one["problem"] for one in rows] == ["1 + 1?", 'Call "[redacted]"?']
    improved.write_text(row + "\n")  # and where nothing else holds it
    output = leaked("redact", "--text", SECRET, "--reason", "leak", "--yes").stdout
    assert f"wrote {improved}" in output
    assert "mine.csv, which is yours" in " ".join(output.split())
    assert holding(tmp_path) == ["mine.csv"]


LINES = (
    ' The key, "live" & it\'s:\n-----BEGIN KEY-----\nMII/Ev &#10; <!-- 0123456789ab -->\r\n\n'
    "  DANBg <!-- tfgrpo: x -->\n\t\x85-----END KEY-----\u2028 日本\n\\theta\\\n  t"
)
"""A text of several lines, of which each format has a spelling of its own."""


@pytest.mark.parametrize("format", interchange.written())
def test_a_text_of_several_lines_is_known_in_every_format(
    cli: Cli, format: str, tmp_path: Path
) -> None:
    with Store.init(tmp_path / ".tfgrpo/store.db", author="ann") as store:
        store.commit("main", [Operation("ADD", text=LINES)], message="x")
    out = tmp_path / "library.export"
    cli("export", "--format", format, "-o", str(out))
    shown = json.loads(cli("redact", "G0", "--dry-run", "--json").stdout)
    assert shown["own_files"] == [str(out)]
    text = matcher(forms([LINES])).sub("", out.read_text())
    assert not [line for line in ("BEGIN", "MII/Ev", "DANBg", "日本", "theta") if line in text]


@pytest.mark.parametrize("quote", ["'", '"'])
def test_a_row_of_quotation_marks_is_looked_for_in_no_time(quote: str) -> None:
    holds = matcher(forms([f"key {quote * 30}x"]))
    assert not holds.search(f"key {quote * 60}y")
    for written in (quote * 30, quote * 60):
        assert holds.fullmatch(f"key {written}x")
    assert holds.search(json.dumps(json.dumps(f"key {quote * 30}x")))
    assert not holds.search(f"key {quote * 29}x")


@pytest.mark.parametrize("text", [LINES, "Hm."])
def test_a_librarys_own_files_are_written_again_however_they_spell_a_text(
    cli: Cli, text: str, tmp_path: Path
) -> None:
    with Store.init(tmp_path / ".tfgrpo/store.db", author="ann") as store:
        store.commit("main", [Operation("ADD", text=text)], message="x")
    files = [tmp_path / f".tfgrpo/experiences.{ending}" for ending in ENDINGS.values()]
    for format in ENDINGS:
        cli("checkout", "main", "--format", format)
    before = [path.read_bytes() for path in files]
    mine = tmp_path / "AGENTS.md"
    mine.write_bytes(b"# Mine\r\n\r\n")
    with closing(live(store=tmp_path)) as library:
        KeptFile(mine, library, name=None, description=None).bring_up_to_date()
    done = cli("redact", "G0", "--reason", "leak", "--yes", "--json")
    for path, old in zip(files, before, strict=True):
        assert path.read_bytes() != old
    shown = json.loads(done.stdout)
    assert {Path(path).name for path in shown["rewritten"]} == {path.name for path in files}
    assert text == "Hm." or shown["own_files"] == [str(mine)]


def in_library(store: Store) -> None:
    store.commit("main", [Operation("ADD", text=f"Call with {SECRET}.")], message="more")


def in_problems(store: Store) -> None:
    Path("collected.jsonl").write_text(json.dumps({"problem": SECRET}) + "\n")


def in_traffic(store: Store) -> None:
    record(store, "call-a", "What is it?", f"It is {SECRET}.")


HELD: dict[str, Callable[[Store], None]] = {
    "nothing else": lambda store: None,
    "a library": in_library,
    "a file of problems": in_problems,
    "the record of traffic": in_traffic,
}
"""What else may hold the secret."""


@pytest.mark.parametrize("held", HELD)
def test_a_file_of_somebody_else_beside_the_store_is_named_wherever_the_text_is_too(
    held: str, place: str, either: Cli, tmp_path: Path
) -> None:
    notes = tmp_path / ".tfgrpo" / "improvements" / "p1" / "notes.txt"
    notes.parent.mkdir(parents=True)
    notes.write_text(f"I called with {SECRET}.")
    with Store.open(place) as store:
        HELD[held](store)
    dry = either("redact", "--text", SECRET, "--dry-run")
    assert "notes.txt contains the text" in " ".join(dry.stdout.split())
    assert SECRET in notes.read_text()
    shown = json.loads(either("redact", "--text", SECRET, "--dry-run", "--json").stdout)
    assert shown["files_left"] == [str(notes)]
    done = either("redact", "--text", SECRET, "--reason", "leak", "--yes", ok=False)
    one_line_error(done, "still in the places listed above")
    assert "notes.txt still contains the text" in " ".join(done.stdout.split())
    assert holding(tmp_path) == ["notes.txt"]
    notes.unlink()
    done = either("redact", "--text", SECRET, "--reason", "leak", "--yes", ok=False)
    one_line_error(done, "nothing in the store contains it")


def test_every_text_of_ours_beside_the_store_is_rewritten(either: Cli, tmp_path: Path) -> None:
    folder = tmp_path / ".tfgrpo"
    either("add", "one")
    either("add", "two")
    either("bisect", "start", "HEAD", "v0")
    marks = folder / "bisect.json"
    marks.write_text(marks.read_text().replace("at the start", f"it said {SECRET}"))
    row = json.dumps({"problem": SECRET, "answer": "1"}) + "\n"
    texts = ("data/rows-0123456789abcdef.jsonl", "data/inspect-0123456789abcdef.jsonl")
    for name in (*texts, "locks/run.said", "experiences.md"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(row)
    either("redact", "--text", SECRET, "--reason", "leak", "--yes")
    assert holding(tmp_path) == []
    for name in texts:
        assert json.loads((folder / name).read_text())["problem"] == "[redacted]"
    assert "two" in (folder / "experiences.md").read_text()
    either("bisect", "skip")


def test_a_link_is_not_followed_and_named(either: Cli, tmp_path: Path) -> None:
    mine = tmp_path / "elsewhere" / "mine.jsonl"
    mine.parent.mkdir()
    mine.write_text(SECRET)
    link = tmp_path / ".tfgrpo" / "data" / "rows-0123456789abcdef.jsonl"
    link.parent.mkdir()
    link.symlink_to(mine)
    done = either("redact", "--text", SECRET, "--reason", "leak", "--yes", ok=False)
    assert f"{link.name} still contains the text" in " ".join(done.stdout.split())
    assert link.is_symlink()
    assert mine.read_text() == SECRET


@pytest.mark.parametrize("name", ["store.db", "traffic.db"])
def test_what_was_deleted_before_is_gone_from_free_pages(
    name: str, cli: Cli, tmp_path: Path
) -> None:
    cli("init")
    with Store.open(tmp_path / ".tfgrpo" / "store.db") as store:
        record(store, "call-a", "What is it?", "It is nothing.")
    with closing(sqlite3.connect(tmp_path / ".tfgrpo" / name)) as database:
        database.execute("pragma secure_delete = off")
        database.execute("create table notes (note text)")
        database.execute("insert into notes values (?)", [SECRET])
        database.commit()
        database.execute("drop table notes")
        database.commit()
        database.execute("pragma wal_checkpoint(truncate)")
    assert holding(tmp_path) == [name]
    done = cli("redact", "--text", SECRET, "--reason", "leak", "--yes")
    assert name in done.stdout
    assert holding(tmp_path) == []


def test_a_store_anywhere_has_its_owners_files_named(cli: Cli, tmp_path: Path) -> None:
    given = ("--store", "library.db")
    cli(*given, "init")
    (tmp_path / "mine.csv").write_text(SECRET)
    redacting = (*given, "redact", "--text", SECRET, "--reason", "leak", "--yes")
    one_line_error(cli(*redacting, ok=False), "mine.csv, which is yours")
    cli(*given, "add", f"Call with {SECRET}.")
    done = cli(*redacting)
    assert "mine.csv, which is yours" in " ".join(done.stdout.split())
    assert "library.db still" not in done.stdout
    assert holding(tmp_path) == ["mine.csv"]


def test_a_store_that_is_named_from_within_its_folder_is_searched_whole(
    leaked: Cli, tmp_path: Path
) -> None:
    (tmp_path / ".tfgrpo" / "notes.txt").write_text(SECRET)
    redacting = ("--store", "store.db", "redact", "--text", SECRET, "--reason", "leak", "--yes")
    done = run_command(redacting, tmp_path / ".tfgrpo")
    one_line_error(done, "still in the places listed above")
    assert holding(tmp_path) == ["notes.txt"]
