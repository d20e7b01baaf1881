"""JSON of other programs, whose texts are read as pages of Markdown, each at the line of its key:
instructions of DSPy's saved programs, the best candidate of GEPA's `result.to_dict()`, the memory
blocks of Letta's agents (`.af`), memories of mem0 and OpenMemory. The rest is listed as skipped."""

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
from tfgrpo.store.damaged_values import listed, objects


class Texts:
    """Collects the experiences of texts in a file, and what of it was skipped."""

    def __init__(self, source: SourceFile) -> None:
        self._source = source
        self.items: list[Item] = []
        self.skipped: list[Skipped] = []

    def page(self, text: str, key: str, evidence: Mapping[str, object]) -> None:
        """Reads a text as Markdown; `key` is what it is called in the file."""
        at = self._source.key_lines.get(key)
        page = markdown_blocks.read(text.replace("\r", "").split("\n"), name=str(self._source.path))
        for item in page.items:
            merged = {**evidence, **(item.evidence or {})}
            self.items.append(item._replace(evidence=merged, line=at))
        for part in page.skipped:
            self.skipped.append(Skipped.at(at, f"{part.what} in {key}", part.text))

    def skip(self, key: str, what: str, text: str = "") -> None:
        """Lists a part of the file that becomes nothing."""
        self.skipped.append(Skipped.at(self._source.key_lines.get(key), what, text))

    def skip_rest(self, value: Mapping[str, object], known: Iterable[str], what: str) -> None:
        """Lists the fields of an object, other than those `known`, that hold anything."""
        for key in value.keys() - set(known):
            held = value[key]
            if held not in (None, "", [], {}, False):
                count = f", {len(held)} entries" if isinstance(held, list | dict) else ""
                self.skip(key, f"{what} that is no experience{count}", key)

    @property
    def content(self) -> Content:
        """All of it."""
        return Content(self.items, skipped=self.skipped)


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
    texts = Texts(source)
    for name, state in _predictors(source.json):
        key = name.rpartition(".")[2]
        for signature in filter(None, map(state.get, SIGNATURES)):
            if isinstance(signature, dict):
                instructions = signature.get("instructions")
                if isinstance(instructions, str):
                    texts.page(instructions, key, {"predictor": name})
                texts.skip_rest(signature, ["instructions"], f"a part of {name}'s signature")
        texts.skip_rest(state, SIGNATURES, f"a part of {name}")
    return texts.content


DSPY = Format(
    "dspy", "DSPy: a saved program's instructions", "json", "words", _detect_dspy, _read_dspy
)


SCORES = "val_aggregate_scores"


def _detect_gepa(source: SourceFile) -> int:
    value = source.json
    if not isinstance(value, dict) or not isinstance(value.get("candidates"), list):
        return 0
    return 4 * any(key in value for key in (SCORES, "best_idx", "parents"))


def _read_gepa(source: SourceFile) -> Content:
    candidates, value = source.member("candidates", list), source.json
    assert isinstance(value, dict)
    scores = [s for s in listed(value.get(SCORES)) if isinstance(s, int | float)]
    best = value.get("best_idx")
    if not isinstance(best, int) or not 0 <= best < len(candidates):
        whole = 0 < len(scores) == len(candidates)
        best = scores.index(max(scores)) if whole else len(candidates) - 1
    chosen = candidates[best] if candidates else None
    if not isinstance(chosen, dict):
        at = source.key_lines.get("candidates")
        raise source.wrong(f"candidate {best} is no object", at, hint="{component: text}")
    texts = Texts(source)
    score = {"score": scores[best]} if best < len(scores) else {}
    for component, text in chosen.items():
        if isinstance(text, str):
            texts.page(text, component, {"component": component, "candidate": best, **score})
        else:
            texts.skip(component, "a component that is no text", component)
    if len(candidates) > 1:
        texts.skip("candidates", f"{len(candidates) - 1} candidates other than the best, {best}")
    texts.skip_rest(value, ("candidates", SCORES, "best_idx"), "a field")
    return texts.content


GEPA = Format(
    "gepa", "GEPA: the best candidate of a result", "json", "words", _detect_gepa, _read_gepa
)


OF_AGENT = ("blocks", "core_memory", "name", "id", "created_at", "updated_at", "version")


def _blocks(value: object) -> Iterator[dict[str, object]]:
    if not isinstance(value, dict):
        return
    for key in ("blocks", "core_memory"):
        for block in objects(value.get(key)):
            if "label" in block and "value" in block:
                yield block
    for agent in objects(value.get("agents")):
        yield from _blocks({"core_memory": agent.get("core_memory")})


def _detect_letta(source: SourceFile) -> int:
    value = source.json
    if not isinstance(value, dict) or not ({"agents", "core_memory", "system"} & value.keys()):
        return 0
    return 4 * (next(_blocks(value), None) is not None)


def _read_letta(source: SourceFile) -> Content:
    texts, value = Texts(source), source.json
    for block in _blocks(value):
        if isinstance(block["value"], str):
            texts.page(block["value"], "value", {"block": str(block["label"])})
    whole: dict[str, object] = value if isinstance(value, dict) else {}
    for agent in objects(whole.get("agents")):
        texts.skip_rest(agent, (*OF_AGENT, "block_ids"), "a part of an agent")
    texts.skip_rest(whole, (*OF_AGENT, "agents"), "a field")
    return texts.content


LETTA = Format(
    "letta", "Letta: an agent's memory blocks", "json", "words", _detect_letta, _read_letta
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
    texts, lines = Texts(source), source.id_lines
    for number, memory in enumerate(memories, 1):
        text = memory.get("memory", memory.get("content")) if isinstance(memory, dict) else None
        if not isinstance(memory, dict) or not isinstance(text, str):
            raise source.wrong(f"memory {number} has no text", 1, hint="is the file complete?")
        at = lines.get(str(memory.get("id")))
        ended = [state for state in ("deleted", "archived") if memory.get(f"{state}_at")]
        states = [memory.get("state", "active"), *ended]
        if gone := [state for state in states if state != "active"]:
            texts.skipped.append(Skipped.at(at, f"is {gone[0]}", text))
            continue
        evidence = short_values(memory, ABOUT)
        metadata = memory.get("metadata")
        if isinstance(metadata, dict):
            more = short_values(metadata, metadata)
            evidence |= {f"metadata.{key}": held for key, held in more.items()}
        if isinstance(memory.get("categories"), list):
            evidence["categories"] = ", ".join(map(str, memory["categories"]))
        texts.items.append(Item(text, evidence=evidence, line=at))
        texts.skip_rest(memory, EMPTY, f"a part of memory {number}")
    if isinstance(value, dict):
        texts.skip_rest(value, (*LISTS, *PAGE), "a field")
    return texts.content


MEM0 = Format("mem0", "mem0: memories", "json", "texts", _detect_mem0, _read_mem0)
