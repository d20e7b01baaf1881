"""The tools of a run: what `[tools]` in `tfgrpo.toml` says (docs/agents.md), opened once, handed to
trajectories."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Self, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from tfgrpo.model.caller_functions import OutOfTime, Threads, identity
from tfgrpo.store.errors import install_hint
from tfgrpo.tools.corpus import Corpus
from tfgrpo.tools.mcp_tools import Server, ServerTools, connected
from tfgrpo.tools.python_tool import Python
from tfgrpo.tools.sandbox import PythonLimits, Sandbox
from tfgrpo.tools.search_and_visit import Search, Visit
from tfgrpo.tools.search_provider import PROVIDERS, Provider, SearchTemplate
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

    @cached_property
    def state(self) -> str:
        """A digest of all that decides what the function does: another one is asked anew."""
        return identity(self._function)

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
        except Exception as error:  # whatever a function of the caller's does
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
                f"{name} cannot be a tool: it takes *args or **kwargs", hint="name every parameter"
            )
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (hints.get(parameter.name, str), default)
    return create_model(name, __config__=ConfigDict(extra="forbid"), **fields)


class ToolSettings(BaseModel):
    """Which tools an agent has. Seconds are per call, `memory` is in MiB, for Python. `functions`
    are the names of Python functions that the caller gives; no file can."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    use: tuple[Literal["python", "search", "visit"], ...] = ("python",)
    sandbox: Sandbox = "auto"
    """Sandbox of an agent's code: the strongest that works here, only bubblewrap, or none
    required."""
    seconds: float = Field(default=10.0, gt=0)
    memory: int = Field(default=1024, ge=64)
    output: int = Field(default=8000, ge=100)
    corpus: str | None = None
    """JSONL file of passages that an agent can search and visit."""
    provider: str | None = None
    search: SearchTemplate | None = None
    results: int = Field(default=5, ge=1, le=50)
    mcp: dict[str, Server] = Field(default_factory=dict)
    functions: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _searchable(self) -> Self:
        ways = [way for way in (self.corpus, self.provider, self.search) if way is not None]
        if len(ways) > 1:
            raise ValueError("search has one of corpus, provider and [tools.search]")
        if "search" in self.use and not ways:
            raise ValueError("search needs a corpus, a provider or a table [tools.search]")
        if self.provider is not None and self.provider not in PROVIDERS:
            raise ValueError(f"there is no provider {self.provider!r}: {', '.join(PROVIDERS)}")
        return self

    @property
    def template(self) -> SearchTemplate | None:
        """How a search provider is asked; None where there is none."""
        return self.search or PROVIDERS.get(self.provider or "")

    @property
    def variables(self) -> set[str]:
        """The environment variables that search and MCP servers are named."""
        template = self.template
        names = set() if template is None else set(template.variables)
        return names.union(*(server.variables for server in self.mcp.values()))


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The tools of a run. `tools()` gives a fresh set to each trajectory."""

    settings: ToolSettings
    corpus: Corpus | None = None
    provider: Provider | None = None
    servers: Sequence[ServerTools] = ()
    functions: Sequence[FunctionTool] = ()

    def tools(self) -> list[Tool]:
        """Tools for one trajectory, which closes each of them when it is done."""
        settings = self.settings
        tools: list[Tool] = []
        for name in settings.use:
            if name == "python":
                limits = PythonLimits(settings.seconds, settings.memory << 20, settings.output)
                tools.append(Python(sandbox=settings.sandbox, limits=limits))
            elif name == "search":
                source = self.provider or self.corpus
                assert source is not None
                tools.append(Search(source, count=settings.results, characters=settings.output))
            else:
                tools.append(Visit(self.corpus, characters=settings.output))
        return [
            *tools,
            *self.functions,
            *(tool for tools_of in self.servers for tool in tools_of(settings.output)),
        ]


@asynccontextmanager
async def opened(
    settings: ToolSettings, folder: Path, functions: Sequence[Callable[..., object]] = ()
) -> AsyncIterator[Toolbox]:
    """Opens what the tools share, for the length of a `with`; paths are relative to `folder`, and
    `functions` those that the settings name. Raises ToolError."""
    given = function_tools(functions, seconds=settings.seconds, characters=settings.output)
    missing = [name for name in settings.functions if name not in {t.spec.name for t in given}]
    if missing:
        raise ToolError(
            f"this run's agent has Python functions as tools: {', '.join(missing)}",
            hint="give them again from Python: tfgrpo.train(resume=…, tools=[…])",
        )
    async with AsyncExitStack() as stack:
        corpus: Corpus | None = None
        provider: Provider | None = None
        if settings.corpus is not None:
            store = folder / ".tfgrpo"
            corpus = await asyncio.to_thread(
                Corpus, folder / settings.corpus, store / "search" if store.is_dir() else None
            )
        elif "visit" in settings.use and find_spec("trafilatura") is None:
            raise ToolError("reading web pages needs a package", hint=install_hint("web"))
        if settings.template is not None:
            provider = Provider(settings.template)
        servers = [
            await stack.enter_async_context(connected(name, server))
            for name, server in settings.mcp.items()
        ]
        yield Toolbox(settings, corpus, provider, servers, given)
