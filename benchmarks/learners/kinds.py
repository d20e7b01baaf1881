"""The built-in prompts on four kinds of problems, by seed.

    python -m benchmarks.learners.kinds RESULTS fields --seed 0 --base-url URL --model M
    python -m benchmarks.learners.kinds RESULTS --table

A cell is a kind, a model and a seed: a run with the built-in prompts and no gate, and one
comparison with the empty library on held-out problems. It leaves a JSON file of numbers, and its
store with the library in a folder beside that; a cell that was cut off is gone on with. The kinds:

- `numbers`: the bills of `examples/time-on-the-bill`, three house rules about time;
- `labels`: messages to a firm's desks, where the border between two desks is a house rule;
- `fields`: orders as JSON, where what a month and a payment look like is a house rule;
- `tool`: spans of days and of time, worked out by a program (`examples/dates-by-code`).

All are generated, and training and held-out problems are drawn from words of their own.
"""

from __future__ import annotations

import json
import random
import re
import runpy
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

EXAMPLES = Path(__file__).parents[2] / "examples"
TRAIN, HELDOUT, GATED = 24, 24, 12
FIXED: dict[str, Any] = {
    "epochs": 1,
    "batch_size": 8,
    "group_size": 5,
    "reflection_temperature": 0.0,
    "heldout_samples": 2,
    "temperature": 0.7,
}
LOCAL: dict[str, Any] = {"inject": "top-k", "top_k": 2}
"""What tfgrpo chooses for a local model and problems with one answer."""
Row = dict[str, Any]
NAMES = {
    "train": ("Anna Berg", "Tom Reed", "Ines Costa", "Jan Novak", "Lea Blum", "Omar Said"),
    "heldout": ("Eva Lind", "Max Hart", "Rosa Vega", "Piet Smit", "Nora Falk", "Ali Demir"),
}
GOODS = {
    "train": ("chair", "lamp", "desk", "stool"),
    "heldout": ("table", "mirror", "cabinet", "rug"),
}
MONTHS = ("March", "May", "June", "October")
DESKS = ("billing", "delivery", "repairs", "returns")
MESSAGES: dict[str, dict[str, tuple[str, ...]]] = {
    "train": {
        "billing": (
            "I was charged twice for the {thing} I sent back.",
            "The refund for my {thing} has not come yet.",
            "My {thing} came late, and I want the delivery fee back.",
            "Will I get my money back if the {thing} does not fit?",
        ),
        "delivery": (
            "The box with my {thing} arrived wet and torn.",
            "Somebody else's {thing} came to my door.",
            "One part of my {thing} was missing from the parcel.",
            "The driver left the {thing} in the rain, and now it is warped.",
        ),
        "repairs": (
            "The {thing} I bought last week stopped working.",
            "My new {thing} makes a noise. Can I have another one?",
            "A screw of my {thing} broke. Where do I get one?",
            "My {thing} fell apart after a month. I want to give it back.",
        ),
        "returns": (
            "I ordered the wrong size of {thing}. What now?",
            "Can I swap my {thing} for a blue one?",
            "I have not opened the {thing} and do not need it any more.",
            "How long may I keep the {thing} before I send it back?",
        ),
    },
    "heldout": {
        "billing": (
            "I returned the {thing} and you still took the instalment.",
            "You broke my {thing} on the stairs. Pay me the difference.",
            "I sent the {thing} back three weeks ago. Where is my money?",
            "The repair of my {thing} was free, and it is on my bill.",
        ),
        "delivery": (
            "There is a dent in the {thing} that was unpacked today.",
            "I got two of the {thing} and ordered one.",
            "The parcel with my {thing} was opened before it came.",
            "My neighbour has my {thing}; the courier gave it to him.",
        ),
        "repairs": (
            "After a few weeks the {thing} has a crack. Send me a new one.",
            "The {thing} wobbles since yesterday; I would like to return it.",
            "The handle of my {thing} came off.",
            "My {thing} is two months old and does not close any more.",
        ),
        "returns": (
            "The {thing} is fine, but it does not match my room.",
            "I would rather have the larger {thing}. Can I change it?",
            "May I bring the {thing} back to the shop in town?",
            "My aunt gave me the same {thing}. Can you take mine?",
        ),
    },
}
"""Money that is to come back goes to billing, whatever it is for; what happened on the way is for
delivery, what broke later for repairs, even if another one is asked for, and the rest for returns.
"""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of problems: what attempts are told, what is to be learned, the run's settings, and
    those that `local:NAME` would have beside them."""

    agent_objective: str
    learning_objective: str
    draw: Callable[[str, int], list[Row]]
    settings: dict[str, Any] = field(default_factory=dict)
    local: dict[str, Any] = field(default_factory=dict)


def example(name: str) -> Callable[[str, int], list[Row]]:
    """Returns what draws the problems of an example's folder."""

    def draw(split: str, count: int) -> list[Row]:
        drawn: list[Row] = runpy.run_path(str(EXAMPLES / name / "problems.py"))["draw"](
            split, count
        )
        return drawn

    return draw


def messages(split: str, count: int) -> list[Row]:
    """Returns messages with the desk that each goes to."""
    rng = random.Random(f"messages/{split}")
    rows: dict[str, Row] = {}
    while len(rows) < count:
        desk = DESKS[len(rows) % len(DESKS)]
        text = rng.choice(MESSAGES[split][desk]).format(thing=rng.choice(GOODS[split]))
        text = f"{text} {rng.choice(NAMES[split])}"
        rows.setdefault(text, {"id": f"{desk}-{len(rows)}", "problem": text, "answer": desk})
    return list(rows.values())


def orders(split: str, count: int) -> list[Row]:
    """Returns orders with their fields: a month is its name alone, and a payment true or false."""
    rng = random.Random(f"orders/{split}")
    rows: dict[str, Row] = {}
    while len(rows) < count:
        name, goods = rng.choice(NAMES[split]), rng.choice(GOODS[split])
        pieces, price, day = rng.randint(2, 9), rng.randint(3, 12) * 5, rng.randint(2, 19)
        month, is_paid = rng.choice(MONTHS), len(rows) % 2 == 0
        text = (
            f"{name} orders {pieces} {goods}s at {price} euros each on {day} {month}; "
            f"the bill is {'paid' if is_paid else 'open'}."
        )
        answer = {"customer": name, "pieces": pieces, "month": month, "paid": is_paid}
        rows.setdefault(text, {"id": f"order-{len(rows)}", "problem": text, "answer": answer})
    return list(rows.values())


KINDS = {
    "numbers": Kind(
        "A small firm bills its work. Write the calculation, then the result as a whole number in "
        "\\boxed{}.",
        "How this firm counts time on its bills: which numbers to calculate with.",
        example("time-on-the-bill"),
        {"max_tokens": 400},
        LOCAL,
    ),
    "labels": Kind(
        f"Which desk does a message go to: {', '.join(DESKS)}? Answer with the name of the desk.",
        "Which desk a message goes to where two seem right.",
        messages,
        {"domain": "choice", "max_tokens": 60},
    ),
    "fields": Kind(
        "Read the order and answer with a JSON object: customer, pieces, month, paid.",
        "What this shop means by each field.",
        orders,
        {"domain": "json", "max_tokens": 300},
    ),
    "tool": Kind(
        "Work the problem out with a program in Python, then give the result as a whole number and "
        "nothing else.",
        "How to write programs about dates and times that run and give the right result.",
        example("dates-by-code"),
        {"domain": "exact", "mode": "agent", "turns": 3, "max_tokens": 300},
    ),
}


@dataclass(frozen=True, slots=True)
class Cell:
    """A kind and a seed, and what is set beside the settings of the kind, by a name."""

    kind: str
    seed: int
    option: str = "base"
    settings: dict[str, Any] = field(default_factory=dict)

    def file(self, results: Path, model: dict[str, Any]) -> Path:
        """Returns the file that its result is in once it is done."""
        name = re.sub(r"[^A-Za-z0-9.]+", "-", model.get("model") or "default").strip("-")
        option = "" if self.option == "base" else f".{self.option}"
        return results / f"{self.kind}.{name}{option}.seed{self.seed}.json"


def write_problems(folder: Path, cell: Cell) -> dict[str, Any]:
    """Writes the problems of a cell; returns the settings that name their files.

    Those of a gate are drawn from the words of the training problems, after them.
    """
    draw = KINDS[cell.kind].draw
    drawn = {"data": draw("train", TRAIN), "heldout": draw("heldout", HELDOUT)}
    if "gate_samples" in cell.settings:
        drawn["gate"] = draw("train", TRAIN + GATED)[TRAIN:]
    for name, rows in drawn.items():
        text = "".join(f"{json.dumps(row)}\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    return {name: str(folder / f"{name}.jsonl") for name in drawn}


def run_cell(results: Path, cell: Cell, model: dict[str, Any], *, local: bool) -> dict[str, Any]:
    """Makes a cell, or what is left of it, and returns its result, which is also written.

    `model` are settings of the endpoint; `local` says that it serves a local model. Raises
    TfgrpoError, and what is done stays done.
    """
    import tfgrpo

    written = cell.file(results, model)
    if written.exists():
        done: dict[str, Any] = json.loads(written.read_text(encoding="utf-8"))
        return done
    folder = results / written.stem
    folder.mkdir(parents=True, exist_ok=True)
    chosen = KINDS[cell.kind]
    config = folder / "tfgrpo.toml"  # no other project's settings are those of a cell
    config.touch()
    objectives = {
        "agent_objective": chosen.agent_objective,
        "learning_objective": chosen.learning_objective,
    }
    more = (chosen.local if local else {}) | write_problems(folder, cell)
    result = tfgrpo.train_sync(
        more.pop("data"),
        store=folder / "store.db",
        config=config,
        run="cell",
        keep_going=True,
        **{**FIXED, **objectives, **chosen.settings, **more, **cell.settings, **model},
        seed=cell.seed,
    )
    assert result.comparison is not None
    estimate = result.comparison.difference.estimate
    found = {
        "kind": cell.kind,
        "seed": cell.seed,
        "option": cell.option,
        "settings": cell.settings,
        "model": result.comparison.model,
        "problems": estimate.problems,
        "empty": result.comparison.control_mean,
        "mean": result.comparison.mean,
        "difference": [estimate.mean, estimate.low, estimate.high],
        "library": [experience.text for experience in result.library],
        "calls": result.cost.usage.calls,
        "tokens": result.cost.usage.prompt_tokens + result.cost.usage.completion_tokens,
        "version": tfgrpo.__version__,
    }
    written.write_text(json.dumps(found, indent=1, ensure_ascii=False), encoding="utf-8")
    return found


def read_cells(results: Path) -> list[dict[str, Any]]:
    """Returns the cells that are done, by kind, option and seed."""
    cells = [json.loads(path.read_text("utf-8")) for path in results.glob("*.seed*.json")]
    return sorted(
        cells, key=lambda cell: (list(KINDS).index(cell["kind"]), cell["option"], cell["seed"])
    )


def table(results: Path) -> str:
    """Returns the cells that are done as Markdown, and the mean gain of each kind."""
    cells = [cell for cell in read_cells(results) if cell["option"] == "base"]
    lines = [
        "| kind | seed | empty | learned | difference | experiences |",
        "|---|---:|---:|---:|---|---:|",
    ]
    for cell in cells:
        mean, low, high = cell["difference"]
        lines.append(
            f"| {cell['kind']} | {cell['seed']} | {cell['empty']:.3f} | {cell['mean']:.3f} | "
            f"{mean:+.3f} [{low:+.3f}, {high:+.3f}] | {len(cell['library'])} |"
        )
    lines += ["", "| kind | seeds | mean gain | below empty |", "|---|---:|---:|---:|"]
    for kind in KINDS:
        gains = [cell["difference"][0] for cell in cells if cell["kind"] == kind]
        if gains:
            mean = sum(gains) / len(gains)
            below = sum(gain < 0 for gain in gains)
            lines.append(f"| {kind} | {len(gains)} | {mean:+.3f} | {below} |")
    return "\n".join(lines)


@click.command()
@click.argument("results", type=click.Path(path_type=Path, file_okay=False))
@click.argument("kind", required=False, type=click.Choice(list(KINDS)))
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--model", help="As in `tfgrpo train`; the local default without it.")
@click.option("--base-url", help="An endpoint that speaks the protocol of OpenAI.")
@click.option("--api-key-env", help="The variable with its key.")
@click.option("--concurrency", type=int, default=16, show_default=True)
@click.option("--local", is_flag=True, help="Settings as for local:NAME, with --base-url.")
@click.option("--table", "tabled", is_flag=True, help="Print the table of what is done.")
def main(
    results: Path,
    kind: str | None,
    seed: int,
    tabled: bool,
    local: bool,
    **model: str | int | None,
) -> None:
    """Makes one cell, or prints the table."""
    if tabled:
        click.echo(table(results))
    elif kind is None:
        raise click.UsageError("name a kind, or give --table")
    else:
        given = {key: value for key, value in model.items() if value is not None}
        cell = run_cell(results, Cell(kind, seed), given, local=local)
        mean, low, high = cell["difference"]
        click.echo(f"{kind}, seed {seed}: {mean:+.3f} [{low:+.3f}, {high:+.3f}]")


if __name__ == "__main__":
    main()
