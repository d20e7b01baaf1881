"""From the name of a model to an endpoint that answers, and back down again.

`local:NAME` fetches the weights when they are missing, serves them from a child process on
loopback, and ends it when the work is done. Any other name is asked for at `base_url`, or at
the `openai` client's own default address.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tfgrpo.model.embeddings import EmbeddingEndpoint
from tfgrpo.model.endpoint import Endpoint, EndpointError
from tfgrpo.model.prices import LOCAL
from tfgrpo.model.throttle import PATIENCE

if TYPE_CHECKING:
    from tfgrpo.local.cache import ModelCache
    from tfgrpo.model.settings import ModelSettings

SLOTS = 8
CONTEXT = 4096
KEYS = ("TFGRPO_API_KEY", "OPENAI_API_KEY")
MODELS_FOLDER = "TFGRPO_MODELS"

Download = Callable[[str, int, int], None]
"""Called while weights are fetched: the model's name, bytes so far, bytes in all."""


@dataclass(frozen=True, slots=True)
class CallLimits:
    """At most `concurrency` requests in flight, each for at most `timeout` seconds.

    An endpoint that gives no answer for `patience` seconds is given up.
    """

    concurrency: int = 128
    timeout: float = 1800.0
    patience: float = PATIENCE


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The policy model and the reflection model, and the limits of asking them.

    `embedding` is there where a model for embeddings is named.
    """

    policy: Endpoint
    reflection: Endpoint
    limits: CallLimits = CallLimits()
    embedding: EmbeddingEndpoint | None = None

    async def close(self) -> None:
        """Closes the connections; the next request opens one anew."""
        for endpoint in {id(e): e for e in (self.policy, self.reflection)}.values():
            await endpoint.close()
        if self.embedding is not None:
            await self.embedding.close()


@contextmanager
def open_endpoints(
    models: ModelSettings,
    limits: CallLimits,
    environment: Mapping[str, str],
    on_download: Download | None = None,
) -> Iterator[Endpoints]:
    """Opens the endpoints that settings name, for as long as the block lasts.

    Keys are read from `environment`. Raises EndpointError or LocalModelError.
    """
    with ExitStack() as stack:
        local: dict[str, Endpoint] = {}

        def endpoint(model: str, base_url: str | None, key_env: str | None) -> Endpoint:
            if not model.startswith(LOCAL):
                key = api_key(environment, key_env, needed=base_url is None)
                return Endpoint(model, base_url, key, limits.timeout)
            if model not in local:
                server = _local_endpoint(model, limits, environment, on_download)
                local[model] = stack.enter_context(server)
            return local[model]

        policy = endpoint(models.model, models.base_url, models.api_key_env)
        reflection = policy
        if models.reflection_model or models.reflection_base_url:
            reflection = endpoint(*_reflection_address(models))
        if local:
            limits = replace(limits, concurrency=min(limits.concurrency, SLOTS))
        yield Endpoints(policy, reflection, limits, _embedding(models, limits, environment))


def check_endpoints(models: ModelSettings, environment: Mapping[str, str]) -> None:
    """Raises what `open_endpoints` would raise for a missing key or an unknown local model."""
    from tfgrpo.local.registry import find

    policy = (models.model, models.base_url, models.api_key_env)
    for model, base_url, key_env in (policy, _reflection_address(models)):
        if model.startswith(LOCAL):
            find(model[len(LOCAL) :])
        else:
            api_key(environment, key_env, needed=base_url is None)
    if models.embedding_model:
        _embedding_key(models, environment)


def _reflection_address(models: ModelSettings) -> tuple[str, str | None, str | None]:
    """Returns the reflection model, its address and its key's variable."""
    return (
        models.reflection_model or models.model,
        models.reflection_base_url or models.base_url,
        models.reflection_api_key_env or models.api_key_env,
    )


def _embedding(
    models: ModelSettings, limits: CallLimits, environment: Mapping[str, str]
) -> EmbeddingEndpoint | None:
    if models.embedding_model is None:
        return None
    key = _embedding_key(models, environment)
    address = models.embedding_base_url or models.base_url
    return EmbeddingEndpoint(models.embedding_model, address, key, limits.timeout)


def _embedding_key(models: ModelSettings, environment: Mapping[str, str]) -> str | None:
    address = models.embedding_base_url or models.base_url
    name = models.embedding_api_key_env or models.api_key_env
    return api_key(environment, name, needed=address is None)


def api_key(environment: Mapping[str, str], name: str | None, *, needed: bool) -> str | None:
    """Returns the key from the named variable, or from the usual ones.

    Raises EndpointError when it is needed and not there.
    """
    if name is not None:
        if not environment.get(name):
            raise EndpointError(f"environment variable {name} is not set", hint=f"export {name}=…")
        return environment[name]
    for usual in KEYS:
        if environment.get(usual):
            return environment[usual]
    if needed:
        raise EndpointError(
            "no API key",
            hint="set OPENAI_API_KEY or TFGRPO_API_KEY, use a server with --base-url, "
            "or use a local model: --model local:qwen2.5-coder-1.5b",
        )
    return None


def model_cache(environment: Mapping[str, str]) -> ModelCache:
    """Returns where the weights of local models are kept."""
    from tfgrpo.local.cache import ModelCache

    named = environment.get(MODELS_FOLDER)
    return ModelCache(Path(named) if named else None)


@contextmanager
def _local_endpoint(
    model: str, limits: CallLimits, environment: Mapping[str, str], on_download: Download | None
) -> Iterator[Endpoint]:
    from tfgrpo.local.fetch import fetch
    from tfgrpo.local.registry import find
    from tfgrpo.local.serve import LocalServer, ServerOptions

    entry = find(model[len(LOCAL) :])

    def progress(done: int, total: int) -> None:
        if on_download is not None:
            on_download(entry.name, done, total)

    path = fetch(entry, model_cache(environment).folder, progress)
    slots = min(limits.concurrency, SLOTS)
    options = ServerOptions(n_parallel=slots, context=CONTEXT, sha256=entry.sha256)
    with LocalServer(path, model, options) as server:
        yield Endpoint(model, server.base_url, server.key, limits.timeout)
