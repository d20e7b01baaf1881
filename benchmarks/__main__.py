"""`python -m benchmarks`: builds the workload, measures, and writes RESULTS.md.

python -m benchmarks                 # some ten minutes
python -m benchmarks --quick         # a smaller one, printed and not written
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from benchmarks import appends, neighbours, reads, starts, table, written
from benchmarks.figures import FULL, QUICK, Figure

RESULTS = Path(__file__).parent / "RESULTS.md"


@click.command()
@click.option("--quick", is_flag=True, help="Smaller stores and fewer rounds; writes no file.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the page here.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where the stores are made.")
def main(quick: bool, output: Path | None, folder: Path | None) -> None:
    """Measures the store beside its neighbours."""
    sizes = QUICK if quick else FULL
    figures: list[Figure] = []

    def take(more: object) -> None:
        assert hasattr(more, "__iter__")
        for figure in more:
            figures.append(figure)
            verdict = {None: "", True: "met", False: "MISSED"}[figure.met]
            click.echo(f"{figure.what}: {figure.figure} ({figure.beside}) {figure.goal} {verdict}")

    with tempfile.TemporaryDirectory(dir=folder) as made:
        here = Path(made)
        take(appends.syncs(here))
        take(appends.measure(here, sizes))
        floors = appends.floors(here, sizes)
        take(reads.measure(here, sizes))
        take(reads.unbounded(here, sizes))
        take(starts.measure(here, sizes))
        take(written.measure(here))
        peers = neighbours.measure(here, sizes)
    page = table.page(figures, floors, peers, sizes)
    if output or not quick:
        (output or RESULTS).write_text(page, encoding="utf-8")
    else:
        click.echo(page)


if __name__ == "__main__":
    main()
