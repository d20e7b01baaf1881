"""What an endpoint can do, found out by asking it about ten times, and not from its name. Nothing
is journalled; what it costs is part of what is found."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tfgrpo.costs.prices import Price
from tfgrpo.model import response as responses
from tfgrpo.model.endpoint import Answer, CallFailed, Endpoint, Request, Transient, prompt_tokens
from tfgrpo.model.providers import Provider, provider_at
from tfgrpo.store.records import Json

CAPITAL = "What is the capital of France? Answer with its name alone."
LETTER = "Which is the capital of France?\nA: Rome\nB: Paris\n\nAnswer with the letter alone."
CITY: Json = {
    "type": "object",
    "additionalProperties": False,
    "required": ["city", "population"],
    "properties": {"city": {"type": "string"}, "population": {"type": "integer"}},
}
WEATHER: Json = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Returns the weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
LONG_LINES = 400
"""Lines of the long prompt: some 6,000 tokens, which is more than Ollama's context by default."""
LOST = 0.9
"""The share of our count from which on a prompt counts as read, where its first word was lost."""
MOST_TOKENS = 16_384
"""The limit that an attempt has by default."""
CONTEXT_NAMES = ("max_model_len", "context_length", "max_context_length", "context_window")
RATES = ("x-ratelimit-limit-requests", "x-ratelimit-limit-tokens")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that an endpoint can do or not: `yes`, `no`, or how, and in what way."""

    name: str
    verdict: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class EndpointReport:
    """What an endpoint can do, and the `settings` for [model] and `prices` (US dollars for a
    million tokens) for [prices]. `dollars` is what the check has cost, None if unknown."""

    model: str
    base_url: str | None
    provider: Provider | None
    findings: tuple[Finding, ...]
    settings: Json
    prices: Json
    calls: int
    prompt_tokens: int
    completion_tokens: int
    dollars: float | None

    def as_json(self) -> Json:
        """The report as JSON."""
        return {
            **{name: getattr(self, name) for name in self.__slots__},
            "provider": self.provider.id if self.provider else None,
            "findings": {
                one.name: {"verdict": one.verdict, "detail": one.detail} for one in self.findings
            },
        }


@dataclass(slots=True)
class _Probe:
    endpoint: Endpoint
    headers: dict[str, str] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)
    calls: int = 0

    async def ask(self, text: str, tokens: int = 2048, **more: Any) -> Answer:
        """Asks once, and once more after passing trouble. Raises CallFailed and EndpointError."""
        request = Request("check", (("user", text),), more.pop("temperature", 0.0), tokens, **more)
        for last in (False, True):
            self.calls += 1
            try:
                answer = await self.endpoint.ask(request)
            except Transient as trouble:
                if last:
                    raise CallFailed(str(trouble)) from None
                await asyncio.sleep(min(trouble.after or 1.0, 20.0))
            else:
                self.answers.append(answer)
                return answer
        raise AssertionError("unreachable")


async def check_endpoint(
    endpoint: Endpoint,
    settings: Json,
    *,
    price: Price | None = None,
    listed: Sequence[Mapping[str, Any]] = (),
    nonce: str = "",
) -> EndpointReport:
    """Asks an endpoint, opened with `settings`, what it can do. `listed` is its list of models,
    `nonce` a word that no prompt before had. Raises EndpointError where it cannot be asked."""
    probe = _Probe(endpoint)
    endpoint.watch = probe.headers.update
    model = endpoint.served or endpoint.model
    findings = [_listed(model, listed)]
    findings += await _answers(probe)
    findings.append(await _tried("schema", _schema, probe))
    findings += await _seed_and_speed(probe)
    findings.append(await _tried("tools", _tools, probe))
    findings.append(await _tried("log probabilities", _logprobs, probe))
    findings += await _long_prompts(probe, nonce)
    entry = next((one for one in listed if one.get("id") == model), {})
    findings.append(_limits(probe, entry))
    prices = _listed_prices(model, entry) if price is None else {}
    findings.append(_price(price, prices))
    dollars = None if price is None else sum(map(price.cost, probe.answers))
    return EndpointReport(
        model=model,
        base_url=endpoint.base_url,
        findings=tuple(findings),
        settings=_advice(probe, settings),
        prices=prices,
        calls=probe.calls,
        prompt_tokens=sum(one.prompt_tokens for one in probe.answers),
        completion_tokens=sum(one.completion_tokens for one in probe.answers),
        dollars=dollars,
        provider=provider_at(endpoint.base_url),
    )


async def _tried(name: str, work: Callable[[_Probe], Awaitable[Finding]], probe: _Probe) -> Finding:
    """A finding; that it cannot be had is one too."""
    try:
        return await work(probe)
    except CallFailed as error:
        return Finding(name, "no", str(error)[:200])


def _listed(model: str, listed: Sequence[Mapping[str, Any]]) -> Finding:
    names = [str(one.get("id")) for one in listed]
    if not names:
        return Finding("list of models", "no", "the server lists none")
    there = model in names or f"models/{model}" in names
    return Finding("list of models", "yes", f"{len(names)}, {model} {'' if there else 'not '}there")


async def _answers(probe: _Probe) -> list[Finding]:
    answer = await probe.ask(CAPITAL, MOST_TOKENS, seed=1)
    text = answer.visible.strip()
    finding = Finding("answers", "yes" if text else "no", repr(text[:60]) if text else "empty")
    if not text and answer.truncated:
        finding = replace(finding, detail="empty: thinking took the whole limit")
    thought = answer.reasoning_tokens
    detail = f"{thought:,} tokens before a one-word answer" if thought else "none seen"
    return [finding, Finding("thinking", "yes" if thought else "no", detail)]


async def _schema(probe: _Probe) -> Finding:
    question = "Name a city in France, and its population."
    adaptation = probe.endpoint.adaptation
    answer = await probe.ask(question, schema=CITY)
    refused = "response_format" in adaptation.refused
    if _is_city(answer.visible):
        if refused:
            return Finding("schema", "in words", "response_format is refused; the prompt says it")
        return Finding("schema", "yes", "response_format is followed")
    if not refused:
        answer = await probe.ask(question, schema=CITY, in_words=True)
        if _is_city(answer.visible):
            detail = "response_format is ignored; the prompt says the schema"
            return Finding("schema", "in words", detail)
    return Finding("schema", "no", f"asked for JSON, it said {answer.visible.strip()[:60]!r}")


def _is_city(text: str) -> bool:
    try:
        value = json.loads(text.strip().removeprefix("```json").strip("`\n "))
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and {"city", "population"} <= value.keys()


async def _seed_and_speed(probe: _Probe) -> list[Finding]:
    text = "Write twenty English words at random, in a line."
    try:
        answers = [await probe.ask(text, temperature=1.0, seed=4242) for _ in range(2)]
    except CallFailed as error:
        return [Finding("seed", "no", str(error)[:200])]
    if "seed" in probe.endpoint.adaptation.refused:
        seed = Finding("seed", "no", "refused; attempts still differ")
    elif answers[0].visible == answers[1].visible:
        seed = Finding("seed", "yes", "the same seed gave the same words")
    else:
        seed = Finding("seed", "no", "the same seed gave other words")
    seconds = sum(one.seconds for one in answers)
    tokens = sum(one.completion_tokens for one in answers)
    speed = f"{tokens / seconds:,.0f} tokens a second" if seconds > 0 else "not known"
    return [seed, Finding("speed", speed, f"one request at a time; {seconds / 2:.2f} s each")]


async def _tools(probe: _Probe) -> Finding:
    text = "What is the weather in Paris? Use the tool."
    answer = await probe.ask(text, tools=(WEATHER,))
    if answer.tool_calls:
        return Finding("tools", "yes", "it called one")
    return Finding("tools", "no", "it called none; agents describe their tools in the prompt")


async def _logprobs(probe: _Probe) -> Finding:
    answer = await probe.ask(LETTER, 1, top_logprobs=20)
    if answer.first_choices:
        count = len(answer.first_choices)
        return Finding("log probabilities", "yes", f"{count} alternatives to the first token")
    if answer.uncertainty is not None:
        return Finding("log probabilities", "yes", "none of the first token")
    return Finding(
        "log probabilities", "no", "`answers = exact` samples, and adaptive branching does without"
    )


async def _long_prompts(probe: _Probe, nonce: str) -> list[Finding]:
    """A long prompt twice: is its beginning read, and is the second time cheaper?"""
    word = f"zebra{nonce}"
    lines = [f"{n}. Sheep number {n} went through the gate at noon." for n in range(LONG_LINES)]
    text = "\n".join(
        [f"The code word is {word}", *lines, "What is the code word? Answer with it alone."]
    )
    counted = prompt_tokens(Request("check", (("user", text),), 0.0, 1))
    try:
        answers = [await probe.ask(text) for _ in range(2)]
    except CallFailed as error:
        short = Finding("long prompts", "no", f"about {counted:,} tokens: {error}"[:200])
        return [short, Finding("caching", "not known")]
    reported = answers[0].prompt_tokens
    if word in answers[0].visible:
        whole = Finding("long prompts", "yes", f"{reported:,} tokens were read to the beginning")
    elif not answers[0].estimated and reported < LOST * counted:
        provider = provider_at(probe.endpoint.base_url)
        ollama = provider is not None and provider.id == "ollama"
        hint = "; OLLAMA_CONTEXT_LENGTH or num_ctx" if ollama else ""
        detail = f"{reported:,} of about {counted:,} tokens were read, and the server gave no error"
        whole = Finding("long prompts", "cut", f"{detail}: enlarge the server's context{hint}")
    else:
        whole = Finding("long prompts", "no", "a word at the beginning was not found")
    cached = max(one.cached_tokens for one in answers)
    detail = f"{cached:,} of {reported:,} tokens the second time" if cached else "none told"
    return [whole, Finding("caching", "yes" if cached else "no", detail)]


def _limits(probe: _Probe, entry: Mapping[str, Any]) -> Finding:
    limits = []
    if probe.endpoint.adaptation.most is not None:
        limits.append(f"answers of at most {probe.endpoint.adaptation.most:,} tokens")
    for name in CONTEXT_NAMES:
        if isinstance(entry.get(name), int):
            limits.append(f"a context of {entry[name]:,} tokens")
            break
    for name in RATES:
        if probe.headers.get(name, "").isdecimal():
            what = name.rpartition("-")[2]
            limits.append(f"{int(probe.headers[name]):,} {what} a minute")
    return Finding("limits", "told" if limits else "none told", ", ".join(limits))


def _listed_prices(model: str, entry: Mapping[str, Any]) -> Json:
    listed = responses.field(entry, "pricing")
    try:
        prompt, completion = (float(responses.field(listed, n)) for n in ("prompt", "completion"))
    except (TypeError, ValueError):
        return {}
    if min(prompt, completion) < 0:
        return {}
    return {model: {"prompt": round(prompt * 1e6, 6), "completion": round(completion * 1e6, 6)}}


def _price(price: Price | None, listed: Json) -> Finding:
    if price is not None:
        text = f"${price.prompt:g} in and ${price.completion:g} out for a million tokens"
        return Finding("price", "known", text)
    for one in listed.values():
        text = f"${one['prompt']:g} in and ${one['completion']:g} out, as its list of models says"
        return Finding("price", "told", text)
    return Finding("price", "unknown", "write it in [prices], or use a budget in tokens")


def _advice(probe: _Probe, settings: Json) -> Json:
    advised = {name: value for name, value in settings.items() if value is not None}
    effort = advised.get("reasoning_effort")
    thought = max((one.reasoning_tokens for one in probe.answers), default=0)
    refused = "reasoning_effort" in probe.endpoint.adaptation.refused
    if refused:
        advised.pop("reasoning_effort", None)
    elif thought and effort is not None:
        advised.setdefault("reflection_reasoning_effort", "low")
    return advised
