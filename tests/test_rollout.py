"""`tfgrpo rollout`: from a proposal to a promotion, or back, as one act."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import TFGRPO, environment
from providers import OK, Provider, ProxyThread, post
from test_experiment import ASK, CHAT, ask, provider, run, say, settings, store  # noqa: F401
from test_tested_proposals import proposed  # noqa: F401
from waiting import until

from tfgrpo.cli.main import tfgrpo
from tfgrpo.improvement.proposal_candidates import start_trial
from tfgrpo.improvement.proposals import get_proposal
from tfgrpo.production.experiment import ExperimentPlan, experiment, experiments, start, stop
from tfgrpo.proxy.proxy_settings import ProxySettings
from tfgrpo.store import Store

NAME = "rollout-p1"


@pytest.mark.parametrize("better", [True, False])
def test_a_proposal_goes_out_and_stays_or_goes_back(
    better: bool,
    settings: ProxySettings,  # noqa: F811
    proposed: Store,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tfgrpo.production.experiment_end.LOOK", 0.05)
    over = threading.Event()

    def application() -> None:
        """Makes calls until it is over; the candidate's answers are right, or wrong."""
        with Store.open(proposed.path) as own, ProxyThread(settings) as proxy:
            until(lambda: over.is_set() or experiments(own))
            for user in range(1000):
                if over.is_set():
                    return
                call, arm = ask(proxy, f"u{user}")
                if arm is not None:
                    say(proxy, call, (arm == f"{NAME}/candidate") == better)

    thread = threading.Thread(target=application)
    thread.start()
    try:
        with Provider(OK) as hook:
            arguments = ["rollout", "p1", "--share", "50%", "--guard", "errors,score"]
            done = CliRunner().invoke(
                tfgrpo,
                ["--store", str(proposed.path), *arguments, "--webhook", f"{hook.url}/secret"],
            )
            told = [json.loads(got.body) for got in hook.received]
    finally:
        over.set()
        thread.join(120)
    state = "promoted" if better else "rolled back"
    assert done.exit_code == (0 if better else 1), done.output
    assert f"{NAME} was {state}: auto: the candidate is " in done.output
    assert [(one["event"], one["name"], one["state"]) for one in told] == [
        ("experiment", NAME, state)
    ]
    assert experiment(proposed, NAME).state == state
    assert get_proposal(proposed, "p1").state == ("accepted" if better else "open")


def test_a_time_that_is_over_ends_it_with_nothing_decided(
    proposed: Store,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tfgrpo.production.experiment_end.LOOK", 0.01)
    monkeypatch.setattr("tfgrpo.cli.experiment._seconds", lambda until: 0.05)
    at = str(proposed.path)
    for name in (NAME, f"{NAME}-2"):
        done = CliRunner().invoke(tfgrpo, ["--store", at, "rollout", "p1", "--until", "1h"])
        assert done.exit_code == 1
        assert "nothing was decided in time" in done.output
        assert experiment(proposed, name).state == "stopped"
    done = CliRunner().invoke(tfgrpo, ["--store", at, "rollout", "main"])
    assert "--on" in done.output


def test_what_is_stopped_as_it_begins_is_said_to_go_on(
    proposed: Store,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stopped(*given: Any, **more: Any) -> None:
        start_trial(*given, **more)
        raise KeyboardInterrupt

    monkeypatch.setattr("tfgrpo.improvement.proposal_candidates.start_trial", stopped)
    done = CliRunner().invoke(tfgrpo, ["--store", str(proposed.path), "rollout", "p1"])
    assert done.exit_code
    assert f"{NAME} goes on: `tfgrpo experiment status {NAME}`" in done.output
    assert experiment(proposed, NAME).state == "running"


def test_it_goes_on_in_the_proxys_care_which_tells_too(
    settings: ProxySettings,  # noqa: F811
    store: Store,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tfgrpo.proxy.running_experiments.LOOK", 0.1)
    monkeypatch.setattr("tfgrpo.proxy.running_experiments.REST", 0.0)
    process = subprocess.Popen(
        [TFGRPO, "--store", str(store.path), "rollout", "main", "--on", "prod", "--share", "50%"],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: experiments(store))
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode
    assert "goes on" in errors
    with Provider(OK) as hook:
        told = f"{hook.url}/secret"
        with ProxyThread(replace(settings, webhook=told)) as proxy:
            for user in range(100):
                call, arm = ask(proxy, f"u{user}")
                if arm is None:
                    break
                say(proxy, call, arm == "rollout-main/candidate")
            until(lambda: hook.received, 120)
        assert json.loads(hook.received[0].body)["state"] == "promoted"


def test_an_experiment_is_looked_at_by_tag(
    settings: ProxySettings,  # noqa: F811
    store: Store,  # noqa: F811
) -> None:
    start(store, "e", ("prod", "main"), 0.5, ExperimentPlan(guards=()))
    with ProxyThread(settings) as proxy:
        for user in range(30):
            team = b"x-tfgrpo-tags: team=" + (b"blue" if user % 3 else b"red")
            who = f"x-tfgrpo-subject: u{user}".encode()
            got = proxy.ask(post(CHAT, ASK, who, team))
            call = got.partition(b"X-Tfgrpo-Call: ")[2].split()[0].decode()
            say(proxy, call, 1)
    sizes = {}
    for tag in ((), ("--tag", "team=red"), ("--tag", "team=blue"), ("--tag", "team=none")):
        found = json.loads(run(store, "experiment", "status", "e", *tag, "--json"))
        sizes[tag[-1:]] = sum(found["evidence"]["subjects"].values())
    assert list(sizes.values()) == [30, 10, 20, 0]
    stop(store, "e")
