"""Canonical bytes, digests and identifiers: the part of the format that outlives this code.

Everything that is hashed is hashed as canonical JSON: UTF-8, no white space, keys sorted, non-ASCII
characters as they are. `docs/format.md` specifies each digest from these functions.

**Seals.** An event's text and reason enter the chain of digests only as a seal, SHA-256 over a
random salt and the content. Text and salt can be blanked: every digest still verifies, and nobody
can guess the text from the seal.

**Experience ids** are 60 random bits in twelve characters of Crockford's base 32.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from json.encoder import encode_basestring
from typing import NamedTuple

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
ID_LENGTH = 12
SALT_BYTES = 16

_json = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), sort_keys=True, allow_nan=False
).encode

_null, _in_quotes = "null", '"%s"'

EventContent = tuple[str, str, str | None, str | None, int]
"""What one event gives to its version's digest: op, experience, seal (hex), evidence, schema."""


def canonical(value: object) -> bytes:
    """The canonical JSON of a value made of dicts, lists, strings, numbers and None. Raises
    ValueError for NaN and infinities, TypeError for anything else."""
    return _json(value).encode()


def digest(value: object) -> bytes:
    """The SHA-256 (32 bytes) of the canonical JSON of `value`."""
    return hashlib.sha256(canonical(value)).digest()


def seal(salt: bytes, text: str | None, reason: str | None) -> bytes:
    """The salted digest (32 bytes) under which an event's content enters the chain."""
    # canonical([text, reason]), in a third of the time: it is done for every event.
    written = ("null" if one is None else encode_basestring(one) for one in (text, reason))
    return hashlib.sha256(salt + f"[{','.join(written)}]".encode()).digest()


class VersionContent(NamedTuple):
    """What a version's digest covers: the parents' digests, `time` in microseconds since 1970
    (UTC), `meta` as canonical JSON, the events in order."""

    schema: int
    parents: Sequence[bytes]
    author: str
    time: int
    message: str
    meta: str | None
    events: Iterable[EventContent]


def version_digest(content: VersionContent) -> bytes:
    """The digest of a version (32 bytes)."""
    schema, parents, author, time, message, meta, events = content
    quote = encode_basestring  # what `canonical` makes of all this, in a third of the time
    digests = ",".join([f'"{parent.hex()}"' for parent in parents])
    head = f'"tfgrpo.version",{schema},[{digests}],{quote(author)},{time},{quote(message)}'
    fields = ",".join(
        [
            f"[{quote(op)},{quote(experience)},{_null if seal is None else _in_quotes % seal},"
            f"{_null if evidence is None else quote(evidence)},{event_schema}]"
            for op, experience, seal, evidence, event_schema in events
        ]
    )
    stored = "null" if meta is None else quote(meta)
    return hashlib.sha256(f"[{head},{stored},[{fields}]]".encode()).digest()


def signed_payload(digest: bytes) -> bytes:
    """What is signed of a version: `digest` is the one that it has without its signature."""
    return b"tfgrpo version 1\n" + digest.hex().encode() + b"\n"


def encode_id(number: int) -> str:
    """The twelve characters that stand for the low 60 bits of `number`."""
    return "".join(ALPHABET[(number >> shift) & 31] for shift in range(55, -1, -5))


def new_salts(count: int) -> bytes:
    """Fresh random salts, one after another."""
    return os.urandom(SALT_BYTES * count)


def new_id() -> str:
    """A fresh random experience id."""
    return encode_id(int.from_bytes(os.urandom(8), "big"))


def derived_id(*parts: object) -> str:
    """The experience id that follows from `parts`. Training names its experiences so: a run that is
    resumed gives the ids that an undisturbed one gives."""
    return encode_id(int.from_bytes(digest(["tfgrpo.experience", *parts])[:8], "big"))


def is_id(text: str) -> bool:
    """Whether `text` has the form of a whole experience id."""
    return len(text) == ID_LENGTH and not text.strip(ALPHABET)
