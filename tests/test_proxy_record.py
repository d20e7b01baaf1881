"""No answer is without its record: not where a worker is killed, nor where the record is behind."""

from __future__ import annotations

import fcntl
import json
import os
import sys
import termios
import threading
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from providers import Provider, ProxyThread, post
from proxy_fixtures import CHAT_USAGE, answer, settings, store
from proxy_fixtures import counting_provider as provider
from test_proxy import ASK, CHAT
from test_traffic import recorded
from waiting import until

from tfgrpo.proxy import record_writer
from tfgrpo.proxy.client_connection import ClientConnection
from tfgrpo.proxy.http_message import Request
from tfgrpo.proxy.proxy_settings import ProxySettings
from tfgrpo.proxy.record_writer import BATCH, Counter, RecordWriter, WriterSettings, counter_path
from tfgrpo.proxy.recorded_call import Call, streamed_text
from tfgrpo.proxy.telemetry import CALLS
from tfgrpo.store import Store
from tfgrpo.store.activity.traffic import ALL, CallFilter
from tfgrpo.store.opening import open_traffic

__all__ = ["provider", "settings", "store"]  # fixtures


@pytest.mark.parametrize(
    ("body", "end"),
    [
        (answer(CHAT_USAGE), b"}}}"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
            b"0\r\n\r\n",
        ),
        (b"no answer at all", b"}"),
    ],
    ids=["whole", "chunks", "502"],
)
def test_a_call_is_handed_over_before_the_last_of_its_answer_is_sent(
    settings: ProxySettings,
    provider: Provider,
    monkeypatch: pytest.MonkeyPatch,
    body: bytes,
    end: bytes,
) -> None:
    provider.answer = body
    handed: list[bool] = []
    write = ClientConnection.write

    def watched(self: ClientConnection, data: bytes) -> None:
        if data.endswith(end):
            (recorder,) = {id(one): one for one in self.proxy.recorders.values()}.values()
            handed.append(recorder._added == len(handed) + 1)
        write(self, data)

    monkeypatch.setattr(ClientConnection, "write", watched)
    with ProxyThread(settings) as proxy:
        for _ in range(3):
            assert proxy.ask(post(CHAT, ASK))
    assert handed == [True] * 3


def a_call(number: int, model: str = "m" * 500) -> bytes:
    request = Request(b"POST", CHAT.encode(), [(b"Host", b"a")], modern=True, keep_alive=True)
    call = Call(f"call-{number:032x}", 1_700_000_000_000_000 + number, request)
    call.status, call.model = 200, model
    return call.packed()


def record(messages: Iterable[bytes], made: WriterSettings) -> None:
    """Has calls recorded by a process that is started for them, in this one."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 1 << 20)
    with os.fdopen(writing, "wb") as pipe:
        pipe.writelines(messages)
    RecordWriter(made, print).run(reading)
    os.close(reading)


def in_pipe(reading: int) -> int:
    """How many bytes nobody has read yet."""
    return int.from_bytes(fcntl.ioctl(reading, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_what_comes_while_the_record_is_written_is_taken_out_of_the_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, many = str(tmp_path / "traffic.db"), 4000
    waiting: list[int] = []
    write = RecordWriter._write

    def watched(self: RecordWriter, **how: Any) -> None:
        """Writes, when so much has come meanwhile that it is more than two batches."""
        waiting.append(len(self._waiting))
        until(lambda: in_pipe(reading) > 3 * BATCH * len(a_call(0)) or not thread.is_alive())
        write(self, **how)

    monkeypatch.setattr(RecordWriter, "_write", watched)
    monkeypatch.setattr(record_writer.os, "nice", lambda _: 0)
    counter = Counter(counter_path(path, "ab"))
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 1 << 20)
    lines: list[str] = []
    made = WriterSettings(path, "ab", counter.descriptor, 0, False, None, "")
    writer = RecordWriter(made, lines.append)

    def send() -> None:
        with os.fdopen(writing, "wb") as pipe:
            for number in range(many):
                counter.increase()
                pipe.write(a_call(number))

    thread = threading.Thread(target=send)
    thread.start()
    writer.run(reading)
    thread.join(60)
    os.close(reading)
    counter.close()
    with closing(open_traffic(path)) as traffic:
        assert len(traffic.calls(CallFilter(), ALL)) == many
        assert traffic.lost() == 0
    assert [int(line) for line in lines if line.isdigit()][-1] == many
    assert max(waiting) > 2 * BATCH, "all of the pipe is taken, and a part is written"


def test_labels_are_few_however_often_what_records_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "traffic.db")
    monkeypatch.setattr(record_writer.os, "nice", lambda _: 0)
    for start in range(3):
        counter = Counter(counter_path(path, f"{start}"))
        made = WriterSettings(path, f"{start}", counter.descriptor, 0, False, None, "")
        record((a_call(n, f"m{n}") for n in range(150 * start, 150 * (start + 1))), made)
        counter.close()
        with closing(open_traffic(path)) as traffic:
            labels = [json.loads(labels) for name, labels in traffic.totals() if name == CALLS]
        assert {one["model"] for one in labels} == {"other", *(f"m{n}" for n in range(100))}


def test_a_worker_gives_a_record_that_is_behind_time_and_one_that_is_stuck_none(
    settings: ProxySettings, store: Store
) -> None:
    """What is stopped here is the other process: the pipe to it fills."""
    import signal

    long = b'{"model":"%b","messages":[]}' % (b"m" * 200_000)
    with ProxyThread(settings) as proxy:
        proxy.ask(post(CHAT, ASK))
        until(lambda: len(recorded(store)) == 1)
        (recorder,) = {id(one): one for one in proxy.proxy.recorders.values()}.values()
        until(lambda: recorder._reported == 1)
        process = recorder.process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        for _ in range(20):
            assert b" 200 " in proxy.ask(post(CHAT, long))[:20]
        assert recorder._pending, "the pipe is full"
        assert recorder._stuck_until > 0
        process.send_signal(signal.SIGCONT)
        until(lambda: len(recorded(store)) == 21)
    assert not list(store.path.parent.glob("*worker*"))


@pytest.mark.parametrize(
    "event",
    [
        {"choices": 3},
        {"choices": [{"index": 0, "delta": {"content": 7}}]},
        {"choices": {"delta": "x"}},
        {"candidates": [{"content": "x"}, 4, {"content": {"parts": 5}}]},
        {"candidates": [{"content": {"parts": ["x", None, {"text": 9}]}}]},
        {"candidates": {"content": {}}},
        {"delta": [1]},
        [1, 2],
        None,
    ],
)
def test_words_are_read_beside_events_of_any_shape(event: object) -> None:
    good = {"candidates": [{"content": {"parts": [{"text": "wa"}]}}], "type": "none"}
    last = {"choices": [{"delta": {"content": "ter"}}], "type": "none"}
    stream = "".join(f"data: {json.dumps(one)}\n\n" for one in (good, event, last))
    assert streamed_text(stream.encode()) == b"water"
