"""The name of a domain, taken apart: `choice:labels.txt+reward=my_module:score`. A part, an entry
point or `module:name`, takes the place of the domain's own. Trust rests on what this finds."""

from __future__ import annotations

import re

PARTS = {
    "reward": "tfgrpo.rewards",
    "rollout": "tfgrpo.rollouts",
    "retrieve": "tfgrpo.retrievers",
    "group": "tfgrpo.groups",
}
"""The parts that a name can have, and the groups of their entry points."""
_PLACE = r"[A-Za-z_][\w.-]*(?::[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)?"
_part = re.compile(rf"\+({'|'.join(PARTS)})=({_PLACE})\Z")


def split(spec: str) -> tuple[str, str]:
    """A name without its parts, and the parts as they were written."""
    base = spec
    while match := _part.search(base):
        base = base[: match.start()]
    return base, spec[len(base) :]


def parts(written: str) -> dict[str, str]:
    """Each part's place, by its name; the last one counts where there are two."""
    return dict(one.split("=", 1) for one in written.split("+")[1:])
