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
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from providers import Provider, ProxyThread, post
from proxy_fixtures import CHAT_USAGE, answer, settings, store
from proxy_fixtures import counting_provider as provider
from test_proxy import ASK, CHAT
from test_proxy_keys import EACH, PRICES
from test_traffic import recorded
from waiting import until

from tfgrpo.model.wire_formats import streamed_text
from tfgrpo.proxy import record_writer
from tfgrpo.proxy.client_connection import ClientConnection
from tfgrpo.proxy.http_message import Request
from tfgrpo.proxy.keys_and_limits import Spending, SpendingSettings
from tfgrpo.proxy.proxy_settings import ProxySettings, SpendLimit
from tfgrpo.proxy.record_writer import BATCH, Counter, RecordWriter, WriterSettings, counter_path
from tfgrpo.proxy.recorded_call import RECORDED, Call
from tfgrpo.proxy.telemetry import CALLS
from tfgrpo.store import Store
from tfgrpo.store.activity.key_ledger import Budget
from tfgrpo.store.activity.traffic import ALL, CUT_OFF, CallFilter, CallRecord
from tfgrpo.store.opening import open_ledger, open_traffic
from tfgrpo.store.records import REDACTED
from tfgrpo.store.sqlite.ledger_file import SqliteLedger

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
    call.status, call.model, call.provider = 200, model, "http://127.0.0.1/v1"
    call.tap(CHAT_USAGE)
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
    made = WriterSettings(path, "ab", counter.descriptor, 0, False, None, [])
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
        made = WriterSettings(path, f"{start}", counter.descriptor, 0, False, None, [])
        record((a_call(n, f"m{n}") for n in range(150 * start, 150 * (start + 1))), made)
        counter.close()
        with closing(open_traffic(path)) as traffic:
            labels = [json.loads(labels) for name, labels in traffic.totals() if name == CALLS]
        assert {one["model"] for one in labels} == {"other", *(f"m{n}" for n in range(100))}


def test_no_setting_is_in_the_list_of_processes(settings: ProxySettings, store: Store) -> None:
    """A webhook's address is its secret, and what is taken out of words are somebody's names. More
    settings than a pipe has room for get there too."""
    prices = {**PRICES, **{f"model-{n}": {"prompt": 1.0} for n in range(60_000)}}
    ours = replace(
        settings,
        record="content",
        redact=("Zaphod",),
        webhook="http://127.0.0.1:9/services/HOOK",
        budgets=(SpendLimit(Budget(100.0, "day")),),
        prices=prices,
    )
    with ProxyThread(ours) as proxy:
        (recorder,) = {id(one): one for one in proxy.proxy.recorders.values()}.values()
        proxy.ask(post(CHAT, ASK))
        until(lambda: recorder._reported > 0)
        process = recorder.process
        assert process is not None
        for name in ("cmdline", "environ"):
            seen = Path(f"/proc/{process.pid}/{name}").read_bytes()
            assert not any(word in seen for word in (b"Zaphod", b"HOOK", b"model-1"))
        process.kill()
        until(lambda: recorder.process not in (None, process))
        proxy.ask(post(CHAT, ASK))
    assert len(recorded(store)) == 2
    assert not list(store.path.parent.glob("*worker*"))


def test_no_half_of_a_key_is_on_record_where_words_are_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, own, callers = str(tmp_path / "traffic.db"), b"0wn-" + b"7" * 30, b"mine-" + b"8" * 30
    monkeypatch.setattr(record_writer.os, "nice", lambda _: 0)
    headers = [(b"Host", b"a"), (b"Api-Key", callers)]
    request = Request(b"POST", CHAT.encode(), headers, modern=True, keep_alive=True)
    call = Call("call-" + "0" * 32, 1_700_000_000_000_000, request)
    call.status = 401
    for key, take in ((callers, call.keep), (own, call.tap)):
        begin = b'{"x": "'
        take(begin + b"x" * (RECORDED - len(begin) - 20) + key + b'"}')
    counter = Counter(counter_path(path, "ab"))
    counter.increase()
    made = WriterSettings(path, "ab", counter.descriptor, 0, True, None, [])
    record([call.packed((own,))], made)
    counter.close()
    with closing(open_traffic(path)) as traffic:
        content = traffic.content(call.id)
    assert content is not None
    assert content.request.endswith("xxx" + REDACTED)
    assert content.answer.endswith("xxx" + REDACTED + CUT_OFF)


class Killed(BaseException):
    """Ends what records as a signal does: nothing of it goes on."""


@pytest.mark.parametrize("of", ["what records", "both"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_call_counts_once_for_budgets_whatever_is_killed_when(
    of: str, when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record and the ledger are two files: something may be killed between them."""
    path, ledger = str(tmp_path / "traffic.db"), str(tmp_path / "ledger.db")
    monkeypatch.setattr(record_writer.os, "nice", lambda _: 0)
    calls = [a_call(number, "m") for number in range(20)]
    counter = Counter(counter_path(path, "ab"))
    for _ in calls:
        counter.increase()
    spending = [ledger, PRICES, [], None, "d"]
    made = WriterSettings(path, "ab", counter.descriptor, 0, False, None, [], spending)
    spend = SqliteLedger.spend

    def kill(*arguments: Any) -> None:
        if when == "after":
            spend(*arguments)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(SqliteLedger, "spend", kill)
        with pytest.raises(Killed):
            record(calls, made)
    if of == "both":
        counter.close()
        counter = Counter(counter_path(path, "cd"))
        record([], made._replace(worker="cd", counter=counter.descriptor))
    else:
        record(calls, made._replace(again=len(calls)))
    counter.close()
    with closing(open_ledger(ledger)) as opened, closing(open_traffic(path)) as traffic:
        (sums,) = {round(dollars / EACH, 6) for dollars in opened.spent("").values()}
        assert (sums, traffic.lost()) == (len(calls), 0)
    assert not list(tmp_path.glob("*worker*"))


def test_what_was_spent_is_counted_once_a_ledger_can_be_written_again(tmp_path: Path) -> None:
    path, told = tmp_path / "ledger.db", list[str]()
    spending = Spending(SpendingSettings(str(path), PRICES, [], None, "d"), told.append)
    blank = CallRecord(*[None] * len(CallRecord._fields))._replace(time=1, status=200, model="m")
    one = blank._replace(prompt_tokens=100_000, completion_tokens=0, provider="http://a")
    path.mkdir()
    for number in range(3):
        spending.settle("ab", spending.owed([one._replace(id=f"call-{number}")]))
    owed = spending.owed([])
    assert len(owed) == 1, "however long it takes"
    path.rmdir()
    resumed = Spending(SpendingSettings(str(path), PRICES, [], None, "d"), told.append)
    resumed.settle("ab", owed)
    spending.settle("ab", owed)
    with closing(open_ledger(str(path))) as ledger:
        assert ledger.spent("") == {("all", "1970-01-01"): 3.0, ("library:none", "1970-01-01"): 3.0}
    assert len(told) == 1


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
        assert recorder._out, "the pipe is full"
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
