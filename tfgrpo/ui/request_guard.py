"""What stands before every page: which host was asked, from where, by whom; and what a browser
may load.

A page on another site can make a browser ask this server. It cannot set our `Host` and `Origin`
(so a name that was pointed at this machine is refused), cannot read the token in our forms (so a
form of its own is refused), and is not allowed to put our pages in a frame.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tfgrpo.ui.ui_settings import UiSettings, is_loopback
from tfgrpo.ui.visitor_sessions import Sessions

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]+)?")
LOGOUT = "/logout"
OUT = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Logged out · tfgrpo</title>'
    '<link rel="icon" href="/static/icon.svg"><link rel="stylesheet" href="/static/ui.css"></head>'
    "<body><main><h1>You are logged out</h1><p>The address that <code>tfgrpo ui</code> printed logs"
    " you in again.</p></main></body></html>"
)
OPEN = ("/static/",)
"""What needs no login: the scripts and styles of the package."""


class Guard:
    """Lets a request through to the pages, or answers it."""

    def __init__(self, app: ASGIApp, settings: UiSettings, sessions: Sessions) -> None:
        self._app = app
        self._sessions = sessions
        self._settings = settings
        self._hosts = {"127.0.0.1", "localhost", "::1"} | set(settings.names)
        if not is_loopback(settings.host):
            self._hosts.add(settings.host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def headed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self._answer(scope)(scope, receive, headed)

    def _answer(self, scope: Scope) -> ASGIApp:
        connection = HTTPConnection(scope)
        if not self._is_ours(connection.headers.get("host", ""), scope):
            return _refusal(400, "this host name is not this server's")
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return _refusal(405, "only GET, HEAD and POST are answered")
        if scope["path"].startswith(OPEN):
            return self._app
        token = connection.query_params.get("token")
        if token is not None:
            return self._login(connection, token)
        session = self._sessions.of_cookie(connection.cookies.get(cookie(scope), ""))
        if session is None:
            return _refusal(
                401, "log in with the address that `tfgrpo ui` printed: it has your token in it"
            )
        if scope["method"] == "POST" and not _from_here(connection):
            return _refusal(403, "this form was sent from another site")
        if scope["method"] == "POST" and scope["path"] == LOGOUT:
            self._sessions.end(session)
            response = HTMLResponse(OUT)
            response.delete_cookie(cookie(scope), path="/")
            return response
        scope["session"] = session
        return self._app

    def _is_ours(self, host: str, scope: Scope) -> bool:
        match = HOST.fullmatch(host)
        if match is None:
            return False
        name = match[1].strip("[]").lower()
        reached = scope.get("server")
        return name in self._hosts or (
            not is_loopback(self._settings.host) and reached is not None and name == reached[0]
        )

    def _login(self, connection: HTTPConnection, token: str) -> ASGIApp:
        session = self._sessions.begin(token)
        if session is None:
            return _refusal(401, "this token is unknown: each start makes new ones")
        rest = [(k, v) for k, v in connection.query_params.multi_items() if k != "token"]
        path = "/" + connection.url.path.lstrip("/")  # `//host` would lead to another site
        target = path + (f"?{urlencode(rest)}" if rest else "")
        response = RedirectResponse(target, 303)
        response.set_cookie(
            cookie(connection.scope), session.key, httponly=True, samesite="lax", path="/"
        )
        return response


def cookie(scope: Scope) -> str:
    """Returns the cookie's name: browsers do not tell servers on different ports apart."""
    server: Any = scope.get("server") or ("", "")
    return f"tfgrpo-ui-{server[1]}"


def _from_here(connection: HTTPConnection) -> bool:
    headers = connection.headers
    if headers.get("sec-fetch-site", "same-origin") != "same-origin":
        return False
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2] == headers.get("host")


def _refusal(status: int, message: str) -> ASGIApp:
    return PlainTextResponse(message + "\n", status)
