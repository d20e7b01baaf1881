"""A task of inspect_ai as an agent: its samples are the problems, its solver makes the attempts, in
its sandbox, and its scorers say what they are worth.

Each attempt is an evaluation of one sample, in a process of its own, whose model is the attempt's
address. Run as a program, it lists a task's samples (`--samples`), or makes the attempt that it
reads on standard input.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean
from subprocess import PIPE
from typing import Any

from tfgrpo.store import atomic_write, child_processes
from tfgrpo.store.errors import SettingsError

NAME = "inspect"
"""What the endpoint is called there: `openai-api/NAME/MODEL` asks it in OpenAI's format."""


def write_samples(spec: str, root: Path) -> Path:
    """Returns a file of problems with the samples of a task, in a project's folder of rows. They
    are listed without a key: no model is asked. Raises SettingsError where inspect_ai or the task
    is not there."""
    command = child_processes.python("-m", "tfgrpo.agents.inspect_task", "--samples", spec)
    environment = child_processes.without_keys(*child_processes.NETWORK)
    process = child_processes.start(command, environment, cwd=root, stdout=PIPE, stderr=PIPE)
    output, errors = process.communicate()
    if process.returncode:
        last = errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise SettingsError(
            f"cannot read the task {spec}: {last[:300]}",
            hint="write FILE.py or FILE.py@TASK, where `pip install inspect_ai` was done",
        )
    folder = root / ".tfgrpo" / "data"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"inspect-{hashlib.sha256(output).hexdigest()[:16]}.jsonl"
    atomic_write.write(path, output)
    return path


def load(spec: str) -> Any:
    """Returns the task that `FILE@TASK` names, or the only one of a file."""
    import importlib.util

    from inspect_ai import Task

    file, _, name = spec.rpartition("@") if "@" in spec else (spec, "", "")
    path = Path(file).resolve()
    sys.path.insert(0, str(path.parent))
    module_spec = importlib.util.spec_from_file_location(path.stem, path)
    if module_spec is None or module_spec.loader is None or not path.is_file():
        raise LookupError(f"there is no file {file}")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[path.stem] = module
    module_spec.loader.exec_module(module)
    if not name:
        own = [key for key, value in vars(module).items() if _is_task(value)]
        if len(own) != 1:
            raise LookupError(f"{file} has the tasks {', '.join(own) or '(none)'}: name one @TASK")
        name = own[0]
    task = getattr(module, name)()
    if not isinstance(task, Task):
        raise LookupError(f"{name} of {file} is no task")
    return task


def _is_task(value: object) -> bool:
    from inspect_ai._util.registry import is_registry_object, registry_info

    return bool(is_registry_object(value) and registry_info(value).type == "task")


def samples(task: Any) -> Iterator[dict[str, Any]]:
    """Yields the samples of a task as rows: id and problem. A target is what scorers look for, and
    mostly no answer: it is told with the reward."""
    for number, sample in enumerate(task.dataset, 1):
        given = sample.input
        if not isinstance(given, str):
            given = "\n\n".join(f"{message.role}: {message.text}" for message in given)
        id = str(sample.id) if sample.id is not None else f"sample-{number}"
        yield {"id": id, "problem": given}


def attempt(task: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Makes the attempt that is asked for, and returns its answer, reward and words."""
    from inspect_ai import eval as evaluate
    from inspect_ai import task_with
    from inspect_ai.dataset import MemoryDataset
    from inspect_ai.model import get_model
    from inspect_ai.scorer import value_to_float

    listed = zip(samples(task), task.dataset, strict=True)
    sample = next((one for row, one in listed if row["id"] == given["id"]), None)
    if sample is None:
        raise LookupError(f"the task has no sample {given['id']}")
    model = get_model(
        f"openai-api/{NAME}/{given['model']}",
        base_url=given["base_url"],
        api_key=os.environ["OPENAI_API_KEY"],
    )
    with tempfile.TemporaryDirectory(prefix="tfgrpo-inspect-") as folder:
        (log,) = evaluate(
            task_with(task, dataset=MemoryDataset([sample])),
            model=model,
            log_dir=folder,
            display="none",
            epochs=1,
            score=True,
        )
        if log.status != "success" or not log.samples:
            raise RuntimeError(log.error.message if log.error else f"it ended with {log.status}")
        done = log.samples[0]
        scores, completion = done.scores or {}, done.output.completion  # read from the folder
    number = value_to_float()
    values = [number(value) for score in scores.values() for value in _plain(score.value)]
    explained = [f"{name}: {one.explanation}" for name, one in scores.items() if one.explanation]
    target = sample.target if isinstance(sample.target, str) else "; ".join(sample.target)
    words = "; ".join([*explained, *([f"target: {target}"] if target else [])])
    reward = fmean(values) if values else None
    return {"answer": completion, "reward": reward, "words": words[:4000]}


def _plain(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    return list(value) if isinstance(value, list | tuple) else [value]


def main(arguments: list[str]) -> None:
    """Lists samples, or makes an attempt. What inspect_ai prints goes to standard error."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    if arguments[0] == "--samples":
        for row in samples(load(arguments[1])):
            out.write(json.dumps(row) + "\n")
    else:
        given = json.load(sys.stdin)
        out.write(json.dumps(attempt(load(arguments[0]), given)) + "\n")
    out.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
