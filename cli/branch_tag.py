"""`tfgrpo branch` and `tfgrpo tag`: names for versions."""

from __future__ import annotations

import click

from tfgrpo.cli import printing
from tfgrpo.cli.flags import JSON, Decorator, flag, option, together
from tfgrpo.cli.start_context import BRANCH, REVISION, TAG, App, Given, pass_given
from tfgrpo.store.history import name_moves
from tfgrpo.store.history.log_filter import subject, why_named
from tfgrpo.store.history.name_moves import NameKind
from tfgrpo.store.history.revisions import meant_by
from tfgrpo.store.records import TAGGED, Version
from tfgrpo.store.store import Store


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
        flag("-l, --list", "List only names that match NAME, such as 'web*'.", name="list_"),
        JSON,
    )


@click.command()
@naming(BRANCH, "-m, --rename")
@flag("-a, --all", "List the remotes' branches too.", name="all_")
@flag("-v, --verbose", "Accepted as in git; the list always shows everything.", expose_value=False)
@flag("--show-current", "Print the name of HEAD's branch.", name="current")
@flag("-D", "The same as --delete --force.", name="delete_forced")
@flag("--back", "Move it back: to REVISION, or where it stood before.")
@option("--why", "With --back: the reason, for the record.")
@pass_given
def branch(app: App, given: Given) -> None:
    """List branches, or create, move, rename, protect or delete one.

    Each domain's library is a branch. Every move is recorded in the reflog: after a move,
    NAME@{1} is where the branch was. A protected branch refuses new versions, merges, resets,
    undo, renames and deletion without --force. While an experiment runs on a branch, or tries it,
    that is not renamed or deleted without --force.

    --back is for an incident: the next request has that library. It is one move of a name, nothing
    is deleted, a second one goes further back, and an experiment on the branch is stopped. Who did
    it, when and why is in `tfgrpo log --decisions` and `tfgrpo reflog`.

    \b
    Examples:
      tfgrpo branch draft v1
      tfgrpo branch -m trunk
      tfgrpo branch --protect main
      tfgrpo branch --back prod --why "answers in the wrong unit"
    """
    if given.current:
        current = app.store.head.branch
        printing.answer(app, {"head": current}, [current or ""], given.as_json)
        return
    if given.delete_forced:
        given.delete_ = given.force = True
    _work(app, "branch", given)


@click.command()
@naming(TAG, "--rename")
@option("-m, --message", "Why; recorded in the reflog, and listed.")
@flag("-s, --sign", "Sign the tag with your SSH key.")
@option("--verify", "Check a tag's signature; exit with 1 unless it is good.", type=TAG)
@flag("-a, --annotate", "Accepted as in git; every tag is annotated.", expose_value=False)
@pass_given
def tag(app: App, given: Given) -> None:
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
    _work(app, "tag", given)


OWN = dict.fromkeys(("message", "back", "why", "all_", "sign", "verify"))
"""What only one of the two takes."""


def _work(app: App, kind: NameKind, given: Given) -> None:
    given = Given(**OWN | vars(given))
    name, revision, message, force = given.name, given.revision, given.message or "", given.force
    others = [one is not None for one in (given.protect, given.unprotect, given.verify)]

    def tell(line: str, **fields: object) -> None:
        printing.answer(app, fields, [line], given.as_json)

    one_of = (given.rename, bool(given.back), given.delete_, *others)
    if given.list_ or given.all_:
        if any((*one_of, given.sign, given.message, given.why, revision)):
            raise click.UsageError("--list and --all list names, and do nothing else")
        _list(app, kind, given)
        return
    if sum(one_of) > 1 or (any(others) and name is not None):
        raise click.UsageError("give only one of NAME, --rename, --back, --protect and --unprotect")
    for one in ("delete_", "rename", "back", "message", "sign"):
        if getattr(given, one) and name is None:
            raise click.UsageError(f"--{one.rstrip('_')} needs a name")
    if bool(given.back) != (given.why is not None):
        wrong = "--back needs --why REASON" if given.back else "--why goes with --back"
        raise click.UsageError(wrong)
    if given.delete_ and revision is not None:
        raise click.UsageError(f"--delete takes one name, without {revision}")
    if force:
        app.force()
    store, at = app.store, "HEAD" if revision is None else revision
    if given.back:
        from tfgrpo.production.rollback import rollback

        done = rollback(store, name, why=given.why, to=revision)
        app.has_moved(name)
        line = f"{name} is at {done.after.name} again (was {done.before.name})"
        line += f"\nexperiment {done.experiment} was stopped" if done.experiment else ""
        versions = {"version": done.after.name, "was": done.before.name}
        tell(line, branch=name, **versions, experiment=done.experiment)
    elif given.rename:
        old, new = name, revision
        if new is None:  # NEW alone, for the branch that HEAD is on
            old, new = store.head.branch if kind == "branch" else None, name
        if old is None:
            raise click.UsageError(f"--rename needs two names: the {kind}'s, and {new}")
        become = _rename(store, kind, old, new)
        line = "\n".join((f"renamed {kind} {old} to {new}", *become))
        tell(line, **{kind: new}, was=old, **({"experiments": become} if become else {}))
    elif given.protect is not None:
        new_ = name_moves.protect(store, kind, given.protect)
        line = f"{kind} {given.protect} is {'now' if new_ else 'already'} protected"
        tell(line, **{kind: given.protect}, protected=True, changed=new_)
    elif given.unprotect is not None:
        was = name_moves.unprotect(store, kind, given.unprotect)
        line = f"{kind} {given.unprotect} is {'no longer' if was else 'not'} protected"
        tell(line, **{kind: given.unprotect}, protected=False, changed=was)
    elif given.verify is not None:
        _verify(app, given.verify, given.as_json)
    elif name is None:
        _list(app, kind, given)
    elif given.delete_:
        version, become = _delete(store, kind, name)
        line = f"deleted {kind} {name} (was {version.name}); the version is kept"
        fields = {kind: name, "version": None, "was": version.name}
        fields |= {"experiments": become} if become else {}
        tell("\n".join((line, *become)), **fields)
    elif given.sign:
        from tfgrpo.author import signing_key
        from tfgrpo.store import signing

        sign = signing.signer(signing_key(str(app.root)))
        version = signing.sign_tag(store, name, at, sign, message, force=force)
        line = f"tagged {version.name} as {name}, signed"
        tell(line, tag=name, version=version.name, signed=True)
    elif kind == "tag":
        version = store.create_tag(name, at, force=force, why=message)
        line = f"tagged {version.name} as {name}"
        tell(line, tag=name, version=version.name, signed=False)
    elif force and store.has_branch(name):
        was_at = store.tip(name)
        version = store.move_branch(name, at)
        app.has_moved(name)
        line = f"moved branch {name} from {was_at.name} to {version.name}"
        tell(line, branch=name, version=version.name, was=was_at.name)
    else:
        at = store.create_branch(name, at).name
        line = f"created branch {name} at {at}; `tfgrpo switch {name}` switches to it"
        tell(line, branch=name, version=at, was=None)


def _delete(store: Store, kind: NameKind, name: str) -> tuple[Version, list[str]]:
    """Deletes a name; returns where it stood, and what becomes of experiments that have it."""
    if kind == "tag":
        return store.delete_tag(name), []
    from tfgrpo.production.experiment import delete_branch

    return delete_branch(store, name)


def _rename(store: Store, kind: NameKind, old: str, new: str) -> list[str]:
    """Renames a branch or tag; returns what becomes of experiments that have the old name."""
    if kind == "tag":
        name_moves.rename(store, kind, old, new)
        return []
    from tfgrpo.production.experiment import rename_branch

    return rename_branch(store, old, new)


def _verify(app: App, name: str, as_json: bool) -> None:
    from tfgrpo.store import signing

    checked = signing.check_tag(app.store, name)
    version = app.store.resolve(name).name
    fields = {"tag": name, "version": version, **checked.object}
    printing.answer(app, fields, [f"{name} ({version}): {checked}"], as_json)
    if checked.by is None:
        click.get_current_context().exit(1)


def _list(app: App, kind: NameKind, given: Given) -> None:
    store, like = app.store, given.name or "*"
    names = store.branches() if kind == "branch" else store.tags()
    if given.all_:
        names |= store.remote_branches()
    if like != "*":
        from fnmatch import fnmatchcase

        names = {name: number for name, number in names.items() if fnmatchcase(name, like)}
    protected, signed = name_moves.protected(store, kind), set[str]()
    if kind == "tag":
        own = {v.number: v.meta.get(TAGGED) for v in store.versions_at(set(names.values()))}
        signed = {name for name, number in names.items() if own[number] == name}
        names = meant_by(store, names)
    here, mark = (store.head.branch, "  ") if kind == "branch" else (None, "")
    if given.as_json:
        fields: dict[str, object] = {"tags": names} | ({"signed": sorted(signed)} if signed else {})
        fields = {"head": here, "branches": names} if kind == "branch" else fields
        printing.emit_json({**fields, "protected": sorted(protected & set(names))})
        return
    rows = []
    for n, v in names.items():
        marks = "(protected) " * (n in protected) + "(signed) " * (n in signed)
        why = why_named(store, kind, n) or subject(store, store.version(v))
        rows.append((("* " if n == here else mark) + n, f"v{v}", marks + why))
    printing.emit(app, printing.table(rows, header=(mark + kind, "at", "message")))
