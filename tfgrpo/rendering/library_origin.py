"""Where a library comes from: the settings of the run that made it, as rendering needs them."""

from __future__ import annotations

from tfgrpo.store.history.walks import first_parents
from tfgrpo.store.records import Json, Version
from tfgrpo.store.store import Store


def trained_with(store: Store, version: Version) -> Json:
    """The settings of the run that a version's history comes from: all on record, or `domain`,
    `agent_objective` and `top_k` as a clone's version has them; {} for none."""
    for ancestor in first_parents(store, version):
        name = ancestor.meta.get("run")
        if isinstance(name, str):
            run = store.runs.find(name)
            rendering = ancestor.meta.get("rendering")
            if run is not None:
                return run.config
            return rendering if isinstance(rendering, dict) else {}
    return {}


def shown_in_training(config: Json) -> int | None:
    """How many experiences a problem's prompt had in the run with these settings; None for all
    of them, and for a number that is none, as somebody else's store may have it."""
    most = config.get("top_k")
    return most if isinstance(most, int) and not isinstance(most, bool) and most > 0 else None
