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
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from math import prod
from typing import Any

from tfgrpo.data import datasets
from tfgrpo.data.cell_types import as_date
from tfgrpo.data.problems import Problem
from tfgrpo.domains.answer_reading import NoAnswer, last_json, parse_json
from tfgrpo.domains.base import Domain, Verdict, problem_messages
from tfgrpo.domains.few_answers import CODES
from tfgrpo.domains.field_rules import FieldRule, FieldRules, compare_field, read_rules
from tfgrpo.rendering.prompt_templates import Message, Template
from tfgrpo.store.records import Library

AGENT_OBJECTIVE = "Extract what the fields ask for. Answer with one JSON object and nothing else."
LEARNING_OBJECTIVE = "Rules for finding the values of the fields and writing them as expected."
SHORT = 4000
"""Characters of a response that takes no time to be judged, whatever is in it."""
MOST = len(CODES)
"""Objects that can be told apart by a letter each."""
HINT = "write json, json:tolerance=0.01,case=ignore or json:fields.toml"


def verify(problem: Problem, response: str, rules: FieldRules) -> Verdict:
    """Judges a response: the weighted share of right fields. Raises nothing."""
    golds = []
    for text in problem.ground_truths:
        try:
            golds.append(parse_json(text))
        except ValueError as error:
            return Verdict(None, None, f"unverifiable: the ground truth is no JSON: {error}")
    answer = last_json(response)
    if isinstance(answer, NoAnswer):
        return Verdict(0.0, None, answer.reason)
    value, place = answer
    verdicts = [_judge(gold, value, place, rules) for gold in golds]
    return max(verdicts, key=lambda verdict: verdict.reward or 0.0)


def read(response: str) -> Any:
    """Returns the JSON that a response gives; None where it gives none."""
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
    want, have = dict(leaves(gold)), dict(leaves(value))
    results = {
        name: compare_field(want.get(name), _value(value, name), rules.rule(name))
        for name in rules.scored(want)
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


def leaves(value: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the fields of an object by name, those of objects within it as `outer.inner`."""
    for key, one in value.items():
        name = f"{before}{key}"
        if isinstance(one, dict) and one:
            yield from leaves(one, f"{name}.")
        else:
            yield name, one


def _value(value: Any, name: str) -> Any:
    """Returns a field of an object by its name, `a.b` being the field b of a; None if not there."""
    if not isinstance(value, dict):
        return None
    if name in value:
        return value[name]
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        within = value.get(".".join(parts[:cut]))
        if isinstance(within, dict):
            return _value(within, ".".join(parts[cut:]))
    return None


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
    """Returns the domain under rules: options, a TOML file, or the rules themselves as JSON.

    Raises DomainError.
    """
    rules, identity = read_rules(options, HINT)
    return _domain(rules, identity)


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
