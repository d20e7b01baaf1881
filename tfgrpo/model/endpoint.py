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
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from urllib.parse import urlsplit

from tfgrpo.model import response as responses
from tfgrpo.model.response import UnusableBody, UnusableResponse
from tfgrpo.rendering.templates import Message
from tfgrpo.store.errors import TfgrpoError
from tfgrpo.store.records import Json

if TYPE_CHECKING:
    import openai

LOOPBACK = ("127.0.0.1", "localhost", "::1")
TRANSIENT = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
LIMITS = frozenset({429, 503, 529})
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

    `kind` is `limit` when the server has too much to do, `late` when the time was up, `away` when
    nobody is there, else `trouble`. `paid` is what an answer that cannot be used has cost all the
    same.
    """

    def __init__(
        self,
        message: str,
        after: float | None = None,
        kind: Literal["limit", "late", "away", "trouble"] = "trouble",
        paid: Answer | None = None,
    ) -> None:
        super().__init__(message)
        self.after = after
        self.kind = kind
        self.paid = paid


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
    tokens in nats, where it was asked for and is known. `estimated` says that the server told no
    usage, and tokens were counted here.
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
    estimated: bool = False

    def journal_fields(self) -> dict[str, object]:
        """Returns the answer as the journal keeps it: later fields where they say something."""
        later = ("tool_calls", "uncertainty", "estimated")
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
                    reason = f"cannot reach {self._address}: no connection in {CONNECT:g} s"
                    raise Transient(reason, kind="away") from None
                raise late(request, self.timeout) from None
            except UnusableBody as error:
                raise self._unusable(error, request) from None
            except openai.APIConnectionError as error:
                if isinstance(error.__cause__, UnusableBody):  # some versions wrap it
                    raise self._unusable(error.__cause__, request) from None
                reason = self.scrub(f"cannot reach {self._address}: {_cause(error)}")
                raise Transient(reason, kind="away") from None
            except (
                openai.APIError,
                ValueError,
                TypeError,
                AttributeError,
                RecursionError,
            ) as error:
                arrived = getattr(error, "doc", "")  # a JSONDecodeError's
                body = UnusableBody(f"unreadable answer: {error}"[:300], 200, b"")
                raise self._unusable(body, request, str(arrived)) from None
        self._refused |= trying  # what was refused is left out from now on, since that helped
        try:
            return self._read(response, request, time.monotonic() - started)
        except UnusableResponse as error:
            arrived = response if isinstance(response, str) else ""
            paid = _unusable_answer(request, response, arrived)
            raise Transient(self.scrub(str(error)), paid=paid) from None

    def _read(self, response: object, request: Request, seconds: float) -> Answer:
        """Returns the answer that a response holds. Raises UnusableResponse."""
        answer = _answer(response, request, seconds)
        if self.api_key is None or len(self.api_key) < SECRET:
            return answer
        calls = json.loads(self.scrub(json.dumps(answer.tool_calls)))
        return replace(
            answer,
            content=self.scrub(answer.content),
            finish_reason=self.scrub(answer.finish_reason),
            tool_calls=tuple(calls),
        )

    def _unusable(self, error: UnusableBody, request: Request, arrived: str = "") -> Transient:
        """Returns what is raised for a body that cannot be read. If it was an answer's, it is
        paid for: what arrived of it is counted."""
        arrived = arrived or error.body.decode("utf-8", "replace")
        paid = _unusable_answer(request, None, arrived) if error.status < 300 else None
        return Transient(self.scrub(responses.as_text(error)), paid=paid)

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
                # A connection that is kept may hold what answers no request of ours: the next
                # request on it would take that for its answer.
                default_headers={"Connection": "close"},
                http_client=openai.DefaultAsyncHttpxClient(
                    # A proxy from the environment has no way to this machine's own loopback.
                    trust_env=not here,
                    timeout=timeout,
                    event_hooks={"response": [responses.read_body]},
                ),
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
        status = error.status_code
        text = self.scrub(responses.as_text(" ".join(error.message.split())))[:300]
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
        after = responses.wait_of(error.response.headers, text)
        spent = "quota" in f"{error.code} {error.type} {text}".lower() and after is None
        if status == 402 or (status == 429 and spent):
            return EndpointError(
                f"{self._address} refuses to serve this account: {text}",
                hint="check the account's credit",
            )
        if status in TRANSIENT or status >= 500:
            kind: Literal["limit", "trouble"] = "limit" if status in LIMITS else "trouble"
            return Transient(f"{status}: {text}", after, kind)
        return CallFailed(f"{self._address} refused the request: {status}: {text}")


def schema_instruction(schema: Json) -> str:
    """Returns how a schema is asked for in words, where an endpoint takes none."""
    return f"\n\nAnswer with JSON alone that follows this schema:\n{json.dumps(schema)}"


def _cause(error: BaseException) -> str:
    cause = error.__cause__ or error
    return str(cause) or type(cause).__name__


def late(request: Request, seconds: float) -> Transient:
    """Returns the error of a request without an answer in so many seconds: its prompt was read."""
    return Transient(f"no answer in {seconds:g} s", kind="late", paid=_unusable_answer(request))


def _answer(response: object, request: Request, seconds: float) -> Answer:
    """Returns the answer that a response holds. Raises UnusableResponse."""
    choices = responses.field(response, "choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = responses.field(choice, "message")
    if not isinstance(message, dict):
        raise UnusableResponse("the answer holds no choices")
    try:
        content = responses.content_of(message)
        calls = tuple(responses.tool_calls_of(message))
        written = content + "".join(call["function"]["arguments"] for call in calls)
        usage = responses.usage_of(response, prompt_tokens(request), written)
        reason = responses.field(choice, "finish_reason") or "stop"
        return Answer(
            content=content,
            finish_reason=responses.as_text(reason, responses.NAME_LENGTH),
            prompt_tokens=usage.prompt,
            cached_tokens=usage.cached,
            completion_tokens=usage.completion,
            reasoning_tokens=usage.reasoning,
            seconds=seconds,
            tool_calls=calls,
            uncertainty=responses.uncertainty_of(choice),
            estimated=usage.estimated,
        )
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise UnusableResponse(f"unreadable answer: {error}"[:300]) from None


def _unusable_answer(request: Request, response: object = None, arrived: str = "") -> Answer:
    """Returns what a request has cost whose answer cannot be used, as an answer without content."""
    usage = responses.usage_of(response, prompt_tokens(request), arrived)
    return Answer(
        "",
        "unusable",
        usage.prompt,
        usage.cached,
        usage.completion,
        usage.reasoning,
        estimated=usage.estimated,
    )


def prompt_tokens(request: Request) -> int:
    """Returns about how many tokens a request's prompt has, for a server that does not say."""
    text = sum(responses.count_tokens(content) + 4 for _, content in request.messages)
    parts = (*request.turns, *request.tools)
    text += sum(responses.count_tokens(json.dumps(part)) + 4 for part in parts)
    return text + (responses.count_tokens(json.dumps(request.schema)) if request.schema else 0)
