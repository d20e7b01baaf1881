"""What a command finds when it starts: the store, the settings file, who is at the keyboard."""

from __future__ import annotations

import os
import re
from contextlib import ExitStack, contextmanager
from functools import wraps
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click

from tfgrpo.author import default_author, default_signer
from tfgrpo.store import address
from tfgrpo.store.errors import InvalidOperation, StoreError, TfgrpoError, install_hint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from click.shell_completion import CompletionItem

    from tfgrpo.project import Project
    from tfgrpo.store.store import Store

LARGEST = 10**9
"""Scores, and what they spread by, are no larger than this."""


class App:
    """The store of this invocation, opened when it is first asked for."""

    def __init__(self, store: str | None, *, pager: bool = True) -> None:
        self.pager = pager
        self._named = str(address.named_by(store)) if store else None
        self.opened: Store | None = None
        """The store, if it was opened already."""
        self._forced = False
        self.unchecked = False
        """Whether the store is opened as it was found: see `Store.open`."""
        self._until_closed = ExitStack()

    @property
    def named(self) -> Path | None:
        """The store file that --store names, or what stands for a database on this machine."""
        return None if self._named is None else address.anchor(self._named)

    @property
    def is_shared(self) -> bool:
        """Whether the store is in a database."""
        return self._named is not None and address.is_address(self._named)

    @property
    def path(self) -> Path:
        """The store's file: the one named, else the nearest. Raises StoreError."""
        return address.anchor(self.location)

    @property
    def file(self) -> str:
        """The same as a string: a view has no need of `pathlib`, which is slow to load."""
        return str(self.path) if self.is_shared else self.location

    @property
    def location(self) -> str:
        """What opens the store: its file, or the address of a database without the password."""
        return self._named or address.find_file(os.getcwd())

    @property
    def new_path(self) -> Path:
        """Where a new store would be made."""
        from pathlib import Path

        here = Path.cwd() / address.FOLDER / address.FILE
        return address.anchor(self._named) if self._named else here

    @property
    def new_file(self) -> str:
        """What opens a new store: its file, or the address of a database."""
        return self._named or str(self.new_path)

    @property
    def root(self) -> Path:
        """The folder the store belongs to: where `tfgrpo.toml` is looked for."""
        return address.project_root(self.path)

    @property
    def root_or_here(self) -> Path:
        """The folder the store belongs to, and this one where there is none."""
        from pathlib import Path

        try:
            return self.root
        except StoreError:
            return Path.cwd()

    def author(self) -> str:
        """Who signs what is recorded; asked for only by what records something."""
        return default_author(address.project_folder(self.file))

    @property
    def store(self) -> Store:
        """The store, opened. Raises StoreError."""
        if self.opened is None:
            from tfgrpo.store.store import Store

            opened = Store.open(self.location, author=self.author, unchecked=self.unchecked)
            self.adopt(opened)
        assert self.opened is not None
        return self.opened

    def branch(self, wanted: str = "a new version needs a branch") -> str:
        """HEAD's branch, `wanted` for something. Raises InvalidOperation where it is detached."""
        branch = self.store.head.branch
        if branch is None:
            from tfgrpo.store.history.name_moves import branch_to_return_to

            there = branch_to_return_to(self.store)
            switch = f"`tfgrpo switch {there}` switches to one, " if there else ""
            hint = f"{switch}`tfgrpo checkout -b NAME HEAD` creates one"
            raise InvalidOperation(f"HEAD is detached: {wanted}", hint=hint)
        return branch

    def adopt(self, store: Store) -> None:
        """Uses a store that was just made or opened."""
        self.opened = store
        store.signer = default_signer(address.project_folder(store.file))
        if self._forced:
            self.force()

    def pretend(self) -> None:
        """Uses an empty store in memory where there is none: nothing is written."""
        from tfgrpo.store.store import Store

        self._named = self.new_file
        self.adopt(Store.empty(self._named, author=self.author))

    def make_store(self) -> Store:
        """Makes a store in place of the one in memory, and uses it."""
        from tfgrpo.store.store import Store

        if self.opened is not None:
            self.opened.close()
        self.adopt(Store.init(self.new_file, author=self.author))
        return self.store

    def project(self, config: Path | None = None) -> Project:
        """The project of the store, or of this folder where there is none; on a terminal it is
        asked for trust."""
        from tfgrpo.cli import trust
        from tfgrpo.project import open_project

        trust.ask_on_a_terminal()
        return open_project(self.root_or_here, config)

    def write_library(self, format_: str = "json", output: str | None = None) -> str:
        """Writes the library at HEAD for inference; returns where."""
        from tfgrpo.hand_edits import write_library

        return write_library(self.store, format_, output)

    def has_moved(self, branch: str) -> None:
        """Writes the library anew where HEAD is on a branch that was moved."""
        if self.store.head.branch == branch:
            self.write_library()

    def force(self) -> None:
        """Lets protected names move for as long as this command runs."""
        self._forced = True
        if self.opened is not None:
            self._until_closed.enter_context(self.opened.forced())

    def close(self) -> None:
        """Closes what was opened."""
        self._until_closed.close()
        if self.opened is not None:
            self.opened.close()


@contextmanager
def needed(extra: str, words: str, *packages: str) -> Iterator[None]:
    """Turns a missing package of an extra into an error in these words, with what installs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in packages:
            raise
        raise TfgrpoError(words.format(package), hint=install_hint(extra)) from None


pass_app = click.make_pass_decorator(App)


class Given(SimpleNamespace):
    """The arguments and options of a command, by name."""

    def of(self, *names: str) -> dict[str, Any]:
        """Some of them."""
        return {name: getattr(self, name) for name in names}


def pass_given(command: Callable[[App, Given], None]) -> Callable[..., None]:
    """Gives a command the store, and its arguments and options as one record."""

    @wraps(command)
    def called(app: App, /, **given: Any) -> None:
        command(app, Given(**given))

    return pass_app(called)


def refuse_others(names: tuple[str, ...], why: str) -> None:
    """Raises UsageError where anything is given that is none of these, nor --json."""
    context, typed = click.get_current_context(), click.core.ParameterSource.COMMANDLINE
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "") is typed
        if given and parameter.name not in (*names, "as_json"):
            is_option = isinstance(parameter, click.Option)
            called = parameter.opts[0] if is_option else parameter.human_readable_name
            raise click.UsageError(f"{called} {why}")


class Finite(click.types.FloatParamType):
    """A number that can be calculated with: not `nan`, and no larger than a score can be."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number: float = super().convert(value, param, ctx)
        if not abs(number) <= LARGEST:
            self.fail(f"{value!r} is no number from -{LARGEST:,} to {LARGEST:,}.", param, ctx)
        return number


FINITE = Finite()


class Named(click.ParamType[str]):
    """Text that the shell completes from what the store holds."""

    def __init__(
        self, name: str, *offers: Callable[[Store], list[tuple[str, str]]], ranges: bool = False
    ) -> None:
        self.name = name
        self._offers = offers
        self._ranges = ranges

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Offers the names that begin with what was typed; in a range, for the side typed."""
        from click.shell_completion import CompletionItem

        from tfgrpo.cli.printing import shown

        done, dots, typed = incomplete.rpartition("..") if self._ranges else ("", "", incomplete)
        root = ctx.find_root()
        app = App(root.params.get("store") or os.environ.get("TFGRPO_STORE"))
        try:
            pairs = [pair for offer in self._offers for pair in offer(app.store)]
        except TfgrpoError:  # no store here: nothing to offer, and a shell is no place to say so
            return []
        finally:
            app.close()
        # bash puts a name into the line as it is; zsh and fish quote it themselves
        bare = os.environ.get("_TFGRPO_COMPLETE", "").startswith("bash")
        return [
            CompletionItem(shown(_quoted(name) if bare else name), help=shown(h) or None)
            for name, h in ((done + dots + n, h) for n, h in pairs if n.startswith(typed))
        ]


def _quoted(name: str) -> str:
    """A name as a shell reads it again, whatever characters it has."""
    return re.sub(r"([^\w@%+=:,./~^{}-])", r"\\\1", name)


def branches(store: Store) -> list[tuple[str, str]]:
    """The branches, each with where it stands."""
    return [(name, f"branch at v{number}") for name, number in store.branches().items()]


def tags(store: Store) -> list[tuple[str, str]]:
    """The tags, each with where it stands."""
    from tfgrpo.store.history.revisions import meant_by

    meant = meant_by(store, store.tags())
    return [(name, f"tag at v{number}") for name, number in meant.items()]


def names(store: Store) -> list[tuple[str, str]]:
    """HEAD, the branches, the remotes' branches and the tags."""
    remote = [(name, f"remote branch at v{n}") for name, n in store.remote_branches().items()]
    return [("HEAD", "where HEAD is"), *branches(store), *remote, *tags(store)]


def remotes(store: Store) -> list[tuple[str, str]]:
    """The remotes' names, each with its location."""
    from tfgrpo.store.transfer.remotes import Remotes

    return list(Remotes(store).all().items())


def revisions(store: Store) -> list[tuple[str, str]]:
    """The names a revision may have, each with a word of help."""
    from tfgrpo.store.history.revisions import run_of_history

    offers = names(store)
    run = f"{run_of_history(store, store.head.version)}/"
    steps = {name.removeprefix(run): v for name, v in store.tags().items() if name.startswith(run)}
    offers += [(name, f"of run {run[:-1]}, at v{number}") for name, number in steps.items()]
    newest = store.port.last_version()
    return offers + [(f"v{n}", "") for n in range(newest, max(-1, newest - 30), -1)]


def experiences(store: Store) -> list[tuple[str, str]]:
    """The ids and labels of the library at HEAD, each with its text."""
    library = store.library("HEAD")
    pairs = [(e.id, e.text) for e in library]
    return pairs + [(label, library.by_id[id].text) for label, id in library.labels.items()]


def runs(store: Store) -> list[tuple[str, str]]:
    """The runs, each with its branch."""
    return [(run.name, f"run on {run.branch}") for run in store.runs.listed()]


REVISION = Named("revision", revisions)
RANGE = Named("revision", revisions, ranges=True)
WHAT = Named("revision", revisions, experiences)
EXPERIENCE = Named("id", experiences)
NAME = Named("name", names)
BRANCH = Named("branch", branches)
TAG = Named("tag", tags)
REF = Named("name", branches, tags)
RUN = Named("run", runs)
REMOTE = Named("remote", remotes)
