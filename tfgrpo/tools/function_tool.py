"""A Python function of the caller's as a tool: what it takes is read from its signature.

    def lookup(city: str, limit: int = 3) -> list[str]:
        \"\"\"Lists the museums of a city.\"\"\"

The function runs in this process, in a thread unless it is `async`, and with all of the
program's rights: no sandbox stands around it. What it raises is shown to the model as a failed
call. A thread cannot be ended: a call that takes too long is given up, not stopped.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, get_type_hints

from tfgrpo.model.caller_threads import OutOfTime, Threads
from tfgrpo.store.canonical import digest
from tfgrpo.tools.tool import Arguments, Result, Tool, ToolError, ToolSpec, cut


class FunctionTool(Tool):
    """One function as a tool, for every trajectory: it holds nothing of one."""

    def __init__(self, function: Callable[..., Any], *, seconds: float, characters: int) -> None:
        self._function, self._seconds, self._characters = function, seconds, characters
        self._threads = Threads()
        self._model = _arguments_model(function)
        schema = self._model.model_json_schema()
        schema.pop("title", None)
        text = inspect.getdoc(function) or f"Calls {function.__name__}."
        self.spec = ToolSpec(function.__name__, text, schema)

    @property
    def state(self) -> str:
        """The digest of the function's source where it can be read: another one is asked anew."""
        try:
            source = inspect.getsource(self._function)
        except (OSError, TypeError):
            return ""
        return digest(["tfgrpo.function", source]).hex()[:16]

    async def call(self, arguments: Arguments) -> Result:
        """Calls the function; whatever it raises is a failed result, in words for the model."""
        try:
            checked = self._model.model_validate(dict(arguments))
        except ValueError as error:
            return Result(cut(f"wrong arguments: {error}", self._characters), failed=True)
        values = {name: getattr(checked, name) for name in type(checked).model_fields}
        try:
            value = await self._threads.call(
                partial(self._function, **values), seconds=self._seconds
            )
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        except OutOfTime:
            return Result(f"no result in {self._seconds:g} s", failed=True)
        except (Exception, SystemExit) as error:  # whatever a function of the caller's does
            text = f"{type(error).__name__}: {error}"
            return Result(cut(text, self._characters), failed=True)
        return Result(cut(text, self._characters))


def function_tools(
    functions: Sequence[Callable[..., Any]], *, seconds: float, characters: int
) -> list[FunctionTool]:
    """Functions as tools. Raises ToolError where one is none, or two share a name."""
    tools = [FunctionTool(f, seconds=seconds, characters=characters) for f in functions]
    names = [tool.spec.name for tool in tools]
    for name in names:
        if names.count(name) > 1 or not name.isidentifier():
            raise ToolError(f"{name!r} cannot name a tool", hint="tools need names of their own")
    return tools


def _arguments_model(function: Callable[..., Any]) -> Any:
    from pydantic import ConfigDict, create_model

    name = getattr(function, "__name__", "a tool")
    fields: dict[str, Any] = {}
    try:
        hints = get_type_hints(function)
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError, NameError) as error:
        raise ToolError(
            f"{name} cannot be a tool: {error}", hint="give a Python function"
        ) from None
    for parameter in parameters:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ToolError(
                f"{name} cannot be a tool: it takes *args or **kwargs",
                hint="name every parameter",
            )
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (hints.get(parameter.name, str), default)
    return create_model(name, __config__=ConfigDict(extra="forbid"), **fields)
