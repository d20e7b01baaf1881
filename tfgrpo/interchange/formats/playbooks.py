"""Playbooks of other programs: ACE's, and kayba ACE's skillbook.

ACE has sections of bullets, `[shr-00001] helpful=3 harmful=0 :: text`. Its ids mean something there
alone: they are evidence, written again, and new bullets are numbered on. A heading ends a bullet.
`helpful` is the playbook's count and the KEEPs since. A skillbook is JSON.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import count

from tfgrpo.interchange.format_types import Content, Format, Item, Skipped, SourceFile
from tfgrpo.interchange.formats import labelled_lines
from tfgrpo.interchange.library_files import Outgoing
from tfgrpo.rendering.experience_texts import one_line
from tfgrpo.store.history.blame import blame
from tfgrpo.store.records import Event, Json

SECTION = re.compile(r"##+(.*)")
ID = r"[^\s\[\]]+"
"""What an id may look like where counters follow it: `7`, `S8`, `ctx-1699-ab12`, `err/2`."""
BULLET = re.compile(
    rf"\s*(?:[-*]\s+)?\[([A-Za-z_]+-\d+|{ID}(?=\]\s*(?:[a-z_]+=\S+\s+)+::))\](?![(\[:])(.*)",
    re.DOTALL,
)
POINT = re.compile(r"\s*(?:[-*+]|\d+[.)])\s")
COUNTERS = ("helpful", "harmful")
NAMED = re.compile(ID)
NUMBERED = re.compile(r"(?:[A-Za-z_]+-)?(\d{1,9})")
COUNT = re.compile(r"[a-z_]+=\S+")
OURS = "STRATEGIES & INSIGHTS"


def _detect_ace(source: SourceFile) -> int:
    bullets = sum(1 for line in source.lines if BULLET.match(line))
    others = sum(1 for line in source.lines if POINT.match(line) and not BULLET.match(line))
    return 2 * (bullets > others)


def _read_ace(source: SourceFile) -> Content:
    items: list[Item] = []
    texts: list[list[str]] = []  # each one's lines
    skipped: list[tuple[int, str]] = []
    section = ""
    empty: tuple[int, str] | None = None
    in_bullet = False
    for number, line in enumerate(source.lines, 1):
        if match := BULLET.match(line):
            evidence = {"bullet": match[1], **({"section": section} if section else {})}
            text = match[2].strip()
            head, mark, rest = text.partition("::")
            counts = head.split() if mark else []
            if counts and all(map(COUNT.fullmatch, counts)):
                pairs = (pair.split("=", 1) for pair in counts)
                evidence |= {
                    key: int(n) if n.isdecimal() and len(n) < 19 else n for key, n in pairs
                }
                text = rest.strip()
            if not text:
                raise source.wrong(
                    f"{match[1]} has no text", number, hint="`[id] text` is expected"
                )
            items.append(Item("", evidence=evidence, line=number))
            texts.append([text])
            empty, in_bullet = None, True
        elif heading := SECTION.match(line):
            skipped += [empty] if empty else []
            section = heading[1].strip().removesuffix(":").rstrip()
            empty, in_bullet = (number, line), False
        elif line.strip() and in_bullet and not line.startswith("#"):
            texts[-1].append(line.strip())
        elif line.strip():
            skipped.append((number, line))
            above = source.lines[number - 2] if number > 1 else ""
            in_bullet = in_bullet and not (line.startswith("# ") and not above.strip())
    skipped += [empty] if empty else []
    both = zip(items, texts, strict=True)
    return Content(
        [item._replace(text="\n".join(lines)) for item, lines in both],
        skipped=labelled_lines.skipped(sorted(skipped), "no bullet, and in none"),
    )


def _write_ace(out: Outgoing) -> Iterator[str]:
    entries = [
        (experience, _playbook(out, event), keeps)
        for experience, event, _, keeps in blame(out.store, out.version)
        if not experience.redacted
    ]
    numbered = (NUMBERED.fullmatch(str(known.get("bullet"))) for _, known, _ in entries)
    new = count(max((int(match[1]) for match in numbered if match), default=0) + 1)
    used: set[str] = set()
    sections: dict[str, list[str]] = {}
    for experience, known, keeps in entries:
        bullet = known.get("bullet")
        if not isinstance(bullet, str) or not NAMED.fullmatch(bullet) or bullet in used:
            bullet = f"exp-{next(new):05d}"
        used.add(bullet)
        counted = [known.get(key) for key in COUNTERS]
        helpful, harmful = (n if isinstance(n, int) else 0 for n in counted)
        section = known.get("section")
        lines = sections.setdefault(section if isinstance(section, str) else OURS, [])
        text = one_line(experience.text)
        lines.append(f"[{bullet}] helpful={helpful + keeps} harmful={harmful} :: {text}\n")
    for section, lines in sections.items():
        yield f"## {section}\n"
        yield from lines
        yield "\n"


def _playbook(out: Outgoing, event: Event) -> Json:
    if event.op == "ADD" or "bullet" in (event.evidence or {}):
        return event.evidence or {}
    earlier = [e.evidence for e in out.store.history(event.experience) if e.row <= event.row]
    first = next((e for e in reversed(earlier) if e and "bullet" in e), None)
    return first or event.evidence or {}


ACE = Format(
    "ace", "ACE: a playbook of bullets", "txt", "words", _detect_ace, _read_ace, _write_ace
)


EVIDENCE_KEYS = ("section", "evidence", "helpful", "harmful", "neutral", "created_at", "updated_at")

KNOWN = {"id", "content", "justification", "status"}


def _detect_skillbook(source: SourceFile) -> int:
    value = source.json
    return 3 * (isinstance(value, dict) and isinstance(value.get("skills"), dict))


def _read_skillbook(source: SourceFile) -> Content:
    skills = source.json.get("skills") if isinstance(source.json, dict) else None
    if not isinstance(skills, dict):
        raise source.wrong("has no skills", 1, hint='{"skills": {"id": {…}}} is expected')
    items = []
    skipped = []
    dropped: Counter[str] = Counter()
    for id, skill in skills.items():
        at = source.key_lines.get(id)
        content = skill.get("content") if isinstance(skill, dict) else None
        if not isinstance(skill, dict) or not isinstance(content, str):
            raise source.wrong(f"skill {id!r} has no content", at, hint="is the file complete?")
        if skill.get("status", "active") != "active":
            skipped.append(Skipped.at(at, f"status {skill['status']}", content))
            continue
        evidence = {"skill": id} | {
            k: skill[k] for k in EVIDENCE_KEYS if isinstance(skill.get(k), str | int)
        }
        rest = skill.keys() - evidence.keys() - KNOWN
        dropped.update(key for key in rest if skill[key] not in (None, "", [], {}))
        why = skill.get("justification")
        items.append(Item(content, None, why if isinstance(why, str) else None, evidence, at))
    skipped += [Skipped.at(None, f"a field of {n} skills", key) for key, n in dropped.items()]
    return Content(items, skipped=skipped)


SKILLBOOK = Format(
    "skillbook", "kayba ACE: a skillbook", "json", "texts", _detect_skillbook, _read_skillbook
)
