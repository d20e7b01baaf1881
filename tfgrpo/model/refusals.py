"""What a body says that holds no answer: an error under status 200, or a web page.

Gateways answer 200 before they know what the model behind them says, and then put its error where
the answer should be; an address that is not the API's answers with a page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import unescape
from typing import TYPE_CHECKING

from tfgrpo.model.response import as_text
from tfgrpo.store.records import Json

if TYPE_CHECKING:
    import openai

PAGE = re.compile(r"\s*(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html|head|body)\b", re.I | re.DOTALL)
TITLE = re.compile(r"<(title|h1)\b[^>]*>(.*?)</\1\s*>", re.I | re.DOTALL)
TAG = re.compile(r"<[^>]*>")
LOOKED_AT = 4_000
"""Characters of a body that are looked at."""
QUOTED = 80
STATUSES = (
    (429, ("insufficient_quota", "exceeded_quota", "rate_limit", "resource_exhausted", "too_many")),
    (402, ("credit", "billing", "payment", "balance")),
    (401, ("api_key", "apikey", "authenticat", "unauthorized")),
    (403, ("permission", "forbidden")),
    (404, ("not_found", "notfound")),
    (529, ("overloaded",)),
    (503, ("unavailable",)),
    (504, ("timeout", "deadline_exceeded")),
    (500, ("server_error", "internal", "api_error")),
    (400, ("invalid", "bad_request", "badrequest", "context_length", "content_filter")),
)
"""HTTP statuses by what providers call such an error in its code or type, the first that fits."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that was not answered: the HTTP status, what is wrong in the server's words, and
    what it calls that. `body` is what arrived under the status, or its beginning."""

    status: int
    text: str
    code: str = ""
    type: str = ""
    param: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""


def error_of(body: object) -> Json | None:
    """Returns the error that a body holds in place of an answer, with its `message`; None where
    it holds none."""
    if isinstance(body, list) and body:
        body = body[0]
    if not isinstance(body, dict) or body.get("choices") or body.get("data"):
        return None
    error = body.get("error")
    if isinstance(error, dict):
        error = {**body, **error}
        text = error.get("message")
    else:
        text = error or body.get("message") or body.get("detail")
        error = dict(body)
    if not isinstance(text, str) or not text.strip():
        return None
    return {**error, "message": text}


def status_of(error: Json) -> int | None:
    """Returns the HTTP status that an error's code or type stands for, where that can be told."""
    names = [error.get(name) for name in ("code", "status", "status_code", "type")]
    for value in names:
        number = int(value) if isinstance(value, str) and re.fullmatch(r"\d{3}", value) else value
        if isinstance(number, int) and 400 <= number < 600:
            return number
    text = " ".join(value for value in names if isinstance(value, str)).lower().replace(" ", "_")
    return next((status for status, words in STATUSES if any(w in text for w in words)), None)


def refusal_in(body: object) -> Refusal | None:
    """Returns the error that a body holds as if it had come under the status it stands for; None
    where it holds none, or that cannot be told."""
    error = error_of(body)
    status = None if error is None else status_of(error)
    if error is None or status is None:
        return None
    code, kind, param = (as_text(error.get(name) or "") for name in ("code", "type", "param"))
    return Refusal(status, as_text(error["message"]), code, kind, param)


def refusal_of(error: openai.APIStatusError) -> Refusal:
    """Returns what the client's library raises for a status: some servers say what is wrong in no
    field that it knows."""
    body = error.response.text[:LOOKED_AT]
    plain = isinstance(error.body, dict) and isinstance(error.body.get("message"), str)
    text = error.message if plain or not body else f"{error.message} {body}"
    code, kind, param = (str(name or "") for name in (error.code, error.type, error.param))
    headers = error.response.headers
    return Refusal(error.status_code, text, code, kind, param, headers, body)


def page_of(text: str) -> str | None:
    """Returns what to call a web page, with its title; None for a text that is none."""
    text = text[:LOOKED_AT]
    if PAGE.match(text) is None:
        return None
    match = TITLE.search(text)
    title = " ".join(unescape(TAG.sub(" ", match[2])).split())[:QUOTED] if match else ""
    return f"a web page ({as_text(title)!r})" if title else "a web page"


def unreadable(text: object) -> str | None:
    """Returns what is wrong with a body that is a text and no JSON; None where that cannot be
    told, as of JSON that was cut off."""
    if not isinstance(text, str) or not text.strip() or text.lstrip()[0] in '{["':
        return None
    page = page_of(text)
    if page is not None:
        return f"the answer is {page} and no JSON: check --base-url, which usually ends in /v1"
    start = as_text(" ".join(text[:LOOKED_AT].split())[:QUOTED])
    return f"the answer is no JSON: it begins {start!r}"


def no_answer(body: object, wanted: str = "choices") -> str:
    """Returns what to say of a body without an answer in it, of which `wanted` is missing."""
    error = error_of(body)
    if error is not None:
        code = error.get("code") or error.get("type")
        named = f" ({as_text(code, QUOTED)})" if isinstance(code, str | int) else ""
        return f"an error in place of an answer{named}: {as_text(error['message'])}"
    return unreadable(body) or f"the answer holds no {wanted}"
