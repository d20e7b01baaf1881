"""Where the events of a history lie is the same by lanes and merges as version by version."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from store_helpers import add

from tfgrpo.store import Store
from tfgrpo.store.history.merge import merge, side
from tfgrpo.store.history.walks import _by_version, whole_history


@pytest.mark.parametrize("seed", range(6))
def test_lanes_and_merges_give_what_versions_give(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with Store.init(tmp_path / "store.db", author="t") as store:
        branches = ["main"]
        for number in range(60):
            branch = chance.choice(branches)
            act = chance.random()
            if act < 0.15 and len(branches) < 5:
                branches.append(f"b{number}")
                at = chance.choice([branch, f"v{chance.randrange(store.port.last_version() + 1)}"])
                store.create_branch(branches[-1], at)
            elif act < 0.35 and len(branches) > 1:
                other = chance.choice([name for name in branches if name != branch])
                merge(store, branch, store.tip(other), message="m", resolve=side("ours"))
            elif act < 0.45:
                store.commit(branch, [], message="nothing")
            else:
                store.commit(branch, [add(f"rule {number}.{n}") for n in range(2)], message="m")
        merged = 0
        for number in range(store.port.last_version() + 1):
            version = store.version(number)
            merged += version.merged is not None
            ours, plain = whole_history(store.port, version), _by_version(store.port, version)
            assert ours == plain
        assert merged > 2
