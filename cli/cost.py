"""`tfgrpo cost`, and what `train --estimate` prints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil, floor, log10
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tfgrpo.cli import options, printing
from tfgrpo.cli.flags import JSON
from tfgrpo.cli.start_context import RUN, App, Given, pass_app
from tfgrpo.wording import money, span

if TYPE_CHECKING:
    from tfgrpo.costs.accounts import Total
    from tfgrpo.learn.run_estimate import RunEstimate, StageEstimate

COLUMNS = ("calls", "tries", "prompt", "cached", "completion", "reasoning", "seconds", "cost")


@click.command()
@click.argument("name", metavar="[RUN]", required=False, type=RUN)
@options.CONFIG
@JSON
@pass_app
def cost(app: App, name: str | None, config: Path | None, as_json: bool) -> None:
    """Show the cost of a run by stage, model and step, or of all runs.

    Calls are counted from the journal, which has every answered call, even of a run that was
    killed. Prices are in US dollars per million tokens, from [prices] in tfgrpo.toml or else the
    installed catalogue. Unknown prices are shown as unknown; local models are free. Where several
    endpoints serve a model, what each has answered is shown too, with the share of its prompts
    that it had cached.

    \b
    Examples:
      tfgrpo cost
    """
    from tfgrpo.costs.accounts import cached_share, cost_report

    project = app.project(config)
    run = app.store.runs.get(name) if name is not None else None
    address = project.table("model").get("base_url")
    report = cost_report(app.store, project.table("prices"), run, address)
    if as_json:
        printing.emit_json(report.object())
        return
    if not report.costs:
        printing.echo("no call has been made")
        return
    lines: list[str] = []
    total = report.total
    if run is None:
        lines += _table(("run",), [((key,), sums) for key, sums in report.by_run().items()], total)
    else:
        lines += [*_table(("stage", "model"), report.by_stage().items(), total), ""]
        named = [((when,), sums) for when, sums in report.by_step().items()]
        lines += _table(("step",), named, None)
    if report.by_endpoint:
        rows = [
            ((at, f"{100 * cached_share(sums):.0f} %"), sums)
            for at, sums in report.by_endpoint.items()
        ]
        lines += ["", *_table(("endpoint", "cached"), rows, None)]
    if total.unknown:
        lines.append(f"the price of {', '.join(total.unknown)} is unknown: [prices] in tfgrpo.toml")
    if report.estimated:
        calls = f"the server did not report token usage for {report.estimated:,} calls"
        lines.append(f"{calls}: theirs is estimated")
    printing.emit(app, lines)


def _table(
    keys: Sequence[str], rows: Iterable[tuple[Sequence[str], Total]], last: Total | None
) -> list[str]:
    lines = [(list(key), sums) for key, sums in rows]
    if last is not None and len(lines) > 1:
        lines.append((["total", *[""] * (len(keys) - 1)], last))
    some = {
        "tries": any(sums.retries for _, sums in lines),
        "cached": any(sums.usage.cached_tokens for _, sums in lines),
        "reasoning": any(sums.usage.reasoning_tokens for _, sums in lines),
    }
    shown = [i for i, name in enumerate(COLUMNS) if some.get(name, True)]
    header = [*keys, *(COLUMNS[i] for i in shown)]
    cells = [[*key, *(_cells(sums)[i] for i in shown)] for key, sums in lines]
    return aligned(header, cells, len(keys))


def _cells(sums: Total) -> list[str]:
    used = sums.usage
    prompts = (used.prompt_tokens, used.cached_tokens)
    numbers = (used.calls, used.calls + sums.retries, *prompts, used.completion_tokens)
    counts = [f"{n:,}" for n in (*numbers, used.reasoning_tokens)]
    return [*counts, f"{used.seconds:,.0f}", sums.words]


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> list[str]:
    """A table whose columns stand to the right, but for the first `left` ones."""
    columns = list(zip(header, *rows, strict=True))
    for at, cells in enumerate(columns[left:], left):
        wide = max(map(len, cells))
        columns[at] = tuple(cell.rjust(wide) for cell in cells)
    first, *others = zip(*columns, strict=True)
    return printing.table(others, header=first)


def print_figures(estimate: RunEstimate | str, given: Given) -> None:
    """Prints an estimate, as a sentence or with --details by stage, or that there is nothing to
    do."""
    from tfgrpo.learn.run_estimate import summed

    if isinstance(estimate, str):
        if given.as_json:
            printing.emit_json({"nothing": estimate})
        else:
            printing.echo(estimate)
        return
    expected, most = summed(estimate.expected), summed(estimate.most)
    if given.as_json:
        names = ("left_out", "unseen", "steps", "steps_done", "spent_tokens", "spent_dollars")
        printing.emit_json(
            {
                "expected": [_planned_object(one) for one in estimate.expected],
                "most": [_planned_object(one) for one in estimate.most],
                "seconds": round(expected.seconds),
                "most_seconds": round(most.seconds),
                **{name: getattr(estimate, name) for name in names},
            }
        )
        return
    if estimate.about:
        printing.echo(f"{estimate.about}:")
    if given.details:
        for title, stages in (("expected", estimate.expected), ("at most", estimate.most)):
            rows = []
            for one in (*stages, summed(stages)):
                tokens = (_short(one.prompt_tokens), _short(one.completion_tokens))
                rows.append((one.stage, f"{round(one.calls):,}", *tokens, money(one.dollars)))
            printing.echo_each(aligned((title, "calls", "prompt", "completion", "cost"), rows, 1))
            printing.echo()
    printing.echo_each(printing.wrapped(_sentence(estimate, details=given.details)))
    if given.details:
        source = "this store has seen them" if estimate.lengths_seen else "a rule of thumb says"
        before = "nothing has been spent"
        if estimate.spent_tokens:
            before = f"{_spent(estimate)} spent before"
        printing.echo(f"assumed length of answers: as {source}; {before}")
    for missing in (*estimate.left_out, *estimate.unseen):
        printing.echo_each(printing.wrapped(f"not counted: {missing}", indent=2))
    if most.dollars is None:
        printing.echo("a price is unknown: give it in tfgrpo.toml's [prices]")


def _sentence(estimate: RunEstimate, *, details: bool) -> str:
    """`about $1.90 and 25 min (40,000 in, 9,000 out a step), at most $6`, and the rest of it."""
    from tfgrpo.learn.run_estimate import summed

    expected, most = summed(estimate.expected), summed(estimate.most)
    steps = max(1, estimate.steps)
    sizes = (_round(expected.prompt_tokens / steps), _round(expected.completion_tokens / steps))
    step = f"({sizes[0]:,} in, {sizes[1]:,} out{' a step' if estimate.steps else ''})"
    times = [span(seconds) for seconds in (expected.seconds, most.seconds)]
    if expected.dollars is None or most.dollars is None:
        tokens = [_short(one.prompt_tokens + one.completion_tokens) for one in (expected, most)]
        amounts = [f"{amount} tokens" for amount in tokens]
    elif not most.dollars:
        amounts = ["", ""]
    else:
        amounts = [money(_round(expected.dollars)), money(_round(most.dollars))]
    if amounts[1]:
        sentence = f"about {amounts[0]} and {times[0]} {step}, at most {amounts[1]}"
    else:
        sentence = f"about {times[0]} {step}, at most {times[1]}, at no cost"
    if estimate.steps_done:
        done = printing.plural(estimate.steps_done, "step")
        sentence += f", for what is left after {done}, which took {_spent(estimate)}"
    elif estimate.spent_tokens:
        sentence += f", for what is left after {_spent(estimate)} in the first step"
    return sentence if details else f"{sentence}; --details for more"


def _spent(estimate: RunEstimate) -> str:
    if estimate.spent_dollars is None:
        return f"{_short(estimate.spent_tokens)} tokens"
    return money(estimate.spent_dollars)


def _round(amount: float) -> float:
    """An amount with two digits that count: nothing more is known of it."""
    if amount <= 0:
        return 0
    rounded = round(amount, 1 - floor(log10(amount)))
    return round(rounded) if rounded >= 10 else rounded


def _planned_object(one: StageEstimate) -> dict[str, Any]:
    names = ("calls", "prompt_tokens", "completion_tokens")
    counts = {name: ceil(getattr(one, name)) for name in names}
    return {"stage": one.stage, **counts, "dollars": one.dollars}


def _short(tokens: float) -> str:
    """`812`, `34 k`, `1.3 M`."""
    for size, unit in ((1e6, " M"), (1e3, " k")):
        if tokens >= size:
            amount = tokens / size
            return f"{amount:,.0f}{unit}" if amount >= 10 else f"{amount:.1f}{unit}"
    return f"{tokens:.0f}"
