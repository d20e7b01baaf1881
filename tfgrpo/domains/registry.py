"""Domains by name: ours, those that packages install, and anything that can be imported.

    math                      one of ours, or of an entry point in the group tfgrpo.domains
    math:digits=4             the same with options, for a domain that has some
    rubric:style.toml         the same with an argument, for a domain that is made from one
    my_module:DOMAIN          an object in a module of yours
    math+reward=my_module:f   any of these with a part from elsewhere (docs/extending.md)

An object is a `Domain`, or a function from one string to a `Domain`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from tfgrpo.data.problems import Problem
from tfgrpo.domains.base import Domain, DomainInvalid, load_named
from tfgrpo.domains.function import rewarded
from tfgrpo.model.caller_functions import identity
from tfgrpo.trust.permissions import PARTS, parts, split
from tfgrpo.wording import did_you_mean

BUILT_IN = {
    "choice": "tfgrpo.domains.choice:DOMAIN",
    "exact": "tfgrpo.domains.exact:DOMAIN",
    "json": "tfgrpo.domains.json_fields:DOMAIN",
    "judge": "tfgrpo.domains.judge:make_domain",
    "math": "tfgrpo.domains.math:DOMAIN",
    "rubric": "tfgrpo.domains.rubric:make_domain",
    "web": "tfgrpo.domains.web:DOMAIN",
}


DEFAULT = "math"
GROUP = "tfgrpo.domains"


def names() -> dict[str, str]:
    """Returns the domains there are by name, and where each is: ours win."""
    return dict(sorted((_offered(GROUP) | BUILT_IN).items()))


def _offered(group: str) -> dict[str, str]:
    """Returns what every installed package offers: hundredths of a second for hundreds of them."""
    return {point.name: point.value for point in entry_points(group=group)}


def find(spec: str = DEFAULT, folders: Sequence[Path] = ()) -> Domain:
    """Returns the domain that a name stands for. `folders` are where modules of the user's are
    looked for beside `sys.path` (`base.load_named`). Raises DomainError."""
    spec, written = split(spec)
    return _with_parts(_find(spec, folders), parts(written), folders)


def _find(spec: str, folders: Sequence[Path]) -> Domain:
    name, colon, argument = spec.partition(":")
    known = names()
    base, plus, part = name.partition("+")
    if plus and "=" in part:
        part, hint = part.partition("=")[0], f"there is {', '.join(PARTS)}"
        raise DomainInvalid(
            f"{base} has no part {part!r}{did_you_mean(part, PARTS, '; ')}", hint=hint
        )
    if name in known:
        domain = load_named(known[name], f"the domain {spec}", DomainInvalid)
    elif colon:
        domain, argument = load_named(spec, f"the domain {spec}", DomainInvalid, folders), ""
    else:
        hint = f"there is {', '.join(known)}, or give an object as package.module:object"
        raise DomainInvalid(
            f"there is no domain {name!r}{did_you_mean(name, known, '; ')}", hint=hint
        )
    if not isinstance(domain, Domain) and callable(domain):
        if not argument:
            raise DomainInvalid(f"domain {name} needs an argument", hint=f"write {name}:ARGUMENT")
        domain = domain(argument)
    elif argument and isinstance(domain, Domain) and domain.configure is not None:
        return domain.configure(argument)
    elif argument:
        raise DomainInvalid(f"domain {name} takes no argument", hint=f"write {name}")
    if not isinstance(domain, Domain):
        raise DomainInvalid(
            f"{spec} is a {type(domain).__name__}, not a domain",
            hint="see docs/domains.md for how to write one",
        )
    return domain


def _with_parts(domain: Domain, places: Mapping[str, str], folders: Sequence[Path] = ()) -> Domain:
    functions: dict[str, Any] = {}
    for part, place in places.items():
        offered = _offered(PARTS[part])
        if ":" not in place and place not in offered:
            listed = f"there is {', '.join(sorted(offered))}" if offered else "none is installed"
            hint = f"{listed}, or write {part}=module:name"
            raise DomainInvalid(
                f"there is no {part} {place!r}{did_you_mean(place, offered, '; ')}", hint=hint
            )
        known = offered.get(place, place)
        function = load_named(known, f"the {part} {place}", DomainInvalid, folders)
        if not callable(function):
            raise DomainInvalid(
                f"the {part} {place} is a {type(function).__name__}, not a function",
                hint="see docs/extending.md for what each part is",
            )
        functions[part] = function
    if not functions:
        return domain
    own, reward = identity(*functions.values()), functions.pop("reward", None)
    domain = replace(domain, **functions)
    domain = rewarded(domain, reward) if reward else domain
    return replace(domain, identity=f"{domain.identity} {own}".strip())


def with_data(domain: Domain, spec: str, problems: Sequence[Problem]) -> tuple[Domain, str]:
    """Returns a domain with the options that it reads off the data or a file, and the name of it
    that holds them. It is the same domain and name where it has none of these. Raises
    DomainError."""
    if domain.options_from is None or domain.configure is None:
        return domain, spec
    options = domain.options_from(problems)
    base, written = split(spec)
    if not options:
        return domain, spec
    configured = _with_parts(domain.configure(options), parts(written))
    return configured, f"{base.partition(':')[0]}:{options}{written}"
