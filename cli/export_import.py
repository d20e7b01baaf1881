"""`tfgrpo export`, `import` and `mirror`: libraries as files, and mirrors in git and back."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tfgrpo import interchange
from tfgrpo.author import file_signer
from tfgrpo.cli import printing
from tfgrpo.cli.flags import FORCE, JSON, MESSAGE, TEXT_PATH, flag, option, path
from tfgrpo.cli.help import SuggestingGroup
from tfgrpo.cli.start_context import REVISION, App, Given, pass_app, pass_given
from tfgrpo.cli.version_text import change_object, event_lines
from tfgrpo.interchange.formats.card import WHY_LEFT_OUT, checked, examples_in
from tfgrpo.interchange.incoming_versions import bring_in, new_batches, plan
from tfgrpo.interchange.reference_config import translated
from tfgrpo.store import atomic_write
from tfgrpo.store.errors import InvalidOperation
from tfgrpo.store.records import OPS
from tfgrpo.terminal_safe import unseen_in_words

if TYPE_CHECKING:
    from tfgrpo.interchange.format_types import Document
    from tfgrpo.interchange.incoming_versions import Imported

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
    "-o, --output",
    "Where to write; by default standard output.",
    default="-",
    show_default=False,
    type=TEXT_PATH,
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
    about_it: dict[str, Any] = given.of("name", "description", "licence", "with_examples")
    version = app.store.resolve(given.revision)
    if chosen == "card":
        from tfgrpo.store import signing

        about_it["prices"] = app.project().table("prices")
        is_tagged = signing.is_tagged(app.store, version)
        app.store.signer = file_signer(str(app.root), is_tagged=is_tagged)
        count = examples_in(app.store.library(version))
        if count and not given.with_examples:
            keeps = "--with-examples keeps them where problems may be published"
            left = f"left {printing.plural(count, 'example')} out: {WHY_LEFT_OUT}; {keeps}"
            printing.echo(left, err=given.output == "-")
    if given.output == "-":
        for piece in interchange.export(app.store, version, chosen, **about_it):
            printing.write_out(piece)
        return
    interchange.save(app.store, Path(given.output), version, chosen, **about_it)
    size = printing.plural(len(app.store.library(version)), "experience")
    signed = ", signed" if chosen == "card" and app.store.signer is not None else ""
    printing.echo(f"wrote {size} of {version.name} to {given.output} as {chosen}{signed}")


@click.command("import")
@click.argument("what", metavar="FILE | git DIR | reference-config FILE")
@click.argument("folder", required=False, metavar="", type=path())
@option(
    "--format FORMAT",
    "Format of FILE, as docs/formats.md lists them; by default detected from its content.",
    name="format_",
    type=click.Choice(list(interchange.available())),
)
@MESSAGE
@flag("--again", "Restore texts that were changed or deleted since.")
@flag("--dry-run", "Show what would be recorded, and record nothing.")
@JSON
@FORCE
@pass_given
def import_(app: App, given: Given) -> None:
    """Read experiences from FILE into the library, as one version on HEAD's branch.

    FILE may be anything that `export` writes, an AGENTS.md or CLAUDE.md, or another tool's
    playbook, skill, agent configuration, memory or JSON Lines. Parts that become no experience are
    listed with their lines; --dry-run shows everything beforehand.

    Experiences are matched by id, so a changed text is a MODIFY and not an ADD. Anything the
    library has, or once had, is left alone: reading a file again makes no version, and nothing is
    deleted. A file of events becomes one version for each version it describes.

    `import git DIR` reads back what `mirror git` wrote: the same versions, plus a version for each
    commit that people made there by hand.

    `import reference-config FILE` translates a practice configuration (YAML) of the reference
    implementation into a tfgrpo.toml here, and says which settings have no counterpart.

    \b
    Examples:
      tfgrpo import experiences.json
      tfgrpo import library.md -m "reviewed by the shop"
      tfgrpo import library.md --dry-run
      tfgrpo mirror git mirror && tfgrpo import git mirror
    """
    others = {"reference-config": _import_settings, "git": _import_git}
    if given.folder is not None:
        if given.what not in others:
            raise click.UsageError(
                f"one file at a time, `git DIR` or `reference-config FILE`: what is {given.folder}?"
            )
        others[given.what](app, given)
        return
    branch = app.branch()
    document = interchange.read(Path(given.what), given.format_)
    _warn_of_unseen(document)
    if not given.as_json:
        say_who_signed(app, document)
    if given.dry_run:
        _preview(app, document, branch, given)
        return
    imported = bring_in(app.store, document, branch, message=given.message, again=given.again)
    if imported.versions:
        app.write_library()
    if given.as_json:
        _emit(app, branch, imported, document)
        return
    if not imported.versions:
        of = "versions" if document.batches else "texts"
        all_of_it = f": all {imported.known} of its {of} are here already"
        printing.echo(f"nothing new in {given.what}{'' if imported.left else all_of_it}")
    for version in imported.versions[:SHOWN]:
        printing.echo(f"{version.name} on {branch}: {version.message}")
        events = app.store.events(version)
        texts = app.store.texts_before(events[:SHOWN])
        for event in events[:SHOWN]:
            printing.echo_each(event_lines(event, texts.get(event.row)))
        _tell_rest(events, "event", f"`tfgrpo show {version.name}` has them all")
    _tell_rest(imported.versions, "version", "`tfgrpo log` has them all")
    if imported.left:
        left = printing.plural(len(imported.left), "experience")
        printing.echo(
            f"left alone: {left} whose text in the file is one that the library has since changed "
            "or deleted; --again restores it"
        )
    _show_skipped(document)


def _tell_rest(things: Sequence[object], noun: str, where: str) -> None:
    if len(things) > SHOWN:
        printing.echo(f"… and {printing.plural(len(things) - SHOWN, f'more {noun}')}: {where}")


def say_who_signed(app: App, document: Document) -> None:
    """Says whose a card is, as far as the allowed signers here tell; nothing of another file."""
    if signature := checked(app.store, document):
        printing.echo(f"{document.name}: {printing.shown(str(signature))}")


def signature_object(app: App, document: Document) -> dict[str, object]:
    """The same for programs."""
    signature = checked(app.store, document)
    return {} if signature is None else {"signature": signature.object}


def _warn_of_unseen(document: Document) -> None:
    """Warns of texts that hold what a reviewer does not see and a model is told."""
    texts = [(item.line, item.text) for item in document.items]
    for batch in document.batches:
        lines = zip(batch.lines, batch.operations, strict=True)
        texts += [(line, operation.text or "") for line, operation in lines]
    for line, words in texts:
        if hidden := unseen_in_words(words):
            printing.warn([f"{document.path}{f':{line}' if line else ''} has {hidden}"])


def _preview(app: App, document: Document, branch: str, given: Given) -> None:
    left: tuple[str, ...] = ()
    if document.batches:
        new = new_batches(app.store, document, branch)
        operations = [operation for batch in new for operation in batch.operations]
        known = len(document.batches) - len(new)
    else:
        how = (document.items, document.provenance, branch)
        import_plan = plan(app.store, *how, again=given.again)
        operations, known, left = list(import_plan.operations), import_plan.known, import_plan.left
    if given.as_json:
        listed = [operation._asdict() for operation in operations]
        fields = {"branch": branch, "operations": listed, "known": known, "left": left}
        skipped = [entry._asdict() for entry in document.skipped]
        printing.emit_json({**fields, "skipped": skipped, **signature_object(app, document)})
        return
    counts = Counter(operation.op for operation in operations)
    parts = [
        f"{op.lower()} {printing.plural(counts[op], 'experience')}" for op in OPS if counts[op]
    ]
    also = f"; {known} are here already" if known else ""
    also += f"; {len(left)} would be left alone" if left else ""
    would = f"would {', '.join(parts)}" if parts else "would record nothing"
    printing.echo(f"read as {document.format}: {would} on {branch}{also}")
    for operation in operations:
        sign = printing.sign(operation.op, bold=True)
        body = printing.words(operation.text or operation.experience or "")
        printing.echo_each(printing.wrap([sign, *body], indent=2))
    _show_skipped(document, most=None)


def _show_skipped(document: Document, most: int | None = SHOWN) -> None:
    if not document.skipped:
        return
    printing.echo(f"skipped {printing.plural(len(document.skipped), 'part')} of {document.name}:")
    for entry in document.skipped[:most]:
        printing.echo(f"  {entry}")
    if most is not None:
        _tell_rest(document.skipped, "part", "--dry-run lists them all")


def _emit(app: App, branch: str, imported: Imported, document: Document) -> None:
    store = app.store
    before = after = store.tip(branch)
    if imported.versions:
        assert imported.versions[0].parent is not None, "only v0 has none"
        before, after = store.version(imported.versions[0].parent), imported.versions[-1]
    printing.emit_json(
        {
            "branch": branch,
            "from": before.name,
            "to": after.name,
            "versions": [version.name for version in imported.versions],
            **change_object(before, after, store.diff(before, after)),
            "known": imported.known,
            "left": imported.left,
            "skipped": [entry._asdict() for entry in document.skipped],
            **signature_object(app, document),
        }
    )


def _import_settings(app: App, given: Given) -> None:
    translation = translated(given.folder)
    target = Path(os.path.relpath(app.root_or_here / "tfgrpo.toml"))
    toml, mode = translation.toml.encode(), atomic_write.SHARED
    if not given.dry_run and not atomic_write.create(target, toml, mode=mode):
        raise InvalidOperation(
            f"there is already a {target}",
            hint="--dry-run prints the settings; move the file away to have them written",
        )
    fields = {"toml": translation.toml, "run": translation.run, "left": translation.left}
    run = f" --run {translation.run}" if translation.run else ""
    lines = [
        f"wrote {target}",
        *(f"  not translated: {line}" for line in translation.left),
        f"next: `tfgrpo train{run} --estimate` says what it takes",
    ]
    lines = [translation.toml.rstrip("\n")] if given.dry_run else lines
    printing.answer(app, fields, lines, given.as_json)


def _import_git(app: App, given: Given) -> None:
    from tfgrpo import mirror

    if given.dry_run:
        raise click.UsageError("--dry-run is for files of experiences and settings")
    returned = mirror.bring_back(app.store, given.folder)
    app.write_library()
    versions = {"adopted": returned.adopted, "by_hand": returned.by_hand}
    names = {"moved": returned.moved, "apart": returned.apart}
    fields: dict[str, Any] = {name: [one.name for one in some] for name, some in versions.items()}
    for name, moves in names.items():
        fields[name] = [{"name": at, "version": version.name} for at, version in moves]
    counted = printing.plural(len(returned.adopted), "version")
    lines = [
        *(f"{v.name}: {v.message.splitlines()[0]} ({v.author})" for v in returned.by_hand),
        f"read {counted} and {printing.plural(len(returned.by_hand), 'commit')} made by hand",
        *(f"{at} is at {version.name}" for at, version in returned.moved),
        *(
            f"{at} differs there: it stands at {version.name}, and was left alone here"
            for at, version in returned.apart
        ),
        *(f"{name} cannot be a name here, and was left out" for name in returned.unnamed),
    ]
    printing.answer(app, fields | {"unnamed": returned.unnamed}, lines, given.as_json)


@click.group(cls=SuggestingGroup)
def mirror() -> None:
    """Keep a copy of the history that other tools can read.

    \b
    Examples:
      tfgrpo mirror git mirror
    """


@mirror.command("git")
@click.argument("folder", metavar="DIR", type=path())
@click.argument("revision", required=False, type=REVISION)
@JSON
@pass_app
def git_(app: App, folder: Path, revision: str | None, as_json: bool) -> None:
    """Mirror the history to the git repository DIR, with one commit per version.

    library.md there has one experience per line, for git log -p, git blame and code review. Run it
    again to add new versions; `tfgrpo import git DIR` reads everything back, including commits made
    by hand. With REVISION, only its history and the names in it are mirrored.

    DIR must be new, empty or an existing mirror. Redacted texts are mirrored as redacted; commits
    made before the redaction may still contain them.

    \b
    Examples:
      tfgrpo mirror git mirror
      tfgrpo mirror git mirror main
    """
    from tfgrpo import mirror as mirrors

    done = mirrors.mirror(app.store, folder, revision)
    was = f", {done.there} already there" if done.there else ""
    lines = [f"mirrored {printing.plural(done.written, 'version')} to {folder}{was}"]
    if not done.written:
        size = printing.plural(done.there, "version")
        lines = [f"already up to date: {folder} has all {size}"]
    for what, names in (("moved", done.moved), ("removed", done.removed)):
        if names and (done.there or what == "removed"):
            lines.append(f"{what} {', '.join(names[:8])}{' …' if len(names) > 8 else ''}")
    if done.redacted:
        texts = printing.plural(done.redacted, "text")
        copies = "mirrors made before, and their clones, may hold copies"
        lines.append(f"{texts} redacted: {copies}")
    printing.answer(app, done._asdict() | {"folder": str(folder)}, lines, as_json)
