"""JSON: the flat object label → text that the reference implementation keeps its libraries in."""

from __future__ import annotations

from collections.abc import Iterator

from tfgrpo.interchange.format_types import Content, Format, Item, Pairs, SourceFile
from tfgrpo.interchange.library_files import Outgoing

EXPECTED = 'an object of texts is expected: {"G0": "text", …}'


def detect(source: SourceFile) -> int:
    """Whatever begins like JSON and is nothing else is to be this, so that its error is told."""
    if isinstance(source.json, dict):
        return 2 if all(isinstance(text, str) for text in source.json.values()) else 1
    if isinstance(source.first_row, dict):  # one of many objects
        return 0
    return int(source.text.lstrip()[:1] in ("{", "["))


def read(source: SourceFile) -> Content:
    import json

    value = source.json
    if value is None:
        try:
            json.loads(source.text)
        except json.JSONDecodeError as error:
            raise source.wrong(
                f"not JSON: {error.msg}", error.lineno, hint="is the file complete?"
            ) from None
        except RecursionError:
            raise source.wrong("not JSON: nested too deep", 1, hint=EXPECTED) from None
    if isinstance(value, Pairs) and value.twice is not None:
        at = source.line_of(json.dumps(value.twice, ensure_ascii=False))
        raise source.wrong(f"has {value.twice!r} twice", at, hint="give each text its own label")
    if isinstance(value, dict):
        pairs = list(value.items())
    elif isinstance(value, list):
        pairs = [(f"{n}", text) for n, text in enumerate(value)]
    else:
        raise source.wrong("not a library", 1, hint=EXPECTED)
    items = []
    for label, text in pairs:
        if not isinstance(text, str):
            at = source.line_of(json.dumps(label, ensure_ascii=False)) or 1
            raise source.wrong(f"{label!r} is no text", at, hint=EXPECTED)
        items.append(Item(text, evidence={"label": label}))
    return Content(items)


def write(out: Outgoing) -> Iterator[str]:
    texts = {out.library.label_of[e.id]: e.text for e in out.library.readable}
    from _json import encode_basestring as quoted  # all that a checkout needs of `json`

    lines = (f"  {quoted(label)}: {quoted(text)}" for label, text in texts.items())
    yield "{\n" + ",\n".join(lines) + "\n}\n" if texts else "{}\n"


FORMAT = Format(
    "json", "Youtu-Agent's experiences.json: label → text", "json", "texts", detect, read, write
)
