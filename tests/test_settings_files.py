"""Every table of every settings file: what is wrong in it is told by file, table and key, with the
key that is meant, in no words of Python's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tfgrpo.author import file_signer
from tfgrpo.domains.json_fields import read_rules
from tfgrpo.domains.judge import make_domain as judge
from tfgrpo.domains.rubric import make_domain as rubric
from tfgrpo.project import open_project
from tfgrpo.proxy.proxy_file import read_file
from tfgrpo.settings import EvalSettings, TrainSettings, build, read_toml
from tfgrpo.store.errors import TfgrpoError
from tfgrpo.toml_text import toml_value

PYTHON = re.compile(
    r"__init__|\w\(\)|'\w+' object|unhashable|not supported|\w+ expected|positional|NoneType"
)


def proxy(path: Path) -> None:
    read_file(path)


def project(path: Path) -> None:
    read_toml(path)
    file_signer(str(path.parent), is_tagged=False)
    opened = open_project(path.parent)
    for kind, name in ((TrainSettings, "train"), (EvalSettings, "eval")):
        layers = [opened.table(name), opened.table("model"), opened.tool_layer({})]
        settings = build(kind, *layers, {"data": "d"}, find_domain=opened.domain)
        opened.listed()
        opened.prices(settings.models)


MODEL = {"model": "m", "base_url": "http://127.0.0.1:9/v1"}
URL = "https://h.example/v1"
FILES: dict[str, tuple[str, Callable[[Path], object], dict[str, dict[str, Any]]]] = {
    "proxy": (
        "proxy.toml",
        proxy,
        {
            "": {
                "upstream": URL,
                "default": "a",
                "host": "127.0.0.1",
                "port": 8484,
                "record": "counts",
                "sample": 0.5,
                "drain": 3,
                "access_log": "x",
                "require_key": False,
                "retries": 1,
                "webhook": "https://h.example/x",
                "tags": ["team"],
                "personal": ["de"],
                "key_env": "A_KEY",
            },
            "libraries.a": {
                "store": "x",
                "revision": "HEAD",
                "top_k": 2,
                "dropout": 0.1,
                "allow": ["prod"],
            },
            "[rules]": {"library": "a", "header": "x", "equals": "y"},
            "[rules] ": {"library": "a", "field": "x", "matches": "^y"},
            "[budgets]": {"dollars": 3, "per": "day", "library": "a", "stop": True},
            "timeouts": {"first_byte": 3, "total": 4.5, "connect": 2},
            "[providers]": {
                "url": URL,
                "api": "openai",
                "key_env": "A_KEY",
                "weight": 1,
                "models": ["m"],
            },
        },
    ),
    "project": (
        "tfgrpo.toml",
        project,
        {
            "": {"author": "ann"},
            "train": {"epochs": 2, "group_size": 4, "policy": "paper", "preset": "fit"},
            "eval": {"samples": 3, "temperature": 0.5},
            "model": MODEL | {"reasoning_effort": "low", "extra_body": {"a": 1}},
            "tools": {"use": ["python"], "seconds": 3, "memory": 100},
            "tools.mcp.a": {"command": "x"},
            "agent": {"run": "x", "memory": 64, "output": 4096},
            "commit": {"sign": True, "key": "x.pub"},
            "[endpoints]": {"base_url": URL, "weight": 2, "limit": 3, "silence": 60},
        },
    ),
    "rubric": (
        "style.toml",
        lambda path: rubric(str(path)),
        {
            "": {"agent_objective": "x"},
            "[criteria]": {"name": "short", "max_words": 9, "weight": 2, "absent": False},
        },
    ),
    "scale": (
        "scale.toml",
        lambda path: judge(str(path)),
        {"": {"scale": "from bad to good", "repeat": 2, "compare": True}},
    ),
    "fields": (
        "fields.toml",
        lambda path: read_rules(str(path)),
        {
            "": {"extra": "wrong", "case": "ignore"},
            "fields.x": {"type": "text", "weight": 2, "case": "keep"},
        },
    ),
}
NEEDED = {
    "rubric": '[[criteria]]\nname = "own"\nmax_words = 3\n',
    "scale": 'scale = "0 to 10 xx"\n',
}
"""What a file of one key would lack."""
CALLED = {"key_env": "variable", "dollars": "budget", "per": "budget", "url": "upstream"}
"""What a value is called that is of the right type."""
ODD: tuple[object, ...] = (7, -1, 0.25, float("nan"), "?", True, ["?"], [7], {"a": "?"}, {"a": 7})


def written(kind: str, table: str, settings: dict[str, Any]) -> str:
    """A file of one table, and of what the kind always has."""
    head, name = f"[{table.strip()}]\n" if table else "", NEEDED.get(kind, "")
    own = {key for key in settings if f"{key} =" in name and not table}
    lines = [f"{key} = {toml_value(value)}\n" for key, value in settings.items()]
    first = "" if own or "[criteria]" in table else name
    before, after = ("", first) if not table else (first, "")
    return before + head + "".join(lines) + after


def cases() -> Iterator[Any]:
    for kind, (_, _, tables) in FILES.items():
        for table in tables:
            yield pytest.param(kind, table, id=f"{kind}-{table or 'top'}")


@pytest.fixture
def told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, str, dict[str, Any]], TfgrpoError | None]:
    """What is told of a file with one table; None where it is taken."""
    monkeypatch.setattr("tfgrpo.trust.trusted_folders.require", lambda *_: None)
    monkeypatch.setenv("A_KEY", "sk-of-a-provider")

    def read(kind: str, table: str, settings: dict[str, Any]) -> TfgrpoError | None:
        name, reader, _ = FILES[kind]
        (tmp_path / name).write_text(written(kind, table, settings))
        try:
            reader(tmp_path / name)
        except TfgrpoError as error:
            raised = error
        else:
            return None
        said = f"{raised} {raised.hint}"
        assert name in said, said
        assert raised.hint
        assert not PYTHON.search(said), said
        assert all(part in said for part in re.findall(r"\w+", table)), said
        return raised

    return read


@pytest.mark.parametrize(("kind", "table"), [*cases()])
def test_an_unknown_key_is_told_with_file_and_table_and_the_key_that_is_meant(
    kind: str, table: str, told: Callable[..., TfgrpoError | None]
) -> None:
    settings = FILES[kind][2][table]
    assert told(kind, table, settings) is None
    for key in settings:
        typo = key + key[-1]
        error = told(kind, table, {**settings, typo: settings[key]})
        said = f"{error} {error.hint}" if error else ""
        assert typo in str(error)
        assert re.search(rf"did you mean \[?{key}\b", said), said
    for strange in ("qqq", "self", "models" if kind == "project" else "json_schema"):
        error = told(kind, table, {**settings, strange: "1"})
        assert strange in str(error)


@pytest.mark.parametrize(("kind", "table"), [*cases()])
def test_a_wrong_value_is_told_by_its_key(
    kind: str, table: str, told: Callable[..., TfgrpoError | None]
) -> None:
    settings = FILES[kind][2][table]
    for key, value in settings.items():
        for odd in ODD:
            numbers = isinstance(value, int | float) and isinstance(odd, int | float)
            error = told(kind, table, {**settings, key: odd})
            if error is None:
                is_flag = bool in map(type, (odd, value)) and kind == "proxy"
                takes = type(odd) is type(value) or (numbers and not is_flag)
                assert takes or (key, odd) == ("models", {"a": "?"}), f"{key} = {odd!r}"
            else:
                assert key in str(error) or CALLED.get(key, key) in str(error), f"{error}"
