"""GEPA's results, `result.to_dict()` as JSON. The best candidate (`best_idx`, or the highest of
`val_aggregate_scores`), an object component → text, is read."""

from __future__ import annotations

from tfgrpo.interchange.format_types import Content, Format, SourceFile
from tfgrpo.interchange.text_in_json import Texts

SCORES = "val_aggregate_scores"


def detect(source: SourceFile) -> int:
    value = source.json
    if not isinstance(value, dict) or not isinstance(value.get("candidates"), list):
        return 0
    return 4 * any(key in value for key in (SCORES, "best_idx", "parents"))


def read(source: SourceFile) -> Content:
    value = source.json
    candidates = value.get("candidates") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(candidates, list) or not candidates:
        raise source.wrong("has no candidates", 1, hint='{"candidates": [{…}]} is expected')
    scores = [s for s in value.get(SCORES) or [] if isinstance(s, int | float)]
    best = value.get("best_idx")
    if not isinstance(best, int) or not 0 <= best < len(candidates):
        whole = len(scores) == len(candidates)
        best = scores.index(max(scores)) if whole else len(candidates) - 1
    chosen = candidates[best]
    if not isinstance(chosen, dict):
        raise source.wrong(
            f"candidate {best} is no object",
            source.key_lines.get("candidates"),
            hint="an object of component → text is expected",
        )
    texts = Texts(source)
    score = {"score": scores[best]} if best < len(scores) else {}
    for component, text in chosen.items():
        if isinstance(text, str):
            texts.page(text, component, {"component": component, "candidate": best, **score})
        else:
            texts.skip(component, "a component that is no text", component)
    if len(candidates) > 1:
        texts.skip("candidates", f"{len(candidates) - 1} candidates other than the best, {best}")
    texts.skip_rest(value, ("candidates", SCORES, "best_idx"))
    return Content(texts.items, skipped=texts.skipped)


FORMAT = Format("gepa", "GEPA: the best candidate of a result", "json", "words", detect, read, None)
