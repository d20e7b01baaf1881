"""SKILL.md: front matter with name and description, then the library as a Markdown list.

What is written passes the format's reference validator (agentskills.io/specification).
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping

from tfgrpo.interchange import markdown_blocks, yaml_text
from tfgrpo.interchange.format_types import Content, Format, SourceFile, UnreadableLibrary
from tfgrpo.interchange.formats import markdown
from tfgrpo.interchange.library_files import DESCRIPTION, NAME, Outgoing, about

FENCE = "---"
FIELDS = ("license", "compatibility", "allowed-tools")
"""What the specification has beside name, description and metadata, as texts."""
LONGEST_NAME, LONGEST_DESCRIPTION, LONGEST_COMPATIBILITY = 64, 1024, 500


def detect(source: SourceFile) -> int:
    return 4 * (source.lines[0].rstrip() == FENCE and _end(source) is not None)


def _end(source: SourceFile) -> int | None:
    lines = enumerate(source.lines)
    return next((n for n, line in lines if n and line.rstrip() == FENCE), None)


def read(source: SourceFile) -> Content:
    end = _end(source)
    if source.lines[0].rstrip() != FENCE or end is None:
        raise source.wrong("has no front matter", 1, hint="a SKILL.md begins with --- and ends it")
    front = yaml_text.front_matter(source, "\n".join(source.lines[1:end]), 2)
    meta: dict[str, object] = {}
    for key in ("name", "description"):
        if isinstance(front.get(key), str):
            meta[f"skill_{key}"] = front.pop(key)
    if front:
        meta["skill_front"] = front
    listing = markdown_blocks.read(source.lines[end + 1 :], end + 2, str(source.path))
    return listing._replace(meta=meta)


def write(out: Outgoing) -> Iterator[str]:
    yield f"{front_matter(out)}\n"
    for experience in out.library.readable:
        yield markdown.written(experience) + "\n"


def front_matter(out: Outgoing) -> str:
    """What a skill says about itself, between its fences. Raises UnreadableLibrary for a name or
    description that was asked for and that a skill cannot have; others are fitted."""
    known = about(out)
    if out.name is not None and (not out.name or out.name != skill_name(out.name)):
        raise UnreadableLibrary(
            f"{out.name!r} cannot name a skill",
            hint="small letters, digits and single hyphens, such as "
            f"{skill_name(out.name) or NAME!r}",
        )
    if out.description is not None and not 0 < len(out.description.strip()) <= LONGEST_DESCRIPTION:
        raise UnreadableLibrary(
            f"the description has {len(out.description.strip())} characters",
            hint=f"a skill's has 1 to {LONGEST_DESCRIPTION}",
        )
    imported = skill_name(str(known.get("skill_name") or ""))
    folder = out.folder if out.folder and out.folder == skill_name(out.folder) else None
    description = out.description or str(known.get("skill_description") or "").strip()
    fields: dict[str, object] = {
        "name": out.name or imported or folder or NAME,
        "description": (_plain(description) or DESCRIPTION)[:LONGEST_DESCRIPTION],
    }
    front = known.get("skill_front")
    more: dict[str, str] = {}
    for key, value in front.items() if isinstance(front, Mapping) else ():
        if key in FIELDS:
            fields[key] = _text(value)
        elif key == "metadata" and isinstance(value, Mapping):
            more |= {_plain(str(name)): _text(held) for name, held in value.items()}
        else:  # of one agent alone: a field that the specification does not have
            more[_plain(str(key))] = _text(value)
    if "compatibility" in fields:
        fields["compatibility"] = str(fields["compatibility"])[:LONGEST_COMPATIBILITY]
    if more:
        fields["metadata"] = more
    return f"{FENCE}\n{yaml_text.dumped(fields)}{FENCE}\n"


def skill_name(text: str) -> str:
    """A text as a skill's name: itself where it can be one, and empty where nothing of it can."""
    lower = unicodedata.normalize("NFKC", text).lower()
    name = re.sub(r"[\W_]+", "-", lower).strip("-")
    return name[:LONGEST_NAME].rstrip("-") if all(c.isalnum() or c == "-" for c in name) else ""


def _text(value: object) -> str:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return _plain(" ".join(value))
    return _plain(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _plain(text: str) -> str:
    """A text without what would end the front matter for readers that look for hyphens."""
    return re.sub("-{3,}", "\u2014", text)


FORMAT = Format("skill", "agents that know skills: a SKILL.md", "md", "ids", detect, read, write)
