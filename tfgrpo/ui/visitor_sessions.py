"""Who is looking: a token from the address becomes a cookie, and the cookie stands for a name."""

from __future__ import annotations

import hmac
import secrets
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from threading import Condition
from time import monotonic
from typing import NamedTuple

from starlette.responses import Response

MOST_NOTICES = 5
MOST_SESSIONS = 1_000
"""Logins at a time; the oldest go first."""
AT_ONCE = 30.0
"""Seconds after an answer in which the same form again is taken for a double click."""


class Act(NamedTuple):
    """A form that takes back what was done: where it goes, and its fields."""

    address: str
    fields: tuple[tuple[str, str], ...]


class Line(NamedTuple):
    """What was done, in words, and what takes it back, if anything does; or what was refused."""

    text: str
    undo: Act | None = None
    is_refusal: bool = False


@dataclass(slots=True)
class Session:
    """One login under a name. `csrf` is what its forms carry; `notices` are shown on its next page;
    `read_only` says that nothing is recorded for it. `sent` counts the forms that it sent."""

    key: str
    name: str
    csrf: str
    read_only: bool = False
    notices: deque[Line] = field(default_factory=lambda: deque(maxlen=MOST_NOTICES))
    sent: int = 0
    _last: tuple[str, float, Response] | None = None
    _at_work: set[str] = field(default_factory=set)
    _change: Condition = field(default_factory=Condition)

    def once(self, form: object, answer: Callable[[], Response]) -> Response:
        """Answers a form. What is sent again from the same page at once, as by a double click, is
        answered as it was and not done again, unless it was refused. Other forms do not wait for
        it."""
        digest = sha256(repr(form).encode(errors="replace")).hexdigest()
        with self._change:
            self._change.wait_for(lambda: digest not in self._at_work)
            if self._last is not None and self._last[0] == digest:
                _, answered, response = self._last
                if monotonic() - answered < AT_ONCE:
                    return response
            self.sent, self._last = self.sent + 1, None
            self._at_work.add(digest)
        try:
            response = answer()
            if response.status_code < 400:
                self._last = digest, monotonic(), response
            return response
        finally:
            with self._change:
                self._at_work.discard(digest)
                self._change.notify_all()


class Sessions:
    """The logins of this server, for as long as it runs, or until they log out. `readers` are the
    tokens whose holders only look."""

    def __init__(self, logins: Mapping[str, str], readers: Collection[str] = ()) -> None:
        self._logins, self._readers = logins, readers
        self._by_key: dict[str, Session] = {}

    def begin(self, token: str) -> Session | None:
        """Returns a new session of a login token; None for one that nobody has."""
        given = token.encode(errors="replace")
        known = [one for one in self._logins if hmac.compare_digest(one.encode(), given)]
        if not known:
            return None
        key, csrf = secrets.token_hex(32), secrets.token_hex(32)
        session = Session(key, self._logins[token], csrf, token in self._readers)
        self._by_key[key] = session
        while len(self._by_key) > MOST_SESSIONS:
            del self._by_key[next(iter(self._by_key))]
        return session

    def of_cookie(self, key: str) -> Session | None:
        return self._by_key.get(key)

    def end(self, session: Session) -> None:
        """Ends a session: its cookie stands for nobody any more."""
        self._by_key.pop(session.key, None)
