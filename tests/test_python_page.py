"""docs/python.md and the notebook: every block is run, in a running event loop."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, environment
from scripted import ScriptedEndpoint, stage, teachable
from test_readme import ANSWERS, firm

PAGE = (ROOT / "docs/python.md").read_text()
BILLS = ROOT / "examples/time-on-the-bill"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def answering(request: dict[str, Any]) -> Any:
    """The firm's model, and an answer to whatever else is asked."""
    user = request["messages"][-1]["content"]
    if stage(request) == "rollout" and user not in ANSWERS:
        return teachable(request) if " op " in user and "\\boxed" in user else "\\boxed{8}"
    return firm(request)


async def run_block(code: str, names: dict[str, Any]) -> None:
    """Runs a block as a notebook's cell, where `await` may stand at the top."""
    compiled = compile(code, "docs/python.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(compiled, names)
    if inspect.isawaitable(result):
        await result


def test_every_block_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("train", "heldout"):
        shutil.copy(BILLS / f"{name}.jsonl", tmp_path)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}

    async def page(base_url: str) -> None:
        for block in BLOCKS:
            block = re.sub(
                r'^where = dict\(model="gpt-5-mini"',
                f'where = dict(model="m", base_url="{base_url}"',
                block,
                flags=re.MULTILINE,
            )
            await run_block(block, names)

    with ScriptedEndpoint(answering) as endpoint:
        asyncio.run(page(endpoint.base_url))
    assert len(BLOCKS) == 11
    said = capsys.readouterr().out
    assert "calls at most" in said
    assert "no-such-file.jsonl" in said
    assert names["verdict"].verdict == "better"
    assert names["messages"][-1]["role"] == "user"


def test_the_notebook_trains_in_a_running_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient")
    shutil.copytree(BILLS, tmp_path, dirs_exist_ok=True)
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    kernels = tmp_path / "jupyter_data_dir/kernels/python3"
    kernels.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": command, "display_name": "Python 3", "language": "python"}
    (kernels / "kernel.json").write_text(json.dumps(spec))
    notebook = nbformat.read(BILLS / "notebook.ipynb", as_version=4)
    (parameters,) = [
        cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ())
    ]
    with ScriptedEndpoint(firm) as endpoint:
        parameters.source += f'\nwhere.update(model="m", base_url="{endpoint.base_url}")'
        client.NotebookClient(
            notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}
        ).execute()
    shown = json.dumps([cell.get("outputs", []) for cell in notebook.cells])
    assert "better" in shown
    assert "<table>" in shown
    assert (tmp_path / ".tfgrpo/store.db").exists()


def test_the_notebook_is_kept_without_outputs() -> None:
    notebook = json.loads((BILLS / "notebook.ipynb").read_text())
    assert all(not cell.get("outputs") for cell in notebook["cells"])
