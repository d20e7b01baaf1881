"""Every verb that writes, with a fault at every call that changes a file: a kill, an error of the
disk, a full disk, a loss of power that takes all or some of what was not synchronised. The store
and each file beside it hold what was there before or what the verb makes, whole; `fsck` is clean;
nothing else is left behind once somebody has written again.

A fault for each verb, of a kind and at a call that chance chooses, the same one each time with
TFGRPO_SAME_EXAMPLES; with TFGRPO_LONG=1 all of them, and a line for each verb with how many faults
of each kind ended otherwise.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from glob import glob
from pathlib import Path

import click
import pytest
from boundary_faults import KINDS, Faults, built
from boundary_verbs import ELSEWHERE, FIRST, LOOKING, LOOKS, SECRET, VERBS
from conftest import LONG
from port_rows import call, write
from power_device import PowerDevice, mounts
from test_collected_problems import record
from test_house import commands
from test_proposals import proposed
from waiting import until

from tfgrpo.improvement.improvement_record import FOLDER as IMPROVEMENTS
from tfgrpo.store import Store

MOST = 10_000 if LONG else int(os.environ.get("TFGRPO_FAULTS", "1"))
"""How many calls of a verb have a fault, of each kind: TFGRPO_FAULTS says another number, for all
kinds of faults."""
SOME = len(KINDS) if LONG or "TFGRPO_FAULTS" in os.environ else 1
"""How many kinds of faults a verb has."""
CUT = list(VERBS) if SOME > 1 else [""] * 4
"""Verbs that are tried on a disk whose power goes; an empty one is chosen by chance."""

pytestmark = [
    pytest.mark.skipif(
        sys.platform != "linux" or shutil.which("cc") is None,
        reason="needs Linux and a C compiler",
    ),
    *([pytest.mark.timeout(0)] if LONG else []),  # a verb has some hundred calls
]


@pytest.fixture(scope="module")
def faults() -> Iterator[Faults]:
    with Faults() as started:
        yield started


@pytest.fixture(scope="module")
def prepared(faults: Faults, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store that has a history, other branches, a secret and its files."""
    folder = tmp_path_factory.mktemp("prepared")
    for line in (
        ["init"],
        ["bundle", "create", "out.bundle"],
        ["export", "--format", "md", "-o", "out.md"],
        ["add", f"Call the shop with {SECRET}.", "Round up."],
        ["branch", "other"],
        ["switch", "other"],
        ["add", "Say thanks."],
        ["switch", "main"],
        ["add", "Count both days."],
        ["modify", "G1", "Round half up."],
        ["tag", "good"],
        ["checkout", "main"],
        ["clone", ".", "far"],
        ["bundle", "create", "all.bundle"],
        ["remote", "add", "far", "far"],
    ):
        done = faults.run(folder, *line)
        assert done.code == 0, (line, done.said)
    with Store.open(folder / ".tfgrpo" / "store.db") as store:
        asked = call("a", request=json.dumps([["user", SECRET]]))
        write(store.port, [asked, call("b", answer={"content": f"It is {SECRET}."})])
        record(store, "call-a", f"What is {SECRET}?", SECRET, score=0.2)
        store.create_branch("prod", "HEAD~1")
        proposed(store)
        rows = store.path.parent / IMPROVEMENTS / "p1" / "problems.jsonl"
    rows.parent.mkdir(parents=True)
    rows.write_text(json.dumps({"problem": f"What is {SECRET}?"}) + "\n")
    (folder / "new.md").write_text("- Ask first.\n- Say why.\n")
    (folder / "more.jsonl").write_text('{"id": "a", "problem": "What is 2?", "answer": "2"}\n')
    (folder / "AGENTS.md").write_text("# For agents\n")
    collected = [{"problem": f"What is {SECRET}?"}, {"problem": "What is half of three?"}]
    (folder / "collected.jsonl").write_text("".join(json.dumps(row) + "\n" for row in collected))
    return folder


POWER = ("power", "torn")
OWN = re.compile(r"\.db(-.+)?$|\.lock$")
LEFT = re.compile(r"\..+\.[0-9a-f]{16}|\.clone-.+|.+-redacting|edit-.+")


LOSS = """
import ctypes, mmap, os, sys
library, folder = ctypes.CDLL(sys.argv[1]), sys.argv[2]
shared = mmap.mmap(-1, mmap.PAGESIZE)
address = ctypes.addressof(ctypes.c_long.from_buffer(shared))
library.fault_arm(ctypes.c_void_p(address), ctypes.c_long(1000), -1, 0, folder.encode())
with open(f"{folder}/a", "r+b", buffering=0) as file:
    file.write(b"kept ")
    os.fsync(file.fileno())
    file.write(b"lost")
    os.ftruncate(file.fileno(), 7)
with open(f"{folder}/new", "wb", buffering=0) as file:
    file.write(b"lost")
library.fault_end()
"""


def test_a_loss_of_power_takes_what_was_not_synchronised(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("before, in words")
    library = built(tmp_path)
    environment = {**os.environ, "LD_PRELOAD": library}
    subprocess.run(
        [sys.executable, "-c", LOSS, library, str(tmp_path)], env=environment, check=True
    )
    assert (tmp_path / "a").read_text() == "kept e, in words"
    assert (tmp_path / "new").read_text() == ""


def state(faults: Faults, folder: Path, verb: str) -> str:
    """What a store holds of what a verb may change, in words; nothing where it cannot be opened."""
    family = verb.split()[0]
    looks = [("log", "--json", "--all"), *([LOOKS[family]] if family in LOOKS else [])]
    done = [faults.run(folder, *look) for look in looks]
    said = [one.said.replace(str(folder), "") for one in done if one.code == 0]
    lines = [line for one in said for line in one.splitlines()]
    return "\n".join(line for line in lines if line != "[]" and not line.startswith("note: "))


def files(folder: Path) -> dict[str, bytes]:
    """What the files hold that people and programs read, by name: all but databases and locks."""
    return {
        str(path.relative_to(folder)): content(path)
        for path in folder.rglob("*")
        if path.is_file() and not any(map(LEFT.fullmatch, path.parts)) and not OWN.search(path.name)
    }


def content(path: Path) -> bytes:
    """What a file holds, without the times of a search's marks."""
    read = path.read_bytes()
    return shape(read.decode()).encode() if path.name == "bisect.json" else read


def torn(old: dict[str, bytes], new: dict[str, bytes], now: dict[str, bytes], code: int) -> str:
    """Names the files that are neither as before nor as the verb makes them; empty for none. After
    a success they are as it makes them."""
    wrong = [
        f"{name} has {len(now[name])} bytes" if name in now else f"{name} is gone"
        for name in sorted({*old, *new, *now})
        if now.get(name) not in ((new.get(name),) if code == 0 else (old.get(name), new.get(name)))
    ]
    return ", ".join(wrong)


def shape(said: str) -> str:
    """What of a log is the same in two runs: no times, and no digests made of them."""
    said = re.sub(r"\b([0-9a-f]{12,}|[0-9a-z]{12})\b", "", said)
    return re.sub(r"\d{4}-\d\d-\d\dT[^\"]*", "", re.sub(r"\d{13,}", "", said))


def test_every_verb_that_writes_is_tried_or_it_is_said_why_not() -> None:
    groups = {name for name, command in commands() if isinstance(command, click.Group)}
    verbs = {name.removeprefix("tfgrpo ") for name, _ in commands() if name not in groups}
    tried = {" ".join(words) for line in VERBS.values() for words in (line[:1], line[:2])}
    tried |= {"init"}
    others = {*LOOKING, *ELSEWHERE}
    assert verbs - tried - others == set()
    assert others - verbs == set()
    assert others & tried == set()


@pytest.mark.parametrize("verb", VERBS)
def test_a_fault_leaves_a_verb_done_or_not_done(
    verb: str,
    faults: Faults,
    prepared: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole = tmp_path / "whole"
    if verb in FIRST:
        prepared = Path(shutil.copytree(prepared, tmp_path / "prepared"))
        done = faults.run(prepared, *FIRST[verb])
        assert done.code == 0, done.said
    shutil.copytree(prepared, whole)
    before = shape(state(faults, whole, verb))
    done = faults.run(whole, *VERBS[verb])
    assert done.code == 0, done.said
    old, new = files(prepared), files(whole)
    calls, after = done.calls, shape(state(faults, whole, verb))
    chance = random.Random(verb if "TFGRPO_SAME_EXAMPLES" in os.environ else None)
    wrong: list[str] = []
    row = [f"{calls} calls"]
    for kind in chance.sample([*KINDS], SOME):
        found = len(wrong)
        last = calls + (kind in POWER)  # when the command has ended, and said so
        for at in sorted(chance.sample(range(1, last + 1), min(MOST, last))):
            folder = tmp_path / "faulty"
            shutil.copytree(prepared, folder)
            outcome = faults.run(folder, *VERBS[verb], kind=kind, at=at)
            problem = torn(old, new, files(folder), outcome.code)
            problem = problem or examine(faults, folder, verb, outcome.code, (before, after))
            if "Traceback" in outcome.said or "bug of tfgrpo" in outcome.said:
                problem = f"{problem or ''} it said {outcome.said[-300:]}"
            if problem:
                wrong.append(f"{kind} at {at} of {calls}: {problem} ({outcome.said.strip()[:160]})")
            shutil.rmtree(folder)
        row.append(f"{kind} {len(wrong) - found} of {min(MOST, calls)} wrong")
    if LONG:  # the table of verbs and faults
        with capsys.disabled():
            print(f"\n{verb}: {', '.join(row)}", flush=True)
    assert not wrong, f"{len(wrong)} faults\n" + "\n".join(wrong[:20])


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PowerDevice]:
    try:
        with PowerDevice(tmp_path_factory.mktemp("disk")) as device:
            device.format()
            yield device
    except OSError as error:
        pytest.skip(f"needs rights to mount a disk: {error}")


DISK_IN_USE = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from power_device import PowerDevice
folder = Path(sys.argv[2])
with PowerDevice(folder) as device:
    device.format()
    (folder / "mount").mkdir()
    with device.mounted(folder / "mount"):
        (folder / "mount/file").write_text("x")
        print(device._process.pid, flush=True)
        time.sleep(600)
"""


@pytest.mark.parametrize("which", ["who uses it", "both"])
def test_a_disk_whose_user_was_killed_is_taken_away(
    which: str, disk: PowerDevice, tmp_path: Path
) -> None:
    """By what serves it, or by whoever uses the next: where other tests run beside these, that may
    be one of theirs."""
    there, other = tmp_path / "there", tmp_path / "other"
    other.mkdir()
    for _ in range(20):
        there.mkdir()
        left = killed_while_in_use(there, both=which == "both")
        if which != "both" or left == 3:
            break
        until(lambda: not left_in(there))  # a test beside this one was the next user
        shutil.rmtree(there)
    if which == "both":
        assert left == 3
        with PowerDevice(other):
            assert left_in(other)
            until(lambda: not left_in(there))
            assert left_in(other)
    until(lambda: not left_in(there))


def killed_while_in_use(there: Path, *, both: bool) -> int:
    """Kills who uses a disk, or also what serves it; returns how much is left of it then."""
    command = [sys.executable, "-c", DISK_IN_USE, str(Path(__file__).parent), str(there)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as user:
        assert user.stdout is not None
        server = int(user.stdout.readline())
        assert len(left_in(there)) == 3, "the disk, its loop device and a file system"
        if both:
            os.kill(server, signal.SIGKILL)
        user.kill()
    if both:
        until(lambda: not Path(f"/proc/{server}").exists())
    return len(left_in(there))


def left_in(folder: Path) -> list[str]:
    """Returns the mounts and loop devices of a disk in a folder."""
    loops = [Path(file).read_text() for file in glob("/sys/block/loop*/loop/backing_file")]
    return [one for one in (*(place for _, place in mounts()), *loops) if str(folder) in one]


@pytest.mark.parametrize("verb", CUT)
def test_a_disk_that_loses_power_has_a_verb_done_or_not_done(
    verb: str, faults: Faults, prepared: Path, disk: PowerDevice, tmp_path: Path
) -> None:
    """A real disk under ext4, which drops what was not flushed: when the verb has said that it is
    done, all of that or a half; and when it was killed at some call."""
    chance = random.Random(tmp_path.name if "TFGRPO_SAME_EXAMPLES" in os.environ else None)
    verb = verb or chance.choice(list(VERBS))
    whole, sectors = tmp_path / "whole", tmp_path / "sectors"
    mount = tmp_path / "mount"
    mount.mkdir()
    shutil.copytree(prepared, whole)
    if verb in FIRST:
        assert faults.run(whole, *FIRST[verb]).code == 0
    disk.order("on")
    with disk.mounted(mount):
        shutil.rmtree(mount / "work", ignore_errors=True)
        shutil.copytree(whole, mount / "work")
    disk.order("save", str(sectors))
    before, old = shape(state(faults, whole, verb)), files(whole)
    done = faults.run(whole, *VERBS[verb])
    assert done.code == 0, done.said
    after, new = shape(state(faults, whole, verb)), files(whole)
    kills = chance.sample(range(1, done.calls + 1), min(done.calls, MOST, 40))
    cases = [("", 0), ("1", 0), *((chance.choice(["", "2"]), at) for at in kills)]
    wrong = []
    for seed, at in cases:
        disk.order("load", str(sectors))
        with disk.mounted(mount):
            outcome = faults.run(mount / "work", *VERBS[verb], kind="kill", at=at)
            disk.order("cut", seed)
        disk.order("on")
        with disk.mounted(mount):
            folder = mount / "work"
            problem = torn(old, new, files(folder), outcome.code)
            problem = problem or examine(faults, folder, verb, outcome.code, (before, after))
        if problem:
            wrong.append(f"cut {seed or 'all'} after call {at or 'the last'}: {problem}")
    assert not wrong, f"{verb}: {len(wrong)} of {len(cases)}\n" + "\n".join(wrong)


def examine(
    faults: Faults, folder: Path, verb: str, code: int, expected: tuple[str, str]
) -> str | None:
    """Returns what is wrong after a fault, or None. The next writer is `branch next`."""
    now = shape(state(faults, folder, verb))
    if now not in expected:
        return f"neither before nor after: {now[:200]!r}"
    if code == 0 and now != expected[1]:
        return "success was said of what was not done"
    if verb == "redact":
        held = now == expected[0] and expected[0] != expected[1]
        if held != (SECRET.encode() in (folder / ".tfgrpo/experiences.json").read_bytes()):
            return "the library's file has not followed"
        if not held and (places := holding(folder)):
            return f"the secret is in {places}"
    stores = [path for path in folder.rglob("*.db") if "far" not in path.parts]
    stores = [path for path in stores if path.name not in ("traffic.db", "ledger.db")]
    for path in stores:
        checked = faults.run(folder, "--store", str(path), "fsck")
        if checked.code:
            return f"{path.relative_to(folder)}: {checked.said[:200]}"
    for path in stores:
        faults.run(folder, "--store", str(path), "add", "The next one writes.")
    said = ""
    if VERBS[verb][0] in ("clone", "bundle", "export", "--store", "checkout", "edit", "watch"):
        said = faults.run(folder, *VERBS[verb]).said
    if VERBS[verb][0] == "bisect":
        for line in (["reset"], ["start", "HEAD", "v0"], ["reset"]):
            faults.run(folder, "bisect", *line)
        if (folder / ".tfgrpo/bisect").exists():
            return "the folder of a search is left behind"
    left = [str(p.relative_to(folder)) for p in folder.rglob("*") if LEFT.fullmatch(p.name)]
    left = [name for name in left if f"{name}/draft.md has an edit" not in said]
    return f"left behind: {left}" if left else None


def holding(folder: Path) -> list[str]:
    """The files that have the secret, apart from the clone and the bundle, which are elsewhere."""
    return [
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and "far" not in path.parts and path.name != "all.bundle"
        if SECRET.encode() in path.read_bytes()
    ]
