r"""Precision and recall of verdicts, beside math-verify as the paper's code configures it.

    PYTHONPATH=. python -m benchmarks.verdicts FILE.jsonl … [--every N]

A file has rows of `gold`, `pred` and `expected` (true or false); rows with any other expectation
are left out. Each verdict runs in a worker process within ten seconds; one that takes longer counts
as refused. Precision is the share of accepted answers that are right, recall the share of right
answers that are accepted. Prints a row for each file and judge.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from typing import NamedTuple

from tfgrpo.domains.mathematics.answers import judge
from tfgrpo.domains.mathematics.extract import bare
from tfgrpo.domains.verifier import Killed, Verifier


class Row(NamedTuple):
    """A ground truth, a response, and whether it is right."""

    gold: str
    response: str
    right: bool


def ours(gold: str, response: str) -> bool:
    """Whether our judge accepts a response, bare answers as `verify` reads them."""
    return judge(gold, bare(response)).reward == 1.0


def theirs(gold: str, response: str) -> bool:
    """Whether math-verify accepts a response: the ground truth in a box, as LaTeX, the response as
    LaTeX or an expression."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    want = parse(f"\\boxed{{{gold}}}", [LatexExtractionConfig()], parsing_timeout=None)
    configurations = [ExprExtractionConfig(), LatexExtractionConfig()]
    have = parse(response, configurations, parsing_timeout=None)
    return bool(verify(want, have, timeout_seconds=None))


def rows_of(path: Path, every: int) -> list[Row]:
    """Returns the rows of a file whose expectation is a yes or a no, one of `every`."""
    records = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    rows = [
        Row(record["gold"], record["pred"], record["expected"])
        for record in records
        if isinstance(record.get("expected"), bool) and isinstance(record.get("gold"), str)
    ]
    return rows[::every]


async def counts(rows: list[Row], name: str) -> tuple[int, int, int, int]:
    """Returns how many right and wrong answers a judge accepts, and how many there are."""
    from benchmarks import verdicts as importable  # a worker cannot import what is __main__

    accepts = {"tfgrpo": importable.ours, "math-verify": importable.theirs}[name]
    limit = asyncio.Semaphore(4)
    with Verifier(workers=2) as verifier:

        async def accepted(row: Row) -> bool:
            async with limit:
                try:
                    return await verifier.run(accepts, row.gold, row.response)
                except Killed:
                    return False

        verdicts = await asyncio.gather(*map(accepted, rows))
    right = sum(verdict for row, verdict in zip(rows, verdicts, strict=True) if row.right)
    wrong = sum(verdict for row, verdict in zip(rows, verdicts, strict=True) if not row.right)
    total = sum(row.right for row in rows)
    return right, wrong, total, len(rows) - total


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--every", type=int, default=1, help="take one row of so many")
    options = parser.parse_args()
    print("| corpus | judge | right | accepted | wrong | accepted | precision | recall |")
    print("|---|---|---|---|---|---|---|---|")
    for path in options.files:
        rows = rows_of(path, options.every)
        for name in ("tfgrpo", "math-verify"):
            right, wrong, rights, wrongs = asyncio.run(counts(rows, name))
            precision = right / (right + wrong) if right + wrong else 1.0
            recall = right / rights if rights else 1.0
            print(
                f"| {path.stem} | {name} | {rights} | {right} | {wrongs} | {wrong} "
                f"| {precision:.3f} | {recall:.3f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
