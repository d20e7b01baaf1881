"""From a store to a git repository: what is missing there, as one stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tfgrpo.mirror import commit_layout
from tfgrpo.mirror.git_commands import Git, MirrorError, update_refs
from tfgrpo.store.history.log_filter import subject
from tfgrpo.store.history.revisions import BRANCH, TAG
from tfgrpo.store.history.walks import ancestors
from tfgrpo.store.records import Version
from tfgrpo.store.store import Store
from tfgrpo.store.transfer.pack import exported, find

STATUS = ("status", "--porcelain", "--untracked-files=no", "--ignore-submodules=all")
SCRATCH = "refs/tfgrpo/mirror"
KINDS = {BRANCH: "refs/heads/", TAG: "refs/tags/"}


class Mirrored(NamedTuple):
    """What became of a mirror: versions written, those there before, refs moved and taken away,
    whether the work tree was brought along, and how many texts of the written are redacted."""

    folder: Path
    written: int
    there: int
    moved: tuple[str, ...]
    removed: tuple[str, ...]
    work_tree: bool
    redacted: int


def mirror(store: Store, folder: Path, revision: str | None = None) -> Mirrored:
    """Writes what a git repository in `folder`, made where there is none, lacks of the store, or of
    a revision's history and names. Raises MirrorError, with nothing moved, for another kind of
    folder, uncommitted changes, and commits by hand that were not read yet."""
    with store.port.reading():
        numbers, names = _selected(store, revision)
    git = _open(store, folder, names)
    git.refuse_shallow()
    refs = git.refs()
    known, same = _known(store, git) if refs else ({}, {})
    if refs and not known:
        raise MirrorError(
            f"{folder} is a git repository, but not a mirror of a store",
            hint="choose an empty or new folder",
        )
    head = _head(git)
    ref_names = _ref_names(names)
    writer = _GitWriter(store, git, known)
    new = [n for n in numbers if store.version(n).digest.hex() not in known]
    if new:
        writer.write(new)
    targets = {}
    for ref, n in ref_names.items():
        digest, there = store.version(n).digest.hex(), refs.get(ref, "")
        targets[ref] = there if same.get(there) == digest else writer.commits[digest]
    moves = [(ref, new_, refs.get(ref, "")) for ref, new_ in targets.items()]
    moves = [move for move in moves if move[1] != move[2]]
    digests = same | {commit: digest for digest, commit in writer.commits.items()}
    _refuse_unread(store, git, moves, digests)
    brought = not git.bare and any(ref == head for ref, _, _ in moves)
    if brought and git(*STATUS):
        raise MirrorError(
            f"{folder} has uncommitted changes",
            hint="commit them there, or `git stash` them, and run this again",
        )
    ours = set(writer.commits.values())
    stale = [] if revision else _stale_refs(store, refs, ref_names, head, ours)
    update_refs(git, [(ref, "", refs[ref]) for ref in stale])
    update_refs(git, moves)
    if brought:
        old = refs.get(head)
        git("read-tree", "-m", "-u", *([old] if old else []), targets[head])
    return Mirrored(
        folder,
        len(new),
        len(numbers) - len(new),
        tuple(_short(ref) for ref, _, _ in moves),
        tuple(map(_short, stale)),
        brought,
        writer.redacted,
    )


def _short(ref: str) -> str:
    return commit_layout.our_name(ref.split("/", 2)[2])


def _selected(store: Store, revision: str | None) -> tuple[list[int], dict[str, int]]:
    names = {BRANCH + name: n for name, n in store.branches().items()}
    names |= {TAG + name: n for name, n in store.tags().items()}
    tips = set(names.values()) if revision is None else {store.resolve(revision).number}
    numbers = [version.number for version in ancestors(store, tips)][::-1]
    inside = set(numbers)
    names = {name: n for name, n in names.items() if n in inside}
    if not tips <= set(names.values()):
        version = store.resolve("HEAD" if revision is None else revision)
        raise MirrorError(
            f"{version.name} has no branch or tag, so git has no name for it",
            hint=f"`tfgrpo tag NAME {version.name}` creates one",
        )
    return numbers, names


def _ref_names(names: Mapping[str, int]) -> dict[str, int]:
    refs: dict[str, int] = {}
    for kind, prefix in KINDS.items():
        own = {name[len(kind) :]: n for name, n in names.items() if name.startswith(kind)}
        refs |= {prefix + commit_layout.ref_name(name, own): n for name, n in own.items()}
    return refs


def _open(store: Store, folder: Path, names: Mapping[str, int]) -> Git:
    if Git.is_repository(folder):
        return Git(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise MirrorError(
            f"{folder} is neither empty nor a git repository",
            hint="choose an empty or new folder",
        )
    branches = [name[len(BRANCH) :] for name in names if name.startswith(BRANCH)]
    head = store.head.branch
    first = head if head in branches or not branches else min(branches)
    return Git.init(folder, commit_layout.ref_name(first or "main", branches))


def _head(git: Git) -> str:
    """The ref that the repository's HEAD follows; nothing when it is detached."""
    try:
        return git("symbolic-ref", "-q", "HEAD").strip()
    except MirrorError:
        return ""


def _known(store: Store, git: Git) -> tuple[dict[str, str], dict[str, str]]:
    """Returns digest → commit from the trailers, and commit → digest of all commits that are a
    version. A trailer comes along in a cherry-pick: of several commits that is a version which
    tells of it on what it builds on, and of several of those the one that nobody committed anew."""
    trailer = f"%(trailers:key={commit_layout.TRAILER},valueonly,separator=%x20)"
    form = f"%H%x00%P%x00%an %ae %at%x00%cn %ce %ct%x00{trailer}"
    out = git("rev-list", "--topo-order", "--reverse", "--branches", "--tags", f"--format={form}")
    parents: dict[str, list[str]] = {}
    named: dict[str, list[str]] = {}
    anew: set[str] = set()
    for line in out.split("\n"):
        if line.count("\0") < 4:
            continue
        commit, above, author, committer, digests = line.split("\0", 4)
        parents[commit] = above.split()
        anew |= {commit} if author != committer else set()
        for digest in digests.split()[-1:]:
            named.setdefault(digest, []).append(commit)
    same = {commit: digest for digest, commits in named.items() for commit in commits}
    if len(same) > len(named):
        versions = _versions(store, git, parents)
        for digest, commits in named.items():
            own = bytes.fromhex(digest)
            true = [commit for commit in commits if versions[commit] == own] or commits[:1]
            for commit in set(commits) - set(true):
                del same[commit]
            named[digest] = sorted(true, key=anew.__contains__)
    return {digest: commits[0] for digest, commits in named.items()}, same


def _versions(store: Store, git: Git, parents: Mapping[str, list[str]]) -> dict[str, bytes | None]:
    """Returns commit → digest of the version that it is, as reading the mirror back tells; None for
    a commit by hand that was not read. `parents` has parents first."""
    by_hand = commit_layout.made_by_hand(store)
    contents = git.objects([f"{commit}:{commit_layout.EVENTS}" for commit in parents])
    events: dict[str, str | None] = {}
    versions: dict[str, bytes | None] = {}
    for (commit, parent_commits), content in zip(parents.items(), contents, strict=True):
        events[commit] = content and content[0]
        record = commit_layout.recorded(content[1]) if content else None
        below = [versions[parent] for parent in parent_commits]
        above = [events[parent] for parent in parent_commits]
        versions[commit] = by_hand[commit].digest if commit in by_hand else None
        if record and content and commit_layout.is_own(record, below, content[0], above):
            versions[commit] = record.digest
    return versions


def _refuse_unread(
    store: Store, git: Git, moves: list[tuple[str, str, str]], digests: Mapping[str, str]
) -> None:
    """Raises MirrorError when a ref would leave commits behind that the store has not read;
    `digests` has commit → digest."""
    for ref, new, old in moves:
        left = git("rev-list", old, "--not", new).split() if old else []
        unread = {
            commit
            for commit in left
            if commit not in digests or find(store.port, bytes.fromhex(digests[commit])) is None
        }
        if unread:
            unread -= commit_layout.made_by_hand(store).keys()
        if unread:
            raise MirrorError(
                f"{_short(ref)} in {git.folder} has {len(unread)} commits that the store has not "
                "read",
                hint=f"`tfgrpo import git {git.folder}` imports them",
            )


def _stale_refs(
    store: Store, refs: Mapping[str, str], ref_names: Mapping[str, int], head: str, ours: set[str]
) -> list[str]:
    """Refs whose names the store had and has no longer; others are somebody else's."""
    stale = []
    for ref, commit in refs.items():
        kind = BRANCH if ref.startswith(KINDS[BRANCH]) else TAG
        move = store.port.names.ref(kind + _short(ref))
        if ref not in ref_names and move is not None and commit in ours and ref != head:
            stale.append(ref)
    return stale


class _GitWriter:
    """Writes commits; `commits` has digest → commit, of those there before as well."""

    def __init__(self, store: Store, git: Git, known: Mapping[str, str]) -> None:
        self.commits = dict(known)
        self.redacted = 0
        self._store = store
        self._git = git
        self._marks: dict[int, int] = {}
        self._rendering = commit_layout.Rendering(store)

    def write(self, numbers: list[int]) -> None:
        """Writes the versions of these numbers, ascending."""
        store = self._store
        commits = {n: commit_layout.made_of(store.version(n).meta) for n in numbers}
        by_hand = {n: one for n, one in commits.items() if one and self._git.exists(one)}
        with self._git.importing() as stream:
            # All libraries first: git packs each as what differs from the file before it.
            for mark, number in enumerate(numbers, len(numbers) + 1):
                stream.write(b"blob\nmark :%d\n" % mark)
                stream.writelines(_data(self._rendering.at(store.version(number)).encode()))
            for mark, number in enumerate(numbers, 1):
                blob = len(numbers) + mark
                stream.writelines(self._commit(store.version(number), mark, blob, by_hand))
                self._marks[number] = mark
            stream.writelines(b"get-mark :%d\n" % mark for mark in self._marks.values())
        answers = iter(self._git.answers)
        for number in numbers:
            self.commits[store.version(number).digest.hex()] = next(answers)
        update_refs(self._git, [(SCRATCH, "", "")])

    def _parents(self, version: Version, by_hand: str | None) -> list[str]:
        """The commits that a version's commit stands on. The commit by hand that it was made of
        comes first, and takes its parent's place where it stands on that one itself."""
        names = [
            f":{self._marks[n]}"
            if n in self._marks
            else self.commits[self._store.version(n).digest.hex()]
            for n in version.parents
        ]
        if by_hand is None:
            return names
        others = [n for n in names if n[0] == ":" or not self._git.is_ancestor(n, by_hand)]
        return [by_hand, *others]

    def _commit(
        self, version: Version, mark: int, library: int, by_hand: Mapping[int, str]
    ) -> Iterator[bytes]:
        (packed,) = exported(self._store.port, [version.number])
        self.redacted += sum(e.seal is not None and e.salt is None for e in packed.events)
        who = commit_layout.ident(version.author, version.time)
        yield b"commit %s\nmark :%d\n" % (SCRATCH.encode(), mark)
        yield b"author %s\ncommitter %s\n" % (who, who)
        yield from _data(commit_layout.message(version, subject(self._store, version)))
        for n, parent in enumerate(self._parents(version, by_hand.get(version.number))):
            yield b"%s %s\n" % (b"merge" if n else b"from", parent.encode())
        if not packed.parents:
            yield b"M 100644 inline %s\n" % commit_layout.ATTRIBUTES.encode()
            yield from _data(commit_layout.ATTRIBUTES_TEXT)
        yield b"M 100644 :%d %s\n" % (library, commit_layout.LIBRARY.encode())
        yield b"M 100644 inline %s\n" % commit_layout.EVENTS.encode()
        yield from _data(commit_layout.record(packed))


def _data(content: bytes) -> Iterator[bytes]:
    """Yields content with its length before it: whatever it holds, it is not a command."""
    yield b"data %d\n" % len(content)
    yield content
    yield b"\n"
