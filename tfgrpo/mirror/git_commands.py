"""git, through its command line: one folder, plumbing commands, no shell, nobody's hooks.

The repository is always named, and variables that redirect git are left out of its environment. A
repository's own settings can name commands, so they are looked at first: one that sets what could
run something, or belongs to somebody else, is refused. Settings of the user or the system are not
read.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypeAlias

from tfgrpo.store import child_processes
from tfgrpo.store.errors import TfgrpoError

Stream: TypeAlias = int | IO[bytes]
QUIET = (
    "-c", "core.hooksPath=/dev/null",
    "-c", "core.fsmonitor=false",
    "-c", "gc.auto=0",
    "-c", "core.quotePath=false",
    "-c", "submodule.recurse=false",
)  # fmt: skip

HARMLESS = re.compile(
    r"""
    core\.(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode
        |symlinks|autocrlf|eol|safecrlf|quotepath|compression|loosecompression|sharedrepository
        |hidedotfiles|protectntfs|protecthfs|hookspath|fsmonitor|untrackedcache|trustctime|checkstat
        |abbrev|editor|pager|whitespace|commentchar|excludesfile|preloadindex|multipackindex
        |commitgraph|packedgitlimit|packedgitwindowsize|deltabasecachelimit|bigfilethreshold)
    | extensions\.objectformat
    | (user|author|committer)\.(name|email|signingkey|useconfigonly)
    | remote\..+\.(url|pushurl|fetch|push|tagopt|prune|prunetags|mirror|skipdefaultupdate)
    | branch\..+\.(remote|pushremote|merge|rebase|description)
    | submodule\..+\.(url|active|branch|ignore|shallow) | submodule\.(active|recurse)
    | gc\.(auto|autodetach|autopacklimit|pruneexpire|reflogexpire|writecommitgraph)
    | (pack|index|advice|color|column|status|log|pull|push|rerere|rebase|init|tag|versionsort
        |maintenance|receive|fetch|transfer|repack|feature|worktree|gui|lfs|svn-remote|vscode-.*
        |github|gitlab)\..*
    | (commit|merge)\.(gpgsign|verbose|status|cleanup|ff|conflictstyle|renames|renamelimit|log)
    | diff\.(renames|renamelimit|algorithm|colormoved|mnemonicprefix|noprefix|context|submodule)
    """,
    re.VERBOSE | re.DOTALL,
)
"""Settings of a repository that make none of the commands used here run anything."""


class MirrorError(TfgrpoError):
    """A folder that cannot be mirrored into or read back. Nothing in it was changed."""


class Git:
    """A git repository in a folder: its own, or bare."""

    def __init__(self, folder: Path) -> None:
        """Takes a folder that `is_repository`."""
        self.folder = folder
        root = folder.absolute()
        self.bare = not (root / ".git").exists()
        own = root if self.bare else root / ".git"
        _check_own(folder, own)
        self._where = [f"--git-dir={own}", *([] if self.bare else [f"--work-tree={root}"])]

    @staticmethod
    def is_repository(folder: Path) -> bool:
        """Whether a folder is a repository itself; one above it does not count."""
        parts = ("HEAD", "objects", "refs")
        return (folder / ".git").exists() or all((folder / part).exists() for part in parts)

    @classmethod
    def init(cls, folder: Path, branch: str) -> Git:
        """Makes a repository in a folder that is empty or not there."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            wrong = f"cannot make {folder}: {error.strerror}"
            raise MirrorError(wrong, hint="check the permissions") from error
        _run(["init", "-q", "--template=", "--", str(folder.absolute())], None)
        git = cls(folder)
        git("symbolic-ref", "HEAD", f"refs/heads/{branch}")
        return git

    def __call__(self, *arguments: str, data: bytes | None = None) -> str:
        """Runs a command with `data` as input; returns what it printed. Raises MirrorError."""
        return _run([*self._where, *arguments], data).decode("utf-8", "replace")

    def refs(self) -> dict[str, str]:
        """Returns name → commit of branches and tags; a tag object's commit is its target's."""
        form = "%(refname) %(objecttype) %(objectname) %(*objecttype) %(*objectname)"
        refs = {}
        lines = self("for-each-ref", f"--format={form}", "refs/heads", "refs/tags")
        for line in lines.splitlines():
            name, kind, id, *target = line.split(" ")
            if kind == "commit":
                refs[name] = id
            elif target[:1] == ["commit"]:
                refs[name] = target[1]
        return refs

    def refuse_shallow(self) -> None:
        """Raises MirrorError for a clone that was cut short: its history has no beginning."""
        if self("rev-parse", "--is-shallow-repository").strip() == "true":
            raise MirrorError(
                f"{self.folder} is a shallow clone: the beginning of its history is missing",
                hint=f"`git -C {self.folder} fetch --unshallow` fetches the rest",
            )

    def exists(self, commit: str) -> bool:
        """Whether a commit of that full id is there."""
        answer = self("cat-file", "--batch-check", data=f"{commit}\n".encode())
        return answer.split()[1:2] == ["commit"]

    def is_ancestor(self, commit: str, of: str) -> bool:
        """Whether a commit is in another's history."""
        return not self("rev-list", "-n", "1", commit, "--not", of)

    @contextmanager
    def importing(self) -> Iterator[IO[bytes]]:
        """Gives a stream for `git fast-import`; a stream that ends early imports nothing. Marks
        asked for with `get-mark` can be read from `answers` afterwards."""
        command = ["-c", "core.compression=1", "fast-import", "--quiet", "--done", "--force"]
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = _start([*self._where, *command], subprocess.PIPE, out, err)
            assert process.stdin is not None
            try:
                yield process.stdin
                process.stdin.write(b"done\n")
                process.stdin.close()
            except BrokenPipeError:
                pass  # it says below what was wrong
            except BaseException:
                process.kill()
                process.wait()
                raise
            code = process.wait()
            err.seek(0)
            if code:
                raise _failed(["fast-import"], err.read())
            out.seek(0)
            self.answers = out.read().decode().split()

    def objects(self, names: Sequence[str]) -> Iterator[tuple[str, bytes] | None]:
        """Yields the id and content of each named object, from one process; None for none."""
        with tempfile.TemporaryFile() as requests, tempfile.TemporaryFile() as err:
            requests.write("".join(f"{name}\n" for name in names).encode())
            requests.seek(0)
            command = [*self._where, "cat-file", "--batch", "--buffer"]
            process = _start(command, requests, subprocess.PIPE, err)
            assert process.stdout is not None
            try:
                for _ in names:
                    head = process.stdout.readline().split()
                    if not head:
                        err.seek(0)
                        raise _failed(["cat-file"], err.read())
                    if len(head) != 3:
                        yield None
                        continue
                    content = process.stdout.read(int(head[2]))
                    process.stdout.read(1)
                    yield head[0].decode(), content
            finally:
                process.stdout.close()
                process.terminate()
                process.wait()


def update_refs(git: Git, moves: Iterable[tuple[str, str, str]]) -> None:
    """Moves refs (name, new commit, old one) all or none; a missing commit is an empty string."""
    lines = []
    for name, new, old in moves:
        verb = "update" if new else "delete"
        parts = [f"{verb} {name}", *([new] if new else []), old or "0" * len(new)]
        lines.append("\0".join(parts) + "\0")
    if lines:
        git("update-ref", "--stdin", "-z", data="".join(lines).encode())


def environment() -> dict[str, str]:
    """This process's environment without what would make git look elsewhere or ask."""
    return child_processes.without_keys() | {
        "LC_ALL": "C",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_NO_LAZY_FETCH": "1",
    }


def _check_own(folder: Path, git_dir: Path) -> None:
    common = _common_dir(git_dir)
    for path in dict.fromkeys((folder, git_dir, common)):
        owner = path.stat().st_uid
        if owner not in (os.geteuid(), _sudo_user()):
            raise MirrorError(
                f"{path} belongs to another user", hint="copy the repository to a folder of yours"
            )
    for name in ("config", "config.worktree"):
        if not (common / name).exists():
            continue
        arguments = ["config", "--file", str(common / name), "--no-includes"]
        keys = _run([*arguments, "--null", "--name-only", "--list"], None)
        for key in keys.decode("utf-8", "replace").split("\0")[:-1]:
            if not HARMLESS.fullmatch(key):
                raise MirrorError(
                    f"{folder} sets {key!r}, with which git may run a command",
                    hint=f"if it is yours: `git -C {folder} config --unset-all {key}`",
                )


def _common_dir(git_dir: Path) -> Path:
    """Where a repository's settings lie: elsewhere for a worktree or a submodule."""
    if git_dir.is_file():
        text = git_dir.read_text(encoding="utf-8", errors="replace")[:4096]
        git_dir = git_dir.parent / text.removeprefix("gitdir:").strip()
    pointer = git_dir / "commondir"
    if pointer.is_file():
        return git_dir / pointer.read_text(encoding="utf-8", errors="replace")[:4096].strip()
    return git_dir


def _sudo_user() -> int:
    """Who became root, whose repositories are to be trusted then; -1 for nobody."""
    user = os.environ.get("SUDO_UID", "") if os.geteuid() == 0 else ""
    return int(user) if user.isdigit() else -1


def _run(arguments: Sequence[str], data: bytes | None) -> bytes:
    process = _start(arguments, subprocess.PIPE, subprocess.PIPE, subprocess.PIPE)
    out, err = process.communicate(data)
    if process.returncode:
        raise _failed([a for a in arguments if not a.startswith("-")], err)
    return out


def _start(
    arguments: Sequence[str], stdin: Stream, stdout: Stream, stderr: Stream
) -> subprocess.Popen[bytes]:
    streams = {"stdin": stdin, "stdout": stdout, "stderr": stderr}
    try:
        return child_processes.start(["git", *QUIET, *arguments], environment(), **streams)
    except FileNotFoundError:
        raise MirrorError("git is not installed", hint="install git, 2.28 or newer") from None


def _failed(words: Sequence[str], stderr: bytes) -> MirrorError:
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    why = next((line for line in lines if line.startswith(("fatal:", "error:"))), "")
    return MirrorError(
        f"git {words[0]}: {(why or ' '.join(lines[:1]) or 'failed')[:200]}",
        hint="nothing was moved; check the repository with `git fsck`",
    )
