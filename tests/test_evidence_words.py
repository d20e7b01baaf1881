"""What is said of an event's evidence: who taught it, and what it was measured to do by then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from ui_rig import Visitor

from tfgrpo.cli.main import tfgrpo
from tfgrpo.display.event_lines import evidence_words
from tfgrpo.store.records import Event, Operation
from tfgrpo.store.store import Store

EFFECT = [0.348, 0.104, 0.593]
READ = (
    *("problem", "problems", "rollouts", "run", "step", "calls", "verdict", "model", "source"),
    *("effect", "attempts", "pairs", "chance", "kind", "candidate", "version"),
)
STRANGE = (None, True, 10**400, "x", [], [1], ["a", "b", "c"], [[1]], {"a": [1]})
LEAF = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
ANYTHING = st.recursive(
    LEAF,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


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


@settings(max_examples=400, deadline=None)
@given(st.dictionaries(st.sampled_from(READ), ANYTHING, min_size=1))
def test_evidence_of_strangers_is_read_as_far_as_it_can_be(evidence: dict[str, Any]) -> None:
    """A bundle or an import may hold anything there; what cannot be read is left out."""
    evidence_words(Event(1, 1, "ADD", "e" * 12, "a", None, evidence, None, False))


def test_commands_and_pages_show_what_a_stranger_recorded(tmp_path: Path) -> None:
    with Store.init(tmp_path / "store.db", author="stranger") as store:
        usual = {"run": "r", "step": 0, "problem": "p", "rollouts": [[0, 1.0]]}
        adds = [
            Operation("ADD", text=f"{name} {number}", evidence={**usual, name: value})
            for name in READ
            for number, value in enumerate(STRANGE)
        ]
        store.commit("main", adds, message="m")
        ids = [experience.id for experience in store.library()]
    for words in ("log -p", "show v1", "show G0", "blame", "export --format card"):
        done = CliRunner().invoke(tfgrpo, ["--store", str(tmp_path / "store.db"), *words.split()])
        assert done.exit_code == 0, (words, done.exception)
    visitor = Visitor(tmp_path / "store.db")
    for page in ("/", "/library", "/version/v1", *(f"/experience/{id}" for id in ids)):
        visitor.get(page)
