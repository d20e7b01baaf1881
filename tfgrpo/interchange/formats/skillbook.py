"""The skillbook of kayba's ACE: JSON with a skill's content, justification and counters."""

from __future__ import annotations

import json

from tfgrpo.interchange.records import Content, Format, Item, Source

SAID = ("section", "evidence", "helpful", "harmful", "neutral", "created_at", "updated_at")


def detect(source: Source) -> int:
    found = source.json
    return 3 * (isinstance(found, dict) and isinstance(found.get("skills"), dict))


def read(source: Source) -> Content:
    found = source.json
    skills = found.get("skills") if isinstance(found, dict) else None
    if not isinstance(skills, dict):
        raise source.wrong("has no skills", 1, hint='{"skills": {"id": {…}}} is expected')
    items = []
    for id, skill in skills.items():
        at = source.line_of(json.dumps(id, ensure_ascii=False))
        content = skill.get("content") if isinstance(skill, dict) else None
        if not isinstance(skill, dict) or not isinstance(content, str):
            raise source.wrong(f"skill {id!r} has no content", at, hint="is the file complete?")
        if skill.get("status", "active") != "active":
            continue
        said = {"skill": id} | {k: skill[k] for k in SAID if isinstance(skill.get(k), str | int)}
        why = skill.get("justification")
        items.append(Item(content, None, why if isinstance(why, str) else None, said, at))
    return Content(items)


FORMAT = Format("skillbook", "kayba ACE: a skillbook", "json", "texts", detect, read, None)
