"""Figures that stand on several pages, or on a page and in the code, are the same everywhere."""

from __future__ import annotations

import importlib.metadata
import json
import re
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import ROOT

from tfgrpo.evaluation.eval_setup import eval_settings
from tfgrpo.local.model_list import MODELS
from tfgrpo.project import Project
from tfgrpo.settings import EvalSettings, TrainSettings
from tfgrpo.store import Operation, Store
from tfgrpo.store.errors import install_hint, upgrade_hint

PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for path in (
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("examples/*/README.md"),
        *ROOT.glob("benchmarks/*.md"),
    )
}
CODE = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for folder in ("cli", "store", "tfgrpo")
    for path in (ROOT / folder).rglob("*.py")
}
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_no_hint_needs_the_package_on_an_index() -> None:
    needy = re.compile(r"(?:pip|uv)3? (?:install|add)[^`\n]*['\"\s](?:-U )?tfgrpo\b(?![/.\w-])")
    found = [
        (name, match[0])
        for name, text in (PAGES | CODE).items()
        if name != "store/errors.py"
        for match in needy.finditer(text)
    ]
    assert found == []
    named = {extra for text in PAGES.values() for extra in re.findall(r"'\.\[([\w,]+)\]'", text)}
    assert {one for extra in named for one in extra.split(",")} <= EXTRAS.keys()
    hinted = {
        extra for text in CODE.values() for extra in re.findall(r'install_hint\("(\w+)"\)', text)
    }
    assert hinted
    assert hinted <= EXTRAS.keys()


def test_a_hint_names_the_packages_that_an_extra_stands_for() -> None:
    for extra in ("excel", "hub", "local", "web"):
        wanted = [requirement.partition(";")[0].strip() for requirement in EXTRAS[extra]]
        assert install_hint(extra) == "pip install " + " ".join(f"'{one}'" for one in wanted)


@pytest.mark.parametrize(
    ("origin", "told"),
    [
        (
            {"url": "file:///home/ann/my%20tfgrpo", "dir_info": {}},
            "install '/home/ann/my tfgrpo'",
        ),
        ({"url": "file:///src", "dir_info": {"editable": True}}, "git -C /src pull"),
        ({"url": "https://forge/x.git", "vcs_info": {"vcs": "git"}}, "'git+https://forge/x.git'"),
        ({"url": "https://forge/x.whl", "archive_info": {}}, "from https://forge/x.whl"),
        (None, "pip install -U tfgrpo"),
    ],
)
def test_an_upgrade_comes_from_where_the_package_came_from(
    origin: dict[str, Any] | None, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = None if origin is None else json.dumps(origin)
    installed = SimpleNamespace(read_text=lambda name: record)
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: installed)
    assert told in upgrade_hint()


def test_the_sizes_and_speeds_of_local_models_are_the_registrys() -> None:
    rows = {
        name: (size, speeds)
        for name, size, speeds in re.findall(
            r"^\| ([\w.-]+) \| ([\d,]+) MB \| (.+?) \|$", PAGES["docs/models.md"], re.MULTILINE
        )
    }
    assert rows.keys() == MODELS.keys()
    for name, model in MODELS.items():
        size, speeds = rows[name]
        assert size == f"{model.bytes / 1e6:,.0f}", name
        reading = model.speed.prompt or "not measured"
        assert speeds.removeprefix("about ") == f"{model.speed.decode}, {reading}", name
    assert f"({MODELS['qwen2.5-coder-1.5b'].bytes / 1e9:.1f} GB)" in PAGES["README.md"]


def test_a_model_has_one_price() -> None:
    prices: dict[str, set[str]] = {}
    for text in PAGES.values():
        for model, price in re.findall(r'^"([\w./:-]+)" = \{(.*?)\}', text, re.MULTILINE):
            prices.setdefault(model, set()).add(re.sub(r"\s", "", price))
    assert prices
    assert {model: found for model, found in prices.items() if len(found) > 1} == {}


def test_the_settings_on_the_page_are_the_defaults() -> None:
    page = PAGES["docs/how-it-works.md"]
    (block,) = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    tables = tomllib.loads(block)
    for kind, name in ((TrainSettings, "train"), (EvalSettings, "eval")):
        plain = {k: v for k, v in tables[name].items() if isinstance(v, int | float)}
        assert plain == {key: kind.model_fields[key].default for key in plain}
    assert len(tables["train"]) > 6


def test_the_papers_recipe_is_the_same_everywhere() -> None:
    fields = TrainSettings.model_fields
    recipe = (fields["epochs"].default, fields["batch_size"].default, fields["group_size"].default)
    told = [
        tuple(map(int, match.groups()))
        for text in (*PAGES.values(), *CODE.values())
        for match in re.finditer(r"(\d+) epochs, batches of (\d+), groups of (\d+)", text)
    ]
    told += [
        tuple(map(int, match.groups()))
        for text in PAGES.values()
        for match in re.finditer(
            r"dapo-math-17k\S* --epochs (\d+) --batch-size (\d+) --group-size (\d+)", text
        )
    ]
    assert len(told) > 1
    assert set(told) == {recipe}


def test_the_first_value_of_an_evaluation_wins_as_the_page_says(tmp_path: Path) -> None:
    row = next(
        line
        for line in PAGES["docs/how-it-works.md"].splitlines()
        if line.startswith("| an evaluation |")
    )
    assert [part.strip() for part in row.split("|")[2].split("→")] == [
        "flag",
        "`[eval]`",
        "the run that made the library (before any run: `[train]`)",
        "`[model]`",
        "default",
    ]
    given: dict[str, Any] = {"data": "d.jsonl"}
    tables: dict[str, dict[str, Any]] = {}
    with Store.init(tmp_path / "s.db", author="ann") as store:

        def taken() -> tuple[int, str]:
            project = Project(tmp_path, tables)
            settings, _ = eval_settings(store, project, [store.head.version], given)
            return settings.max_tokens, settings.models.model

        tables["model"] = {"model": "of-model"}
        assert taken()[1] == "of-model"
        tables["train"] = {"max_tokens": 100}
        assert taken() == (100, "of-model")
        config = TrainSettings(data="d.jsonl", max_tokens=200).model_dump(mode="json")
        config["models"]["model"] = "of-run"
        store.runs.create("r", "5" * 32, "main", 0, config, "ann")
        store.commit("main", [Operation("ADD", text="x")], message="m", meta={"run": "r"})
        assert taken() == (200, "of-run")
        tables["eval"] = {"max_tokens": 300, "model": "of-eval"}
        assert taken() == (300, "of-eval")
        given |= {"max_tokens": 400, "model": "of-flag"}
        assert taken() == (400, "of-flag")
