"""`tfgrpo proposal`: what waits for a decision, and the decision."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import click

from tfgrpo.cli import printing
from tfgrpo.cli.add_modify_edit import edited, forget, read_file
from tfgrpo.cli.flags import FORCE, JSON, flag, many, option, path
from tfgrpo.cli.help import ListingGroup
from tfgrpo.cli.start_context import App, Given, pass_app, pass_given

if TYPE_CHECKING:
    from tfgrpo.improvement.proposals import Proposal

LINE = re.compile(r"- \[(G\d+)\] ?(.*)\Z")


@click.group(cls=ListingGroup)
def proposal() -> None:
    """List the proposals that wait for a decision, show one, accept it or turn it down.

    A proposal is a branch that `tfgrpo improve` or `tfgrpo regress` made. Nothing of it reaches
    the branch that an application reads before it is accepted.

    \b
    Examples:
      tfgrpo proposal
      tfgrpo proposal accept p1 --why "right on the till"
    """


@proposal.command("list")
@flag("--all, -a", "Decided ones too.", name="everything")
@JSON
@pass_app
def list_(app: App, everything: bool, as_json: bool) -> None:
    """List the proposals that wait for a decision.

    \b
    Examples:
      tfgrpo proposal list
    """
    from tfgrpo.improvement.proposals import list_proposals

    waiting = list_proposals(app.store, None if everything else "open")
    rows = [
        (
            *(one.id, one.standing, printing.age(one.made), one.target, one.summary),
            "not measured" if one.measured is None else str(one.measured),
        )
        for one in waiting
    ]
    header = ("id", "state", "age", "for", "changes", "effect")
    lines = printing.table(rows, header=header, none="no proposal waits for a decision")
    printing.answer(app, [as_object(one) for one in waiting], lines, as_json)


@proposal.command()
@click.argument("id")
@JSON
@pass_app
def show(app: App, id: str, as_json: bool) -> None:
    """Show a proposal with its changes, their reasons and its evidence.

    \b
    Examples:
      tfgrpo proposal show p1
    """
    from tfgrpo.improvement.proposals import get_proposal

    one = get_proposal(app.store, id)
    printing.answer(app, as_object(one), _shown(one), as_json)


@proposal.command()
@click.argument("id")
@many("--only LABEL", "Take only this change; the others are left open; repeatable.")
@click.argument("labels", nargs=-1)
@flag("--edit", "Write the texts in your editor first.", name="in_editor")
@option(
    "-F, --file",
    "Read this edited file instead of opening an editor.",
    type=path(exists=True, dir_okay=False),
)
@option("--why", "Why; recorded with the decision.")
@option("--ours", "On conflict, keep the branch's text.", name="take", flag_value="ours")
@option("--theirs", "On conflict, take the proposal's.", name="take", flag_value="theirs")
@JSON
@FORCE
@pass_given
def accept(app: App, given: Given) -> None:
    """Bring a proposal into the branch that it was made for, as one version.

    `--only G3 G5` takes those changes, and the others wait: `reject --only` turns some down for a
    reason of their own. With --edit each text is a line `- [G3] text` in your editor: a
    changed line is taken with its new words, a line that is gone is not taken. What the branch
    changed meanwhile stays.

    \b
    Examples:
      tfgrpo proposal accept p1 --why "right on the till"
      tfgrpo proposal accept p2 --only G1 --why "right on the till"
    """
    from tfgrpo.improvement.proposals import accept as accept_proposal
    from tfgrpo.improvement.proposals import get_proposal

    chosen = _only(given)
    edits: dict[str, str] = {}
    before = _words(get_proposal(app.store, given.id), chosen)
    words: AbstractContextManager[str | None] = nullcontext()
    if given.file is not None:
        words = nullcontext(read_file(given.file))
    elif given.in_editor:
        lines = "".join(f"- [{label}] {text}\n" for label, text in before.items())
        words = edited(app, lines)
    with words as content:
        if content is not None:
            chosen, edits = _chosen(before, content)
        how = given.of("why", "take")
        done = accept_proposal(app.store, given.id, only=chosen, edits=edits, **how)
    if given.file is not None:
        forget(app, given.file)
    taken = printing.plural(len(done.accepted if chosen is None else chosen), "change")
    where = f"{done.target} is at {done.version}{_left(done)}"
    app.has_moved(done.target)
    _tell(app, done, f"accepted {taken} of proposal {done.id}: {where}", given.as_json)


def _tell(app: App, done: Proposal, line: str, as_json: bool) -> None:
    printing.answer(app, as_object(done), [line], as_json)


def _only(given: Given) -> list[str] | None:
    """The labels of the changes that are chosen; None for all that are open."""
    if given.labels and not given.only:
        raise click.UsageError("labels go with --only, as in --only G3 G5")
    return [*given.only, *given.labels] if given.only else None


@proposal.command()
@click.argument("id")
@option("--why", "Why; recorded with the decision.", required=True)
@many("--only LABEL", "Turn only this change down; the others are left open; repeatable.")
@click.argument("labels", nargs=-1)
@JSON
@FORCE
@pass_given
def reject(app: App, given: Given) -> None:
    """Turn a proposal down. Later trainings do not try again what was turned down.

    Once nothing of it is open its branch is called rejected/…; nothing is deleted.

    \b
    Examples:
      tfgrpo proposal reject p2 --only G1 --why "the policy changes in May" --json
    """
    from tfgrpo.improvement.proposals import reject as reject_proposal

    chosen = _only(given)
    done = reject_proposal(app.store, given.id, why=given.why, only=chosen)
    what = f"{printing.plural(len(chosen), 'change')} of proposal" if chosen else "proposal"
    line = f"turned down {what} {done.id}: {done.target} is as it was{_left(done)}"
    _tell(app, done, line, given.as_json)


@proposal.command()
@click.argument("id")
@option("--why", "Why; recorded.")
@JSON
@FORCE
@pass_app
def reopen(app: App, id: str, why: str | None, as_json: bool) -> None:
    """Take the decision about a proposal back: it waits again.

    The changes of an accepted proposal leave its branch again, and both decisions stay on record.

    \b
    Examples:
      tfgrpo proposal reopen p1 --why "the till does not round after all"
    """
    from tfgrpo.improvement.proposal_reopening import reopen as reopen_proposal
    from tfgrpo.improvement.proposals import get_proposal

    version = get_proposal(app.store, id).version
    proposal = reopen_proposal(app.store, id, why=why)
    tip = app.store.tip(proposal.target).name
    change = f": {proposal.target} is at {tip}, without {version}" if version else ""
    _tell(app, proposal, f"proposal {proposal.id} waits again{change}", as_json)
    if version is not None:
        app.has_moved(proposal.target)


def _left(proposal: Proposal) -> str:
    count = len(proposal.waiting)
    return f"; {printing.plural(count, 'change')} still open" if count else ""


def as_object(proposal: Proposal) -> dict[str, Any]:
    """A proposal as JSON for programs, with its times as text."""
    names = ("id", "state", "gone", "branch", "target", "source", "author", "why", "version")
    return {
        **{name: getattr(proposal, name) for name in names},
        "base": proposal.base.name,
        "candidate": proposal.candidate.name,
        "made": printing.iso(proposal.made),
        "time": printing.iso(proposal.time),
        "effect": None if proposal.effect is None else proposal.effect._asdict(),
        "changes": [{**one._asdict(), "op": one.op} for one in proposal.changes],
        "accepted": list(proposal.accepted),
        "details": dict(proposal.details),
    }


def _words(proposal: Proposal, chosen: list[str] | None) -> dict[str, str]:
    changes = [one for one in proposal.changes if chosen is None or one.label in chosen]
    return {one.label: " ".join((one.after or "").split()) for one in changes}


def _chosen(before: Mapping[str, str], content: str) -> tuple[list[str], dict[str, str]]:
    """The labels that are taken, and other words for some, as somebody edited them."""
    words_of: dict[str, str] = {}
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip():
            continue
        match = LINE.match(line.strip())
        if match is None or match[1] not in before:
            raise click.UsageError(f"line {number} is none of the proposal's: {line[:60]!r}")
        words_of[match[1]] = match[2].strip()
    edits = {label: words for label, words in words_of.items() if words != before[label]}
    return list(words_of), edits


def _shown(proposal: Proposal) -> Iterator[str]:
    view = proposal.view()
    yield printing.style(view.title, bold=True)
    for one in proposal.changes:
        yield from printing.wrapped(str(one), indent=5)
        if one.reason:
            yield from printing.wrapped(f"why: {one.reason}", first="     ", indent=10)
    yield from view.notes
    yield from (f"{name.replace('_', ' ')}: {value}" for name, value in proposal.details.items())
