"""A git user: types what git has, and reads what comes back."""

from __future__ import annotations

from walking import Walk, main


def walk(walk: Walk) -> None:
    """From an empty folder to a merge with a conflict, and back."""
    walk.run("init")
    walk.run("add", "Count both the first and the last day.")
    walk.run("add", "Round to whole euros.", "-m", "money")
    assert "money" in walk.run("log", "--oneline", "-1")
    walk.run("switch", "-c", "trial")
    first = walk.read("show", "HEAD")
    assert first
    walk.run("modify", "G1", "Round to whole euros, up.")
    walk.run("switch", "-")
    walk.run("modify", "G1", "Round to cents.")
    said = walk.run("merge", "trial", code=1)
    assert "conflict" in said.casefold()
    walk.run("merge", "trial", "--theirs")
    assert "up" in walk.run("show", "HEAD")
    assert "trial" in walk.run("log", "--graph", "--oneline")
    walk.run("blame")
    walk.run("diff", "HEAD~1", "HEAD")
    walk.run("tag", "good")
    walk.run("undo")
    walk.run("redo")
    walk.run("reset", "HEAD~1")
    walk.run("reflog")
    walk.run("fsck")


if __name__ == "__main__":
    main(walk)
