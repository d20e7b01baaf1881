"""Prints cli/setting_options.json: what the options of commands are made of, as the records of
settings define it. Whoever only asks for help need not load the records, which takes a while.

python docs/setting_options.py > cli/setting_options.json
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from tfgrpo.cli.options import FLAGS
from tfgrpo.settings import EvalSettings, Settings, TrainSettings

KINDS = {"train": TrainSettings, "eval": EvalSettings}


def rows(kind: type[BaseModel], names: Iterable[str]) -> Iterator[list[Any]]:
    """Yields name, type or choices, default and words of the settings that have words: those are
    their help."""
    for name in names:
        field = kind.model_fields[name]
        shape: Any = field.annotation
        if isinstance(shape, type) and issubclass(shape, BaseModel):
            yield from rows(shape, shape.model_fields)
        elif field.description is not None:
            if get_origin(shape) is Literal:
                told: Any = list(get_args(shape))
            else:
                there = (shape, *get_args(shape))
                told = next((one.__name__ for one in (bool, int, float) if one in there), "str")
            plain = isinstance(field.default, bool | int | float | str)
            default = field.default if plain else None
            yield [FLAGS.get(name, name), told, default, field.description]


if __name__ == "__main__":
    shared = Settings.model_fields
    listed = {"shared": list(rows(Settings, shared))}
    for kind, record in KINDS.items():
        listed[kind] = list(rows(record, (n for n in record.model_fields if n not in shared)))
    print(json.dumps(listed, indent=1, ensure_ascii=False))
