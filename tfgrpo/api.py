"""What `import tfgrpo` offers, loaded when it is used."""

from __future__ import annotations

from pathlib import Path

from tfgrpo import domains
from tfgrpo.domains.prompt_library import PromptLibrary
from tfgrpo.rendering.render import AGENT_OBJECTIVE
from tfgrpo.store.find import project_root
from tfgrpo.store.history import first_parents
from tfgrpo.store.records import Json, Version
from tfgrpo.store.store import Store


def read_library(revision: str, path: Path | str | None) -> PromptLibrary:
    """Returns the library at a revision, with the objective and prompts it was trained with."""
    with Store.open(path) as store:
        version = store.resolve(revision)
        config = trained_with(store, version)
        root = project_root(store.path)
        named = config.get("domain")
        return PromptLibrary(
            store.library(version),
            agent_objective=str(config.get("agent_objective", AGENT_OBJECTIVE)),
            prompts=root / config["prompts"] if config.get("prompts") else None,
            domain=domains.find(named, (root,)) if named else None,
        )


def trained_with(store: Store, version: Version) -> Json:
    """Returns the settings of the run that a version's history comes from; {} when there is none.

    Where the run was recorded they are all there. In a clone, which has no records of runs, they
    are what the version itself says of how its library is rendered: `domain` and
    `agent_objective`, where they are not the usual ones.
    """
    for ancestor in first_parents(store, version):
        name = ancestor.meta.get("run")
        if isinstance(name, str):
            run = store.runs.find(name)
            rendering = ancestor.meta.get("rendering")
            if run is not None:
                return run.config
            return rendering if isinstance(rendering, dict) else {}
    return {}
