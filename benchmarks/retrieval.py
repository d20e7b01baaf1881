"""How often the rule that a problem needs is among those that its prompt would get.

    python -m benchmarks.retrieval > benchmarks/RESULTS-retrieval.md

`retrieval.jsonl` holds rules of twelve kinds in four languages, with two problems each that need
them. Each way to rank sees the rules of one language, and then those of all four as one library.
The way before, BM25 over stemmed words in SQLite's FTS5, is the first row. `--embedder NAME=URL`
adds an embedding model behind an OpenAI-compatible endpoint, for example one served by
xllamacpp; `NAME=URL=QUERY=DOCUMENT` gives the prefixes that it was trained with.
"""

from __future__ import annotations

import json
import re
import sqlite3
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TypeAlias

import click

from tfgrpo.rendering.near_duplicates import NgramIndex

Ranker: TypeAlias = Callable[[str], list[str]]
TEXTS = Path(__file__).with_name("retrieval.jsonl")
CUTS = (1, 2, 4)


def by_words(rules: Mapping[str, str]) -> Ranker:
    """Ranks by BM25 over stemmed words; what shares no word comes last, in library order."""
    db = sqlite3.connect(":memory:")
    db.execute(
        "create virtual table rules using fts5(text, tokenize ="
        " 'porter unicode61 remove_diacritics 2')"
    )
    db.executemany("insert into rules (text) values (?)", [(text,) for text in rules.values()])
    ids = list(rules)

    def ranked(problem: str) -> list[str]:
        words = dict.fromkeys(re.findall(r"\w+", problem.casefold()))
        query = " OR ".join(f'"{word}"' for word in words)
        rows = db.execute(
            "select rowid from rules where rules match ? order by bm25(rules), rowid", (query,)
        )
        best = [ids[row - 1] for (row,) in rows]
        return [*best, *(id for id in ids if id not in best)]

    return ranked


def by_ngrams(rules: Mapping[str, str]) -> Ranker:
    """Ranks as the product does."""
    return NgramIndex(rules).ranked


def by_embedder(url: str, query: str, document: str) -> Callable[[Mapping[str, str]], Ranker]:
    """Returns what ranks by the cosine of embeddings that an endpoint gives."""
    import numpy as np

    def vectors(texts: Sequence[str]) -> np.ndarray:
        body = json.dumps({"model": "m", "input": list(texts)}).encode()
        request = urllib.request.Request(
            f"{url}/embeddings", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=300) as answer:
            rows = sorted(json.load(answer)["data"], key=lambda row: row["index"])
        found = np.array([row["embedding"] for row in rows])
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    def build(rules: Mapping[str, str]) -> Ranker:
        ids, known = list(rules), vectors([document + text for text in rules.values()])
        return lambda problem: [
            ids[n] for n in np.argsort(-(known @ vectors([query + problem])[0]), kind="stable")
        ]

    return build


def measured(build: Callable[[Mapping[str, str]], Ranker], rows: Sequence[dict]) -> list[float]:
    """Returns recall at each cut and the mean reciprocal rank, for problems of these rules."""
    rank = build({f"{row['language']} {row['kind']}": row["rule"] for row in rows})
    places = [
        rank(problem).index(f"{row['language']} {row['kind']}") + 1
        for row in rows
        for problem in row["problems"]
    ]
    return [*(fmean(p <= cut for p in places) for cut in CUTS), fmean(1 / p for p in places)]


def speed() -> tuple[float, float]:
    """Returns the milliseconds to index 1,000 rules and to rank them for 2,000 characters."""
    rows = [json.loads(line) for line in TEXTS.read_text(encoding="utf-8").splitlines()]
    rules = {str(n): f"{rows[n % len(rows)]['rule']} ({n})" for n in range(1000)}
    problem = " ".join(problem for row in rows for problem in row["problems"])[:2000]
    begun = time.perf_counter()
    index = NgramIndex(rules)
    indexed = time.perf_counter() - begun
    taken = []
    for _ in range(20):
        begun = time.perf_counter()
        index.ranked(problem)
        taken.append(time.perf_counter() - begun)
    return 1000 * indexed, 1000 * sorted(taken)[len(taken) // 2]


def _embedder(
    context: click.Context, option: click.Parameter, given: Sequence[str]
) -> dict[str, Callable[[Mapping[str, str]], Ranker]]:
    ways = {}
    for one in given:
        name, *parts = one.split("=")
        if len(parts) not in (1, 3):
            raise click.BadParameter("write NAME=URL or NAME=URL=QUERY=DOCUMENT")
        url, query, document = parts if len(parts) == 3 else (*parts, "", "")
        ways[name] = by_embedder(url, query, document)
    return ways


@click.command()
@click.option("--embedder", multiple=True, callback=_embedder, metavar="NAME=URL[=QUERY=DOCUMENT]")
def main(embedder: Mapping[str, Callable[[Mapping[str, str]], Ranker]]) -> None:
    """Prints how often the rule that a problem needs is ranked first, by each way to rank."""
    ways = {"BM25 over stemmed words": by_words, "BM25 over n-grams (the product)": by_ngrams}
    ways |= embedder
    rows = [json.loads(line) for line in TEXTS.read_text(encoding="utf-8").splitlines()]
    languages = list(dict.fromkeys(row["language"] for row in rows))
    print("| language | ranked by | recall@1 | @2 | @4 | MRR |\n|---|---|---:|---:|---:|---:|")
    for language in (*languages, "all in one library"):
        some = [row for row in rows if row["language"] == language] or rows
        for name, build in ways.items():
            figures = " | ".join(f"{figure:.3f}" for figure in measured(build, some))
            print(f"| {language} | {name} | {figures} |")
    indexed, ranked = speed()
    print(f"\n1,000 rules: indexed in {indexed:.0f} ms; ranked for a problem of 2,000 characters")
    print(f"in {ranked:.1f} ms (median of 20).")


if __name__ == "__main__":
    main()
