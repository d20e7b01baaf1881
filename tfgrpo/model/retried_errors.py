"""Errors of an endpoint: the statuses after which a request is tried again, and what a body says
that holds no answer, as an error under status 200 or a web page."""

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


TRANSIENT = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
LIMITS = frozenset({429, 503, 529})
OVERLOADED = (408, 429, 502, 503, 504, 529)
"""What a server answers that another try may help with, whatever it speaks of."""


PAGE = re.compile(r"\s*(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html|head|body)\b", re.I | re.DOTALL)
TITLE = re.compile(r"<(title|h1)\b[^>]*>(.*?)</\1\s*>", re.I | re.DOTALL)
TAG = re.compile(r"<[^>]*>")
LOOKED_AT = 4_000
"""Characters of a body that are looked at."""
QUOTED = 80
STATUSES = (
    (429, ("insufficient_quota", "exceeded_quota", "rate_limit", "resource_exhausted", "too_many")),
    (429, ("throttl",)),
    (402, ("credit", "billing", "payment", "balance")),
    (401, ("api_key", "apikey", "authenticat", "unauthorized")),
    (403, ("permission", "forbidden", "accessdenied")),
    (404, ("not_found", "notfound")),
    (529, ("overloaded",)),
    (503, ("unavailable",)),
    (504, ("timeout", "deadline_exceeded")),
    (500, ("server_error", "internal", "api_error")),
    (400, ("invalid", "bad_request", "badrequest", "context_length", "content_filter")),
    (400, ("validation",)),
)
"""HTTP statuses by what providers call such an error in its code or type, the first that fits."""

ANSWERS = ("choices", "output", "content")
"""Where the routes have an answer; beside one, `message` and `detail` say nothing of an error."""
REASONS = ("error", "message", "detail", "error_msg", "error_message")
"""Where a body without an answer says what is wrong."""
WRONG_END = re.compile(
    "error|abort|cancel|fail|insufficient|timed?.?out|interrupt|disconnect|unavailable|overload",
    re.IGNORECASE,
)
"""What servers call the end of an answer that they could not bring to one."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that was not answered: the HTTP status (0: an error under 200 that tells none), the
    server's words and names, and the beginning of the `body`."""

    status: int
    text: str
    code: str = ""
    type: str = ""
    param: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""


def error_of(body: object) -> Json | None:
    """The error, with its `message`, that a body holds in place of an answer, or None."""
    if isinstance(body, list) and body:
        body = body[0]
    if not isinstance(body, dict) or body.get("data"):
        return None
    body = {name.lower(): value for name, value in body.items()}
    error, several = body.get("error"), body.get("errors")
    base = body.get("base_resp")
    answered = any(body.get(name) for name in ANSWERS)
    if not error and not answered and isinstance(several, list) and several:
        error = several[0] if isinstance(several[0], dict) else str(several[0])
    if not error and isinstance(base, dict) and base.get("status_code"):
        error = {"message": base.get("status_msg") or "no reason told"}
    if isinstance(error, dict) and error:
        error = {**body, **{name.lower(): value for name, value in error.items()}}
        text = error.get("message") or error.get("code") or error.get("type") or "no reason told"
    elif answered:
        text, error = error, dict(body)
    else:
        text = next((body[name] for name in REASONS if body.get(name)), error)
        error = dict(body)
        failed = body.get("type") == "error" or body.get("success") is False
        if failed or (isinstance(text, list) and text is body.get("detail")):
            text = text if isinstance(text, str) else body.get("code") or "no reason told"
    if isinstance(text, int) and text is not True:
        text = str(text)
    if not isinstance(text, str) or not text.strip():
        return None
    return {**error, "message": text}


def ended_wrong(reason: object) -> bool:
    """Whether a choice's reason for its end says that the answer was not brought to it."""
    if isinstance(reason, dict):  # as SGLang has it
        reason = reason.get("type")
    return isinstance(reason, str) and WRONG_END.search(reason) is not None


def failure_in(body: object, *, partial: bool = False) -> Refusal | None:
    """What is wrong with an answer of any route under status 200: an error, or an end that is none;
    None for an answer. The status is the one that the error stands for, 0 for unknown. `partial`:
    the body is an event of a stream, whose end may still come."""
    error = error_of(body)
    if error is not None:
        return _refusal(error)
    if not isinstance(body, dict):
        return None
    choices = body.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and (failure := _failed_choice(choice, partial)) is not None:
            return failure
    if body.get("object") == "response" and body.get("status") in ("failed", "cancelled"):
        return Refusal(0, f"the response has the status {body['status']!r}")
    if body.get("type") == "message" and "stop_reason" in body and not partial:
        reason = body["stop_reason"]
        if reason is None or ended_wrong(reason):
            return Refusal(0, f"the answer ended with {as_text(reason, QUOTED)!r}")
    return None


def _failed_choice(choice: Json, partial: bool) -> Refusal | None:
    error = error_of({"error": choice.get("error")})
    if error is not None:
        return _refusal(error)
    if "finish_reason" not in choice:
        return None  # some servers tell none
    reason = choice["finish_reason"]
    if ended_wrong(reason) or (reason is None and not partial):
        return Refusal(0, f"the answer ended with finish_reason {as_text(reason, QUOTED)!r}")
    return None


def _refusal(error: Json) -> Refusal:
    code, kind, param = (as_text(error.get(name) or "") for name in ("code", "type", "param"))
    text = as_text(error["message"])
    return Refusal(status_of(error) or 0, text, code, kind, param)


def status_of(error: Json) -> int | None:
    """The HTTP status that an error's code or type stands for, where that can be told."""
    names = [error.get(name) for name in ("code", "status", "status_code", "type", "__type")]
    for value in names:
        number = int(value) if isinstance(value, str) and re.fullmatch(r"\d{3}", value) else value
        if isinstance(number, int) and 400 <= number < 600:
            return number
    text = " ".join(value for value in names if isinstance(value, str)).lower().replace(" ", "_")
    return next((status for status, words in STATUSES if any(w in text for w in words)), None)


def refusal_of(error: openai.APIStatusError) -> Refusal:
    """A status that the client's library raises, with what the body says in other fields."""
    body = error.response.text[:LOOKED_AT]
    plain = isinstance(error.body, dict) and isinstance(error.body.get("message"), str)
    text = error.message if plain or not body else f"{error.message} {body}"
    code, kind, param = (str(name or "") for name in (error.code, error.type, error.param))
    headers = error.response.headers
    return Refusal(error.status_code, text, code, kind, param, headers, body)


def page_of(text: str) -> str | None:
    """What to call a web page, with its title; None for a text that is none."""
    text = text[:LOOKED_AT]
    if PAGE.match(text) is None:
        return None
    match = TITLE.search(text)
    title = " ".join(unescape(TAG.sub(" ", match[2])).split())[:QUOTED] if match else ""
    return f"a web page ({as_text(title)!r})" if title else "a web page"


def unreadable(text: object) -> str | None:
    """What is wrong with a text that is no JSON; None where that cannot be told."""
    if not isinstance(text, str) or not text.strip() or text.lstrip()[0] in '{["':
        return None
    page = page_of(text)
    if page is not None:
        return f"the answer is {page} and no JSON: check --base-url, which usually ends in /v1"
    start = as_text(" ".join(text[:LOOKED_AT].split())[:QUOTED])
    return f"the answer is no JSON: it begins {start!r}"


def no_answer(body: object, wanted: str = "choices") -> str:
    """What to say of a body without an answer in it, of which `wanted` is missing."""
    failure = failure_in(body)
    if failure is not None:
        named = failure.code or failure.type
        named = f" ({as_text(named, QUOTED)})" if named else ""
        return f"an error in place of an answer{named}: {failure.text}"
    return unreadable(body) or f"the answer holds no {wanted}"
