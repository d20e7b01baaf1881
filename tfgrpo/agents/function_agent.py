"""An agent that is a Python function: `run(problem, context)`, `async` or plain.

A plain one runs in a thread of its own. One that takes too long is given up, not stopped: its
address leads nowhere from then on, so it can ask nothing more.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from tfgrpo.agents.context import AgentContext, Attempt, Place
from tfgrpo.data.problems import Problem
from tfgrpo.domains.base import describe_error
from tfgrpo.model.caller_threads import OutOfTime, Threads, is_async
from tfgrpo.model.endpoint import CallFailed
from tfgrpo.model.function_identity import identity
from tfgrpo.store.errors import SettingsError, TfgrpoError

Run: TypeAlias = "Callable[[Problem, AgentContext], str | Attempt | Awaitable[str | Attempt]]"
SHAPE = "async def run(problem, context) -> str"
GIVEN = ("answers",)
"""What of a problem's `meta` are answers, which no agent is told."""


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
        try:
            outcome = await self._threads.call(
                self._function, problem, context, seconds=place.seconds
            )
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
        raise CallFailed(f"the agent {self.name} gave {outcome!r:.80}, and no text or Attempt")


def without_answer(problem: Problem) -> Problem:
    """Returns a problem as an agent is told it."""
    meta = {key: value for key, value in problem.meta.items() if key not in GIVEN}
    return replace(problem, answer="", meta=meta)


def check_shape(function: object, name: str) -> None:
    """Raises SettingsError for what cannot be called with a problem and a context."""
    hint = f"an agent is written `{SHAPE}`"
    if not callable(function) or inspect.isclass(function):
        raise SettingsError(f"the agent {name} is no function", hint=hint)
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        raise SettingsError(
            f"the agent {name} does not take a problem and a context", hint=hint
        ) from None
    except ValueError:  # a built-in one that tells no signature
        return
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise SettingsError(f"the agent {name} is a generator, and gives no answer", hint=hint)


def find_function(spec: str, folders: Sequence[Path]) -> Any:
    """Returns the function that `module:function` names. Modules are looked for in `folders` too,
    which are added to `sys.path`. Raises SettingsError."""
    module, _, attribute = spec.partition(":")
    for folder in map(str, folders):
        if folder not in sys.path:
            sys.path.append(folder)
    try:
        with redirect_stdout(sys.stderr):  # what a module prints is no part of what we print
            target: Any = importlib.import_module(module)
    except (Exception, SystemExit) as error:  # whatever a module of the user's does
        raise SettingsError(
            f"cannot load the agent {spec}: {type(error).__name__}: {error}",
            hint=f"name the module without its ending: {module.removesuffix('.py')}:{attribute}"
            if module.endswith(".py")
            else "write module:function, importable from the current folder",
        ) from None
    for part in attribute.split("."):
        if not hasattr(target, part):
            raise SettingsError(
                f"the module {module} has no {attribute}",
                hint=f"name a function of it: {module}:run, written `{SHAPE}`",
            )
        target = getattr(target, part)
    return target
