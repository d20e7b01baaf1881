"""One OpenAI-compatible endpoint: a request in, an answer out, or an error that says what to do.

`client.py` retries, and nothing else does. A parameter that a server refuses (a JSON schema, a
seed, a temperature) is left out from then on and the request made again. The key stays in this
module: error texts and answers are scrubbed of it.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tfgrpo.model import response as responses
from tfgrpo.model import retried_errors, secrets
from tfgrpo.model import wire_formats as wires
from tfgrpo.model.http_connection import CONNECT, Connection, open_client
from tfgrpo.model.request_adaptation import Adaptation
from tfgrpo.model.response import ARRIVING, UnusableBody, UnusableResponse
from tfgrpo.model.retried_errors import LIMITS, OVERLOADED, TRANSIENT, Refusal
from tfgrpo.rendering.prompt_templates import Message
from tfgrpo.rendering.token_count import count_tokens
from tfgrpo.store.errors import TfgrpoError
from tfgrpo.store.records import Json

if TYPE_CHECKING:
    import openai

LATER = ("tool_calls", "uncertainty", "first_choices", "estimated", "sent", "endpoint", "wire")
"""Fields of an answer that older records lack."""
UNREADABLE = (ValueError, TypeError, AttributeError, RecursionError)
LIMIT_NAMES = ("max_tokens", "max_completion_tokens")
MOST_OUTPUT = (
    re.compile(r"supports at most (\d[\d,]*) completion tokens"),  # OpenAI, Azure
    re.compile(r"range of max_tokens is \[\d+, *(\d[\d,]*)\]"),  # DeepSeek, Qwen
    re.compile(r"max_tokens: \d+ > (\d+), which is the maximum"),  # Anthropic
    re.compile(
        r"max_?output_?tokens\D{0,80}?from 1 \D{0,20}to (\d[\d,]*)", re.IGNORECASE
    ),  # Gemini
    re.compile(r"exceeds the model limit of (\d[\d,]*)"),  # Bedrock
)
TOO_LONG = ("max_tokens", "max_completion_tokens", "maximum context", "context length")
"""What providers say, word for word, of the most tokens that a model's answers may have."""


class EndpointError(TfgrpoError):
    """The endpoint cannot serve this run at all: no key, no such model, nobody there."""


class CallFailed(TfgrpoError):
    """This one request cannot be answered, though another might be."""


class Transient(Exception):
    """Worth another try. `after` is the wait that the server asked for, in seconds, `kind` what is
    wrong, `paid` what an answer that cannot be used has cost."""

    def __init__(
        self,
        message: str,
        after: float | None = None,
        kind: Literal["limit", "late", "silent", "away", "trouble"] = "trouble",
        paid: Answer | None = None,
    ) -> None:
        super().__init__(message)
        self.after = after
        self.kind = kind
        self.paid = paid


class LimitRefused(CallFailed):
    """The request's limit of tokens is more than fits beside its prompt."""


class NoTools(CallFailed):
    """The endpoint takes no tools; they can be described in the prompt instead."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a model is asked. `schema` is a JSON schema that the answer should follow.

    `turns` are chat messages after the prompt, `tools` may be called, `top_logprobs` asks how
    certain the answer is, `in_words` puts the schema into the prompt as well. `wire` is a request
    of a program's own (`route`, `body`, `headers`), sent in the place of all that. `heard`,
    where it is given, is told the answer as far as it has come; it starts anew where the request is
    made again.
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
    in_words: bool = False
    wire: Json | None = None
    heard: Callable[[str], None] | None = field(default=None, compare=False, repr=False)

    def key_fields(self) -> dict[str, object]:
        """The fields that tell requests apart: later ones only where they are used."""
        later = ("turns", "tools", "top_logprobs", "wire")
        how = ("in_words", "heard")
        fields = {name: getattr(self, name) for name in self.__slots__ if name not in how}
        return {name: value for name, value in fields.items() if value or name not in later}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model said, and what it took: tokens, and seconds.

    `uncertainty` is the mean entropy of the first tokens in nats; `first_choices` are the likeliest
    first tokens with log-probabilities. `estimated` tokens were counted here. `sent` is what the
    request was sent with (`Adaptation.sent`), `endpoint` which of several answered.
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
    first_choices: Sequence[Sequence[Any]] = ()
    estimated: bool = False
    sent: Json = field(default_factory=dict, hash=False)
    endpoint: str = ""
    wire: Json = field(default_factory=dict, hash=False)
    """What a program gets whose own request this answers: its `body`, JSON or a stream's text."""

    def journal_fields(self) -> dict[str, object]:
        """The answer as the journal keeps it: later fields where they say something."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in fields.items() if value or name not in LATER}

    @property
    def truncated(self) -> bool:
        """Whether it was cut off at the token limit."""
        return self.finish_reason == "length"

    @property
    def visible(self) -> str:
        """The answer without thinking that a server left before it."""
        return responses.visible(self.content)


@dataclass(frozen=True, slots=True)
class EndpointOptions:
    """What goes with every request to an endpoint. `max_completion_tokens` bounds an answer with
    its thinking; `secrets` are values of `extra_headers` that came from the environment."""

    reasoning_effort: str | None = None
    max_completion_tokens: int | None = None
    extra_body: Json = field(default_factory=dict, hash=False)
    extra_headers: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)


@dataclass(slots=True)
class Endpoint:
    """A model at an address. `base_url` None means the client's own default. `watch` is told the
    headers of every response, and `served` is what the model is called there if not `model`."""

    model: str
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    timeout: float = 1800.0
    options: EndpointOptions = EndpointOptions()
    watch: Callable[[Mapping[str, str]], object] | None = field(default=None, repr=False)
    served: str | None = None
    adaptation: Adaptation = field(init=False, repr=False)
    _client: openai.AsyncOpenAI | None = field(default=None, repr=False)
    _takes_tools: bool = field(default=False, init=False, repr=False)
    _path: ClassVar[str] = "/chat/completions"

    def __post_init__(self) -> None:
        self.adaptation = Adaptation(self.model)
        secrets.withhold(*self._secrets)

    async def ask(self, request: Request) -> Answer:
        """Makes one request, once. Raises Transient when another try may help, CallFailed when this
        request is at fault, EndpointError when every request would fail alike."""
        import openai

        client = self._open()
        started = time.monotonic()
        adaptation = self.adaptation
        trying: set[str] = set()
        response: object = None
        while True:
            arguments = self._arguments(request, adaptation.refused | trying)
            path, options = self._where(request)
            sent = _as_sent(request, arguments)  # by which is counted what a server does not say
            heard = request.heard and wires.ChatWords(request.heard, self._secrets).take
            listening = ARRIVING.set(heard)
            try:
                # The plain verb: the typed one spends much time on what is checked here anyway.
                response = await client.post(path, cast_to=object, body=arguments, options=options)
                failure = wires.failure_in(response)
                if failure is None or not failure.status:
                    break
                refusal = failure
            except openai.APIStatusError as error:
                refusal = retried_errors.refusal_of(error)
            except openai.APITimeoutError as error:
                if type(error.__cause__).__name__ == "ConnectTimeout":
                    reason = f"cannot reach {self._address}: no connection in {CONNECT:g} s"
                    raise Transient(reason, kind="away") from None
                raise late(sent, self.timeout) from None
            except UnusableBody as error:
                raise self._unusable(error, sent) from None
            except openai.APIConnectionError as error:
                if isinstance(error.__cause__, UnusableBody):  # some versions wrap it
                    raise self._unusable(error.__cause__, sent) from None
                cause = error.__cause__ or error
                because = str(cause) or type(cause).__name__
                reason = self.scrub(f"cannot reach {self._address}: {because}")
                if "CERTIFICATE_VERIFY" in reason:
                    reason += "; a company's own authority is named by SSL_CERT_FILE"
                raise Transient(reason, kind="away") from None
            except (openai.APIError, *UNREADABLE) as error:
                arrived = str(getattr(error, "doc", ""))  # a JSONDecodeError's
                reason = (
                    retried_errors.unreadable(self.scrub(arrived)) or f"unreadable answer: {error}"
                )
                body = UnusableBody(reason[:300], 200, b"")
                raise self._unusable(body, sent, arrived) from None
            finally:
                ARRIVING.reset(listening)
            complaint = refusal.text.lower()
            of_tools = (
                "tool" in complaint and "fail" not in complaint and refusal.status not in OVERLOADED
            )
            if request.tools and not self._takes_tools and of_tools:  # and no call has failed
                raise NoTools(f"{self._address} takes no tools")
            if self._learn_limit(refusal, arguments):
                continue
            refused = self._refused_parameter(refusal, arguments)
            if request.wire is not None and (
                refused != "max_tokens" or wires.limit_of(request.wire)
            ):
                refused = None  # what a program wrote is its own
            if refused is None:
                trouble = self._status_error(refusal, path)
                if isinstance(trouble, Transient) and responses.field(response, "usage"):
                    trouble.paid = _unusable_answer(sent, response)
                raise trouble
            trying.add(refused)
        self._leave_out(trying)
        self._takes_tools = self._takes_tools or bool(request.tools)
        try:
            if failure is not None:
                raise UnusableResponse(retried_errors.no_answer(response))
            return self._read(response, sent, time.monotonic() - started)
        except UnusableResponse as error:
            arrived = response if isinstance(response, str) else ""
            paid = _unusable_answer(sent, response, arrived)
            raise Transient(self.scrub(str(error))[:300], paid=paid) from None

    def _leave_out(self, refused: set[str]) -> None:
        adaptation = self.adaptation
        if dropped := sorted(refused - adaptation.refused - {"max_tokens", "response_format"}):
            adaptation.note(f"does not take {', '.join(dropped)}: left out")
        adaptation.refused |= refused

    def _learn_limit(self, refusal: Refusal, arguments: Mapping[str, Any]) -> bool:
        """Takes note of the most tokens that the model's answers may have, where that is what the
        server complains of; returns whether the request asked for more."""
        if refusal.status not in (400, 422):
            return False
        match = next(filter(None, (words.search(refusal.text) for words in MOST_OUTPUT)), None)
        if match is None or set(LIMIT_NAMES) & set(self.options.extra_body or {}):
            return False  # what a user wrote is sent as it is
        most = int(match[1].replace(",", ""))
        limit = max(arguments.get(name, 0) for name in LIMIT_NAMES)
        if not 0 < most < limit:
            return False
        self.adaptation.most = min(most, self.adaptation.most or most)
        self.adaptation.note(f"gives answers of at most {most:,} tokens: limits are kept to that")
        return True

    def _read(self, response: object, request: Request, seconds: float) -> Answer:
        sent = self.adaptation.sent()
        if request.wire is None:
            if request.heard is not None:
                response = wires.completion(wires.CHAT, response)
            response = self._without_secrets(response)
            return replace(_answer(response, request, seconds), sent=sent)
        response = secrets.scrub(response, *(s for s in self._secrets if len(s) >= secrets.LONG))
        read = wires.completion(request.wire["route"], response)
        body = {"body": wires.handed_on(request.wire, response)}
        return replace(_answer(read, request, seconds), sent=sent, wire=body)

    def _where(self, request: Request) -> tuple[str, Any]:
        if request.wire is None:
            return self._path, {}
        more: dict[str, Any] = dict(wires.headers(request.wire, self.api_key))
        if "x-api-key" in more:
            import openai

            more["Authorization"] = openai.Omit()
        return request.wire["route"], {"headers": more}

    def _without_secrets(self, response: object) -> object:
        """A response whose answer holds no secret in any field: taken out before names are cut to
        their length. Log probabilities are numbers, and many. Raises UnusableResponse."""
        choices = responses.field(response, "choices")
        try:
            if not isinstance(response, dict) or not isinstance(choices, list):
                return secrets.scrub(response, *self._secrets)
            long = [secret for secret in self._secrets if len(secret) >= secrets.LONG]
            first = choices[0] if choices and isinstance(choices[0], dict) else {}
            fields = {name: value for name, value in first.items() if name != "logprobs"}
            scrubbed = first | secrets.scrub(fields, *long)
        except RecursionError:
            raise UnusableResponse("unreadable answer: it is nested too deep") from None
        return {**response, "choices": [scrubbed if first else None]} if choices else response

    def _unusable(self, error: UnusableBody, request: Request, arrived: str = "") -> Transient:
        arrived = arrived or error.body.decode("utf-8", "replace")
        paid = _unusable_answer(request, None, arrived) if error.status < 300 else None
        return Transient(self.scrub(responses.as_text(error)), paid=paid)

    async def close(self) -> None:
        """Closes the connections."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    def scrub(self, text: str) -> str:
        """A text without the key, or what else is secret, in it."""
        return secrets.scrub(text, *self._secrets)

    @property
    def _secrets(self) -> list[str]:
        values = {self.api_key or "", *self.options.secrets} - {""}
        return sorted(values, key=len, reverse=True)

    @property
    def _address(self) -> str:
        return self.base_url or "the default endpoint"

    def _open(self) -> openai.AsyncOpenAI:
        if self._client is None:
            if self.api_key and not (self.api_key.isascii() and self.api_key.isprintable()):
                raise EndpointError(
                    "the API key contains invalid characters",
                    hint="set it again, without a trailing line break",
                )
            headers = self.options.extra_headers
            where = Connection(self.base_url, self.api_key, headers, self.watch)
            self._client = open_client(where, self.timeout)
        return self._client

    def _arguments(self, request: Request, refused: set[str]) -> dict[str, Any]:
        if request.wire is not None:
            model, renamed = self.served or self.model, "max_tokens" in refused
            tokens = min(self.adaptation.most or request.max_tokens, request.max_tokens)
            body = wires.arguments(request.wire, model, tokens, renamed=renamed)
            return {**body, **self.options.extra_body}
        messages: list[dict[str, Any]] = [
            {"role": role, "content": text} for role, text in request.messages
        ]
        messages += map(dict, request.turns)
        arguments: dict[str, Any] = {"model": self.served or self.model, "messages": messages}
        limit = "max_completion_tokens" if "max_tokens" in refused else "max_tokens"
        most = self.adaptation.most
        arguments[limit] = min(request.max_tokens, most or request.max_tokens)
        arguments["temperature"] = request.temperature
        if self.options.reasoning_effort is not None:
            arguments["reasoning_effort"] = self.options.reasoning_effort
        if request.seed is not None:
            arguments["seed"] = request.seed
        if request.schema is not None:
            in_words = "response_format" in refused or request.in_words or self.adaptation.in_words
            if in_words and isinstance(messages[-1].get("content"), str):
                messages[-1]["content"] += schema_instruction(request.schema)
            if "response_format" not in refused:
                arguments["response_format"] = response_format(request)
        if request.heard is not None and "stream" not in refused:
            arguments |= {"stream": True, "stream_options": {"include_usage": True}}
        if request.tools:
            arguments["tools"] = list(request.tools)
        if request.top_logprobs:
            arguments |= {"logprobs": True, "top_logprobs": request.top_logprobs}
            if "logprobs" in refused:
                del arguments["top_logprobs"]
        for name in refused - {"max_tokens"}:
            arguments.pop(name, None)
        return {**arguments, **self.options.extra_body}

    def _refused_parameter(self, refusal: Refusal, arguments: Mapping[str, Any]) -> str | None:
        if refusal.status not in (400, 422):
            return None
        text = f"{refusal.param} {refusal.text}".lower()
        for name, words in (
            ("response_format", ("response_format", "json_schema", "grammar", "guided")),
            ("max_tokens", ("max_tokens",)),
            ("reasoning_effort", ("reasoning_effort", "reasoning.effort")),
            ("seed", ("seed",)),
            ("stream", ("stream",)),
            ("temperature", ("temperature",)),
            ("logprobs", ("logprobs",)),
        ):
            sent = name in arguments and name not in self.options.extra_body
            if sent and any(word in text for word in words):
                return name
        return None

    def _status_error(self, refusal: Refusal, path: str = "") -> Exception:
        status = refusal.status
        page = retried_errors.page_of(self.scrub(refusal.body))
        text = page or self.scrub(responses.as_text(" ".join(refusal.text.split())))[:300]
        if page is not None and status in (401, 403, 404, 405):
            key = " and the key" if status in (401, 403) else ""
            return EndpointError(
                f"{self._address} answers with a page and not as an API: {status}: {text}",
                hint=f"check --base-url (it usually ends in /v1){key}",
            )
        if status in (401, 403):
            return EndpointError(
                f"{self._address} refused the key: {text}",
                hint="name the variable with its key: --api-key-env NAME, or set TFGRPO_API_KEY "
                "(OPENAI_API_KEY alone goes only to OpenAI)",
            )
        if status == 404 and path not in ("", self._path):
            return EndpointError(
                f"{self._address} does not answer {path}: {text}",
                hint="the agent speaks another wire format than the endpoint; --base-url names "
                "one that speaks it",
            )
        if status == 404:
            return EndpointError(
                f"{self._address} has no model {self.served or self.model!r}: {text}",
                hint="check --model and --base-url (it usually ends in /v1)",
            )
        after = responses.wait_of(refusal.headers, text)
        spent = "quota" in f"{refusal.code} {refusal.type} {text}".lower() and after is None
        if status == 402 or (status == 429 and spent):
            return EndpointError(
                f"{self._address} refuses to serve this account: {text}",
                hint="check the account's credit",
            )
        if status in TRANSIENT or status >= 500:
            trouble: Literal["limit", "trouble"] = "limit" if status in LIMITS else "trouble"
            return Transient(f"{status}: {text}", after, trouble)
        kind = LimitRefused if any(words in text.lower() for words in TOO_LONG) else CallFailed
        return kind(f"{self._address} refused the request: {status}: {text}")


def response_format(request: Request) -> Json:
    """The field in which a schema is sent."""
    schema = {"name": request.stage, "schema": request.schema, "strict": True}
    return {"type": "json_schema", "json_schema": schema}


def _as_sent(request: Request, arguments: Mapping[str, Any]) -> Request:
    """A request with its schema as it was sent: as one, in words, or as both."""
    if request.schema is None:
        return request
    words = schema_instruction(request.schema)
    in_words = str(arguments["messages"][-1].get("content")).endswith(words)
    return replace(
        request,
        messages=(*request.messages, *([("user", words)] if in_words else [])),
        schema=request.schema if "response_format" in arguments else None,
    )


def schema_instruction(schema: Json) -> str:
    """How a schema is asked for in words, where an endpoint takes none."""
    return f"\n\nAnswer with JSON alone that follows this schema:\n{json.dumps(schema)}"


def late(request: Request, seconds: float) -> Transient:
    """The error of a request without an answer in so many seconds: its prompt was read."""
    return Transient(f"no answer in {seconds:g} s", kind="late", paid=_unusable_answer(request))


def silent(request: Request, seconds: float) -> Transient:
    """The error of a request that an endpoint of several has left without an answer."""
    reason = f"no answer in {seconds:g} s, while others answer"
    return Transient(reason, kind="silent", paid=_unusable_answer(request))


def _answer(response: object, request: Request, seconds: float) -> Answer:
    choices = responses.field(response, "choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = responses.field(choice, "message")
    if not isinstance(message, dict):
        raise UnusableResponse(retried_errors.no_answer(response))
    try:
        content = responses.content_of(message)
        calls = tuple(responses.tool_calls_of(message))
        written = content + "".join(call["function"]["arguments"] for call in calls)
        thought = responses.thinking_of(message)
        usage = responses.usage_of(response, prompt_tokens(request), written, thought)
        reason = responses.field(choice, "finish_reason") or "stop"
        return Answer(
            content=content,
            finish_reason=responses.as_text(reason, responses.NAME_LENGTH),
            seconds=seconds,
            tool_calls=calls,
            uncertainty=responses.uncertainty_of(choice),
            first_choices=responses.first_choices_of(choice) if request.top_logprobs else (),
            **usage._asdict(),
        )
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise UnusableResponse(f"unreadable answer: {error}"[:300]) from None


def _unusable_answer(request: Request, response: object = None, arrived: str = "") -> Answer:
    """What a request has cost whose answer cannot be used, as an answer without content."""
    usage = responses.usage_of(response, prompt_tokens(request), arrived)
    return Answer("", "unusable", **usage._asdict())


def prompt_tokens(request: Request) -> int:
    """About how many tokens a request's prompt has, for a server that does not say."""
    text = sum(count_tokens(content) + 4 for _, content in request.messages)
    own = (request.wire or {}).get("body", {}).get("tools")
    parts = (*request.turns, *request.tools, *([own] if own else ()))
    text += sum(count_tokens(json.dumps(part)) + 4 for part in parts)
    schema = json.dumps(response_format(request)) if request.schema else ""
    return text + count_tokens(schema)
