"""JSON of other programs: instructions of DSPy's saved programs, read as pages of Markdown, and
memories of mem0 and OpenMemory. The rest is listed as skipped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tfgrpo.interchange import markdown_blocks
from tfgrpo.interchange.format_types import (
    Content,
    Format,
    Item,
    Skipped,
    SourceFile,
    short_values,
)


def _rest(
    source: SourceFile, value: Mapping[str, object], known: Iterable[str], what: str
) -> Iterator[Skipped]:
    """Yields the fields of an object, other than those `known`, that hold anything."""
    for key in value.keys() - set(known):
        held = value[key]
        if held not in (None, "", [], {}, False):
            count = f", {len(held)} entries" if isinstance(held, list | dict) else ""
            at = source.key_lines.get(key)
            yield Skipped.at(at, f"{what} that is no experience{count}", key)


SIGNATURES = ("signature", "extended_signature")


def _predictors(value: object, path: str = "") -> Iterator[tuple[str, Mapping[str, object]]]:
    if not isinstance(value, dict):
        return
    if isinstance(value.get("signature"), dict) and "instructions" in value["signature"]:
        yield path or "predict", value
        return
    for key, inner in value.items():
        if key != "metadata":
            yield from _predictors(inner, f"{path}.{key}" if path else str(key))


def _detect_dspy(source: SourceFile) -> int:
    return 4 * (next(_predictors(source.json), None) is not None)


def _read_dspy(source: SourceFile) -> Content:
    items: list[Item] = []
    skipped: list[Skipped] = []
    for name, state in _predictors(source.json):
        key = name.rpartition(".")[2]
        at = source.key_lines.get(key)
        for signature in map(state.get, SIGNATURES):
            if not isinstance(signature, dict):
                continue
            text = signature.get("instructions")
            lines = text.replace("\r", "").split("\n") if isinstance(text, str) else []
            page = markdown_blocks.read(lines, name=str(source.path))
            for item in page.items:
                evidence = {"predictor": name, **(item.evidence or {})}
                items.append(item._replace(evidence=evidence, line=at))
            skipped += [Skipped.at(at, f"{one.what} in {key}", one.text) for one in page.skipped]
            skipped += _rest(source, signature, ["instructions"], f"a part of {name}'s signature")
        skipped += _rest(source, state, SIGNATURES, f"a part of {name}")
    return Content(items, skipped=skipped)


DSPY = Format(
    "dspy", "DSPy: a saved program's instructions", "json", "words", _detect_dspy, _read_dspy
)


PAGE = (
    *("count", "next", "previous", "total", "user", "apps", "categories", "memory_categories"),
    *("export_meta", "status_history", "access_controls"),
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
    value = source.json
    if value is not None:
        return [value] if isinstance(value, dict) and "state" in value else value
    try:
        return [source.value(line) for line in source.lines if line.strip()]
    except (ValueError, RecursionError):
        return None


def _detect_mem0(source: SourceFile) -> int:
    return 5 * (_memories(_value(source)) is not None)


def _read_mem0(source: SourceFile) -> Content:
    value = _value(source)
    memories = _memories(value)
    if memories is None:
        raise source.wrong("has no memories", 1, hint='{"results": [{"memory": …}]} is expected')
    items: list[Item] = []
    skipped: list[Skipped] = []
    for number, memory in enumerate(memories, 1):
        text = memory.get("memory", memory.get("content")) if isinstance(memory, dict) else None
        if not isinstance(memory, dict) or not isinstance(text, str):
            raise source.wrong(f"memory {number} has no text", 1, hint="is the file complete?")
        at = source.id_lines.get(str(memory.get("id")))
        ended = [state for state in ("deleted", "archived") if memory.get(f"{state}_at")]
        states = [memory.get("state", "active"), *ended]
        if gone := [state for state in states if state != "active"]:
            skipped.append(Skipped.at(at, f"is {gone[0]}", text))
            continue
        evidence = short_values(memory, ABOUT)
        metadata = memory.get("metadata")
        if isinstance(metadata, dict):
            more = short_values(metadata, metadata)
            evidence |= {f"metadata.{key}": held for key, held in more.items()}
        if isinstance(memory.get("categories"), list):
            evidence["categories"] = ", ".join(map(str, memory["categories"]))
        items.append(Item(text, evidence=evidence, line=at))
        skipped += _rest(source, memory, EMPTY, f"a part of memory {number}")
    if isinstance(value, dict):
        skipped += _rest(source, value, (*LISTS, *PAGE), "a field")
    return Content(items, skipped=skipped)


MEM0 = Format("mem0", "mem0: memories", "json", "texts", _detect_mem0, _read_mem0)
