"""What a run or an evaluation is asked to do, from flags, `tfgrpo.toml`, then defaults, the
paper's where it names one (arXiv 2510.08191), checked once and frozen into its record. Keys are
no settings: they are read from the environment."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias, TypeGuard, TypeVar, cast, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from tfgrpo import domains
from tfgrpo.agents.agent_settings import AgentSettings
from tfgrpo.author import COMMIT, SETTING, check_signing
from tfgrpo.costs.prices import LOCAL
from tfgrpo.domains.base import Domain
from tfgrpo.model.rate_limits import PATIENCE
from tfgrpo.model.settings import ModelSettings, meant
from tfgrpo.rendering.render import AGENT_OBJECTIVE, LEARNING_OBJECTIVE
from tfgrpo.store.errors import HALF_A_CHARACTER, SettingsError
from tfgrpo.toml_text import parsed, place_of
from tfgrpo.tools.toolbox import ToolSettings
from tfgrpo.wording import did_you_mean

FILE = "tfgrpo.toml"
TABLES = ("model", "train", "eval", "prices", "tools", "agent")
LISTED = "endpoints"
"""An array of tables, [[endpoints]], which are told apart by their number."""
Mode: TypeAlias = Literal["prompt", "agent"]
Answering: TypeAlias = Literal["sampled", "exact"]
GateRule: TypeAlias = Literal["one-se", "above-zero", "significant", "not-worse"]
Preset: TypeAlias = Literal["fit", "paper"]
SHORT_ANSWERS = {"choice": 96, "exact": 256, "json": 512}
"""The kinds of problems with short answers, and the tokens that a local model needs for one."""
SHORT_TOKENS, LOCAL_TOKENS = 4096, 1024
"""The most tokens of a short answer elsewhere, where a model may think first, and of any other
answer of a local model, whose whole context is 4,096."""
PAPER, PROBATION, BASE_PROMPT, TRIAL = "paper", "probation", "base-prompt", "trial"
"""The policies that are built in: the published method, the one that measures, with the base prompt
too, and the one that measures what is there already (`tfgrpo prove`)."""
LISTS = "`--help-all` lists them"
OPTIONS = {"fields": "field", "run": "agent"}
"""Settings whose options are not called as they are."""
PARTS: dict[str, type[BaseModel]] = {"tools": ToolSettings, "agent": AgentSettings}
"""The records within settings that are a table of the file."""
MOST_SAMPLES = 4
"""Of a problem that is attempted again because there are few."""

S = TypeVar("S", bound="Settings")


SPAN = re.compile(r"(\d+(?:\.\d+)?) ?([smh]?)\Z")
UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}


class Settings(BaseModel):
    """What training and evaluation share; the words under a setting are its option's help.
    `skipped` are the ids left out as unverifiable, by the setting that names their dataset."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    domain: str = domains.DEFAULT
    """Kind of problem: a name or package.module:object."""
    fields: dict[str, str] = Field(default_factory=dict)
    """Field names in DATA for problem, answer, id or kind, such as answer=gold."""
    skip_unverifiable: bool = False
    """Leave out problems whose ground truth cannot be compared with any answer."""
    skipped: dict[str, tuple[str, ...]] = {}
    models: ModelSettings = ModelSettings()
    agent_objective: str = AGENT_OBJECTIVE
    """What attempts should achieve, in your own words."""
    prompts: str | None = None
    """Folder of prompts that replace the built-in ones."""
    concurrency: int = Field(default=128, ge=1, le=10_000)
    """Maximum requests in flight."""
    max_tokens: int = Field(default=16_384, ge=1)
    """Maximum tokens per answer."""
    task_timeout: float = Field(default=1800.0, gt=0, allow_inf_nan=False)
    """Seconds per attempt."""
    patience: float = Field(default=PATIENCE, ge=0, allow_inf_nan=False)
    """Stop after this long without any answer, such as 90s or 2h."""
    verify_timeout: float = Field(default=10.0, gt=0, allow_inf_nan=False)
    """Time limit for judging one answer, in seconds."""
    seed: int = 0
    """Random seed for batches and samples."""
    mode: Mode = "prompt"
    """Answer directly, or use the tools from [tools] in tfgrpo.toml."""
    answers: Answering = "sampled"
    """Sample each answer, or, where answers are few and the endpoint tells their probabilities,
    take the mean reward over all of them."""
    tools: ToolSettings = ToolSettings()
    agent: AgentSettings = AgentSettings()
    turns: int = Field(default=10, ge=1)
    """Maximum turns of an agent's attempt."""
    top_k: int = Field(default=0, ge=0)
    """Put only the N experiences that fit a problem best in its prompt; 0 for all."""

    @model_validator(mode="after")
    def _one_agent(self) -> Self:
        if self.agent.run and self.mode == "agent":
            raise ValueError("--agent uses your own agent, --mode agent ours: give only one")
        return self

    @field_validator("patience", mode="before")
    @classmethod
    def _seconds(cls, value: object) -> object:
        match = SPAN.match(value.strip()) if isinstance(value, str) else None
        if isinstance(value, str) and match is None:
            raise ValueError(f"{value!r} is no time: write 90s, 10m or 2h")
        return float(match[1]) * UNITS[match[2]] if match else value


class TrainSettings(Settings):
    """One training run, whole."""

    data: str
    data_digest: str = ""
    domain_identity: str = ""
    domain_renders: bool = False
    branch: str = "main"
    """Branch that learns; by default HEAD's."""
    epochs: int = Field(default=3, ge=1)
    """Passes over the data."""
    batch_size: int = Field(default=100, ge=1)
    """Problems per step."""
    group_size: int = Field(default=5, ge=1)
    """Attempts per problem and step."""
    temperature: float = Field(default=0.7, ge=0, le=2)
    """Sampling temperature of attempts."""
    learning_objective: str = LEARNING_OBJECTIVE
    """What should be learned, in your own words."""
    ground_truth: bool = True
    """Whether comparisons see the ground truth."""
    heldout: str | None = None
    """Data to compare with the empty library on, at the end."""
    heldout_samples: int = Field(default=2, ge=1)
    """Attempts per held-out and gate problem, and where there are none, at the run's own."""
    heldout_problems: int | None = Field(default=None, ge=1)
    """Use only the first N of these problems."""
    library_tokens: int | None = Field(default=None, ge=16)
    """Maximum tokens of the library; an experience without room waits."""
    gate: str | None = None
    """Data on which a step's library must be better to be kept."""
    gate_digest: str = ""
    gate_rule: GateRule = "one-se"
    """What a candidate must show: a gain of more than one standard error, any gain, a significant
    one, or no significant loss."""
    sealed: str | None = None
    """Data to compare on once, after the last step; recorded."""
    sealed_digest: str = ""
    policy: str = PROBATION
    """How a step learns: probation tries what the model says on part of the attempts and keeps what
    is measured to help; base-prompt does so with the base prompt and descriptions of tools too;
    paper is the published method; or module:Class."""
    examples: bool = True
    """Whether right answers and verified attempts may become examples, word for word."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.group_size == 1 and self.policy != PAPER:
            raise ValueError("effects are measured within groups: give --group-size 2 or more")
        return self


def fitting_tokens(settings: Settings) -> int | None:
    """The most tokens of an answer that fit problems and model; None where the paper's do."""
    kind = settings.domain.partition(":")[0]
    if settings.models.model.startswith(LOCAL):
        return SHORT_ANSWERS.get(kind, LOCAL_TOKENS)
    return SHORT_TOKENS if kind in SHORT_ANSWERS else None


def fitting_samples(attempts: int, problems: int) -> int:
    """How often to attempt each problem for about so many attempts: more problems tell more."""
    return min(max(round(attempts / max(problems, 1)), 1), MOST_SAMPLES)


class EvalSettings(Settings):
    """One evaluation. The temperature is the reference evaluation's."""

    data: str
    samples: int = Field(default=8, ge=1)
    """Attempts per problem."""
    temperature: float = Field(default=0.3, ge=0, le=2)
    """Sampling temperature of attempts."""

    @classmethod
    def of_run(cls, settings: TrainSettings, kind: str, samples: int) -> EvalSettings:
        """How a run is evaluated on problems of a kind: as it attempts those that it learns
        from."""
        shared = {name: getattr(settings, name) for name in Settings.model_fields}
        skipped = settings.skipped.get(kind)
        shared["skipped"] = {"data": skipped} if skipped else {}
        return cls(
            **shared,
            data=getattr(settings, kind),
            samples=samples,
            temperature=settings.temperature,
        )


def read_toml(path: Path) -> dict[str, dict[str, Any]]:
    """A settings file's tables, [[endpoints]]'s by number from 1. Raises SettingsError."""
    try:
        tables = parsed(path.read_bytes())
    except FileNotFoundError:
        raise SettingsError(f"no file {path}", hint="--config takes a TOML file") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", error)
        raise SettingsError(f"{path}: {why}", hint="the file must be TOML") from None
    check_signing(tables, path)
    for name in (SETTING, COMMIT):  # who signs: read where that is needed, and no part of a run
        tables.pop(name, None)
    listed = tables.get(LISTED)
    if isinstance(listed, list) and all(isinstance(one, dict) for one in listed):
        tables[LISTED] = {str(number): one for number, one in enumerate(listed, 1)}
    elif listed is not None:
        raise SettingsError(f"{path}: endpoints is a list of tables", hint="write [[endpoints]]")
    listed = ", ".join(f"[{table}]" for table in TABLES)
    hint = f"settings go in {listed}, [commit] and [[endpoints]]; author stands above them"
    for name, table in tables.items():
        if name not in (*TABLES, LISTED):
            is_table = isinstance(table, dict)
            known = [f"[{one}]" for one in (*TABLES, COMMIT)] if is_table else [SETTING]
            hint = did_you_mean(f"[{name}]" if is_table else name, known, after=" ") + hint
            wrong = f"there is no table [{name}]" if is_table else f"{name} stands in no table"
            raise SettingsError(f"{path}: {wrong}", hint=hint)
        if not isinstance(table, dict):
            raise SettingsError(f"{path}: {name} is a table", hint=f"write [{name}] above settings")
    return tables


def named(*layers: Mapping[str, Any]) -> set[str]:
    """The settings that any of some layers gives a value."""
    return {k.replace("-", "_") for layer in layers for k, v in layer.items() if v is not None}


def build(
    kind: type[S], *layers: Mapping[str, Any], find_domain: Callable[[str], Domain] = domains.find
) -> S:
    """Settings from layers, the first value winning; objectives in none are the domain's. Raises
    SettingsError in the words of the flag or key, and DomainError."""
    values: dict[str, Any] = {}
    for layer in reversed(layers):
        values.update({k.replace("-", "_"): v for k, v in layer.items() if v is not None})
    if "policy" in kind.model_fields and (preset := values.pop("preset", None)):
        if preset not in get_args(Preset):
            file = next((place_of(one) for one in layers if one.get("preset") is preset), "")
            raise SettingsError(f"{file}preset: {preset!r} is neither fit nor paper", hint=LISTS)
        values |= {"policy": PAPER} if preset == "paper" else {}
    for name, value in values.items():  # a record could not hold it
        try:
            json.dumps(value, ensure_ascii=False, default=str).encode()
        except UnicodeEncodeError:
            raise SettingsError(
                f"{name}: it is not valid Unicode",
                hint=HALF_A_CHARACTER,
            ) from None
    if values.get("domain", domains.DEFAULT) != domains.DEFAULT:
        domain = find_domain(str(values["domain"]))
        for objective in ("agent_objective", "learning_objective"):
            if objective in kind.model_fields:
                values.setdefault(objective, getattr(domain, objective))
    fields_of_models = {*ModelSettings.model_fields, "models"}  # the last is no setting there
    models = {k: values.pop(k) for k in list(values) if k in fields_of_models}
    try:
        return kind(**values, models=ModelSettings(**models))
    except ValidationError as error:
        first = error.errors()[0]
        place = [str(part) for part in first["loc"]]
        name, key = ".".join(place) or kind.__name__, "".join(place[:1])
        if first["type"] == "extra_forbidden":
            near = meant(first, PARTS[key], after=" ") + LISTS if key in PARTS else ""
            message, hint = f"unknown setting {name!r}", near or _meant(kind, name)
        else:
            message = f"{name}: {first['msg'].removeprefix('Value error, ')}"
            hint = _where(kind, place)
        value = {**values, **models}.get(key)
        sources = [one for one in layers if place and one.get(key) is value]
        tables = map(place_of, (one[key] if key in PARTS else one for one in sources))
        raise SettingsError(next(filter(None, tables), "") + message, hint=hint) from None


def option_of(record: type[BaseModel], name: str) -> str | None:
    """The option of a setting; None where it has none, and so no words of help."""
    if record.model_fields[name].description is None:
        return None
    return f"--{OPTIONS.get(name, name).replace('_', '-')}"


def _where(kind: type[Settings], place: list[str]) -> str:
    """The hint where to set what stands at a place in settings: an option, or a key of the file."""
    if not place:  # two of them do not go together
        return LISTS
    table, record = ("train" if kind is TrainSettings else "eval"), cast(type[BaseModel], kind)
    if place[0] in ModelSettings.model_fields:
        table, record = "model", ModelSettings
    elif place[0] in PARTS:
        table, *place = place
        record = PARTS[table]
    if not place:
        return f"see [{table}] of {FILE}"
    option = option_of(record, place[0])
    return f"see {option} in `--help-all`" if option else f"it is {place[0]} in [{table}] of {FILE}"


def _meant(kind: type[Settings], name: str) -> str:
    if name in (part.name for part in fields(Domain)):
        return f"it is part of a domain: domain=tfgrpo.Domain(name=…, verify=…, {name}=…)"
    known = {*kind.model_fields, *ModelSettings.model_fields, "preset"} - {"models"}
    return did_you_mean(name, known, after=" ") + LISTS


def is_count(value: object) -> TypeGuard[int]:
    """Whether a value is a whole number of 1 or more."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
