"""Pages and their routes, and one request to one: what was asked, of which store, by whom; and what
can be answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar
from urllib.parse import quote, urlencode

from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from tfgrpo.display.graph_layout import HistoryLayout
from tfgrpo.store.errors import (
    AmbiguousRevision,
    StaleVersion,
    StoreError,
    TfgrpoError,
    UnknownRevision,
)
from tfgrpo.store.history.merge import MergeConflict
from tfgrpo.store.history.revisions import BRANCH
from tfgrpo.store.records import Version
from tfgrpo.store.store import Store
from tfgrpo.ui.figure_cache import Memory
from tfgrpo.ui.playground_trials import Trial
from tfgrpo.ui.store_per_thread import Stores
from tfgrpo.ui.ui_settings import UiSettings
from tfgrpo.ui.visitor_sessions import Act, Line, Session
from tfgrpo.ui.watched_runs import WatchedRun

T = TypeVar("T")
DIGITS = 16
"""The digits of a digest in an address that stays: the digest is the same in every clone."""
STATUS: tuple[tuple[type[TfgrpoError], int], ...] = (
    (UnknownRevision, 404),
    (AmbiguousRevision, 404),
    (StaleVersion, 409),
    (MergeConflict, 409),
    (StoreError, 503),
)


def status_of(error: TfgrpoError) -> int:
    return next((status for kind, status in STATUS if isinstance(error, kind)), 400)


def _one_kind_of_break(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def event(name: str, data: str) -> str:
    lines = "".join(f"data: {line}\n" for line in data.splitlines() or [""])
    return f"event: {name}\n{lines}\n"


class BadForm(TfgrpoError):
    """A form or an address that asks for nothing that can be done."""


def as_number(name: str, value: str, default: int) -> int:
    """Returns a number that was typed, from 0 on; the default where nothing was. Raises BadForm for
    what is none."""
    if not value:
        return default
    if not value.isdecimal() or not value.isascii() or len(value) > 12:
        raise BadForm(f"{name} is a number, not {value[:40]!r}")
    return int(value)


@dataclass(frozen=True, slots=True)
class Site:
    settings: UiSettings
    stores: Stores
    templates: Environment
    navigation: Sequence[tuple[str, str]]
    layout: HistoryLayout
    memory: Memory
    trials: dict[str, Trial] = field(default_factory=dict)
    watched: dict[str, WatchedRun] = field(default_factory=dict)


@dataclass(slots=True)
class Visit:
    """One request. `form` has the fields that a POST sent, without the token, `page` how many
    the login had sent when its page was made; `section` is the path of the page of the navigation
    that it belongs to; `at` is that of the page that answers, where a form is shown again that was
    sent elsewhere."""

    site: Site
    request: Request
    session: Session
    form: Mapping[str, Sequence[str]] = field(default_factory=dict)
    page: str = ""
    opened: Store | None = None
    section: str = ""
    at: str = ""
    runs: frozenset[str] | None = None

    @property
    def store(self) -> Store:
        """The store, for as long as the handler runs; a live handler has none."""
        assert self.opened is not None, "a live handler reads with in_store"
        return self.opened

    @property
    def who(self) -> str:
        return self.session.name

    @property
    def read_only(self) -> bool:
        """Whether nothing may be recorded: nobody changes what they may not see."""
        return self.site.settings.read_only or self.session.read_only or not self.content

    @property
    def content(self) -> bool:
        """Whether what was asked and said in attempts and calls may be shown."""
        return self.site.settings.content

    @property
    def is_fragment(self) -> bool:
        return self.request.headers.get("hx-request") == "true"

    def has_run(self, name: str) -> bool:
        """Returns whether a run is here: runs do not travel with the versions that they made."""
        if self.runs is None:
            self.runs = frozenset(run.name for run in self.store.runs.all())
        return name in self.runs

    def require_content(self) -> None:
        """Raises UnknownRevision where what was asked and said may not be shown."""
        if not self.content:
            raise UnknownRevision("what was asked and said is not shown here")

    def path(self, name: str) -> str:
        """Returns a part of the path, such as `revision` of `/library/{revision}`."""
        return str(self.request.path_params[name])

    def query(self, name: str, default: str = "") -> str:
        return str(self.request.query_params.get(name, default))

    def number(self, name: str, default: int, *, most: int = 1_000_000_000) -> int:
        """Returns a number of the query string, from 0 on. Raises BadForm for what is none."""
        return min(as_number(name, self.query(name), default), most)

    def field(self, name: str, default: str = "") -> str:
        values = self.form.get(name, ())
        return values[0] if values else default

    def text(self, name: str, was: str = "") -> str:
        """Returns what stands in a text area of the form: `was`, where nobody changed that. A
        browser has one kind of line break and sends another, which the store has not."""
        value = _one_kind_of_break(self.field(name, was))
        return was if value == _one_kind_of_break(was) else value

    def required(self, name: str, what: str) -> str:
        """Returns a field of the form that must say something. Raises BadForm."""
        value = self.field(name).strip()
        if not value:
            raise BadForm(f"{what} is missing", hint="go back and fill it in")
        return value

    def render(self, template: str, /, status: int = 200, **context: Any) -> HTMLResponse:
        """Returns a template as the answer; every text in it is escaped."""
        notices = list(self.session.notices)
        if not self.is_fragment:
            self.session.notices.clear()
        shared = {
            "visit": self,
            "section": self.section,
            "navigation": self.site.navigation,
            "read_only": self.read_only,
            "csrf": self.session.csrf,
            "notices": notices,
        }
        page = self.site.templates.get_template(template).render(shared | context)
        return HTMLResponse(page, status)

    def done(
        self, path: str, notice: str = "", undo: Act | None = None, *, is_refusal: bool = False
    ) -> RedirectResponse:
        """Returns the way to a page after a form was taken, which shows the notice once, with what
        takes it back; as an error, if it is a refusal."""
        if notice:
            self.session.notices.append(Line(notice, undo, is_refusal))
        return RedirectResponse(path, 303)

    def moved(self, branch: str, version: int | None, path: str) -> Act | None:
        """Returns what takes back that a branch was moved to a version, and then shows a path."""
        log = self.store.port.names.ref_log(BRANCH + branch)
        batch = next((move.batch for move in log if move.version == version), None)
        return None if batch is None else Act("/undo", (("seen", str(batch)), ("back", path)))

    def recorded(
        self, branch: str, version: Version | None, words: str = "", nothing: str = ""
    ) -> RedirectResponse:
        """Returns the way to a branch's library, where `words` say which version was recorded, or
        `nothing` that none was."""
        path = f"/library?at={quote(branch)}"
        if version is None:
            return self.done(path, nothing)
        undo = self.moved(branch, version.number, path)
        return self.done(path, words or f"{version.name}: {version.message}", undo)

    def address(self, **changed: object) -> str:
        """Returns this page's address with other values in its query; None takes one out."""
        query = {k: str(v) for k, v in self.request.query_params.items() if v}
        for name, value in changed.items():
            query.pop(name, None)
            if value not in (None, ""):
                query[name] = str(value)
        return (self.at or self.request.url.path) + (f"?{urlencode(query)}" if query else "")

    async def in_store(self, work: Callable[[Store], T]) -> T:
        """Returns what `work` returns, called with a store in a thread: for a live handler."""
        return await self.site.stores.run(self.who, work)


Handler: TypeAlias = Callable[[Visit], Response]
LiveHandler: TypeAlias = Callable[[Visit], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Route:
    """A path such as `/library/{revision}` and who answers there. A GET reads; a POST records
    something, is refused with `--read-only`, and comes with the form's token. `live` answers with a
    stream and runs on the event loop: it reads the store through `Visit.in_store`."""

    path: str
    handler: Handler | LiveHandler
    method: Literal["GET", "POST"] = "GET"
    live: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """A page: the module that answers, and how the navigation names it (None: it is not there; then
    `under` is the module of the page of the navigation that it belongs to)."""

    module: str
    title: str | None = None
    path: str = ""
    under: str = ""
