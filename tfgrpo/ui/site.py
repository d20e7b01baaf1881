"""The application, the pages of the list behind the guard, and its server."""

from __future__ import annotations

import asyncio
import hmac
import importlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import cast
from urllib.parse import parse_qs, urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.routing import Route as Answered
from starlette.staticfiles import StaticFiles

from tfgrpo.display.graph_layout import HistoryLayout
from tfgrpo.proxy.proxy_settings import listening
from tfgrpo.store.errors import TfgrpoError
from tfgrpo.store.store import Store
from tfgrpo.ui.figure_cache import Memory
from tfgrpo.ui.notifications import Notifier
from tfgrpo.ui.page_visit import BadForm, Handler, LiveHandler, Page, Route, Site, Visit, status_of
from tfgrpo.ui.pages import PAGES
from tfgrpo.ui.request_guard import Guard
from tfgrpo.ui.sortable_tables import FileAsked
from tfgrpo.ui.store_per_thread import Stores
from tfgrpo.ui.template_environment import environment
from tfgrpo.ui.ui_settings import UiSettings
from tfgrpo.ui.visitor_sessions import Session, Sessions

GRACE = 2
"""Seconds that streams and requests under way have when the server stops."""
STATIC = Path(__file__).parent / "static"
MOST_FORM = 4 << 20
"""Bytes of a form: a library that is edited as a whole fits."""
WRITTEN = {"answer", "comment", "content", "correct", "prompt"}
WRITTEN |= {"reason", "system", "text", "texts", "why", "words"}
"""Fields of forms in which people write; so are `text-ID`, `words-ID` and `why-ID`."""
NO_FILE = "what was asked for was not done, or not all of it: look at the file, and try again"


class StaticPart(StaticFiles):
    """The package's own files. A browser asks again each time and is told `not modified`."""

    def file_response(self, *args: object, **kwargs: object) -> Response:
        """Returns a file, to be kept by the browser and checked before each use."""
        response = super().file_response(*args, **kwargs)  # type: ignore[arg-type]
        response.headers["Cache-Control"] = "no-cache"
        return response


def create_site(settings: UiSettings) -> Starlette:
    """Returns the application that shows a store. Raises nothing: a store that cannot be read
    is an error page."""
    stores = Stores(settings.store, content=settings.content)
    navigation = tuple((page.title, page.path) for page in PAGES if page.title)
    layout = HistoryLayout()
    site = Site(settings, stores, environment(), navigation, layout, Memory())
    routes: list[Answered | Mount] = [
        Answered(route.path, _endpoint(site, route, _section(page)), methods=[route.method])
        for page in PAGES
        for route in importlib.import_module(f"tfgrpo.ui.pages.{page.module}").ROUTES
    ]
    routes.append(Mount("/static", GZipMiddleware(StaticPart(directory=STATIC))))

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        def warm(store: Store) -> None:
            """Looks through a long history before the first page asks."""
            with suppress(TfgrpoError):
                layout.rows(store, store.port.last_version(), 1)

        warming = asyncio.create_task(stores.run("unknown", warm))
        notifier = Notifier(stores, settings) if settings.notify else None
        looking = None if notifier is None else asyncio.create_task(notifier.run())
        yield
        if looking is not None:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
        with suppress(TfgrpoError):
            await warming
        stores.close()

    async def missing(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        visit = _visit(site, request)
        if visit is None:
            return Response(f"{error.detail}\n", error.status_code, media_type="text/plain")
        message = "there is no such page" if error.status_code == 404 else str(error.detail)
        return _error_page(visit, TfgrpoError(message), error.status_code)

    sessions = Sessions(settings.logins, settings.readers)
    return Starlette(
        routes=routes,
        middleware=[Middleware(Guard, settings=settings, sessions=sessions)],
        lifespan=lifespan,
        exception_handlers={HTTPException: missing},
    )


def _section(page: Page) -> str:
    return page.path or next(one.path for one in PAGES if one.module == page.under)


def _endpoint(site: Site, route: Route, section: str) -> Callable[[Request], Awaitable[Response]]:
    async def answered(request: Request) -> Response:
        visit = _visit(site, request)
        assert visit is not None, "the guard lets nobody in without a session"
        visit.section = section
        try:
            if route.method == "POST":
                await _read_form(visit)
            if route.live:
                return await cast("LiveHandler", route.handler)(visit)
            return await site.stores.run(visit.who, lambda store: _handled(visit, route, store))
        except FileAsked as file:
            return file.response
        except TfgrpoError as error:
            return _error_page(visit, error, status_of(error))
        except OSError as error:  # such as a disk that is full
            words = f"{error.filename or 'a file'}: {error.strerror or error}"
            return _error_page(visit, TfgrpoError(words, hint=NO_FILE), 503)

    return answered


def _handled(visit: Visit, route: Route, store: Store) -> Response:
    visit.opened = store
    handler = cast("Handler", route.handler)
    if route.method == "POST":
        form = (str(visit.request.url), visit.page, visit.form)
        return visit.session.once(form, lambda: handler(visit)) if visit.page else handler(visit)
    with store.port.reading():  # a page is of one state, whoever commits meanwhile
        return handler(visit)


def _visit(site: Site, request: Request) -> Visit | None:
    session = request.scope.get("session")
    return Visit(site, request, session) if isinstance(session, Session) else None


async def _read_form(visit: Visit) -> None:
    """Reads the fields of a form. Raises BadForm without the token, or where none is taken."""
    if visit.read_only:
        why = "the pages are read-only"
        if visit.session.read_only:
            why = "this login only looks"
        elif not visit.content:
            why = "what was asked and said is not shown here"
        raise BadForm(f"nothing is recorded: {why}")
    body = bytearray()
    async for piece in visit.request.stream():
        body += piece
        if len(body) > MOST_FORM:
            raise BadForm(f"the form is larger than {MOST_FORM >> 20} MB")
    fields = parse_qs(
        bytes(body).decode(errors="replace"), keep_blank_values=True, max_num_fields=10_000
    )
    token, _, visit.page = fields.pop("csrf", [""])[0].partition(".")
    token = visit.request.headers.get("x-csrf", "") or token
    visit.form = fields
    if not hmac.compare_digest(visit.session.csrf.encode(), token.encode(errors="replace")):
        raise BadForm("this form is of another login", hint="reload its page and send it again")


def _error_page(visit: Visit, error: TfgrpoError, status: int) -> Response:
    """Answers with what went wrong and where to go on: to the page that it was asked from, and to
    the one of the navigation that it belongs to; with what was written in a form that was sent."""
    titles = {page.path: page.title for page in PAGES if page.title}
    return visit.render(
        "error.html",
        status,
        error=error,
        title="Error",
        wrote=[
            text
            for name, texts in visit.form.items()
            if name.partition("-")[0] in WRITTEN
            for text in texts
            if text.strip()
        ],
        back=_page_before(visit),
        nearest=(visit.section, titles[visit.section]) if visit.section in titles else None,
    )


def _page_before(visit: Visit) -> str | None:
    """Returns the page of this server from which a request came; None where it is this very
    address, or nothing says so."""
    try:
        came = urlsplit(visit.request.headers.get("referer", ""))
    except ValueError:  # it is no address
        return None
    if came.netloc != visit.request.headers.get("host") or not came.path.startswith("/"):
        return None
    address = "/" + came.path.lstrip("/") + (f"?{came.query}" if came.query else "")
    here = visit.request.url
    same = address == here.path + (f"?{here.query}" if here.query else "")
    return None if same and visit.request.method == "GET" else address


def serve(settings: UiSettings, ready: Callable[[int], None]) -> None:
    """Answers until SIGINT or SIGTERM; `ready` is called with the port before the first request.
    Raises SettingsError where the address cannot be had."""
    import uvicorn  # which an export has no need of

    listener = listening(settings.host, settings.port)
    config = uvicorn.Config(
        create_site(settings),
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE,
    )
    with listener:
        ready(listener.getsockname()[1])
        uvicorn.Server(config).run(sockets=[listener])
