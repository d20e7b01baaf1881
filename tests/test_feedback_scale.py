"""A score is on the scale of its metric, at the wire, in the terminal and on the page; and what
somebody said by mistake is taken back."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from ui_demo import BEGIN, demo
from ui_rig import OTHER, Visitor

from tfgrpo.cli.main import tfgrpo
from tfgrpo.improvement.exchange import Exchange, of_traffic
from tfgrpo.store import Store
from tfgrpo.store.activity.decisions import decisions
from tfgrpo.store.activity.traffic import (
    CallFilter,
    Feedback,
    FeedbackRefused,
    Scale,
    checked_feedback,
    traffic_path,
)
from tfgrpo.store.opening import open_traffic

CALL = "call-000000000001"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return demo(tmp_path, now=BEGIN)


@pytest.mark.parametrize("score", [1e9, 1.01, -0.01, 100])
def test_a_score_off_its_scale_is_refused_everywhere(score: float, store: Path) -> None:
    with pytest.raises(FeedbackRefused, match="is 0 to 1"):
        checked_feedback(CALL, {"score": score}, author="a", time=0, scales={})
    page = Visitor(store).post(f"/call/{CALL}", {"score": score, "comment": "Mine."}, status=400)
    assert "feedback without a label is 0 to 1" in page
    assert 'value="Mine."' in page, "what was written is still there"
    done = CliRunner().invoke(tfgrpo, ["--store", str(store), "feedback", CALL, f"--score={score}"])
    assert isinstance(done.exception, FeedbackRefused)
    with closing(open_traffic(traffic_path(store))) as traffic:
        assert traffic.feedback(CALL) == []


def test_a_label_has_a_scale_of_its_own(store: Path) -> None:
    run = ["--store", str(store), "feedback"]
    for wrong in ("stars", "stars=5..1", "stars=a..b", "=1..5", "stars=1..inf"):
        done = CliRunner().invoke(tfgrpo, [*run, "--scale", wrong])
        assert done.exit_code != 0, wrong
    done = CliRunner().invoke(tfgrpo, [*run, "--scale", "stars=1..5"])
    assert done.output == "scores of stars are from 1 to 5\n"
    visitor = Visitor(store)
    visitor.post(f"/call/{CALL}", {"score": "4", "label": "stars"})
    for score, label, scale in (("0", "stars", "1 to 5"), ("4", "tone", "0 to 1")):
        page = visitor.post(f"/call/{CALL}", {"score": score, "label": label}, status=400)
        assert f"is {scale}" in page
    assert "stars 1 to 5" in visitor.get(f"/call/{CALL}")
    assert CliRunner().invoke(tfgrpo, [*run, CALL, "--score=1"]).exit_code == 0
    with closing(open_traffic(traffic_path(store))) as traffic:
        assert traffic.scales() == {"stars": Scale(1, 5)}
        sums = {name: value for (name, _), value in traffic.totals().items()}
        assert sums["tfgrpo_feedback_score_sum"] == 0.75 + 1, "each from 0 to 1"


def test_a_calls_score_is_the_mean_of_places_on_scales(store: Path) -> None:
    with closing(open_traffic(traffic_path(store))) as traffic:
        for label, scale in (("stars", Scale(1, 5)), ("", Scale(-1, 1))):
            traffic.set_scale(label, scale)
        given = [(5.0, "stars"), (2.0, "stars"), (0.0, None), (0.25, "tone"), (None, "odd")]
        for score, label in given:
            traffic.add_feedback(Feedback(CALL, 1, "ann", score, label))
        mean = (1 + 0.25 + 0.5 + 0.25) / 4
        measured = [one.score for one in traffic.measured(0) if one.score is not None]
        assert mean in measured
        assert all(0 <= score <= 1 for score in measured)
        listed = {one.call.id: one.score for one in traffic.calls(CallFilter(below=0.51), 999)}
        assert listed[CALL] == mean
        assert CALL not in {one.call.id for one in traffic.calls(CallFilter(below=0.5), 999)}
        found = traffic.search(CallFilter(), "odd", 9).calls
        assert [one.score for one in found if one.call.id == CALL] == [mean]
        exchanges = [one for one in of_traffic(traffic, CallFilter()) if type(one) is Exchange]
        assert [one.score for one in exchanges if one.id == CALL] == [mean]
        traffic.set_scale("stars", Scale(3, 4))
        listed = {one.call.id: one.score for one in traffic.calls(CallFilter(), 999)}
        assert listed[CALL] == (1 + 0 + 0.5 + 0.25) / 4, "what is off its scale by now is at an end"


def test_feedback_is_taken_back_on_record_and_no_sum_falls(store: Path) -> None:
    visitor = Visitor(store, token=OTHER)
    with closing(open_traffic(traffic_path(store))) as traffic:
        for score in ("1", "0.25"):
            visitor.post(f"/call/{CALL}", {"score": score})
        before = traffic.totals()
        traffic.set_scale("", Scale(0, 5))
        page = visitor.get(f"/call/{CALL}")  # without the line that says what was just done
        which = re.findall(r'name="which" value="([^"]+)"', page)
        visitor.post(f"/call/{CALL}/withdraw", {"which": which[1]})
        assert [one.score for one in traffic.feedback(CALL)] == [1.0]
        assert "before" in visitor.post(f"/call/{CALL}/withdraw", {"which": which[1]})
        visitor.post(f"/call/{CALL}/withdraw", {"which": which[0]})
        assert traffic.feedback(CALL) == []
        assert traffic.totals() == before, "what Prometheus reads never falls"
        assert CALL not in {one.call.id for one in traffic.calls(CallFilter(below=9), 999)}
        assert CALL not in {
            one.call.id for one in traffic.calls(CallFilter(with_feedback=True), 99)
        }
    with Store.open(store) as opened:
        told = [one for one in decisions(opened) if one.kind == "feedback"]
        assert [one.content["score"] for one in told] == [0.25, 1]
        assert {one.author for one in told} == {"other"}
    assert "take back" in visitor.get("/production")
