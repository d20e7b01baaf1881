"""What an endpoint's responses say: an answer and what it took, or how long to wait.

A response may be anything. What of it is kept can be written as UTF-8 and added up; what is
missing and can be counted here (tokens) is counted and marked so; the rest is worth another try.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from tfgrpo.rendering.token_count import count_tokens
from tfgrpo.store.records import Json

MOST_BYTES = 64 << 20
"""Bytes of a body that are read: a long answer with its logprobs has a tenth of it."""
MOST_UNPACKED = 16 << 20
"""Bytes of a body that came packed, which may unpack to a thousand times its size."""
PACKINGS = "gzip, deflate"
"""What a body may come packed as."""
MARK = b"\xef\xbb\xbf"
"""The mark of UTF-8 that some servers put before a body."""
MOST_TOKENS = 1_000_000_000
"""A count of tokens beyond this is none: sums of it would fit no column."""
NAME_LENGTH = 256
"""Characters of a name (a reason, an id, a function) that are kept."""
FIRST_TOKENS = 20
"""How many tokens of an answer tell how certain its beginning is (ARPO, arXiv 2507.19849)."""
LONGEST_TOKEN = 8
"""Characters of a token that is kept with its probability: fewer than a secret has."""
WAIT = re.compile(
    r"(?:retry|try again) (?:in|after):? *"
    r"((?:\d+(?:\.\d+)? *(?:ms|h|m|s)[a-z]*[, ]*)+|\d+(?:\.\d+)?)",
    re.IGNORECASE,
)
SPAN = re.compile(r"(\d+(?:\.\d+)?) *(ms|h|m|s|)", re.IGNORECASE)
ARRIVING: ContextVar[Callable[[bytes], None] | None] = ContextVar("arriving", default=None)
"""What is told each part of a body as it arrives: of the requests that the same task makes."""
UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}


class UnusableResponse(Exception):
    """A response that holds no answer; the text says why."""


class UnusableBody(UnusableResponse):
    """A body that could not be read to its end: `body` is what arrived."""

    def __init__(self, message: str, status: int, body: bytes) -> None:
        super().__init__(message)
        self.status = status
        self.body = body


class Tokens(NamedTuple):
    """The tokens of one request; `estimated` where they are counted here, not by the server."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    reasoning_tokens: int
    estimated: bool


class CountedTokens(NamedTuple):
    """Tokens by the provider's count: in, of these from its cache, and out; None where it does not
    say."""

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None


async def read_body(response: Any) -> None:
    """Reads an HTTP response of the client's library to its end, or to `MOST_BYTES`. To be hooked
    in before the client reads. Raises UnusableBody; a timeout is let through."""
    body = bytearray()
    packing = response.headers.get("content-encoding", "identity").lower()
    most = MOST_BYTES if packing == "identity" else MOST_UNPACKED
    unpacking = None if packing == "identity" else zlib.decompressobj(wbits=47)
    tell = ARRIVING.get()
    try:
        async for chunk in response.aiter_raw():
            part = unpacking.decompress(chunk, most + 1 - len(body)) if unpacking else chunk
            body += part
            if tell is not None:
                tell(part)
            if len(body) > most:
                break
    except Exception as error:  # the library's own, of whichever version it is
        if "Timeout" in type(error).__name__:
            raise
        reason = f"the answer broke off: {error or type(error).__name__}"
        raise UnusableBody(reason, response.status_code, bytes(body)) from None
    if len(body) > most:
        await response.aclose()
        reason = f"an answer of more than {most >> 20} MB"
        raise UnusableBody(reason, response.status_code, b"")
    start = body[:64].removeprefix(MARK).lstrip()
    if start.startswith((b"{", b"[")):  # JSON, whatever it is called
        response.headers["content-type"] = "application/json"
    response._content = bytes(body)  # as the library's own `aread` leaves it


def as_text(value: object, length: int | None = None) -> str:
    """A value as text that can be kept: half a character becomes a question mark."""
    return str(value)[:length].encode("utf-8", "replace").decode()


def content_of(message: Mapping[str, Any]) -> str:
    """A message's text, or that of its parts. Raises UnusableResponse where it is neither."""
    content = message.get("content") or message.get("refusal") or ""
    if isinstance(content, str):
        return as_text(content)
    if not isinstance(content, list):
        raise UnusableResponse("the answer's content is no text")
    return as_text("".join(map(_part, content)))


THOUGHT = re.compile(r".*?</(?:think|thinking|reasoning)>\s*", re.DOTALL)
"""Thinking that stands before an answer; some templates open it in the prompt."""
OPENED = re.compile(r"\s*<(?:think|thinking|reasoning)>")
OPENER = re.compile(r"<(?:think|thinking|reasoning)>")


def visible(content: str) -> str:
    """An answer without the thinking before it; nothing where the thinking has no end."""
    thought = _thought_before(content)
    return content[len(thought) :].strip() if thought else content


def _thought_before(content: str) -> str:
    """The thinking that a text begins with; all of it where the thinking has no end."""
    match = THOUGHT.match(content)
    if OPENED.match(content):
        return match[0] if match else content
    return match[0] if match and not OPENER.search(match[0]) else ""


def thinking_of(message: Mapping[str, Any]) -> str:
    """The thinking that a message tells of: in a field, in parts of the content, or before it."""
    for name in ("reasoning_content", "reasoning"):
        if isinstance(message.get(name), str) and message[name]:
            return as_text(message[name])
    content = message.get("content")
    if isinstance(content, str):
        return _thought_before(content)
    parts = content if isinstance(content, list) else ()
    return as_text("".join(map(_thought, parts)))


def _thought(part: object) -> str:
    inner = field(part, "thinking")
    if isinstance(inner, list):
        return "".join(map(_part, filter(lambda one: isinstance(one, dict), inner)))
    return inner if isinstance(inner, str) else ""


def _part(part: object) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        raise UnusableResponse("the answer's content holds what is no part")
    text = part.get("text") or part.get("refusal") or ""
    if isinstance(text, dict):  # as assistants' APIs have it
        text = text.get("value") or ""
    return text if isinstance(text, str) else ""


def tool_calls_of(message: Mapping[str, Any]) -> Iterator[Json]:
    """Yields the calls of functions in a message, without what nobody needs."""
    calls = message.get("tool_calls")
    for number, call in enumerate(calls if isinstance(calls, list) else ()):
        function = field(call, "function")
        name, arguments = field(function, "name"), field(function, "arguments")
        if isinstance(name, str):
            text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
            yield {
                "id": as_text(field(call, "id") or f"call_{number}", NAME_LENGTH),
                "type": "function",
                "function": {"name": as_text(name, NAME_LENGTH), "arguments": as_text(text)},
            }


PROMPT = "prompt_tokens", "input_tokens", "inputTokens", "promptTokenCount"
COMPLETION = "completion_tokens", "output_tokens", "outputTokens", "candidatesTokenCount"
THOUGHTS = "thoughtsTokenCount"
"""What the tokens are called in, out, and out beside those."""
CACHED = (
    *("cache_read_input_tokens", "cacheReadInputTokens", "cachedContentTokenCount"),
    "prompt_cache_hit_tokens",
)
DETAILS = "prompt_tokens_details", "input_tokens_details"
"""What those in that came from a cache are called (the last by DeepSeek), and where OpenAI has
them."""
BESIDE = (
    *("cache_read_input_tokens", "cache_creation_input_tokens"),
    *("cacheReadInputTokens", "cacheWriteInputTokens", "toolUsePromptTokenCount"),
)
"""Tokens in that Anthropic, Bedrock and Gemini count beside the others."""


def counted_tokens(usage: object) -> CountedTokens:
    """The tokens that a usage tells of, in the words of any route."""
    prompt, completion = _first_count(usage, *PROMPT), _first_count(usage, *COMPLETION)
    details = next(filter(None, (field(usage, name) for name in DETAILS)), None)
    cached = _first_count(details, "cached_tokens")
    if cached is None:
        cached = _first_count(usage, *CACHED)
        if prompt is not None and field(usage, "prompt_tokens") is None:
            prompt += sum(_first_count(usage, name) or 0 for name in BESIDE)
    thoughts = _first_count(usage, THOUGHTS)
    if thoughts is not None:
        completion = thoughts + (completion or 0)
    return CountedTokens(prompt, cached, completion)


def _first_count(source: object, *names: str) -> int | None:
    counts = (field(source, name) for name in names)
    return next((one for one in counts if type(one) is int and 0 <= one <= MOST_TOKENS), None)


def usage_of(response: object, prompt: int, answer: str, thought: str = "") -> Tokens:
    """The tokens that a response says it took; where it says none, `prompt`, and what is counted in
    the answer and the thinking before it (`thought`)."""
    usage = field(response, "usage")
    counts = counted_tokens(usage)
    written = count_tokens(answer) + (0 if thought in answer else count_tokens(thought))
    missing = not counts.prompt_tokens or (not counts.completion_tokens and bool(written))
    prompts, completion = counts.prompt_tokens or prompt, counts.completion_tokens or written
    details = field(usage, "completion_tokens_details") or field(usage, "output_tokens_details")
    reasoning = _first_count(details, "reasoning_tokens") or 0
    beyond = (_first_count(usage, "total_tokens") or 0) - prompts - completion
    apart = beyond > 0 and reasoning in (0, beyond)  # as Gemini and Grok count their thinking
    if apart and counts.prompt_tokens and counts.completion_tokens:
        reasoning, completion = beyond, completion + beyond
    elif not reasoning and thought:
        reasoning = min(count_tokens(thought), completion)
    cached = min(counts.cached_tokens or 0, prompts)
    return Tokens(prompts, cached, completion, reasoning, missing)


def uncertainty_of(choice: object) -> float | None:
    """The mean entropy of the first tokens, over the choices that are listed for each."""
    listed = field(field(choice, "logprobs"), "content")
    entropies = []
    for token in listed[:FIRST_TOKENS] if isinstance(listed, list) else ():
        alternatives = field(token, "top_logprobs")
        choices = alternatives if isinstance(alternatives, list) else ()
        values = [field(one, "logprob") for one in choices]
        chances = [math.exp(v) for v in values if isinstance(v, int | float) and v <= 0]
        total = sum(chances)
        if total > 0:
            entropies.append(-sum(c / total * math.log(c / total) for c in chances if c > 0))
    return sum(entropies) / len(entropies) if entropies else None


def first_choices_of(choice: object) -> tuple[tuple[str, float], ...]:
    """The tokens listed for an answer's first place, with log-probabilities, but for long ones."""
    listed = field(field(choice, "logprobs"), "content")
    alternatives = field(listed[0], "top_logprobs") if isinstance(listed, list) and listed else ()
    pairs = []
    for one in alternatives if isinstance(alternatives, list) else ():
        token, value = field(one, "token"), field(one, "logprob")
        number = isinstance(value, int | float) and math.isfinite(value)
        if isinstance(token, str) and len(token) <= LONGEST_TOKEN and number and value <= 0:
            pairs.append((as_text(token), float(value)))
    return tuple(pairs)


def field(source: object, name: str) -> Any:
    """A field of what may be no object at all."""
    return source.get(name) if isinstance(source, dict) else None


def wait_of(headers: Mapping[str, str], text: str) -> float | None:
    """Seconds that the server asks to wait, by its headers (RFC 9110) or its text, or None."""
    try:
        if headers.get("retry-after-ms"):
            return _seconds(float(headers["retry-after-ms"]) / 1000)
        if headers.get("retry-after"):
            return _seconds(float(headers["retry-after"]))
    except ValueError:
        return _until(headers.get("retry-after") or "")
    match = WAIT.search(text)
    if match is None:
        return None
    spans = SPAN.findall(match[1])
    return _seconds(sum(float(number) * UNITS[unit.lower()] for number, unit in spans))


def _until(date: str) -> float | None:
    try:
        at = parsedate_to_datetime(date)
    except (ValueError, OverflowError):
        return None  # it says nothing that can be read
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return _seconds((at - datetime.now(UTC)).total_seconds())


def _seconds(value: float) -> float | None:
    return max(0.0, value) if math.isfinite(value) else None
