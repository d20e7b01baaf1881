"""Who is looking: a token from the address becomes a cookie, and the cookie stands for a name."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

MOST_NOTICES = 5
MOST_SESSIONS = 1_000
"""Logins at a time; the oldest go first."""
MOST_FAILURES = 20
"""Unknown tokens from one address in a minute, after which it waits for the rest of it."""
MINUTE = 60.0
MOST_ADDRESSES = 10_000


class Act(NamedTuple):
    """A form that takes back what was done: where it goes, and its fields."""

    address: str
    fields: tuple[tuple[str, str], ...]


class Line(NamedTuple):
    """What was done, in words, and what takes it back, if anything does; or what was refused."""

    text: str
    undo: Act | None = None
    is_refusal: bool = False


@dataclass(frozen=True, slots=True)
class Session:
    """One login under a name. `csrf` is what its forms carry; `notices` are shown on its next page;
    `read_only` says that nothing is recorded for it."""

    key: str
    name: str
    csrf: str
    read_only: bool = False
    notices: deque[Line] = field(default_factory=lambda: deque(maxlen=MOST_NOTICES))


class Sessions:
    """The logins of this server, for as long as it runs, or until they log out. `readers` are the
    tokens whose holders only look."""

    def __init__(self, logins: Mapping[str, str], readers: Collection[str] = ()) -> None:
        self._secret = secrets.token_bytes(32)
        self._by_token = {
            self._derived(token): (name, token in readers) for token, name in logins.items()
        }
        self._by_key: dict[str, Session] = {}

    def begin(self, token: str) -> Session | None:
        """Returns a new session of a login token; None for one that nobody has. Tokens are compared
        as keyed digests."""
        known = self._by_token.get(self._derived(token))
        if known is None:
            return None
        session = Session(secrets.token_hex(32), known[0], secrets.token_hex(32), known[1])
        self._by_key[session.key] = session
        while len(self._by_key) > MOST_SESSIONS:
            del self._by_key[next(iter(self._by_key))]
        return session

    def of_cookie(self, key: str) -> Session | None:
        """Returns the session of a cookie."""
        return self._by_key.get(key)

    def end(self, session: Session) -> None:
        """Ends a session: its cookie stands for nobody any more."""
        self._by_key.pop(session.key, None)

    def _derived(self, token: str) -> str:
        message = token.encode(errors="replace")
        return hmac.new(self._secret, message, hashlib.sha256).hexdigest()


class Failures:
    """Unknown tokens, counted for each address they come from."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._by_address: dict[str, tuple[float, int]] = {}

    def add(self, address: str) -> None:
        """Counts one."""
        now = self._clock()
        began, count = self._by_address.pop(address, (now, 0))
        self._by_address[address] = (now, 1) if now - began > MINUTE else (began, count + 1)
        while len(self._by_address) > MOST_ADDRESSES:
            del self._by_address[next(iter(self._by_address))]

    def wait(self, address: str) -> int:
        """Returns for how many seconds an address may not try again."""
        began, count = self._by_address.get(address, (0.0, 0))
        left = began + MINUTE - self._clock()
        return int(left) + 1 if count >= MOST_FAILURES and left > 0 else 0
