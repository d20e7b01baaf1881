"""Letta's agents, `.af`: the memory blocks of an agent, each a page of text; in older files
`core_memory`. The rest is listed as skipped."""

from __future__ import annotations

from collections.abc import Iterator

from tfgrpo.interchange.format_types import Content, Format, SourceFile
from tfgrpo.interchange.text_in_json import Texts

KNOWN = ("blocks", "core_memory", "name", "id", "created_at", "updated_at", "version")


def _blocks(value: object) -> Iterator[dict[str, object]]:
    if not isinstance(value, dict):
        return
    for key in ("blocks", "core_memory"):
        for block in value.get(key) or ():
            if isinstance(block, dict) and "label" in block and "value" in block:
                yield block
    for agent in value.get("agents") or ():
        yield from _blocks({"core_memory": agent.get("core_memory")} if agent else None)


def detect(source: SourceFile) -> int:
    value = source.json
    if not isinstance(value, dict) or not ({"agents", "core_memory", "system"} & value.keys()):
        return 0
    return 4 * (next(_blocks(value), None) is not None)


def read(source: SourceFile) -> Content:
    value = source.json
    if not isinstance(value, dict):
        raise source.wrong("is no agent", 1, hint="an .af file is expected")
    texts = Texts(source)
    for block in _blocks(value):
        label, held = str(block["label"]), block["value"]
        if isinstance(held, str) and held.strip():
            texts.page(held, "value", {"block": label})
    agents = value.get("agents")
    for agent in agents if isinstance(agents, list) else ():
        if isinstance(agent, dict):
            texts.skip_rest(agent, (*KNOWN, "block_ids"), "a part of an agent")
    texts.skip_rest(value, (*KNOWN, "agents"))
    return Content(texts.items, skipped=texts.skipped)


FORMAT = Format("letta", "Letta: an agent's memory blocks", "json", "words", detect, read, None)
