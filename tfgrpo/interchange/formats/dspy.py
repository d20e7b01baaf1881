"""DSPy's programs as `program.save("program.json")` writes them: the instructions of their
predictors, each a page of text. Demonstrations are listed as skipped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tfgrpo.interchange.format_types import Content, Format, SourceFile
from tfgrpo.interchange.text_in_json import Texts

SIGNATURES = ("signature", "signature_instructions", "extended_signature")
KNOWN = (*SIGNATURES, "demos", "train", "traces", "lm")


def _predictors(value: object, path: str = "") -> Iterator[tuple[str, Mapping[str, object]]]:
    if not isinstance(value, dict):
        return
    if isinstance(value.get("signature"), dict) and "instructions" in value["signature"]:
        yield path or "predict", value
        return
    for key, inner in value.items():
        if key != "metadata":
            yield from _predictors(inner, f"{path}.{key}" if path else str(key))


def detect(source: SourceFile) -> int:
    return 4 * (next(_predictors(source.json), None) is not None)


def read(source: SourceFile) -> Content:
    texts = Texts(source)
    for name, state in _predictors(source.json):
        key = name.rpartition(".")[2]
        for kind in SIGNATURES[::2]:
            signature = state.get(kind)
            if not isinstance(signature, dict):
                continue
            instructions = signature.get("instructions")
            if isinstance(instructions, str):
                texts.page(instructions, key, {"predictor": name})
            fields = signature.get("fields")
            if isinstance(fields, list) and fields:
                texts.skip(key, f"the {len(fields)} fields of {name}'s signature")
        for kind in ("demos", "train", "traces"):
            held = state.get(kind)
            if isinstance(held, list) and held:
                texts.skip(key, f"{len(held)} {kind} of {name}")
        texts.skip_rest(state, KNOWN, f"a part of {name}")
    return Content(texts.items, skipped=texts.skipped)


FORMAT = Format("dspy", "DSPy: a saved program's instructions", "json", "words", detect, read, None)
