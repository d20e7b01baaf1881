"""What a page answers: paths, and the functions behind them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from starlette.responses import Response

    from tfgrpo.ui.page_visit import Visit

Handler: TypeAlias = "Callable[[Visit], Response]"
LiveHandler: TypeAlias = "Callable[[Visit], Awaitable[Response]]"
Method: TypeAlias = Literal["GET", "POST"]


@dataclass(frozen=True, slots=True)
class Route:
    """A path such as `/library/{revision}` and who answers there.

    A GET reads; a POST records something, is refused with `--read-only`, and comes with the
    form's token. `live` answers with a stream and runs on the event loop: it reads the store
    through `Visit.in_store`.
    """

    path: str
    handler: Handler | LiveHandler
    method: Method = "GET"
    live: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """A page: the module that answers, and how the navigation names it (None: it is not there; then
    `under` is the module of the page of the navigation that it belongs to)."""

    module: str
    title: str | None = None
    path: str = ""
    under: str = ""
