"""A redaction with everything around the store: the record of traffic and the files beside it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tfgrpo.editing import ENDINGS, SNAPSHOT, write_library
from tfgrpo.evaluation import bisect_judges
from tfgrpo.store import redact as redactions
from tfgrpo.store.redact import Redacted, RedactionPlan, Target
from tfgrpo.store.store import Store
from tfgrpo.store.traffic import redact_traffic


class RedactedEverywhere(NamedTuple):
    """What was done in the store, in how many rows of the record of traffic, which files were
    written anew, and which still hold the text."""

    store: Redacted
    traffic: int
    rewritten: Sequence[Path]
    left: Sequence[Path]


def redact_everywhere(
    store: Store, target: Target, *, reason: str, replacement: str | None = None
) -> RedactedEverywhere:
    """Takes a text out of the store, the record of traffic and the files beside the store.

    Raises what `store.redact.redact` does, with nothing recorded.
    """
    done = redactions.redact(store, target, reason=reason, replacement=replacement)
    written = done.plan.written
    calls = redact_traffic(store.file, written) if written else 0
    rewritten = _rewrite_files(store, done.plan)
    return RedactedEverywhere(done, calls, rewritten, redactions.copies(store, written))


def _rewrite_files(store: Store, plan: RedactionPlan) -> list[Path]:
    """Writes the library's files beside the store again, those that are there."""
    written = []
    for format_, ending in ENDINGS.items():
        path = store.path.parent / f"{SNAPSHOT}.{ending}"
        if path.is_file() and (plan.live or redactions.copies(store, plan.written)):
            write_library(store, format_, str(path))
            written.append(path)
    return [*written, *bisect_judges.rewrite(store, trial_folder(store))]


def trial_folder(store: Store) -> Path:
    """Returns where `tfgrpo bisect` writes the libraries that it tries, as seen from here."""
    return Path(os.path.relpath(store.path.parent / "bisect"))
