"""`tfgrpo rollouts`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import click

from tfgrpo.cli import text
from tfgrpo.cli.context import RUN, App, pass_app
from tfgrpo.store.runs import RolloutRow
from tfgrpo.store.store import Store

LONG = 28
DEEPEST = 24


@click.command()
@click.argument("name", metavar="RUN", required=False, type=RUN)
@click.option("--step", type=click.IntRange(1), help="Only attempts of this step.")
@click.option(
    "--problem", metavar="ID", help="Only attempts at this problem, with their full trajectories."
)
@click.option("--sample", type=click.IntRange(0), help="Only the attempt with this number.")
@click.option("--json", "as_json", is_flag=True, help="Output JSON Lines.")
@pass_app
def rollouts(
    app: App,
    name: str | None,
    step: int | None,
    problem: str | None,
    sample: int | None,
    as_json: bool,
) -> None:
    """List the attempts of RUN (by default the newest run); with --problem, show their
    trajectories.

    An attempt that branched off another one shares its earlier messages, which are shown once.

    \b
    Examples:
      tfgrpo rollouts --step 1
      tfgrpo rollouts --json
    """
    from tfgrpo.store.errors import UnknownRevision

    store = app.store
    runs = store.runs.all()
    if name is None and not runs:
        raise UnknownRevision("there is no run yet", hint="start one with `tfgrpo train`")
    run = runs[-1] if name is None else store.runs.get(name)
    rows = [
        row
        for row in store.runs.rollouts(run, None if step is None else step - 1)
        if problem in (None, row.problem) and sample in (None, row.sample)
    ]
    if not rows:
        raise UnknownRevision(
            f"run {run.name} has no such rollouts", hint="`tfgrpo rollouts` lists them all"
        )
    if as_json:
        text.emit_json_lines(_object(store, row) for row in rows)
    elif problem is not None:
        text.emit(app, _trajectories(store, rows))
    else:
        text.emit(app, _listed(rows))


def _listed(rows: Iterable[RolloutRow]) -> Iterator[str]:
    cells = [
        (
            str(row.step + 1),
            _short(row.problem),
            str(row.sample),
            "–" if row.reward is None else f"{row.reward:.2f}",
            row.outcome,
            str(row.verdict.get("answer") or ""),
        )
        for row in rows
    ]
    return iter(
        text.table(cells, header=("step", "problem", "sample", "reward", "outcome", "answer"))
    )


def _short(id: str) -> str:
    """Returns an id that leaves a terminal's line room for the rest."""
    if len(id) <= LONG or text.width() == text.UNWRAPPED:
        return id
    return "…" + id[1 - LONG :]


def _trajectories(store: Store, rows: Iterable[RolloutRow]) -> Iterator[str]:
    for number, row in enumerate(rows):
        if number:
            yield ""
        reward = "no reward" if row.reward is None else f"reward {row.reward:.2f}"
        title = f"step {row.step + 1}, {row.problem}, attempt {row.sample}: {reward}"
        yield click.style(f"{title}, {row.outcome} under v{row.version}", bold=True)
        for key in ("hint", "reason"):
            if row.verdict.get(key):
                yield from text.wrap(text.words(f"{key}: {row.verdict[key]}", dim=True), indent=2)
        if "branch" in row.verdict:
            parent, at = row.verdict["branch"]
            yield click.style(
                f"… the first {at + 1} messages are those of attempt {parent}", dim=True
            )
        for role, content in _messages(store, row):
            line, *more = content.splitlines() or [""]
            yield from text.wrap([text.Word(role, fg="cyan"), *text.words(line)], indent=2)
            for line in more:  # as they stand: it may be code
                blank = "  " + line[: len(line) - len(line.lstrip())].expandtabs(4)[:DEEPEST]
                yield from text.wrap(text.words(line), first=blank, indent=len(blank))


def _messages(store: Store, row: RolloutRow) -> Iterator[tuple[str, str]]:
    """Yields what an attempt said and was told, after its prompt and what it shares."""
    for message in row.verdict.get("messages", ()):
        content = str(message.get("content") or "")
        for call in message.get("tool_calls", ()):
            function = call["function"]
            content += f" {function['name']}({function['arguments']})"
        yield message["role"] + (" (cached)" if message.get("cached") else ""), content.strip()
    if "messages" not in row.verdict and row.calls:
        call = store.runs.call(bytes.fromhex(row.calls[-1]))
        if call is not None:
            yield "assistant", str(call.answer["content"])


def _object(store: Store, row: RolloutRow) -> dict[str, Any]:
    said = [{"role": role, "content": content} for role, content in _messages(store, row)]
    return {
        "step": row.step + 1,
        "problem": row.problem,
        "sample": row.sample,
        "version": f"v{row.version}",
        "outcome": row.outcome,
        "reward": row.reward,
        "verdict": {key: value for key, value in row.verdict.items() if key != "messages"},
        "messages": said,
    }
