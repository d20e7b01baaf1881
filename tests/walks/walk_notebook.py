"""A notebook: cells with `await` at the top, in an event loop that runs already."""

from __future__ import annotations

import ast
import asyncio
import inspect
from typing import Any

from walking import Walk, main  # isort: split

from conftest import problems
from scripted import ScriptedEndpoint

CELLS = """\
import tfgrpo
rows = [{"problem": f"What is {n} op {n + 3}?", "answer": str(2 * n + 4)} for n in range(6)]
###
seen = []
result = await tfgrpo.train(
    rows, epochs=3, batch_size=3, group_size=6, new=True,
    on_progress=lambda notice: seen.append(str(notice)), **where
)
assert result.versions and seen
###
shown = str(result) + result._repr_html_()
assert "one more" in " ".join(e.text for e in result.library)
###
verdict = await tfgrpo.compare("v0", "HEAD", "heldout.jsonl", samples=2, **where)
assert verdict.difference.estimate.mean > 0, verdict
###
scores = await tfgrpo.evaluate("heldout.jsonl", samples=2, **where)
table = scores.to_pandas()
assert set(table.columns) >= {"version", "reward"}
"""


def walk(walk: Walk) -> None:
    """From rows in memory to a table of rewards."""
    walk.write("heldout.jsonl", problems(range(20, 26)))
    with ScriptedEndpoint() as server:
        where = {"model": "m", "base_url": server.base_url, "store": str(walk.folder)}
        asyncio.run(_cells(walk, {"where": where}))


async def _cells(walk: Walk, names: dict[str, Any]) -> None:
    source = CELLS.replace('"heldout.jsonl"', repr(str(walk.folder / "heldout.jsonl")))
    for cell in source.split("###\n"):
        with walk.step(cell.strip().splitlines()[0]):
            code = compile(cell, "cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            done = eval(code, names)
            if inspect.isawaitable(done):
                await done


if __name__ == "__main__":
    main(walk)
