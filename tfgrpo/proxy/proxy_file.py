"""The file that says what a proxy is told, as settings.

upstream = "https://api.openai.com"

[libraries.support]
store = "agents/support"
revision = "prod"

[[rules]]
header = "x-user-kind"
equals = "enterprise"
library = "sales@prod"
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tfgrpo.production.webhook import checked_webhook
from tfgrpo.proxy.proxy_settings import (
    KEYS,
    URLS,
    VARIABLES,
    LibraryChoice,
    Limits,
    Provider,
    Rule,
    SpendLimit,
    Timeouts,
    named_providers,
    parse_upstream,
    with_key,
)
from tfgrpo.proxy.withheld_words import Finder
from tfgrpo.rendering.request_placement import ANTHROPIC, BEDROCK, GOOGLE, OPENAI
from tfgrpo.store.activity.key_ledger import parse_budget
from tfgrpo.store.address import anchor, is_address
from tfgrpo.store.errors import InvalidOperation, SettingsError
from tfgrpo.toml_text import parsed
from tfgrpo.trust import trusted_folders
from tfgrpo.trust.permissions import of_proxy

FILE = "proxy.toml"
"""The file beside a store that says what its proxy is told."""
TABLES = (
    *("libraries", "rules", "budgets", "providers", "retries", "timeouts"),
    *("personal", "redact", "tags", "webhook"),
)
"""What else a file may say that is not taken as it stands."""
NOTHING: Mapping[str, Any] = {}
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\Z")


def read_file(path: Path, given: Mapping[str, Any] = NOTHING) -> dict[str, Any]:
    """The settings in a file as arguments of ProxySettings; what it does not say is left out. Paths
    in it are relative to it. Providers that are `given` take the place of its own. Raises
    SettingsError, and NotTrusted where nobody has allowed the file to say where requests go, or who
    may send some, other than by what is given."""
    tables = _tables(path)
    plain = ("default", "host", "port", "record", "sample", "drain", "access_log", "require_key")
    known = {*plain, *TABLES, *URLS.values(), *VARIABLES.values()}
    if unknown := tables.keys() - known:
        raise SettingsError(
            f"{path}: there is no setting {min(unknown)!r}", hint=", ".join(sorted(known))
        )
    if tables.get("providers") and given.keys() & {*URLS.values(), *VARIABLES.values()}:
        raise SettingsError(f"{path} lists the providers", hint="set them there")
    if of_proxy(path, tables, given).needed:
        trusted_folders.require(of_proxy(path, tables))
    try:
        settings: dict[str, Any] = {key: tables[key] for key in plain if key in tables}
        settings |= _withheld(tables)
        settings["tags"] = _names(tables.get("tags", []), "tags")
        settings |= named_providers(tables, given)
        settings |= _routes(tables, settings)
        settings["budgets"] = tuple(_spend_limit(**one) for one in tables.get("budgets", ()))
        if "webhook" in tables:
            settings["webhook"] = checked_webhook(tables["webhook"])
        listed = tables.get("libraries", {}).items()
        settings["libraries"] = {name: _library(path.parent, name, table) for name, table in listed}
        settings["rules"] = tuple(_rule(table) for table in tables.get("rules", ()))
    except (
        *(KeyError, TypeError, ValueError, AttributeError),
        *(re.error, OverflowError, RecursionError, InvalidOperation),
    ) as error:
        raise SettingsError(
            f"{path}: {error}", hint="docs/production.md shows a file with every setting"
        ) from None
    return settings


def withheld_beside(folder: Path, more: Sequence[str] = ()) -> Finder:
    """Returns what the proxy's files in a folder and above it take out of words, and `more`
    expressions, for those that reach a file by another way than the proxy. Raises SettingsError."""
    redact, personal = list(more), list[str]()
    is_personal = False
    for place in (folder, *folder.resolve().parents):
        if (path := place / FILE).is_file():
            withheld = _withheld(_tables(path))
            redact += withheld.get("redact", ())
            personal += withheld.get("personal", ())
            is_personal |= "personal" in withheld
    return Finder(tuple(redact), personal if is_personal else None)


def _tables(path: Path) -> dict[str, Any]:
    try:
        return parsed(path.read_bytes())
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}", hint="--config takes a file") from None
    except ValueError as error:
        raise SettingsError(f"{path}: {error}", hint="the file must be TOML") from None


def _withheld(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a file says is taken out of words, as settings."""
    settings: dict[str, Any] = {}
    if "redact" in tables:
        several = tables["redact"]
        settings["redact"] = tuple(several) if isinstance(several, list) else (several,)
    if "personal" in tables:
        settings["personal"] = _names(tables["personal"], "personal")
    return settings


def _routes(tables: Mapping[str, Any], alone: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a file says of providers, retries and time-outs; those of `alone` are the only
    ones where it lists none."""
    listed = tuple(_provider(**one) for one in tables.get("providers", ()))
    if listed and tables.keys() & {*URLS.values(), *VARIABLES.values()}:
        raise SettingsError("providers take the place of upstream", hint="list it among them")
    if not listed and not tables.keys() & {"retries", "timeouts"}:
        return {}
    retries, limits = tables.get("retries", 2), dict(tables.get("timeouts", {}))
    if isinstance(retries, bool) or not isinstance(retries, int) or not 0 <= retries <= 20:
        raise SettingsError(f"retries are no {retries!r}", hint="0 to 20")
    if not all(_is_seconds(value) for value in limits.values()):
        raise SettingsError("timeouts are seconds", hint="first_byte = 60")
    connect = limits.pop("connect", Limits().connect)
    if not listed:
        every = (alone[OPENAI], alone[ANTHROPIC], *alone["others"].values())
        listed = tuple(Provider(one) for one in every)
    first = {one.upstream.api: one.upstream for one in reversed(listed)}
    return {
        "providers": listed,
        OPENAI: first.pop(OPENAI, alone[OPENAI]),
        ANTHROPIC: first.pop(ANTHROPIC, alone[ANTHROPIC]),
        "others": first,
        "retries": retries,
        "timeouts": Timeouts(**limits),
        "limits": Limits(connect=connect),
    }


def _is_seconds(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= 86400


def _provider(
    url: str,
    api: str = "openai",
    key_env: str | None = None,
    weight: float = 1.0,
    models: Mapping[str, str] | Sequence[str] | None = None,
) -> Provider:
    if api not in KEYS:
        raise SettingsError(f"api is no {api!r}", hint=", ".join(KEYS))
    if isinstance(weight, bool) or not 0 <= weight <= 1e6:
        raise SettingsError(f"a weight is no {weight!r}", hint="1, 3, 0.5; 0 for a fallback")
    if models is not None and not isinstance(models, Mapping):
        models = {name: name for name in _names(models, "models")}
    if api in (GOOGLE, BEDROCK) and models and any(a != b for a, b in models.items()):
        raise SettingsError("a path names the model there", hint='models = ["gemini-2.5-pro"]')
    upstream = with_key(parse_upstream(url, api), key_env)
    return Provider(upstream, float(weight), models)


def _spend_limit(
    dollars: float, per: str = "month", library: str | None = None, stop: bool = False
) -> SpendLimit:
    return SpendLimit(parse_budget(f"{dollars}/{per}"), library, bool(stop))


def _names(listed: object, setting: str) -> tuple[str, ...]:
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        raise SettingsError(f"{setting} is a list of names", hint=f'{setting} = ["team"]')
    return tuple(listed)


def _library(folder: Path, name: str, table: Mapping[str, Any]) -> LibraryChoice:
    """Returns a library whose store a file in `folder` names, or what stands for a database."""
    if not NAME.match(name):
        raise SettingsError(f"{name!r} cannot name a library", hint="use letters, digits, _ . -")
    store, allow = table["store"], table.get("allow")
    place = anchor(store) if isinstance(store, str) and is_address(store) else folder / str(store)
    allow = None if allow is None else _names(allow, "allow")
    return LibraryChoice(**{**table, "store": place, "allow": allow})


def _rule(table: Mapping[str, Any]) -> Rule:
    matches = re.compile(table["matches"]) if "matches" in table else None
    rule = Rule(**{**table, "matches": matches})
    if (rule.header is None) == (rule.field is None):
        raise SettingsError("a rule looks at a header or at a field", hint='header = "x-user"')
    if (rule.equals is None) == (rule.matches is None):
        raise SettingsError("a rule has equals or matches", hint='equals = "enterprise"')
    return rule
