"""ACE playbooks: sections of bullets, `[shr-00001] helpful=3 harmful=0 :: text`.

Older ones leave the counters out. A playbook's ids mean something in that playbook alone, and a
curator numbers on from the highest, so they go into the evidence and are not our identity.
`helpful` is written as the number of KEEPs that confirmed the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tfgrpo.interchange.outgoing import Outgoing
from tfgrpo.interchange.records import Content, Format, Item, SourceFile
from tfgrpo.rendering.render import one_line
from tfgrpo.store.blame import blame

SECTION = re.compile(r"##+(.*)")
BULLET = re.compile(r"\s*(?:[-*]\s+)?\[([A-Za-z_]+-\d+)\](.*)", re.DOTALL)
COUNT = re.compile(r"[a-z_]+=\S+")
OURS = "STRATEGIES & INSIGHTS"


def detect(source: SourceFile) -> int:
    return 2 * any(BULLET.match(line) for line in source.lines)


def read(source: SourceFile) -> Content:
    items: list[Item] = []
    texts: list[list[str]] = []  # each one's lines
    section = ""
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
        elif heading := SECTION.match(line):
            section = heading[1].strip().removesuffix(":").rstrip()
        elif line.strip() and items and not line.startswith("#"):
            texts[-1].append(line.strip())
    both = zip(items, texts, strict=True)
    return Content([item._replace(text="\n".join(lines)) for item, lines in both])


def write(out: Outgoing) -> Iterator[str]:
    sections: dict[str, list[str]] = {}
    for n, (experience, event, _, keeps) in enumerate(blame(out.store, out.version), 1):
        if experience.redacted:
            continue
        section = (event.evidence or {}).get("section")
        lines = sections.setdefault(section if isinstance(section, str) else OURS, [])
        text = one_line(experience.text)
        lines.append(f"[exp-{n:05d}] helpful={keeps} harmful=0 :: {text}\n")
    for section, lines in sections.items():
        yield f"## {section}\n"
        yield from lines
        yield "\n"


FORMAT = Format("ace", "ACE: a playbook of bullets", "txt", "words", detect, read, write)
