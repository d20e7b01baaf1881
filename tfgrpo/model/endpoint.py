"""One OpenAI-compatible endpoint: a request in, an answer out, or an error that says what to do.

The client's own retries are off; `client.py` retries, and nothing else does. Servers differ in
what they take: a parameter that one refuses (a JSON schema, a seed, a temperature, the older
name of the token limit) is left out from then on and the request made again, so that a plan is
asked for as a schema wherever that is possible and as JSON in text where it is not.

The key stays in this module. Error texts are scrubbed of it, for servers like to quote it, and so
are answers, where it is long enough to be no word of theirs.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from urllib.parse import urlsplit

from tfgrpo.rendering.templates import Message
from tfgrpo.store.errors import TfgrpoError
from tfgrpo.store.records import Json

if TYPE_CHECKING:
    import openai

LOOPBACK = ("127.0.0.1", "localhost", "::1")
TRANSIENT = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
LIMITS = frozenset({429, 503, 529})
FIRST_TOKENS = 20
"""How many tokens of an answer tell how certain its beginning is (ARPO, arXiv 2507.19849)."""
SECRET = 12
"""Characters from which on a key in an answer is the key: that of a local server may be `x`."""
CONNECT = 20.0
"""Seconds within which a connection has to stand."""


class EndpointError(TfgrpoError):
    """The endpoint cannot serve this run at all: no key, no such model, nobody there."""


class CallFailed(TfgrpoError):
    """This one request cannot be answered, though another might be."""


class Transient(Exception):
    """Worth another try. `after` is what the server asked to wait, in seconds.

    `kind` is `limit` when the server has too much to do, `late` when the time was up, else
    `trouble`.
    """

    def __init__(
        self,
        message: str,
        after: float | None = None,
        kind: Literal["limit", "late", "trouble"] = "trouble",
    ) -> None:
        super().__init__(message)
        self.after = after
        self.kind = kind


class NoTools(CallFailed):
    """The endpoint takes no tools; they can be described in the prompt instead."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a model is asked. `schema` is a JSON schema that the answer should follow.

    `turns` are chat messages that followed the prompt, as the API has them: answers with tool
    calls, and results. `tools` may be called; `top_logprobs` asks how certain the answer is.
    """

    stage: str
    messages: tuple[Message, ...]
    temperature: float
    max_tokens: int
    seed: int | None = None
    schema: Json | None = None
    turns: tuple[Json, ...] = ()
    tools: tuple[Json, ...] = ()
    top_logprobs: int = 0

    def key_fields(self) -> dict[str, object]:
        """Returns the fields that tell requests apart: later ones only where they are used."""
        later = ("turns", "tools", "top_logprobs")
        fields = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in fields.items() if value or name not in later}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model said, and what it took: tokens, and seconds from request to answer.

    `tool_calls` are as the API gave them; `uncertainty` is the mean entropy of the first
    tokens in nats, where it was asked for and is known.
    """

    content: str
    finish_reason: str
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    seconds: float = 0.0
    tool_calls: Sequence[Json] = ()
    uncertainty: float | None = None

    def journal_fields(self) -> dict[str, object]:
        """Returns the answer as the journal keeps it: later fields where they say something."""
        later = ("tool_calls", "uncertainty")
        fields = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in fields.items() if value or name not in later}

    @property
    def truncated(self) -> bool:
        """Whether it was cut off at the token limit."""
        return self.finish_reason == "length"


@dataclass(slots=True)
class Endpoint:
    """A model at an address. `base_url` None means the client's own default."""

    model: str
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    timeout: float = 1800.0
    _client: openai.AsyncOpenAI | None = field(default=None, repr=False)
    _refused: set[str] = field(default_factory=set, repr=False)
    _path: ClassVar[str] = "/chat/completions"

    async def ask(self, request: Request) -> Answer:
        """Makes one request, once.

        Raises Transient when another try may help, CallFailed when this request is at fault,
        EndpointError when every request would fail alike.
        """
        import openai

        client = self._open()
        started = time.monotonic()
        trying: set[str] = set()
        while True:
            arguments = self._arguments(request, self._refused | trying)
            try:
                # The plain verb: the typed one spends much time on what is checked here anyway.
                response = await client.post(self._path, cast_to=object, body=arguments)
                break
            except openai.APIStatusError as error:
                if request.tools and "tool" in error.message.lower() and error.status_code != 429:
                    raise NoTools(f"{self._address} takes no tools") from None
                refused = self._refusal(error, arguments)
                if refused is None:
                    raise self._status_error(error) from None
                trying.add(refused)
            except openai.APITimeoutError as error:
                if type(error.__cause__).__name__ == "ConnectTimeout":
                    raise Transient(
                        f"cannot reach {self._address}: no connection in {CONNECT:g} s"
                    ) from None
                raise Transient(f"no answer in {self.timeout:g} s", kind="late") from None
            except openai.APIConnectionError as error:
                raise Transient(
                    self.scrub(f"cannot reach {self._address}: {_cause(error)}")
                ) from None
            except (
                openai.APIError,
                ValueError,
                TypeError,
                AttributeError,
                RecursionError,
            ) as error:
                raise Transient(self.scrub(f"unreadable answer: {error}"[:300])) from None
        self._refused |= trying  # what was refused is left out from now on, since that helped
        return self._read(response, time.monotonic() - started)

    def _read(self, response: object, seconds: float) -> Answer:
        answer = _answer(response, seconds)
        if self.api_key is None or len(self.api_key) < SECRET:
            return answer
        calls = json.loads(self.scrub(json.dumps(answer.tool_calls)))
        return replace(answer, content=self.scrub(answer.content), tool_calls=tuple(calls))

    async def close(self) -> None:
        """Closes the connections."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    def scrub(self, text: str) -> str:
        """Returns a text without the key in it."""
        return text.replace(self.api_key, "***") if self.api_key else text

    @property
    def _address(self) -> str:
        return self.base_url or "the default endpoint"

    def _open(self) -> openai.AsyncOpenAI:
        if self._client is None:
            import openai

            if self.api_key and not (self.api_key.isascii() and self.api_key.isprintable()):
                raise EndpointError(
                    "the API key contains invalid characters",
                    hint="set it again, without a trailing line break",
                )

            here = urlsplit(self.base_url or "").hostname in LOOPBACK
            timeout = openai.Timeout(self.timeout, connect=min(CONNECT, self.timeout))
            self._client = openai.AsyncOpenAI(
                api_key=self.api_key or "none",
                base_url=self.base_url,
                max_retries=0,
                timeout=timeout,
                # A proxy from the environment has no way to this machine's own loopback.
                http_client=openai.DefaultAsyncHttpxClient(trust_env=False, timeout=timeout)
                if here
                else None,
            )
        return self._client

    def _arguments(self, request: Request, refused: set[str]) -> dict[str, Any]:
        messages: list[dict[str, Any]] = [
            {"role": role, "content": text} for role, text in request.messages
        ]
        messages += map(dict, request.turns)
        arguments: dict[str, Any] = {"model": self.model, "messages": messages}
        limit = "max_completion_tokens" if "max_tokens" in refused else "max_tokens"
        arguments[limit] = request.max_tokens
        arguments["temperature"] = request.temperature
        if request.seed is not None:
            arguments["seed"] = request.seed
        if request.schema is not None:
            if "response_format" in refused:
                messages[-1]["content"] += schema_instruction(request.schema)
            else:
                arguments["response_format"] = {
                    "type": "json_schema",
                    "json_schema": {
                        "name": request.stage,
                        "schema": request.schema,
                        "strict": True,
                    },
                }
        if request.tools:
            arguments["tools"] = list(request.tools)
        if request.top_logprobs:
            arguments |= {"logprobs": True, "top_logprobs": request.top_logprobs}
            if "logprobs" in refused:
                del arguments["top_logprobs"]
        for name in refused - {"max_tokens"}:
            arguments.pop(name, None)
        return arguments

    def _refusal(self, error: openai.APIStatusError, arguments: Mapping[str, Any]) -> str | None:
        """Returns the parameter that the server will not take, if that is what it complains of."""
        if error.status_code not in (400, 422):
            return None
        text = f"{getattr(error, 'param', '')} {error.message}".lower()
        for name, words in (
            ("response_format", ("response_format", "json_schema", "grammar", "guided")),
            ("max_tokens", ("max_tokens",)),
            ("seed", ("seed",)),
            ("temperature", ("temperature",)),
            ("logprobs", ("logprobs",)),
        ):
            if name in arguments and any(word in text for word in words):
                return name
        return None

    def _status_error(self, error: openai.APIStatusError) -> Exception:
        status, text = error.status_code, self.scrub(" ".join(error.message.split()))[:300]
        if status in (401, 403):
            return EndpointError(
                f"{self._address} refused the key: {text}",
                hint="set OPENAI_API_KEY or TFGRPO_API_KEY, or name the variable: --api-key-env",
            )
        if status == 404:
            return EndpointError(
                f"{self._address} has no model {self.model!r}: {text}",
                hint="check --model and --base-url (it usually ends in /v1)",
            )
        if status == 402 or (status == 429 and "quota" in text.lower()):
            return EndpointError(
                f"{self._address} refuses to serve this account: {text}",
                hint="check the account's credit",
            )
        if status in TRANSIENT or status >= 500:
            kind: Literal["limit", "trouble"] = "limit" if status in LIMITS else "trouble"
            return Transient(f"{status}: {text}", _retry_after(error), kind)
        return CallFailed(f"{self._address} refused the request: {status}: {text}")


def schema_instruction(schema: Json) -> str:
    """Returns how a schema is asked for in words, where an endpoint takes none."""
    return f"\n\nAnswer with JSON alone that follows this schema:\n{json.dumps(schema)}"


def _answer(response: object, seconds: float) -> Answer:
    choices = _field(response, "choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = _field(choice, "message")
    if not isinstance(message, dict):
        raise Transient("the answer holds no choices")
    content = _field(message, "content") or _field(message, "refusal") or ""
    if not isinstance(content, str):
        raise Transient("the answer's content is no text")
    usage = _field(response, "usage")
    prompt = _field(usage, "prompt_tokens_details")
    completion = _field(usage, "completion_tokens_details")
    return Answer(
        content=content.encode("utf-8", "replace").decode(),  # half a character cannot be kept
        finish_reason=str(_field(choice, "finish_reason") or "stop"),
        prompt_tokens=_count(usage, "prompt_tokens"),
        cached_tokens=_count(prompt, "cached_tokens"),
        completion_tokens=_count(usage, "completion_tokens"),
        reasoning_tokens=_count(completion, "reasoning_tokens"),
        seconds=seconds,
        tool_calls=tuple(_tool_calls(_field(message, "tool_calls"))),
        uncertainty=_uncertainty(_field(_field(choice, "logprobs"), "content")),
    )


def _tool_calls(calls: object) -> Iterator[Json]:
    """Yields the calls of functions in what may be anything, without what nobody needs."""
    for number, call in enumerate(calls if isinstance(calls, list) else ()):
        function = _field(call, "function")
        name, arguments = _field(function, "name"), _field(function, "arguments")
        if isinstance(name, str):
            text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
            yield {
                "id": str(_field(call, "id") or f"call_{number}"),
                "type": "function",
                "function": {"name": name, "arguments": text.encode("utf-8", "replace").decode()},
            }


def _uncertainty(tokens: object) -> float | None:
    """Returns the mean entropy of the first tokens, over the choices that are listed for each."""
    entropies = []
    for token in tokens[:FIRST_TOKENS] if isinstance(tokens, list) else ():
        alternatives = _field(token, "top_logprobs")
        values = [_field(choice, "logprob") for choice in alternatives or ()]
        probabilities = [math.exp(v) for v in values if isinstance(v, int | float) and v <= 0]
        total = sum(probabilities)
        if total > 0:
            entropies.append(-sum(c / total * math.log(c / total) for c in probabilities if c > 0))
    return sum(entropies) / len(entropies) if entropies else None


def _field(source: object, name: str) -> Any:
    """Returns a field of what may be no object at all."""
    return source.get(name) if isinstance(source, dict) else None


def _count(source: object, name: str) -> int:
    value = _field(source, name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _retry_after(error: openai.APIStatusError) -> float | None:
    """Returns what the server asks to wait, in seconds: RFC 9110 allows a number and a date."""
    headers = error.response.headers
    try:
        if headers.get("retry-after-ms"):
            return _seconds(float(headers["retry-after-ms"]) / 1000)
        return _seconds(float(headers["retry-after"])) if headers.get("retry-after") else None
    except ValueError:
        pass
    try:
        date = parsedate_to_datetime(headers["retry-after"])
    except (KeyError, ValueError, OverflowError):
        return None  # it says nothing that can be read
    date = date if date.tzinfo else date.replace(tzinfo=UTC)
    return _seconds((date - datetime.now(UTC)).total_seconds())


def _seconds(value: float) -> float | None:
    return max(0.0, value) if math.isfinite(value) else None


def _cause(error: BaseException) -> str:
    cause = error.__cause__ or error
    return str(cause) or type(cause).__name__
