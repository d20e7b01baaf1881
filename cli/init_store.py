"""`tfgrpo init` and `store`: a new store, and who may do what in one that is shared."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from tfgrpo.author import default_author
from tfgrpo.cli import printing
from tfgrpo.cli.flags import JSON, many, option, path
from tfgrpo.cli.help import SuggestingGroup
from tfgrpo.cli.start_context import App, Given, pass_app, pass_given
from tfgrpo.store.address import project_root
from tfgrpo.store.opening import is_there, members_of
from tfgrpo.store.port import Level
from tfgrpo.store.store import Store

if TYPE_CHECKING:
    from tfgrpo.data.column_roles import ColumnGuess
    from tfgrpo.init_from_data import DataPlan, OwnData


@click.command()
@option(
    "--from FILE",
    "Look at your own data (CSV, JSONL, Excel and others), split it, and write tfgrpo.toml.",
    name="source",
    type=path(),
)
@option("--problem FIELD", "With --from: the field with the question.")
@many(
    "--answer FIELD",
    "With --from: the field with the answer; several fields make one JSON object.",
    "answers",
)
@option(
    "--kind",
    "With --from: the kind of the answers.",
    type=click.Choice(["math", "exact", "choice", "json", "rubric"]),
)
@option("--model", "With --from: local:NAME, or the name of a model at --base-url.")
@option("--base-url", "With --from: OpenAI-compatible endpoint.")
@option("--api-key-env", "With --from: environment variable with the API key.")
@pass_given
def init(app: App, given: Given) -> None:
    """Create a store here, with an empty library on the branch main.

    The store is one SQLite file, .tfgrpo/store.db. Every other command finds it from this folder
    and any folder below. If the folder already has a store, nothing changes.

    With --from, the command guesses (on a terminal it asks) and prints what your data is about:
    which field is asked and which is the answer, and how answers are judged. The rows are split
    into data/train.jsonl, data/gate.jsonl and a sealed data/heldout.jsonl, and a tfgrpo.toml is
    written whose sizes fit the data and the model. No file is overwritten.

    \b
    Examples:
      tfgrpo init
      tfgrpo --store shared/team.db init
      tfgrpo init --from tickets.csv
    """
    model = given.of("model", "base_url", "api_key_env")
    if given.source is None:
        if any((given.problem, given.answers, given.kind, *model.values())):
            raise click.UsageError("these options need --from FILE")
        _make_store(app)
        return
    from tfgrpo.init_from_data import OwnData, write_files
    from tfgrpo.project import file_permissions
    from tfgrpo.settings import FILE, read_toml
    from tfgrpo.trust.trusted_folders import remember_own

    own = OwnData(given.problem, given.answers, given.kind, **model)
    plan, own = _planned(given.source, own)
    folder = project_root(app.new_path)  # settings lie beside the store
    written = write_files(folder, plan)
    if read_toml(folder / FILE) == plan.settings:  # then it is the word of whoever asks for it
        for permissions in file_permissions(folder / FILE):
            remember_own(permissions)
    names = ", ".join(str(path.relative_to(folder)) for path in written)
    for sentence in (*plan.lines, f"wrote {names}"):
        printing.echo_each(printing.wrapped(sentence, first="", indent=2))
    _make_store(app)
    printing.echo("next: `tfgrpo train --estimate` says what it takes, `tfgrpo train` learns")


def _make_store(app: App) -> None:
    path, there = app.new_file, is_there(app.new_path)
    app.adopt(Store.init(path, author=default_author))
    head = app.store.head
    new = f"made an empty library at {path}, on branch {head.branch}"
    already = f"there is already a store at {path}, at {head.version.name}"
    printing.echo(already if there else new)


def _planned(source: Path, own: OwnData) -> tuple[DataPlan, OwnData]:
    """What is to be written for a file; on a terminal, after asking what was guessed."""
    from tfgrpo.data.column_roles import KINDS, guess_columns
    from tfgrpo.init_from_data import plan_files, read_table, shaped
    from tfgrpo.model.settings import DEFAULT_MODEL

    rows = read_table(source)
    if sys.stdin.isatty() and sys.stdout.isatty():

        def guessed() -> ColumnGuess:
            fields = [row.fields for row in shaped(rows, own)[0]]
            return guess_columns(fields, own.problem, own.answers, own.kind)

        names = ", ".join(dict.fromkeys(name for row in rows for name in row.fields))
        printing.echo(f"{source}: {len(rows):,} rows with the fields {names}")
        guess = guessed()  # a field that is named is asked alone: Enter names none
        if own.problem is None:
            problem = printing.prompt("Which field is asked?", guess.problem)
            own = own if problem == guess.problem else replace(own, problem=problem)
        guess = guessed()
        if not own.answers:
            question, guessed_ones = "Which field is the answer (several: a,b)?", guess.answers
            answer = printing.prompt(question, ",".join(guessed_ones))
            answers = tuple(filter(None, map(str.strip, answer.split(","))))
            own = own if answers == guess.answers else replace(own, answers=answers)
        if own.kind is None:
            guess = guessed()
            printing.echo(guess.why[-1])
            kind = printing.prompt("How are answers judged?", guess.kind, choices=KINDS)
            own = replace(own, kind=next(known for known in KINDS if known == kind))
        if own.model is None:
            own = replace(own, model=printing.prompt("Which model?", DEFAULT_MODEL))
            if not own.is_local and own.base_url is None:
                url = printing.prompt("Where is it (empty: OpenAI)?", "")
                own = replace(own, base_url=url or None)
    return plan_files(source, rows, own), own


LEVELS = ("reader", "trainer", "reviewer", "owner")


@click.group(cls=SuggestingGroup)
def store() -> None:
    """List, add, change or remove the members of a store in a database.

    A member is a user of the database. A reader reads; a trainer also records runs, proposals,
    versions and moves of names that are not protected; a reviewer records no runs, moves protected
    names as well, decides and redacts; an owner does all of it and says who may do what. Nobody may
    change or delete what is recorded.

    \b
    Examples:
      tfgrpo --store postgresql://ann@db/team store members
      tfgrpo --store postgresql://ann@db/team store grant bob --as trainer
    """


@store.command()
@JSON
@pass_app
def members(app: App, as_json: bool) -> None:
    """List the members, each with a level.

    \b
    Examples:
      tfgrpo --store postgresql://ann@db/team store members
    """
    there = members_of(app.store.port).all()
    lines = printing.table([(one.name, one.level) for one in there], header=("member", "level"))
    printing.answer(app, [member._asdict() for member in there], lines, as_json)


@store.command()
@click.argument("user")
@option("--as", "What they may do.", name="level", type=click.Choice(LEVELS), required=True)
@pass_app
def grant(app: App, user: str, level: str) -> None:
    """Let USER of the database do what a level may, and nothing more.

    \b
    Examples:
      tfgrpo --store postgresql://ann@db/team store grant bob --as reviewer
    """
    members_of(app.store.port).grant(user, cast("Level", level))
    printing.echo(f"{user} is {'an' if level == 'owner' else 'a'} {level} now")


@store.command()
@click.argument("user")
@pass_app
def revoke(app: App, user: str) -> None:
    """Take away whatever USER may do in the store. What they recorded stays.

    \b
    Examples:
      tfgrpo --store postgresql://ann@db/team store revoke bob
    """
    members_of(app.store.port).revoke(user)
    printing.echo(f"{user} is no member any more")
