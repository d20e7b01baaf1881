"""ACE playbooks: sections of bullets, `[shr-00001] helpful=3 harmful=0 :: text`.

A playbook's ids mean something there alone: they are evidence, written again, and new bullets are
numbered on. `helpful` is the playbook's count and the KEEPs since.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tfgrpo.interchange import labelled_lines
from tfgrpo.interchange.format_types import Content, Format, Item, SourceFile
from tfgrpo.interchange.write_out import Outgoing
from tfgrpo.rendering.text_lines import one_line
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


def detect(source: SourceFile) -> int:
    bullets = sum(1 for line in source.lines if BULLET.match(line))
    others = sum(1 for line in source.lines if POINT.match(line) and not BULLET.match(line))
    return 2 * (bullets > others)


def read(source: SourceFile) -> Content:
    items: list[Item] = []
    texts: list[list[str]] = []  # each one's lines
    skipped: list[tuple[int, str]] = []
    section = ""
    empty: tuple[int, str] | None = None
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
            empty = None
        elif heading := SECTION.match(line):
            skipped += [empty] if empty else []
            section = heading[1].strip().removesuffix(":").rstrip()
            empty = (number, line)
        elif line.strip() and items and not line.startswith("#"):
            texts[-1].append(line.strip())
        elif line.strip():
            skipped.append((number, line))
    skipped += [empty] if empty else []
    both = zip(items, texts, strict=True)
    return Content(
        [item._replace(text="\n".join(lines)) for item, lines in both],
        skipped=labelled_lines.skipped(sorted(skipped), "no bullet, and in none"),
    )


def write(out: Outgoing) -> Iterator[str]:
    entries = [
        (experience, _playbook(out, event), keeps)
        for experience, event, _, keeps in blame(out.store, out.version)
        if not experience.redacted
    ]
    used: set[str] = set()
    highest = 0
    bullets: list[str | None] = []
    for _, known, _ in entries:
        bullet = known.get("bullet")
        own = bullet if isinstance(bullet, str) and NAMED.fullmatch(bullet) else None
        own = None if own in used else own
        bullets.append(own)
        if own:
            used.add(own)
            numbered = NUMBERED.fullmatch(own)
            highest = max(highest, int(numbered[1]) if numbered else 0)
    sections: dict[str, list[str]] = {}
    for (experience, known, keeps), own in zip(entries, bullets, strict=True):
        if own is None:
            highest += 1
            own = f"exp-{highest:05d}"
        counted = [known.get(key) for key in COUNTERS]
        helpful, harmful = (n if isinstance(n, int) else 0 for n in counted)
        section = known.get("section")
        lines = sections.setdefault(section if isinstance(section, str) else OURS, [])
        text = one_line(experience.text)
        lines.append(f"[{own}] helpful={helpful + keeps} harmful={harmful} :: {text}\n")
    for section, lines in sections.items():
        yield f"## {section}\n"
        yield from lines
        yield "\n"


def _playbook(out: Outgoing, event: Event) -> Json:
    """An experience's bullet in the playbook it came from: id, section and counters."""
    if event.op == "ADD" or "bullet" in (event.evidence or {}):
        return event.evidence or {}
    earlier = [e.evidence for e in out.store.history(event.experience) if e.row <= event.row]
    first = next((e for e in reversed(earlier) if e and "bullet" in e), None)
    return first or event.evidence or {}


FORMAT = Format("ace", "ACE: a playbook of bullets", "txt", "words", detect, read, write)
