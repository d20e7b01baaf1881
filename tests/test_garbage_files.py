"""Files of other programs with a value replaced, renamed or gone, at every place: each is read, or
refused in one line with a hint, and nothing ends in a traceback."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from garbage_files import Shape, spoiled

from tfgrpo import domains, interchange
from tfgrpo.data import datasets, readers
from tfgrpo.evaluation.verifier_cases import read_cases
from tfgrpo.improvement.exchange_files import read_exchanges
from tfgrpo.interchange import reference_config
from tfgrpo.interchange.incoming_versions import bring_in
from tfgrpo.store import Store
from tfgrpo.store.errors import TfgrpoError

SHAPES = json.loads((Path(__file__).parent / "right_files.json").read_text(encoding="utf-8"))
"""What reads the files → the name of a kind → its rows, and how it is written."""


Reader: TypeAlias = Callable[[Path, Store], None]


def read_library(path: Path, store: Store) -> None:
    bring_in(store, interchange.read(path), "main")


def read_exchange(path: Path, _: Store) -> None:
    for one in read_exchanges(path):
        json.dumps(one._asdict(), default=str, ensure_ascii=False).encode()


def read_problems(path: Path, _: Store) -> None:
    list(readers.read(path))
    datasets.load(str(path))


def read_config(path: Path, _: Store) -> None:
    tomllib.loads(reference_config.translated(path).toml)


def see_cases(path: Path, _: Store) -> None:
    read_cases(path, domains.find("math"), answers=True)


READERS: dict[str, tuple[Reader, str]] = {
    "library": (read_library, "library.txt"),
    "exchange": (read_exchange, "exchanges.jsonl"),
    "problems": (read_problems, "problems.jsonl"),
    "cases": (see_cases, "cases.jsonl"),
    "whole file": (read_problems, "problems.json"),
    "configuration": (read_config, "practice.yaml"),
}


def fault(read: Reader, path: Path, store: Store) -> str:
    """Returns what is wrong with how a file is read, in words; nothing where nothing is."""
    try:
        read(path, store)
    except TfgrpoError as error:
        return "" if error.hint and "\n" not in str(error) else f"no hint, or lines: {error}"
    except Exception as error:
        return repr(error)
    return ""


@pytest.mark.parametrize(
    ("reader", "name"), [(reader, name) for reader in READERS for name in SHAPES[reader]]
)
def test_garbage_at_any_place_is_read_or_refused_in_a_line(
    tmp_path: Path, reader: str, name: str
) -> None:
    read, file = READERS[reader]
    found: dict[str, Any] = SHAPES[reader][name]
    shape = Shape(tuple(found["rows"]), found.get("kind", "json"))
    path = tmp_path / file
    path.write_bytes(shape.written(shape.rows))
    with Store.init(tmp_path / "store.db", author="me") as store:
        read(path, store)  # the file itself is right
        for done, content in spoiled(shape):
            path.write_bytes(content)
            wrong = fault(read, path, store)
            assert not wrong, f"{name}, {done}: {wrong}"[:300]


def test_a_configuration_that_names_itself_is_read_once(tmp_path: Path) -> None:
    names = [f"d{n}" for n in range(6)]
    for name in ("c", *names):
        entries = "".join(f"  - {other}@x{n}\n" for n, other in enumerate([*names, "c"] * 3))
        (tmp_path / f"{name}.yaml").write_text(f"defaults:\n{entries}practice:\n  epochs: 2\n")
    said = reference_config.translated(tmp_path / "c.yaml")
    assert "epochs = 2" in said.toml
    assert any("it names itself" in line for line in said.left)
    assert any("there are too many" in line for line in said.left)


def test_memories_of_mem0_are_found_at_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "memories.json"
    rows = [{"id": f"m{n}", "memory": f"text {n}"} for n in range(3)]
    path.write_text(json.dumps({"results": [*rows, {"id": 7, "memory": "seven"}]}, indent=1))
    assert [item.line for item in interchange.read(path).items] == [4, 8, 12, 16]
