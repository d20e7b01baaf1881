"""The trial of `tfgrpo merge --measure`: what two sides do together, before they are one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tfgrpo.store.history.merge import Conflict, Measured, MergeConflict, Sides, side, three_way

if TYPE_CHECKING:
    from tfgrpo.cli.start_context import App


def tried(
    app: App, sides: Sides, take: str | None, called: str, given: Mapping[str, Any]
) -> tuple[Measured | None, list[str]]:
    """What a trial of a merge came to (no figures: it measured nothing), and what to say of it.
    Raises MergeConflict for what helps alone and harms together, unless a side is taken."""
    from tfgrpo.cli import options, prove
    from tfgrpo.learn.prove import Wanted, measured_merge, merge_figures, plan_trial, stem_of

    store, (base, ours, theirs) = app.store, sides
    if base.number in (ours.number, theirs.number):
        return None, ["one side has nothing of its own: there was nothing to measure"]
    libraries = [store.library(version) for version in sides]
    decided = None if take is None else side("ours")
    if three_way(*libraries, resolve=decided).conflicts:
        return None, []
    settings = dict(given)
    wanted = Wanted((ours, theirs), stem_of(called), base, settings.pop("budget", None))
    project = options.open_project(app, None)
    plan = plan_trial(store, project, options.read_flags(settings), wanted)
    proof = prove.run_trial(app, project, plan, wanted, quiet=True)
    pairs = measured_merge(store, proof, wanted)
    texts = {e.id: e.text for library in libraries for e in library}
    conflicts = [pair for pair in pairs if pair.kind == "conflict"]
    if conflicts and take not in ("ours", "theirs"):
        many = f"{len(conflicts)} pairs of experiences help" if len(conflicts) > 1 else "two help"
        raise MergeConflict(
            f"{many} alone and harm together",
            [
                Conflict(" and ".join(pair.names), None, *(texts[id] for id in pair.names))
                for pair in conflicts
            ],
            hint="nothing was recorded; --ours leaves theirs out, --theirs ours, and the trial is "
            "not paid for again",
        )
    out = frozenset(pair.names[1 if take == "ours" else 0] for pair in conflicts)
    notes = [f"left out for what it does beside the other side: {texts[id]}" for id in sorted(out)]
    notes += [
        f"redundant, either helps as much as both: {texts[one]} / {texts[other]}"
        for kind, (one, other), *_ in pairs
        if kind == "redundant"
    ]
    figures = merge_figures(store, proof, pairs)
    notes.append(f"measured in run {proof.run.name}, {figures['attempts']} attempts")
    return Measured(figures, out), notes
