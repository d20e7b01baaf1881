"""`tfgrpo export` and `tfgrpo import`: libraries as files, and mirrors back from git."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tfgrpo import interchange
from tfgrpo.author import file_signer
from tfgrpo.cli import checkout, options
from tfgrpo.cli import printing as text
from tfgrpo.cli.event_text import event_lines
from tfgrpo.cli.flags import JSON, flag, option
from tfgrpo.cli.start_context import REVISION, App, Given, force_option, pass_given
from tfgrpo.interchange.reference_config import translated
from tfgrpo.store import atomic_write
from tfgrpo.store.address import project_root
from tfgrpo.store.errors import InvalidOperation
from tfgrpo.store.records import OPS, Version
from tfgrpo.terminal_safe import unseen_in_words

if TYPE_CHECKING:
    from tfgrpo.interchange.format_types import Document
    from tfgrpo.interchange.incoming_versions import Imported
    from tfgrpo.interchange.library_files import About

SHOWN = 20
"""How many events and versions an import prints; the rest can be looked up."""


@click.command()
@click.argument("revision", default="HEAD", type=REVISION)
@option(
    "--format",
    "Format to write; by default from the name of the output file, else json.",
    name="format_",
    type=click.Choice(interchange.written()),
)
@option(
    "-o, --output", "Where to write; by default standard output.", default="-", show_default=False
)
@option("--name", "Name of the skill or agent; by default as it was imported.")
@option("--description", "For a skill: when to use it; by default as it was imported.")
@option("--licence", "For a card: what others may do with it, such as CC-BY-4.0.")
@flag("--with-examples", "For a card: keep examples, whose problems may be published.")
@pass_given
def export(app: App, given: Given) -> None:
    """Write the library at REVISION to a file, without moving HEAD.

    Formats: ace is an ACE playbook; agent a Youtu-Agent YAML configuration; card a page with
    effects, data, models and cost, and without examples, as these are problems; csv a table with
    id, label and text; events every event of the history as JSON Lines; json Youtu-Agent's
    experiences.json; md Markdown to edit and read back; prompt the lines of a prompt; rows JSON
    Lines, one experience per line; skill a SKILL.md.

    \b
    Examples:
      tfgrpo export HEAD --format md
      tfgrpo export v1 -o experiences.json
    """
    chosen = given.format_ or interchange.by_file_name(Path(given.output).name)
    if chosen is None and given.output != "-" and Path(given.output).suffix:
        raise click.UsageError(
            f"no format goes by the ending {Path(given.output).suffix}: choose one with --format "
            f"({', '.join(interchange.written())})"
        )
    chosen = chosen or "json"
    about_it: About = {
        "name": given.name,
        "description": given.description,
        "licence": given.licence,
        "with_examples": given.with_examples,
    }
    version = app.store.resolve(given.revision)
    if chosen == "card":
        from tfgrpo.store import signing

        about_it["prices"] = options.open_project(app, None).table("prices")
        is_tagged = signing.is_tagged(app.store, version)
        app.store.signer = file_signer(str(app.root), is_tagged=is_tagged)
        if not given.with_examples:
            _say_left_out(app, version, err=given.output == "-")
    if given.output == "-":
        for piece in interchange.export(app.store, version, chosen, **about_it):
            text.write_out(piece)
        return
    interchange.save(app.store, Path(given.output), version, chosen, **about_it)
    size = text.plural(len(app.store.library(version)), "experience")
    signed = ", signed" if chosen == "card" and app.store.signer is not None else ""
    text.echo(f"wrote {size} of {version.name} to {given.output} as {chosen}{signed}")


def _say_left_out(app: App, version: Version, *, err: bool) -> None:
    """Says how many examples a card does not have."""
    from tfgrpo.interchange.formats.card import WHY_LEFT_OUT, examples_in

    count = examples_in(app.store.library(version))
    if count:
        examples = text.plural(count, "example")
        keeps = "--with-examples keeps them where problems may be published"
        text.echo(f"left {examples} out: {WHY_LEFT_OUT}; {keeps}", err=err)


@click.command("import")
@click.argument("what", metavar="FILE | git DIR | reference-… FILE")
@click.argument("folder", required=False, metavar="", type=click.Path(path_type=Path))
@option(
    "--format",
    "Format of FILE, as docs/formats.md lists them; by default detected from its content.",
    name="format_",
    type=click.Choice(list(interchange.available())),
    metavar="FORMAT",
)
@option("-m, --message", "Message for the new version.")
@flag("--again", "Restore texts that were changed or deleted since.")
@option("--run", "With reference-rollouts: the name of the run.", metavar="NAME")
@flag("--dry-run", "Show what would be recorded, and record nothing.")
@JSON
@force_option
@pass_given
def import_(app: App, given: Given) -> None:
    """Read experiences from FILE into the library, as one version on HEAD's branch.

    FILE may be anything that `export` writes, an AGENTS.md or CLAUDE.md, or another tool's
    playbook, skill, agent configuration, memory or JSON Lines. Whatever of it becomes no
    experience is listed with its lines; --dry-run shows everything beforehand.

    Experiences are matched by id, so a changed text is a MODIFY and not an ADD. Anything the
    library has, or once had, is left alone: reading a file again makes no version, and nothing is
    deleted. A file of events becomes one version for each version it describes.

    `import git DIR` reads back what `mirror git` wrote: the same versions, plus a version for each
    commit that people made there by hand.

    `import reference-config FILE` translates a practice configuration (YAML) of the reference
    implementation into a tfgrpo.toml here, and says which settings have no counterpart. `import
    reference-rollouts FILE` reads its rollout.jsonl, or a folder of them, as a finished run for
    `tfgrpo rollouts` to show, and writes the problems in it as a dataset.

    \b
    Examples:
      tfgrpo import experiences.json
      tfgrpo import library.md -m "reviewed by the shop"
      tfgrpo import library.md --dry-run
      tfgrpo mirror git mirror && tfgrpo import git mirror
    """
    if given.run is not None and given.what != "reference-rollouts":
        raise click.UsageError("--run names what `import reference-rollouts FILE` makes")
    if given.folder is not None:
        if given.what == "reference-rollouts":
            if given.dry_run:
                raise click.UsageError("--dry-run is for files of experiences and settings")
            _import_attempts(app, given.folder, given.run, given.as_json)
            return
        if given.what == "reference-config":
            _import_settings(given.folder, given.dry_run, given.as_json)
            return
        if given.what != "git":
            raise click.UsageError(
                f"one file at a time, `git DIR`, `reference-config FILE` or "
                f"`reference-rollouts FILE`: what is {given.folder}?"
            )
        _import_git(app, given.folder, given.as_json)
        return
    branch = app.branch()
    document = interchange.read(Path(given.what), given.format_)
    _warn_of_unseen(document)
    if not given.as_json:
        say_who_signed(app, document)
    if given.dry_run:
        _preview(app, document, branch, given.again, given.as_json)
        return
    imported = interchange.bring_in(
        app.store, document, branch, message=given.message, again=given.again
    )
    if imported.versions:
        checkout.materialise(app)
    if given.as_json:
        _emit(app, branch, imported, document)
        return
    if not imported.versions:
        of = "versions" if document.batches else "texts"
        all_of_it = f": all {imported.known} of its {of} are here already"
        text.echo(f"nothing new in {given.what}{'' if imported.left else all_of_it}")
    for version in imported.versions[:SHOWN]:
        text.echo(f"{version.name} on {branch}: {version.message}")
        events = app.store.events(version)
        texts = app.store.texts_before(events[:SHOWN])
        for event in events[:SHOWN]:
            text.echo_each(event_lines(event, texts.get(event.row)))
        if len(events) > SHOWN:
            more = text.plural(len(events) - SHOWN, "more event")
            text.echo(f"… and {more}: `tfgrpo show {version.name}` has them all")
    if len(imported.versions) > SHOWN:
        more = text.plural(len(imported.versions) - SHOWN, "more version")
        text.echo(f"… and {more}: `tfgrpo log` has them all")
    if imported.left:
        text.echo(
            f"left alone: {text.plural(len(imported.left), 'experience')} that the library had as "
            "the file says and has otherwise now; --again puts them back"
        )
    _show_skipped(document)


def say_who_signed(app: App, document: Document) -> None:
    """Says whose a card is, as far as the allowed signers here tell; nothing of another file."""
    from tfgrpo.interchange.formats.card import checked

    signature = checked(app.store, document)
    if signature is not None:
        text.echo(f"{document.name}: {text.shown(str(signature))}")


def signature_object(app: App, document: Document) -> dict[str, object]:
    """What the signature of a card is worth, for programs; nothing of another file."""
    from tfgrpo.interchange.formats.card import checked

    signature = checked(app.store, document)
    return {} if signature is None else {"signature": signature.object}


def _warn_of_unseen(document: Document) -> None:
    """Warns of texts that hold what a reviewer does not see and a model is told."""
    texts = [(item.line, item.text) for item in document.items]
    for batch in document.batches:
        lines = zip(batch.lines, batch.operations, strict=True)
        texts += [(line, operation.text or "") for line, operation in lines]
    for line, words in texts:
        hidden = unseen_in_words(words)
        if hidden is not None:
            where = f"{document.path}:{line}" if line else str(document.path)
            text.warn([f"{where} has {hidden}"])


def _preview(app: App, document: Document, branch: str, again: bool, as_json: bool) -> None:
    left: tuple[str, ...] = ()
    if document.batches:
        new = interchange.new_batches(app.store, document, branch)
        operations = [operation for batch in new for operation in batch.operations]
        known = len(document.batches) - len(new)
    else:
        plan = interchange.plan(app.store, document.items, document.provenance, branch, again=again)
        operations, known, left = list(plan.operations), plan.known, plan.left
    if as_json:
        text.emit_json(
            {
                "branch": branch,
                "operations": [operation._asdict() for operation in operations],
                "known": known,
                "left": left,
                "skipped": [entry._asdict() for entry in document.skipped],
                **signature_object(app, document),
            }
        )
        return
    counts = Counter(operation.op for operation in operations)
    parts = [f"{op.lower()} {text.plural(counts[op], 'experience')}" for op in OPS if counts[op]]
    also = f"; {known} are here already" if known else ""
    also += f"; {len(left)} would be left alone" if left else ""
    would = f"would {', '.join(parts)}" if parts else "would record nothing"
    text.echo(f"read as {document.format}: {would} on {branch}{also}")
    for operation in operations:
        sign = text.Word(text.SIGNS[operation.op], fg=text.COLOURS[operation.op], bold=True)
        body = text.words(operation.text or operation.experience or "")
        text.echo_each(text.wrap([sign, *body], indent=2))
    _show_skipped(document, most=None)


def _show_skipped(document: Document, most: int | None = SHOWN) -> None:
    if not document.skipped:
        return
    text.echo(f"skipped {text.plural(len(document.skipped), 'part')} of {document.name}:")
    for entry in document.skipped[:most]:
        text.echo(f"  {entry}")
    if most is not None and len(document.skipped) > most:
        text.echo(f"  … and {len(document.skipped) - most} more: --dry-run lists them all")


def _emit(app: App, branch: str, imported: Imported, document: Document) -> None:
    store = app.store
    before = after = store.tip(branch)
    if imported.versions:
        assert imported.versions[0].parent is not None, "only v0 has none"
        before, after = store.version(imported.versions[0].parent), imported.versions[-1]
    text.emit_json(
        {
            "branch": branch,
            "from": before.name,
            "to": after.name,
            "versions": [version.name for version in imported.versions],
            "changes": [{"op": c.op, **c._asdict()} for c in store.diff(before, after)],
            "known": imported.known,
            "left": imported.left,
            "skipped": [entry._asdict() for entry in document.skipped],
            **signature_object(app, document),
        }
    )


def _import_settings(path: Path, dry_run: bool, as_json: bool) -> None:
    """Writes the settings of the reference implementation as ours, over no other file."""
    translation = translated(path)
    target = Path("tfgrpo.toml")
    if as_json:
        text.emit_json({"toml": translation.toml, "run": translation.run, "left": translation.left})
    elif dry_run:
        text.echo(translation.toml, nl=False)
    toml, mode = translation.toml.encode(), atomic_write.SHARED
    if not dry_run and not atomic_write.create(target, toml, mode=mode):
        raise InvalidOperation(
            f"there is already a {target} here",
            hint="--dry-run prints the settings; move the file away to have them written",
        )
    if as_json or dry_run:
        return
    text.echo(f"wrote {target}")
    for line in translation.left:
        text.echo(f"  not translated: {line}")
    run = f" --run {translation.run}" if translation.run else ""
    text.echo(f"next: `tfgrpo train{run} --estimate` says what it takes")


def _import_attempts(app: App, path: Path, name: str | None, as_json: bool) -> None:
    from tfgrpo.interchange.reference_attempts import import_attempts

    imported = import_attempts(app.store, project_root(app.store.path), path, name)
    if as_json:
        fields = imported._asdict() | {"run": imported.run.name, "dataset": str(imported.dataset)}
        text.emit_json(fields)
        return
    attempts = text.plural(imported.attempts, "attempt")
    problems, steps = text.plural(imported.problems, "problem"), text.plural(imported.steps, "step")
    unscored = f", {imported.unscored} of them without a reward" if imported.unscored else ""
    text.echo(f"run {imported.run.name}: {attempts} at {problems} in {steps}{unscored}")
    text.echo(f"wrote {imported.dataset.name}")
    text.echo(f"next: `tfgrpo rollouts {imported.run.name}` shows them")


def _import_git(app: App, folder: Path, as_json: bool) -> None:
    from tfgrpo import mirror

    returned = mirror.bring_back(app.store, folder)
    checkout.materialise(app)
    if as_json:
        text.emit_json(
            {
                "adopted": [version.name for version in returned.adopted],
                "by_hand": [version.name for version in returned.by_hand],
                "moved": _named(returned.moved),
                "apart": _named(returned.apart),
                "unnamed": returned.unnamed,
            }
        )
        return
    for version in returned.by_hand:
        text.echo(f"{version.name}: {version.message.splitlines()[0]} ({version.author})")
    counted = text.plural(len(returned.adopted), "version")
    text.echo(f"read {counted} and {text.plural(len(returned.by_hand), 'commit')} made by hand")
    for name, version in returned.moved:
        text.echo(f"{name} is at {version.name}")
    for name, version in returned.apart:
        text.echo(f"{name} differs there: it stands at {version.name}, and was left alone here")
    for name in returned.unnamed:
        text.echo(f"{name} cannot be a name here, and was left out")


def _named(names: Iterable[tuple[str, Version]]) -> list[dict[str, str]]:
    return [{"name": name, "version": version.name} for name, version in names]
