"""Secrets: what looks like one where a setting is written down, and what is one when it comes back.

Settings become part of a run's record, so they hold the names of environment variables, `$NAME`,
and never a key. The values that were read from them are taken out of all that is recorded or told.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from tfgrpo.store.address import is_address, passwords_read
from tfgrpo.web_address import server_address

V = TypeVar("V")

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
VARIABLE = re.compile(r"\$([A-Z_][A-Z0-9_]*)")
LONG = 12
"""Characters from which on a key in a text is the key, and no word of somebody's."""
NAMED = re.compile(
    r"(?:api|access|private|subscription|account|shared)[-_]?key|(?:^|[-_.\s])key(?:$|[-_.\s])|token(?!s)"
    r"|secret|passw|passphrase|\bpwd\b|credential|authori[sz]ation|bearer|cookie|signature"
    r"|(?:^|[-_])auth(?:$|[-_])|(?:^|[-_])pass(?:$|[-_])",
    re.IGNORECASE,
)
"""Names of things whose value is a secret."""
KNOWN = re.compile(
    r"(?<![A-Za-z0-9])(?:sk-[A-Za-z0-9]|sk_live_|rk_live_|gh[pousr]_|github_pat_|glpat-|xox[abeprs]-|"
    r"hf_[A-Za-z0-9]{8}|AKIA[A-Z0-9]{8}|ASIA[A-Z0-9]{8}|AIza[A-Za-z0-9_-]{8}|ya29\.|npm_[A-Za-z0-9]{8}|"
    r"pypi-|tvly-|gsk_|eyJ[A-Za-z0-9_-]{8}|-----BEGIN)"
)
"""How the keys of well-known services begin."""
RANDOM = re.compile(r"[A-Za-z0-9]{20,}")
PAIR = re.compile(r"\s*-{0,2}([\w.-]+)\s*[=:]\s*(.+)", re.DOTALL)
SMALL = re.compile(r"\d{1,5}|true|false", re.IGNORECASE)
"""What is a number or a switch, whatever its name."""
BEARER = re.compile(r"\s*(?:bearer|basic|token)\s+[^\s$]", re.IGNORECASE)
HINT = "write $NAME, the name of an environment variable, in its place"

USUAL = frozenset(("HOME", "HOSTNAME", "LANG", "LOGNAME", "PATH", "PWD", "SHELL", "TERM", "USER"))
"""Variables that everybody has: their values are no secrets."""

_seen: set[str] = set()
_keys: set[str] = set()
"""Keys of endpoints, however short."""


def literal(name: str, value: object) -> str | None:
    """What in a setting (a text, list or table) looks like a secret that is written out, or None.
    What stands after the name of a secret is one."""
    for where, text, secret in _texts(name, value, NAMED.search(name) is not None):
        if secret and text.strip() and not VARIABLE.search(text) and not SMALL.fullmatch(text):
            return where
        if BEARER.match(text) or _in_url(text) or _looks_random(VARIABLE.sub("", text)):
            return where
    return None


def check_settings(url: str | None, **more: object) -> None:
    """Raises ValueError where settings have a secret written out, or an address that is none."""
    for name, value in {"url": url, **more}.items():
        if (place := literal(name, value)) is not None:
            raise ValueError(f"{place} looks like a secret: {HINT}")
    if url is not None and not url.startswith("$"):
        server_address(VARIABLE.sub("1", url))


def _texts(name: str, value: object, secret: bool) -> Iterator[tuple[str, str, bool]]:
    """Yields each text in a value, where it stands, and whether its name is a secret's."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield f"{name}.{key}", str(key), False
            named = secret or NAMED.search(str(key)) is not None
            yield from _texts(f"{name}.{key}", inner, named)
    elif isinstance(value, list | tuple):
        after = secret
        for number, inner in enumerate(value):
            where = f"{name}[{number}]"
            yield from _texts(where, inner, after)
            flag = isinstance(inner, str) and inner.startswith("-") and "=" not in inner
            after = secret or (flag and NAMED.search(str(inner)) is not None)
    elif isinstance(value, str):
        pair = PAIR.fullmatch(value)
        if pair and not value.partition("://")[1] and NAMED.search(pair[1]):
            yield name, pair[2], True
        else:
            yield name, value, secret


def _in_url(text: str) -> bool:
    if "://" not in text:
        return False
    try:
        parts = urlsplit(text)
        password, pairs = parts.password, parse_qsl(parts.query)
    except ValueError:
        return False
    userinfo = parts.netloc.rpartition("@")[0]
    if (password or userinfo) and not VARIABLE.search(password or userinfo):
        return True
    return any(NAMED.search(name) and not VARIABLE.search(value) for name, value in pairs)


def _looks_random(text: str) -> bool:
    """Whether a text has a part like a key: letters and digits without an order."""
    if KNOWN.search(text):
        return True
    for run in RANDOM.findall(text):
        digits = sum(sign.isdigit() for sign in run)
        cases = any(map(str.islower, run)) and any(map(str.isupper, run))
        if 3 <= digits < len(run) and (len(run) >= 32 or cases):
            return True
    return False


def variables(value: object) -> list[str]:
    """The environment variables that a setting names as $NAME, each once."""
    names: dict[str, None] = {}
    for _, text, _ in _texts("", value, False):
        names |= dict.fromkeys(VARIABLE.findall(text))
    return list(names)


def fill(text: str, environment: Mapping[str, str]) -> str:
    """A text with the values of the variables that it names, which are secrets from now on, without
    white space around them. A variable that is not set stays as it is written."""

    def value(match: re.Match[str]) -> str:
        secret = environment.get(match[1], "").strip()
        return know(secret, match[1]) if secret else match[0]

    return VARIABLE.sub(value, text)


def know(value: str, name: str) -> str:
    """The value of a variable, a secret from now on, unless it is a path or too short."""
    if len(value) >= LONG and name not in USUAL and not os.path.isabs(value):
        _seen.update(_forms(value))
    return value


def know_variables(names: Iterable[str], environment: Mapping[str, str]) -> None:
    """Has what these variables hold be secrets from now on."""
    for name in names:
        know(environment.get(name, "").strip(), name)


def withhold(*keys: str) -> None:
    """Has no program that runs a model's code get these keys."""
    _keys.update(filter(None, keys))


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without the variables that hold a key, a known secret, or the password of a
    database that was opened."""
    passwords = passwords_read()
    whole = _keys | passwords
    long = [password for password in passwords if len(password) >= LONG]

    def holds_one(value: str) -> bool:
        if value.strip() in whole or scrub(value, *long) != value:
            return True
        return is_address(value) and any(password in unquote(value) for password in passwords)

    return {
        name: value for name, value in environment.items() if name in USUAL or not holds_one(value)
    }


def scrub(value: V, *more: str | None) -> V:
    """A value without known secrets and `more`, in any text of it, however deep."""
    forms = (form for one in more if one for form in _forms(one))
    secrets = sorted({*_seen, *forms}, key=len, reverse=True)
    return _scrubbed(value, secrets) if secrets else value


def _forms(secret: str) -> set[str]:
    """The forms of a secret in texts: as it is, without white space around it, and as a message
    quotes it, where a line break is two signs."""
    return {secret, secret.strip(), repr(secret)[1:-1], ascii(secret)[1:-1]} - {""}


def _scrubbed(value: Any, secrets: list[str]) -> Any:
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, "***")
        return value
    if isinstance(value, Mapping):
        return {_scrubbed(k, secrets): _scrubbed(v, secrets) for k, v in value.items()}
    if isinstance(value, tuple) and type(value) is tuple:
        return tuple(_scrubbed(inner, secrets) for inner in value)
    if isinstance(value, list):
        return [_scrubbed(inner, secrets) for inner in value]
    return value
