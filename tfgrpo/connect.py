"""From the name of a model to an endpoint that answers: `local:NAME` is fetched and served by a
child process for as long as the work lasts, any other asked for at `base_url` or the client's
default. Keys are for `tfgrpo/model/providers.py`."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from tfgrpo.costs.prices import LOCAL
from tfgrpo.costs.prices import find as find_price
from tfgrpo.model.endpoint import Endpoint, EndpointOptions
from tfgrpo.model.endpoint_check import EndpointReport, check_endpoint
from tfgrpo.model.fleet import FleetEndpoint, ListedEndpoint
from tfgrpo.model.http_connection import (
    Connection,
    ModelsUnknown,
    host_of,
    models_at,
    only_model_at,
)
from tfgrpo.model.providers import (
    OPENAI_ADDRESS,
    key_for,
    key_variable,
    provider_at,
    unsent_key,
)
from tfgrpo.model.rate_limits import PATIENCE
from tfgrpo.model.settings import FROM_ENVIRONMENT, ModelSettings, are_settings
from tfgrpo.store.errors import SettingsError

if TYPE_CHECKING:
    from tfgrpo.local.cache import ModelCache

SLOTS = 8
"""Requests that a local model answers at once, at most."""
CONTEXT = 4096
MODELS_FOLDER = "TFGRPO_MODELS"

Address: TypeAlias = tuple[str, str | None, str | None]
"""A model, the base URL where it is asked, and the variable that holds its key."""
Download = Callable[[str, int, int], None]
"""Called while weights are fetched: the model's name, bytes so far, bytes in all."""


@dataclass(frozen=True, slots=True)
class CallLimits:
    """At most `concurrency` requests, for `timeout` seconds each; `patience` gives up."""

    concurrency: int = 128
    timeout: float = 1800.0
    patience: float = PATIENCE


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The policy and the reflection model, their limits, and fleets of listed endpoints."""

    policy: Endpoint
    reflection: Endpoint
    limits: CallLimits = CallLimits()
    policy_fleet: tuple[FleetEndpoint, ...] = ()
    reflection_fleet: tuple[FleetEndpoint, ...] = ()

    async def close(self) -> None:
        """Closes the connections; the next request opens one anew."""
        listed = [one.endpoint for one in (*self.policy_fleet, *self.reflection_fleet)]
        for endpoint in {id(e): e for e in (self.policy, self.reflection, *listed)}.values():
            await endpoint.close()


OLLAMA = (
    "Ollama cuts prompts that are longer than its context, 4,096 tokens by default, without an "
    "error: start it with OLLAMA_CONTEXT_LENGTH=32768 (`tfgrpo model check` tries it)"
)
CHECKED = CallLimits(concurrency=1, timeout=300.0)
"""The limits under which an endpoint is tried."""


@contextmanager
def open_endpoints(
    models: ModelSettings,
    limits: CallLimits,
    environment: Mapping[str, str],
    on_download: Download | None = None,
    listed: Sequence[ListedEndpoint] = (),
) -> Iterator[Endpoints]:
    """Opens the endpoints that settings name, or those `listed`, for as long as the block lasts,
    with keys from `environment`. Raises EndpointError or LocalModelError."""
    with ExitStack() as stack:
        local: dict[str, Endpoint] = {}

        def endpoint(address: Address, manner: Mapping[str, Any]) -> Endpoint:
            model, base_url, key_env = address
            if not model.startswith(LOCAL):
                key = key_for(base_url, key_env, environment)
                options = _options(manner, environment)
                return Endpoint(model, base_url, key, limits.timeout, options)
            if model not in local:
                server = _local_endpoint(model, limits, environment, on_download)
                local[model] = stack.enter_context(server)
            return local[model]

        def fleet(manner: Mapping[str, Any]) -> tuple[FleetEndpoint, ...]:
            options = _options(manner, environment)
            return _fleet(models.model, listed, limits.timeout, options, environment)

        policy_fleet = reflection_fleet = fleet(models.manner()) if listed else ()
        policy_address = (models.model, models.base_url, models.api_key_env)
        if policy_fleet:
            policy = policy_fleet[0].endpoint
        else:
            policy = endpoint(policy_address, models.manner())
        reflection = policy
        if models.reflects_apart:
            manner = models.manner(reflection=True)
            apart = not listed or models.reflection_base_url is not None
            reflection_fleet = () if apart else fleet(manner)
            if reflection_fleet:
                reflection = reflection_fleet[0].endpoint
            else:
                reflection = endpoint(_reflection_address(models), manner)
        if local:
            limits = replace(limits, concurrency=local_slots(limits.concurrency))
        yield Endpoints(policy, reflection, limits, policy_fleet, reflection_fleet)


def _fleet(
    model: str,
    listed: Sequence[ListedEndpoint],
    timeout: float,
    options: EndpointOptions,
    environment: Mapping[str, str],
) -> tuple[FleetEndpoint, ...]:
    fleet: list[FleetEndpoint] = []
    for one in listed:
        key = key_for(one.base_url, one.api_key_env, environment)
        endpoint = Endpoint(model, one.base_url, key, timeout, options, served=one.model)
        if fleet:
            endpoint.adaptation = fleet[0].endpoint.adaptation
        fleet.append(FleetEndpoint(endpoint, one.limit, one.weight, one.price, one.silence))
    return tuple(fleet)


def named_models(
    layers: Iterable[Mapping[str, Any]],
    environment: Mapping[str, str],
    listed: Sequence[ListedEndpoint] = (),
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What settings (the first of `layers` that has a value) leave open of which models are
    asked where, as winning settings, and what to say of it. An address without a model, or the
    first `listed` endpoint, is asked what it serves. Raises SettingsError for an address of the
    environment that cannot be one, ModelsUnknown and EndpointError."""
    ordered = [{k.replace("-", "_"): v for k, v in x.items() if v is not None} for x in layers]

    def first(name: str) -> tuple[int, Any]:
        values = ((place, one[name]) for place, one in enumerate(ordered) if one.get(name))
        return next(values, (len(ordered), None))

    def served(address: str, headers: Any, key_env: str | None) -> str:
        options = _options({"extra_headers": headers or {}}, environment)
        key = key_for(address, key_env, environment)
        return only_model_at(Connection(address, key, options.extra_headers))

    names = ("base_url", "extra_headers", "reflection_base_url", "reflection_extra_headers")
    if not are_settings(**{name: first(name)[1] for name in names}):
        return {}, ()  # which is said where all of them are checked
    (at, base_url), (model_at, model) = first("base_url"), first("model")
    address = environment.get(OPENAI_ADDRESS)
    models: dict[str, Any] = {}
    notes: list[str] = []
    if base_url is not None and (model is None or (at < model_at and model.startswith(LOCAL))):
        model = served(base_url, first("extra_headers")[1], first("api_key_env")[1])
        models["model"] = model
        notes.append(f"{base_url} serves one model, which is taken: {model}")
    if listed and base_url is None:
        if model is None:
            model = listed[0].model or served(listed[0].base_url, None, listed[0].api_key_env)
            models["model"] = model
            notes.append(f"{listed[0].base_url} serves one model, which is taken: {model}")
        if str(model).startswith(LOCAL):
            notes.append(f"{model} is a local model: [[endpoints]] are not used")
        else:
            models["endpoints"] = True
    elif base_url is not None and first("endpoints")[1]:
        models["endpoints"] = False
    is_local = model is None or str(model).startswith(LOCAL)
    reflection_url = first("reflection_base_url")[1]
    if is_local and reflection_url and first("reflection_model")[1] is None:
        headers, name = first("reflection_extra_headers")[1], first("reflection_api_key_env")[1]
        models["reflection_model"] = served(reflection_url, headers, name)
        notes.append(
            f"{reflection_url} serves one model, which is taken for reflection: "
            f"{models['reflection_model']}"
        )
    if address and base_url is None and not models.get("endpoints"):
        remote = (
            prefix
            for prefix in ("", "reflection_")
            if (name := first(f"{prefix}model")[1]) and not str(name).startswith(LOCAL)
        )
        prefix = next(remote, None)
        if prefix is not None and first(f"{prefix}base_url")[1] is None:
            if not are_settings(base_url=address):
                raise SettingsError(
                    f"the address in {OPENAI_ADDRESS} cannot be used",
                    hint="it must begin with http:// or https:// and have no password and no query",
                )
            notes.append(f"{OPENAI_ADDRESS} is set: requests go to {address}")
            models[f"{prefix}base_url"] = address
    endpoint = models.get("base_url", base_url)
    at_address = not is_local and not models.get("endpoints")
    if at_address and first("api_key_env")[1] is None:
        notes += filter(None, [unsent_key(endpoint, environment)])
    provider = provider_at(endpoint)
    if not is_local and provider is not None and provider.id == "ollama":
        notes.append(OLLAMA)
    if model is not None and is_local and base_url is not None and at == model_at:
        notes.append(f"{model} is a local model: {base_url} is not used")
    return models, tuple(notes)


async def check_model(
    layers: Iterable[Mapping[str, Any]],
    environment: Mapping[str, str],
    prices: Mapping[str, Any] = MappingProxyType({}),
    listed: Sequence[ListedEndpoint] = (),
) -> tuple[EndpointReport, tuple[str, ...]]:
    """What the model of [model] in `layers` (the first value wins) can do, in about ten calls,
    and what to say of which it is. Of `listed` endpoints the first is asked. Raises EndpointError,
    and what `named_models` does."""
    layers = [{k.replace("-", "_"): v for k, v in layer.items()} for layer in layers]
    named, notes = named_models(layers, environment, listed[:1])
    tried = listed[:1] if named.pop("endpoints", False) else ()
    if tried and len(listed) > 1:
        notes += (
            f"of [[endpoints]], {tried[0].base_url} is tried; "
            "another is with --base-url and --api-key-env",
        )
    values: dict[str, Any] = {}
    for layer in (*reversed(layers), named):
        values |= {name: value for name, value in layer.items() if value is not None}
    models = ModelSettings(**values)
    given = models.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    address = tried[0].base_url if tried else models.base_url
    nonce = uuid.uuid4().hex[:8]
    with open_endpoints(models, CHECKED, environment, listed=tried) as endpoints:
        endpoint = endpoints.policy
        try:
            where = Connection(endpoint.base_url, endpoint.api_key, endpoint.options.extra_headers)
            there: list[dict[str, Any]] = []
            with suppress(ModelsUnknown):
                there = await asyncio.to_thread(models_at, where)
            report = await check_endpoint(
                endpoint,
                {"model": models.model, **given},
                price=find_price(endpoint.served or models.model, address, prices),
                listed=there,
                nonce=nonce,
            )
        finally:
            await endpoints.close()
    return report, notes


def check_endpoints(
    models: ModelSettings, environment: Mapping[str, str], listed: Sequence[ListedEndpoint] = ()
) -> None:
    """Raises what `open_endpoints` would raise for a missing key or an unknown local model."""
    from tfgrpo.local.model_list import find

    for model, base_url, key_env in _addresses(models, listed):
        if model.startswith(LOCAL):
            find(model)
        else:
            key_for(base_url, key_env, environment)
    for manner in (models.manner(), models.manner(reflection=True)):
        _options(manner, environment)


def key_variables(
    models: ModelSettings, environment: Mapping[str, str], listed: Sequence[ListedEndpoint]
) -> set[str]:
    """The variables with the keys that `open_endpoints` would read, whether they are set or not."""
    names = {
        key_variable(base_url, key_env, environment)
        for model, base_url, key_env in _addresses(models, listed)
        if not model.startswith(LOCAL)
    }
    for headers in (models.extra_headers, models.reflection_extra_headers):
        values = (headers or {}).values()
        names |= {v[len(FROM_ENVIRONMENT) :] for v in values if v.startswith(FROM_ENVIRONMENT)}
    return {name for name in names if name is not None}


def _addresses(models: ModelSettings, listed: Sequence[ListedEndpoint]) -> list[Address]:
    """The models that settings name, where they are asked."""
    if not listed:
        policy = (models.model, models.base_url, models.api_key_env)
        return [policy, _reflection_address(models)]
    addresses: list[Address] = [(models.model, one.base_url, one.api_key_env) for one in listed]
    return addresses + ([_reflection_address(models)] if models.reflection_base_url else [])


def _reflection_address(models: ModelSettings) -> Address:
    """The reflection model, its address and its key's variable, at the same host the attempts'
    own."""
    name = models.reflection_api_key_env
    if name is None and host_of(models.reflection_address) == host_of(models.base_url):
        name = models.api_key_env
    return models.reflection_model or models.model, models.reflection_address, name


def _options(manner: Mapping[str, Any], environment: Mapping[str, str]) -> EndpointOptions:
    headers, secrets = dict(manner.get("extra_headers", {})), []
    for header, value in headers.items():
        if value.startswith(FROM_ENVIRONMENT):
            name = value[len(FROM_ENVIRONMENT) :]
            headers[header] = key_for(None, name, environment) or ""
            secrets.append(headers[header])
    return EndpointOptions(**{**manner, "extra_headers": headers, "secrets": tuple(secrets)})


def model_cache(environment: Mapping[str, str]) -> ModelCache:
    """Where the weights of local models are kept."""
    from tfgrpo.local.cache import ModelCache

    named = environment.get(MODELS_FOLDER)
    return ModelCache(Path(named) if named else None)


def local_slots(concurrency: int = SLOTS) -> int:
    """Requests a local model answers at once: one for each CPU. A slot reuses its own last
    prompt alone, so more of them read anew: 16 answers took 78 s with two slots and 104 s with
    eight on two CPUs, 127 s with one and 172 s with eight on one (1.5B, prompts of 120 tokens)."""
    from tfgrpo.local.model_server import available_cpus

    return min(concurrency, SLOTS, available_cpus())


@contextmanager
def _local_endpoint(
    model: str, limits: CallLimits, environment: Mapping[str, str], on_download: Download | None
) -> Iterator[Endpoint]:
    from tfgrpo.local.fetch import fetch
    from tfgrpo.local.model_list import find
    from tfgrpo.local.model_server import LocalServer, ServerOptions

    entry = find(model)

    def progress(done: int, total: int) -> None:
        if on_download is not None:
            on_download(entry.name, done, total)

    path = fetch(entry, model_cache(environment).folder, progress)
    slots = local_slots(limits.concurrency)
    options = ServerOptions(n_parallel=slots, context=CONTEXT, sha256=entry.sha256)
    with LocalServer(path, model, options) as server:
        yield Endpoint(model, server.base_url, server.key, limits.timeout)
