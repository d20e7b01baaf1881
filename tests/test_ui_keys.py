"""The page of keys: made, shown once, listed and revoked."""

from __future__ import annotations

import re
import time
from contextlib import closing
from pathlib import Path

from test_ui_forms import form_of
from ui_rig import Visitor, store_at

from tfgrpo.store.activity.key_ledger import KeyLimits, VirtualKey, key_digest, ledger_path
from tfgrpo.store.opening import open_ledger
from tfgrpo.wording import when


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
    visitor.post("/keys/revoke", form_of(visitor.get("/keys"), "/keys/revoke"))
    assert "There is no key." in visitor.get("/keys")


def test_a_stale_revoke_ends_no_other_key_of_that_name(tmp_path: Path) -> None:
    visitor = Visitor(store_at(tmp_path, "Count both days."))
    fields = form_of(visitor.post("/keys", {"name": "shop"}), "/keys/revoke")
    visitor.post("/keys/revoke", fields)
    visitor.post("/keys", {"name": "shop"})
    assert "there is no key" in visitor.post("/keys/revoke", fields, status=400)
    assert "shop" in visitor.get("/keys")
    for wrong in ("", "x", "9" * 30, "²"):
        assert visitor.post("/keys/revoke", fields | {"number": wrong}, status=400)


def test_a_key_is_listed_with_its_paths_and_its_end(tmp_path: Path) -> None:
    store, now = store_at(tmp_path, "Count both days."), time.time_ns() // 1000
    with closing(open_ledger(ledger_path(store), create=True)) as ledger:
        for name, expires in (("over", now - 1), ("later", now + 86_400_000_000), ("ever", None)):
            limits = KeyLimits(paths=("/v1/embeddings",), expires=expires)
            ledger.add_key(VirtualKey(0, name, name.encode(), "ana", now, None, limits))
    page = Visitor(store).get("/keys")
    rows = re.findall(r'<tr><th scope="row">(\w+)</th>(.*?)</tr>', page)
    over, later, ever = (words for _, words in rows)
    assert "expired" in over
    assert when(now + 86_400_000_000) in later
    assert "expired" not in later + ever
    assert page.count("/v1/embeddings") == 3


def test_with_read_only_nothing_is_offered(tmp_path: Path) -> None:
    visitor = Visitor(store_at(tmp_path, "Count both days."), read_only=True)
    assert "<form" not in visitor.get("/keys").partition("<main")[2]
