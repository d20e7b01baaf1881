"""`merge`, `cherry-pick`, `revert`: bringing changes together, and taking them back."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, NamedTuple, TypeVar

import click

from tfgrpo.cli import printing
from tfgrpo.cli.flags import FORCE, JSON, MESSAGE, Decorator, flag, option, together
from tfgrpo.cli.start_context import RANGE, REVISION, App, Given, pass_given
from tfgrpo.cli.version_text import change_object, events_lines, version_move_lines
from tfgrpo.display.version_rows import left_in_place, move_objects
from tfgrpo.rendering.near_duplicates import near_duplicates
from tfgrpo.store.errors import InvalidOperation, StaleVersion
from tfgrpo.store.history import merge as merges
from tfgrpo.store.history.library_order import moves
from tfgrpo.store.records import Version


class MergeTrial(NamedTuple):
    """What a trial of a merge came to (None: it measured nothing), what to say of it, and the same
    for programs."""

    measured: merges.Measured | None
    notes: Sequence[str] = ()
    object: Mapping[str, Any] | None = None


def tried(
    app: App, sides: merges.Sides, take: str | None, called: str, given: Mapping[str, Any]
) -> MergeTrial:
    """Tries a merge. Raises MergeConflict for what helps alone and harms together, unless a side is
    taken."""
    from tfgrpo.cli import options, train_prove
    from tfgrpo.display.measured_merge import changed_texts, figure_lines
    from tfgrpo.learn import prove as trials

    store, (base, ours, theirs, _) = app.store, sides
    if base.number in (ours.number, theirs.number):
        return MergeTrial(None, ["one side has nothing of its own: there was nothing to measure"])
    decided = None if take is None else merges.side("ours")
    if merges.joined(store, sides, resolve=decided).conflicts:
        return MergeTrial(None)
    settings, project = dict(given), app.project()
    stem, budget = trials.stem_of(called), settings.pop("budget", None)
    wanted = trials.Wanted((ours, theirs), stem, base, budget)
    plan = trials.plan_trial(store, project, options.read_flags(settings), wanted)
    proof = train_prove.run_trial(app, project, plan, wanted, quiet=True)
    together = trials.measured_merge(store, proof, wanted)
    texts = changed_texts(store, base, ours, theirs)
    conflicts = [pair for pair in together.pairs if pair.kind == "conflict"]
    if conflicts and take not in ("ours", "theirs"):
        many = f"{len(conflicts)} pairs of experiences help" if len(conflicts) > 1 else "two help"
        pairs = [
            merges.Conflict(" and ".join(pair.names), None, *(texts[id] for id in pair.names))
            for pair in conflicts
        ]
        hint = "nothing was recorded; --ours leaves theirs out, --theirs ours, and the trial is "
        hint += "not paid for again"
        raise merges.MergeConflict(f"{many} alone and harm together", pairs, hint=hint)
    decided_in_pairs = {id for pair in conflicts for id in pair.names}
    brought = trials.own_changes(store, wanted)[1] - decided_in_pairs
    left_out = {pair.names[1 if take == "ours" else 0]: "conflict" for pair in conflicts}
    for one in proof.tried:
        if one.judged.verdict == "harms" and brought.issuperset(one.ids):
            left_out |= dict.fromkeys(one.ids, "harms")
    figures = trials.merge_figures(store, proof, together, left_out)
    calls, cost = proof.cost.usage.calls, proof.cost
    object = {**figures, "calls": calls, "dollars": cost.dollars}
    notes = [*figure_lines(figures, texts), f"{printing.plural(calls, 'call')}, {cost.words}"]
    return MergeTrial(merges.Measured(figures, frozenset(left_out)), notes, object)


def conflict_lines(conflict: merges.Conflict) -> list[str]:
    """The lines about one experience: what it was, and what each side has."""
    lines = [printing.style(f"conflict {conflict.experience}", fg="red", bold=True)]
    for name in ("base", "ours", "theirs"):
        words = getattr(conflict, name)
        text = "(not there)" if words is None else words
        lines += printing.wrapped(text, first=f"  {name}: ", indent=10, dim=words is None)
    return lines


T = TypeVar("T")


def _one_side(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """Notes the side that is taken; two at once are an error, not the last of them."""
    if not value:
        return
    taken = ctx.meta.setdefault(TAKEN, param.name)
    if taken != param.name:
        raise click.UsageError(f"give only one of --{taken} and --{param.name}")


def sides(*named: str) -> Decorator:
    """Adds flags that decide conflicts; the command gets the one that was given as `take`."""
    meaning = {
        "ours": "take HEAD's text.",
        "theirs": "take the other text.",
        "edit": "write each text in $EDITOR.",
    }

    def taking(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def called(*args: Any, **kwargs: Any) -> Any:
            taken = click.get_current_context().meta.get(TAKEN)
            return command(*args, take=taken, **kwargs)

        return called

    decides: dict[str, Any] = {"expose_value": False, "callback": _one_side}
    flags = (flag(f"--{side}", f"On conflict, {meaning[side]}", **decides) for side in named)
    return together(*flags, taking)


TAKEN = "tfgrpo.taken"
resolving = together(sides("ours", "theirs", "edit"), MESSAGE, JSON, FORCE)


@click.command()
@click.argument("revision", type=REVISION)
@flag("--measure", "Run a trial that measures how the two sides work together.")
@option("--data", "With --measure: problems to try it on; by default data in [train].")
@option("--model", "With --measure: the model of the trial.")
@option("--base-url", "With --measure: OpenAI-compatible endpoint.")
@option("--budget", "With --measure: most to spend: 5.00 (US dollars) or 200000tok.")
@resolving
@pass_given
def merge(app: App, given: Given) -> None:
    """Merge REVISION into HEAD's branch: three-way by experience, and by word within a text.

    If both sides changed the same words, nothing is recorded and the conflicts are listed.
    Experiences from the two sides that say nearly the same are pointed out.

    With --measure the experiences that both sides have added or changed are first tried at
    problems, each attempt with a random half of those that belong there. Two that each help alone
    and harm together are a conflict: --ours leaves theirs out, --theirs ours. An experience of the
    other side that harms by itself is left out. Two that together help no more than either alone
    are pointed out, and the command says how many pairs were seen often enough to tell. The merge's
    version has the figures, which `show` prints. Settings are those of [model] and [train]; asking
    again goes on with the same trial, or reads what it came to.

    \b
    Examples:
      tfgrpo merge web
      tfgrpo merge web --theirs
      tfgrpo merge web --measure --data problems.jsonl --model mine
    """
    store, revision = app.store, given.revision
    branch, before = app.branch(), app.store.head.version
    theirs = store.resolve(revision)
    message = given.message or f"merge {revision} into {branch}"
    resolve, trial = _resolve(given.take), MergeTrial(None)
    settings = given.of("data", "model", "base_url", "budget")
    if not given.measure and any(value is not None for value in settings.values()):
        raise click.UsageError("--data, --model, --base-url and --budget need --measure")
    with conflicts_shown(resolve, given.as_json):
        if given.measure:
            sides, called = merges.sides_of(store, "merge", branch, theirs), f"{branch}-{revision}"
            trial = tried(app, sides, given.take, called, settings)
        how: dict[str, Any] = {"message": message, "resolve": resolve}
        how["measured"] = trial.measured
        version = _repeated(lambda: merges.merge(store, branch, theirs, **how))
    if given.as_json:
        near = near_duplicates(store.library(before), store.library(version))
        also = {"measured": trial.object} if given.measure else {}
        _emit(app, version, branch, before, {"alike": [pair._asdict() for pair in near], **also})
        return
    print_merge(app, before, theirs, version, branch, revision)
    printing.echo_each(trial.notes)


@click.command("cherry-pick")
@click.argument("revisions", nargs=-1, required=True, type=RANGE, metavar="REVISION...")
@resolving
@pass_given
def cherry_pick(app: App, given: Given) -> None:
    """Apply the changes of versions to HEAD's branch, each as a new version.

    They are applied in the order given, those of A..B oldest first, as one operation: one `undo`
    takes them all back, and a conflict in one of them records none. A merge in A..B counts as one
    change, and a version of A..B with nothing left to change is skipped.

    \b
    Examples:
      tfgrpo cherry-pick web
      tfgrpo cherry-pick main..web --ours
    """
    _apply_each(app, merges.cherry_pick_all, given)


@click.command()
@click.argument("revisions", nargs=-1, required=True, type=RANGE, metavar="REVISION...")
@resolving
@pass_given
def revert(app: App, given: Given) -> None:
    """Reverse the changes of versions, each as a new version. History is not rewritten.

    They are reversed in the order given, those of A..B newest first, as one operation. Experiences
    that later versions changed again are conflicts; they are listed and left alone. A merge in A..B
    counts as one change, and a version of A..B with nothing left to change is skipped.

    \b
    Examples:
      tfgrpo revert HEAD
      tfgrpo revert v2 -m "the rule was dropped"
    """
    _apply_each(app, merges.revert_all, given)


def _apply_each(app: App, work: Callable[..., list[Version]], given: Given) -> None:
    branch, before = app.branch(), app.store.head.version
    revisions, resolve = given.revisions, _resolve(given.take)
    if given.take == "edit" and sum(len(merges.picked(app.store, one)) for one in revisions) > 1:
        # nobody else could write while the editor is open
        raise click.UsageError("--edit decides one version at a time")
    message = _message(app, revisions, given.message)
    how = {"message": message, "resolve": resolve}
    with conflicts_shown(resolve, given.as_json):
        versions = _repeated(lambda: work(app.store, branch, revisions, **how))
    if given.as_json:
        _emit(app, versions[-1], branch, before, {})
        return
    for version in versions:
        print_version(app, version, branch)


def _message(app: App, revisions: Sequence[str], given: str | None) -> str | None:
    """Returns the message that was given. In git, `-m 1` names a merge's parent: where a version is
    a merge, such a number is no message. Raises UsageError for another parent than the first."""
    if given is None or not re.fullmatch("[0-9]", given):
        return given
    versions = [version for one in revisions for version in merges.picked(app.store, one)]
    if all(version.merged is None for version in versions):
        return given
    if given != "1":
        raise click.UsageError(
            f"-m {given}: a merge's changes are those since its first parent (-m 1); a message has "
            "more than a digit"
        )
    printing.echo("note: -m 1 is taken as the first parent of a merge", err=True)
    return None


def _repeated(work: Callable[[], T]) -> T:
    while True:
        try:
            return work()
        except StaleVersion:  # another process has just moved the branch: merge with that
            continue


@contextmanager
def conflicts_shown(resolve: merges.Resolve | None, as_json: bool) -> Iterator[None]:
    """Inside it a conflict is printed, and what was written in an editor in vain."""
    try:
        yield
    except BaseException as error:
        if isinstance(resolve, _Editing):
            resolve.repeat()
        if isinstance(error, merges.MergeConflict) and as_json:
            printing.emit_json({"conflicts": [conflict._asdict() for conflict in error.conflicts]})
        elif isinstance(error, merges.MergeConflict):
            for conflict in error.conflicts:
                printing.echo_each(conflict_lines(conflict), err=True)
        raise


def _resolve(take: Any) -> merges.Resolve | None:
    if take is None:
        return None
    return _Editing() if take == "edit" else merges.side(take)


class _Editing:
    """Has each conflict decided once in the user's editor."""

    def __init__(self) -> None:
        self._texts: dict[merges.Conflict, str | None] = {}

    def __call__(self, conflict: merges.Conflict) -> str | None:
        if conflict not in self._texts:
            self._texts[conflict] = _edited(conflict)
        return self._texts[conflict]

    def repeat(self) -> None:
        """Prints what was written, where nothing has come of it."""
        for conflict, text in self._texts.items():
            wrote = "no text" if text is None else text
            printing.echo(f"note: for {conflict.experience} you wrote: {wrote}", err=True)


SCISSORS = "# ------------------------ >8 ------------------------"


def _edited(conflict: merges.Conflict) -> str | None:
    """Asks for the text in the user's editor; an empty text means that none is to stand. What is
    below the line with the scissors is not taken, and all above is, as git has it."""
    comment = "\n".join(f"# {click.unstyle(line)}" for line in conflict_lines(conflict))
    start = conflict.ours or conflict.theirs or ""
    words = (
        "# Keep the line above; all below it is ignored. No text above it: delete the experience."
    )
    edited = click.edit(f"{start}\n\n{SCISSORS}\n{words}\n{comment}\n")
    if edited is None:
        raise InvalidOperation(
            f"{conflict.experience} was not decided", hint="save the file to resolve it"
        )
    lines = edited.splitlines()
    while SCISSORS in lines:
        lines = lines[: lines.index(SCISSORS)]
    return " ".join(" ".join(lines).split()) or None


def print_version(app: App, version: Version, branch: str) -> None:
    """Writes the library for inference and prints a version that was just made."""
    app.write_library()
    printing.echo(f"{version.name} on {branch}: {version.message}")
    printing.echo_each(events_lines(app.store, version, reasons=False))
    printing.echo_each(version_move_lines(app.store, version))


def print_merge(
    app: App, before: Version, theirs: Version, after: Version, branch: str, called: str
) -> None:
    """Prints what a merge of what is `called` so came to, and which experiences it brought
    together that say nearly the same."""
    if after.number == before.number:
        printing.echo(f"already up to date: {branch} contains {called}")
    elif after.number == theirs.number:
        printing.echo(f"fast-forwarded {branch} from {before.name} to {after.name}")
        app.write_library()
    else:
        print_version(app, after, branch)
    library = app.store.library(after)
    label = library.label_of
    for new, there, likeness in near_duplicates(app.store.library(before), library):
        printing.echo(
            f"{label[new]} and {label[there]} say nearly the same ({likeness:.0f} %): "
            f"`tfgrpo delete {new}` if they do"
        )


def _emit(
    app: App, version: Version, branch: str, before: Version, also: Mapping[str, object]
) -> None:
    changes = app.store.diff(before, version)
    app.write_library()
    fields = {
        "branch": branch,
        **change_object(before, version, changes),
        "moves": move_objects(moves(app.store, before, version)),
        "conflicts": [],
        "order_conflicts": list(left_in_place(version)),
    }
    printing.emit_json({**fields, **also})
