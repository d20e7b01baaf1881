"""The endpoints that people have: how each is set up, and what there is to know of it.

One table for three readers: `docs/models.md` prints a block of settings for each (`python
docs/providers.py` writes them), `keys_by_host.py` knows from it whose key is whose, and
`tests/providers/` runs a small training on a stand-in of each, made after its public
documentation, with these very settings.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tfgrpo.model.http_connection import LOOPBACK, OPENAI_HOST


@dataclass(frozen=True, slots=True)
class Provider:
    """An endpoint that people have.

    `settings` are those of [model] in `tfgrpo.toml`. `key` is the variable that its own
    documentation keeps the key in, empty where it needs none; `hosted` says that its address is
    the provider's own, the same for everybody. `start` starts a server of one's own, or sets the
    environment; `note` is what there is to know, in Markdown, and `source` its documentation.
    """

    id: str
    title: str
    settings: Mapping[str, Any]
    note: str
    source: str
    key: str = ""
    hosted: bool = False
    start: str = ""

    @property
    def base_url(self) -> str | None:
        """Its address; None for OpenAI's."""
        return self.settings.get("base_url")


PROVIDERS = (
    Provider(
        id="openai",
        title="OpenAI",
        settings={"model": "gpt-4.1-mini"},
        key="OPENAI_API_KEY",
        hosted=True,
        note="Schemas, seeds, tools and log probabilities work; long prompts are cached.",
        source="https://platform.openai.com/docs/api-reference/chat",
    ),
    Provider(
        id="openai-reasoning",
        title="OpenAI, reasoning models",
        settings={
            "model": "gpt-5-mini",
            "reasoning_effort": "medium",
            "reflection_reasoning_effort": "low",
            "reflection_max_completion_tokens": 16_384,
        },
        key="OPENAI_API_KEY",
        hosted=True,
        note=(
            "They take no temperature, and `max_completion_tokens` in place of `max_tokens`: both "
            "are found out from the first refusal. Their thinking is not shown, is paid for as "
            "output, and counts towards the limit of tokens."
        ),
        source="https://platform.openai.com/docs/guides/reasoning",
    ),
    Provider(
        id="azure",
        title="Azure OpenAI",
        settings={
            "model": "my-deployment",
            "base_url": "https://my-resource.openai.azure.com/openai/v1",
            "api_key_env": "AZURE_OPENAI_API_KEY",
        },
        key="AZURE_OPENAI_API_KEY",
        note="The model is the name of your deployment.",
        source="https://learn.microsoft.com/azure/ai-foundry/openai/api-version-lifecycle",
    ),
    Provider(
        id="azure-deployment",
        title="Azure OpenAI, addresses with an api-version",
        settings={
            "model": "my-deployment",
            "base_url": "https://my-resource.openai.azure.com/openai/deployments/my-deployment"
            "?api-version=2024-10-21",
            "api_key_env": "AZURE_OPENAI_API_KEY",
        },
        key="AZURE_OPENAI_API_KEY",
        note=(
            "With `?api-version=` in the address, the key goes in the header `api-key`. No other "
            "parameter may stand there, for it could be a secret."
        ),
        source="https://learn.microsoft.com/azure/ai-foundry/openai/reference",
    ),
    Provider(
        id="anthropic",
        title="Anthropic, through its OpenAI-compatible endpoint",
        settings={"model": "claude-sonnet-4-5", "base_url": "https://api.anthropic.com/v1"},
        key="ANTHROPIC_API_KEY",
        hosted=True,
        note=(
            "It ignores `response_format`, `seed` and log probabilities, and caps the temperature "
            "at 1. That its answers do not keep to a schema is found out from the first ones, and "
            "schemas are said in the prompt from then on. Prompts are not cached."
        ),
        source="https://platform.claude.com/docs/en/api/openai-sdk",
    ),
    Provider(
        id="gemini",
        title="Gemini, through its OpenAI-compatible endpoint",
        settings={
            "model": "gemini-2.5-flash",
            "base_url": "https://generativelanguage.googleapis.com/v1beta/openai",
            "reasoning_effort": "low",
        },
        key="GEMINI_API_KEY",
        hosted=True,
        note=(
            "Its thinking counts towards the limit of tokens and, in its usage, towards the total "
            "alone; it is counted as reasoning here, for it is paid for."
        ),
        source="https://ai.google.dev/gemini-api/docs/openai",
    ),
    Provider(
        id="deepseek",
        title="DeepSeek",
        settings={"model": "deepseek-reasoner", "base_url": "https://api.deepseek.com"},
        key="DEEPSEEK_API_KEY",
        hosted=True,
        note=(
            "It refuses schemas, so they are said in the prompt. The reasoner ignores temperature "
            "and seed; its thinking (`reasoning_content`) is not part of the answer."
        ),
        source="https://api-docs.deepseek.com/guides/reasoning_model",
    ),
    Provider(
        id="mistral",
        title="Mistral",
        settings={"model": "mistral-small-latest", "base_url": "https://api.mistral.ai/v1"},
        key="MISTRAL_API_KEY",
        hosted=True,
        note=(
            "It refuses `seed`, which is left out (its own name for it is `random_seed`). The "
            "thinking of Magistral models stands in parts of their answers, and is not read as "
            "the answer."
        ),
        source="https://docs.mistral.ai/api",
    ),
    Provider(
        id="openrouter",
        title="OpenRouter",
        settings={
            "model": "qwen/qwen3-32b",
            "base_url": "https://openrouter.ai/api/v1",
            "extra_headers": {"HTTP-Referer": "https://example.com", "X-Title": "tfgrpo"},
            "extra_body": {"provider": {"require_parameters": True}},
        },
        key="OPENROUTER_API_KEY",
        hosted=True,
        note=(
            "`provider` chooses who serves the model. With `require_parameters` only those do that "
            "take every parameter, a schema among them; without it, a schema may be ignored."
        ),
        source="https://openrouter.ai/docs/guides/routing/provider-selection",
    ),
    Provider(
        id="bedrock",
        title="Amazon Bedrock, or a gateway before it",
        settings={
            "model": "openai.gpt-oss-20b-1:0",
            "base_url": "https://gateway.example.com/openai/v1",
            "api_key_env": "AWS_BEARER_TOKEN_BEDROCK",
        },
        key="AWS_BEARER_TOKEN_BEDROCK",
        note=(
            "Bedrock's own address is `https://bedrock-runtime.REGION.amazonaws.com/openai/v1`. "
            "A gateway, such as LiteLLM's, may refuse `seed` and schemas for some models. Thinking "
            "that it leaves before an answer, in `<reasoning>`, is not read as the answer."
        ),
        source="https://docs.aws.amazon.com/bedrock/latest/userguide/inference-chat-completions.html",
    ),
    Provider(
        id="vllm",
        title="vLLM",
        settings={
            "model": "Qwen/Qwen3-8B",
            "base_url": "http://127.0.0.1:8000/v1",
            "reflection_extra_body": {"chat_template_kwargs": {"enable_thinking": False}},
        },
        start="vllm serve Qwen/Qwen3-8B --reasoning-parser qwen3",
        note=(
            "Schemas are decoded under (guided decoding). Here attempts think, and reflection does "
            "not. Without `--reasoning-parser` the thinking stands before the answer, in "
            "`<think>`, and is not read as the answer."
        ),
        source="https://docs.vllm.ai/en/stable/features/reasoning_outputs/",
    ),
    Provider(
        id="llama.cpp",
        title="llama.cpp",
        settings={"model": "any", "base_url": "http://127.0.0.1:8080/v1"},
        start="llama-server -m model.gguf -c 65536 -np 8 --jinja",
        note="`-c` is shared by the slots of `-np`: here each has 8,192 tokens. Use "
        "`--concurrency 8`, one for each slot.",
        source="https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md",
    ),
    Provider(
        id="ollama",
        title="Ollama",
        settings={"model": "qwen3:8b", "base_url": "http://127.0.0.1:11434/v1"},
        start="OLLAMA_CONTEXT_LENGTH=32768 ollama serve",
        note=(
            "Its context is 4,096 tokens unless `OLLAMA_CONTEXT_LENGTH`, or `num_ctx` in a "
            "Modelfile, says otherwise, and what does not fit of a prompt is cut off **without a "
            "word**: the library at its beginning first. A run warns when a prompt was counted far "
            "shorter than it is, and `tfgrpo model check` tries it."
        ),
        source="https://docs.ollama.com/context-length",
    ),
    Provider(
        id="sglang",
        title="SGLang",
        settings={
            "model": "Qwen/Qwen3-8B",
            "base_url": "http://127.0.0.1:30000/v1",
            "reflection_extra_body": {"chat_template_kwargs": {"enable_thinking": False}},
        },
        start="python -m sglang.launch_server --model-path Qwen/Qwen3-8B --port 30000 "
        "--reasoning-parser qwen3",
        note="Schemas are decoded under; with a reasoning parser, only after the thinking.",
        source="https://docs.sglang.io/docs/advanced_features/separate_reasoning",
    ),
    Provider(
        id="lmstudio",
        title="LM Studio",
        settings={"model": "qwen/qwen3-8b", "base_url": "http://127.0.0.1:1234/v1"},
        start="lms server start --port 1234",
        note="Schemas work for models of 7B and more. The context is set where the model is "
        "loaded: `lms load MODEL --context-length 32768`.",
        source="https://lmstudio.ai/docs/advanced/structured-output",
    ),
    Provider(
        id="corporate",
        title="A company's gateway, proxy and certificates",
        settings={
            "model": "gpt-4.1-mini",
            "base_url": "https://llm.example.com/v1",
            "api_key_env": "GATEWAY_API_KEY",
            "extra_headers": {"Ocp-Apim-Subscription-Key": "env:APIM_KEY"},
        },
        key="GATEWAY_API_KEY",
        start="export HTTPS_PROXY=http://proxy.example.com:3128 SSL_CERT_FILE=/etc/ssl/company.pem",
        note=(
            "A proxy comes from `HTTPS_PROXY` (and `NO_PROXY`), authorities that sign certificates "
            "from `SSL_CERT_FILE`, `SSL_CERT_DIR` or `REQUESTS_CA_BUNDLE`. A header that is secret "
            "is named, never given: `env:APIM_KEY` is the variable `APIM_KEY`."
        ),
        source="https://www.python-httpx.org/environment_variables/",
    ),
)


def provider_at(base_url: str | None) -> Provider | None:
    """The provider whose address this is: by its host, or on this machine by its port."""
    try:
        parts = urlsplit(base_url or f"https://{OPENAI_HOST}")
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    for provider in PROVIDERS:
        known = urlsplit(provider.base_url or f"https://{OPENAI_HOST}")
        if known.hostname in LOOPBACK:
            if host in LOOPBACK and port == known.port:
                return provider
        elif provider.hosted and host == known.hostname:
            return provider
    return None


def settings_toml(settings: Mapping[str, Any], table: str = "model") -> str:
    """Settings as a table of `tfgrpo.toml`."""
    lines = [f"[{table}]", *(f"{_name(k)} = {_toml(value)}" for k, value in settings.items())]
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_name(name)} = {_toml(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _name(name: str) -> str:
    bare = name.replace("_", "").replace("-", "").isalnum() and name.isascii()
    return name if bare else json.dumps(name)


def markdown(provider: Provider) -> str:
    """A provider's part of `docs/models.md`."""
    lines = [f"### {provider.title}", ""]
    commands = [provider.start] if provider.start else []
    commands += [f"export {provider.key}=…"] if provider.key else []
    if commands:
        lines += ["```console", *(f"$ {command}" for command in commands), "```", ""]
    lines += ["```toml", settings_toml(provider.settings).rstrip(), "```", ""]
    lines += [f"{provider.note} ([documentation]({provider.source}))", ""]
    return "\n".join(lines)
