"""mem0's memories: `{"results": [{"id": …, "memory": …}]}`, or the list alone."""

from __future__ import annotations

from tfgrpo.interchange.embedded import Texts, short
from tfgrpo.interchange.records import Content, Format, Item, SourceFile

LISTS = ("results", "memories")
ABOUT = ("id", "user_id", "agent_id", "app_id", "run_id", "actor_id", "created_at", "updated_at")
EMPTY = ("hash", "score", "memory", "metadata", "categories", *ABOUT)


def _memories(value: object) -> list[object] | None:
    if isinstance(value, dict):
        value = next((value[key] for key in LISTS if isinstance(value.get(key), list)), None)
    whole = isinstance(value, list) and value and isinstance(value[0], dict)
    return value if isinstance(value, list) and whole and "memory" in value[0] else None


def detect(source: SourceFile) -> int:
    return 4 * (_memories(source.json) is not None)


def read(source: SourceFile) -> Content:
    memories = _memories(source.json)
    if memories is None:
        raise source.wrong("has no memories", 1, hint='{"results": [{"memory": …}]} is expected')
    texts = Texts(source)
    for number, memory in enumerate(memories, 1):
        text = memory.get("memory") if isinstance(memory, dict) else None
        if not isinstance(memory, dict) or not isinstance(text, str):
            raise source.wrong(f"memory {number} has no text", 1, hint="is the file complete?")
        evidence = short(memory, ABOUT)
        metadata = memory.get("metadata")
        if isinstance(metadata, dict):
            evidence |= {
                f"metadata.{key}": held for key, held in short(metadata, [*metadata]).items()
            }
        if isinstance(memory.get("categories"), list):
            evidence["categories"] = ", ".join(map(str, memory["categories"]))
        at = source.line_of(str(memory.get("id", ""))) if memory.get("id") else None
        texts.items.append(Item(text, evidence=evidence, line=at))
        texts.skip_rest(memory, EMPTY, f"a part of memory {number}")
    if isinstance(source.json, dict):
        texts.skip_rest(source.json, (*LISTS, "count", "next", "previous", "total"))
    return Content(texts.items, skipped=texts.skipped)


FORMAT = Format("mem0", "mem0: memories", "json", "texts", detect, read, None)
