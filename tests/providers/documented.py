"""What each provider's documentation says that it takes and does, as stand-ins.

The words of errors are the providers' own, for the product reads them.
"""

from __future__ import annotations

from collections.abc import Mapping

from standins import Body, Refusal, StandIn, limit_of, refuse

Headers = Mapping[str, str]


def openai_reasoning(body: Body, _: Headers) -> None:
    """https://platform.openai.com/docs/guides/reasoning"""
    if "max_tokens" in body:
        refuse(
            400,
            "Unsupported parameter: 'max_tokens' is not supported with this model. "
            "Use 'max_completion_tokens' instead.",
            param="max_tokens",
            code="unsupported_parameter",
        )
    if body.get("temperature", 1) != 1:
        refuse(
            400,
            f"Unsupported value: 'temperature' does not support {body['temperature']} with this "
            "model. Only the default (1) value is supported.",
            param="temperature",
            code="unsupported_value",
        )
    if body.get("reasoning_effort") not in (None, "minimal", "low", "medium", "high"):
        refuse(400, "Invalid value: 'reasoning_effort'", param="reasoning_effort")


def openai_chat(body: Body, _: Headers) -> None:
    """https://platform.openai.com/docs/api-reference/chat"""
    if "reasoning_effort" in body:
        refuse(400, "Unrecognized request argument supplied: reasoning_effort")
    if limit_of(body) > 32_768:
        refuse(
            400,
            f"max_tokens is too large: {limit_of(body)}. This model supports at most 32768 "
            f"completion tokens, whereas you provided {limit_of(body)}.",
            param="max_tokens",
        )


def azure_deployment(body: Body, headers: Headers) -> None:
    """https://learn.microsoft.com/azure/ai-foundry/openai/reference"""
    if "authorization" in headers:  # would be read as a token of Entra
        raise Refusal(401, {"error": {"code": "401", "message": "Access denied due to invalid "
                      "subscription key or wrong API endpoint."}})  # fmt: skip
    openai_chat(body, headers)


def anthropic(body: Body, _: Headers) -> None:
    """https://platform.claude.com/docs/en/api/openai-sdk"""
    if limit_of(body) > 8192:
        refuse(
            400,
            f"max_tokens: {limit_of(body)} > 8192, which is the maximum allowed number of output "
            f"tokens for {body['model']}",
        )


def gemini(body: Body, _: Headers) -> None:
    """https://ai.google.dev/gemini-api/docs/openai"""
    if "seed" in body:  # errors are a list here
        message = 'Invalid JSON payload received. Unknown name "seed": Cannot find field.'
        raise Refusal(400, [{"error": {"code": 400, "message": message}}])


def deepseek(body: Body, _: Headers) -> None:
    """https://api-docs.deepseek.com/api/create-chat-completion"""
    if limit_of(body) > 8192:
        refuse(400, "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]")


def mistral(body: Body, _: Headers) -> None:
    """https://docs.mistral.ai/api"""
    for name in ("seed", "max_completion_tokens", "reasoning_effort"):
        if name in body:
            detail = {"type": "extra_forbidden", "loc": ["body", name],
                      "msg": "Extra inputs are not permitted", "input": body[name]}  # fmt: skip
            raise Refusal(422, {"detail": [detail]})


def openrouter(body: Body, headers: Headers) -> None:
    """https://openrouter.ai/docs/api-reference"""
    if not headers.get("http-referer") or not headers.get("x-title"):
        refuse(400, "the stand-in wants to see the headers of the settings")
    if body.get("provider") != {"require_parameters": True}:
        refuse(400, "the stand-in wants to see the provider of the settings")


def gateway(body: Body, _: Headers) -> None:
    """https://docs.litellm.ai/docs/completion/drop_params"""
    if "seed" in body:
        refuse(
            400,
            "litellm.UnsupportedParamsError: bedrock does not support parameters: ['seed'], for "
            f"model={body['model']}. To drop these, set `litellm.drop_params=True`",
        )


def vllm(body: Body, _: Headers) -> None:
    """https://docs.vllm.ai/en/stable/serving/openai_compatible_server/"""
    if limit_of(body) > 40_000:
        refuse(
            400,
            f"'max_tokens' or 'max_completion_tokens' is too large: {limit_of(body)}. This model's "
            "maximum context length is 40960 tokens and your request has 960 input tokens.",
        )


def corporate(body: Body, headers: Headers) -> None:
    """https://learn.microsoft.com/azure/api-management/api-management-subscriptions"""
    if headers.get("ocp-apim-subscription-key") != "apim-secret-4242":
        raise Refusal(401, {"statusCode": 401, "message": "Access denied due to missing "
                      "subscription key."})  # fmt: skip


STAND_INS = {
    "openai": StandIn(check=openai_chat),
    "openai-reasoning": StandIn(check=openai_reasoning, thinks=900),
    "azure": StandIn(path="/openai/v1", check=openai_chat),
    "azure-deployment": StandIn(
        path="/openai/deployments/my-deployment/chat/completions?api-version=2024-10-21",
        header="api-key",
        check=azure_deployment,
    ),
    "anthropic": StandIn(check=anthropic, schema="ignored", usage="none"),
    "gemini": StandIn(path="/v1beta/openai", check=gemini, thinks=900, usage="total"),
    "deepseek": StandIn(
        path="", check=deepseek, schema="refused", thinks=900, shown="reasoning_content", most=8192
    ),
    "mistral": StandIn(check=mistral, thinks=300, shown="parts", usage="none"),
    "openrouter": StandIn(path="/api/v1", check=openrouter, thinks=500, shown="reasoning"),
    "bedrock": StandIn(
        path="/openai/v1",
        check=gateway,
        schema="ignored",
        thinks=200,
        shown="content",
        tags=("<reasoning>", "</reasoning>"),
        usage="none",
    ),
    "vllm": StandIn(check=vllm, thinks=900, shown="reasoning", usage="none"),
    "llama.cpp": StandIn(thinks=900, shown="reasoning_content", usage="none"),
    "ollama": StandIn(thinks=500, shown="reasoning", usage="none"),
    "sglang": StandIn(thinks=900, shown="content", usage="none"),
    "lmstudio": StandIn(thinks=300, shown="content", tags=("", "</think>"), usage="none"),
    "corporate": StandIn(check=corporate),
}
