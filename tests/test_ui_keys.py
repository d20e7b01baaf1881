"""The page of keys: made, shown once, listed and revoked."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

from ui_rig import Visitor, store_at

from tfgrpo.store.activity.key_ledger import key_digest, ledger_path
from tfgrpo.store.opening import open_ledger


def test_a_key_is_made_shown_once_listed_and_revoked(tmp_path: Path) -> None:
    store = store_at(tmp_path, "Count both days.")
    visitor = Visitor(store)
    assert "There is no key." in visitor.get("/keys")
    given = {"name": "shop & co", "budget": "5/day", "rate": "60", "models": "gpt-5* o4"}
    page = visitor.post("/keys", given)
    secret = re.search(r"tfk-[\w-]+", page)
    assert secret
    assert "shop &amp; co" in page
    with closing(open_ledger(ledger_path(store))) as ledger:
        (key,) = ledger.virtual_keys()
    assert key.digest == key_digest(secret[0])
    assert (key.limits.rate, key.limits.models) == (60, ("gpt-5*", "o4"))
    assert str(key.limits.budget) == "$5/day"
    listed = visitor.get("/keys")
    assert secret[0] not in listed
    assert "$5/day" in listed
    for wrong, why in (
        ({"name": ""}, "has a name"),
        ({"name": "shop & co"}, "there is a key"),
        ({"name": "x", "budget": "much"}, "no budget"),
        ({"name": "x", "rate": "-1"}, "a rate is"),
    ):
        assert why in visitor.post("/keys", wrong, status=400)
    visitor.post("/keys/revoke", {"name": "shop & co"})
    assert "There is no key." in visitor.get("/keys")


def test_with_read_only_nothing_is_offered(tmp_path: Path) -> None:
    visitor = Visitor(store_at(tmp_path, "Count both days."), read_only=True)
    assert "<form" not in visitor.get("/keys").partition("<main")[2]
