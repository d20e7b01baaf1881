"""`tfgrpo branch` and `tfgrpo tag`: names for versions."""

from __future__ import annotations

from typing import Any, NamedTuple

import click

from tfgrpo.cli import checkout, printing
from tfgrpo.cli.flags import JSON, Decorator, flag, option, together
from tfgrpo.cli.start_context import BRANCH, REVISION, TAG, App, pass_app
from tfgrpo.store.history import name_moves
from tfgrpo.store.history.log_filter import subject, why_named
from tfgrpo.store.history.name_moves import NameKind
from tfgrpo.store.history.revisions import meant_by
from tfgrpo.store.records import TAGGED


def naming(type: click.ParamType[str], rename: str) -> Decorator:
    """Adds the parameters that branches and tags share: names of a `type`, and what renames."""
    return together(
        click.argument("name", required=False, type=type),
        click.argument("revision", required=False, type=REVISION),
        flag("-f, --force", "Move an existing or protected one."),
        flag("-d, --delete", "Delete the name; versions are kept.", name="delete_"),
        flag(rename, "Rename OLD (a branch: HEAD's) to NEW.", name="rename"),
        option("--protect", "Refuse to move it without --force.", type=type),
        option("--unprotect", "Allow it to move again.", type=type),
        flag("-l, --list", "List those like NAME: 'web*'.", name="list_"),
        JSON,
    )


@click.command()
@naming(BRANCH, "-m, --rename")
@flag("-a, --all", "List the remotes' branches too.", name="all_")
@flag("-v, --verbose", "Changes nothing: the list is whole.", expose_value=False)
@flag("--show-current", "Print the name of HEAD's branch.", name="current")
@flag("-D", "The same as --delete --force.", name="delete_forced")
@flag("--back", "Move it back: to REVISION, or where it stood before.")
@option("--why", "With --back: the reason, for the record.")
@pass_app
def branch(app: App, /, current: bool, delete_forced: bool, **flags: Any) -> None:
    """List branches, or create, move, rename, protect or delete one.

    Each domain's library is a branch. Every move is recorded in the reflog: after a move,
    NAME@{1} is where the branch was. A protected branch refuses new versions, merges, resets,
    undo, renames and deletion without --force.

    --back is for an incident: the next request has that library. It is one move of a name, nothing
    is deleted, a second one goes further back, and an experiment on the branch is stopped. Who did
    it, when and why is in `tfgrpo log --decisions` and `tfgrpo reflog`.

    \b
    Examples:
      tfgrpo branch draft v1
      tfgrpo branch -m trunk
      tfgrpo branch --protect main
      tfgrpo branch --back prod --why "answers in the wrong unit"
      tfgrpo branch --back prod v1 --why "incident 214"
    """
    if current:
        printing.echo(app.store.head.branch or "")
        return
    if delete_forced:
        flags |= {"delete_": True, "force": True}
    _work(app, "branch", NameFlags(**flags))


@click.command()
@naming(TAG, "--rename")
@option("-m, --message", "Why; recorded in the reflog, and listed.")
@flag("-s, --sign", "Sign the tag with your SSH key.")
@option("--verify", "Check a tag's signature; exit with 1 unless it is good.", type=TAG)
@flag("-a, --annotate", "Changes nothing: every tag is so.", expose_value=False)
@pass_app
def tag(app: App, /, **flags: Any) -> None:
    """List tags, or create, move, rename, protect or delete one.

    Training tags its steps RUN/step_N. An existing tag moves only with --force.

    A signed tag is verified with `ssh-keygen` by whoever has your public key in the file
    .tfgrpo/allowed_signers. The key is that of [commit] in tfgrpo.toml, else git's user.signingkey.

    \b
    Examples:
      tfgrpo tag approved v1 -m "read by both of us"
      tfgrpo tag approved v1 && tfgrpo tag --protect approved
      tfgrpo tag -s released && tfgrpo tag --verify released
    """
    _work(app, "tag", NameFlags(**flags))


class NameFlags(NamedTuple):
    """What `branch` or `tag` was asked to do."""

    name: str | None
    revision: str | None
    force: bool
    delete_: bool
    rename: bool
    protect: str | None
    unprotect: str | None
    as_json: bool
    list_: bool
    message: str | None = None
    back: bool = False
    why: str | None = None
    all_: bool = False
    sign: bool = False
    verify: str | None = None


def _work(app: App, kind: NameKind, flags: NameFlags) -> None:
    name, revision, force, delete_, rename, protect, unprotect = flags[:7]
    message, back, why = flags.message, flags.back, flags.why
    if flags.list_ or flags.all_:
        _list(app, kind, flags)
        return
    given = [flag is not None for flag in (protect, unprotect, flags.verify)]
    if sum((rename, back, delete_, *given)) > 1 or (any(given) and name is not None):
        raise click.UsageError("give only one of NAME, --rename, --back, --protect and --unprotect")
    wanting = {
        "--delete": delete_,
        "--rename": rename,
        "--back": back,
        "--message": message,
        "--sign": flags.sign,
    }
    if any(wanting.values()) and name is None:
        raise click.UsageError(f"{next(f for f, given in wanting.items() if given)} needs a name")
    if back != (why is not None):
        raise click.UsageError("--back needs --why REASON" if back else "--why goes with --back")
    if delete_ and revision is not None:
        raise click.UsageError(f"--delete takes one name: what is {revision}?")
    if force:
        app.force()
    store, at = app.store, "HEAD" if revision is None else revision
    if back:
        _go_back(app, str(name), revision, str(why))
    elif rename:
        old, new = _renaming(app, kind, str(name), revision)
        name_moves.rename(store, kind, old, new)
        printing.echo(f"renamed {kind} {old} to {new}")
    elif protect is not None:
        new_ = name_moves.protect(store, kind, protect)
        printing.echo(f"{kind} {protect} is {'now' if new_ else 'already'} protected")
    elif unprotect is not None:
        was = name_moves.unprotect(store, kind, unprotect)
        printing.echo(f"{kind} {unprotect} is {'no longer' if was else 'not'} protected")
    elif flags.verify is not None:
        _verify(app, flags.verify, flags.as_json)
    elif name is None:
        _list(app, kind, flags)
    elif delete_:
        version = store.delete_branch(name) if kind == "branch" else store.delete_tag(name)
        printing.echo(f"deleted {kind} {name} (was {version.name}); the version is kept")
    elif flags.sign:
        from tfgrpo.author import signing_key
        from tfgrpo.store import signing

        sign = signing.signer(signing_key(str(app.root)))
        version = signing.sign_tag(store, name, at, sign, message or "", force=force)
        printing.echo(f"tagged {version.name} as {name}, signed")
    elif kind == "tag":
        version = store.create_tag(name, at, force=force, why=message or "")
        printing.echo(f"tagged {version.name} as {name}")
    elif force and store.has_branch(name):
        was_at = store.tip(name)
        version = store.move_branch(name, at)
        printing.echo(f"moved branch {name} from {was_at.name} to {version.name}")
        if store.head.branch == name:
            checkout.materialise(app)
    else:
        version = store.create_branch(name, at)
        printing.echo(
            f"created branch {name} at {version.name}; `tfgrpo switch {name}` switches to it"
        )


def _verify(app: App, name: str, as_json: bool) -> None:
    """Says whether a tag is signed by somebody who is allowed to, and exits with 1 if not."""
    from tfgrpo.store import signing

    checked = signing.check_tag(app.store, name)
    version = app.store.resolve(name)
    if as_json:
        printing.emit_json({"tag": name, "version": version.name, **checked.object})
    else:
        printing.echo(f"{name} ({version.name}): {printing.shown(str(checked))}")
    if checked.by is None:
        click.get_current_context().exit(1)


def _go_back(app: App, branch: str, to: str | None, why: str) -> None:
    from tfgrpo.production.rollback import rollback

    done = rollback(app.store, branch, why=why, to=to)
    if app.store.head.branch == branch:
        checkout.materialise(app)
    printing.echo(f"{branch} is at {done.after.name} again (was {done.before.name})")
    if done.experiment is not None:
        printing.echo(f"experiment {done.experiment} was stopped")


def _renaming(app: App, kind: NameKind, first: str, second: str | None) -> tuple[str, str]:
    """The old and the new name: `OLD NEW`, or NEW alone for the branch HEAD is on."""
    if second is not None:
        return first, second
    here = app.store.head.branch if kind == "branch" else None
    if here is None:
        raise click.UsageError(f"--rename needs two names: the {kind}'s, and {first}")
    return here, first


def _list(app: App, kind: NameKind, flags: NameFlags) -> None:
    store, like = app.store, flags.name or "*"
    names = store.branches() if kind == "branch" else store.tags()
    if flags.all_:
        names |= store.remote_branches()
    if like != "*":
        from fnmatch import fnmatchcase

        names = {name: number for name, number in names.items() if fnmatchcase(name, like)}
    protected, signed = name_moves.protected(store, kind), set[str]()
    if kind == "tag":
        own = {v.number: v.meta.get(TAGGED) for v in store.versions_at(set(names.values()))}
        signed = {name for name, number in names.items() if own[number] == name}
        names = meant_by(store, names)
    if flags.as_json:
        tags = {"tags": names} | ({"signed": sorted(signed)} if signed else {})
        fields: dict[str, object] = {"branches": names} if kind == "branch" else {**tags}
        head = {"head": store.head.branch} if kind == "branch" else {}
        printing.emit_json({**head, **fields, "protected": sorted(protected & set(names))})
        return
    here = store.head.branch if kind == "branch" else None
    mark = "  " if kind == "branch" else ""
    rows = [
        (
            ("* " if n == here else mark) + n,
            f"v{v}",
            ("(protected) " if n in protected else "")
            + ("(signed) " if n in signed else "")
            + (why_named(store, kind, n) or subject(store, store.version(v))),
        )
        for n, v in names.items()
    ]
    printing.emit(app, printing.table(rows, header=(mark + kind, "at", "message")))
