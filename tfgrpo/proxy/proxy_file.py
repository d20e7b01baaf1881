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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tfgrpo.production.webhook import checked_webhook
from tfgrpo.proxy.proxy_settings import (
    KEYS,
    RECORDS,
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
from tfgrpo.store.errors import SettingsError, TfgrpoError
from tfgrpo.toml_text import parsed
from tfgrpo.trust import trusted_folders
from tfgrpo.trust.permissions import of_proxy
from tfgrpo.wording import did_you_mean

FILE = "proxy.toml"
"""The file beside a store that says what its proxy is told."""
T = TypeVar("T")


class Kind(NamedTuple):
    """What a key takes, in words, and whether a value is that."""

    words: str
    fits: Callable[[Any], bool]


def _number(words: str, low: float, high: float, *kinds: type) -> Kind:
    return Kind(words, lambda value: type(value) in (int, *kinds) and low <= value <= high)


def _are_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


TEXT = Kind("a text", lambda value: isinstance(value, str))
NAMES = Kind('a list of names, such as ["team"]', _are_names)
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
AMOUNT = _number("a number", -inf, inf, float)
COUNT = _number("a number of 0 or more", 0, inf)
SHARE = _number("a share, such as 0.1", 0, 1, float)
SECONDS = _number("seconds, such as 60", 1e-9, 86400, float)
WEIGHT = _number("a number such as 3 or 0.5; 0 for a fallback", 0, 1e6, float)
TABLE = Kind("a table", lambda value: isinstance(value, dict))
TABLES = Kind("a list of tables", lambda value: isinstance(value, list))
EXPRESSIONS = Kind(
    "a regular expression, or a list of them",
    lambda value: _are_names([value]) or _are_names(value),
)
MODELS = Kind(
    "a list of names, or a table of them",
    lambda value: _are_names([*value.values()] if isinstance(value, dict) else value),
)
PLAIN = {
    **dict.fromkeys(("default", "host", "access_log"), TEXT),
    "port": _number("a number from 0 to 65535", 0, 65535),
    "record": Kind(" or ".join(RECORDS), lambda value: value in RECORDS),
    "sample": SHARE,
    "drain": _number("seconds, such as 30", 0, 86400, float),
    "require_key": FLAG,
}
"""What a file may say that is taken as it stands."""
KEYS_OF: Mapping[str, Mapping[str, Kind]] = {
    "": PLAIN
    | dict.fromkeys((*URLS.values(), *VARIABLES.values(), "webhook"), TEXT)
    | {"retries": _number("a number from 0 to 20", 0, 20), "redact": EXPRESSIONS}
    | {"personal": NAMES, "tags": NAMES, "libraries": TABLE, "timeouts": TABLE}
    | dict.fromkeys(("rules", "budgets", "providers"), TABLES),
    "libraries": {
        "store": TEXT,
        "revision": TEXT,
        "top_k": COUNT,
        "dropout": SHARE,
        "allow": NAMES,
    },
    "rules": dict.fromkeys(("library", "header", "field", "equals", "matches"), TEXT),
    "budgets": {"dollars": AMOUNT, "per": TEXT, "library": TEXT, "stop": FLAG},
    "providers": {"url": TEXT, "api": TEXT, "key_env": TEXT, "weight": WEIGHT, "models": MODELS},
    "timeouts": dict.fromkeys(("first_byte", "total", "connect"), SECONDS),
}
"""The keys of each table. Of a table that there are several of, the first has to be there."""
SHOWN = "docs/production.md shows a file with every setting"
NOTHING: Mapping[str, Any] = {}
WITHHELD = ("redact", "personal")
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\Z")


def read_file(path: Path, given: Mapping[str, Any] = NOTHING) -> dict[str, Any]:
    """The settings in a file as arguments of ProxySettings; what it does not say is left out. Paths
    in it are relative to it. Providers that are `given` take the place of its own. Raises
    SettingsError, and NotTrusted where nobody has allowed the file to say where requests go, or who
    may send some, other than by what is given."""
    tables = _tables(path)
    with _placed(path):
        _check("", tables)
        for place, name, table in _inner(tables):
            with _placed(place):
                _check(name, table, "" if name == "timeouts" else next(iter(KEYS_OF[name])))
    if tables.get("providers") and given.keys() & {*URLS.values(), *VARIABLES.values()}:
        raise SettingsError(f"{path} lists the providers", hint="set them there")
    if of_proxy(path, tables, given).needed:
        trusted_folders.require(of_proxy(path, tables))
    with _placed(path):
        settings: dict[str, Any] = {key: tables[key] for key in PLAIN if key in tables}
        settings |= _withheld(tables)
        settings["tags"] = tuple(tables.get("tags", ()))
        settings |= named_providers(tables, given)
        settings |= _routes(tables, settings)
        settings["budgets"] = _each(tables, "budgets", _spend_limit)
        if "webhook" in tables:
            settings["webhook"] = checked_webhook(tables["webhook"])
        listed = tables.get("libraries", {}).items()
        settings["libraries"] = {
            name: _library(path.parent, name, **table) for name, table in listed
        }
        settings["rules"] = _each(tables, "rules", _rule)
    return settings


@contextmanager
def _placed(place: object) -> Iterator[None]:
    """Puts the place before what is told of an error within."""
    try:
        yield
    except (TfgrpoError, ValueError, re.error, OverflowError, RecursionError) as error:
        hint = getattr(error, "hint", None) or SHOWN
        raise SettingsError(f"{place}: {error}", hint=hint) from None


def _inner(tables: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yields the tables within a file: where each stands, and the name that its keys go by."""
    for name, kind in KEYS_OF[""].items():
        if kind is TABLES:
            for number, table in enumerate(tables.get(name, ()), 1):
                yield f"[[{name}]] {number}", name, table
    for name, table in tables.get("libraries", {}).items():
        yield f"[libraries.{name}]", "libraries", table
    yield "[timeouts]", "timeouts", tables.get("timeouts", {})


def _check(name: str, table: Any, needed: str = "") -> None:
    """Raises SettingsError where a table has a key that is none, or what a key does not take."""
    if not TABLE.fits(table):
        raise SettingsError(f"it is {TABLE.words}", hint=SHOWN)
    keys = KEYS_OF[name]
    if unknown := table.keys() - keys:
        meant = did_you_mean(min(unknown), keys, after=" there is ")
        raise SettingsError(
            f"there is no setting {min(unknown)!r}", hint=meant + ", ".join(sorted(keys))
        )
    if needed and needed not in table:
        raise SettingsError(f"{needed} is missing", hint=f"it is {keys[needed].words}")
    for key, value in table.items():
        if not keys[key].fits(value):
            raise SettingsError(f"{key} is {keys[key].words}", hint=SHOWN)


def _each(tables: Mapping[str, Any], name: str, make: Callable[..., T]) -> tuple[T, ...]:
    """Returns what is made of each of the tables of a list."""
    listed = []
    for place, of, table in _inner(tables):
        if of == name:
            with _placed(place):
                listed.append(make(**table))
    return tuple(listed)


def withheld_beside(folder: Path, more: Sequence[str] = ()) -> Finder:
    """Returns what the proxy's files in a folder and above it take out of words, and `more`
    expressions, for those that reach a file by another way than the proxy. Raises SettingsError."""
    redact, personal = list(more), list[str]()
    is_personal = False
    for place in (folder, *folder.resolve().parents):
        if (path := place / FILE).is_file():
            own = {key: value for key, value in _tables(path).items() if key in WITHHELD}
            with _placed(path):
                _check("", own)
            withheld = _withheld(own)
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
        settings["personal"] = tuple(tables["personal"])
    return settings


def _routes(tables: Mapping[str, Any], alone: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a file says of providers, retries and time-outs; those of `alone` are the only
    ones where it lists none."""
    listed = _each(tables, "providers", _provider)
    if listed and tables.keys() & {*URLS.values(), *VARIABLES.values()}:
        raise SettingsError("providers take the place of upstream", hint="list it among them")
    if not listed and not tables.keys() & {"retries", "timeouts"}:
        return {}
    limits = dict(tables.get("timeouts", {}))
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
        "retries": tables.get("retries", 2),
        "timeouts": Timeouts(**limits),
        "limits": Limits(connect=connect),
    }


def _provider(
    url: str,
    api: str = "openai",
    key_env: str | None = None,
    weight: float = 1.0,
    models: Mapping[str, str] | Sequence[str] | None = None,
) -> Provider:
    if api not in KEYS:
        raise SettingsError(f"api is no {api!r}", hint=", ".join(KEYS))
    if models is not None and not isinstance(models, Mapping):
        models = {name: name for name in models}
    if api in (GOOGLE, BEDROCK) and models and any(a != b for a, b in models.items()):
        raise SettingsError("a path names the model there", hint='models = ["gemini-2.5-pro"]')
    upstream = with_key(parse_upstream(url, api), key_env)
    return Provider(upstream, float(weight), models)


def _spend_limit(
    dollars: float, per: str = "month", library: str | None = None, stop: bool = False
) -> SpendLimit:
    return SpendLimit(parse_budget(f"{dollars}/{per}"), library, stop)


def _library(
    folder: Path, name: str, store: str, allow: Sequence[str] | None = None, **more: Any
) -> LibraryChoice:
    """Returns a library whose store a file in `folder` names, or what stands for a database."""
    if not NAME.match(name):
        raise SettingsError(f"{name!r} cannot name a library", hint="use letters, digits, _ . -")
    place = anchor(store) if is_address(store) else folder / store
    return LibraryChoice(place, allow=None if allow is None else tuple(allow), **more)


def _rule(library: str, matches: str | None = None, **more: Any) -> Rule:
    with _placed("matches"):
        rule = Rule(library, matches=None if matches is None else re.compile(matches), **more)
    if (rule.header is None) == (rule.field is None):
        raise SettingsError("a rule looks at a header or at a field", hint='header = "x-user"')
    if (rule.equals is None) == (rule.matches is None):
        raise SettingsError("a rule has equals or matches", hint='equals = "enterprise"')
    return rule
