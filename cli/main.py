"""The `tfgrpo` command: a group whose verbs are imported when they are called."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
from contextlib import suppress
from typing import Any

COLLECTS = gc.isenabled()
gc.disable()  # what is loaded is no garbage: to search it takes a tenth of a short command's time
RAISES = signal.getsignal(signal.SIGINT) is signal.default_int_handler
with suppress(ValueError):  # not in the main thread
    if RAISES:  # Ctrl-C while modules load ends this process, and prints no traceback
        signal.signal(signal.SIGINT, signal.SIG_DFL)

import click  # noqa: E402

from tfgrpo.cli.flags import flag, option  # noqa: E402
from tfgrpo.cli.help import EVERYTHING, NEEDLESS, SuggestingGroup, nearest  # noqa: E402
from tfgrpo.cli.start_context import App  # noqa: E402
from tfgrpo.store.errors import NO_ROOM, TfgrpoError, advice, hide_secrets  # noqa: E402
from tfgrpo.store.exit_codes import FAILED, INTERRUPTED, UNREAD  # noqa: E402

SECTIONS = {
    "Learn": {
        "init": ("init_store", "create a store here"),
        "train": ("train_prove", "learn from problems"),
        "eval": ("evaluate", "score a library on a dataset"),
        "compare": ("evaluate", "test whether one library beats another"),
        "prove": ("train_prove", "test each experience on your model and problems"),
        "power": ("evaluate", "how many problems a comparison needs"),
        "verify": ("evaluate", "try a verifier on test cases"),
        "runs": ("runs", "list training runs, or show one"),
        "rollouts": ("runs", "the attempts of a run, with their trajectories"),
        "plot": ("runs", "plot the metrics of a run"),
        "cost": ("cost", "tokens and money spent, by stage and step"),
        "workers": ("workers", "make the groups of a run on other machines"),
    },
    "Look": {
        "log": ("log", "versions, newest first"),
        "show": ("show_diff", "a version and its events, or one experience's history"),
        "diff": ("show_diff", "what changed between two versions"),
        "blame": ("blame_credit", "who last changed each experience, and on what evidence"),
        "credit": ("blame_credit", "which experiences help and which hurt"),
        "bisect": ("bisect", "find the version that introduced a problem"),
        "status": ("status", "where HEAD is, unfinished runs, a library in figures"),
        "ui": ("ui", "show the store in a browser"),
    },
    "Move": {
        "checkout": ("checkout_reset_undo", "move HEAD and write the library to a file"),
        "switch": ("checkout_reset_undo", "switch to a branch"),
        "branch": ("branch_tag", "list, create, move, protect or delete branches"),
        "tag": ("branch_tag", "list, create, move, protect or delete tags"),
        "reset": ("checkout_reset_undo", "move HEAD's branch to a version"),
        "undo": ("checkout_reset_undo", "undo the last operation"),
        "redo": ("checkout_reset_undo", "redo what was undone"),
        "reflog": ("checkout_reset_undo", "every move of HEAD, branches and tags"),
    },
    "Change": {
        "add": ("add_modify_edit", "add an experience by hand"),
        "modify": ("add_modify_edit", "change an experience's text"),
        "delete": ("add_modify_edit", "delete experiences"),
        "keep": ("add_modify_edit", "confirm experiences"),
        "move": ("add_modify_edit", "move experiences within the library"),
        "edit": ("add_modify_edit", "edit the library in your editor"),
        "merge": ("merge_pick_revert", "merge a branch into HEAD's"),
        "cherry-pick": ("merge_pick_revert", "apply the changes of versions"),
        "revert": ("merge_pick_revert", "reverse the changes of versions"),
    },
    "Share": {
        "clone": ("clone_fetch_push", "copy another store"),
        "fetch": ("clone_fetch_push", "download versions, branches and tags"),
        "pull": ("clone_fetch_push", "fetch, then merge into HEAD's branch"),
        "push": ("clone_fetch_push", "send branches and tags to a remote"),
        "remote": ("clone_fetch_push", "manage remotes: list, add, remove, set-url"),
        "bundle": ("clone_fetch_push", "pack versions into a file: create, verify, list-heads"),
        "export": ("export_import", "write a library to a file"),
        "import": ("export_import", "read experiences from a file or a mirror"),
        "mirror": ("export_import", "mirror the history to a git repository"),
    },
    "Serve": {
        "proxy": ("proxy_key", "put the library into an application's requests"),
        "key": ("proxy_key", "keys of the proxy's own: new, list, change, revoke"),
        "mcp": ("mcp_watch", "offer the library to agents over MCP"),
        "watch": ("mcp_watch", "keep an AGENTS.md or a SKILL.md up to date"),
        "traffic": ("traffic", "the calls that went through the proxy"),
        "feedback": ("traffic", "record whether a call's answer was right"),
        "experiment": ("experiment", "two versions in production at once, compared"),
        "rollout": ("experiment", "give a change to a share of users, and watch the outcome"),
    },
    "Learn from it": {
        "collect": ("improve", "turn calls that went wrong into problems"),
        "improve": ("improve", "learn from what went wrong, and propose"),
        "proposal": ("proposal", "changes that wait for a decision: list, accept, reject"),
        "regress": ("improve", "see whether a library still helps"),
    },
    "Maintain": {
        "trust": ("trust", "allow what a folder's settings would run or send"),
        "store": ("init_store", "who may do what in a shared store"),
        "redact": ("fsck_redact", "permanently remove a text"),
        "fsck": ("fsck_redact", "check the integrity of the store"),
        "model": ("model", "local models: list, get, serve, rm"),
        "serve": ("clone_fetch_push", "answer a fetch or push over standard input"),
        "completion": ("help", "print a shell completion script"),
        "help": ("help", "the help of a command"),
    },
}
"""Each verb's file in this folder, and a line about it."""
COMMANDS = {verb: entry for verbs in SECTIONS.values() for verb, entry in verbs.items()}
FIRST = (
    *("init", "train", "compare", "status", "log", "show"),
    *("edit", "undo", "proxy", "ui", "help"),
)
"""The verbs of somebody who is new, in the order in which they meet them."""


BROKEN = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
"""What code raises that meets values which cannot be, apart from the errors that we raise."""


class Unread(Exception):
    """Whoever read the output has gone. Click itself would end with 1 on the error of the pipe."""


class Verbs(SuggestingGroup):
    """A group that knows its commands' names and imports one only when it is called."""

    def make_context(self, *args: Any, **more: Any) -> click.Context:
        """Reads the options before the command. Raises Unread."""
        try:
            return super().make_context(*args, **more)
        except BrokenPipeError as error:
            raise Unread from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"tfgrpo.cli.{COMMANDS[cmd_name][0]}")
        name = (
            cmd_name + "_" if cmd_name in ("import", "eval", "help") else cmd_name.replace("-", "_")
        )
        command = getattr(module, name)
        assert isinstance(command, click.Command)
        if not gc.isenabled():  # as `main` has it
            gc.freeze()
            gc.enable()
        return command

    def invoke(self, ctx: click.Context) -> object:
        """Runs a command. What breaks on a damaged store, or is a bug, is an error that says so.
        Raises Unread."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise Unread from error
        except BROKEN as error:
            from tfgrpo.cli.fsck_redact import explained

            raise explained(ctx.obj if isinstance(ctx.obj, App) else None, error) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        everything = ctx.meta.get(EVERYTHING, False)
        for title, verbs in (SECTIONS if everything else {"Commands": FIRST}).items():
            with formatter.section(title):
                formatter.write_dl([(verb, COMMANDS[verb][1]) for verb in verbs])
        if not everything:
            formatter.write_paragraph()
            formatter.write_text(f"`tfgrpo help --all` lists all {len(COMMANDS)} commands.")


def _go_to(ctx: click.Context, param: click.Parameter, folder: str | None) -> str | None:
    if folder is not None:
        os.chdir(folder)
    return folder


@click.group(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "TFGRPO"},
)
@option(
    "--store",
    "Store file, or postgresql://USER@HOST/DATABASE; by default .tfgrpo/store.db here or in a "
    "parent folder.",
    type=click.Path(dir_okay=False),
    envvar="TFGRPO_STORE",
)
@option(
    "-C DIR",
    "Work as if started in DIR.",
    name="folder",
    type=click.Path(exists=True, file_okay=False),
    is_eager=True,
    allow_from_autoenv=False,
    callback=_go_to,
)
@option(
    "--color",
    "When to use colours; the variables NO_COLOR and FORCE_COLOR work too.  [auto]",
    type=click.Choice(["auto", "always", "never"]),
)
@flag("--no-pager", "Do not page long output.")
@click.version_option(package_name="tfgrpo", message="%(prog)s %(version)s")
@click.pass_context
def tfgrpo(
    ctx: click.Context, store: str | None, folder: str | None, color: str | None, no_pager: bool
) -> None:
    """git for what a model has learned.

    A frozen model attempts problems in groups. What sets its right answers apart from its wrong
    ones becomes a short library of experiences for later prompts. Every change to the library is an
    event that can be shown, compared and undone.

    \b
    Examples:
      tfgrpo train problems.jsonl
      tfgrpo log --oneline
    """
    ctx.obj = App(store, pager=not no_pager)
    ctx.call_on_close(ctx.obj.close)
    if color is not None:  # for whatever this process prints with, and what it starts
        for name in ("NO_COLOR", "FORCE_COLOR"):
            os.environ.pop(name, None)
        if color != "auto":
            os.environ["NO_COLOR" if color == "never" else "FORCE_COLOR"] = "1"


def main() -> None:
    """Runs the command line. Errors are one line and a hint; bad usage exits with 2."""
    gc.disable()  # until a command is loaded: nothing that is made until then is garbage
    _open_closed_streams()
    try:
        code = _run()
    except (BrokenPipeError, Unread):
        _drop_unread()
        code = UNREAD
    finally:
        # What is alive now dies with the process. Python would search it for cycles first, which
        # takes a sixth of the time that `tfgrpo log` needs.
        gc.freeze()
    sys.exit(code)


def _open_closed_streams() -> None:
    """Has /dev/null stand for each standard stream that is closed. Otherwise the next file that is
    opened, such as the store's, would have the stream's number, and get what others print."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:  # it is closed, and the lowest number that is free
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", errors="replace"))


def _drop_unread() -> None:
    """Has /dev/null take what nobody reads. Otherwise Python complains of it once more at the
    end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _run() -> int:
    """Runs the command line and returns the exit code. Raises BrokenPipeError or Unread where
    nobody reads what is printed."""
    try:
        code = tfgrpo.main(standalone_mode=False, prog_name="tfgrpo")
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.exceptions.NoArgsIsHelpError as usage:
        from tfgrpo.cli.printing import echo

        echo(usage.format_message())
        return 0
    except click.UsageError as error:
        complain(*usage_words(error))
        return error.exit_code
    except click.ClickException as error:
        complain(error.format_message(), None)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt) as stop:
        if isinstance(stop, click.Abort) and stop.__cause__ is None:
            from tfgrpo.cli.printing import echo

            echo(err=True)  # a question stands there that nobody has answered
        complain("interrupted", None)
        return INTERRUPTED
    except TfgrpoError as error:
        complain(str(error), error.hint)
        return error.exit_code
    except BrokenPipeError:
        raise
    except OSError as error:
        complain(f"{error.filename or 'output'}: {error.strerror}", _hint(error))
        return FAILED


def _hint(error: OSError) -> str | None:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return "check the path: folders are not created"
    known = isinstance(error, PermissionError) or error.errno in NO_ROOM
    return advice(error) if known else None


def usage_words(error: click.UsageError) -> tuple[str, str | None]:
    """What a command line is refused with, and the hint."""
    context = error.ctx
    if context is None:
        return error.format_message(), None
    if isinstance(error, click.NoSuchOption):
        name, near = error.option_name, nearest(error.option_name, error.possibilities or ())
        if name in NEEDLESS and not near:
            return f"{name} is not needed", NEEDLESS[name]
        if any(name in option.opts for option in tfgrpo.params):
            return f"{name} goes before the command", "`tfgrpo --help` shows how"
        error = click.NoSuchOption(name, possibilities=near, ctx=context)
    if context.parent is None:
        return error.format_message(), "`tfgrpo help --all` lists the commands"
    return error.format_message(), f"`{context.command_path} --help` shows how"


def complain(message: str, hint: str | None) -> None:
    """Prints an error to standard error, without what would command a terminal."""
    from tfgrpo.cli.printing import echo, shown, style

    echo(style("error: ", fg="red") + shown(hide_secrets(message)), err=True)
    if hint:
        echo(style("hint: ", fg="cyan") + shown(hint), err=True)


with suppress(ValueError):
    if RAISES:
        signal.signal(signal.SIGINT, signal.default_int_handler)
if COLLECTS:
    gc.freeze()  # or the next object that is made would have all of it searched
    gc.enable()
