"""What is read of git's files is what git says, and where it may not be git itself is asked."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tfgrpo.git_name import plain_name

FILES = (
    "[user]\n\tname = Ann Lee\n\temail = a@b.c\n",
    "[User]\nNAME=Ann\n[core]\n\tname = no\n",
    "[user]\n  name =   Ann  Lee  \n[user]\n name = Bo\n",
    "[core]\n\tbare = false\n",
    "",
    "; a comment\n# another\n[user]\nnames = no\n\tname = Ö Ü\n",
)
GITS = (
    '[user]\n\tname = "Ann Lee"\n',
    "[user]\n\tname = Ann # Lee\n",
    "[user]\n\tname = Ann\\\n Lee\n",
    "[user]\n\tname\n",
    "[include]\n\tpath = other\n[user]\n\tname = Ann\n",
    '[includeIf "gitdir:/"]\n\tpath = other\n',
    "[user] name = Ann\n",
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith("GIT_") or name == "XDG_CONFIG_HOME":
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("tfgrpo.git_name.SYSTEM", str(tmp_path / "none"))
    return tmp_path


def _of_git(folder: Path) -> str:
    done = subprocess.run(
        ["git", "-C", folder, "config", "user.name"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "GIT_CONFIG_NOSYSTEM": "1"},
    )
    return done.stdout.strip()


def test_plain_files_are_read_as_git_reads_them(home: Path) -> None:
    assert plain_name(str(home)) == ""
    for content in FILES:
        (home / ".gitconfig").write_text(content, encoding="utf-8")
        assert plain_name(str(home)) == _of_git(home)


def test_a_repository_s_own_settings_come_last(home: Path) -> None:
    (home / ".gitconfig").write_text(FILES[0])
    project = home / "project" / "deep"
    project.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", home / "project"], check=True)
    assert plain_name(str(project)) == _of_git(project) == "Ann Lee"
    subprocess.run(["git", "-C", project, "config", "user.name", "Bo"], check=True)
    assert plain_name(str(project)) == _of_git(project) == "Bo"
    (home / "project" / ".git" / "config.worktree").write_text("")
    assert plain_name(str(project)) is None


def test_what_takes_git_is_left_to_git(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for content in GITS:
        (home / ".gitconfig").write_text(content)
        assert plain_name(str(home)) is None, content
    (home / ".gitconfig").write_text(FILES[0])
    (home / "HEAD").write_text("ref: refs/heads/main")
    assert plain_name(str(home)) is None
    (home / "HEAD").unlink()
    monkeypatch.setenv("GIT_CONFIG_COUNT", "0")
    assert plain_name(str(home)) is None
    monkeypatch.delenv("GIT_CONFIG_COUNT")
    monkeypatch.setenv("PATH", str(home))
    assert plain_name(str(home)) == ""
    (home / "git").write_text("#!/bin/sh\necho other")
    (home / "git").chmod(0o755)
    assert plain_name(str(home)) is None
