"""An agent that is a Python function: `run(problem, context)`, `async` or plain.

A plain one runs in a thread of its own. One that takes too long is given up, not stopped: its
address leads nowhere from then on, so it can ask nothing more.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tfgrpo.agents.gateway import Desk
from tfgrpo.agents.wire_conversation import request_messages
from tfgrpo.data.problems import Problem, without_answer
from tfgrpo.domains.base import describe_error, describe_value
from tfgrpo.domains.conversation import persona_of, reply
from tfgrpo.domains.function import number_of
from tfgrpo.model.caller_functions import OutOfTime, Threads, identity, is_async, takes_two
from tfgrpo.model.endpoint import CallFailed
from tfgrpo.model.response import as_text
from tfgrpo.model.secrets import scrub
from tfgrpo.rendering.prompt_templates import Message
from tfgrpo.rendering.request_placement import INTRODUCTION
from tfgrpo.store.errors import SettingsError, TfgrpoError
from tfgrpo.store.records import Json

if TYPE_CHECKING:
    from tfgrpo.domains.base import Context


@dataclass(frozen=True, slots=True)
class Attempt:
    """What an agent did: its answer, and what else there is to see of it.

    `messages` are chat messages with a `role`, where they did not pass through the gateway, or
    should be told otherwise. `files` are the changes of a workspace, by path. `reward` (0 to 1) and
    `words` count with the reward `agent`; the words are shown to the reflection model.
    """

    response: str
    messages: Sequence[Json] = ()
    files: Json = field(default_factory=dict, hash=False)
    reward: float | None = None
    words: str = ""


def recordable(attempt: Attempt) -> Attempt:
    """Returns an attempt of which all can be recorded: half a character is a question mark, and a
    known secret is taken out. Raises CallFailed for one that no record can hold."""
    reward = attempt.reward
    try:
        if reward is not None and number_of(reward) is None:
            raise TypeError(f"the reward {describe_value(reward)} is no number")
        return Attempt(
            scrub(as_text(attempt.response)),
            request_messages({"messages": scrub(list(attempt.messages))}),
            scrub({as_text(path): as_text(change) for path, change in attempt.files.items()}),
            None if reward is None else number_of(reward),
            scrub(as_text(attempt.words or "")),
        )
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise CallFailed(f"the attempt cannot be recorded: {describe_error(error)}") from None


@dataclass(frozen=True, slots=True)
class AgentContext:
    """What a function gets beside the problem. `openai()` and `anthropic()` are clients of this
    attempt, `base_url` and `api_key` the same for any other client: calls through them have the
    library put in and are counted. `sample` and `seed` (31 bits) tell this attempt from others at
    the problem, `deadline` is when it is given up, in seconds since 1970, and `workspace` its
    folder, if any."""

    base_url: str
    anthropic_url: str
    api_key: str
    model: str
    sample: int
    seed: int
    temperature: float
    max_tokens: int
    deadline: float
    workspace: Path | None
    library: str
    """What of the library this attempt is shown, a line for each experience; empty for none."""
    _context: Context
    _sync: bool

    @property
    def system(self) -> str:
        """The library with the words that introduce it, as a system text; empty for none."""
        return f"{INTRODUCTION}\n{self.library}" if self.library else ""

    @property
    def messages(self) -> list[dict[str, str]]:
        """The prompt of our own loop, as chat messages: the task, the library, the problem."""
        return [{"role": role, "content": text} for role, text in self._context.messages]

    def openai(self, **options: Any) -> Any:
        """Returns a client of OpenAI's, `AsyncOpenAI` for an `async` function. `options` are those
        of the client."""
        import openai

        kind = openai.OpenAI if self._sync else openai.AsyncOpenAI
        return kind(**{"base_url": self.base_url, **self._client(openai), **options})

    def anthropic(self, **options: Any) -> Any:
        """Returns a client of Anthropic's. Raises SettingsError where it is not installed."""
        try:
            import anthropic  # type: ignore[import-not-found,unused-ignore]
        except ImportError:
            raise SettingsError(
                "the client of Anthropic's is not installed", hint="pip install anthropic"
            ) from None
        kind = anthropic.Anthropic if self._sync else anthropic.AsyncAnthropic
        return kind(**{"base_url": self.anthropic_url, **self._client(anthropic), **options})

    def _client(self, package: Any) -> dict[str, Any]:
        """Returns what a client of either package's needs: a proxy of the environment's has no way
        to this machine's own loopback."""
        kind = package.DefaultHttpxClient if self._sync else package.DefaultAsyncHttpxClient
        return {"api_key": self.api_key, "http_client": kind(trust_env=False)}

    async def reply(self, messages: Sequence[Json]) -> str | None:
        """Returns what the problem's `persona` says next in a conversation of chat messages, or
        None when it is done. The reflection model plays it, and hears user and assistant alone.
        Raises SettingsError without a persona, and what a call raises."""
        persona = persona_of(self._context.problem)
        if persona is None or self._sync:
            what = "a function that is `async`" if self._sync else "a persona in the problem's row"
            raise SettingsError(f"reply() needs {what}", hint="see docs/your-agent.md")
        return await reply(self._context, persona, messages)

    def record(
        self,
        answer: str = "",
        *,
        prompt_tokens: int = 0,
        completion_tokens: int = 0,
        cached_tokens: int = 0,
        messages: Sequence[Message] = (),
    ) -> None:
        """Tells of a model's answer that was had elsewhere, as `Context.record` does."""
        self._context.record(
            answer,
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            cached_tokens=cached_tokens,
            messages=messages,
        )


@dataclass(frozen=True, slots=True)
class Place:
    """Where one attempt is made: its place at the gateway, the most seconds that it may take, and
    its workspace, where there is one."""

    desk: Desk
    seconds: float
    workspace: Path | None = None

    def agent_context(self, *, sync: bool) -> AgentContext:
        """Returns what a function gets."""
        desk, context = self.desk, self.desk.context
        return AgentContext(
            base_url=desk.openai_url,
            anthropic_url=desk.base_url,
            api_key=desk.token,
            model=context.calls.endpoint.model,
            sample=context.sample,
            seed=context.seed,
            temperature=context.sampling.temperature,
            max_tokens=context.sampling.max_tokens,
            deadline=time.time() + self.seconds,
            workspace=self.workspace,
            library=desk.shown,
            _context=context,
            _sync=sync,
        )


Run: TypeAlias = "Callable[[Problem, AgentContext], str | Attempt | Awaitable[str | Attempt]]"
SHAPE = "async def run(problem, context) -> str"


class FunctionAgent:
    """Makes attempts by a function. Raises SettingsError for one of another shape."""

    def __init__(self, function: Run, concurrency: int, name: str | None = None) -> None:
        self.name = str(name or getattr(function, "__name__", type(function).__name__))
        check_shape(function, self.name)
        self._function, self._sync = function, not is_async(function)
        self._threads = Threads(concurrency)

    @property
    def identity(self) -> str:
        """A digest of all that decides what the function does, as far as it can be known."""
        return identity(self._function)

    async def run(self, place: Place) -> Attempt:
        """Makes one attempt. Raises CallFailed for one that takes too long, gives no answer or
        raises something else, and TfgrpoError."""
        context = place.agent_context(sync=self._sync)
        problem = without_answer(place.desk.context.problem)
        function = self._call if self._sync else self._function
        try:
            outcome = await self._threads.call(function, problem, context, seconds=place.seconds)
        except OutOfTime:
            raise CallFailed(f"the agent gave no answer in {place.seconds:g} s") from None
        except TfgrpoError:
            raise
        except Exception as error:  # whatever the function does
            raise CallFailed(f"the agent {self.name} raised {describe_error(error)}") from error
        if isinstance(outcome, str):
            return Attempt(outcome)
        if isinstance(outcome, Attempt) and isinstance(outcome.response, str):
            return outcome
        gave = describe_value(outcome)
        raise CallFailed(f"the agent {self.name} gave {gave}, and no text or Attempt")

    def _call(self, problem: Problem, context: AgentContext) -> Any:
        """Calls a plain function. One that only wraps an `async` one gives its coroutine, which has
        not begun yet and is awaited: it needs asynchronous clients."""
        outcome = self._function(problem, context)
        if inspect.isawaitable(outcome):
            object.__setattr__(context, "_sync", False)
        return outcome


def check_shape(function: object, name: str) -> None:
    """Raises SettingsError for what cannot be called with a problem and a context."""
    hint = f"an agent is written `{SHAPE}`"
    if not callable(function) or inspect.isclass(function):
        raise SettingsError(f"the agent {name} is no function", hint=hint)
    if not takes_two(function):
        raise SettingsError(f"the agent {name} does not take a problem and a context", hint=hint)
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise SettingsError(f"the agent {name} is a generator, and gives no answer", hint=hint)
