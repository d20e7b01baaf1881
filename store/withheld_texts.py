"""What a store knows of the texts that were redacted in it: enough to refuse them when they arrive
from another store, and not the texts.

Of each text it keeps how many words it has and a keyed digest of them, in a decision about the
redaction, which no transfer sends. A text that arrives is looked through by windows of as many
words. The key lies in a file beside the store's, so that whoever has only that file can try no
guesses; in a database it is in the decision.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tfgrpo.store import atomic_write
from tfgrpo.store.activity.decisions import decide, decisions
from tfgrpo.store.address import is_address
from tfgrpo.store.damaged_values import listed, text, whole
from tfgrpo.store.errors import StoreError, advice
from tfgrpo.store.text_occurrences import REDACTION

if TYPE_CHECKING:
    from tfgrpo.store.store import Store

SUBJECT = "texts"
"""What a decision with digests of redacted texts is about."""
KEY_BYTES, DIGEST_BYTES = 32, 16
WORD = re.compile(r"\w+")


class Withheld(NamedTuple):
    """Digests of redacted texts by their numbers of words, and the key under which they are."""

    key: bytes
    digests: Mapping[int, frozenset[bytes]]

    def holds(self, given: str | None) -> bool:
        """Whether a text has one of them in it, by whole words."""
        words = WORD.findall(given or "")
        return any(
            _digest(self.key, words[at : at + count]) in known
            for count, known in self.digests.items()
            for at in range(len(words) - count + 1)
        )


NOTHING = Withheld(b"", {})
"""What is known where nothing was redacted."""


def remember(store: Store, texts: Iterable[str], *, why: str, author: str) -> None:
    """Records what will be known of redacted texts. Inside the transaction that redacts them.
    Raises StoreError."""
    spoken = [words for one in texts if (words := WORD.findall(one))]
    if not spoken:
        return
    key, content = _own_key(store)
    digests = sorted({(len(words), _digest(key, words).hex()) for words in spoken})
    content["withheld"] = [list(one) for one in digests]
    decide(store, REDACTION, SUBJECT, content, why=why, author=author)


def withheld(store: Store) -> Withheld:
    """What is known of the texts that were redacted in a store: nothing where its key is missing.
    Raises StoreError."""
    redactions = decisions(store, kind=REDACTION, subject=SUBJECT)
    if not redactions:
        return NOTHING
    key = _file_key(store)
    digests: dict[int, set[bytes]] = {}
    for one in redactions:
        key = key or _hex(one.content.get("key"))
        for count, digest in _pairs(one.content.get("withheld")):
            digests.setdefault(count, set()).add(digest)
    if key is None:
        return NOTHING
    return Withheld(key, {count: frozenset(some) for count, some in digests.items()})


def key_path(store: Store) -> Path:
    """The file of the key under which a store in a file knows redacted texts."""
    return store.path.with_name(f"{store.path.name}-redacted")


def _own_key(store: Store) -> tuple[bytes, dict[str, object]]:
    """The key, made where there is none, and what of it goes into the decision."""
    if is_address(store.location):
        redactions = decisions(store, kind=REDACTION, subject=SUBJECT)
        before = next((key for one in redactions if (key := _hex(one.content.get("key")))), None)
        key = before or secrets.token_bytes(KEY_BYTES)
        return key, {"key": key.hex()}
    path = key_path(store)
    try:
        atomic_write.create(path, secrets.token_bytes(KEY_BYTES))
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}", hint=advice(error)) from error
    written = _file_key(store)
    if written is None:
        raise StoreError(f"{path} holds no key", hint="move it away, and redact the text again")
    return written, {}


def _file_key(store: Store) -> bytes | None:
    """The key of a store in a file; None where there is none, or what is there is none."""
    if is_address(store.location) or not os.path.exists(key_path(store)):
        return None
    path = key_path(store)
    try:
        key = path.read_bytes()
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}", hint=advice(error)) from error
    return key if len(key) == KEY_BYTES else None


def _pairs(value: object) -> Iterator[tuple[int, bytes]]:
    for one in listed(value):
        count, digest, *_ = *listed(one), None, None
        number, known = whole(count), _hex(digest)
        if number is not None and number > 0 and known is not None:
            yield number, known


def _hex(value: object) -> bytes | None:
    try:
        return bytes.fromhex(text(value)) or None
    except ValueError:
        return None


def _digest(key: bytes, words: Iterable[str]) -> bytes:
    joined = " ".join(words).encode(errors="surrogatepass")
    return hmac.digest(key, joined, hashlib.sha256)[:DIGEST_BYTES]
