"""A run at work, seen from elsewhere: followed from its store alone, and asked to stop."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from conftest import problems
from scripted import ScriptedEndpoint, stage, teachable

import tfgrpo
from tfgrpo.learn import run as running
from tfgrpo.runs.dynamics import dynamics
from tfgrpo.runs.live_run import RunStopped, ask_to_stop, live_path, read_live, stop_path
from tfgrpo.runs.run_status import RunFigures, RunFollower, run_figures
from tfgrpo.store import InvalidOperation, Store

T = TypeVar("T")
DEADLINE = 240.0


class Gate:
    """A script that holds comparisons back until it is opened."""

    def __init__(self) -> None:
        self.open, self.asked = threading.Event(), threading.Event()

    def __call__(self, request: dict[str, Any]) -> str:
        if stage(request) == "comparison":
            self.asked.set()
            self.open.wait(DEADLINE)
        return teachable(request)


@contextmanager
def training(folder: Path, server: ScriptedEndpoint) -> Iterator[list[object]]:
    """Trains in a thread, and waits for its end; the list has what came of it, then."""
    ended: list[object] = []

    def work() -> None:
        sizes = {"epochs": 2, "batch_size": 3, "group_size": 3}
        where = {"store": folder, "config": folder / "tfgrpo.toml", "base_url": server.base_url}
        try:
            ended.append(tfgrpo.train_sync("p.jsonl", run="quick", model="m", **sizes, **where))
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield ended
    finally:
        thread.join(DEADLINE)
        assert not thread.is_alive()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "p.jsonl").write_text(problems((2, 5, 9)))
    (tmp_path / "tfgrpo.toml").write_text("[prices]\nm = { prompt = 1.0, completion = 2.0 }\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(running, "LOOK_SECONDS", 0.02)
    Store.init(tmp_path / ".tfgrpo/store.db", author="tests").close()
    return tmp_path


def until(look: Callable[[], T | None], is_there: Callable[[T], bool]) -> Any:
    """Returns the first figures of which that is true."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        found = look()
        if found is not None and is_there(found):
            return found
        time.sleep(0.01)
    raise AssertionError("it did not come to that")


def is_comparing(now: RunFigures) -> bool:
    """Whether the run waits for comparisons."""
    return now.live is not None and now.live.phase == "reflection" and now.live.in_flight > 0


PRICES = {"m": {"prompt": 1.0, "completion": 2.0}}


def test_a_run_is_followed_stopped_and_gone_on_with(folder: Path) -> None:
    gate = Gate()
    with ScriptedEndpoint(gate) as server, Store.open(folder / ".tfgrpo/store.db") as store:
        with training(folder, server) as ended:
            assert gate.asked.wait(DEADLINE), ended
            run = store.runs.get("quick")
            follower = RunFollower(store, run, PRICES)
            found = until(follower.look, is_comparing)
            (step,) = found.steps
            assert (found.state, found.steps_total, found.steps_done) == ("running", 2, 0)
            assert (step.step, step.attempts, step.groups, step.learned) == (1, 9, 3, None)
            assert 0 < found.fraction < 1
            assert step.reward is not None
            assert step.reward.low <= step.reward.mean <= step.reward.high
            assert step.mixed_share == step.mixed / 3
            assert [one.state for one in found.live.endpoints] == ["answering", "answering"]
            assert 0 < found.spent.dollars < 0.1
            path = live_path(store.runs, run)
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
            ask_to_stop(store, run, "ann\n\x1b[2J")
            assert stat.S_IMODE(os.stat(stop_path(store.runs, run)).st_mode) == 0o600
            until(
                follower.look,
                lambda now: now.live is not None and now.live.stopping,
            )
            gate.open.set()
        (error,) = ended
        assert isinstance(error, RunStopped)
        assert "tfgrpo train --resume quick" in str(error.hint)
        now = until(follower.look, lambda now: not now.is_running)
        assert (now.state, now.live) == ("interrupted", None)
        assert now.states[-1].detail == "stopped by ann \x1b[2J", "shown as text wherever it is"
        assert not path.exists()
        assert not stop_path(store.runs, run).exists()
        with pytest.raises(InvalidOperation, match="interrupted"):
            ask_to_stop(store, run, "ann")
        with training(folder, server) as ended:
            pass
        assert isinstance(ended[0], tfgrpo.TrainResult), ended
        last = until(follower.look, lambda now: now.state == "finished")
        assert follower.look() is None, "nothing has changed since"
        again = run_figures(store, run, PRICES)
        assert last == replace(again, calls_a_minute=last.calls_a_minute)
        series = {one.name: one.values for one in dynamics(store, run)}
        assert series["mean reward"] == tuple(round(s.reward.mean, 6) for s in again.steps)
        assert series["mixed groups"] == tuple(s.mixed_share for s in again.steps)
        assert series["library"] == tuple(float(s.learned.library) for s in again.steps)
        assert series["tokens a rollout"] == tuple(s.tokens_a_rollout for s in again.steps)


def test_what_a_killed_run_told_is_not_taken_for_the_present(folder: Path) -> None:
    with ScriptedEndpoint(teachable) as server, training(folder, server):
        pass
    with Store.open(folder / ".tfgrpo/store.db") as store:
        run = store.runs.get("quick")
        live_path(store.runs, run).write_text('{"time": 1, "nonsense": true}')
        assert read_live(store, run) is None
        assert run_figures(store, run, {}).live is None
        found = run_figures(store, run, {})
        assert found.spent.unknown == ("m",), "a price that nobody knows is not nothing"
        assert found.spent.dollars is None


def test_a_stop_that_is_asked_for_while_a_session_opens_is_heard_before_a_call(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while a local model loads. What a killed run left behind is no such request."""
    opening, go_on, plain = threading.Event(), threading.Event(), running.open_session

    @asynccontextmanager
    async def slow(*of: Any, **more: Any) -> AsyncIterator[Any]:
        opening.set()
        await asyncio.to_thread(go_on.wait, DEADLINE)
        async with plain(*of, **more) as session:
            yield session

    gate = Gate()
    with ScriptedEndpoint(gate) as server, Store.open(folder / ".tfgrpo/store.db") as store:
        with training(folder, server) as ended:
            assert gate.asked.wait(DEADLINE), ended
            run = store.runs.get("quick")
            ask_to_stop(store, run, "ann")
            until(lambda: read_live(store, run), lambda live: live.stopping)
            gate.open.set()
        monkeypatch.setattr(running, "open_session", slow)
        before = len(server.requests)
        with training(folder, server) as ended:
            assert opening.wait(DEADLINE), ended
            assert store.runs.state(run) == "running"
            ask_to_stop(store, run, "bob")
            go_on.set()
        assert isinstance(ended[0], RunStopped), ended
        assert len(server.requests) == before
        assert store.runs.state(run) == "interrupted"
        assert store.runs.states(run)[-1].detail == "stopped by bob"
        assert not stop_path(store.runs, run).exists()
        stop_path(store.runs, run).write_text("stopped by somebody long ago")
        with training(folder, server) as ended:
            pass
        assert isinstance(ended[0], tfgrpo.TrainResult), ended
