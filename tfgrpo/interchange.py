"""Libraries in other people's files: reading them, and turning them into operations.

`json` is the flat object label → text of the reference implementation, `md` our own Markdown,
which carries ids and so comes back as changes of the very same experiences. Reading the same
file twice makes no second version.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tfgrpo.render import one_line
from tfgrpo.store.canonical import is_id
from tfgrpo.store.errors import TfgrpoError
from tfgrpo.store.records import Library, Operation

ITEM = re.compile(r"^\s*[-*]\s+(.*?)(?:\s*<!--\s*(\w+)\s*-->)?\s*$")
LABELLED = re.compile(r"^\[?G\d+\]?[.:)]?\s+(.*\S)\s*$")


class UnreadableLibrary(TfgrpoError):
    """A file that holds no library."""


class Item(NamedTuple):
    """A text from a file, with the experience's id where the file has it."""

    text: str
    id: str | None = None


def read(path: Path) -> tuple[Item, ...]:
    """Reads a library from a JSON, Markdown or prompt-text file, told apart by its content.

    Raises UnreadableLibrary naming what is wrong.
    """
    try:
        content = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UnreadableLibrary(f"no file {path}", hint="name a JSON or Markdown file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableLibrary(f"cannot read {path}: {error}", hint="UTF-8 is expected") from None
    items = _json(path, content) if content.lstrip().startswith(("{", "[")) else _lines(content)
    if items is None:
        items = _lines(content)
    unique = {item.text: item for item in reversed(items)}
    if not unique:
        raise UnreadableLibrary(
            f"{path} holds no experiences",
            hint='write {"G0": "text", …}, or a Markdown list with a line for each',
        )
    return tuple(dict.fromkeys(unique[item.text] for item in items))


def _json(path: Path, content: str) -> list[Item] | None:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        if LABELLED.match(content.lstrip().splitlines()[0]):
            return None
        raise UnreadableLibrary(
            f"{path}: not JSON: {error}"[:200], hint="is the file whole?"
        ) from None
    texts = list(found.values()) if isinstance(found, dict) else found
    if not all(isinstance(text, str) for text in texts):
        raise UnreadableLibrary(
            f"{path}: not a library", hint='an object of texts is expected: {"G0": "text", …}'
        )
    return [Item(" ".join(text.split())) for text in texts if text.strip()]


def _lines(content: str) -> list[Item]:
    items = []
    for line in content.splitlines():
        if match := ITEM.match(line):
            id = match[2] if match[2] and is_id(match[2]) else None
            if match[1].strip():
                items.append(Item(match[1].strip(), id))
        elif match := LABELLED.match(line):
            items.append(Item(match[1]))
    return items


def operations(library: Library, items: Sequence[Item], path: Path) -> list[Operation]:
    """Returns what makes a library hold `items` too: none for those that it holds already.

    An item with the id of a live experience and another text is a MODIFY. Nothing is deleted.
    """
    evidence = {
        "source": path.name,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }
    texts = {e.id: one_line(e.text) for e in library}
    modified = {
        item.id: item.text
        for item in items
        if item.id in texts and one_line(item.text) != texts[item.id]
    }
    changes = [Operation("MODIFY", id, text, evidence=evidence) for id, text in modified.items()]
    there = set((texts | modified).values())
    for item in items:
        if one_line(item.text) not in there and item.id not in texts:
            changes.append(Operation("ADD", None, item.text, evidence=evidence))
    return changes
