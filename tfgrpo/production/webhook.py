"""What happened in production, told to an address: one POST of JSON, with a `text` for people."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tfgrpo.store.errors import SettingsError
from tfgrpo.web_address import server_address

TIMEOUT = 5.0
NO_HEADERS: Mapping[str, str] = {}
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
    return post_json(url, json.dumps(event).encode())


def post_json(url: str, body: bytes, headers: Mapping[str, str] = NO_HEADERS) -> str | None:
    """Sends JSON to an address; returns why that failed, None where it did not. Neither the address
    nor a header, which may be secrets, is in it."""
    from http.client import HTTPException
    from urllib.error import URLError
    from urllib.request import Request, urlopen

    try:
        request = Request(url, body, {**headers, "Content-Type": "application/json"})
        with urlopen(request, timeout=TIMEOUT):
            pass  # what it answers is not read: it may take for ever
    except (URLError, OSError) as error:
        return str(getattr(error, "reason", error))
    except ValueError:  # its words may have a secret
        return "HTTP cannot send the address or a header"
    except HTTPException as error:  # its words may have the address
        return f"what answers is no HTTP ({type(error).__name__})"
    return None
