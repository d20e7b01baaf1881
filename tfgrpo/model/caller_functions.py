"""Functions of the caller's: what tells one from another, and threads for them that nobody waits
for, so that one that hangs holds up nothing."""

from __future__ import annotations

import asyncio
import contextvars
import copyreg
import functools
import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from tfgrpo.store.canonical import digest

INERT = ("_thread", "_ssl", "_socket", "_contextvars", "weakref", "_asyncio")
"""Modules of things that decide no verdict: locks, connections, references."""
PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...))
NAMED = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_ATTR")
STORED = ("STORE_GLOBAL", "STORE_NAME", "STORE_DEREF", "STORE_ATTR")
WRITING = ("append", "extend", "insert", "add", "update", "setdefault", "pop", "clear", "remove")
"""Methods of lists, dicts and sets that change them."""
_PROCESS = os.urandom(16).hex()
_opaque: dict[int, object] = {}
"""What nothing is known of, by its address: held, so that no other object is taken for it."""


def identity(*functions: object) -> str:
    """A digest of all that decides what functions do, as far as it can be known: code, defaults,
    what they enclose or name in their modules, and an object's class and state.

    What is installed counts by its name, as do its objects with locks or connections. What a
    function itself writes to is left out. What cannot be described is another in every process.
    """
    described = _Description()
    return digest(["tfgrpo.functions", [described.of(one) for one in functions]]).hex()[:16]


def is_of_tfgrpo(function: object) -> bool:
    """Whether a function, or what a partial holds, is a part of this package."""
    while isinstance(function, partial):
        function = function.func
    home = function if isinstance(function, FunctionType | MethodType | type) else type(function)
    return (home.__module__ or "").partition(".")[0] == "tfgrpo"


class _Description:
    def __init__(self) -> None:
        self._known: dict[int, tuple[object, str]] = {}
        self._inert = 0

    def of(self, value: object) -> str:
        """The digest of a value."""
        kind = type(value)
        if kind in PLAIN:
            return _digest([kind.__name__, repr(value)])
        if id(value) in self._known:
            return self._known[id(value)][1]
        self._known[id(value)] = value, "itself"
        result = _digest(self._parts(value))
        self._known[id(value)] = value, result
        return result

    def _parts(self, value: object) -> list[Any]:
        if isinstance(value, ModuleType):
            return ["module", value.__name__]
        if isinstance(value, (FunctionType, type)) and _is_installed(value):
            return ["name", value.__module__, value.__qualname__]
        match value:
            case FunctionType():
                cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
                written = _written(value.__code__)
                enclosed = {name: _content(cell) for name, cell in cells if name not in written}
                defaults = map(self.of, (value.__defaults__, value.__kwdefaults__))
                values = self._mapped(enclosed | self._globals(value, written))
                return ["function", self._code(value.__code__), *defaults, values]
            case MethodType(__func__=FunctionType()) if not isinstance(value.__self__, type):
                owner = self._object(value.__self__, value.__func__)
                return ["method", self.of(value.__func__), owner]
            case MethodType():
                return ["method", self.of(value.__func__), self.of(value.__self__)]
            case BuiltinFunctionType():
                return ["builtin", value.__qualname__, self.of(value.__self__)]
            case partial():
                return ["partial", *map(self.of, (value.func, value.args, value.keywords))]
            case functools._lru_cache_wrapper():  # what it remembers decides nothing
                return ["cached", self.of(value.__wrapped__)]
            case staticmethod() | classmethod():
                return [type(value).__name__, self.of(value.__func__)]
            case property():
                return ["property", self.of(value.fget)]
            case type():
                there = {k: v for k, v in vars(value).items() if _is_written(k, v)}
                bases = [self.of(base) for base in value.__bases__]
                return ["class", value.__qualname__, bases, self._mapped(there)]
            case list() | tuple() if type(value) in (list, tuple):
                return [type(value).__name__, *map(self.of, value)]
            case set() | frozenset() if type(value) in (set, frozenset):
                return [type(value).__name__, *sorted(map(self.of, value))]
            case dict() if type(value) is dict:
                return ["dict", self._mapped(value)]
        return self._object(value, None)

    def _object(self, value: object, method: object) -> list[Any]:
        """Describes an object by what would be pickled of it, without what its method writes."""
        kind, inert = type(value), self._inert
        if kind.__module__ in INERT:
            self._inert += 1
            return ["inert", kind.__qualname__]
        reduce = copyreg.dispatch_table.get(kind)
        try:
            reduced = reduce(value) if reduce is not None else value.__reduce_ex__(4)
        except Exception:  # whatever a class of the caller's does: nothing is known of it then
            _opaque[id(value)] = value
            return ["opaque", kind.__qualname__, _PROCESS, os.getpid(), id(value)]
        if isinstance(reduced, str):
            return ["name", kind.__module__, reduced]
        make, arguments, state, listed, mapped = (*reduced, None, None, None)[:5]
        if isinstance(state, dict):
            written = _written_by(kind, method)
            state = {name: one for name, one in state.items() if name not in written}
        parts = [
            *map(self.of, (make, arguments, state)),
            [self.of(one) for one in listed or ()],
            self._mapped(dict(mapped or ())),
        ]
        if self._inert > inert and _is_installed(kind):  # a client: what it holds changes by use
            return ["name", kind.__module__, kind.__qualname__]
        return ["object", *parts]

    def _mapped(self, mapping: Mapping[Any, object]) -> list[list[str]]:
        return sorted([self.of(key), self.of(value)] for key, value in mapping.items())

    def _code(self, code: CodeType) -> list[Any]:
        constants = [
            self._code(one) if isinstance(one, CodeType) else self.of(one) for one in code.co_consts
        ]
        names = [list(code.co_names), list(code.co_varnames), list(code.co_freevars)]
        return [code.co_code.hex(), code.co_flags, code.co_argcount, names, constants]

    def _globals(self, function: FunctionType, written: set[str]) -> dict[str, object]:
        values: dict[str, object] = {}
        for code in _codes(function.__code__):
            waiting = [("global ", function.__globals__, _global_names(code) - written)]
            while waiting:
                prefix, there, names = waiting.pop()
                for name in sorted(names & there.keys()):  # what refers to itself: in one order
                    value = there[name]
                    if prefix + name in values:
                        continue
                    values[prefix + name] = value
                    if isinstance(value, ModuleType) and not _is_installed(value):
                        waiting.append((f"{prefix}{name}.", vars(value), set(code.co_names)))
        return values


def _digest(parts: list[Any]) -> str:
    return digest(parts).hex()


def _content(cell: Any) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return ...


def _is_written(name: str, value: object) -> bool:
    """Whether an author may have written this of a class, as no machinery has."""
    method = isinstance(value, (FunctionType, staticmethod, classmethod, property))
    return method or not (name.startswith("__") or name == "_abc_impl")


def _codes(code: CodeType) -> list[CodeType]:
    inner = [one for one in code.co_consts if isinstance(one, CodeType)]
    return [code, *(deeper for one in inner for deeper in _codes(one))]


def _global_names(code: CodeType) -> set[str]:
    import dis

    loads = ("LOAD_GLOBAL", "LOAD_NAME")
    return {str(one.argval) for one in dis.get_instructions(code) if one.opname in loads}


def _written_by(kind: type, method: object) -> set[str]:
    written, known = set[str](), list[FunctionType]()
    waiting = [method, getattr(kind, "__call__", None)]  # noqa: B004
    while waiting:
        one = waiting.pop()
        if isinstance(one, FunctionType) and one not in known:
            known.append(one)
            written |= _written(one.__code__)
            names = {name for code in _codes(one.__code__) for name in code.co_names}
            waiting += [getattr(kind, name, None) for name in sorted(names - {"__init__"})]
    return written


def _written(whole: CodeType) -> set[str]:
    """The names of what a function writes to: verdicts must not hang on how often it was called."""
    import dis

    written = set()
    for code in _codes(whole):
        steps = list(dis.get_instructions(code))
        written |= {str(one.argval) for one in steps if one.opname in STORED}
        for one, after, second in zip(steps, steps[1:], [*steps[2:], *steps[-1:]], strict=False):
            method = after.argval in WRITING and after.opname in ("LOAD_METHOD", "LOAD_ATTR")
            entry = after.opname.startswith("LOAD_") and second.opname in ("STORE_SUBSCR", "COPY")
            if one.opname in NAMED and (method or entry):
                written.add(str(one.argval))
    return written


def _is_installed(value: FunctionType | type | ModuleType) -> bool:
    """Whether something came with Python or a package, so that its name says what it is."""
    if isinstance(value, ModuleType):
        name, file = value.__name__, getattr(value, "__file__", None)
    elif isinstance(value, FunctionType):
        name, file = value.__module__ or "", value.__code__.co_filename
    else:
        name = value.__module__
        file = getattr(sys.modules.get(name), "__file__", None)
    package = name.partition(".")[0]
    if package == "tfgrpo" or name in sys.builtin_module_names:
        return True
    if package == "__main__" or file is None:
        return False
    real = os.path.realpath(file)
    packages = {"site-packages", "dist-packages"} & set(real.split(os.sep))
    return bool(packages) or real.startswith(_standard()) or file.startswith("<frozen ")


@functools.cache
def _standard() -> tuple[str, ...]:
    import sysconfig

    home = os.path.realpath(sysconfig.get_path("stdlib"))
    return home + os.sep, f"{home}.zip"


MOST = min(32, (os.cpu_count() or 1) + 4)
"""Functions that run in threads at a time, as many as Python's own pool takes."""


class OutOfTime(Exception):
    """A function took too long. One in a thread is given up, not stopped."""


@contextmanager
def contained() -> Iterator[None]:
    """Has code of the caller's end nothing but itself: an exit, an interrupt or a cancellation of
    its own becomes an Exception of the same name. One from outside goes through: the task that it
    ends is being cancelled, or there is none."""
    try:
        yield
    except Exception:
        raise
    except BaseException as error:
        try:
            task = asyncio.current_task()
        except RuntimeError:
            task = None
        if task is None or task.cancelling():
            raise
        raise _as_exception(error) from error


_call: ContextVar[asyncio.Task[Any] | None] = ContextVar("tfgrpo call", default=None)
"""The task that awaits code of the caller's; tasks that this code starts have it, too."""


@contextmanager
def contained_with_tasks() -> Iterator[None]:
    """Has code of the caller's, and each task that it starts, end nothing but itself."""
    loop = asyncio.get_running_loop()
    if loop.get_task_factory() is None:
        loop.set_task_factory(_make_task)
    token = _call.set(asyncio.current_task())
    try:
        with contained():
            yield
    finally:
        _call.reset(token)


def _make_task(loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> asyncio.Task[Any]:
    context = more.get("context")
    call = _call.get() if context is None else context.get(_call)
    if call is None:
        return asyncio.Task(work, loop=loop, **more)
    task = asyncio.Task(_within(call, work), loop=loop, **more)
    task.add_done_callback(lambda _: work.close())  # which was never begun, if that was not
    return task


async def _within(call: asyncio.Task[Any], work: Any) -> Any:
    try:
        return await work
    except (SystemExit, KeyboardInterrupt) as error:
        if isinstance(error, KeyboardInterrupt) and call.cancelling():
            raise  # it comes from outside
        raise _as_exception(error) from error


def _as_exception(error: BaseException) -> Exception:
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    same_name: type[Exception] = type(type(error).__name__, (Exception,), {})
    return same_name(*error.args)


class Threads:
    """Runs functions of the caller's: plain ones in threads, so many at a time."""

    def __init__(self, most: int = MOST) -> None:
        self._free = asyncio.Semaphore(most)

    async def call(self, function: Callable[..., Any], *arguments: Any, seconds: float) -> Any:
        """What a function gives within `seconds`: an `async` one on the event loop; what a plain
        one returns is awaited if it can be. Raises OutOfTime, and what the function raises, as an
        Exception."""
        on_loop = is_async(function)
        async with nullcontext() if on_loop else self._free:
            limit = asyncio.timeout(seconds)
            try:
                async with limit:
                    with contained_with_tasks():
                        if on_loop:
                            return await function(*arguments)
                        value = await _in_thread(partial(function, *arguments))
                        return await value if inspect.isawaitable(value) else value
            except TimeoutError:
                if limit.expired():
                    raise OutOfTime from None
                raise


def takes_two(function: Callable[..., Any]) -> bool:
    """Whether a function can be called with two values; yes where that is not known."""
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        return False
    except ValueError:  # a built-in one that tells no signature
        return True
    return True


def is_async(function: object) -> bool:
    """Whether what is called is an `async` function, or an object with such a call."""
    call = getattr(type(function), "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


async def _in_thread(function: Callable[[], Any]) -> Any:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    context = contextvars.copy_context()

    def end(value: Any, error: BaseException | None) -> None:
        if not ended.done():
            ended.set_result((value, error))

    def run() -> None:
        value, error = None, None
        try:
            value = context.run(function)
        except BaseException as raised:  # for whoever waits
            error = raised
        with suppress(RuntimeError):  # the loop is closed: it was given up
            loop.call_soon_threadsafe(end, value, error)

    threading.Thread(target=run, name="tfgrpo function", daemon=True).start()
    value, error = await ended
    if error is not None:
        raise _as_exception(error)
    return value
