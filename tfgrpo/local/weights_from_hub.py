"""Weights from the hub of models: one file over HTTP, resumed at the byte where it broke.

The hub gets four seconds to take a connection, so that a machine without one loses
little time before the package index is asked. Once it has answered, a broken
connection is taken up again by a Range request, and only several breaks in a row
without a single new byte count as failure.

`huggingface_hub` would not do it: its download (2.4) goes to a temporary file that is
deleted when a download ends early, so that nothing could be resumed and nothing handed
on to the package index; it brings 15 packages of 37 MB and 0.5 s of imports.
"""

from __future__ import annotations

import http.client
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable

from tfgrpo.local.local_errors import SourceUnavailable
from tfgrpo.local.model_list import LocalModel
from tfgrpo.local.partial_download import Partial

CONNECT_SECONDS = 4.0
READ_SECONDS = 30.0
ATTEMPTS = 5
_PAUSE_SECONDS = 0.5
_TRY_AGAIN = {408, 425, 429, 500, 502, 503, 504}


class _Http(http.client.HTTPConnection):
    def connect(self) -> None:
        super().connect()
        self.sock.settimeout(READ_SECONDS)


class _Https(http.client.HTTPSConnection):
    def connect(self) -> None:
        super().connect()
        self.sock.settimeout(READ_SECONDS)


class _HttpHandler(urllib.request.HTTPHandler):
    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Http, request)


class _HttpsHandler(urllib.request.HTTPSHandler):
    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Https, request)


def address(model: LocalModel) -> str:
    """Where the hub keeps `model`; HF_ENDPOINT replaces the hub's own address."""
    base = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    return f"{base.rstrip('/')}/{model.hub_repo}/resolve/main/{model.hub_file}"


def download(model: LocalModel, partial: Partial, moved: Callable[[int], None]) -> None:
    """Bring the bytes of `model` that `partial` lacks. Raises SourceUnavailable when the hub does
    not answer, does not have the file, or keeps breaking off; what has arrived stays in
    `partial`."""
    url = address(model)
    answered, failures = False, 0
    while (have := partial.length) < model.bytes:
        end = have
        try:
            with _open(url, have) as response:
                answered = True
                end = partial.write(_first_byte(response, have, model, url), response, moved)
            reason = f"broke off after {partial.length} of {model.bytes} bytes"
        except urllib.error.HTTPError as error:
            error.close()
            reason = f"answered {error.code} {error.reason}"
            if error.code not in _TRY_AGAIN:
                raise SourceUnavailable(f"{url} {reason}") from error
        except urllib.error.URLError as error:
            reason = f"cannot be reached ({error.reason})"
        except (OSError, http.client.HTTPException) as error:
            reason = f"broke off after {partial.length} of {model.bytes} bytes ({error!r})"
        if max(end, partial.length) > have:
            failures = 0
            continue
        failures += 1
        if not answered or failures >= ATTEMPTS:
            raise SourceUnavailable(f"{url} {reason}")
        time.sleep(_PAUSE_SECONDS * failures)


def _open(url: str, have: int) -> http.client.HTTPResponse:
    headers = {"User-Agent": "tfgrpo"}
    if have:
        headers["Range"] = f"bytes={have}-"
    opener = urllib.request.build_opener(_HttpHandler, _HttpsHandler)
    request = urllib.request.Request(url, headers=headers)
    response: http.client.HTTPResponse = opener.open(request, timeout=CONNECT_SECONDS)
    return response


def _first_byte(response: http.client.HTTPResponse, have: int, model: LocalModel, url: str) -> int:
    """The position of the answer's first byte. Refuses an answer that is another file."""
    if response.status == 206:
        answer = response.headers.get("Content-Range", "")
        match = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", answer.strip())
        if match and int(match[1]) == have and int(match[2]) == model.bytes:
            return have
    else:
        answer = response.headers.get("Content-Length", "")
        if answer.strip() == str(model.bytes):
            return 0
    raise SourceUnavailable(
        f"{url} is not {model.name}: expected {model.bytes} bytes, it says {answer or 'nothing'!r}"
    )
