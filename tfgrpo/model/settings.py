"""Which models are asked, where and how: the settings that endpoints are opened from."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import parse_qsl, urlunsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
)

from tfgrpo.model.http_connection import API_VERSION
from tfgrpo.model.secrets import literal
from tfgrpo.web_address import server_address
from tfgrpo.wording import did_you_mean

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

DEFAULT_MODEL = "local:qwen2.5-coder-1.5b"
FROM_ENVIRONMENT = "env:"
"""What a header's value begins with that is the name of an environment variable."""
MANNER = ("reasoning_effort", "max_completion_tokens", "extra_body", "extra_headers")
"""How a model is asked: each for attempts, and with `reflection_` before it for reflection."""
LATER = (*MANNER, *(f"reflection_{name}" for name in MANNER), "endpoints")
"""Settings that stand in a record only where they are set: older records have none of them."""
SECRET_HEADER = re.compile(r"authorization|cookie|key|token|secret|password", re.IGNORECASE)
HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
OURS = frozenset({"messages", "model", "stream", "n", "tools", "response_format"})
"""Fields of a request that are what it asks, and no manner of asking."""


def error_in_words(error: ErrorDetails) -> str:
    """One of the errors that pydantic found, in a line, after the name of its field."""
    where = ".".join(map(str, error["loc"]))
    return f"{where}: {error['msg'].removeprefix('Value error, ')}".removeprefix(": ")


def first_error(error: ValidationError, shape: type[BaseModel] | None = None) -> str:
    """The first thing that is wrong, in a line, with the field of a `shape` that is meant."""
    first = error.errors()[0]
    return error_in_words(first) + (meant(first, shape, "; ") if shape else "")


def meant(error: ErrorDetails, shape: type[BaseModel], before: str = "", after: str = "") -> str:
    """Which field of a shape, or of those in it, an unknown one means; nothing for other errors."""
    if error["type"] != "extra_forbidden":
        return ""
    schema = shape.model_json_schema()
    shapes = (schema, *schema.get("$defs", {}).values())
    known = {name for one in shapes for name in one.get("properties", ())}
    return did_you_mean(str(error["loc"][-1]), known, before, after)


def _address(url: str) -> str:
    """A user name, password or query in an address could be a secret: it is not kept. The version
    of Azure's interface is none."""
    parts = server_address(url)
    query = {name for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
    if parts.username or parts.password or query - {API_VERSION} or parts.fragment:
        raise ValueError("an address with a password or a query would be kept in the store")
    return urlunsplit(parts)


def _key_variable(name: str) -> str:
    if not re.fullmatch(r"[A-Z_][A-Z0-9_]*", name):
        raise ValueError("this takes the name of an environment variable, never the key")
    return name


Address = Annotated[str, AfterValidator(_address)]
KeyVariable = Annotated[str, AfterValidator(_key_variable)]


def are_settings(**values: object) -> bool:
    """Whether settings take these values."""
    try:
        ModelSettings(**values)  # type: ignore[arg-type]
    except ValidationError:
        return False
    return True


class ModelSettings(BaseModel):
    """Which models are asked, and where.

    `model` attempts problems; `reflection_model` summarises, compares and controls, and is the
    same unless it is named. `local:NAME` is a local model.

    `reasoning_effort`, `extra_body` (fields of the request) and `extra_headers` go with every
    request of an attempt, and `max_completion_tokens` bounds an answer with the thinking before
    it. The settings of those names with `reflection_` before them are for reflection, which takes
    those of attempts where it has none of its own and is asked at the same address.

    With `endpoints` the model is asked at the addresses that the settings file lists as
    [[endpoints]], whichever those are: none of them is part of a record.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    model: str = DEFAULT_MODEL
    """local:NAME, or the name of a model at --base-url."""
    base_url: Address | None = None
    """OpenAI-compatible endpoint, such as http://127.0.0.1:8000/v1."""
    api_key_env: KeyVariable | None = None
    """Environment variable with the API key."""
    reflection_model: str | None = None
    """Reflection model, which reads attempts and judges; by default --model."""
    reflection_base_url: Address | None = None
    """Base URL of the reflection model."""
    reflection_api_key_env: KeyVariable | None = None
    """Environment variable with the reflection model's API key."""
    reasoning_effort: str | None = Field(default=None, min_length=1, max_length=40)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    extra_body: dict[str, Any] | None = None
    extra_headers: dict[str, str] | None = None
    reflection_reasoning_effort: str | None = Field(default=None, min_length=1, max_length=40)
    reflection_max_completion_tokens: int | None = Field(default=None, ge=1)
    reflection_extra_body: dict[str, Any] | None = None
    reflection_extra_headers: dict[str, str] | None = None
    endpoints: bool | None = None

    @property
    def reflects_apart(self) -> bool:
        """Whether reflection asks another model than attempts, elsewhere or in another way."""
        own = (f"reflection_{name}" for name in ("model", "base_url", *MANNER))
        return any(getattr(self, name) is not None for name in own)

    @property
    def reflection_address(self) -> str | None:
        """Where the reflection model is asked."""
        return self.reflection_base_url or self.base_url

    def manner(self, *, reflection: bool = False) -> dict[str, Any]:
        """What is set of how attempts, or reflection, ask, by the names of `MANNER`."""
        shared = not reflection or self.reflection_address == self.base_url
        options = {name: getattr(self, name) for name in MANNER} if shared else {}
        if reflection:
            own = {name: getattr(self, f"reflection_{name}") for name in MANNER}
            options |= {name: value for name, value in own.items() if value is not None}
        return {name: value for name, value in options.items() if value is not None}

    @model_serializer(mode="wrap")
    def _as_before(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = handler(self)
        return {k: v for k, v in values.items() if v is not None or k not in LATER}

    @field_validator("extra_body", "reflection_extra_body")
    @classmethod
    def _no_request(cls, body: dict[str, Any] | None) -> dict[str, Any] | None:
        for name in sorted(OURS & set(body or {})):
            raise ValueError(f"{name} is made here and cannot be given")
        place = literal("extra_body", body)
        if place is not None:
            raise ValueError(
                f"{place} looks like a secret, and would be kept in the store: send it as a "
                'header in extra_headers, with "env:NAME" for its value'
            )
        return body

    @field_validator("extra_headers", "reflection_extra_headers")
    @classmethod
    def _no_secret_headers(cls, headers: dict[str, str] | None) -> dict[str, str] | None:
        """A header's value goes on record: one that could be a secret is named, not given."""
        for name, value in (headers or {}).items():
            if not HEADER_NAME.fullmatch(name) or not (value.isascii() and value.isprintable()):
                raise ValueError(f"{name!r} is no header that can be sent")
            if value.startswith(FROM_ENVIRONMENT):
                if not VARIABLE.fullmatch(value[len(FROM_ENVIRONMENT) :]):
                    raise ValueError(f"{name}: env: takes the name of an environment variable")
            elif SECRET_HEADER.search(name):
                raise ValueError(
                    f"the value of {name} would be kept in the store: "
                    f'write {name} = "env:NAME" and set the variable NAME'
                )
        return headers


class EndpointTable(BaseModel):
    """What one of [[endpoints]] may say."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    base_url: Address
    api_key_env: KeyVariable | None = None
    limit: int | None = Field(default=None, ge=1, le=10_000)
    weight: float = Field(default=1.0, gt=0)
    price: dict[str, float] | None = None
    model: str | None = Field(default=None, min_length=1)
    silence: float = Field(default=300.0, gt=0)
