"""The skillbook of kayba's ACE: JSON with a skill's content, justification and counters."""

from __future__ import annotations

from tfgrpo.interchange.format_types import Content, Format, Item, Skipped, SourceFile

EVIDENCE_KEYS = ("section", "evidence", "helpful", "harmful", "neutral", "created_at", "updated_at")

KNOWN = {"id", "content", "justification", "status"}


def detect(source: SourceFile) -> int:
    value = source.json
    return 3 * (isinstance(value, dict) and isinstance(value.get("skills"), dict))


def read(source: SourceFile) -> Content:
    value = source.json
    skills = value.get("skills") if isinstance(value, dict) else None
    if not isinstance(skills, dict):
        raise source.wrong("has no skills", 1, hint='{"skills": {"id": {…}}} is expected')
    items = []
    skipped = []
    dropped: dict[str, int] = {}
    for id, skill in skills.items():
        at = source.key_lines.get(id)
        content = skill.get("content") if isinstance(skill, dict) else None
        if not isinstance(skill, dict) or not isinstance(content, str):
            raise source.wrong(f"skill {id!r} has no content", at, hint="is the file complete?")
        if skill.get("status", "active") != "active":
            skipped.append(Skipped(at or 0, at or 0, f"status {skill['status']}", content[:60]))
            continue
        evidence = {"skill": id} | {
            k: skill[k] for k in EVIDENCE_KEYS if isinstance(skill.get(k), str | int)
        }
        for key in skill.keys() - evidence.keys() - KNOWN:
            if skill[key] not in (None, "", [], {}):
                dropped[key] = dropped.get(key, 0) + 1
        why = skill.get("justification")
        items.append(Item(content, None, why if isinstance(why, str) else None, evidence, at))
    skipped += [Skipped(0, 0, f"a field of {n} skills", key) for key, n in dropped.items()]
    return Content(items, skipped=skipped)


FORMAT = Format("skillbook", "kayba ACE: a skillbook", "json", "texts", detect, read, None)
