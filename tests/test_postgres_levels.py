"""What each level of a shared store may do with the commands, and how a refusal is told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from postgres import Cluster
from scripted import LESSON, ScriptedEndpoint, teachable
from test_improve import SETTINGS, wrong_calls
from test_postgres_shared import admin

from tfgrpo.cli.main import tfgrpo
from tfgrpo.improvement import improvement_record
from tfgrpo.improvement.proposal_comments import comment
from tfgrpo.improvement.proposals import Draftsman, accept, list_proposals, propose, reject
from tfgrpo.migrations import postgres as migrations
from tfgrpo.production.by_day import Bounds, set_bounds
from tfgrpo.store import Operation, Store, StoreError
from tfgrpo.store.activity.decisions import decide
from tfgrpo.store.opening import members_of
from tfgrpo.store.port import LEVELS

pytestmark = pytest.mark.postgres
TABLES = ("decisions", "runs", "members", "reflog", "journal", "schema", "row-level", "permission")


class Crew:
    """A library whose owner has named somebody of each level."""

    def __init__(self, cluster: Cluster, store: Store) -> None:
        self._cluster = cluster
        self.library: str = store.port.address.library  # type: ignore[attr-defined]
        admin(cluster, *(f'create role "{self.name(level)}" login' for level in LEVELS))
        for level in LEVELS:
            members_of(store.port).grant(self.name(level), level)

    def name(self, level: str) -> str:
        return f"{self.library}_{level}"

    def address(self, level: str) -> str:
        return self._cluster.address(self.library, user=self.name(level))

    def open(self, level: str) -> Store:
        return Store.open(self.address(level), author=level)

    def run(self, level: str, *arguments: str) -> Result:
        return CliRunner().invoke(tfgrpo, ["--store", self.address(level), *arguments])


@pytest.fixture
def crew(
    cluster: Cluster, shared: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Crew]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".tfgrpo").mkdir()
    with Store.init(shared, author="ann") as store:
        store.commit("main", [Operation("ADD", text="Be brief.")], message="by hand")
        store.create_branch("prod")
        yield Crew(cluster, store)


def refused(done: Result, *words: str) -> None:
    """The command ended with an error in words, and no table's name."""
    said = f"{done.exception}"
    assert done.exit_code == 1, done.output
    for word in words:
        assert word in said, said
    assert not [name for name in TABLES if f" {name}" in said.replace("record runs", "")], said


def test_a_trainer_improves_and_a_reviewer_decides(crew: Crew, tmp_path: Path) -> None:
    with ScriptedEndpoint(teachable) as endpoint, crew.open("trainer") as store:
        (tmp_path / "tfgrpo.toml").write_text(SETTINGS.format(base_url=endpoint.base_url))
        wrong_calls(store, range(30))
        for level in ("reader", "reviewer"):
            refused(crew.run(level, "improve"), "you may not record runs", "a trainer or an owner")
        assert not endpoint.requests, "nothing was paid for"
        assert improvement_record.rounds(store, "prod") == []
        done = crew.run("trainer", "improve", "--accept-better")
        assert done.exit_code == 0, done.exception
        said = " ".join(done.output.split())
        assert "that takes a reviewer or an owner, so it waits for a decision" in said
        (found,) = list_proposals(store)
        refused(
            crew.run("trainer", "proposal", "accept", found.id, "--why", "mine"),
            "you may not decide about production",
            "a reviewer or an owner",
        )
        assert [e.text for e in store.library("prod")] == ["Be brief."]
        done = crew.run("reviewer", "proposal", "accept", found.id, "--why", "good")
        assert done.exit_code == 0, done.exception
        assert [e.text for e in store.library("prod")] == ["Be brief.", LESSON]


def test_an_owner_improves_and_accepts_at_once(crew: Crew, tmp_path: Path) -> None:
    with ScriptedEndpoint(teachable) as endpoint, crew.open("owner") as store:
        (tmp_path / "tfgrpo.toml").write_text(SETTINGS.format(base_url=endpoint.base_url))
        wrong_calls(store, range(30))
        done = crew.run("owner", "improve", "--accept-better", "--json")
        assert json.loads(done.stdout)["outcome"] == "accepted", done.exception


def test_what_a_trainer_records_decides_nothing(crew: Crew) -> None:
    with crew.open("trainer") as store:
        base = store.tip("main")
        store.create_branch("proposal/x", base)
        store.commit("proposal/x", [Operation("ADD", text="Count both.")], message="x")
        made = propose(store, Draftsman("proposal/x", "main", "by hand", base))
        comment(store, made.id, "Which season?")
        for forbidden in (
            lambda: accept(store, made.id, why="mine"),
            lambda: reject(store, made.id, why="mine"),
            lambda: set_bounds(store, Bounds(0.1, 0.9, 0.1, 0.1), seen=0),
            lambda: decide(store, "rollback", "main", {}),
            lambda: decide(store, "proposal", made.id, {"state": "open", "accepted": ["a"]}),
            lambda: decide(store, "proposal", "p9", {"state": "accepted"}),
            lambda: decide(store, "redaction", "records", {}),
        ):
            with pytest.raises(StoreError, match="you may not decide about production"):
                forbidden()
        assert [one.state for one in list_proposals(store)] == ["open"]
    with crew.open("reviewer") as store:
        assert reject(store, made.id, why="not so").state == "rejected"


@pytest.mark.parametrize(
    ("level", "command", "words"),
    [
        ("reader", ["add", "More."], ("you may not record versions", "a trainer")),
        ("reader", ["branch", "web"], ("you may not move names", "a trainer")),
        ("reader", ["remote", "add", "a", "b.bundle"], ("change remotes", "an owner")),
        ("trainer", ["store", "grant", "{trainer}", "--as", "owner"], ("say who is a member",)),
        ("trainer", ["store", "grant", "{reader}", "--as", "owner"], ("say who is a member",)),
        ("trainer", ["store", "revoke", "{reader}"], ("say who is a member", "an owner")),
        ("reviewer", ["store", "grant", "{reviewer}", "--as", "owner"], ("say who is a member",)),
        ("owner", ["store", "grant", "{owner}", "--as", "reader"], ("nobody changes what they",)),
        ("owner", ["store", "grant", "postgres", "--as", "reader"], ("owns the library or the",)),
        ("trainer", ["redact", "--text", "Be brief.", "-r", "x", "-y"], ("a reviewer or an",)),
    ],
    ids=str,
)
def test_a_refusal_names_the_level_and_no_table(
    crew: Crew, level: str, command: list[str], words: tuple[str, ...]
) -> None:
    named = {one: crew.name(one) for one in LEVELS}
    done = crew.run(level, *(word.format(**named) for word in command))
    refused(done, *words)


def test_members_of_an_older_schema_train_once_its_creator_has_opened_it(
    cluster: Cluster, shared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        first = migrations.MIGRATIONS[:1]
        for place in ("migrations.postgres", "store.postgres.session"):
            older.setattr(f"tfgrpo.{place}.MIGRATIONS", first)
            older.setattr(f"tfgrpo.{place}.POSTGRES_SCHEMA", 1)
        with Store.init(shared) as store:
            crew = Crew(cluster, store)
            revoke = f'revoke insert on @.decisions from "{crew.name("trainer")}"'
            store.port.execute(revoke)  # type: ignore[attr-defined]
            gone = "insert into @.members values ('no such role', 'trainer')"
            store.port.execute(gone)  # type: ignore[attr-defined]
    with pytest.raises(StoreError, match="older schema 1"):
        crew.open("trainer")
    Store.open(shared).close()
    with crew.open("trainer") as store:
        decide(store, "improvement", "improve-1", {"state": "begun"})
