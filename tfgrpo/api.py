"""What `import tfgrpo` offers, loaded when it is used."""

from __future__ import annotations

from pathlib import Path

from tfgrpo import domains
from tfgrpo.render import AGENT_OBJECTIVE, Library
from tfgrpo.store.find import project_root
from tfgrpo.store.revisions import run_of_history
from tfgrpo.store.store import Store


def read_library(revision: str, path: Path | str | None) -> Library:
    """Returns the library at a revision, with the objective and prompts it was trained with.

    In a clone, which has no records of training, with ours.
    """
    with Store.open(path) as store:
        version = store.resolve(revision)
        name = run_of_history(store, version)
        run = store.runs.find(name) if name is not None else None  # a clone has no runs
        config = run.config if run is not None else {}
        root = project_root(store.path)
        named = config.get("domain")
        return Library(
            store.library(version),
            agent_objective=str(config.get("agent_objective", AGENT_OBJECTIVE)),
            prompts=root / config["prompts"] if config.get("prompts") else None,
            domain=domains.find(named, (root,)) if named else None,
        )
