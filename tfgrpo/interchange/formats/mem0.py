"""mem0's memories, `{"results": [{"id": …, "memory": …}]}` or the list alone, and OpenMemory's
export, whose active memories count."""

from __future__ import annotations

import json

from tfgrpo.interchange.format_types import Content, Format, Item, Skipped, SourceFile
from tfgrpo.interchange.text_in_json import Texts, short

PAGE = (
    *("count", "next", "previous", "total"),
    *("user", "apps", "categories", "memory_categories", "export_meta"),
    *("status_history", "access_controls"),
)
LISTS = ("results", "memories")
ABOUT = ("id", "user_id", "agent_id", "app_id", "run_id", "actor_id", "created_at", "updated_at")
EMPTY = ("hash", "score", "memory", "content", "state", "metadata", "categories", *ABOUT)


def _memories(value: object) -> list[object] | None:
    if isinstance(value, dict):
        value = next((value[key] for key in LISTS if isinstance(value.get(key), list)), None)
    if not isinstance(value, list) or not value or not isinstance(value[0], dict):
        return None
    exported = "content" in value[0] and "state" in value[0]
    return value if "memory" in value[0] or exported else None


def _value(source: SourceFile) -> object:
    """A file's JSON, or the list of its lines' where each of them is some."""
    if source.json is not None:
        return (
            [source.json]
            if isinstance(source.json, dict) and "state" in source.json
            else source.json
        )
    try:
        return [json.loads(line) for line in source.lines if line.strip()]
    except (ValueError, RecursionError):
        return None


def detect(source: SourceFile) -> int:
    return 5 * (_memories(_value(source)) is not None)


def read(source: SourceFile) -> Content:
    value = _value(source)
    memories = _memories(value)
    if memories is None:
        raise source.wrong("has no memories", 1, hint='{"results": [{"memory": …}]} is expected')
    texts = Texts(source)
    for number, memory in enumerate(memories, 1):
        text = memory.get("memory", memory.get("content")) if isinstance(memory, dict) else None
        if not isinstance(memory, dict) or not isinstance(text, str):
            raise source.wrong(f"memory {number} has no text", 1, hint="is the file complete?")
        at = source.line_of(str(memory.get("id", ""))) if memory.get("id") else None
        gone = [state for state in ("deleted", "archived") if memory.get(f"{state}_at")]
        state = memory.get("state", "active")
        if state != "active" or gone:
            state = state if state != "active" else gone[0]
            texts.skipped.append(Skipped(at or 0, at or 0, f"is {state}", text[:60]))
            continue
        evidence = short(memory, ABOUT)
        metadata = memory.get("metadata")
        if isinstance(metadata, dict):
            evidence |= {
                f"metadata.{key}": held for key, held in short(metadata, [*metadata]).items()
            }
        if isinstance(memory.get("categories"), list):
            evidence["categories"] = ", ".join(map(str, memory["categories"]))
        texts.items.append(Item(text, evidence=evidence, line=at))
        texts.skip_rest(memory, EMPTY, f"a part of memory {number}")
    if isinstance(value, dict):
        texts.skip_rest(value, (*LISTS, *PAGE))
    return Content(texts.items, skipped=texts.skipped)


FORMAT = Format("mem0", "mem0: memories", "json", "texts", detect, read, None)
