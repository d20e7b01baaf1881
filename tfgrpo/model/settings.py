"""Which models are asked, and where: the part of the settings that endpoints are opened from."""

from __future__ import annotations

import re
from urllib.parse import urlsplit, urlunsplit

from pydantic import BaseModel, ConfigDict, field_validator

from tfgrpo.model.prices import LOCAL

DEFAULT_MODEL = "local:qwen2.5-coder-1.5b"


class ModelSettings(BaseModel):
    """Which models are asked, and where.

    `model` attempts problems; `reflection_model` summarises, compares and controls, and is the
    same unless it is named. `local:NAME` is a local model. `embedding_model`, where one is
    named, tells which experiences are close in meaning.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = DEFAULT_MODEL
    base_url: str | None = None
    api_key_env: str | None = None
    reflection_model: str | None = None
    reflection_base_url: str | None = None
    reflection_api_key_env: str | None = None
    embedding_model: str | None = None
    embedding_base_url: str | None = None
    embedding_api_key_env: str | None = None

    @field_validator("embedding_model")
    @classmethod
    def _at_an_endpoint(cls, model: str | None) -> str | None:
        if model is not None and model.startswith(LOCAL):
            raise ValueError("local models give no embeddings: set embedding_base_url")
        return model

    @field_validator("base_url", "reflection_base_url", "embedding_base_url")
    @classmethod
    def _without_secrets(cls, url: str | None) -> str | None:
        """A user name, password or query in an address could be a secret: it is not kept."""
        if url is None:
            return None
        parts = urlsplit(url)
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError("an address with a password or a query would be kept in the store")
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ValueError("an address begins with http:// or https://")
        return urlunsplit(parts)

    @field_validator("api_key_env", "reflection_api_key_env", "embedding_api_key_env")
    @classmethod
    def _a_name(cls, name: str | None) -> str | None:
        if name is not None and not re.fullmatch(r"[A-Z_][A-Z0-9_]*", name):
            raise ValueError("this takes the name of an environment variable, never the key")
        return name
