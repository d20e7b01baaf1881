"""What a settings file, a run's record or a remote needs to be allowed, in values and in words.

Whatever could run code, or send something elsewhere, is one permission. Trust is given to all of a
source's at once and rests on their values. The name of a domain is taken apart:
`choice:labels.txt+reward=my_module:score`, whose parts, an entry point or `module:name`, take the
place of the domain's own.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tfgrpo.data import datasets
from tfgrpo.model.http_connection import LOOPBACK
from tfgrpo.model.providers import ANY_HOST, own_variable
from tfgrpo.model.secrets import variables
from tfgrpo.rendering.retrieve import OBJECT
from tfgrpo.store.errors import hide_secrets

PARTS = {
    "reward": "tfgrpo.rewards",
    "rollout": "tfgrpo.rollouts",
    "retrieve": "tfgrpo.retrievers",
    "group": "tfgrpo.groups",
}
"""The parts that a name can have, and the groups of their entry points."""
_PLACE = r"[A-Za-z_][\w.-]*(?::[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)?"
_part_pattern = re.compile(rf"\+({'|'.join(PARTS)})=({_PLACE})\Z")


def split(spec: str) -> tuple[str, str]:
    """A name without its parts, and the parts as they were written."""
    base = spec
    while match := _part_pattern.search(base):
        base = base[: match.start()]
    return base, spec[len(base) :]


def parts(written: str) -> dict[str, str]:
    """Each part's place, by its name; the last one counts where there are two."""
    return dict(one.split("=", 1) for one in written.split("+")[1:])


UPSTREAMS = ("upstream", "anthropic", "gemini", "bedrock")
"""What a proxy's file calls the providers of each API."""

PATHS = ("data", "heldout", "gate", "sealed", "prompts")
FOLDERS = ("prompts", "corpus")
"""Paths that may be folders, each file of which is read."""
ROLES = (("", "prompts"), ("reflection_", "prompts for reflection"))
"""The models that are asked: what their settings begin with, and what is sent to them."""
EXTRAS = ("extra_headers", "extra_body")
"""What goes with every request, in settings that may also begin with `reflection_`."""
ENDPOINTS = tuple(f"{r}{name}" for r, _ in ROLES for name in ("model", "base_url", "api_key_env"))
ASKING = (*ENDPOINTS, *EXTRAS, *(f"reflection_{name}" for name in EXTRAS))
"""Settings of how models are asked: where none is asked, they send nothing."""
JUDGED = frozenset(
    (
        *(*PATHS, *ASKING),
        *("domain", "policy", "tools", "models", "agent"),
    )
)
"""Settings that permissions are made from."""
LOCAL = "local:"
OWN_REWARD = "agent"
"""The reward that an agent tells itself."""


class Permission(NamedTuple):
    """One thing to be allowed: trust rests on `key` and `value`; `words` say what happens."""

    key: str
    value: Any
    words: str


@dataclass(frozen=True, slots=True)
class Permissions:
    """What a source in a folder needs to be allowed. `place` is what `tfgrpo trust` takes."""

    folder: Path
    source: str
    needed: tuple[Permission, ...]
    place: Path

    @property
    def digest(self) -> str:
        """The SHA-256 of what is needed, in hex; the words are no part of it."""
        values = sorted([one.key, json.dumps(one.value, sort_keys=True)] for one in self.needed)
        return hashlib.sha256(json.dumps(values).encode()).hexdigest()

    @property
    def words(self) -> list[str]:
        return [one.words for one in self.needed]


def plain(value: object) -> str:
    """A value of a stranger's as a text that can be read, on one line and whole but for a
    secret in an address."""
    text = hide_secrets(str(value))
    return text if text.isprintable() and text.isascii() else ascii(text)


def of_file(
    path: Path,
    tables: Mapping[str, Mapping[str, Any]],
    known: Collection[str],
    given: Collection[str] = (),
) -> Permissions:
    """What a settings file needs, without the settings that were `given` instead. `tables` are the
    file's, `known` the names of installed domains."""
    path = path.resolve()
    model, tools = _names(tables.get("model", {})), tables.get("tools", {})
    needed: list[Permission] = []
    if "base_url" not in given:
        needed += _listed_endpoints(_table(tables.get("endpoints")))
    listed = {"endpoints": bool(tables.get("endpoints"))}
    for name in ("train", "eval"):
        values = model | _names(tables.get(name, {})) | listed
        for more in ({}, {"tools": tools}, {"agent": tables.get("agent", {})}):
            needed += of_values(values | more, path.parent, known, given)
    return Permissions(path.parent, path.name, _distinct(needed), path)


def of_run(
    name: str,
    config: Mapping[str, Any],
    root: Path,
    known: Collection[str],
    given: Collection[str] = (),
) -> Permissions:
    root = root.resolve()
    values = {**config, **_table(config.get("models"))}
    return Permissions(
        root, f"the run {plain(name)}", _distinct(of_values(values, root, known, given)), root
    )


def of_remote(root: Path, name: str, location: str) -> Permissions:
    root = root.resolve()
    words = f"fetches from {plain(location)}, and pushes to it"
    needed = (Permission("remote", location, words),)
    return Permissions(root, f"the remote {plain(name)}", needed, root)


def of_proxy(path: Path, settings: Mapping[str, Any], given: Collection[str] = ()) -> Permissions:
    """What the settings file of a proxy needs, without what was `given` instead."""
    path = path.resolve()
    needed: list[Permission] = []
    passes = "passes applications' requests, with their keys, to {}"

    def need(key: str, value: object, words: str) -> None:
        if value is not None:
            needed.append(Permission(key, str(value), words.format(plain(value))))

    for name in UPSTREAMS:
        if name not in given:
            need(name, settings.get(name), passes)
    for name in ("key_env", *(f"{api}_key_env" for api in UPSTREAMS[1:])):
        if name not in given:
            need(name, settings.get(name), "sends the key in ${} to the provider")
    providers = settings.get("providers")
    for number, one in enumerate(providers if isinstance(providers, list) else ()):
        need(f"providers.{number}.url", str(_table(one).get("url")), passes)
        need(
            f"providers.{number}.key_env", _table(one).get("key_env"), "sends the key in ${} there"
        )
    need("webhook", settings.get("webhook"), "tells {} what was spent and decided")
    if "host" not in given and str(settings.get("host")) not in LOOPBACK:
        need("host", settings.get("host"), "listens on {}, where other machines may reach it")
    for name, table in _table(settings.get("libraries")).items():
        outside = _outside(str(_table(table).get("store", "")), path.parent)
        if outside is not None:
            words = (
                f"serves the library {plain(name)} from {plain(outside)}, outside of this folder"
            )
            needed.append(Permission(f"libraries.{name}", outside, words))
    return Permissions(path.parent, path.name, tuple(needed), path)


def of_predicates(path: Path, predicates: Iterable[str]) -> Permissions:
    """What a rubric needs that calls these functions, written module:function."""
    path = path.resolve()
    called = sorted(set(predicates))
    listed = ", ".join(map(plain, called))
    words = f"imports and calls {listed}, from this folder where it has such modules"
    needed = (Permission("predicates", called, words),) if called else ()
    return Permissions(path.parent, path.name, needed, path)


def of_values(
    values: Mapping[str, Any], folder: Path, known: Collection[str], given: Collection[str] = ()
) -> Iterator[Permission]:
    """Yields what settings by name need, paths in them being relative to `folder`."""
    own = {k: v for k, v in _names(values).items() if v is not None and k not in given}
    yield from _endpoints(own, given)
    spec = own.get("domain")
    base, written = split(str(spec or ""))
    name, colon, argument = base.partition(":")
    modules = [place.partition(":")[0] for place in parts(written).values() if ":" in place]
    if colon and name not in known and name != OBJECT[:-1]:
        modules, argument = [name, *modules], ""
    if modules:
        listed = " and ".join(map(plain, dict.fromkeys(modules)))
        words = f"imports the Python module {listed}, from this folder if it is there"
        yield Permission("domain", str(spec), f"{words}, and runs its code")
    if argument and (outside := _outside(argument, folder)):
        yield Permission("domain", outside, f"reads {plain(outside)}, outside of this folder")
    policy = str(own.get("policy") or "")
    if ":" in policy:
        words = f"imports the Python module {plain(policy.partition(':')[0])}"
        yield Permission("policy", policy, f"{words}, from this folder if it is there")
    for key in PATHS:
        if isinstance(own.get(key), str):
            yield from _path(key, own[key], folder)
    if isinstance(own.get("tools"), Mapping):
        yield from _tools(own["tools"], folder, given)
    if isinstance(own.get("agent"), Mapping):
        yield from _agent(_names(own["agent"]), folder, given)


def _endpoints(own: Mapping[str, Any], given: Collection[str]) -> Iterator[Permission]:
    hosted: list[str] = []
    for role, sent in ROLES:
        named = own.get(f"{role}base_url"), own.get(f"{role}api_key_env")
        url, key = named[0] or own.get("base_url"), named[1] or own.get("api_key_env")
        model = own.get(f"{role}model")
        at_openai = url is None and not {f"{role}base_url", "base_url"} & set(given)
        at_openai &= not own.get("endpoints")
        if at_openai and isinstance(model, str) and not model.startswith(LOCAL):
            hosted.append(plain(model))
        if named == (None, None):
            continue
        where = "the model's endpoint" if url is None else plain(url)
        words = f"sends {sent} to {where}, with {_key_words(url, key)}"
        yield Permission(f"{role}endpoint", {"base_url": url, "api_key_env": key}, words)
    for name in (f"{role}{extra}" for role in ("", "reflection_") for extra in EXTRAS):
        if _table(own.get(name)):
            fields = ", ".join(f"{plain(k)}: {plain(v)}" for k, v in _table(own[name]).items())
            words = f"sends with every request, as {name}: {fields}"
            yield Permission(name, _listed(own[name]), words)
    if hosted:
        words = f"asks {', '.join(hosted)} at OpenAI (or $OPENAI_BASE_URL), which costs money"
        yield Permission("hosted", True, words)


def _key_words(url: object, key: object) -> str:
    if key is not None:
        return f"the key in ${plain(key)}"
    own_key = own_variable(url if isinstance(url, str) else None, {})
    return f"your {' or '.join(f'${name}' for name in (ANY_HOST, own_key) if name)} if set"


def _listed_endpoints(tables: Mapping[str, Any]) -> Iterator[Permission]:
    for number, table in tables.items():
        own = _names(_table(table))
        url, key = own.get("base_url"), own.get("api_key_env")
        words = f"sends prompts to {plain(url)}, with {_key_words(url, key)}"
        yield Permission(f"endpoints.{number}", {"base_url": url, "api_key_env": key}, words)


def _path(key: str, value: str, folder: Path) -> Iterator[Permission]:
    spec = datasets.parse(value, folder) if key not in FOLDERS else None
    if spec is not None and spec.on_hub:
        return
    outside = _outside(spec.source if spec else value, folder)
    if outside is not None:
        words = f"reads {plain(outside)}, outside of this folder, and sends it to a model"
        yield Permission(key, outside, words)
    elif key in FOLDERS:
        for file, there in _links_out(folder / value, folder):
            words = f"reads {plain(there)} as {plain(file)}, outside of this folder"
            yield Permission(f"{key}.{file}", there, f"{words}, and sends it to a model")


def _tools(table: Mapping[str, Any], folder: Path, given: Collection[str]) -> Iterator[Permission]:
    corpus = table.get("corpus")
    if isinstance(corpus, str) and "corpus" not in given:
        yield from _path("corpus", corpus, folder)
    if table.get("sandbox") == "off" and "sandbox" not in given:
        words = "runs Python that a model writes, even where nothing shuts it in"
        yield Permission("sandbox", "off", words)
    use = table.get("use")
    visits = isinstance(use, list | tuple) and "visit" in use
    if visits and corpus is None and "corpus" not in given:
        words = "lets a model ask any public web address for a page, and so tell it anything"
        yield Permission("visit", True, words)
    if table.get("provider") is not None:
        name = plain(table["provider"])
        words = f"sends a model's queries to the search provider {name}, with your key for it"
        yield Permission("provider", str(table["provider"]), words)
    if table.get("search") is not None:
        search = _table(table["search"])
        names = ", ".join(f"${name}" for name in variables(search))
        words = f"sends a model's queries to {plain(search.get('url'))}"
        yield Permission("search", _listed(search), words + (f", with {names}" if names else ""))
    for name, server in _table(table.get("mcp")).items():
        server = _table(server)
        if server.get("command") is not None:
            line = [server["command"], *(server.get("args") or ())]
            words = f"runs the command {' '.join(shlex.quote(plain(part)) for part in line)}"
        else:
            words = f"calls tools at {plain(server.get('url'))}"
        env = server.get("env")
        listed = env if isinstance(env, list | tuple) else ()
        names = ", ".join(f"${plain(name)}" for name in (*listed, *variables(server)))
        words += f", which gets {names}" if names else ""
        yield Permission(f"mcp.{name}", _listed(server), words)


def _agent(table: Mapping[str, Any], folder: Path, given: Collection[str]) -> Iterator[Permission]:
    table = {name: value for name, value in table.items() if f"agent.{name}" not in given}
    if table.get("reward") == OWN_REWARD:  # which runs nothing
        del table["reward"]
    for name, what in (("run", "for each attempt"), ("reward", "to judge each attempt")):
        value = table.get(name)
        if value and not str(value).startswith(OBJECT):
            words = f"runs {plain(value)} {what}, with your rights and your environment"
            yield Permission(f"agent.{name}", str(value), words)
    outside = _outside(str(table.get("workspace") or ""), folder)
    if outside is not None:
        words = f"gives each attempt a copy of {plain(outside)}, outside of this folder"
        yield Permission("agent.workspace", outside, words)


def _outside(value: str, folder: Path) -> str | None:
    """Where a path leads, links followed, if that is not in the folder."""
    try:
        there = (folder / value).resolve()
    except (OSError, ValueError, RuntimeError):  # nothing that could be opened
        return None
    return None if there.is_relative_to(folder) else str(there)


def _links_out(inner: Path, folder: Path) -> Iterator[tuple[str, str]]:
    for place, folders, files in os.walk(inner):
        for name in sorted((*folders, *files)):
            path = Path(place, name)
            if path.is_symlink() and (there := _outside(str(path), folder)) is not None:
                yield str(path.relative_to(folder)), there


def _names(values: Mapping[str, Any]) -> dict[str, Any]:
    return {str(key).replace("-", "_"): value for key, value in _table(values).items()}


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _listed(value: object) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _listed(v) for k, v in value.items() if v not in (None, [], (), {}, "")}
    if isinstance(value, list | tuple):
        return [_listed(inner) for inner in value]
    return value if isinstance(value, str | int | bool) else str(value)


def _distinct(needed: Iterable[Permission]) -> tuple[Permission, ...]:
    return tuple({(one.key, json.dumps(one.value, sort_keys=True)): one for one in needed}.values())
