"""What happened in production, told to an address: one POST of JSON, with a `text` for people."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tfgrpo.store.errors import SettingsError
from tfgrpo.web_address import server_address

TIMEOUT = 5.0
WEBHOOK = "TFGRPO_WEBHOOK"
"""The variable with the address that is told: nobody sees it in a list of processes."""


def checked_webhook(url: str) -> str:
    """Returns an address that can be told. Raises SettingsError, which does not repeat it."""
    try:
        return server_address(url).geturl()
    except ValueError:
        raise SettingsError(
            "the webhook is no URL", hint="such as https://hooks.example.com/x"
        ) from None


def post_webhook(url: str, event: Mapping[str, object]) -> str | None:
    """Tells an address of an event; returns why that failed, None where it did not. The address
    itself, which is often a secret, is not in it."""
    from http.client import HTTPException
    from urllib.error import URLError
    from urllib.request import Request, urlopen

    request = Request(url, json.dumps(event).encode(), {"Content-Type": "application/json"})
    try:
        with urlopen(request, timeout=TIMEOUT):
            pass  # what it answers is not read: it may take for ever
    except (URLError, OSError, ValueError) as error:
        return str(getattr(error, "reason", error))
    except HTTPException as error:  # what answers is no HTTP; its words may have the address
        return type(error).__name__
    return None
