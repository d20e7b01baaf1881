"""What a mirror's commits hold, as bytes: the same for everybody, from the version alone."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from urllib.parse import unquote

from tfgrpo.interchange.formats.markdown import written
from tfgrpo.store.canonical import canonical
from tfgrpo.store.damaged_values import LATEST
from tfgrpo.store.history.library_order import source
from tfgrpo.store.history.walks import version_of_row
from tfgrpo.store.records import (
    EVENT_SCHEMA,
    OPS,
    REDACTED,
    VERSION_SCHEMA,
    EventRow,
    Experience,
    Redaction,
    Version,
)
from tfgrpo.store.store import Store
from tfgrpo.store.transfer.pack import PackedEvent, PackedVersion

LIBRARY, EVENTS, ATTRIBUTES = "library.md", "events.jsonl", ".gitattributes"
ATTRIBUTES_TEXT = b"events.jsonl -diff linguist-generated\n"
TRAILER = "Tfgrpo-Version"
HEADING = """# Library

<!-- One experience a line. `tfgrpo import git` reads lines that were changed, added or removed. -->

"""
LAYOUT = 1
COMMIT = re.compile(r"\A[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")
IDENT = re.compile(r"\A(.*?)\s*<([^<>\n]*)>\Z", re.DOTALL)


class Rendering:
    """`library.md` at one version after another; cheap where each builds on the last."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._at: Version | None = None
        self._lines: dict[str, str] = {}
        self._text = HEADING

    def at(self, version: Version) -> str:
        """The library at a version as a Markdown list of one line an experience."""
        at = self._at
        if at is not None and version.number == at.number:
            return self._text
        if at is not None and version.parent == at.number and source(version) == source(at):
            for row in self._store.port.events(version.position - version.events, version.position):
                self._apply(row)
        else:
            self._replay(version)
        self._at = version
        self._text = HEADING + "".join(f"{line}\n" for line in self._lines.values())
        return self._text

    def _replay(self, version: Version) -> None:
        library = self._store.library(version)
        self._lines = {e.id: written(e, one_line=True) for e in library}

    def _apply(self, row: EventRow) -> None:
        if row.op == "DELETE":
            self._lines.pop(row.experience, None)
        elif row.op == "ADD" and row.birth is not None:
            # It takes its old place: only a replay knows which.
            self._replay(version_of_row(self._store.port, row.row))
        elif row.op != "KEEP":
            text = row.text if row.text is not None else REDACTED
            experience = Experience(row.experience, text, row.row)
            self._lines[row.experience] = written(experience, one_line=True)


def record(version: PackedVersion) -> bytes:
    """A version's `events.jsonl`: what travels of it, with the JSON in it as JSON."""
    head = {
        "tfgrpo": LAYOUT,
        "version": version.digest.hex(),
        "parents": [digest.hex() for digest in version.parents],
        "author": version.author,
        "time": version.time,
        "message": version.message,
        "meta": json.loads(version.meta) if version.meta else None,
    }
    lines = [head]
    for event in version.events:
        line = {name: getattr(event, name) for name in ("op", "experience", "text", "reason")}
        line["evidence"] = json.loads(event.evidence) if event.evidence else None
        line["seal"] = event.seal.hex() if event.seal else None
        line["salt"] = event.salt.hex() if event.salt else None
        if event.redactions:
            line["redactions"] = [one._asdict() for one in event.redactions]
        lines.append(line)
    return b"".join(canonical(line) + b"\n" for line in lines)


def recorded(content: bytes) -> PackedVersion | None:
    """The version that `events.jsonl` tells of, to be verified by receiving it, or None."""
    try:
        head, *lines = [json.loads(line) for line in content.split(b"\n") if line]
        if head["tfgrpo"] != LAYOUT:
            return None
        events = [
            PackedEvent(
                op=next(op for op in OPS if op == line["op"]),
                experience=str(line["experience"]),
                text=_text(line["text"]),
                reason=_text(line["reason"]),
                evidence=canonical(line["evidence"]).decode() if line["evidence"] else None,
                seal=bytes.fromhex(line["seal"]) if line["seal"] else None,
                salt=bytes.fromhex(line["salt"]) if line["salt"] else None,
                schema=EVENT_SCHEMA,
                redactions=tuple(_redaction(redaction) for redaction in line.get("redactions", ())),
            )
            for line in lines
        ]
        return PackedVersion(
            digest=bytes.fromhex(head["version"]),
            parents=tuple(bytes.fromhex(digest) for digest in head["parents"]),
            schema=VERSION_SCHEMA,
            author=str(head["author"]),
            time=int(head["time"]),
            message=str(head["message"]),
            meta=canonical(head["meta"]).decode() if head["meta"] else None,
            events=tuple(events),
        )
    except (ValueError, TypeError, KeyError, StopIteration, RecursionError):
        return None


def is_own(
    record: PackedVersion, below: Sequence[bytes | None], events: str, above: Collection[str | None]
) -> bool:
    """Whether a commit's record is its own: it stands on what the version builds on, the versions
    `below`. Elsewhere it came along, as in a revert or a cherry-pick. `events` names its record,
    and `above` those of the commits that it stands on."""
    return events not in above and (tuple(below) == record.parents or record.digest in below)


def _redaction(fields: Mapping[str, object]) -> Redaction:
    time = fields["time"]
    if not isinstance(time, int):
        raise TypeError
    return Redaction(str(fields["author"]), time, str(fields["reason"]))


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def message(version: Version, subject: str) -> bytes:
    """A commit's message: the version's subject, and the trailer that names it."""
    text = subject.replace("\0", "").strip() or "(no message)"
    return f"{text}\n\n{TRAILER}: {version.digest.hex()}\n".encode()


def ident(author: str, time: int) -> bytes:
    """An author and a time in microseconds as git writes them."""
    match = IDENT.match(author)
    name, email = (match[1], match[2]) if match else (author, "")
    name, email = (re.sub(r"[\x00-\x1f\x7f<>]", "", part).strip() for part in (name, email))
    return f"{name or 'unknown'} <{email}> {max(0, time // 1_000_000)} +0000".encode()


def author_of(line: str) -> tuple[str, int]:
    """Who a commit's `author` line names, and the time in microseconds: the first or the last that
    a version can have, where it has another."""
    who, _, when = line.rpartition("> ")
    name, _, email = who.partition(" <")
    seconds = when.split(" ")[0]
    named = f"{name} <{email}>" if email else name
    time = int(seconds[:20]) * 1_000_000 if re.fullmatch("[0-9]+", seconds) else 0
    return named.strip() or "unknown", min(time, LATEST - 1)


def made_of(meta: object) -> str | None:
    """The commit by hand that a version with this meta was made of."""
    origin = meta.get("import") if isinstance(meta, Mapping) else None
    commit = origin.get("commit") if isinstance(origin, Mapping) else None
    return commit if isinstance(commit, str) and COMMIT.match(commit) else None


def made_by_hand(store: Store) -> dict[str, Version]:
    """Returns commit → version, of every commit by hand that the store made a version of."""
    versions = map(store.version, range(store.port.last_version() + 1))
    return {commit: version for version in versions if (commit := made_of(version.meta))}


def ref_name(name: str, names: Collection[str]) -> str:
    """A branch's or tag's name as git can hold it beside `names`: `%`, in no name of ours, stands
    for what git refuses."""
    parts = name.split("/")
    beside = any("/".join(parts[:n]) in names for n in range(1, len(parts)))
    safe = (re.sub(r"^\.|\.(?=lock$)", "%2E", part) for part in parts)
    return ("%2F" if beside else "/").join(safe)


def our_name(ref: str) -> str:
    """The name that `ref_name` wrote."""
    return unquote(ref)
