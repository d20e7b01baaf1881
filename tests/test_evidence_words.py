"""What is said of an event's evidence: who taught it, and what it was measured to do by then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tfgrpo.display.event_lines import evidence_words
from tfgrpo.store.records import Operation
from tfgrpo.store.store import Store

EFFECT = [0.348, 0.104, 0.593]


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        ({"problem": "p"}, "from p"),
        (
            {"problem": "p", "effect": EFFECT, "attempts": [270, 28]},
            "from p, +0.348 [+0.104, +0.593] by 270 attempts with it and 28 without",
        ),
        (
            {"kind": "example", "effect": EFFECT, "attempts": [1, 2]},
            "+0.348 [+0.104, +0.593] by 1 attempt with the examples and 2 without",
        ),
        (
            {"effect": EFFECT, "pairs": 48, "attempts": [0, 0]},
            "+0.348 [+0.104, +0.593] by 48 pairs of attempts",
        ),
        ({"effect": 0.3, "attempts": [1, 2]}, ""),
        ({"effect": EFFECT}, ""),
    ],
)
def test_an_event_says_by_which_effect_it_was_decided(
    evidence: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with Store.init(tmp_path / "store.db", author="somebody") as store:
        adds = [Operation("ADD", text="a", evidence=evidence)]
        version = store.commit("main", adds, message="m")
        (event,) = store.events(version)
        assert evidence_words(event) == words
