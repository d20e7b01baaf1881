"""Domains: what can be learned. Everything that a domain of your own needs is imported from here.

    from tfgrpo.domains import Domain, Verdict

Names are loaded when they are used, so that looking at a library stays fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfgrpo.data.problems import Problem as Problem
    from tfgrpo.data.readers import DatasetError as DatasetError
    from tfgrpo.domains.base import Context as Context
    from tfgrpo.domains.base import Domain as Domain
    from tfgrpo.domains.base import DomainError as DomainError
    from tfgrpo.domains.base import Sampling as Sampling
    from tfgrpo.domains.base import Trajectory as Trajectory
    from tfgrpo.domains.base import Verdict as Verdict
    from tfgrpo.domains.base import answer_once as answer_once
    from tfgrpo.domains.base import problem_messages as problem_messages
    from tfgrpo.domains.conversation import converse as converse
    from tfgrpo.domains.prompt_library import PromptLibrary as PromptLibrary
    from tfgrpo.domains.registry import DEFAULT as DEFAULT
    from tfgrpo.domains.registry import GROUP as GROUP
    from tfgrpo.domains.registry import find as find
    from tfgrpo.domains.registry import names as names
    from tfgrpo.domains.verifier import Killed as Killed
    from tfgrpo.model.endpoint import CallFailed as CallFailed
    from tfgrpo.model.endpoint import Request as Request

HOMES = {
    "tfgrpo.data.problems": "Problem",
    "tfgrpo.data.readers": "DatasetError",
    "tfgrpo.domains.base": "Context Domain DomainError Sampling Trajectory Verdict answer_once "
    "problem_messages",
    "tfgrpo.domains.conversation": "converse",
    "tfgrpo.domains.registry": "DEFAULT GROUP find names",
    "tfgrpo.domains.prompt_library": "PromptLibrary",
    "tfgrpo.domains.verifier": "Killed",
    "tfgrpo.model.endpoint": "CallFailed Request",
}
"""Where each name is defined."""
OFFERED = {name: module for module, names in HOMES.items() for name in names.split()}
__all__ = sorted(OFFERED)


def __getattr__(name: str) -> Any:
    if name not in OFFERED:
        raise AttributeError(f"module 'tfgrpo.domains' has no attribute {name!r}")
    return getattr(import_module(OFFERED[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *OFFERED})
