"""What comes from others has a bound, and what leaves for other programs is inert there."""

from __future__ import annotations

import asyncio
import errno
import gzip
import io
import json
import os
import random
import select
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from conftest import Cli, one_line_error
from port_rows import call
from scripted import Reply, ScriptedEndpoint, completion, opened_calls

from tfgrpo import interchange
from tfgrpo.data.problems import Problem
from tfgrpo.domains.base import DomainError, Trajectory, Verdict
from tfgrpo.domains.function import function_domain
from tfgrpo.domains.verifier import Verifier
from tfgrpo.interchange.format_types import SourceFile
from tfgrpo.interchange.formats.rows import CSV
from tfgrpo.model.client import RecordedAnswer
from tfgrpo.model.endpoint import CallFailed, EndpointError, Request
from tfgrpo.proxy.recorded_call import UNPACKED, SeenCall
from tfgrpo.rollout.attempt import checked_verdict
from tfgrpo.store import Operation, Store, StoreError, TransferError
from tfgrpo.store.activity.journal import Journal
from tfgrpo.store.errors import advice
from tfgrpo.store.port import CallValues, RolloutValues
from tfgrpo.store.sqlite.journal import SqliteWriter
from tfgrpo.store.transfer import pack
from tfgrpo.wording import COMPUTED, inert_cell, read_cell


class Ended(BaseException):
    """What is no Exception."""

    def __str__(self) -> str:
        return "\x1b[31mred"


def ends(problem: Problem, response: str) -> Verdict:
    raise Ended


def forks(problem: Problem, response: str) -> Verdict:
    """Leaves a child that would run for ten minutes; hangs itself where it is asked to."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(problem.id).write_text(str(child.pid))
    if response == "hang":
        child.wait()
    return Verdict(1.0, None, "")


def text_reward(problem: Problem, response: str) -> Verdict:
    return Verdict("1", None, "")  # type: ignore[arg-type]


def test_what_a_verifier_raises_is_a_verdict_whatever_it_is(spawned: None) -> None:
    problem = Problem("p", "1 + 1?", "2")

    async def judge() -> list[Verdict]:
        with Verifier(workers=1, seconds=30, warm=False) as verifier:
            context: Any = SimpleNamespace(problem=problem, verifier=verifier)
            domain = function_domain(ends)  # type: ignore[arg-type]
            assert domain.judge is not None
            return [
                await verifier.verdict(problem, "2", ends),
                await domain.judge(context, cast(Trajectory, SimpleNamespace(response="2"))),
            ]

    for verdict in asyncio.run(judge()):
        assert verdict.reward is None
        assert "Ended" in verdict.reason


@pytest.mark.skipif(sys.platform != "linux", reason="has pidfd_open")
@pytest.mark.parametrize("how", ["answer", "hang"])
def test_what_a_verifier_forked_ends_with_its_worker(
    how: str, tmp_path: Path, spawned: None
) -> None:
    problem = Problem(str(tmp_path / "pid"), "1 + 1?", "2")
    with Verifier(workers=1, seconds=3, warm=False) as verifier:
        asyncio.run(verifier.verdict(problem, how, forks))
    with suppress(ProcessLookupError):  # it is gone already
        child = os.pidfd_open(int((tmp_path / "pid").read_text()))
        assert select.select([child], [], [], 60)[0], "it is still there"
        os.close(child)


def test_a_reward_that_is_a_text_is_none() -> None:
    domain = function_domain(lambda problem, response: 1)
    for reward in ("1", b"1", [1], {}):
        with pytest.raises(DomainError, match="no number"):
            checked_verdict(domain, Verdict(reward, None, ""))  # type: ignore[arg-type]
    for number in (True, 1, 0.5):
        assert checked_verdict(domain, Verdict(number, None, "")).reward == float(number)


@pytest.mark.parametrize("packing", ["gzip", "deflate"])
def test_a_packed_answer_is_unpacked_up_to_a_size(packing: str, tmp_path: Path) -> None:
    pack = gzip.compress if packing == "gzip" else zlib.compress
    bomb = pack(bytes(1 << 28))
    small = pack(completion_bytes())
    assert len(bomb) < 1 << 20

    def script(sent: dict[str, Any]) -> Reply:
        body = bomb if sent["messages"][0]["content"] == "0" else small
        return Reply(body, headers={"content-encoding": packing})

    async def ask() -> list[object]:
        with (
            ScriptedEndpoint(script) as server,
            opened_calls(tmp_path, server.base_url, tries=1) as calls,
        ):
            try:
                requests = [Request("rollout", (("user", str(n)),), 0.5, 64) for n in (1, 0)]
                return [
                    (await asyncio.gather(calls.ask(one), return_exceptions=True))[0]
                    for one in requests
                ]
            finally:
                await calls.endpoint.close()

    tracemalloc.start()
    try:
        read, bombed = asyncio.run(ask())
        assert tracemalloc.get_traced_memory()[1] < 1 << 28  # which it unpacks to
    finally:
        tracemalloc.stop()
    assert isinstance(bombed, CallFailed | EndpointError)
    assert "more than 16 MB" in str(bombed)
    assert cast(RecordedAnswer, read).answer.content == "fine"


def completion_bytes() -> bytes:
    return json.dumps(completion("fine")).encode()


def test_a_packed_answer_through_the_proxy_is_unpacked_up_to_a_size() -> None:
    blank = dict.fromkeys(SeenCall._fields, None)
    bomb = gzip.compress(bytes(1 << 28))
    seen = SeenCall(**{**blank, "packing": b"gzip", "pieces": (bomb,)})  # type: ignore[arg-type]
    tracemalloc.start()
    try:
        assert "not read" in (seen.tokens()[1] or "")
        assert tracemalloc.get_traced_memory()[1] < 4 * UNPACKED
    finally:
        tracemalloc.stop()


def test_a_line_without_an_end_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "LONGEST", 1000)
    for content in (b"x" * 5000, b'{"tfgrpo":"bundle","format":1}\n' + b"x" * 5000):
        with pytest.raises(TransferError, match="line of more"):
            pack.Pack(io.BytesIO(content), "there")
        with pytest.raises(TransferError, match="line of more"):
            pack.Pack.from_stream(io.BytesIO(content), "there")


def test_no_cell_of_a_sheet_is_computed_and_each_is_read_as_it_was(tmp_path: Path) -> None:
    chance = random.Random(3)
    signs = "'=+-@\t\rab"
    texts = {"".join(chance.choices(signs, k=chance.randint(0, 5))) for _ in range(2000)}
    for text in texts:
        assert read_cell(inert_cell(text)) == text
        assert not inert_cell(text).startswith(COMPUTED)
    path = tmp_path / "s.db"
    wanted = ["=cmd|'/c calc'!A0", "+1", "-1 is a number", "@SUM(A1)", "'=quoted", "plain"]
    with Store.init(path) as store:
        store.commit("main", [Operation("ADD", text=one) for one in wanted], message="m")
        sheet = "".join(interchange.export(store, "HEAD", "csv"))
    assert '"=' not in sheet
    read = CSV.read(SourceFile(Path("x.csv"), sheet.encode()))
    assert [item.text for item in read.items] == wanted


@pytest.mark.skipif(sys.platform == "win32", reason="needs bash")
def test_a_name_that_a_hostile_store_has_is_no_code_in_bash(cli: Cli, tmp_path: Path) -> None:
    cli("init")
    with Store.open(tmp_path / ".tfgrpo/store.db") as store:
        store.move_names([("heads/x$(touch owned);*", 0, None)], "hostile")
    script = cli("completion", "bash").stdout
    line = (
        f"{script}\nCOMP_WORDS=(tfgrpo switch x); COMP_CWORD=2; _tfgrpo_completion tfgrpo\n"
        'for word in "${COMPREPLY[@]}"; do eval "printf %s\\\\\\\\n $word"; done'
    )
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert "x$(touch owned);*" in done.stdout, done
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("port", ["99999", "0", "-1", "abc"])
def test_a_port_that_is_none_is_refused_where_it_is_given(port: str, cli: Cli) -> None:
    cli("init")
    address = f"http://127.0.0.1:{port}/v1"
    for line in (
        ("model", "check", "--base-url", address, "--model", "m"),
        ("proxy", "--upstream", address),
        ("--store", f"postgresql://127.0.0.1:{port}/d", "log"),
        ("clone", f"ssh://127.0.0.1:{port}/x"),
    ):
        done = cli(*line, ok=False)
        one_line_error(done, "", code=done.returncode)
        assert done.returncode in (1, 2), done


def test_what_is_recorded_is_said_where_the_library_s_file_cannot_be_written(
    cli: Cli, tmp_path: Path
) -> None:
    cli("init")
    cli("add", "Round up.", "Count both days.")
    file = tmp_path / ".tfgrpo/experiences.json"
    file.unlink()
    file.mkdir()
    for line, version in ((("add", "Say why."), "v2"), (("undo",), "v1"), (("redo",), "v2")):
        one_line_error(cli(*line, ok=False), f"{version} is recorded, and")
    file.rmdir()
    cli("checkout", "HEAD")
    assert "Say why." in file.read_text()


def test_a_full_disk_is_told_to_be_made_room_on() -> None:
    assert "space" in advice(OSError(errno.ENOSPC, "full"))
    assert "permissions" in advice(PermissionError(errno.EACCES, "no"))


class FullDisk(SqliteWriter):
    """A writer of a disk that is full for a number of tries."""

    tries = 0

    def append(self, calls: Sequence[CallValues], rollouts: Sequence[RolloutValues]) -> None:
        self.tries -= 1
        if self.tries >= 0:
            raise StoreError("cannot write s.db: database or disk is full", hint="free some space")
        super().append(calls, rollouts)


@pytest.mark.parametrize("tries", [2, 10_000])
def test_answers_wait_for_room_and_are_said_to_be_lost_where_there_is_none(
    tries: int, tmp_path: Path
) -> None:
    path = tmp_path / "s.db"
    with Store.init(path) as store:
        writer = FullDisk(path)
        writer.tries = tries
        journal = Journal(writer, patience=1.0)
        try:
            if tries == 2:
                asyncio.run(journal.append(call("k")))
                assert store.port.row("select count(*) from journal") == (1,)  # type: ignore[attr-defined]
            else:
                with pytest.raises(StoreError, match="1 answer that had arrived") as lost:
                    asyncio.run(journal.append(call("k")))
                assert lost.value.hint == "free some space"
        finally:
            journal.close()
