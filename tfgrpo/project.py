"""A project: the folder with a store and a settings file. Records hold paths as seen from it,
and names of what a caller gives as a Python object, under which it has to be given again."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfgrpo import domains
from tfgrpo.costs.prices import ModelPrices, model_prices
from tfgrpo.data import datasets
from tfgrpo.data.problems import REST
from tfgrpo.domains.base import Domain, DomainError
from tfgrpo.domains.rubric import rubric_permissions
from tfgrpo.model import secrets
from tfgrpo.model.fleet import EndpointsInvalid, ListedEndpoint, costliest, listed_endpoints
from tfgrpo.rendering.retrieve import OBJECT
from tfgrpo.settings import FILE, LISTED, Settings, read_toml
from tfgrpo.store.address import project_root
from tfgrpo.store.errors import SettingsError
from tfgrpo.store.transfer.remotes import Remotes
from tfgrpo.toml_text import Table, parsed
from tfgrpo.trust import trusted_folders
from tfgrpo.trust.permissions import (
    JUDGED,
    OWN_REWARD,
    UPSTREAMS,
    Permissions,
    of_file,
    of_proxy,
    of_remote,
    of_run,
    split,
)
from tfgrpo.trust.trusted_folders import is_trusted

if TYPE_CHECKING:
    from tfgrpo.model.settings import ModelSettings
    from tfgrpo.store.store import Store

DATA = ("data", "heldout", "gate", "sealed")
PATHS = (*DATA, "prompts")
"""Settings that are a file or a folder."""


@dataclass(frozen=True, slots=True)
class Project:
    """A folder, the tables of its settings file (`raw`: as written, which trust rests on), and
    by name the domains, functions for agents and agents that were given as objects."""

    root: Path
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    objects: Mapping[str, Domain] = field(default_factory=dict)
    functions: tuple[str, ...] = ()
    file: Path | None = None
    raw: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    agents: Mapping[str, Callable[..., Any]] = field(default_factory=dict)

    # trust:

    def require_trust(self, given: Mapping[str, Any]) -> None:
        """Raises NotTrusted unless the settings file may do what it says, but for settings
        `given` instead; call it before any setting but [prices] is used."""
        if self.file is None:
            return
        known, typed = domains.names(), {k for k, value in given.items() if value is not None}
        typed |= {f"agent.{name}" for name in given.get("agent") or ()}
        typed.discard("agent")  # one may be given in part
        if of_file(self.file, self.raw, known, typed).needed:
            trusted_folders.require(of_file(self.file, self.raw, known))

    def require_trust_of(self, name: str, given: object = None) -> None:
        """Does the same where one setting alone is used, and that only if none is `given`."""
        unused = {**dict.fromkeys(JUDGED, ""), "agent": self.table("agent"), name: given}
        self.require_trust(unused)

    def require_run(
        self, name: str, config: Mapping[str, Any], used: Collection[str] | None = None
    ) -> None:
        """Does the same for the record of a run, which may have come with the store: for the
        settings of it that are `used`, or for all. Raises NotTrusted."""
        if self._needs(name, config, used):
            trusted_folders.require(self.run_permissions(name, config))

    def trusts_run(self, name: str, config: Mapping[str, Any], used: Collection[str]) -> bool:
        """Whether settings of a run's record may be used. Nobody is asked."""
        trusted = is_trusted(self.run_permissions(name, config))
        return trusted or not self._needs(name, config, used)

    def run_permissions(self, name: str, config: Mapping[str, Any]) -> Permissions:
        """What the record of a run needs to be allowed."""
        return of_run(name, config, self.root, domains.names())

    def _needs(self, name: str, config: Mapping[str, Any], used: Collection[str] | None) -> bool:
        everything = {*config, *(config.get("models") or {}), "corpus", "sandbox"}
        unused = set() if used is None else everything - {*used, "models"}
        return bool(of_run(name, config, self.root, domains.names(), unused).needed)

    def table(self, name: str) -> Table:
        """A copy of a table of the settings file, with _ for - in the names of settings; an empty
        one where there is none."""
        given = self.tables.get(name, {})
        is_as_named = name == "prices"  # the names are those of models
        table = Table({k if is_as_named else k.replace("-", "_"): v for k, v in given.items()})
        table.place = f"{self.file}: " if name == LISTED else f"{self.file}: [{name}]: "
        return table

    def prices(self, models: ModelSettings) -> ModelPrices:
        """Models' prices, the dearest endpoint's. Raises PriceInvalid and EndpointsInvalid."""
        prices = model_prices(models, self.table("prices"))
        listed = self.endpoints(models)
        if not listed:
            return prices
        highest = costliest(listed)
        if models.reflection_base_url is not None:
            return replace(prices, policy=highest)
        return replace(prices, policy=highest, reflection=highest)

    # endpoints:

    def listed(self, layers: Iterable[Mapping[str, Any]] = ()) -> tuple[ListedEndpoint, ...]:
        """What [[endpoints]] lists; none if `layers` name another address. Raises
        EndpointsInvalid."""
        listed = listed_endpoints(self.table("endpoints"), self.table("prices"))
        tables = [self.table(name) for name in ("model", "train", "eval")]
        if listed and any(_address(table) for table in tables):
            raise EndpointsInvalid(
                f"{FILE} names a base_url and lists [[endpoints]]",
                hint="make the base_url one of the [[endpoints]]",
            )
        return () if any(map(_address, layers)) else listed

    def endpoints(self, models: ModelSettings) -> tuple[ListedEndpoint, ...]:
        """The endpoints that models are asked at, where they are asked at those that are listed.
        Raises EndpointsInvalid where there are none, or one has another model alone."""
        if not models.endpoints or models.base_url is not None:
            return ()
        tables, prices = self.table("endpoints"), self.table("prices")
        listed = listed_endpoints(tables, prices, models.model)
        if not listed:
            raise EndpointsInvalid(
                f"the model {models.model} is asked at [[endpoints]], and {FILE} lists none",
                hint="list them there, or name an address: --base-url URL",
            )
        other = models.reflection_model not in (None, models.model)
        if other and models.reflection_base_url is None:
            raise EndpointsInvalid(
                f"[[endpoints]] serve {models.model}, and not {models.reflection_model}",
                hint="say where that is asked: reflection_base_url in [model]",
            )
        return listed

    # domains:

    def domain(self, spec: str | None) -> Domain:
        """The domain of that name, from modules here and in the project. Raises DomainError, and
        SettingsError for what is no name."""
        if spec is not None and not isinstance(spec, str):
            raise SettingsError(f"domain: {spec!r} is no name", hint='such as domain = "math"')
        if spec is not None and spec.startswith(OBJECT):
            if spec not in self.objects:
                raise DomainError(
                    f"{spec[len(OBJECT) :]} is a Python object of the program that began this run",
                    hint="pass it again from Python: tfgrpo.train(resume=…, domain=… or verify=…)",
                )
            return self.objects[spec]
        base, written = split(spec or domains.DEFAULT)
        name, colon, argument = base.partition(":")
        if argument and name in domains.names() and not os.path.exists(argument):
            beside = self.root / argument
            argument = str(beside) if os.path.exists(beside) else argument
        return domains.find(name + colon + argument + written, (Path.cwd(), self.root))

    def problem_domain(self, settings: Settings) -> Domain:
        """The domain that reads problems: a judging command needs no truth, and an agent gets all
        fields of a row. Raises DomainError."""
        domain = self.domain(settings.domain)
        if settings.agent.run:
            domain = replace(domain, extra=(*domain.extra, REST))
        return domain if settings.agent.reward is None else replace(domain, ground_truth=False)

    def by_agent(self, domain: Domain, settings: Settings) -> Domain:
        """A domain by an agent and a judging command, as settings say. The keys that these name are
        secrets from now on, before any code of the user's judges. Raises SettingsError."""
        from tfgrpo.agents.agent_attempts import by_agent
        from tfgrpo.connect import key_variables

        names = key_variables(settings.models, os.environ, self.endpoints(settings.models))
        secrets.withhold(*(os.environ.get(name, "").strip() for name in names))
        secrets.know_variables({*names, *settings.tools.variables}, os.environ)
        return by_agent(domain, settings.agent, self.root, self.agents, settings.concurrency)

    def record_domain(self, spec: str) -> str:
        """A domain's name as it goes into a record, a file in it as seen from here."""
        base, written = split(spec)
        name, colon, argument = base.partition(":")
        if spec.startswith(OBJECT) or not (colon and os.path.exists(argument)):
            return spec
        return f"{name}:{self.record_path(argument)}{written}"

    # paths:

    def record_path(self, path: str) -> str:
        """A path, or a dataset's name, as it goes into a record."""
        return path if datasets.parse(path).on_hub else os.path.relpath(path, self.root)

    def open_data(self, name: str) -> str:
        """A dataset's name from a record as it is to be opened from here."""
        on_hub = datasets.parse(name, self.root).on_hub
        return name if on_hub else str(self.open_path(name))

    def open_path(self, path: str) -> Path:
        """Where a path from a record is, as seen from the working folder."""
        there = self.root / path
        relative = os.path.relpath(there)
        return Path(relative) if not relative.startswith("..") else there.resolve()

    # tools:

    def tool_layer(self, given: dict[str, Any]) -> dict[str, Any]:
        """[tools] and [agent] as a layer, over them what is `given`, which loses those keys. A
        corpus makes search and visit tools; Python functions are an agent's only tools but named
        ones."""
        from tfgrpo.agents.command_agent import command_from

        table: dict[str, Any] = self.table("tools")
        options: dict[str, Any] = {
            key: given.pop(key) for key in ("corpus", "sandbox") if key in given
        }
        if self.functions:
            given.setdefault("mode", "agent")
            table = {"use": (), **table, "functions": self.functions}
        if "corpus" in options:
            table["use"] = table.get("use") or ["search", "visit"]
        table = {**table, **options} if options else table
        if isinstance(table.get("corpus"), str):
            table["corpus"] = self.record_path(table["corpus"])
        layer = {"tools": table} if table else {}
        task = given.pop("inspect", None)
        if task is not None:
            given |= self._inspected(str(task))
        typed = given.pop("agent", {})
        agent = {**self.table("agent"), **typed} if typed else self.table("agent")
        for name in ("run", "workspace", "answer_file"):
            if name in agent and not str(agent[name]).strip():
                raise SettingsError(
                    f"agent: {name} is empty",
                    hint="is a variable of the shell not set? leave out what is not needed",
                )
        for name in ("run", "reward"):
            if isinstance(agent.get(name), str):
                here = Path.cwd() if name in typed or self.file is None else self.file.parent
                folder = agent.get("workspace")
                folder = folder if isinstance(folder, str) else None
                agent[name] = command_from(agent[name], here, self.root, folder)
        if isinstance(agent.get("workspace"), str):
            agent["workspace"] = self.record_path(agent["workspace"])
        return {**layer, "agent": agent} if agent else layer

    def _inspected(self, task: str) -> dict[str, Any]:
        """The settings under which a task of inspect_ai, FILE@TASK, is learned from: its samples
        as problems, its solver as the agent, its scorers' reward. Raises SettingsError."""
        from tfgrpo.agents.agent_settings import INSPECT
        from tfgrpo.agents.inspect_task import write_samples

        file, at, name = task.rpartition("@")
        spec = f"{self.record_path(file)}{at}{name}" if at else self.record_path(task)
        data = write_samples(spec, self.root)
        agent = {"run": INSPECT + spec, "reward": OWN_REWARD}
        return {"data": str(data), "agent": agent}


def _address(layer: Mapping[str, Any]) -> object:
    return layer.get("base_url") or layer.get("base-url")


def open_project(
    root: Path,
    config: Path | str | None = None,
    objects: Mapping[str, Domain] | None = None,
    functions: tuple[str, ...] = (),
) -> Project:
    """The project of a folder, with a settings file, else its own. Raises SettingsError."""
    path = Path(config) if config is not None else root / FILE
    if config is None and not path.is_file():
        return Project(root, {}, objects or {}, functions)
    raw = read_toml(path)
    tables = deepcopy(raw)
    for table in tables.values():
        for key in (*PATHS, "corpus", "workspace"):
            value = table.get(key)
            if not isinstance(value, str):
                continue
            if key not in DATA or not datasets.parse(value, path.parent).on_hub:
                table[key] = str(path.parent / value)
        base, written = split(str(table.get("domain", "")))
        name, colon, argument = base.partition(":")
        if colon and os.path.isfile(path.parent / argument):
            table["domain"] = f"{name}:{path.parent / argument}{written}"
    listed = [one for one in tables.get("endpoints", {}).values() if one.get("price") is not None]
    own = {str(one["base_url"]): one["price"] for one in listed if "base_url" in one}
    if own:  # what [prices] says of an address
        tables["prices"] = {**tables.get("prices", {}), **own}
    return Project(root, tables, objects or {}, functions, path, raw)


def file_permissions(path: Path) -> list[Permissions]:
    """What a settings file, a proxy's or a rubric needs to be allowed: a rubric that a settings
    file names by itself. Raises SettingsError and DomainError."""
    try:
        settings = parsed(path.read_bytes())
    except (OSError, ValueError):
        settings = {}  # what is wrong with it is told below
    if "criteria" in settings:
        return [rubric_permissions(path)]
    if {*UPSTREAMS, "providers", "libraries", "rules", "host"} & settings.keys():
        return [of_proxy(path, settings)]
    tables = read_toml(path)
    specs = [tables.get(name, {}).get("domain") for name in ("train", "eval", "model")]
    return [
        of_file(path, tables, domains.names()),
        *_rubrics((spec for spec in specs if isinstance(spec, str)), path.resolve().parent),
    ]


def store_permissions(store: Store) -> list[Permissions]:
    """What the runs and the remotes on record in a store need to be allowed."""
    root, known = project_root(store.path), domains.names()
    configs = {run.name: run.config for run in store.runs.all()}
    specs = (config.get("domain") for config in configs.values())
    return [
        *(of_run(name, config, root, known) for name, config in configs.items()),
        *_rubrics((spec for spec in specs if isinstance(spec, str)), root),
        *(of_remote(root, name, there) for name, there in Remotes(store).all().items()),
    ]


def _rubrics(specs: Iterable[str], folder: Path) -> Iterator[Permissions]:
    for spec in dict.fromkeys(specs):
        name, _, argument = split(spec)[0].partition(":")
        if name == "rubric" and os.path.isfile(folder / argument):
            with suppress(DomainError):  # one that cannot be read runs nothing, and says so
                yield rubric_permissions(folder / argument)


def read_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options by the flags' names as settings: what is None is left out, and `field`, a list of
    OURS=THEIRS or a mapping, becomes `fields`. Raises SettingsError."""
    options = {key: value for key, value in given.items() if value is not None}
    pairs = options.pop("field", options.pop("fields", ()))
    if isinstance(pairs, Mapping):
        pairs = [f"{ours}={theirs}" for ours, theirs in pairs.items()]
    if not isinstance(pairs, list | tuple):
        raise SettingsError(f"fields: {pairs!r} is no mapping", hint='{"answer": "gold"}')
    for pair in pairs:
        ours, equals, theirs = str(pair).partition("=")
        if not equals or not theirs:
            raise SettingsError(
                f"{pair!r} is not OURS=THEIRS", hint="for example --field answer=gold"
            )
        options.setdefault("fields", {})[ours] = theirs
    names = {"agent": "run", **{name: name for name in ("workspace", "answer_file", "reward")}}
    agent = {own: options.pop(name) for name, own in names.items() if name in options}
    if agent:
        options["agent"] = {name: str(value) for name, value in agent.items()}
    return options
