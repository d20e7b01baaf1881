"""docs/recipes.md: what of it runs without another framework, and, with `-m recipes`, all of it."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import recipes
from conftest import environment
from providers import Provider
from test_proxy import listen

from tfgrpo.store import Operation, Store

HERE = ("openai_chat_app", "openai_responses_app")
ELSEWHERE = [name for name in recipes.recipes() if name not in HERE]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.init(tmp_path / ".tfgrpo/store.db", author="tester") as made:
        made.create_branch("prod")
        yield made


def test_the_page_lists_every_file_and_each_framework_is_installed_to_run_it() -> None:
    files = {path.stem for path in (recipes.ROOT / "examples/frameworks").glob("*.py")}
    assert sorted(recipes.recipes()) == sorted(files)
    assert len(recipes.FRAMEWORKS) == len(ELSEWHERE) + 2


@pytest.mark.parametrize("name", [*HERE, ""], ids=["chat completions", "responses", "the page's"])
def test_the_openai_client(name: str, store: Store, tmp_path: Path) -> None:
    (shown,) = recipes.blocks("python")
    recipes.run(sys.executable, recipes.code_of(name) if name else shown, store, tmp_path)


def test_curl_through_the_proxy_and_the_file(store: Store, tmp_path: Path) -> None:
    store.commit("prod", [Operation("ADD", text="Count both days.")], message="one")
    (block,) = recipes.blocks("console", "curl")
    with Provider(recipes.reply) as provider:
        process, port = listen(["--library", "prod", "--upstream", provider.url], tmp_path)
        try:
            words = shlex.split(block.removeprefix("$ ").replace(":8484", f":{port}"))
            env = environment(OPENAI_API_KEY="sk-recipe")
            words = [word.replace("$OPENAI_API_KEY", "sk-recipe") for word in words]
            done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=240)
        finally:
            process.terminate()
            process.communicate()
    assert json.loads(done.stdout)["choices"][0]["message"]["content"] == recipes.ANSWER
    assert "[G0] Count both days." in recipes.instructions_of(provider.received[0])
    assert provider.received[0].header(b"authorization") == b"Bearer sk-recipe"
    command = [str(Path(sys.executable).with_name("tfgrpo")), "export", "prod"]
    subprocess.run([*command, "-o", "experiences.json"], cwd=tmp_path, env=environment())
    (code,) = recipes.blocks("python", "Any other language")
    script = f"{code}\nprint(prompt)"  # with nothing but the standard library
    alone = [sys.executable, "-I", "-S", "-c", script]
    read = subprocess.run(alone, cwd=tmp_path, capture_output=True, text=True)
    assert read.stdout == "[G0] Count both days.\n", read.stderr


@pytest.mark.recipes
@pytest.mark.parametrize("name", [*HERE, *ELSEWHERE])
def test_a_recipe_in_its_framework(name: str, store: Store, tmp_path: Path) -> None:
    python = os.environ.get(recipes.PYTHON)
    if python is None:
        pytest.fail("run `python tests/recipes.py`, which makes the environment")
    listed = subprocess.run([python, "-m", "pip", "list"], capture_output=True, text=True).stdout
    assert re.search(r"^tfgrpo\b", listed, re.M)
    assert not re.search(r"^(math-verify|sqlite-utils|bm25s)\b", listed, re.M), "--no-deps"
    recipes.run(python, recipes.code_of(name), store, tmp_path)
