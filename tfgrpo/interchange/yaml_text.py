"""YAML by PyYAML, which is imported when it is needed. Nothing but plain values is ever made."""

from __future__ import annotations

import json
import re
from typing import Any

from tfgrpo.interchange.format_types import SourceFile, UnreadableLibrary

UNQUOTED = re.compile(r"([\w.-]+):[ \t]+(\S.*)")


def loaded(source: SourceFile, text: str, first: int = 1) -> dict[str, Any]:
    """The mapping of a YAML text that starts at line `first`, as JSON has it: dates are texts.
    Raises UnreadableLibrary."""
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]  # a few aliases of aliases are gigabytes
        def compose_node(self, parent: object, index: object) -> object:
            if self.check_event(yaml.AliasEvent):
                mark = self.peek_event().start_mark
                raise yaml.MarkedYAMLError(problem="aliases are not taken", problem_mark=mark)
            return super().compose_node(parent, index)

    try:
        value = source.value(json.dumps(yaml.load(text, Loader), default=str))
    except yaml.MarkedYAMLError as error:
        at = first + (error.problem_mark.line if error.problem_mark else 0)
        raise source.wrong(f"not YAML: {error.problem}", at, hint="is the file complete?") from None
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise source.wrong(f"not YAML: {error}", first, hint="is the file complete?") from None
    if not isinstance(value, dict):
        raise source.wrong("not a mapping", first, hint="`key: value` lines are expected")
    return value


def front_matter(source: SourceFile, text: str, first: int = 1) -> dict[str, Any]:
    """The mapping of a front matter; in one that quotes nothing a line's value is its rest. Raises
    UnreadableLibrary with the line."""
    try:
        return loaded(source, text, first)
    except UnreadableLibrary:
        lines = [_quoted(line) for line in text.split("\n")]
        return loaded(source, "\n".join(lines), first)


def _quoted(line: str) -> str:
    match = UNQUOTED.fullmatch(line)
    if match is None or re.fullmatch(r"[|>][-+\d]*(?:\s+#.*)?", match[2]) or _is_plain(line):
        return line
    return f"{match[1]}: {json.dumps(match[2].strip(), ensure_ascii=False)}"


def _is_plain(line: str) -> bool:
    import yaml

    try:
        return isinstance(yaml.safe_load(line), dict)
    except (yaml.YAMLError, ValueError, RecursionError):
        return False


def dumped(values: dict[str, object]) -> str:
    """A mapping as YAML, in the order it has."""
    import yaml

    text: str = yaml.safe_dump(values, allow_unicode=True, sort_keys=False, width=10_000)
    return text
