"""Prompts as Markdown files, ours or in a folder of the user's, known by their digest. `<!--
system -->`, `<!-- user -->` and `<!-- assistant -->` begin messages, `{{names}}` are filled in.
User and assistant messages before the last user's are a worked example."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TypeAlias

from tfgrpo.store.errors import TfgrpoError

Message: TypeAlias = tuple[str, str]
"""A role (system, user or assistant) and what it says."""

PLACE = re.compile(r"\{\{(\w+)\}\}")
MARKER = r"<!--[ \t]*(system|user|assistant)[ \t]*-->"
PART = re.compile(rf"^[ \t]*{MARKER}[ \t]*$", re.MULTILINE)
COMMENTS = re.compile(rf"\A(?:\s*(?!{MARKER})<!--(?:(?!<!--).)*?-->)+", re.DOTALL)


class TemplateError(TfgrpoError):
    """A prompt file that cannot be used."""


@dataclass(frozen=True, slots=True)
class Template:
    """A prompt: its name, its parts as (role, text) in order, and the digest of its file."""

    name: str
    parts: tuple[Message, ...]
    digest: str

    def split(self, place: int) -> tuple[Template, Template, Template]:
        """The parts before one, it alone, and those after it, as prompts."""
        pieces = (self.parts[:place], self.parts[place : place + 1], self.parts[place + 1 :])
        before, alone, after = (Template(self.name, parts, self.digest) for parts in pieces)
        return before, alone, after

    def uses(self, name: str) -> bool:
        """Whether a message has `{{name}}` in it."""
        return any(name in PLACE.findall(text) for _, text in self.parts)

    def require(self, *names: str) -> None:
        """Raises TemplateError where no message has one of these names."""
        for name in names:
            if not self.uses(name):
                raise TemplateError(
                    f"prompt {self.name} has no place {{{{{name}}}}}",
                    hint=f"write {{{{{name}}}}} where it is to stand",
                )

    def render(self, values: Mapping[str, str]) -> tuple[Message, ...]:
        """The messages, filled in, but for empty parts. Raises TemplateError for an unknown
        name."""

        def fill(match: re.Match[str]) -> str:
            if match[1] not in values:
                raise TemplateError(
                    f"prompt {self.name} uses {{{{{match[1]}}}}}",
                    hint="it may use " + ", ".join(sorted(values)),
                )
            return values[match[1]]

        filled = ((role, PLACE.sub(fill, text).strip()) for role, text in self.parts)
        return tuple((role, text) for role, text in filled if text)


def load(name: str, *folders: Path | None) -> Template:
    """The prompt `name`, from the first folder that has one of that name, else our own."""
    for folder in folders:
        if folder is None:
            continue
        if not os.path.isdir(folder):
            raise TemplateError(f"no folder {folder}", hint="--prompts takes a folder of .md files")
        path = folder / f"{name}.md"
        if path.is_file():
            try:
                return parse(name, path.read_text(encoding="utf-8-sig"))
            except UnicodeDecodeError:
                raise TemplateError(f"{path} is not UTF-8", hint="save it as UTF-8") from None
            except OSError as error:
                raise TemplateError(
                    f"{path}: {error.strerror}", hint="check its permissions"
                ) from None
    return _own(name)


@cache
def _own(name: str) -> Template:
    return parse(name, resources.files("tfgrpo.prompts").joinpath(f"{name}.md").read_text("utf-8"))


def parse(name: str, text: str) -> Template:
    """Takes a prompt file apart at the lines that begin its messages. Raises TemplateError."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    before, *pieces = PART.split(COMMENTS.sub("", text))
    parts = tuple(zip(pieces[::2], map(str.strip, pieces[1::2]), strict=True))
    if not any(role == "user" for role, _ in parts):
        raise TemplateError(
            f"prompt {name} has no user part", hint="start it with a line <!-- user -->"
        )
    if before.strip():
        raise TemplateError(
            f"prompt {name} has words before the first message: {before.strip()[:40]!r}",
            hint="start it with a line <!-- system --> or <!-- user -->",
        )
    return Template(name, parts, digest)
