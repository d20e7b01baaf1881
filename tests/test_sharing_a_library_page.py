"""Every command of docs/sharing-a-library.md, in its order, with two people and one model."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from pathlib import Path
from typing import Any

from conftest import ROOT, Cli, environment, quick_path
from scripted import ScriptedEndpoint, stage, write_problems
from store_helpers import broken
from test_card import SIGNS, new_key

from tfgrpo.store import Store

PAGE = (ROOT / "docs/sharing-a-library.md").read_text()
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S)
HELPS, NOTHING = "Add the carry last.", "Schreib ohne Leerzeichen."


def answered(request: dict[str, Any]) -> str:
    """One lesson helps."""
    assert stage(request) == "rollout", "what is proved and merged asks for attempts alone"
    user, shown = request["messages"][-1]["content"], request["messages"][0]["content"]
    a, b = (int(word) for word in user.rstrip("?").split() if word.isdigit())
    coin = hashlib.sha256(f"{user}/{request.get('seed')}".encode()).digest()[0]
    return f"\\boxed{{{a + b + (coin < (240 if HELPS in shown else 60))}}}"


@SIGNS
def test_the_page_on_sharing_a_library_runs_as_it_stands(tmp_path: Path, cli: Cli) -> None:
    key = new_key(tmp_path)
    library, git = tmp_path / "library", tmp_path / "gitconfig"
    git.write_text(f'[user]\n\tsigningkey = "{key}"\n')
    there = ("--store", str(library / ".tfgrpo/store.db"))
    for words in (("init",), ("add", HELPS), ("add", NOTHING)):
        cli(*there, *words)
    write_problems(tmp_path / "problems.jsonl", 16)
    with ScriptedEndpoint(answered) as server:
        done = subprocess.run(
            ["sh", "-ec", "".join(BLOCKS)],
            cwd=tmp_path,
            env=environment(
                PATH=quick_path(), GIT_CONFIG_GLOBAL=str(git), OPENAI_BASE_URL=server.base_url
            ),
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, (done.stdout, done.stderr)
        asked = len(server.requests)
        proof = ("prove", "card.md", "--data", "problems.jsonl", "--model", "mine", "--json")
        address = {"OPENAI_BASE_URL": server.base_url}
        again = json.loads(cli("-C", "mine", *proof, "--budget", "500000tok", env=address).stdout)
        assert len(server.requests) == asked, "what is on record is not asked again"
    assert again["signature"]["state"] == "bad", "nobody is allowed to sign there"
    assert "to card.md as card, signed" in done.stdout
    assert "nobody is allowed" in done.stdout, "prove says what the signature is worth"
    for name in ("library", "mine", "far"):
        assert broken(tmp_path / name / ".tfgrpo/store.db") == []
    with Store.open(library) as store:
        assert [e.text for e in store.library("proved/card")] == [HELPS]
        assert "Say when the data cannot decide." in {e.text for e in store.library("main")}
    with Store.open(tmp_path / "mine") as store:
        assert "measured" in store.tip("main").meta
    (library / ".tfgrpo/allowed_signers").write_text(f"ann {key.with_suffix('.pub').read_text()}")
    cli(*there, "tag", "--verify", "released")
    assert '"good"' in cli(*there, "import", "library/card.md", "--json").stdout


def test_nothing_is_pushed_into_a_bundle(cli: Cli, tmp_path: Path) -> None:
    cli("init")
    cli("add", HELPS)
    cli("bundle", "create", "library.bundle")
    cli("clone", "library.bundle", "mine")
    there = ("--store", str(tmp_path / "mine/.tfgrpo/store.db"))
    refused = cli(*there, "push", "origin", "main", ok=False)
    assert "nothing is pushed into it" in refused.stderr
    assert "tfgrpo bundle create" in refused.stderr
