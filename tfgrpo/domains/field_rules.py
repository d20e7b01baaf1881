"""How the fields of a JSON object are compared: by type, tolerance and weight, and by a schema."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from tfgrpo.data.cell_types import as_date
from tfgrpo.domains.base import DomainError
from tfgrpo.domains.exact import Normalisation
from tfgrpo.domains.from_toml import first_error
from tfgrpo.domains.name_options import read_options
from tfgrpo.store.canonical import digest

TOLERANCE = re.compile(r"\d+(?:\.\d+)?%?\Z")
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d{1,3})?\Z", re.ASCII)
CHOICES = {
    "case": ("keep", "ignore"),
    "accents": ("keep", "ignore"),
    "punctuation": ("keep", "ignore"),
    "order": ("keep", "ignore"),
    "extra": ("ignore", "wrong"),
}


class Comparing(BaseModel):
    """What a rule for one field and the rules for all have in common.

    `tolerance` is how far a number may be off: `0.01`, or `1%` of the ground truth.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    tolerance: str | None = None
    case: Literal["keep", "ignore"] | None = None
    accents: Literal["keep", "ignore"] | None = None
    punctuation: Literal["keep", "ignore"] | None = None
    order: Literal["keep", "ignore"] | None = None

    @field_validator("tolerance", mode="before")
    @classmethod
    def _a_tolerance(cls, value: object) -> object:
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)
        if isinstance(value, str) and not TOLERANCE.match(value):
            raise ValueError(f"{value!r} is no tolerance: write 0.01 or 1%")
        return value


class FieldRule(Comparing):
    """How one field is compared; what it does not say, the rules for all fields do."""

    type: Literal["text", "number", "boolean", "date", "list", "any"] = "any"
    weight: float = Field(default=1.0, gt=0, le=1000)
    description: str = ""


class FieldRules(Comparing):
    """The rules for all fields. Without `fields` those of each ground truth are compared.

    `json_schema` is a JSON Schema that an answer has to keep to; in a file it is called `schema`.
    """

    fields: dict[str, FieldRule] = {}
    extra: Literal["ignore", "wrong"] = "ignore"
    json_schema: dict[str, Any] | None = None

    def rule(self, name: str) -> FieldRule:
        """Returns how a field is compared."""
        rule = self.fields.get(name, FieldRule())
        ours = {k: getattr(self, k) for k in Comparing.model_fields if getattr(rule, k) is None}
        return rule.model_copy(update=ours)

    def scored(self, gold: Iterable[str]) -> list[str]:
        """Returns the names of the fields that count, for a ground truth with these."""
        return list(self.fields or gold)

    def schema_error(self, value: Any) -> str:
        """Returns how an answer breaks the schema; nothing where it keeps to it."""
        if self.json_schema is None:
            return ""
        import jsonschema

        error = next(jsonschema.Draft202012Validator(self.json_schema).iter_errors(value), None)
        if error is None:
            return ""
        where = ".".join(map(str, error.absolute_path))
        return f"{where}: {error.message}".removeprefix(": ")[:200]

    @property
    def properties(self) -> Mapping[str, Any]:
        """The fields of the schema's object; empty where it names none."""
        properties = (self.json_schema or {}).get("properties")
        return properties if isinstance(properties, dict) else {}

    def values(self, name: str) -> list[Any]:
        """Returns the values that a field can have; none where they are not listed."""
        known = self.properties.get(name)
        known = known if isinstance(known, dict) else {}
        if isinstance(known.get("enum"), list):
            return list(known["enum"])
        boolean = "boolean" in (known.get("type"), self.rule(name).type)
        return [True, False] if boolean else []

    @property
    def searches(self) -> bool:
        """Whether the schema has regular expressions, which may take for ever."""
        return "pattern" in json.dumps(self.json_schema)

    def told(self) -> str:
        """Returns what a model is told of the fields; nothing where none are known."""
        if not self.fields:
            return ""
        lines = [f"- {name}{_about(rule)}" for name, rule in self.fields.items()]
        return "The fields are:\n" + "\n".join(lines)

    def as_options(self) -> str:
        """Returns the rules as the options that make them anew."""
        return self.model_dump_json(exclude_defaults=True)


def _about(rule: FieldRule) -> str:
    shown = "date, as YYYY-MM-DD" if rule.type == "date" else rule.type
    kind = "" if rule.type == "any" else f" ({shown})"
    return kind + (f": {rule.description}" if rule.description else "")


def compare_field(gold: Any, value: Any, rule: FieldRule) -> str:
    """Returns how a field differs from its ground truth, in words; nothing where it is right."""
    return "" if _equal(gold, value, rule) else f"{_shown(value)} is not {_shown(gold)}"


def _equal(gold: Any, value: Any, rule: FieldRule) -> bool:
    if gold is None or value is None:
        return gold is value
    if isinstance(gold, bool) or isinstance(value, bool):
        return _as_bool(gold) is _as_bool(value) is not None
    if isinstance(gold, list):
        return isinstance(value, list) and _equal_lists(gold, value, rule)
    if isinstance(gold, dict):
        return isinstance(value, dict) and (
            gold.keys() == value.keys() and all(_equal(gold[k], value[k], rule) for k in gold)
        )
    if isinstance(value, list | dict):
        return False
    if rule.type == "date" and (day := as_date(gold)) and (given := as_date(value)):
        return day == given
    if rule.type not in ("text", "date"):
        one, other = _number(gold), _number(value)
        if one is not None and other is not None:
            return abs(one - other) <= _allowed(one, rule.tolerance)
        if not (isinstance(gold, str) and isinstance(value, str)):
            return False
    normal = Normalisation(rule.case or "keep", rule.accents or "keep", rule.punctuation or "keep")
    return normal.apply(str(gold)) == normal.apply(str(value))


def _equal_lists(gold: list[Any], value: list[Any], rule: FieldRule) -> bool:
    if len(gold) != len(value):
        return False
    if rule.order != "ignore":
        return all(_equal(a, b, rule) for a, b in zip(gold, value, strict=True))
    left = list(value)
    for one in gold:
        at = next((i for i, other in enumerate(left) if _equal(one, other, rule)), None)
        if at is None:
            return False
        del left[at]
    return True


def _as_bool(value: Any) -> bool | None:
    """Returns a truth value, also one written as text; None for what is none."""
    if isinstance(value, bool):
        return value
    text = value.strip().casefold() if isinstance(value, str) else ""
    return {"true": True, "false": False}.get(text)


def _number(value: Any) -> Decimal | None:
    """Returns a number, also one written as text; None for what is none.

    A text with leading zeros is a code, no number.
    """
    text = str(value).strip()
    if isinstance(value, str) and (not NUMBER.match(text) or re.match(r"[-+]?0\d", text)):
        return None
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() and abs(number.adjusted()) < 1000 else None


def _allowed(gold: Decimal, tolerance: str | None) -> Decimal:
    if tolerance is None:
        return Decimal(0)
    if tolerance.endswith("%"):
        return abs(gold) * Decimal(tolerance[:-1]) / 100
    return Decimal(tolerance)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= 60 else text[:59] + "…"


def read_rules(options: str, hint: str) -> tuple[FieldRules, str]:
    """Returns the rules that options stand for, and what a score depends on of them.

    Options are a JSON object, the name of a TOML file, or `tolerance=0.01,case=ignore`. Raises
    DomainError.
    """
    try:
        if options.lstrip().startswith("{"):
            rules = FieldRules(**json.loads(options))
        elif "=" not in options or Path(options).is_file():
            rules = _from_file(Path(options), hint)
        else:
            rules = _from_words(options, hint)
    except ValidationError as error:
        raise DomainError(f"json: {first_error(error)}", hint=hint) from None
    except (ValueError, RecursionError) as error:
        raise DomainError(f"json: {error}", hint=hint) from None
    if rules == FieldRules():
        return rules, ""
    return rules, digest(["json", json.loads(rules.as_options())]).hex()[:16]


def _from_words(options: str, hint: str) -> FieldRules:
    parts = [part.strip() for part in options.split(",")]
    tolerances = [p.partition("=")[2].strip() for p in parts if p.partition("=")[0] == "tolerance"]
    others = [part for part in parts if part.partition("=")[0] != "tolerance"]
    read = read_options("json", ",".join(others), {**CHOICES, "tolerance": ("0.01", "1%")})
    if tolerances:
        read["tolerance"] = tolerances[-1]
    return FieldRules(**read)


def _from_file(path: Path, hint: str) -> FieldRules:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        schema = table.pop("schema", None)
        if isinstance(schema, str):
            schema = json.loads((path.parent / schema).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise DomainError(f"{error.filename or path}: {error.strerror}", hint=hint) from None
    rules = FieldRules(**table, json_schema=schema)
    if schema is not None:
        import jsonschema

        try:
            jsonschema.Draft202012Validator.check_schema(schema)
        except jsonschema.SchemaError as error:
            raise DomainError(f"{path}: schema: {error.message}", hint=hint) from None
    return rules
