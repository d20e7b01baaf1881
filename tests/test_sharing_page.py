"""Every command of docs/sharing.md, in its order, in one folder."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

from conftest import ROOT, TFGRPO, environment, quick_path
from store_helpers import broken
from sync_helpers import far_ssh

from tfgrpo.store import Store

PAGE = (ROOT / "docs/sharing.md").read_text()
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S)
(PYTHON,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)


def test_the_page_on_sharing_runs_as_it_stands(tmp_path: Path) -> None:
    prepared = "mkdir team && cd team && tfgrpo init && tfgrpo add 'Count both days.' && cd ..\n"
    script = "set -e\n" + prepared + "".join(BLOCKS)
    done = subprocess.run(
        ["sh", "-c", script],
        cwd=tmp_path,
        env=environment(
            PATH=quick_path(),
            TFGRPO_SSH=shlex.join(far_ssh(tmp_path)),
        ),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    python = subprocess.run(
        [TFGRPO.with_name("python"), "-c", PYTHON],
        cwd=tmp_path / "bob",
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert python.stdout.split()[2:] == ["1"], python.stderr
    saved = [tmp_path / "saved", *(tmp_path / "saved").glob("*.db")]
    assert {path.stat().st_mode & 0o077 for path in saved} == {0}, "nobody else reads a backup"
    texts = {}
    for name in ("team", "bob", "copy", "carol"):
        path = tmp_path / name / ".tfgrpo/store.db"
        assert broken(path) == []
        with Store.open(path) as store:
            texts[name] = {e.text for e in store.library()}
    assert len(texts["team"]) == 5
    assert texts["carol"] == texts["bob"] == texts["team"]
    assert texts["copy"] == texts["team"] - {"Say when the data cannot decide."}
