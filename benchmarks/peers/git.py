"""git through its CLI: the library as the lines of one file, a commit for each version."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks.workload import Change, batches, changes

FILE = "library.md"
AUTHOR = "benchmark <benchmark@example.org> 1700000000 +0000"


class Git:
    def __init__(self, folder: Path) -> None:
        self.folder = folder / "git"
        self.folder.mkdir()
        self.texts: dict[str, str] = {}
        self._git("init", "-q", "-b", "main")
        for key, value in (
            ("user.name", "benchmark"),
            ("user.email", "benchmark@example.org"),
            ("gc.auto", "0"),
            ("core.fsync", "all"),
        ):
            self._git("config", key, value)
        self.commits: list[str] = []

    def _git(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(self.folder), *arguments], capture_output=True, text=True, check=True
        )
        return done.stdout

    def _file(self) -> bytes:
        return "".join(f"{key} {text}\n" for key, text in self.texts.items()).encode()

    def build(self, count: int, live: int | None) -> None:
        """Through `git fast-import`, which also packs; 10,000 commits one by one take minutes."""
        command = ["git", "-C", str(self.folder), "fast-import", "--quiet"]
        stream = changes(count, live=live)
        with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
            assert process.stdin is not None
            for size in [0, *batches(count)]:
                self._apply([next(stream) for _ in range(size)])
                content = self._file()
                process.stdin.write(
                    f"commit refs/heads/main\ncommitter {AUTHOR}\ndata 4\nstep\n"
                    f"M 100644 inline {FILE}\ndata {len(content)}\n".encode()
                    + content
                    + b"\n"
                )
            process.stdin.close()
        assert process.returncode == 0
        self._git("reset", "-q", "--hard")
        self.commits = self._git("rev-list", "--reverse", "main").split()

    def _apply(self, changes: Sequence[Change]) -> None:
        for op, key, text in changes:
            if op == "DELETE":
                del self.texts[key]
            elif text is not None:
                self.texts[key] = text

    def prepared(self, changes: Sequence[Change]) -> list[Change]:
        return list(changes)

    def append(self, prepared: list[Change]) -> None:
        self._apply(prepared)
        (self.folder / FILE).write_bytes(self._file())
        self._git("add", FILE)
        self._git("commit", "-q", "--allow-empty", "-m", "step")

    def checkout(self, version: int) -> int:
        return self._git("show", f"{self.commits[version]}:{FILE}").count("\n")

    def diff(self, a: int, b: int) -> int:
        found = self._git("diff", "--no-color", self.commits[a], self.commits[b])
        return sum(
            line[:1] in "+-" and line[:3] not in ("+++", "---") for line in found.split("\n")
        )

    def log(self) -> None:
        self._git("log", "-1", "main")

    def history(self, key: str) -> int:
        return self._git("log", "--oneline", "-G", f"^{key} ", "main", "--", FILE).count("\n")

    def blame(self) -> int:
        return self._git("blame", "main", "--", FILE).count("\n")

    def check(self) -> None:
        self._git("fsck", "--full", "--strict")

    def size(self) -> int:
        return sum(p.stat().st_size for p in self.folder.rglob("*") if p.is_file())
