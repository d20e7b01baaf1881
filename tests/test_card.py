"""A card says what a library is, what it does and whose it is, and a change anywhere is told."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, one_line_error
from scripted import ScriptedEndpoint, restless, write_problems

from tfgrpo import interchange
from tfgrpo.interchange import UnreadableLibrary
from tfgrpo.interchange.formats.card import FENCE, MARK, _rendered
from tfgrpo.interchange.incoming_versions import bring_in
from tfgrpo.rendering.experience_texts import example_text
from tfgrpo.store import Operation, Store

EVIDENCE = {
    "run": "bills",
    "model": "local:small",
    "effect": [0.31, 0.12, 0.5],
    "chance": 0.98,
    "attempts": [40, 41],
}


@pytest.fixture
def card(tmp_path: Path) -> Path:
    with Store.init(tmp_path / "theirs/.tfgrpo/store.db", author="ann") as store:
        operations = [
            Operation("ADD", None, "Count both days.\nOf a hire | <!-- all -->", None, EVIDENCE),
            Operation("ADD", None, "Round up."),
        ]
        store.commit("main", operations, message="m", meta={"run": "bills"})
        store.create_branch("shared", "v0")
        path = tmp_path / "card.md"
        interchange.save(store, path, "main", "card", name="Bills", licence="CC-BY-4.0")
    return path


def test_a_card_is_for_people_and_comes_back_whole(card: Path, tmp_path: Path) -> None:
    page = card.read_text()
    for words in ("# Bills", "CC-BY-4.0", "+0.310", "+0.120 to +0.500", "40, 41", "local:small"):
        assert words in page
    document = interchange.read(card)
    assert document.format == "card"
    with (
        Store.open(tmp_path / "theirs") as theirs,
        Store.init(tmp_path / "mine/.tfgrpo/store.db", author="bob") as mine,
    ):
        (version,) = bring_in(mine, document, "main").versions
        assert mine.library("main") == theirs.library("main"), "texts and ids"
        assert version.meta["import"]["card"]["version"] == theirs.tip("main").digest.hex()
        assert version.meta["import"]["card"]["licence"] == "CC-BY-4.0"
        first, second = mine.events(version)
        assert (first.evidence or {})["claimed"]["effect"] == EVIDENCE["effect"]
        assert "claimed" not in (second.evidence or {})
        assert bring_in(mine, document, "main").versions == ()


def test_a_change_anywhere_in_a_card_is_told(card: Path) -> None:
    lines = card.read_text().split("\n")
    told = 0
    for number, line in enumerate(lines):
        for changed in {line[:-1], line + ".", line.swapcase()} - {line}:
            if line == MARK:
                continue
            card.write_text("\n".join([*lines[:number], changed, *lines[number + 1 :]]))
            with pytest.raises(UnreadableLibrary, match="card"):
                interchange.read(card, "card")
            told += 1
    assert told > 50
    card.write_text("\n".join(lines))
    assert interchange.read(card).format == "card"


PROBLEMS = [
    {"problem": "A van is hired on Friday.\nWhat is owed?", "answer": "40 → 45 euros"},
    {"problem": 'Which road → which town | "the bridge"?', "answer": "a_harbour_town"},
    {"problem": "Wie viele <b>Rechnungen</b> sind offen?", "answer": "siebzehn Stück"},
]


def test_no_problem_of_the_data_is_on_a_card(cli: Cli, tmp_path: Path) -> None:
    rows = [example_text(one["problem"], one["answer"]) for one in PROBLEMS]
    with Store.init(tmp_path, author="ann") as store:
        texts = ["Count both days.", *rows, "Say why."]
        store.commit(
            "main", [Operation("ADD", None, t, None, EVIDENCE) for t in texts], message="m"
        )
        whole = store.library("main")
    done = cli("export", "--format", "card", "-o", "card.md")
    assert "3 examples" in done.stdout, "the command says what is not there"
    assert "--with-examples" in done.stdout
    page = (tmp_path / "card.md").read_text()
    bare = page.replace("→", "->").replace("&lt;", "<").replace('\\"', '"')
    for one in PROBLEMS:
        for part in (*one["problem"].split("\n"), one["answer"]):
            assert part.replace("→", "->") not in bare
    assert "| examples | 3 left out: each is a problem and its answer |" in page
    piped = cli("export", "--format", "card")
    assert (piped.stdout, "3 examples" in piped.stderr) == (page, True)
    read = interchange.read(tmp_path / "card.md")
    assert [item.text for item in read.items] == ["Count both days.", "Say why."]
    assert read.meta["card"]["examples_left_out"] == 3
    (tmp_path / "card.md").write_text(page.replace("3 left out", "0 left out"))
    one_line_error(cli("import", "card.md", ok=False), "changed after it was written")
    kept = cli("export", "--format", "card", "-o", "kept.md", "--with-examples")
    assert "left out" not in kept.stdout + (tmp_path / "kept.md").read_text()
    read = interchange.read(tmp_path / "kept.md")
    assert [(item.id, item.text) for item in read.items] == [(e.id, e.text) for e in whole]
    assert cli("export", "--format", "md").stderr == ""


def test_a_card_has_the_models_and_the_money_of_its_runs(cli: Cli, tmp_path: Path) -> None:
    """Money where each price is known, at what [prices] says."""
    cli("init")
    with ScriptedEndpoint(restless) as server:
        write_problems(tmp_path / "problems.jsonl", 3)
        models = ("--model", "small", "--reflection-model", "large")
        cli("train", "problems.jsonl", *models, "--base-url", server.base_url, "--epochs", "1")
    assert server.stages["comparison"], "both models were asked"

    def card() -> dict[str, Any]:
        cli("export", "--format", "card", "-o", "card.md")
        interchange.read(tmp_path / "card.md")
        page = (tmp_path / "card.md").read_text()
        block = dict(json.loads(block_of(page)))
        assert ("| cost |" in page) == ("dollars" in block)
        return block

    assert set(card()["models"]) == {"small", "large"}
    assert "dollars" not in card(), "no price is known"
    price = "{prompt = 1000.0, completion = 1000.0}"
    (tmp_path / "tfgrpo.toml").write_text(f"[prices]\nsmall = {price}\n")
    assert "dollars" not in card(), "one is not known"
    (tmp_path / "tfgrpo.toml").write_text(f"[prices]\nsmall = {price}\nlarge = {price}\n")
    assert card()["dollars"] == pytest.approx(card()["tokens"] / 1000)
    assert card()["calls"] == len(server.requests)


def block_of(page: str) -> str:
    """The JSON of a card."""
    return page.split(FENCE + "\n")[1].split("\n")[0]


@pytest.mark.parametrize(
    "block", ["", "{}", "[]", '{"experiences": 3}', "[" * 9000, '{"a": "\x00"']
)
def test_a_block_that_is_none_is_an_error_with_a_hint(card: Path, block: str) -> None:
    head = card.read_text().partition(FENCE)[0]
    card.write_text(f"{head}{FENCE}\n{block}\n~~~\n")
    with pytest.raises(UnreadableLibrary) as refused:
        interchange.read(card)
    assert refused.value.hint


def test_an_effect_that_a_merge_brought_over_is_on_the_card(card: Path, tmp_path: Path) -> None:
    from tfgrpo.store.history.merge import merge

    with Store.open(tmp_path / "theirs") as store:
        store.commit("shared", [Operation("ADD", None, "Say why.")], message="m")
        merge(store, "shared", store.tip("main"), message="both")
        page = "".join(interchange.export(store, "shared", "card"))
    assert "+0.310" in page
    assert "Say why." in page
    assert "none was named" in page


def new_key(folder: Path) -> Path:
    """A key to sign with; its public half lies beside it."""
    key = folder / "id"
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)]
    subprocess.run(command, check=True)
    return key


SIGNS = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="there is no ssh-keygen here")


@SIGNS
def test_a_card_is_signed_wherever_a_key_is_named(cli: Cli, tmp_path: Path) -> None:
    key, settings = new_key(tmp_path), tmp_path / "tfgrpo.toml"
    cli("init")
    cli("add", "Count both days.")
    (tmp_path / ".tfgrpo/allowed_signers").write_text(f"ann {key.with_suffix('.pub').read_text()}")

    def exported(revision: str, env: dict[str, str] | None = None) -> str:
        done = cli("export", revision, "--format", "card", "-o", "card.md", env=env)
        state = json.loads(cli("import", "card.md", "--dry-run", "--json").stdout)["signature"]
        assert ("signed" in done.stdout) == (state["state"] == "good")
        return str(state["state"])

    assert exported("main") == "none"
    settings.write_text(f'[commit]\nkey = "{key}"\n')
    assert exported("main") == "good", "a key that is named for tags signs a card"
    settings.unlink()
    git = tmp_path / "gitconfig"
    git.write_text(f'[user]\n\tsigningkey = "{key}"\n')
    known = {"GIT_CONFIG_GLOBAL": str(git)}
    assert exported("main", known) == "none", "git's key is for git"
    cli("tag", "-s", "released", env=known)
    for revision in ("released", "main"):
        assert exported(revision, known) == "good", "until it signs a tag here"
    assert exported("released") == "none", "there is no key any more, and a card all the same"
    cli("clone", ".", "theirs")
    stranger = {"TFGRPO_AUTHOR": "bob", **known}
    there = ("--store", str(tmp_path / "theirs/.tfgrpo/store.db"))
    cli(*there, "export", "released", "--format", "card", "-o", "card.md", env=stranger)
    state = json.loads(cli("import", "card.md", "--json").stdout)["signature"]
    assert state == {"state": "none", "by": None, "why": "no signature"}


@SIGNS
def test_a_signed_card_says_whose_it_is(cli: Cli, tmp_path: Path) -> None:
    new_key(tmp_path)
    cli("init")
    (tmp_path / "tfgrpo.toml").write_text(f'[commit]\nsign = true\nkey = "{tmp_path / "id"}"\n')
    allowed = f"ann@example.org {(tmp_path / 'id.pub').read_text()}"
    cli("add", "Count both days.")
    cli("export", "--format", "card", "-o", "card.md", "--licence", "MIT")
    (tmp_path / "tfgrpo.toml").unlink()
    assert "nobody is allowed" in cli("import", "card.md", "--dry-run").stdout
    (tmp_path / ".tfgrpo/allowed_signers").write_text(allowed)
    assert "card.md: signed by ann@example.org" in cli("import", "card.md").stdout
    cli("export", "--format", "card", "-o", "unsigned.md")
    assert "no signature" in cli("import", "unsigned.md").stdout
    page = (tmp_path / "card.md").read_text()
    block = json.loads(block_of(page))
    forged = "".join(_rendered({**block, "licence": "none"}))
    (tmp_path / "card.md").write_text(forged)
    assert "a bad signature" in cli("import", "card.md", "--dry-run").stdout
    (tmp_path / "card.md").write_text(page.replace("MIT", "none"))
    one_line_error(cli("import", "card.md", ok=False), "changed after it was written")
