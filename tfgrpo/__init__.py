"""git for what a model has learned: Training-Free GRPO on an event-sourced store.

    import tfgrpo

    result = await tfgrpo.train("problems.jsonl", model="gpt-5-mini", heldout="heldout.jsonl")
    library = tfgrpo.library("step_2")
    messages = library.render("A bike is hired from 5 June to 12 June at 5 euros a day …")

Importing this costs nothing until something is used.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from os import path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfgrpo.agents.function_agent import AgentContext as AgentContext
    from tfgrpo.agents.function_agent import Attempt as Attempt
    from tfgrpo.api import compare as compare
    from tfgrpo.api import compare_sync as compare_sync
    from tfgrpo.api import estimate as estimate
    from tfgrpo.api import estimate_sync as estimate_sync
    from tfgrpo.api import evaluate as evaluate
    from tfgrpo.api import evaluate_sync as evaluate_sync
    from tfgrpo.api import improve as improve
    from tfgrpo.api import improve_sync as improve_sync
    from tfgrpo.api import prove as prove
    from tfgrpo.api import prove_sync as prove_sync
    from tfgrpo.api import train as train
    from tfgrpo.api import train_sync as train_sync
    from tfgrpo.domains import prompt_library

    library = prompt_library.read_library
    live = prompt_library.live
    from tfgrpo.learn.prove import Proof as Proof
    from tfgrpo.learn.run import TrainResult as TrainResult
    from tfgrpo.session import Session as Session
    from tfgrpo.session import open_session as open_session
    from tfgrpo.store import Operation as Operation
    from tfgrpo.store import Store as Store
    from tfgrpo.store import TfgrpoError as TfgrpoError

__version__ = "0.1.0"
CALLS = ("compare", "estimate", "evaluate", "improve", "prove", "train")
HOMES = {
    **{name: "tfgrpo.api" for call in CALLS for name in (call, f"{call}_sync")},
    **dict.fromkeys(("Session", "open_session"), "tfgrpo.session"),
    "Proof": "tfgrpo.learn.prove",
    "TrainResult": "tfgrpo.learn.run",
    **dict.fromkeys(("AgentContext", "Attempt"), "tfgrpo.agents.function_agent"),
    **dict.fromkeys(("Operation", "Store", "TfgrpoError"), "tfgrpo.store"),
    **dict.fromkeys(("library", "live"), "tfgrpo.domains.prompt_library"),
}
"""Where each name is defined; it is loaded when it is first used."""
__all__ = sorted([*HOMES, "__version__"])

BESIDE = ("store", "cli", "migrations")
"""The parts that stand in folders of their own beside this one in a clone."""


class CloneFinder:
    """Finds those parts, and nothing else, where Python starts at the top of a clone."""

    @staticmethod
    def find_spec(name: str, *where: object) -> ModuleSpec | None:
        """Where a part is, for the import system."""
        package, _, part = name.rpartition(".")
        if package != __name__ or part not in BESIDE:
            return None
        return PathFinder.find_spec(name, [path.dirname(path.dirname(__file__))])


if not path.isdir(path.join(path.dirname(__file__), BESIDE[0])):
    sys.meta_path.append(CloneFinder)  # last: what is installed by a link says for itself


def finish_redaction(store: Store) -> None:
    """Finishes what an interrupted redaction has not done: `Store.open` calls this."""
    from tfgrpo.redaction import resume

    resume(store)


def __getattr__(name: str) -> Any:
    if name in HOMES:
        at_home = "read_library" if name == "library" else name
        return getattr(import_module(HOMES[name]), at_home)
    raise AttributeError(f"module 'tfgrpo' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
