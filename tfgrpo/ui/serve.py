"""The server of the pages, until it is told to stop."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn

from tfgrpo.store.errors import SettingsError
from tfgrpo.ui.site import create_site
from tfgrpo.ui.ui_settings import UiSettings

GRACE = 2
"""Seconds that streams and requests under way have when the server stops."""


def serve(settings: UiSettings, ready: Callable[[int], None]) -> None:
    """Answers until SIGINT or SIGTERM; `ready` is called with the port before the first request.

    Raises SettingsError where the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        listener = socket.create_server((settings.host, settings.port), family=family)
    except OSError as error:
        raise SettingsError(
            f"cannot listen on {settings.host} port {settings.port}: {error.strerror}",
            hint="choose another with --port; --port 0 takes any that is free",
        ) from error
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
