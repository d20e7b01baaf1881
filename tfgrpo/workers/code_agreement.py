"""What a worker and a driver have to have in common, told by digests: code, prompts and domain. A
worker that has another one for a run leaves its groups alone and says which part differs."""

from __future__ import annotations

import hashlib
import importlib
import inspect
from collections.abc import Iterator
from dataclasses import fields
from functools import cache, partial
from pathlib import Path
from types import ModuleType

from tfgrpo.domains.base import Domain
from tfgrpo.runs.run_problems import PROMPTS
from tfgrpo.store.activity.runs import Run
from tfgrpo.store.canonical import digest

ROOMS = (
    "agents",
    "data",
    "domains",
    "model",
    "rendering",
    "rollout",
    "tools",
    "learn",
    "runs",
    "costs",
    "prompts",
)
"""The rooms of the package that a group passes through."""


def digests(run: Run, domain: Domain, prompts: Path | None) -> dict[str, str]:
    """The digests that a run's groups need, by words for them. Raises TemplateError."""
    parts = {
        "settings": run.digest,
        "code of tfgrpo": code_digest(),
        f"domain {domain.name}": domain_digest(domain),
    }
    for name in PROMPTS:
        parts[f"prompt {name}"] = domain.template(name, prompts).digest
    return {part: value[:16] for part, value in parts.items()}


def difference(wanted: dict[str, str], here: dict[str, str]) -> str | None:
    """What differs here from what is wanted, in words; None where nothing does."""
    names = [name for name in wanted if here.get(name) != wanted[name]]
    names += [name for name in here if name not in wanted]
    return f"differs here: {', '.join(names)}" if names else None


@cache
def code_digest() -> str:
    """The digest of the code and the prompts that make groups."""
    files: list[tuple[str, str]] = []
    for room in ROOMS:
        module = importlib.import_module(f"tfgrpo.{room}")
        for folder in map(Path, module.__path__):
            kinds = ("*.py", "*.md", "*.toml")
            for path in sorted(path for kind in kinds for path in folder.rglob(kind)):
                name = f"{room}/{path.relative_to(folder).as_posix()}"
                files.append((name, hashlib.sha256(path.read_bytes()).hexdigest()))
    return digest(["tfgrpo.code", sorted(set(files))]).hex()


def domain_digest(domain: Domain) -> str:
    """The digest of a domain: what it says it depends on, and the files of its code."""
    files = {path.name: path.read_bytes() for path in _sources(domain)}
    sources = sorted((name, hashlib.sha256(text).hexdigest()) for name, text in files.items())
    return digest(["tfgrpo.domain", domain.name, domain.identity, sources]).hex()


def _sources(domain: Domain) -> Iterator[Path]:
    """Yields the files of a domain's functions, those of tfgrpo apart."""
    for one in fields(domain):
        value = getattr(domain, one.name)
        while isinstance(value, partial):
            value = value.func
        if not callable(value):
            continue
        module: ModuleType | None = inspect.getmodule(value) or inspect.getmodule(type(value))
        if module is None or module.__name__.partition(".")[0] in ("tfgrpo", "builtins"):
            continue
        if path := getattr(module, "__file__", None):
            yield Path(path)
