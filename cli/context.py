"""What a command finds when it starts: the store, the settings file, who is at the keyboard."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from tfgrpo.store.find import FILE, FOLDER, find_file, project_root

if TYPE_CHECKING:
    from pathlib import Path

    from click.shell_completion import CompletionItem

    from tfgrpo.store.store import Store

AUTHOR = "TFGRPO_AUTHOR"


class App:
    """The store of this invocation, opened when it is first asked for."""

    def __init__(self, store: str | None, *, pager: bool = True) -> None:
        self.pager = pager
        self._named = store or None
        self._store: Store | None = None

    @property
    def named(self) -> Path | None:
        """The store file that --store names."""
        from pathlib import Path

        return None if self._named is None else Path(self._named)

    @property
    def path(self) -> Path:
        """The store's file: the one named, else the nearest. Raises StoreError."""
        from pathlib import Path

        return Path(self.file)

    @property
    def file(self) -> str:
        """The same as a string: a view has no need of `pathlib`, which is slow to load."""
        return self._named or find_file(os.getcwd())

    @property
    def new_path(self) -> Path:
        """Where a new store would be made."""
        from pathlib import Path

        return Path(self._named) if self._named else Path.cwd() / FOLDER / FILE

    @property
    def root(self) -> Path:
        """The folder the store belongs to: where `tfgrpo.toml` is looked for."""
        return project_root(self.path)

    @property
    def store(self) -> Store:
        """The store, opened. Raises StoreError."""
        if self._store is None:
            from tfgrpo.store.store import Store

            self._store = Store.open(self.file, author=author())
        return self._store

    @property
    def opened(self) -> Store | None:
        """The store, if it was opened already."""
        return self._store

    def adopt(self, store: Store) -> None:
        """Uses a store that was just made."""
        self._store = store

    def close(self) -> None:
        """Closes what was opened."""
        if self._store is not None:
            self._store.close()


def author() -> str:
    """Returns who signs versions: $TFGRPO_AUTHOR, else the login name."""
    for name in (AUTHOR, "LOGNAME", "USER"):  # the last two as getpass has it, not loaded for them
        if os.environ.get(name):
            return os.environ[name]
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no such user, as in some containers
        return "unknown"


pass_app = click.make_pass_decorator(App)


class Revision(click.ParamType[str]):
    """A revision, completed from branches, tags, steps and versions."""

    name = "revision"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Offers the names that begin with what was typed."""
        return _offer(ctx, incomplete, revisions)


class ExperienceId(click.ParamType[str]):
    """An experience: its id, the beginning of it, or a label such as G3."""

    name = "id"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Offers the ids and labels at HEAD that begin with what was typed."""
        return _offer(ctx, incomplete, experiences)


class RemoteName(click.ParamType[str]):
    """A remote, or where another store is."""

    name = "remote"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Offers the remotes that begin with what was typed."""
        return _offer(ctx, incomplete, remotes)


def remotes(store: Store) -> list[tuple[str, str]]:
    """Returns the remotes' names, each with its location."""
    from tfgrpo.store.remotes import Remotes

    return list(Remotes(store).all().items())


def revisions(store: Store) -> list[tuple[str, str]]:
    """Returns the names a revision may have, each with a word of help."""
    from tfgrpo.store.revisions import run_of_history

    names = [("HEAD", "where HEAD is")]
    names += [(name, f"branch at v{number}") for name, number in store.branches().items()]
    names += [
        (name, f"remote branch at v{number}") for name, number in store.remote_branches().items()
    ]
    tags = store.tags()
    names += [(name, f"tag at v{number}") for name, number in tags.items()]
    run = f"{run_of_history(store, store.head.version)}/"
    steps = {name.removeprefix(run): v for name, v in tags.items() if name.startswith(run)}
    names += [(name, f"of run {run[:-1]}, at v{number}") for name, number in steps.items()]
    newest = store.port.last_version()
    return names + [(f"v{n}", "") for n in range(newest, max(-1, newest - 30), -1)]


def experiences(store: Store) -> list[tuple[str, str]]:
    """Returns the ids and labels of the library at HEAD, each with its text."""
    library = store.library("HEAD")
    pairs = [(e.id, e.text) for e in library]
    return pairs + [(label, library.by_id[id].text) for label, id in library.labels.items()]


def _offer(ctx: click.Context, incomplete: str, names: Any) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from tfgrpo.store.errors import TfgrpoError

    root = ctx.find_root()
    app = App(root.params.get("store") or os.environ.get("TFGRPO_STORE"))
    try:
        found = names(app.store)
    except TfgrpoError:  # no store here: nothing to offer, and a shell is no place to say so
        return []
    finally:
        app.close()
    return [CompletionItem(n, help=h or None) for n, h in found if n.startswith(incomplete)]


REVISION = Revision()
EXPERIENCE = ExperienceId()
REMOTE = RemoteName()
