"""Which collected problems attempts can be judged at: a person's correction may be no answer that
the domain can read."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tfgrpo.domains.registry import with_data
from tfgrpo.domains.verifier import describe_objection, objections
from tfgrpo.improvement.collection import Row, write_rows
from tfgrpo.improvement.improvement_record import mapped
from tfgrpo.learn.run_setup import check_settings
from tfgrpo.project import Project
from tfgrpo.store.store import Store
from tfgrpo.wording import plural

NAMED = 8
"""How many of the problems that are left out are named."""


class Sorted(NamedTuple):
    """Rows that attempts can be judged at, and what is said of the others; empty without any."""

    rows: list[Row]
    left_out: str = ""


def sort_rows(
    store: Store,
    project: Project,
    given: Mapping[str, Any],
    rows: Sequence[Row],
    fields: Mapping[str, str],
) -> Sorted:
    """Returns the rows that attempts of a training by these settings can be judged at. `fields`
    maps our names to the data's. Runs an event loop of its own. Raises TfgrpoError."""
    with tempfile.TemporaryDirectory(prefix="tfgrpo-") as folder:
        path = Path(folder) / "collected.jsonl"
        write_rows(path, mapped(rows, fields))
        wrong, _ = unjudgeable(store, project, given, str(path))
    good = [row for row in rows if str(row["id"]) not in wrong]
    if not wrong:
        return Sorted(good)
    some = ", ".join(list(wrong)[:NAMED]) + (", …" if len(wrong) > NAMED else "")
    why = next(iter(wrong.values()))
    out = plural(len(rows) - len(good), "collected problem")
    return Sorted(good, f"{out} left out, as attempts cannot be judged: {some} ({why})")


def unjudgeable(
    store: Store, project: Project, given: Mapping[str, Any], data: str
) -> tuple[dict[str, str], int]:
    """Returns the ids of the problems in a dataset that attempts cannot be judged at, with the
    reason of each, and how many problems it has. Runs an event loop of its own. Raises
    TfgrpoError."""
    settings, _, domain, *_ = check_settings(store, project, given)
    problems = domain.problems(data, settings.fields)
    domain, _ = with_data(project.by_agent(domain, settings), settings.domain, problems)
    wrong = {one.id: describe_objection(one, why) for one, why in objections(problems, domain)}
    return wrong, len(problems)
