"""Learning dynamics: figures that come from the record, draw in a terminal and on a page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from conftest import Cli
from desk import made, steps
from scripted import ScriptedEndpoint, teachable

from tfgrpo.domains.verifier import Verifier
from tfgrpo.runs.dynamics import Series, draw, dynamics, page
from tfgrpo.store import Store


@pytest.fixture
def trained(tmp_path: Path, verifier: Verifier) -> Path:
    desk = made(tmp_path, verifier, epochs=2, count=6)
    desk.prepare()
    with ScriptedEndpoint(teachable) as server:
        desk.train(server)
    return desk.path


def test_figures_are_those_of_the_versions_and_the_journal(trained: Path) -> None:
    with Store.open(trained) as store:
        run = store.runs.get("run")
        found = {one.name: one.values for one in dynamics(store, run)}
        versions = steps(trained)
        assert len(versions) == 4
        assert found["mean reward"] == tuple(v.meta["stats"]["mean_reward"] for v in versions)
        assert found["mixed groups"][0] == versions[0].meta["stats"]["mixed"] / 3
        assert found["library"] == tuple(float(len(store.library(v))) for v in versions)
        for op in ("ADD", "KEEP"):
            assert found[op] == tuple(float(store.counts(v).get(op, 0)) for v in versions)
        tokens = sum(
            s.usage.completion_tokens for s in store.runs.spent(run) if s.stage == "rollout"
        )
        assert sum(found["tokens a rollout"]) * 9 == pytest.approx(tokens)  # type: ignore[arg-type]
        assert "tool calls" not in found, "there were none"


def test_bars_show_the_course_and_fit_the_terminal() -> None:
    series = [
        Series("mean reward", (0.0, 0.25, 0.5, 1.0)),
        Series("library", tuple(float(n) for n in range(500))),
        Series("tool calls", (None, 3.0)),
        Series("nothing", (None, None)),
    ]
    lines = list(draw(series, 80))
    assert len(lines) == 3
    assert lines[0] == "mean reward  ▁▃▅█  0 → 1  (0 to 1)"
    assert "·█" in lines[2]
    assert max(map(len, lines)) <= 80


def test_the_page_is_whole_in_itself_and_escapes_what_it_shows(trained: Path) -> None:
    with Store.open(trained) as store:
        run = store.runs.get("run")
        text = page(run._replace(name="<b>&"), dynamics(store, run))
    assert "&lt;b&gt;&amp;" in text
    assert "<b>&" not in text
    assert not re.search(r"src=|href=|<script|@import|url\(", text)
    for svg in re.findall(r"<svg.*?</svg>", text):
        ElementTree.fromstring(svg)


def test_the_verb_draws_writes_and_tells(trained: Path, cli: Cli, tmp_path: Path) -> None:
    store = ("--store", str(trained))
    assert "run run: 4 steps" in cli(*store, "plot", "run").stdout
    assert json.loads(cli(*store, "plot", "--json").stdout)["run"] == "run"
    page = tmp_path / "run.html"
    assert cli(*store, "plot", "-o", str(page)).stdout == f"wrote {page}\n"
    assert page.read_text().startswith("<!doctype html>")


def test_without_a_run_there_is_nothing_to_draw(cli: Cli) -> None:
    cli("init")
    done = cli("plot", ok=False)
    assert done.returncode == 1
    assert "there is no run to plot" in done.stderr
