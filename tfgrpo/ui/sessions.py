"""Who is looking: a token from the address becomes a cookie, and the cookie stands for a name."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

MOST_NOTICES = 5


@dataclass(frozen=True, slots=True)
class Session:
    """A login of one name. `csrf` is what its forms carry; `notices` are shown on its next page."""

    key: str
    name: str
    csrf: str
    notices: deque[str] = field(default_factory=lambda: deque(maxlen=MOST_NOTICES))


class Sessions:
    """The logins of this server, for as long as it runs. A token has one session."""

    def __init__(self, logins: Mapping[str, str]) -> None:
        self._secret = secrets.token_bytes(32)
        self._by_token: dict[str, Session] = {}
        self._by_key: dict[str, Session] = {}
        for token, name in logins.items():
            key = self._derived("session", token)
            session = Session(key, name, self._derived("csrf", token))
            self._by_token[self._derived("token", token)] = session
            self._by_key[key] = session

    def of_token(self, token: str) -> Session | None:
        """Returns the session of a login token. Tokens are compared as keyed digests."""
        return self._by_token.get(self._derived("token", token))

    def of_cookie(self, key: str) -> Session | None:
        """Returns the session of a cookie."""
        return self._by_key.get(key)

    def _derived(self, purpose: str, token: str) -> str:
        message = f"{purpose}:{token}".encode(errors="replace")
        return hmac.new(self._secret, message, hashlib.sha256).hexdigest()
