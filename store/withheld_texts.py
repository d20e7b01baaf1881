"""What a store knows of the texts that were redacted in it: enough to refuse them when they arrive
from another store, and not the texts.

Of each text it keeps how many words it has, a keyed digest of them and a short one of the first of
them, in a decision about the redaction, which no transfer sends. A text that arrives is looked
through by windows of as many words, once the first ones fit. Of a text that is short or a number,
whose words alone are in many others, it keeps a digest with all its marks. The key lies in a file
beside the store's, so that whoever has only that file can try no guesses; in a database it is in
the decision.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tfgrpo.store import atomic_write
from tfgrpo.store.activity.decisions import decide, decisions
from tfgrpo.store.address import is_address
from tfgrpo.store.damaged_values import listed, text, whole
from tfgrpo.store.errors import StoreError, advice
from tfgrpo.store.text_occurrences import REDACTION, SHORTEST

if TYPE_CHECKING:
    from tfgrpo.store.store import Store

SUBJECT = "texts"
"""What a decision with digests of redacted texts is about."""
KEY_BYTES, DIGEST_BYTES = 32, 16
FIRST, FIRST_BYTES = 3, 2
"""How many words a short digest is of, at most, and its bytes: too few to guess by."""
WORD = re.compile(r"\w+")
NUMBER = re.compile(r"\W*\d+(?:[.,]\d{3})*(?:[.,]\d{1,2})?\W*")
MARKS = "([{'\"", ".,;:!?)]}'\""
"""What may stand before and behind a text that is looked for with its marks."""
WHOLE = 0
"""The number of parts of a text that is looked for as a whole text."""


@dataclass(frozen=True, slots=True)
class Withheld:
    """Digests of redacted texts by their numbers of words, those of texts that are looked for with
    their marks by their numbers of parts, and the key under which they are. `firsts` is, by how
    many first words it is of, a short digest → the numbers of words of the texts that begin so."""

    key: bytes
    digests: Mapping[int, Set[bytes]]
    marked: Mapping[int, Set[bytes]] = field(default_factory=dict)
    firsts: Mapping[int, Mapping[bytes, Set[int]]] = field(default_factory=dict)
    _answers: dict[str, bool] = field(default_factory=dict)

    def holds(self, given: str | None) -> bool:
        """Whether a text has one of them in it, by whole words."""
        if not given:
            return False
        if given not in self._answers:
            self._answers[given] = self._has_words(given) or self._has_marked(given)
        return self._answers[given]

    def _has_words(self, given: str) -> bool:
        words = WORD.findall(given) if self.digests else []
        return any(
            _digest(self.key, words[at : at + count]) in self.digests[count]
            for at in range(len(words))
            for count in self._counts(words[at : at + FIRST])
            if at + count <= len(words)
        )

    def _counts(self, words: Sequence[str]) -> Iterator[int]:
        """Yields the numbers of words of the texts that may begin so."""
        for length, known in self.firsts.items():
            yield from known.get(b"", ())  # recorded by an older release, without its first words
            if length <= len(words):
                yield from known.get(_digest(self.key, words[:length])[:FIRST_BYTES], ())

    def _has_marked(self, given: str) -> bool:
        parts = given.split() if self.marked else []
        for count, known in self.marked.items():
            windows = range(len(parts) - count + 1) if count else [0]
            for at in windows:
                whole_one = " ".join(parts[at : at + count] if count else parts)
                bare = whole_one.lstrip(MARKS[0]).rstrip(MARKS[1]) if count else whole_one
                if any(_digest(self.key, [one]) in known for one in {whole_one, bare}):
                    return True
        return False


NOTHING = Withheld(b"", {})
"""What is known where nothing was redacted."""


def remember(
    store: Store, given: Iterable[str], of_events: Iterable[str] = (), *, why: str, author: str
) -> None:
    """Records what will be known of redacted texts: those that were given, and whole ones of
    events. Inside the transaction that redacts them. Raises StoreError."""
    texts = {(one, False) for one in given} | {(one, True) for one in of_events}
    spoken = [(wording, is_whole) for wording, is_whole in texts if WORD.search(wording)]
    if not spoken:
        return
    key, content = _own_key(store)
    before = withheld(store)
    by_words, marked = set[tuple[int, str, str]](), set[tuple[int, str]]()
    for wording, is_whole in spoken:
        words, parts = WORD.findall(wording), wording.split()
        if sum(map(len, words)) < SHORTEST or NUMBER.fullmatch(wording):
            number = WHOLE if is_whole else len(parts)
            digest = _digest(key, [" ".join(parts)])
            if digest not in before.marked.get(number, ()):
                marked.add((number, digest.hex()))
        else:
            digest, first = _digest(key, words), _digest(key, words[:FIRST])[:FIRST_BYTES]
            if digest not in before.digests.get(len(words), ()):
                by_words.add((len(words), digest.hex(), first.hex()))
    if not by_words and not marked:
        return
    if by_words:
        content["withheld"] = [list(one) for one in sorted(by_words)]
    if marked:
        content["marked"] = [list(one) for one in sorted(marked)]
    decide(store, REDACTION, SUBJECT, content, why=why, author=author)


def withheld(store: Store) -> Withheld:
    """What is known of the texts that were redacted in a store: nothing where its key is missing.
    Raises StoreError."""
    redactions = decisions(store, kind=REDACTION, subject=SUBJECT)
    if not redactions:
        return NOTHING
    key = _file_key(store)
    digests: dict[int, set[bytes]] = {}
    marked: dict[int, set[bytes]] = {}
    firsts: dict[int, dict[bytes, set[int]]] = {}
    for one in redactions:
        key = key or _hex(one.content.get("key"))
        for count, digest, first in _known(one.content.get("withheld"), 1):
            digests.setdefault(count, set()).add(digest)
            firsts.setdefault(min(count, FIRST), {}).setdefault(first, set()).add(count)
        for count, digest, _ in _known(one.content.get("marked"), WHOLE):
            marked.setdefault(count, set()).add(digest)
    if key is None:
        return NOTHING
    return Withheld(key, digests, marked, firsts)


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


def _known(value: object, least: int) -> Iterator[tuple[int, bytes, bytes]]:
    """Yields what is on record: a number of words or parts, a digest, and that of the first words,
    which is empty where there is none."""
    for one in listed(value):
        count, digest, first, *_ = *listed(one), None, None, None
        number, known = whole(count), _hex(digest)
        if number is not None and number >= least and known is not None:
            yield number, known, (_hex(first) or b"")[:FIRST_BYTES]


def _hex(value: object) -> bytes | None:
    try:
        return bytes.fromhex(text(value)) or None
    except ValueError:
        return None


def _digest(key: bytes, words: Iterable[str]) -> bytes:
    joined = " ".join(words).encode(errors="surrogatepass")
    return hmac.digest(key, joined, hashlib.sha256)[:DIGEST_BYTES]
