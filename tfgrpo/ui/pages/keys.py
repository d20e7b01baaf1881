"""Keys of the proxy's own: what each may and has spent; new ones, and the end of old ones."""

from __future__ import annotations

import os
import time
from contextlib import closing

from starlette.responses import Response

from tfgrpo.store.activity.key_ledger import (
    KeyLimits,
    VirtualKey,
    key_digest,
    ledger_path,
    new_key,
    parse_budget,
    spent_by,
)
from tfgrpo.store.errors import InvalidOperation, TfgrpoError
from tfgrpo.store.opening import open_ledger
from tfgrpo.ui.page_visit import Route, Visit, as_number


def show(visit: Visit, secret: str | None = None, refusal: TfgrpoError | None = None) -> Response:
    path, rows = ledger_path(visit.store.file), []
    if os.path.isfile(path):
        with closing(open_ledger(path)) as ledger:
            spending = ledger.spent("")
            valid = (key for key in ledger.virtual_keys() if key.revoked is None)
            rows = [(key, spent_by(key, spending)) for key in valid]
    return visit.render(
        "keys.html",
        200 if refusal is None else 400,
        title="Keys",
        rows=rows,
        secret=secret,
        refusal=refusal,
        now=time.time_ns() // 1000,
    )


def issue(visit: Visit) -> Response:
    """Makes a key, and shows it once. What is refused is said above the form."""
    try:
        name, rate = visit.field("name").strip(), visit.field("rate").strip()
        if not name.isprintable() or not 0 < len(name) <= 100:
            raise InvalidOperation("a key has a name", hint="such as shop")
        if rate and not (rate.isascii() and rate.isdigit() and int(rate[:9]) > 0):
            raise InvalidOperation("a rate is a number of requests in a minute", hint="60")
        limits = KeyLimits(
            parse_budget(visit.field("budget")) if visit.field("budget").strip() else None,
            int(rate[:9]) if rate else None,
            tuple(visit.field("models").split()) or None,
            tuple(visit.field("libraries").split()) or None,
        )
        secret, now = new_key(), time.time_ns() // 1000
        key = VirtualKey(0, name, key_digest(secret), visit.who, now, None, limits)
        with closing(open_ledger(ledger_path(visit.store.file), create=True)) as ledger:
            ledger.add_key(key)
    except InvalidOperation as refusal:
        return show(visit, refusal=refusal)
    return show(visit, secret)


def revoke(visit: Visit) -> Response:
    """Revokes a key: the next request with it is refused. Another of its name, made since it was
    revoked, stays."""
    name = visit.required("name", "the name of the key")
    number = as_number("number", visit.required("number", "which key"), 0)
    with closing(open_ledger(ledger_path(visit.store.file))) as ledger:
        ledger.revoke_key(name, time.time_ns() // 1000, number)
    return visit.done("/keys", "The key is revoked")


ROUTES = (
    Route("/keys", show),
    Route("/keys", issue, "POST"),
    Route("/keys/revoke", revoke, "POST"),
)
