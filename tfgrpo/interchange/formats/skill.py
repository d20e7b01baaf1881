"""SKILL.md: front matter with name and description, then the library as a Markdown list.

Agents that know skills read the description always and the body when it fits the task.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from tfgrpo.interchange import blocks, lists, yaml_text
from tfgrpo.interchange.outgoing import DESCRIPTION, NAME, Outgoing, about
from tfgrpo.interchange.records import Content, Format, SourceFile

FENCE = "---"


def detect(source: SourceFile) -> int:
    return 4 * (source.lines[0].rstrip() == FENCE and _end(source) is not None)


def _end(source: SourceFile) -> int | None:
    """Returns the index of the line that ends the front matter."""
    lines = enumerate(source.lines)
    return next((n for n, line in lines if n and line.rstrip() == FENCE), None)


def read(source: SourceFile) -> Content:
    end = _end(source)
    if source.lines[0].rstrip() != FENCE or end is None:
        raise source.wrong("has no front matter", 1, hint="a SKILL.md begins with --- and ends it")
    matter = yaml_text.loaded(source, "\n".join(source.lines[1:end]), 2)
    meta: dict[str, object] = {}
    front = json.loads(json.dumps(matter, default=str))  # dates as they are written
    for key in ("name", "description"):
        if isinstance(front.get(key), str):
            meta[f"skill_{key}"] = front.pop(key)
    if front:
        meta["skill_front"] = front
    found = blocks.read(source.lines[end + 1 :], end + 2, str(source.path))
    return found.content._replace(meta=meta)


def write(out: Outgoing) -> Iterator[str]:
    known = about(out)
    front = known.get("skill_front")
    named = {
        "name": out.name or known.get("skill_name") or NAME,
        "description": out.description or known.get("skill_description") or DESCRIPTION,
    }
    matter = yaml_text.dumped({**named, **(front if isinstance(front, Mapping) else {})})
    yield f"{FENCE}\n{matter}{FENCE}\n\n"
    for experience in out.library.readable:
        yield lists.written(experience) + "\n"


FORMAT = Format("skill", "agents that know skills: a SKILL.md", "md", "ids", detect, read, write)
