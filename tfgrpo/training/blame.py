"""Blame: what a comparison says of the experiences that attempts were shown.

The comparison sees the library anyway. Here it is told what each attempt saw of it, and names the
experiences that right attempts followed, that wrong ones ignored, and that misled. One that was
followed is confirmed by a KEEP; that one was misleading is put to the controller beside the lesson
of the same group, as a proposal to change it; and a version's record counts all of it. Labels come
from those in the prompt, and a mark with another one is a failure on record.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, TypeAlias, get_args

from pydantic import BaseModel

from tfgrpo.rendering.render import EMPTY
from tfgrpo.rendering.templates import Template
from tfgrpo.rollout.attempt import Rollout
from tfgrpo.store.records import Json, Library

Role: TypeAlias = Literal["followed", "ignored", "misleading"]
ROLES: tuple[Role, ...] = get_args(Role)


class Mark(NamedTuple):
    """What an experience did in one group."""

    experience: str
    role: Role


class LabelledMark(BaseModel):
    """The same as the reflection model gives it, by its label."""

    label: str
    role: Role


def marks_schema(labels: Iterable[str]) -> Json:
    """Returns the schema of the marks of one comparison, which knows the labels."""
    return {
        "type": "array",
        "items": {
            "type": "object",
            "additionalProperties": False,
            "required": ["label", "role"],
            "properties": {
                "label": {"enum": list(labels), "type": "string"},
                "role": {"enum": list(ROLES), "type": "string"},
            },
        },
    }


def shown_words(
    template: Template, library: Library, winners: Sequence[Rollout], losers: Sequence[Rollout]
) -> str:
    """Returns what follows a comparison's prompt: which experiences each attempt was shown."""
    lines = []
    for name, rollouts in (("Wrong", losers), ("Right", winners)):
        for number, rollout in enumerate(rollouts, 1):
            labels = [label for label, id in library.labels.items() if id not in rollout.without]
            lines.append(f"{name} attempt {number}: {', '.join(labels) or EMPTY}")
    return template.render({"shown": "\n".join(lines)})[-1][1]


def marks_of(
    given: Sequence[LabelledMark], library: Library
) -> tuple[tuple[Mark, ...], tuple[str, ...]]:
    """Returns the marks of a comparison, one for an experience, and what is wrong with others."""
    marks: dict[str, Mark] = {}
    wrong = []
    for one in given:
        id = library.labels.get(one.label)
        if id is None:
            wrong.append(f"there is no experience {one.label}")
        else:
            marks.setdefault(id, Mark(id, one.role))
    return tuple(marks.values()), tuple(wrong)


def counted(marks: Iterable[Mark]) -> dict[str, dict[str, int]]:
    """Returns, for each experience, in how many groups it did what, as a version records it."""
    counts: dict[str, dict[str, int]] = {}
    for mark in marks:
        of_one = counts.setdefault(mark.experience, {})
        of_one[mark.role] = of_one.get(mark.role, 0) + 1
    return counts
