"""A store as a git repository and back: the same versions, and people's own commits."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from conftest import LONG, Cli, one_line_error
from hypothesis import given, settings
from hypothesis import strategies as st
from store_helpers import add, broken, clock

from tfgrpo.mirror import MirrorError, bring_back, mirror
from tfgrpo.mirror.commit_layout import author_of, ident, our_name, ref_name
from tfgrpo.store import Operation, Store
from tfgrpo.store.damaged_values import LATEST
from tfgrpo.store.errors import TfgrpoError, TransferError
from tfgrpo.store.fsck import fsck
from tfgrpo.store.history.merge import merge, side

DAYS, EUROS = "Count both days.", "Round up to whole euros."


def git(folder: Path, *arguments: str) -> str:
    """Runs git as a person would, by the name J."""
    names = {"GIT_AUTHOR_NAME": "J", "GIT_AUTHOR_EMAIL": "j@example.org"}
    done = subprocess.run(
        ["git", "-C", folder, *arguments],
        env={
            **os.environ,
            **names,
            "GIT_COMMITTER_NAME": "J",
            "GIT_COMMITTER_EMAIL": "j@example.org",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
        },
        capture_output=True,
        text=True,
        errors="replace",
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@contextmanager
def new_store(folder: Path, name: str = "store.db") -> Iterator[Store]:
    with Store.init(folder / name, author="Jane Doe <jane@example.org>", now=clock()) as store:
        yield store


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Store]:
    """A store with two branches, a merge and two tags."""
    with new_store(tmp_path) as store:
        store.commit("main", [add(DAYS), add("Round up.")], message="rules", meta={"run": "r"})
        store.create_branch("web")
        days, euros = (e.id for e in store.library())
        evidence = {"run": "r", "rollouts": [[0, 1.0], [1, 0.5]]}
        change = Operation("MODIFY", euros, EUROS, "the shop's rule", evidence)
        store.commit("web", [change, Operation("KEEP", days)], message="euros")
        store.commit("main", [Operation("MODIFY", days, "Count both the days.")], message="days")
        merge(store, "main", store.tip("web"), message="merge web")
        store.create_tag("r/step_1", "v1")
        store.create_tag("ok")
        yield store


def edit(folder: Path, change: Callable[[str], str], message: str = "by hand") -> str:
    """Changes library.md as a person would, and commits it; returns the commit."""
    path = folder / "library.md"
    path.write_text(change(path.read_text()))
    git(folder, "commit", "-qam", message)
    return git(folder, "rev-parse", "HEAD")


def same(a: Store, b: Store) -> None:
    """Asserts that two stores hold the same history under the same names, and are whole."""
    assert {n: a.version(v).digest for n, v in a.branches().items()} == {
        n: b.version(v).digest for n, v in b.branches().items()
    }
    assert {n: a.version(v).digest for n, v in a.tags().items()} == {
        n: b.version(v).digest for n, v in b.tags().items()
    }
    for name in (*a.branches(), *a.tags()):
        assert a.library(name) == b.library(name)
        logs = [sorted(s.log(name), key=lambda v: v.digest) for s in (a, b)]
        for mine, theirs in zip(*logs, strict=True):
            assert mine.digest == theirs.digest
            assert mine[6:] == theirs[6:]
            assert [e[2:7] for e in a.events(mine)] == [e[2:7] for e in b.events(theirs)]
    assert not fsck(b).problems
    assert broken(b.path) == []


def test_a_version_is_a_commit_with_its_author_time_message_and_one_line_changes(
    shop: Store, tmp_path: Path
) -> None:
    done = mirror(shop, tmp_path / "m")
    assert (done.written, done.there, done.work_tree) == (5, 0, True)
    log = git(tmp_path / "m", "log", "--format=%an|%ae|%at|%s", "web")
    assert log.splitlines()[0] == "Jane Doe|jane@example.org|1|euros"
    patch = git(tmp_path / "m", "log", "-1", "-p", "--format=", "web", "--", "library.md")
    id = shop.library().labels["G1"]
    assert [line for line in patch.splitlines() if line[:2] in ("+-", "--", "- ", "+ ", "-- ")]
    assert f"-- Round up. <!-- {id} -->\n+- {EUROS} <!-- {id} -->" in patch
    assert git(tmp_path / "m", "rev-list", "--parents", "-n", "1", "main").count(" ") == 2
    assert git(tmp_path / "m", "tag").split() == ["ok", "r/step_1"]
    assert git(tmp_path / "m", "status", "--porcelain") == ""
    assert git(tmp_path / "m", "fsck", "--strict") == ""
    blame = git(tmp_path / "m", "blame", "-s", "library.md").splitlines()
    assert blame[-1].split()[0] == git(tmp_path / "m", "rev-parse", "--short=8", "web")


def test_a_mirror_comes_back_with_the_same_digests_ids_and_bytes(
    shop: Store, tmp_path: Path
) -> None:
    mirror(shop, tmp_path / "m")
    with new_store(tmp_path, "other.db") as other:
        found = bring_back(other, tmp_path / "m")
        assert (len(found.adopted), found.by_hand, found.apart) == (4, (), ())
        same(shop, other)
        assert list(other.log()) == list(shop.log())  # to the very numbers
        assert bring_back(other, tmp_path / "m")[:3] == ((), (), ())


def test_a_clone_of_a_mirror_comes_back_as_well(shop: Store, tmp_path: Path) -> None:
    mirror(shop, tmp_path / "m")
    git(tmp_path, "clone", "-q", "--mirror", str(tmp_path / "m"), "bare.git")
    with new_store(tmp_path, "other.db") as other:
        bring_back(other, tmp_path / "bare.git")
        same(shop, other)
        other.commit("main", [add("More.")], message="more")
        assert mirror(other, tmp_path / "bare.git").written == 1


def test_everybody_gets_the_same_commits_at_once_or_bit_by_bit(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        for n in range(6):
            store.commit("main", [add(f"Rule {n}.")], message=f"rule {n}")
            done = mirror(store, tmp_path / "a")
            assert (done.written, done.there) == ((2, 0) if n == 0 else (1, n + 1))
        mirror(store, tmp_path / "b")
        again = mirror(store, tmp_path / "b")
    assert (again.written, again.moved, again.work_tree) == (0, (), False)
    assert git(tmp_path / "a", "rev-parse", "main") == git(tmp_path / "b", "rev-parse", "main")
    assert (tmp_path / "a/library.md").read_text() == (tmp_path / "b/library.md").read_text()


ops = st.lists(
    st.tuples(
        st.sampled_from(["add", "modify", "delete", "keep", "back", "branch", "merge", "tag"]),
        st.integers(0, 5),
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=12).filter(str.strip),
    ),
    min_size=1,
    max_size=14,
)


def play(store: Store, kind: str, n: int, text: str) -> None:
    """Does one thing to a store, whichever of its experiences and branches `n` picks."""
    branches = sorted(store.branches())
    branch = branches[n % len(branches)]
    live = [e.id for e in store.library(branch)]
    gone = [id for e in store.log(branch) for id in [o.experience for o in store.events(e)]]
    gone = [id for id in dict.fromkeys(gone) if id not in live]
    if kind == "add":
        store.commit(branch, [Operation("ADD", None, text, text)], message=text)
    elif kind == "back" and gone:
        store.commit(branch, [Operation("ADD", gone[0], text)], message=text, author=text)
    elif kind == "branch":
        store.create_branch(f"b{len(branches)}/x", branch)
    elif kind == "tag":
        store.create_tag(f"t{len(store.tags())}", branch)
    elif kind == "merge":
        merge(store, branch, store.tip(branches[0]), message=text, resolve=side("theirs"))
    elif kind in ("modify", "delete", "keep") and live:
        op = Operation(kind.upper(), live[n % len(live)], text, evidence={"n": n})  # type: ignore[arg-type]
        store.commit(branch, [op], message=text, meta={"n": n})


@given(ops)
@settings(max_examples=400 if LONG else 12, deadline=None)
def test_any_history_survives_the_way_through_git(
    done: list[tuple[str, int, str]],
) -> None:
    with tempfile.TemporaryDirectory() as name, new_store(Path(name)) as store:
        folder = Path(name)
        half = len(done) // 2
        for step in done[:half]:
            play(store, *step)
        mirror(store, folder / "m")
        for step in done[half:]:
            play(store, *step)
        mirror(store, folder / "m")
        mirror(store, folder / "at once")
        heads = [git(folder / m, "show-ref") for m in ("m", "at once")]
        assert heads[0] == heads[1]
        with new_store(folder, "other.db") as other:
            bring_back(other, folder / "m")
            same(store, other)


def test_lines_that_a_person_changed_become_a_version_by_that_person(
    shop: Store, tmp_path: Path
) -> None:
    folder = tmp_path / "m"
    mirror(shop, folder)
    days, euros = (e.id for e in shop.library())

    def change(text: str) -> str:
        kept = [line for line in text.split("\n") if days not in line]
        return "\n".join(kept).replace("whole euros", "whole EUROS") + "- New, by hand.\n"

    commit = edit(folder, change, "Say it louder\n\nAs agreed.")
    found = bring_back(shop, folder)
    (version,) = found.by_hand
    assert version == shop.tip("main")
    assert version.author == "J <j@example.org>"
    assert version.message == "Say it louder\n\nAs agreed."
    assert version.meta == {"import": {"format": "git", "commit": commit}}
    events = [(e.op, e.experience, e.text) for e in shop.events(version)]
    assert events[0] == ("MODIFY", euros, "Round up to whole EUROS.")
    assert (events[1][0], events[1][2]) == ("ADD", "New, by hand.")
    assert events[2:] == [("DELETE", days, None)]
    assert shop.events(version)[0].evidence == {
        "source": "library.md",
        "format": "git",
        "commit": commit,
    }
    assert bring_back(shop, folder)[:3] == ((), (), ())
    assert not fsck(shop).problems


def test_commits_by_hand_stay_in_the_history_that_is_mirrored_on(
    shop: Store, tmp_path: Path
) -> None:
    folder = tmp_path / "m"
    mirror(shop, folder)
    first = edit(folder, lambda text: text + "- One.\n")
    (folder / "README.md").write_text("Ours.\n")
    git(folder, "add", "README.md")
    second = edit(folder, lambda text: text + "- Two.\n")
    bring_back(shop, folder)
    shop.commit("main", [add("Three.")], message="three")
    assert mirror(shop, folder).written == 3
    history = git(folder, "rev-list", "main").split()
    assert {first, second} <= set(history)
    assert (folder / "README.md").exists()
    assert mirror(shop, folder).written == 0
    with new_store(tmp_path, "other.db") as other:
        found = bring_back(other, folder)
        assert found.by_hand == ()
        same(shop, other)


def test_git_revert_and_a_merge_by_hand_are_versions_too(shop: Store, tmp_path: Path) -> None:
    folder = tmp_path / "m"
    mirror(shop, folder)
    days = shop.library().labels["G0"]
    git(folder, "checkout", "-q", "-b", "idea", "main")
    edit(folder, lambda text: text.replace("the days", "of the days"), "idea")
    git(folder, "checkout", "-q", "main")
    git(folder, "merge", "-q", "--no-ff", "-m", "merge idea", "idea")
    git(folder, "revert", "--no-edit", "-m", "1", "HEAD")
    found = bring_back(shop, folder)
    idea, merged, reverted = found.by_hand
    assert (merged.parent, merged.merged) == (4, idea.number)
    assert shop.library(merged).by_id[days].text == "Count both of the days."
    assert shop.library("main").by_id[days].text == "Count both the days."
    assert shop.tip("main") == reverted
    assert shop.tip("idea") == idea
    mirror(shop, folder)
    with new_store(tmp_path, "other.db") as other:
        bring_back(other, folder)
        same(shop, other)


def test_reverting_a_mirrored_commit_is_a_change_by_hand(shop: Store, tmp_path: Path) -> None:
    folder = tmp_path / "m"
    mirror(shop, folder)
    git(folder, "checkout", "-q", "web")
    git(folder, "revert", "--no-edit", "HEAD")
    (version,) = bring_back(shop, folder).by_hand
    assert [e.op for e in shop.events(version)] == ["MODIFY"]
    assert [e.text for e in shop.library("web")] == [DAYS, "Round up."]


def test_an_amended_commit_is_the_version_and_what_was_changed_on_it(
    shop: Store, tmp_path: Path
) -> None:
    folder = tmp_path / "m"
    mirror(shop, folder)
    (folder / "library.md").write_text((folder / "library.md").read_text() + "- More.\n")
    git(folder, "commit", "-qa", "--amend", "--no-edit")
    with new_store(tmp_path, "other.db") as other:
        (version,) = bring_back(other, folder).by_hand
        assert other.version(version.parent or 0).digest == shop.tip("main").digest
        assert version.message == "merge web"
        mirror(other, folder)
        with new_store(tmp_path, "third.db") as third:
            assert bring_back(third, folder).by_hand == ()
            same(other, third)


def test_a_shallow_clone_is_refused(shop: Store, tmp_path: Path) -> None:
    mirror(shop, tmp_path / "m")
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{tmp_path}/m", "cut")
    for act in (mirror, bring_back):
        with pytest.raises(MirrorError, match="shallow"):
            act(shop, tmp_path / "cut")  # type: ignore[operator]


def test_commits_that_the_store_has_not_read_are_never_left_behind(
    shop: Store, tmp_path: Path
) -> None:
    folder = tmp_path / "m"
    mirror(shop, folder)
    commit = edit(folder, lambda text: text + "- By hand.\n")
    shop.commit("main", [add("Here.")], message="here")
    with pytest.raises(MirrorError, match=r"main in .* has 1 commits") as caught:
        mirror(shop, folder)
    assert "import git" in (caught.value.hint or "")
    assert git(folder, "rev-parse", "main") == commit
    found = bring_back(shop, folder)
    assert [name for name, _ in found.apart] == ["main"]
    merge(shop, "main", found.by_hand[0], message="both")
    mirror(shop, folder)
    assert {"Here.", "By hand."} <= {e.text for e in shop.library()}
    assert commit in git(folder, "rev-list", "main").split()


def test_a_store_that_lacks_versions_does_not_rewind_a_mirror(shop: Store, tmp_path: Path) -> None:
    mirror(shop, tmp_path / "m")
    with new_store(tmp_path, "other.db") as other, pytest.raises(MirrorError, match="not read"):
        mirror(other, tmp_path / "m")


def test_names_that_moved_back_or_went_do_so_in_the_mirror_and_others_stay(
    shop: Store, tmp_path: Path
) -> None:
    folder = tmp_path / "m"
    mirror(shop, folder)
    git(folder, "branch", "mine", "web")
    shop.move_branch("main", "v1")
    shop.delete_branch("web")
    shop.delete_tag("ok")
    done = mirror(shop, folder)
    assert (done.moved, sorted(done.removed)) == (("main",), ["ok", "web"])
    assert git(folder, "branch", "--format=%(refname:short)").split() == ["main", "mine"]
    assert "Count both days." in (folder / "library.md").read_text()


def test_names_that_git_cannot_hold_are_written_otherwise_and_come_back(
    shop: Store, tmp_path: Path
) -> None:
    for name in ("a/b", "c.lock", "d/.e", "x+y"):
        shop.create_tag(name)
    shop.create_branch("one/two")
    mirror(shop, tmp_path / "m")
    shop.create_tag("a")
    shop.create_branch("one")
    mirror(shop, tmp_path / "m")
    with new_store(tmp_path, "other.db") as other:
        bring_back(other, tmp_path / "m")
        same(shop, other)


@given(st.text("abc./-+_", min_size=1), st.sets(st.text("abc./", min_size=1)))
def test_ref_names_come_back(name: str, others: set[str]) -> None:
    assert our_name(ref_name(name, others | {name})) == name


@given(st.text(), st.integers(0, 2**50))
def test_no_author_breaks_a_commits_lines(author: str, time: int) -> None:
    line = ident(author.encode(errors="ignore").decode(), time).decode()
    assert "\n" not in line
    assert "\0" not in line
    assert line.count("<") == line.count(">") == 1
    assert author_of(line)[1] == time // 1_000_000 * 1_000_000


@pytest.mark.parametrize(
    ("when", "time"),
    [("²", 0), ("-5", 0), ("9" * 5000, LATEST - 1), ("9" * 12, LATEST - 1), ("1e3", 0), ("", 0)],
)
def test_a_commits_time_is_one_that_a_version_can_have(when: str, time: int) -> None:
    assert author_of(f"J <j@example.org> {when} +0000") == ("J <j@example.org>", time)


def test_a_commit_by_hand_of_a_far_year_is_read(shop: Store, tmp_path: Path) -> None:
    folder = tmp_path / "m"
    mirror(shop, folder)
    (folder / "library.md").write_text((folder / "library.md").read_text() + "- By hand.\n")
    git(folder, "commit", "-qam", "far", "--date", "@999999999999 +0000")
    (version,) = bring_back(shop, folder).by_hand
    assert version.when.year == 9999
    assert "By hand." in {e.text for e in shop.library()}


HOSTILE = "x\n\ncommit refs/heads/evil\nmark :99\nfrom refs/heads/main\ndone\n"


def test_hostile_words_stay_words(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        store.commit(
            "main",
            [Operation("ADD", None, HOSTILE, HOSTILE, {HOSTILE: HOSTILE})],
            message=HOSTILE + "Tfgrpo-Version: 00",
            author=f"<{HOSTILE}> <{HOSTILE}>",
            meta={"import": {"commit": "--all\nHEAD"}},
        )
        mirror(store, tmp_path / "- m\n$(touch x)")
        refs = git(tmp_path / "- m\n$(touch x)", "for-each-ref", "--format=%(refname)")
        assert refs == "refs/heads/main"
        assert git(tmp_path / "- m\n$(touch x)", "rev-list", "--count", "--all") == "2"
        with new_store(tmp_path, "other.db") as other:
            bring_back(other, tmp_path / "- m\n$(touch x)")
            same(store, other)
    assert not (tmp_path / "x").exists()


def test_hooks_of_a_repository_are_not_run(shop: Store, tmp_path: Path) -> None:
    folder = tmp_path / "m"
    mirror(shop, folder)
    for hook in ("reference-transaction", "post-checkout", "post-index-change"):
        path = folder / ".git/hooks" / hook
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\ntouch '{tmp_path}/ran'\n")
        path.chmod(0o755)
    shop.commit("main", [add("More.")], message="more")
    mirror(shop, folder)
    bring_back(shop, folder)
    assert not (tmp_path / "ran").exists()


def test_only_an_empty_folder_or_a_mirror_is_written_into(shop: Store, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "notes.txt").write_text("Mine.")
    with pytest.raises(MirrorError, match="neither empty nor"):
        mirror(shop, full)
    assert os.listdir(full) == ["notes.txt"]
    git(full, "init", "-q")
    git(full, "add", ".")
    git(full, "commit", "-qm", "mine")
    for act in (mirror, bring_back):
        with pytest.raises(MirrorError, match="not a mirror"):
            act(shop, full)  # type: ignore[operator]
    with pytest.raises(MirrorError, match="neither empty nor"):
        mirror(shop, full / "notes.txt")
    with pytest.raises(MirrorError, match="not a git repository"):
        bring_back(shop, tmp_path / "nothing")
    inside = full / "inside"  # a folder of another repository is not that repository
    assert mirror(shop, inside).written == 5
    assert git(full, "rev-list", "--count", "--all") == "1"


def test_uncommitted_changes_are_not_touched(shop: Store, tmp_path: Path) -> None:
    folder = tmp_path / "m"
    mirror(shop, folder)
    (folder / "library.md").write_text("Mine.\n")
    shop.commit("main", [add("More.")], message="more")
    before = git(folder, "rev-parse", "main")
    with pytest.raises(MirrorError, match="uncommitted"):
        mirror(shop, folder)
    assert (folder / "library.md").read_text() == "Mine.\n"
    assert git(folder, "rev-parse", "main") == before


def test_one_revision_takes_its_history_and_the_names_in_it(shop: Store, tmp_path: Path) -> None:
    assert mirror(shop, tmp_path / "m", "web").written == 3
    assert EUROS in (tmp_path / "m/library.md").read_text()
    assert git(tmp_path / "m", "for-each-ref", "--format=%(refname:short)").split() == [
        "web",
        "r/step_1",
    ]
    shop.commit("main", [add("More.")], message="more")
    with pytest.raises(MirrorError, match="v3 has no branch or tag"):
        mirror(shop, tmp_path / "n", "v3")


FORGED = {
    "a text": (EUROS, "Round down."),
    "a reason": ("the shop's rule", "a whim"),
    "an author": ("Jane Doe", "Jane Roe"),
    "a message": ('"message":"euros"', '"message":"dollars"'),
    "a time": ('"time":1', '"time":2'),
    "an id": ('"experience":"', '"experience":"0'),
    "an operation": ('"op":"KEEP"', '"op":"DELETE"'),
    "evidence": ("[0,1.0]", "[0,0.0]"),
    "a salt": ('"salt":"', '"salt":"00'),
    "the digest": ('"version":"', '"version":"00'),
}


@pytest.mark.parametrize(("old", "new"), FORGED.values(), ids=FORGED)
def test_a_version_that_was_changed_on_the_way_is_refused_whole(
    shop: Store, tmp_path: Path, old: str, new: str
) -> None:
    folder = tmp_path / "m"
    mirror(shop, folder, "web")
    path = folder / "events.jsonl"
    git(folder, "checkout", "-q", "web")
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    git(folder, "commit", "-qa", "--amend", "--no-edit")
    with new_store(tmp_path, "other.db") as other:
        with pytest.raises(TransferError, match=git(folder, "rev-parse", "--short=12", "HEAD")):
            bring_back(other, folder)
        assert other.port.last_version() == 0


def test_a_version_on_other_parents_is_not_taken_for_itself(shop: Store, tmp_path: Path) -> None:
    folder = tmp_path / "m"
    mirror(shop, folder)
    git(folder, "checkout", "-q", "-b", "picked", "r/step_1")
    git(folder, "cherry-pick", "main~1")
    git(folder, "cherry-pick", "-X", "theirs", "web")
    found = bring_back(shop, folder)
    assert [version.message for version in found.by_hand] == ["euros"]
    assert shop.tip("picked") == found.by_hand[0]
    assert EUROS in {e.text for e in shop.library("picked")}


def test_what_no_one_can_read_is_said_with_its_commit(shop: Store, tmp_path: Path) -> None:
    folder = tmp_path / "m"
    mirror(shop, folder)
    commit = edit(folder, lambda text: "<<<<<<< ours\n" + text)
    with pytest.raises(MirrorError, match=rf"{commit[:12]}: library\.md:1 is an unresolved"):
        bring_back(shop, folder)
    git(folder, "rm", "-q", "library.md")
    git(folder, "commit", "-qm", "gone", "--amend")
    with pytest.raises(MirrorError, match=r"has no library\.md"):
        bring_back(shop, folder)
    assert shop.port.last_version() == 4


@pytest.mark.parametrize(
    ("old", "new", "texts"),
    [
        ("Count both", "Count\nboth", ["Count both the days.", EUROS]),
        ("both the", "both\nthe  \n  long", ["Count both the long days.", EUROS]),
        (" <!--", "\n<!--", ["Count both the days.", EUROS]),
        ("", "1. Numbered.\n2) And\nwrapped.", ["Numbered.", "And wrapped.", ..., EUROS]),
        ("", "- A\nB\n\n<!-- About\nus. -->\n\n## Ours\n\n---\n", ["A B", ..., EUROS]),
        ("", "- A\n  - B\nC", ["A", "B C", ..., EUROS]),
        ("Count both the", "In\n2024. the", ["In 2024. the days.", EUROS]),
        ("Count both the", "In\n  5) the", ["In\n5) the days.", EUROS]),
        ("", "- A\n1. B\n   - C\n2. D", ["A", "B", "C", "D", ..., EUROS]),
        ("", "1. A\n\n- B\n\n7. C\n8. D\n- E\n9. F", ["A", "B", "C", "D", "E 9. F", ..., EUROS]),
    ],
)
def test_wrapped_and_numbered_lines_of_a_person_are_read(
    shop: Store, tmp_path: Path, old: str, new: str, texts: list[object]
) -> None:
    mirror(shop, tmp_path / "m")

    def change(text: str) -> str:
        head, mark, points = text.partition("\n- ")
        return head + (mark + points.replace(old, new, 1) if old else f"\n{new}{mark}{points}")

    edit(tmp_path / "m", change)
    known = {e.id for e in shop.library()}
    bring_back(shop, tmp_path / "m")
    days = "Count both the days."
    assert {e.text for e in shop.library()} == {days if text is ... else text for text in texts}
    assert known <= {e.id for e in shop.library()}, "nothing is deleted"


@pytest.mark.parametrize(
    ("added", "line"),
    [
        ("A line without a dash.\n", 6 + 1),
        ("- More.\n\nA line without a dash.\n", 6 + 3),
        ("<!--\n- More.\n-->\nA line without a dash.\n", 6 + 4),
        ("\nA line without a dash.\n\n- More.\n", 6 + 2),
        ("\n    - code\n\nText after.\n", 6 + 4),
        ("```\ncode\n```\n", 6 + 2),
        ("> Quoted.\n", 6 + 1),
        ("- A\nwrapped.\n\nText after.\n", 6 + 4),
        ("| a | b |\n", 6 + 1),
        ("<!-- a --> Text.\n", 6 + 1),
        ("<b>Text.</b>\n", 6 + 1),
    ],
)
def test_a_line_of_a_person_that_is_no_experience_is_refused(
    shop: Store, tmp_path: Path, added: str, line: int
) -> None:
    folder = tmp_path / "m"
    mirror(shop, folder)
    assert len((folder / "library.md").read_text().splitlines()) == 6
    commit = edit(folder, lambda text: text.rstrip("\n") + "\n\n" + added)
    with pytest.raises(MirrorError, match=rf"{commit[:12]}: library\.md:{line + 1} ") as caught:
        bring_back(shop, folder)
    assert "- text" in (caught.value.hint or "")
    assert shop.port.last_version() == 4


@pytest.mark.parametrize("more", ["A line.", "  A line."])
def test_a_line_after_an_experience_that_has_its_id_is_refused(
    shop: Store, tmp_path: Path, more: str
) -> None:
    mirror(shop, tmp_path / "m")
    edit(tmp_path / "m", lambda text: f"{text.rstrip()}\n{more}\n")
    with pytest.raises(MirrorError, match=r"library\.md:7 is in no experience: 'A line\.'"):
        bring_back(shop, tmp_path / "m")


def test_an_experience_in_a_comment_is_none(shop: Store, tmp_path: Path) -> None:
    mirror(shop, tmp_path / "m")
    edit(tmp_path / "m", lambda text: f"{text}\n<!--\n- Not this.\n-->\n- This.\n")
    bring_back(shop, tmp_path / "m")
    assert [e.text for e in shop.library()][-1] == "This."
    assert len(list(shop.library())) == 3


def test_redacted_texts_are_mirrored_as_redacted_and_come_back_so(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        version = store.commit("main", [add("hunter2"), add(DAYS)], message="two")
        connection = store.port.connection  # type: ignore[attr-defined]
        row = store.events(version)[0].row
        connection.execute(
            "insert into redactions (event, author, time, reason) values (?, 'me', 1, 'x')", (row,)
        )
        connection.execute(
            "update events set text = null, reason = null, salt = null where row = ?", (row,)
        )
        assert mirror(store, tmp_path / "m").redacted == 1
        objects = git(tmp_path / "m", "cat-file", "--batch-all-objects", "--batch")
        assert "hunter2" not in objects
        with new_store(tmp_path, "other.db") as other:
            assert bring_back(other, tmp_path / "m").by_hand == ()
            same(store, other)
            assert other.history(store.events(version)[0].experience)[0].redacted


def test_the_verbs_mirror_and_read_back(cli: Cli, tmp_path: Path) -> None:
    cli("init")
    cli("add", DAYS, EUROS)
    assert cli("mirror", "git", "m").stdout == "mirrored 2 versions to m\n"
    assert cli("mirror", "git", "m").stdout == "already up to date: m has all 2 versions\n"
    edit(tmp_path / "m", lambda text: text.replace("both days", "every day"))
    (tmp_path / "notes.txt").write_text("Mine.")
    one_line_error(cli("mirror", "git", "notes.txt", ok=False), "neither empty nor")
    said = cli("import", "git", "m").stdout.splitlines()
    assert said == [
        "v2: by hand (J <j@example.org>)",
        "read 0 versions and 1 commit made by hand",
        "main is at v2",
    ]
    assert "Count every day." in (tmp_path / ".tfgrpo/experiences.json").read_text()
    one_line_error(cli("import", "git", "nothing", ok=False), "not a git repository")
    one_line_error(cli("import", "a.md", "b.md", ok=False), "one file at a time", code=2)
    one_line_error(
        cli("mirror", "git", "n", ok=False, env={"PATH": str(tmp_path)}), "git is not installed"
    )


def test_programs_are_told_what_was_mirrored_and_read_back(cli: Cli, tmp_path: Path) -> None:
    cli("init")
    cli("add", DAYS)
    assert json.loads(cli("mirror", "git", "m", "--json").stdout) == {
        "folder": "m",
        "written": 2,
        "there": 0,
        "moved": ["main"],
        "removed": [],
        "work_tree": True,
        "redacted": 0,
    }
    edit(tmp_path / "m", lambda text: text.replace("both days", "every day"))
    assert json.loads(cli("import", "git", "m", "--json").stdout) == {
        "adopted": [],
        "by_hand": ["v2"],
        "moved": [{"name": "main", "version": "v2"}],
        "apart": [],
        "unnamed": [],
    }
    assert "Count every day." in (tmp_path / ".tfgrpo/experiences.json").read_text()


def run_by(marker: Path) -> str:
    """A command that leaves a mark that it was run."""
    return f"touch {marker}; cat"


SETTINGS: dict[str, Callable[[Path], list[tuple[str, str]]]] = {
    "a clean filter": lambda marker: [("filter.evil.clean", run_by(marker))],
    "a smudge filter": lambda marker: [("filter.evil.smudge", run_by(marker))],
    "a process filter": lambda marker: [("filter.evil.process", run_by(marker))],
    "a promisor": lambda marker: [
        ("remote.origin.promisor", "true"),
        ("remote.origin.url", "."),
        ("remote.origin.uploadpack", run_by(marker)),
        ("extensions.partialClone", "origin"),
    ],
    "an external protocol": lambda marker: [
        ("remote.origin.promisor", "true"),
        ("remote.origin.url", f"ext::sh -c touch% {marker}"),
        ("protocol.ext.allow", "always"),
        ("extensions.partialClone", "origin"),
    ],
    "a monitor of files": lambda marker: [("core.fsmonitor", run_by(marker))],
    "an external diff": lambda marker: [("diff.external", run_by(marker))],
    "other refs": lambda marker: [("core.alternateRefsCommand", run_by(marker))],
    "an include": lambda marker: [("include.path", str(marker.parent / "included"))],
    "another work tree": lambda marker: [("core.worktree", str(marker.parent))],
    "a hook of gc": lambda marker: [("gc.recentObjectsHook", run_by(marker))],
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_what_a_repository_sets_is_never_run(shop: Store, tmp_path: Path, setting: str) -> None:
    folder, marker = tmp_path / "m", tmp_path / "marker"
    mirror(shop, folder)
    (tmp_path / "included").write_text(f'[filter "evil"]\nclean = {run_by(marker)}\n')
    (folder / ".git" / "info").mkdir(exist_ok=True)
    (folder / ".git" / "info" / "attributes").write_text("* filter=evil diff=evil\n")
    for key, value in SETTINGS[setting](marker):
        git(folder, "config", key, value)
    library = folder / "library.md"
    os.utime(library, (1, 1))  # so that git has to read it again
    if "promisor" in setting or "protocol" in setting:
        for path in (folder / ".git" / "objects").rglob("*.pack"):
            path.chmod(0o644)
            path.unlink()
    shop.commit("main", [add("more")], message="more")
    for act in (lambda: bring_back(shop, folder), lambda: mirror(shop, folder)):
        with suppress(TfgrpoError):
            act()
        assert not marker.exists()


def test_what_a_submodule_sets_is_never_run(shop: Store, tmp_path: Path) -> None:
    folder, marker = tmp_path / "m", tmp_path / "marker"
    mirror(shop, folder)
    inside = folder / "sub"
    inside.mkdir()
    git(inside, "init", "-q")
    (inside / "file").write_text("x")
    git(inside, "add", "file")
    git(inside, "commit", "-qm", "x")
    git(
        folder,
        "update-index",
        "--add",
        "--cacheinfo",
        f"160000,{git(inside, 'rev-parse', 'HEAD')},sub",
    )
    git(folder, "commit", "-qm", "a submodule")
    git(inside, "config", "filter.evil.clean", run_by(marker))
    (inside / ".git" / "info").mkdir(exist_ok=True)
    (inside / ".git" / "info" / "attributes").write_text("* filter=evil\n")
    os.utime(inside / "file", (1, 1))
    with suppress(TfgrpoError):
        bring_back(shop, folder)
    shop.commit("main", [add("more")], message="more")
    with suppress(TfgrpoError):
        mirror(shop, folder)
    assert not marker.exists()


def test_the_usual_settings_are_no_hindrance(shop: Store, tmp_path: Path) -> None:
    folder = tmp_path / "m"
    mirror(shop, folder)
    for key, value in {
        "user.name": "J",
        "remote.origin.url": "git@example.org:j/m.git",
        "remote.origin.fetch": "+refs/heads/*:refs/remotes/origin/*",
        "branch.main.remote": "origin",
        "branch.main.merge": "refs/heads/main",
        "core.hooksPath": ".husky",
        "pull.rebase": "true",
        "gc.auto": "0",
    }.items():
        git(folder, "config", key, value)
    bring_back(shop, folder)
    shop.commit("main", [add("more")], message="more")
    mirror(shop, folder)
    assert "more" in (folder / "library.md").read_text()


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root gives files away")
def test_a_repository_of_another_user_is_refused(shop: Store, tmp_path: Path) -> None:
    folder = tmp_path / "m"
    mirror(shop, folder)
    os.chown(folder / ".git", 65534, 65534)
    for act in (lambda: bring_back(shop, folder), lambda: mirror(shop, folder)):
        with pytest.raises(MirrorError, match="another user") as caught:
            act()
        assert caught.value.hint


@pytest.mark.parametrize("date", ["@0 +0000", "@2000000000 +0000"])
@pytest.mark.parametrize("how", ["one", "several", "onto the same"])
def test_a_cherry_pick_in_a_mirror_is_not_taken_for_the_version(
    shop: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, date: str
) -> None:
    folder = tmp_path / "m"
    for text in ("Ask for the deposit.", "Tandems count twice."):
        shop.commit("web", [add(text)], message=text)
    mirror(shop, folder)
    monkeypatch.setenv("GIT_COMMITTER_DATE", date)  # by which git puts branches in order
    start = {"one": "r/step_1", "several": "r/step_1", "onto the same": "web~1"}[how]
    picks = {"one": ["web"], "several": ["web~1", "web"], "onto the same": ["web"]}[how]
    git(folder, "checkout", "-q", "-b", "picked", start)
    for pick in picks:
        git(folder, "cherry-pick", "-X", "theirs", "--keep-redundant-commits", pick)
    monkeypatch.delenv("GIT_COMMITTER_DATE")
    before = git(folder, "rev-parse", "web")
    bring_back(shop, folder)
    shop.commit("web", [add("Close at six.")], message="six")
    assert mirror(shop, folder).written
    assert git(folder, "rev-parse", "web~1") == before
    assert mirror(shop, folder).written == 0
    with new_store(tmp_path, "other.db") as other:
        bring_back(other, folder)
        assert [e.text for e in other.library("web")] == [e.text for e in shop.library("web")]
        assert other.tip("web").digest == shop.tip("web").digest
        mirror(other, folder)
