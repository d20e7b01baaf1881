"""JSON: an object whose fields are compared one by one. `--domain json`

json                          the fields of the ground truths, which go into the run's record
json:tolerance=0.01           the same, with numbers equal to within 0.01
json:fields.toml              fields with rules of their own, and a JSON Schema

The reward is the weighted share of the fields that are right, and each one's result is kept with
the rollout and shown to the reflection model. An answer that breaks the schema earns nothing.
Objects within the object are taken apart (`address.city`); a list is right or wrong as a whole.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import partial
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from tfgrpo.data import datasets
from tfgrpo.data.cell_types import as_date
from tfgrpo.data.problems import MISSING, Problem, field_of, leaves
from tfgrpo.domains.answer_reading import NoAnswer
from tfgrpo.domains.base import Domain, DomainInvalid, Verdict, problem_messages
from tfgrpo.domains.domain_options import read_options
from tfgrpo.domains.exact import Normalisation
from tfgrpo.domains.few_answers import CODES
from tfgrpo.domains.json_reading import last_json, parse_json
from tfgrpo.domains.mathematics.extract import without_unseen
from tfgrpo.domains.mathematics.lists import matched
from tfgrpo.model.settings import first_error
from tfgrpo.rendering.prompt_templates import Message, Template
from tfgrpo.store.canonical import digest
from tfgrpo.store.records import Library
from tfgrpo.toml_text import parsed

AGENT_OBJECTIVE = "Extract what the fields ask for. Answer with one JSON object and nothing else."
LEARNING_OBJECTIVE = "Rules for finding the values of the fields and writing them as expected."
SHORT = 4000
"""Characters of a response that takes no time to be judged, whatever is in it."""
MOST = len(CODES)
"""Objects that can be told apart by a letter each."""
HINT = "write json, json:tolerance=0.01,case=ignore or json:fields.toml"
TOLERANCE = re.compile(r"\d+(?:\.\d+)?%?\Z")
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d{1,3})?\Z", re.ASCII)
CHOICES = {
    **dict.fromkeys(("case", "accents", "punctuation", "order"), ("keep", "ignore")),
    "extra": ("ignore", "wrong"),
    "tolerance": (),
}


class Comparing(BaseModel):
    """What a rule for one field and the rules for all have in common. `tolerance` is how far a
    number may be off: `0.01`, or `1%` of the ground truth."""

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
    `json_schema` is a JSON Schema that an answer has to keep to; in a file it is called
    `schema`."""

    fields: dict[str, FieldRule] = {}
    extra: Literal["ignore", "wrong"] = "ignore"
    json_schema: dict[str, Any] | None = None

    def rule(self, name: str) -> FieldRule:
        """Returns how a field is compared."""
        rule = self.fields.get(name, FieldRule())
        ours = {k: getattr(self, k) for k in Comparing.model_fields if getattr(rule, k) is None}
        return rule.model_copy(update=ours)

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
    return matched(gold, value, lambda one, other: _equal(one, other, rule))


def _as_bool(value: Any) -> bool | None:
    """Returns a truth value, also one written as text; None for what is none."""
    if isinstance(value, bool):
        return value
    text = value.strip().casefold() if isinstance(value, str) else ""
    return {"true": True, "false": False}.get(text)


def _number(value: Any) -> Decimal | None:
    """Returns a number, also one written as text; None for what is none. A text with leading zeros
    is a code, no number."""
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


def read_rules(options: str) -> tuple[FieldRules, str]:
    """Returns the rules that options stand for, and what a score depends on of them. Options are a
    JSON object, the name of a TOML file, or `tolerance=0.01,case=ignore`. Raises DomainError."""
    try:
        if options.lstrip().startswith("{"):
            rules = FieldRules(**json.loads(options))
        elif "=" not in options or os.path.isfile(options):
            rules = _from_file(Path(options))
        else:
            rules = FieldRules(**read_options("json", options, CHOICES))
    except ValidationError as error:
        raise DomainInvalid(f"json: {first_error(error, FieldRules)}", hint=HINT) from None
    except (ValueError, RecursionError) as error:
        raise DomainInvalid(f"json: {error}", hint=HINT) from None
    if rules == FieldRules():
        return rules, ""
    return rules, digest(["json", json.loads(rules.as_options())]).hex()[:16]


def _from_file(path: Path) -> FieldRules:
    try:
        table = parsed(path.read_bytes())
        schema = table.pop("schema", None)
        if isinstance(schema, str):
            schema = json.loads((path.parent / schema).read_text(encoding="utf-8-sig"))
        if "json_schema" in table:
            raise ValueError("json_schema is called schema in a file")
        rules = FieldRules(**table, json_schema=schema)
    except OSError as error:
        raise DomainInvalid(f"{error.filename or path}: {error.strerror}", hint=HINT) from None
    except ValueError as error:
        why = first_error(error, FieldRules) if isinstance(error, ValidationError) else error
        raise ValueError(f"{path}: {why}") from None
    if schema is not None:
        import jsonschema

        try:
            jsonschema.Draft202012Validator.check_schema(schema)
        except jsonschema.SchemaError as error:
            raise DomainInvalid(f"{path}: schema: {error.message}", hint=HINT) from None
    return rules


def verify(problem: Problem, response: str, rules: FieldRules) -> Verdict:
    """Judges a response: the weighted share of right fields. Raises nothing."""
    golds = []
    for text in problem.ground_truths:
        try:
            golds.append(parse_json(without_unseen(text)))
        except ValueError as error:
            return Verdict(None, None, f"unverifiable: the ground truth is no JSON: {error}")
    answer = last_json(response)
    if isinstance(answer, NoAnswer):
        return Verdict(0.0, None, answer.reason)
    value, place = answer
    verdicts = [_judge(gold, value, place, rules) for gold in golds]
    return max(verdicts, key=lambda verdict: verdict.reward or 0.0)


def read(problem: Problem, response: str) -> Any:
    """Returns the JSON that a response gives, whatever the problem; None where it gives none."""
    answer = last_json(response)
    return None if isinstance(answer, NoAnswer) else answer[0]


def at_once(problem: Problem, response: str, rules: FieldRules) -> Verdict | None:
    """Returns what `verify` would for a short response, unless a schema may search for ever."""
    if len(response) > SHORT or rules.searches:
        return None
    return verify(problem, response, rules)


def _judge(gold: Any, value: Any, place: str, rules: FieldRules) -> Verdict:
    normal = json.dumps(value, sort_keys=True, ensure_ascii=False)
    broken = rules.schema_error(value)
    if not isinstance(gold, dict):
        why = compare_field(gold, value, rules.rule(""))
        return Verdict(float(not why), normal, f"{place}: {why or 'equal'}")
    if not isinstance(value, dict):
        return Verdict(0.0, normal, f"{place}: not an object")
    have, names = dict(leaves(value)), list(rules.fields or dict(leaves(gold)))
    results = {
        name: compare_field(_value(gold, name), _value(value, name), rules.rule(name))
        for name in names
        if not (_value(gold, name) and any(one.startswith(f"{name}.") for one in names))
    }
    if rules.extra == "wrong":
        known = tuple(results)
        for name in have:
            if not any(name == k or name.startswith(f"{k}.") for k in known):
                results[name] = "not asked for"
    whole = sum(rules.rule(name).weight for name in results)
    right = sum(rules.rule(name).weight for name, why in results.items() if not why)
    details = {name: why or "right" for name, why in results.items()}
    if broken:
        return Verdict(0.0, normal, f"schema: {broken}", details)
    missed = [f"{name}: {why}" for name, why in results.items() if why]
    if not missed:
        return Verdict(1.0, normal, f"{place}: {len(results)} of {len(results)} fields", details)
    counts = f"{len(results) - len(missed)} of {len(results)} fields"
    summary = f"{place}: {counts}; " + "; ".join(missed)
    return Verdict(right / whole, normal, summary[:400], details)


def _value(value: Any, name: str) -> Any:
    there = field_of(value, name)
    return None if there is MISSING else there


def check(problem: Problem) -> str | None:
    """Returns what is wrong with the ground truth, or None."""
    for text in problem.ground_truths:
        try:
            parse_json(text)
        except ValueError as error:
            return f"it is no JSON: {error}"
    return None


def load(source: str, fields: Mapping[str, str]) -> tuple[Problem, ...]:
    """Returns the problems of a dataset, whose answers may be objects or JSON as text."""
    return datasets.load(source, fields, as_json=True)


def render(
    template: Template, library: Library, problem: Problem, agent_objective: str, rules: FieldRules
) -> tuple[Message, ...]:
    """Returns the messages of a rollout: the fields follow the objective."""
    description = rules.told()
    objective = f"{agent_objective}\n\n{description}" if description else agent_objective
    return problem_messages(template, library, problem, objective)


def answers(problem: Problem, rules: FieldRules) -> tuple[str, ...]:
    """Returns every object that an answer can be, where each of its fields has few values: an enum
    of the schema, or true and false; nothing where there are more than `MOST` of them."""
    names = list(rules.fields) or list(rules.properties)
    values = [rules.values(name) for name in names]
    if not names or prod(map(len, values)) > MOST:
        return ()
    objects = (dict(zip(names, one, strict=True)) for one in product(*values))
    return tuple(json.dumps(one, sort_keys=True, ensure_ascii=False) for one in objects)


def fields_in(problems: Sequence[Problem], rules: FieldRules) -> str:
    """Returns the rules as the domain's options, with the fields that ground truths have where
    none are named. A record with them needs no file."""
    if rules.fields:
        return rules.as_options()
    types: dict[str, set[str]] = {}
    for problem in problems:
        for text in problem.ground_truths:
            try:
                gold = parse_json(text)
            except ValueError:
                continue  # named when the data is checked
            for name, value in leaves(gold) if isinstance(gold, dict) else ():
                types.setdefault(name, set()).add(_type(value))
    fields = {}
    for name, seen in types.items():
        known = sorted(seen - {"null"})
        fields[name] = FieldRule.model_validate({"type": known[0] if len(known) == 1 else "any"})
    return rules.model_copy(update={"fields": fields}).as_options()


def _type(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "date" if as_date(value) == value else "text"
    return "list" if isinstance(value, list) else "any"


def with_options(options: str) -> Domain:
    """Returns the domain under rules: options, a TOML file, or the rules themselves as JSON. Raises
    DomainError."""
    return _domain(*read_rules(options))


def _domain(rules: FieldRules, identity: str = "") -> Domain:
    return Domain(
        name="json",
        verify=partial(verify, rules=rules),
        at_once=partial(at_once, rules=rules),
        check=check,
        load=load,
        render=partial(render, rules=rules),
        agent_objective=AGENT_OBJECTIVE,
        learning_objective=LEARNING_OBJECTIVE,
        identity=identity,
        configure=with_options,
        options_from=partial(fields_in, rules=rules),
        answers=partial(answers, rules=rules),
        read=read,
    )


DOMAIN = _domain(FieldRules())
