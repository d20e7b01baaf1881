"""Results as JSON lines: a cell is written when it is done, and found again by its key."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tfgrpo.trust.trusted_folders import VARIABLE

ROOT = Path(__file__).parents[2]
PRODUCT = ("tfgrpo", "store", "cli", "migrations", "pyproject.toml")
"""What the package is made of."""
FAMILIES = (*PRODUCT, "benchmarks/families/*.py")
"""What a family's result depends on."""
Result = dict[str, Any]


def code_digest(paths: Sequence[str] = FAMILIES, root: Path = ROOT) -> str:
    """Returns a digest of files as they are on the disk, by git's patterns, changes that are not
    committed among them. Raises CalledProcessError where git is not there."""
    with tempfile.TemporaryDirectory(prefix="families-") as folder:
        index = {**os.environ, "GIT_INDEX_FILE": str(Path(folder) / "index")}

        def git(*words: str) -> str:
            command = ["git", "-C", str(root), *words]
            done = subprocess.run(command, env=index, check=True, capture_output=True, text=True)
            return done.stdout.strip()

        git("read-tree", "HEAD")
        git("add", "-A", "--", *paths)
        listed = git("ls-files", "--stage", "--", *paths)
    return hashlib.sha256(listed.encode()).hexdigest()[:12]


def rows_digest(*parts: object) -> str:
    """Returns what tells problems, or anything else that JSON can write, from others."""
    text = json.dumps(parts, ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class ResultFile:
    """A file of results, one JSON object a line; a line that was cut off is left out."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[Result]:
        """Returns the results, oldest first."""
        if not self.path.exists():
            return []
        *lines, cut_off = self.path.read_text(encoding="utf-8").split("\n")
        results: list[Result] = [json.loads(line) for line in lines if line]
        if cut_off:
            self.path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return results

    def find(self, key: Mapping[str, object]) -> Result | None:
        """Returns the result whose fields are those of a key, or None."""
        for result in self.read():
            if all(result.get(name) == value for name, value in key.items()):
                return result
        return None

    def add(self, result: Result) -> None:
        """Writes a result at the end."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())


def asked_from(results: Path, model: Mapping[str, Any], *parts: object) -> dict[str, Any]:
    """Returns the settings that ask a model from a folder in that of the results, which is named
    by what it is for and made where it is not there."""
    name = ".".join("".join(c if c.isalnum() or c in "-_." else "-" for c in str(p)) for p in parts)
    folder = (results / name).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    # No other project's settings are those of a cell. A run goes on with other endpoints, and not
    # with another base_url.
    listed = [name for name in ("base_url", "api_key_env") if "base_url" in model and name in model]
    lines = ["[[endpoints]]", *(f"{name} = {json.dumps(model[name])}" for name in listed)]
    config = folder / "tfgrpo.toml"
    config.write_text("\n".join(lines) if listed else "", encoding="utf-8")
    trusted = [os.environ.get(VARIABLE), str(folder)]
    os.environ[VARIABLE] = os.pathsep.join(filter(None, trusted))  # it is all written here
    rest = {name: value for name, value in model.items() if name not in listed}
    return {"store": folder / "store.db", "config": config, **rest}


def as_text(answer: object) -> str:
    """Returns an answer as a model would write it."""
    return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)


def mean(values: Sequence[float]) -> float:
    """Returns the mean of some values, 0 of none."""
    return sum(values) / len(values) if values else 0.0
