"""What the controller is told beside library and lesson, where there is something to tell."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tfgrpo.domains.base import Domain
from tfgrpo.rendering.templates import Template

NOTES = ("rejected", "declined", "credit", "misled")
"""The prompts of notes."""


@dataclass(frozen=True, slots=True)
class Notes:
    """`rejected` are the changes that the gate turned down, in words, `declined` those that a
    person did, with the reason; `credit` gives, for the id of an experience, what its presence did
    to the reward."""

    prompts: Mapping[str, Template] = field(default_factory=dict)
    rejected: tuple[str, ...] = ()
    credit: Mapping[str, str] = field(default_factory=dict)
    declined: tuple[str, ...] = ()

    @property
    def turned_down(self) -> tuple[str, ...]:
        """What a lesson must not bring back: it may be dropped."""
        return (*self.rejected, *self.declined)

    def used(self, misled: bool = False) -> list[Template]:
        """Returns the prompts that something is told by."""
        needed = {
            "rejected": bool(self.rejected),
            "declined": bool(self.declined),
            "credit": bool(self.credit),
            "misled": misled,
        }
        return [self.prompts[n] for n, used in needed.items() if used and n in self.prompts]

    def text(self, labels: Mapping[str, str], misled: Collection[str] = ()) -> str:
        """Returns the notes as they follow a prompt; `labels` are label → id, and `misled` the
        ids of experiences that misled attempts at the problem of a lesson."""
        blamed = [label for label, id in labels.items() if id in misled]
        known = [f"[{at}] {self.credit[id]}" for at, id in labels.items() if id in self.credit]
        values = {
            "rejected": "\n".join(self.rejected),
            "declined": "\n".join(self.declined),
            "credit": "\n".join(known),
            "misled": ", ".join(blamed),
        }
        used = self.used(misled=bool(blamed))
        return "\n\n".join(t.render(values)[-1][1] for t in used if values[t.name])


def prompts_of(domain: Domain, folder: Path | None) -> dict[str, Template]:
    """Returns the prompts of notes: from `folder`, else the domain's, else ours."""
    return {name: domain.template(name, folder) for name in NOTES}
