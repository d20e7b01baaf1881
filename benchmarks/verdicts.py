r"""Precision and recall of verdicts, beside math-verify as the paper's code configures it.

    PYTHONPATH=.:tests python -m benchmarks.verdicts CORPUS … [--every N] [--judge NAME]

A corpus is a file of rows of `gold`, `pred` and `expected` (true or false; rows with any other
expectation are left out), or the `module:function` of a test that yields pairs, such as
`answer_pairs:pairs`, `notation_pairs:notation_pairs` and `near_misses:near_misses`. Each verdict
runs in a worker process within ten seconds; one that takes longer counts as refused. Precision is
the share of accepted answers that are right, recall the share of right answers that are accepted.
Prints a row for each file and judge.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import re
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


def rows_of(corpus: str, every: int, pattern: str | None) -> list[Row]:
    """Returns the rows of a corpus whose expectation is a yes or a no, one of `every`. Of a
    response the last match of a pattern is the answer."""
    if not corpus.endswith(".jsonl"):
        module, _, function = corpus.partition(":")
        pairs = getattr(importlib.import_module(module), function)()
        boxed = re.compile(r"\\f?box(?:ed)?\s*\{|<answer>")
        rows = [
            Row(p.gold, p.answer if boxed.search(p.answer) else rf"\boxed{{{p.answer}}}", p.right)
            for p in pairs
        ]
        return rows[::every]
    records = map(json.loads, Path(corpus).read_text(encoding="utf-8").splitlines())
    rows = [
        Row(record["gold"], record["pred"], record["expected"])
        for record in records
        if isinstance(record.get("expected"), bool) and isinstance(record.get("gold"), str)
    ]
    if pattern is not None:
        found = [re.findall(pattern, row.response) for row in rows]
        rows = [
            row._replace(response=rf"\boxed{{{answers[-1]}}}" if answers else "")
            for row, answers in zip(rows, found, strict=True)
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
    parser.add_argument("corpora", nargs="+")
    parser.add_argument("--pattern", help="the answer is its last match, such as '(?m)^A: (.*)$'")
    parser.add_argument("--judge", choices=("tfgrpo", "math-verify"), action="append")
    parser.add_argument("--every", type=int, default=1, help="take one row of so many")
    options = parser.parse_args()
    print("| corpus | judge | right | accepted | wrong | accepted | precision | recall |")
    print("|---|---|---|---|---|---|---|---|")
    for corpus in options.corpora:
        rows = rows_of(corpus, options.every, options.pattern)
        for name in options.judge or ("tfgrpo", "math-verify"):
            right, wrong, rights, wrongs = asyncio.run(counts(rows, name))
            precision = right / (right + wrong) if right + wrong else 1.0
            recall = right / rights if rights else 1.0
            print(
                f"| {Path(corpus).stem} | {name} | {rights} | {right} | {wrongs} | {wrong} "
                f"| {precision:.3f} | {recall:.3f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
