"""Domains by name: ours, those that packages install, and anything that can be imported.

    math                      one of ours, or of an entry point in the group tfgrpo.domains
    math:digits=4             the same with options, for a domain that has some
    rubric:style.toml         the same with an argument, for a domain that is made from one
    my_module:DOMAIN          an object in a module of yours

An object is a `Domain`, or a function from one string to a `Domain`.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path

from tfgrpo.data.problems import Problem
from tfgrpo.domains.base import Domain, DomainError

DEFAULT = "math"
GROUP = "tfgrpo.domains"
BUILT_IN = {
    "choice": "tfgrpo.domains.choice:DOMAIN",
    "exact": "tfgrpo.domains.exact:DOMAIN",
    "json": "tfgrpo.domains.json_fields:DOMAIN",
    "judge": "tfgrpo.domains.judge:make_domain",
    "math": "tfgrpo.domains.math:DOMAIN",
    "rubric": "tfgrpo.domains.rubric:make_domain",
    "web": "tfgrpo.domains.web:DOMAIN",
}


def names() -> dict[str, str]:
    """Returns the domains there are by name, and where each is: ours win."""
    return dict(sorted((_installed(tuple(map(_folder, sys.path))) | BUILT_IN).items()))


@lru_cache(maxsize=1)
def _installed(folders: tuple[tuple[str, int], ...]) -> dict[str, str]:
    """Reads what every installed package offers, as long as the folders are the same: there are
    hundreds, and a command asks several times."""
    return {point.name: point.value for point in entry_points(group=GROUP)}


def _folder(path: str) -> tuple[str, int]:
    """Returns a folder with when something was last installed there."""
    try:
        return path, os.stat(path or ".").st_mtime_ns
    except OSError:
        return path, 0


def find(spec: str = DEFAULT, folders: Sequence[Path] = ()) -> Domain:
    """Returns the domain that a name stands for.

    `folders` are where modules of the user's are looked for beside `sys.path`, to which they are
    added, as worker processes import from there too. Raises DomainError.
    """
    name, colon, argument = spec.partition(":")
    known = names()
    if name in known:
        domain = _imported(known[name], spec)
    elif colon:
        for folder in map(str, folders):
            if folder not in sys.path:
                sys.path.append(folder)
        domain, argument = _imported(spec, spec), ""
    else:
        near = difflib.get_close_matches(name, known, n=1)
        raise DomainError(
            f"there is no domain {name!r}" + (f"; did you mean {near[0]}?" if near else ""),
            hint=f"there is {', '.join(known)}, or give an object as package.module:object",
        )
    if not isinstance(domain, Domain) and callable(domain):
        if not argument:
            raise DomainError(f"domain {name} needs an argument", hint=f"write {name}:ARGUMENT")
        domain = domain(argument)
    elif argument and isinstance(domain, Domain) and domain.configure is not None:
        return domain.configure(argument)
    elif argument:
        raise DomainError(f"domain {name} takes no argument", hint=f"write {name}")
    if not isinstance(domain, Domain):
        raise DomainError(
            f"{spec} is a {type(domain).__name__}, not a domain",
            hint="see docs/domains.md for how to write one",
        )
    return domain


def with_data(domain: Domain, spec: str, problems: Sequence[Problem]) -> tuple[Domain, str]:
    """Returns a domain with the options that it reads off the data or a file, and the name of it
    that holds them.

    It is the same domain and name where it has none of these. Raises DomainError.
    """
    if domain.options_from is None or domain.configure is None:
        return domain, spec
    options = domain.options_from(problems)
    return domain.configure(options), f"{spec.partition(':')[0]}:{options}"


def _imported(place: str, spec: str) -> object:
    module, _, attribute = place.partition(":")
    try:
        with redirect_stdout(sys.stderr):  # what a module prints is no part of what we print
            target: object = importlib.import_module(module)
        for part in attribute.split("."):
            target = getattr(target, part)
    except DomainError:
        raise
    except (Exception, SystemExit) as error:  # whatever a module of the user's does
        raise DomainError(
            f"cannot load the domain {spec}: {type(error).__name__}: {error}",
            hint="write package.module:object, importable from the current folder",
        ) from None
    return target
