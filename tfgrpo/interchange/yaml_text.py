"""YAML by PyYAML, which is imported when it is needed. Nothing but plain values is ever made."""

from __future__ import annotations

from tfgrpo.interchange.records import SourceFile


def loaded(source: SourceFile, text: str, first: int = 1) -> dict[object, object]:
    """Returns the mapping that a YAML text is; `first` is the line where it starts.

    Raises UnreadableLibrary with the line.
    """
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]  # a few aliases of aliases are gigabytes
        def compose_node(self, parent: object, index: object) -> object:
            if self.check_event(yaml.AliasEvent):
                mark = self.peek_event().start_mark
                raise yaml.MarkedYAMLError(problem="aliases are not taken", problem_mark=mark)
            return super().compose_node(parent, index)

    try:
        value = yaml.load(text, Loader)
    except yaml.MarkedYAMLError as error:
        at = first + (error.problem_mark.line if error.problem_mark else 0)
        raise source.wrong(f"not YAML: {error.problem}", at, hint="is the file complete?") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise source.wrong(f"not YAML: {error}", first, hint="is the file complete?") from None
    if not isinstance(value, dict):
        raise source.wrong("not a mapping", first, hint="`key: value` lines are expected")
    return value


def dumped(values: dict[str, object]) -> str:
    """Returns a mapping as YAML, in the order it has."""
    import yaml

    text: str = yaml.safe_dump(values, allow_unicode=True, sort_keys=False, width=10_000)
    return text
