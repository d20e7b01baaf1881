"""A reader of store files written from `docs/format.md` alone, on the standard library.

It imports nothing of `tfgrpo`, so it can contradict the program that wrote the file. Where it
had to know something, the page says it; a test keeps the two apart (`test_store_format.py`).
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

APPLICATION_ID = 0x74666772
LANE = 1 << 40
REDACTED = "[redacted]"


class Experience(NamedTuple):
    id: str
    text: str
    row: int


class Reader:
    """Opens a store file for reading. Raises ValueError when it is none of this format."""

    def __init__(self, path: Path) -> None:
        self.db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        self.db.row_factory = sqlite3.Row
        if self._one("pragma application_id") != APPLICATION_ID:
            raise ValueError("not a store")
        if self._one("pragma user_version") < 3:
            raise ValueError("never finished, or older than version 1 of the format")
        self.versions = {v["number"]: v for v in self._all("select * from versions")}
        self.bases = dict(map(tuple, self._all("select lane, base from lanes")))

    def close(self) -> None:
        self.db.close()

    def _all(self, query: str, *values: object) -> list[sqlite3.Row]:
        return self.db.execute(query, values).fetchall()

    def _one(self, query: str, *values: object) -> Any:
        return self.db.execute(query, values).fetchone()[0]

    # "versions" and "events":

    def events(self, number: int) -> list[sqlite3.Row]:
        version = self.versions[number]
        upto = version["position"]
        return self._range(upto - version["events"], upto)

    def _range(self, after: int, upto: int) -> list[sqlite3.Row]:
        return self._all(
            "select * from events where row > ? and row <= ? order by row", after, upto
        )

    # "A library":

    def library(self, number: int, *, snapshots: bool = False) -> list[Experience]:
        live = self.live(self.versions[number]["position"], snapshots=snapshots)
        rows = [self._all("select * from events where row = ?", row)[0] for row in live]
        order = self.order(number)
        rows.sort(
            key=lambda e: (
                order.index(e["experience"]) if e["experience"] in order else len(order),
                e["row"] if e["birth"] is None else e["birth"],
            )
        )
        return [
            Experience(e["experience"], REDACTED if e["text"] is None else e["text"], e["row"])
            for e in rows
        ]

    def order(self, number: int) -> list[str]:
        meta = json.loads(self.versions[number]["meta"] or "{}")
        if "ordered" in meta:
            query = "select meta from versions where digest = ?"
            meta = json.loads(self._one(query, bytes.fromhex(meta["ordered"])))
        return meta.get("order", [])

    def live(self, position: int, *, snapshots: bool = False) -> set[int]:
        live: set[int] = set()
        ranges = []
        while True:
            lane = position // LANE
            found = self._all(
                "select position, live from snapshots where position > ? and position <= ?"
                " order by position desc limit 1",
                lane * LANE,
                position,
            )
            if snapshots and found:
                ranges.append((found[0]["position"], position))
                live = set(unpacked(found[0]["live"]))
                break
            ranges.append((lane * LANE, position))
            if lane == 0:
                break
            position = self.bases[lane]
        for after, upto in reversed(ranges):
            for event in self._range(after, upto):
                if event["op"] == "KEEP":
                    continue
                live.discard(event["replaces"])
                if event["op"] != "DELETE":
                    live.add(event["row"])
        return live

    # "Digests":

    def digest(self, number: int, *, signed: bool = True) -> bytes:
        version = self.versions[number]
        meta = version["meta"]
        if not signed:
            left = {k: v for k, v in json.loads(meta).items() if k != "signature"}
            meta = canonical(left).decode() if left else None
        parents = [version[p] for p in ("parent", "merged") if version[p] is not None]
        content = [
            "tfgrpo.version",
            version["schema"],
            [self.versions[p]["digest"].hex() for p in parents],
            version["author"],
            version["time"],
            version["message"],
            meta,
            [
                [
                    e["op"],
                    e["experience"],
                    e["seal"] and e["seal"].hex(),
                    e["evidence"],
                    e["schema"],
                ]
                for e in self.events(number)
            ],
        ]
        return hashlib.sha256(canonical(content)).digest()

    # "Signatures":

    def signed(self, number: int) -> tuple[bytes, str]:
        """Returns what is signed of a version, and its signature."""
        signature: str = json.loads(self.versions[number]["meta"])["signature"]
        digest = self.digest(number, signed=False)
        return f"tfgrpo version 1\n{digest.hex()}\n".encode(), signature

    def wrong(self) -> Iterator[str]:
        """Yields what does not verify: digests, seals, redactions, texts, runs."""
        redacted = {row["event"] for row in self._all("select event from redactions")}
        for number, version in self.versions.items():
            if self.digest(number) != version["digest"]:
                yield f"v{number}"
            for event in self.events(number):
                blank = event["text"] is None and event["reason"] is None and event["salt"] is None
                if event["seal"] is None or event["row"] in redacted:
                    good = blank and (event["seal"] is not None or event["row"] not in redacted)
                else:
                    good = event["salt"] is not None and event["seal"] == seal(event)
                if not good:
                    yield f"event {event['row']}"
        for text in self._all("select * from texts"):
            if hashlib.sha256(plain(text["text"]).encode()).digest() != text["digest"]:
                yield f"text {text['id']}"
        for run in self._all("select * from runs"):
            if hashlib.sha256(run["config"].encode()).hexdigest() != run["digest"]:
                yield f"run {run['name']}"

    # "Names":

    def names(self) -> dict[str, tuple[int, str | None]]:
        """Returns name → where it stands: the version's number, and the branch HEAD follows."""
        stands = {row["name"]: row for row in self._all("select * from reflog order by row")}
        found = {
            n: (r["version"], r["symbol"]) for n, r in stands.items() if r["version"] is not None
        }
        number, symbol = found["HEAD"]
        if symbol is not None:
            number = found[symbol][0]
        return found | {"HEAD": (number, symbol)}

    def operations(self) -> list[list[sqlite3.Row]]:
        """Returns the ref log as operations, oldest first, each with its moves."""
        batches: dict[int, list[sqlite3.Row]] = {}
        for row in self._all("select * from reflog order by row"):
            batches.setdefault(row["batch"], []).append(row)
        return list(batches.values())

    def redactions(self) -> list[tuple[int, str, int, str]]:
        query = "select event, author, time, reason from redactions order by row"
        return [tuple(row) for row in self._all(query)]

    # "Records of training":

    def runs(self) -> dict[str, list[str]]:
        """Returns run → its states."""
        return {
            run["name"]: [
                row["state"]
                for row in self._all(
                    "select * from run_states where run = ? order by row", run["id"]
                )
            ]
            for run in self._all("select * from runs order by id")
        }

    def calls(self) -> dict[str, tuple[list[list[str]], dict[str, Any]]]:
        """Returns journal key in hex → the request's messages and the answer."""
        query = "select key, text, answer from journal join texts on texts.id = journal.request"
        return {
            row["key"].hex(): (json.loads(plain(row["text"])), json.loads(plain(row["answer"])))
            for row in self._all(query)
        }

    def rollouts(self) -> list[tuple[str, int, str, int, int, float | None, list[str]]]:
        """Returns run, step, problem, sample, version, reward and calls of every rollout."""
        query = "select runs.name, rollouts.* from rollouts join runs on runs.id = rollouts.run"
        return [
            (
                row["name"],
                *(row[c] for c in ("step", "problem", "sample", "version", "reward")),
                json.loads(row["calls"]),
            )
            for row in self._all(query + " order by rollouts.run, step, problem, sample")
        ]


def canonical(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()


def seal(event: sqlite3.Row) -> bytes:
    return hashlib.sha256(event["salt"] + canonical([event["text"], event["reason"]])).digest()


def plain(value: str | bytes) -> str:
    return value if isinstance(value, str) else zlib.decompress(value).decode()


def unpacked(blob: bytes) -> list[int]:
    plain = zlib.decompress(blob)
    row, rows = 0, []
    for start in range(0, len(plain), 8):
        row += int.from_bytes(plain[start : start + 8], "little", signed=True)
        rows.append(row)
    return rows
