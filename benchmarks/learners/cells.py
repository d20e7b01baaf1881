"""One cell of the race: a task, a learner and a seed, from its environment to its sealed test.

A cell is a folder that the same command goes on with, and leaves its result as one JSON file of
numbers alone, which can be given away where the data can not; its prompts stay in the folder. What
the learner asks is counted and stopped by the meter; the choice among checkpoints that a learner
leaves open, and the sealed test, are asked by the race itself and count for nobody.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import click

from benchmarks.families.results import PRODUCT, code_digest
from benchmarks.learners.arms import racing
from benchmarks.learners.arms.racing import Job, Prompt
from benchmarks.learners.meter import Meter, Speeds, Upstream
from benchmarks.learners.tasks import Task
from benchmarks.machine import machine

ARMS = Path(__file__).parent / "arms"
NEEDED: dict[str, tuple[str, tuple[str, ...]]] = {
    "empty": ("run_given.py", ()),
    "rules": ("run_given.py", ()),
    "unsearched": ("run_given.py", ()),
    "trajectories": ("run_given.py", ()),
    "nearest": ("run_given.py", ()),
    "lookup": ("run_given.py", ()),
    "random": ("run_random.py", ()),
    "gepa": ("run_gepa.py", ("gepa==0.1.4",)),
    "mipro": ("run_mipro.py", ("dspy[optuna]==3.4.1",)),
    "ace": ("run_ace.py", ("ace-framework==0.7.1",)),
    "skillopt": ("run_skillopt.py", ("skillopt==0.2.0",)),
    "published": ("run_tfgrpo.py", ()),
    "tfgrpo": ("run_tfgrpo.py", ()),
}
"""Each arm's script, and what its own environment has. Without any it runs in this one."""
OWN = ("benchmarks/learners/*.py", "benchmarks/learners/arms/racing.py")
"""The code that all cells share."""
LOG_TAIL = 2000


@dataclass(frozen=True, slots=True)
class Setting:
    """What all cells of a table share. `budget` is in compute-seconds, `samples` are those of a
    sealed problem."""

    results: Path
    model: str
    upstream: Upstream
    speeds: Speeds
    budget: float
    samples: int = 4
    temperature: float = 0.7
    max_tokens: int = 400
    concurrency: int = 8
    local: bool = False

    @property
    def model_name(self) -> str:
        """Returns the model's name as a part of a file's name."""
        return "".join(c if c.isalnum() or c in ".-" else "-" for c in self.model)

    def file(self, task: Task, name: str) -> Path:
        """Returns the file of a result; a cell's folder is called the same without `.json`."""
        return self.results / f"{task.name}.{self.model_name}.{name}.json"

    def choices(self, task: Task, code: Sequence[str] = OWN) -> dict[str, Any]:
        """Returns what decides every result. The model's address does not: as in the product, what
        was begun goes on at another."""
        return {
            "task": task.name,
            "problems": task.digest,
            "model": self.model,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "code": code_digest(code),
        }

    def cell_choices(self, task: Task, arm: str, seed: int) -> dict[str, Any]:
        """Returns what decides the result of a cell."""
        script = NEEDED[arm][0]
        product = PRODUCT if script == "run_tfgrpo.py" else ()
        return {
            **self.choices(task, (*OWN, f"benchmarks/learners/arms/{script}", *product)),
            "arm": arm,
            "seed": seed,
            "budget": self.budget,
            "speeds": self.speeds._asdict(),
            "samples": self.samples,
            "local": self.local,
        }


@contextmanager
def metered(setting: Setting) -> Iterator[Meter]:
    """Opens the meter of a table; what was spent is in the folder of its results."""
    with Meter(setting.upstream, setting.speeds, setting.results / "ledgers") as meter:
        yield meter


def environment(arm: str, venvs: Path | None) -> str:
    """Returns the Python of an arm, making its environment where there is none.

    Raises ClickException with what pip said where it cannot be installed.
    """
    needed = NEEDED[arm][1]
    if not needed:
        return sys.executable
    if venvs is None:
        raise click.UsageError(f"{arm} runs in an environment of its own: --venvs FOLDER")
    folder = venvs.absolute() / arm
    python, done = folder / "bin" / "python", folder / "installed.txt"
    if not done.exists() or done.read_text(encoding="utf-8") != "\n".join(needed):
        click.echo(f"{arm}: installing {', '.join(needed)}", err=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *needed]
        installation = subprocess.run(pip, capture_output=True, text=True, check=False)
        if installation.returncode:
            raise click.ClickException(
                f"{arm} does not install: {installation.stderr.strip()[-LOG_TAIL:]}"
            )
        done.write_text("\n".join(needed), encoding="utf-8")
    return str(python)


def job_of(setting: Setting, task: Task, meter: Meter, name: str, seed: int) -> Job:
    """Returns the job of a name at the meter."""
    folder = setting.file(task, name).with_suffix("")
    return Job(
        base_url=meter.url(folder.name),
        model=setting.model,
        arm=name.partition("-")[0],
        seed=seed,
        seed_text=task.seed_text,
        kind=task.kind,
        train=task.train,
        validation=task.validation,
        folder=folder,
        budget=setting.budget,
        temperature=setting.temperature,
        max_tokens=setting.max_tokens,
        concurrency=setting.concurrency,
        speeds=setting.speeds._asdict(),
        local=setting.local,
        rules=task.rules,
    )


def run_cell(
    setting: Setting, task: Task, arm: str, seed: int, venvs: Path | None
) -> dict[str, Any]:
    """Makes a cell, or what is left of it, and returns its result, which is also written.

    Raises ClickException where other choices were made before, and with the end of the arm's log
    where it failed; what it spent stays spent, and the same command goes on with it.
    """
    name, choices = f"{arm}-seed{seed}", setting.cell_choices(task, arm, seed)
    written = setting.file(task, name)
    if (done := made_with(choices, written)) is not None:
        return done
    with metered(setting) as meter:
        job = job_of(setting, task, meter, name, seed)
        job.folder.mkdir(parents=True, exist_ok=True)
        ledger = meter.limit(job.folder.name, setting.budget)
        begun = {name: value for name, value in choices.items() if name != "samples"}
        if made_with(begun, job.folder / "begun.json") is None:
            racing.write_text(job.folder / "begun.json", json.dumps(begun))
        if not (job.folder / "learned.json").exists():
            _learn(job, arm, environment(arm, venvs))
        learned = json.loads((job.folder / "learned.json").read_text(encoding="utf-8"))
        best = learned["best"]
        if best is None:
            best = _chosen(_apart(job, meter, "choice"), learned)
        sealed = _apart(job, meter, "sealed")
        tested = {"best": _tested(sealed, best, task, setting.samples)}
        if learned["final"] == best:
            tested["final"] = tested["best"]
        else:
            tested["final"] = _tested(sealed, learned["final"], task, setting.samples)
    prompts = {"best": best, "final": learned["final"]}
    racing.write_text(
        job.folder / "deployed.json", json.dumps(prompts, indent=1, ensure_ascii=False)
    )
    result = {
        **choices,
        "spent": ledger.totals(),
        "ended": learned["ended"],
        "notes": learned["notes"],
        "chosen_by": "the learner" if learned["best"] is not None else "validation",
        **tested,
        "machine": machine(),
        "at": time.strftime("%Y-%m-%d"),
    }
    racing.write_text(written, json.dumps(result, indent=1, ensure_ascii=False))
    return result


def made_with(choices: Mapping[str, Any], path: Path) -> dict[str, Any] | None:
    """Returns what is in a file, None where there is none. Raises ClickException where it was made
    with other choices."""
    if not path.exists():
        return None
    there: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    other = [
        f"{name} {there.get(name)}, not {value}"
        for name, value in choices.items()
        if there.get(name) != value
    ]
    if other:
        raise click.ClickException(
            f"{path} was made with {'; '.join(other)}: another folder of results takes this one"
        )
    return there


def _learn(job: Job, arm: str, python: str) -> None:
    described = {name: getattr(job, name) for name in Job.__dataclass_fields__}
    path, log = job.folder / "job.json", job.folder / "log.txt"
    path.write_text(json.dumps({**described, "folder": str(job.folder.absolute())}))
    command = [python, str(ARMS / NEEDED[arm][0]), str(path.absolute())]
    own = {**os.environ, "TFGRPO_TRUST": str(job.folder.absolute())}  # the race wrote all of it
    with log.open("ab") as output:
        code = subprocess.run(
            command, cwd=job.folder, env=own, stdout=output, stderr=subprocess.STDOUT, check=False
        ).returncode
    if code or not (job.folder / "learned.json").exists():
        tail = log.read_text(encoding="utf-8", errors="replace")[-LOG_TAIL:]
        raise click.ClickException(f"{arm} ended with code {code}:\n{tail}")


def _apart(job: Job, meter: Meter, what: str) -> Job:
    """Returns the job with a name of its own at the meter, and no budget."""
    from dataclasses import replace

    name = f"{job.folder.name}.{what}"
    meter.limit(name, None)
    return replace(job, base_url=meter.url(name))


def _chosen(job: Job, learned: dict[str, Any]) -> Prompt:
    """Returns the checkpoint that does best on the validation problems; of equals the first."""
    rows_file = racing.RowFile(job.folder / "choice.jsonl")
    candidates: list[Prompt] = []
    for prompt in learned["checkpoints"] or [learned["final"]]:
        if prompt not in candidates:
            candidates.append(prompt)
    for number in range(len(rows_file.rows), len(candidates)):
        attempts = racing.attempt_all(job, candidates[number], job.validation, "choice")
        rows_file.add(racing.mean(attempts))
    scores = rows_file.rows[: len(candidates)]
    return candidates[scores.index(max(scores))]


def _tested(job: Job, prompt: Prompt, task: Task, samples: int) -> dict[str, Any]:
    """Returns a prompt's rewards on the sealed problems, asked once and on record from then on.

    The samples have the same seeds for every learner.
    """
    digest = f"{racing.seeded(prompt):x}"
    rows_file = racing.RowFile(job.folder / f"sealed-{digest}.jsonl")
    from dataclasses import replace

    fixed = replace(job, seed=0)
    for sample in range(len(rows_file.rows), samples):
        attempts = racing.attempt_all(fixed, prompt, task.sealed, f"sealed {sample}")
        rows_file.add([[one.row["id"], one.reward, one.prompt_tokens] for one in attempts])
    rewards: dict[str, list[float]] = {}
    for row in rows_file.rows[:samples]:
        for problem, reward, _ in row:
            rewards.setdefault(problem, []).append(reward)
    tokens = [tokens for row in rows_file.rows[:samples] for _, _, tokens in row]
    means = {problem: fmean(values) for problem, values in rewards.items()}
    return {
        "mean": fmean(means.values()),
        "prompt_tokens": round(fmean(tokens), 1),
        "rewards": rewards,
    }


def headroom(setting: Setting, task: Task) -> dict[str, Any]:
    """Measures what could be learned: rules by hand, and a few random right examples, beside the
    empty library, on the validation problems. What was asked before is not asked again."""
    if (done := measured_headroom(setting, task)) is not None:
        return done
    with metered(setting) as meter:
        job = _apart(job_of(setting, task, meter, "headroom", 0), meter, "asked")
        job.folder.mkdir(parents=True, exist_ok=True)
        seed = racing.prompt_of(task.seed_text)
        examples = racing.right_examples(job, seed, task.train[:: max(1, len(task.train) // 6)][:6])
        prompts = {
            "empty": seed,
            "rules": racing.with_rules(task.seed_text, task.rules),
            "examples": racing.with_examples(task.seed_text, examples),
        }
        means = {
            name: fmean(
                racing.mean(racing.attempt_all(job, prompt, task.validation, f"headroom {sample}"))
                for sample in range(2)
            )
            for name, prompt in prompts.items()
        }
    gain = max(means["rules"], means["examples"]) - means["empty"]
    result = {
        **setting.choices(task),
        "means": means,
        "gain": gain,
        "has_headroom": gain >= HEADROOM - 1e-9,
        "machine": machine(),
    }
    racing.write_text(setting.file(task, "headroom"), json.dumps(result, indent=1))
    return result


def measured_headroom(setting: Setting, task: Task) -> dict[str, Any] | None:
    """Returns the headroom that is on record, else None. Raises ClickException where it was
    measured with other choices."""
    return made_with(setting.choices(task), setting.file(task, "headroom"))


HEADROOM = 0.15
"""What the rules or the examples have to add before a task is raced."""


def read_results(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns the cells in a folder, and the headrooms."""
    results: Sequence[dict[str, Any]] = [
        json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))
    ]
    return [one for one in results if "arm" in one], [one for one in results if "gain" in one]
