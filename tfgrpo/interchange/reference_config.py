"""The reference implementation's configuration (Youtu-Agent's practice YAML) as a tfgrpo.toml.

What `defaults` names is read as hydra would. Every setting is translated, or a comment in the file
says what became of it. Keys are never copied; the variable that holds one is.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tfgrpo.interchange import yaml_text
from tfgrpo.interchange.format_types import SourceFile, UnreadableLibrary
from tfgrpo.interchange.formats import labelled_lines
from tfgrpo.interchange.formats.youtu_agent import is_secret
from tfgrpo.toml_text import toml_comment, toml_value

DEEPEST = 6
"""How many files deep `defaults` is followed."""
MOST_FILES = 100
"""Files that are read for one configuration, at most."""
TRAIN = {
    "epochs": "epochs",
    "batch_size": "batch_size",
    "grpo_n": "group_size",
    "rollout_concurrency": "concurrency",
    "rollout_temperature": "temperature",
    "task_timeout": "task_timeout",
    "given_ground_truth": "ground_truth",
    "agent_objective": "agent_objective",
    "learning_objective": "learning_objective",
}
ANSWERED = {
    "practice.shuffle_data": "batches are shuffled in each epoch, by --seed",
    "practice.restart_step": "the same command resumes; `tfgrpo reset RUN/step_N` goes back",
    "practice.num_experiences_per_query": "one or two lessons a group, as the model finds them",
    "practice.eval_strategy": "heldout is evaluated at the end; gate = … at every step",
    "practice.eval_steps": "heldout is evaluated at the end; gate = … at every step",
    "practice.do_eval": "heldout = … is evaluated at the end",
    "evaluation.verify_func_name": "the domain judges",
    "evaluation.judge_concurrency": "as many at once as attempts",
    "evaluation.exp_id": "evaluations are recorded with their version",
    "evaluation.agent.name": "`tfgrpo export --format agent --name …` writes an agent",
}
EVALUATION = (
    ("practice.eval_data_truncate", "train", "heldout_problems"),
    ("evaluation.pass_k", "eval", "samples"),
    ("evaluation.concurrency", "eval", "concurrency"),
)
VERIFIERS = {"math": "math", "webwalker": "web", "web": "web"}
TOOLS = {"python": "python", "python_executor": "python", "code": "python", "search": "search"}
VARIABLE = re.compile(r"\$\{oc\.(?:env|decode):\s*([A-Z_][A-Z0-9_]*)")
NUMBERED = re.compile(r"dapo[-_ ]?(\d+)\Z", re.IGNORECASE)


class Translation(NamedTuple):
    """A configuration as a settings file's text, its run's name, and what was not translated."""

    toml: str
    run: str | None
    left: tuple[str, ...]


def translated(path: Path) -> Translation:
    """Reads a practice configuration. Raises UnreadableLibrary, with file and line."""
    left: list[str] = []
    config = _composed(path, left, (), [])
    settings = dict(_flat(config))
    if not any(key.startswith("practice.") for key in settings):
        raise UnreadableLibrary(
            f"{path} has no practice settings",
            hint="a configuration with `practice:` is expected, as in configs/practice/*.yaml",
        )
    return _Translator(path, settings, left).run()


class _Translator:
    """Takes settings out of a flat configuration one by one, until none is left."""

    def __init__(self, path: Path, settings: dict[str, Any], left: list[str]) -> None:
        self._path = path
        self._settings = settings
        self._left = left
        self._tables: dict[str, dict[str, Any]] = {"model": {}, "train": {}, "eval": {}}

    def run(self) -> Translation:
        experiment = self._take("exp_id")
        self._data()
        train = self._tables["train"]
        for theirs, ours in TRAIN.items():
            if (value := self._take(f"practice.{theirs}")) is not None:
                train[ours] = value.strip() if isinstance(value, str) else value
        self._agent()
        self._evaluation()
        self._model()
        self._tools()
        for key in sorted(self._settings):
            value = self._settings[key]
            if is_secret(key.rpartition(".")[2], value):
                self._left.append(f"{key}: a key or a password, which is not copied")
            elif value not in (None, "", [], {}):
                shown = json.dumps(value, ensure_ascii=False, default=str)[:60]
                why = ANSWERED.get(key, "has no counterpart here")
                self._left.append(f"{key} = {shown}: {why}")
        name = str(experiment) if experiment else None
        return Translation(self._toml(name), name, tuple(self._left))

    def _take(self, key: str) -> Any:
        """A setting that is a text, a number, true or false; what is none of them stays,
        to be listed as not translated."""
        value = self._settings.get(key)
        plain = isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))
        return self._settings.pop(key) if plain else None

    def _data(self) -> None:
        data = self._take("data.practice_dataset_name") or self._take("practice.data")
        count = self._take("practice.rollout_data_truncate")
        if not data:
            self._left.append("data: the configuration names none; give one, `tfgrpo train DATA`")
            return
        sample = NUMBERED.match(str(data))
        if sample:
            self._left.append(
                f"data.practice_dataset_name = {data}: their own hundred is in no public dataset; "
                f"{sample[1]} of DAPO-Math-17k are drawn with a seed"
            )
            data = f"dapo-math-17k:{sample[1]}@seed0"
        self._tables["train"]["data"] = f"{str(data).split(':')[0]}:{count}" if count else str(data)

    def _agent(self) -> None:
        train = self._tables["train"]
        for key in list(self._settings):
            if key.rpartition(".")[2] == "instructions":
                lines = str(self._take(key) or "").replace("\r", "").split("\n")
                items = labelled_lines.labelled_items(lines).items
                if items:
                    lines = lines[: (items[0].line or 1) - 1]
                    self._left.append(
                        f"{key}: {len(items)} experiences in the instructions; "
                        "`tfgrpo import AGENT.yaml` reads them"
                    )
                objectives = [str(train.get("agent_objective", "")), "\n".join(lines).strip()]
                train["agent_objective"] = "\n\n".join(filter(None, objectives))
            elif key.endswith("max_turns") and (turns := self._take(key)) is not None:
                train.setdefault("turns", turns)

    def _evaluation(self) -> None:
        train = self._tables["train"]
        data = self._take("evaluation.data.dataset")
        evaluate = self._settings.get("practice.do_eval")
        if data and evaluate:
            train["heldout"] = str(data)
            self._take("practice.do_eval")
        elif data:
            self._left.append(
                f"evaluation.data.dataset = {data}: `tfgrpo eval {data}` evaluates on it"
            )
        for theirs, table, ours in EVALUATION:
            if (value := self._take(theirs)) is not None:
                self._tables[table][ours] = value
        verify = self._take("evaluation.verify_filename")
        if verify and (domain := VERIFIERS.get(Path(str(verify)).stem)):
            train["domain"] = domain
        elif verify:
            self._left.append(
                f"evaluation.verify_filename = {verify}: write it as a domain or a verify "
                "function (docs/domains.md) and set domain"
            )

    def _model(self) -> None:
        model = self._tables["model"]
        for base in ("evaluation.agent.model.", "agent.model.", "model.", "evaluation.model."):
            provider = f"{base}model_provider."
            for ours in ("model", "base_url"):
                if (named := self._value(f"{provider}{ours}", ours)) is not None:
                    model.setdefault(ours, named)
            if key := self._take(f"{provider}api_key"):
                if variable := VARIABLE.match(str(key)):
                    model.setdefault("api_key_env", variable[1])
                else:
                    self._left.append(
                        f"{provider}api_key: a key stands in the file and is not copied; put it "
                        "into a variable and name that in api_key_env"
                    )
            self._take(f"{provider}type")
            for table, ours in (("eval", "temperature"), ("train", "max_tokens")):
                if (value := self._take(f"{base}model_settings.{ours}")) is not None:
                    self._tables[table].setdefault(ours, value)

    def _value(self, key: str, ours: str) -> str | None:
        """A setting that may stand in the environment, where only its place is told."""
        value = self._take(key)
        if value is None:
            return None
        if variable := VARIABLE.match(str(value)):
            self._left.append(f"{key} = ${variable[1]}: set {ours} in [model] to its value")
            return None
        return str(value)

    def _tools(self) -> None:
        used: list[str] = []
        for key in list(self._settings):
            parts = key.split(".")
            if "toolkits" not in parts or parts.index("toolkits") + 1 >= len(parts):
                continue
            name = parts[parts.index("toolkits") + 1]
            if name in TOOLS:
                self._take(key)
                used.append(TOOLS[name])
        if used:
            self._tables["train"]["mode"] = "agent"
            self._tables["tools"] = {"use": list(dict.fromkeys(used))}

    def _toml(self, name: str | None) -> str:
        run = f" --run {name}" if name else ""
        lines = [toml_comment(f"From {self._path.name}. Train with: tfgrpo train{run}"), ""]
        for table, values in self._tables.items():
            if not values:
                continue
            lines.append(f"[{table}]")
            lines += [f"{key} = {toml_value(value)}" for key, value in values.items()]
            lines.append("")
        if self._left:
            lines.append("# Not translated:")
            lines += [toml_comment(f"- {entry}") for entry in self._left]
        return "\n".join(lines).rstrip() + "\n"


def _flat(value: Mapping[Any, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, inner in value.items():
        there = f"{path}.{key}" if path else str(key)
        if isinstance(inner, Mapping) and inner:
            yield from _flat(inner, there)
        else:
            yield there, inner


def _composed(
    path: Path, left: list[str], above: tuple[Path, ...], files: list[Path]
) -> dict[Any, Any]:
    """A file with what its `defaults` name, which stand below it. `above` are the files that name
    it, `files` all that were read; what is not read is appended to `left`."""
    files.append(path)
    above = (*above, path.resolve())
    try:
        source = SourceFile(path, path.read_bytes())
    except OSError as error:
        raise UnreadableLibrary(
            f"cannot read {path}: {error.strerror}", hint="give a YAML file"
        ) from None
    config = yaml_text.loaded(source, source.text)
    defaults = config.pop("defaults", None)
    whole: dict[Any, Any] = {}
    for entry in defaults if isinstance(defaults, list) else ():
        if isinstance(entry, dict) and len(entry) == 1:
            ((group, name),) = entry.items()
            entry = f"{group}/{name}@{group}"
        if not isinstance(entry, str) or entry == "_self_":
            continue
        name, _, package = entry.partition("@")
        file = _named(path, name)
        if file is None:
            left.append(f"defaults: {entry}: no such file beside this one; it was not read")
            continue
        if file.resolve() in above or len(above) > DEEPEST or len(files) >= MOST_FILES:
            why = "it names itself" if file.resolve() in above else "there are too many"
            left.append(f"defaults: {entry}: {why}; it was not read")
            continue
        inner = _composed(file, left, above, files)
        for part in reversed((package or "").split(".")):
            inner = {part: inner} if part and part != "_global_" else inner
        whole = _merged(whole, inner)
    return _merged(whole, config)


def _named(path: Path, name: str) -> Path | None:
    """The file that an entry of `defaults` means: beside the file, or from a folder above it."""
    if ".." in name.split("/"):
        return None
    for folder in path.resolve().parents[:DEEPEST]:
        file = folder / f"{name.strip('/')}.yaml"
        if os.path.isfile(file):  # unlike a path's own, it takes any name
            return file
    return None


def _merged(below: Mapping[Any, Any], above: Mapping[Any, Any]) -> dict[Any, Any]:
    whole = dict(below)
    for key, value in above.items():
        held = whole.get(key)
        both = isinstance(held, Mapping) and isinstance(value, Mapping)
        whole[key] = _merged(held, value) if both else value  # type: ignore[arg-type]
    return whole
