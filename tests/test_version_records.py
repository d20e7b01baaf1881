"""What is read of a version's record, which a stranger's store may fill with anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from test_evidence_words import STRANGE
from ui_demo import RUN, add_attempts
from ui_rig import Visitor

from tfgrpo.cli.main import tfgrpo
from tfgrpo.learn.policies.trial import on_trial
from tfgrpo.store.errors import SettingsError
from tfgrpo.store.records import Operation
from tfgrpo.store.store import Store

GATE = {"verdict": "accepted", "difference": [0.1, 0.0, 0.2], "before": 0.3, "after": 0.4}
USUAL = {
    "run": "shop",
    "step": 0,
    "epoch": 0,
    "stats": {"mean_reward": 0.5, "mixed": 1, "problems": 2, "rollouts": 4},
    "gain": {"gain": [0.1, 0.0, 0.2], "problems": 2},
    "refused": [{"text": "a", "problem": "p", "reason": "b"}],
    "failed": [{"stage": "lesson", "problem": "p", "reason": "b"}],
    "repaired": 1,
    "gate": {**GATE, "difference_is": "inconclusive", "problems_needed": 9, "samples": 2},
    "rendering": {"domain": "qa"},
    "order_conflicts": ["zjheyzpqschn"],
    "measured": {"of": ["a", "b"]},
    "proof": {"of": ["a"], "model": "m", "attempts": 1},
    "import": {"version": "a"},
    "trial": {"versions": ["a"]},
    "base": 1,
}
INNER = {name: value for name, value in USUAL.items() if isinstance(value, dict)}
COMMANDS = (
    *("log", "log -p", "log --run shop", "show v1", "runs", "runs shop", "plot shop", "status"),
    *("rollouts shop", "cost", "blame", "export --format card", "export --format skill", "diff v0"),
    *("log --json", "show v1 --json", "runs shop --json", "status --json"),
)
PAGES = (
    *("/", "/history", "/version/v1", "/runs", "/run/shop", "/attempts/shop", "/library"),
    "/group/shop?step=1&problem=hire-1",
)


def strange_records() -> dict[str, dict[str, object]]:
    records: dict[str, dict[str, object]] = {}
    for name in USUAL:
        for number, value in enumerate((*STRANGE, [{"a": 1}], [None], -1, 1e300, "9")):
            records[f"{name} {number}"] = {**USUAL, name: value}
    for name, inside in INNER.items():
        for key in inside:
            for number, value in enumerate(STRANGE):
                records[f"{name} {key} {number}"] = {**USUAL, name: {**inside, key: value}}
            rest = {other: value for other, value in inside.items() if other != key}
            records[f"{name} {key} gone"] = {**USUAL, name: rest}
    return records


@pytest.mark.parametrize("value", [*STRANGE, {"versions": 7}, {"versions": [7]}])
def test_a_run_that_names_no_trial_has_none(value: object, tmp_path: Path) -> None:
    with Store.init(tmp_path / "store.db", author="stranger") as store:
        version = store.commit("main", [], message="m", meta={"trial": value})
        run = store.runs.create("shop", "5" * 32, "main", version.number, RUN, "ana")
        with pytest.raises(SettingsError, match="nothing is on trial"):
            on_trial(store, run)


@pytest.mark.parametrize("name", ["usual", *USUAL])
def test_commands_and_pages_read_what_they_can(name: str, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    chosen = {"usual": USUAL}
    if name != "usual":
        chosen = {k: v for k, v in strange_records().items() if k.split()[0] == name}
    with Store.init(path, author="stranger") as store:
        store.commit("main", [Operation("ADD", text="a")], message="first")
        run = store.runs.create("shop", "5" * 32, "main", 1, RUN, "ana")
        add_attempts(store, run, 0, [experience.id for experience in store.library()])
        for number, meta in enumerate(chosen.values()):
            adds = [Operation("ADD", text=f"text {number}")]
            version = store.commit("main", adds, message="m", meta=meta)
            store.create_tag(f"shop/step_{number + 1}", version.name)
        versions = store.head.version.number
    refused = []
    for words in (*COMMANDS, *(f"show v{number + 2}" for number in range(len(chosen)))):
        done = CliRunner().invoke(tfgrpo, ["--store", str(path), *words.split()])
        if done.exit_code:
            refused.append((words, repr(done.exception)))
    assert not refused
    visitor = Visitor(path)
    for page in (*PAGES, *(f"/version/v{number}" for number in range(1, versions + 1))):
        visitor.get(page)
