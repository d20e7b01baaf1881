"""Versions: their names, counts, evaluations, signatures, and what they moved."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from tfgrpo.store.damaged_values import texts
from tfgrpo.store.history.library_order import ORDER
from tfgrpo.store.history.log_filter import subject
from tfgrpo.store.records import OPS, Version
from tfgrpo.wording import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tfgrpo.store.activity.runs import Evaluation
    from tfgrpo.store.history.library_order import Move
    from tfgrpo.store.store import Store


class StandingNames:
    """The names that stood at each version when this was made; the many tags are read when
    needed."""

    def __init__(self, store: Store) -> None:
        self._port = store.port
        self._upto = store.port.names.last_move()
        self._branches: dict[int, list[str]] = {}
        head = store.head
        for branch, number in store.branches().items():
            name = f"HEAD -> {branch}" if branch == head.branch else branch
            self._branches.setdefault(number, []).append(name)
        if head.branch is None:
            self._branches.setdefault(head.version.number, []).insert(0, "HEAD")
        for there in self._branches.values():
            there.sort(key=lambda name: not name.startswith("HEAD"))

    def __getitem__(self, number: int) -> list[str]:
        marks = self._port.names.marks_at(number, self._upto)
        return self._branches.get(number, []) + [m.partition("/")[2] for m in marks]


def scores(store: Store, version: Version) -> list[str]:
    """A line for each evaluation of a version. Those that are described alike say what tells them
    apart."""
    if not store.evaluated:
        return []
    from tfgrpo.evaluation.statistics import distinctions

    lines: list[str] = []
    alike: dict[tuple[object, ...], list[Mapping[str, Any]]] = {}
    evaluations = store.runs.evaluations(version.number)
    for one in evaluations:
        alike.setdefault(_description(one), []).append(one.config)
    for evaluation in evaluations:
        summary, config = evaluation.summary, evaluation.config
        mean, low, high = summary["mean"]
        line = f"{evaluation.dataset}: mean@{summary['samples']} {mean:.3f}"
        if low is not None:
            line += f" [{low:.3f}, {high:.3f}]"
        line += f", {summary['problems']} problems"
        if summary.get("unscored"):
            line += f" ({plural(summary['unscored'], 'sample')} could not be judged)"
        line += f", {config['model']}, temperature {config['temperature']:g}"
        lines.append(", ".join((line, *distinctions(config, alike[_description(evaluation)]))))
    return lines


def _description(one: Evaluation) -> tuple[object, ...]:
    summary, config = one.summary, one.config
    size = summary["samples"], summary["problems"]
    return one.dataset, *size, config["model"], config["temperature"]


def signed(store: Store, version: Version) -> str:
    """Who signed a version, and the database's user who recorded it, if named otherwise."""
    recorder = store.port.storage.recorder(version.number)
    other = recorder not in (None, version.author)
    return f"{version.author}, recorded by {recorder}" if other else version.author


def recorder_object(store: Store, version: Version) -> dict[str, str]:
    """The same as JSON for programs; empty where the storage does not say."""
    recorder = store.port.storage.recorder(version.number)
    return {} if recorder is None else {"recorded_by": recorder}


def signature_lines(store: Store, version: Version) -> list[str]:
    """A line for each signature of a version, and of each signed tag that means it."""
    from tfgrpo.store.signing import signatures_at

    checked = signatures_at(store, version).items()
    return [f"tag {tag}: {one}" if tag else str(one) for tag, one in checked]


def signature_objects(store: Store, version: Version) -> dict[str, Any]:
    """The same as JSON for programs."""
    from tfgrpo.store.signing import MISSING, Checked, signatures_at

    checked = {"": Checked(None, MISSING)} | signatures_at(store, version)
    objects = {tag: {"state": one.state, "by": one.by} for tag, one in checked.items()}
    return {"signature": objects.pop(""), "signed_tags": objects}


def version_object(store: Store, version: Version, names: StandingNames) -> dict[str, Any]:
    """A version as JSON for programs."""
    from tfgrpo.evaluation.statistics import summary_object

    counts = store.counts(version)
    return {
        "version": version.name,
        "digest": version.digest.hex(),
        "parents": [f"v{p}" for p in version.parents],
        "names": names[version.number],
        "author": version.author,
        **recorder_object(store, version),
        "time": datetime.isoformat(version.when),
        "message": version.message,
        "subject": subject(store, version),
        "counts": {op: counts.get(op, 0) for op in OPS},
        "meta": version.meta,
        "evaluations": [
            {"dataset": e.dataset, **e.config, **summary_object(e.summary)}
            for e in (store.runs.evaluations(version.number) if store.evaluated else ())
        ],
    }


def moves_of(store: Store, version: Version) -> Sequence[Move]:
    """What a version moved, against its first parent; read only if it records an order."""
    if ORDER not in version.meta or version.parent is None:
        return ()
    from tfgrpo.store.history.library_order import moves

    return moves(store, store.version(version.parent), version)


def change_counts(store: Store, version: Version) -> dict[str, int]:
    """A version's events by kind, those that there are, and under MOVE what it moved."""
    counts: dict[str, int] = dict(store.counts(version).items())
    if moved := len(moves_of(store, version)):
        counts["MOVE"] = moved
    return counts


def left_in_place(version: Version) -> Sequence[str]:
    """The experiences that both sides of a merge had moved, and that stayed with ours."""
    return texts(version.meta.get("order_conflicts"))


def move_objects(moves: Iterable[Move]) -> list[dict[str, Any]]:
    """Moves as JSON for programs: labels before and after."""
    return [
        {"experience": one.experience, "from": f"G{one.before}", "to": f"G{one.after}"}
        for one in moves
    ]
