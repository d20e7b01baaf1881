"""The grammar of revisions: every way to say which version is meant.

    revision := base suffix*
    base     := v<number> | HEAD | @ | <branch> | <tag> | step_<n> | <run>/step_<n>
              | <remote>/<branch> | <digest>            HEAD before @{<n>} may be left out
    suffix   := ~[<n>]        n first parents back
              | ^[<n>]        the n-th parent
              | @{<n>}        where the name stood n moves ago (directly after a name)
    range    := [revision] .. [revision]        either side defaults to HEAD
              | [revision] ... [revision]       since the two parted: a log shows both sides

`step_<n>` alone belongs to the run of the nearest version on HEAD's first-parent history that one
made. A branch or tag of this store wins over a remote's branch (`remotes/<remote>/<branch>` means
that alone), and that over a digest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from tfgrpo.store.errors import AmbiguousRevision, UnknownRevision
from tfgrpo.store.history.allowed_names import NUMBER, STEP
from tfgrpo.store.history.walks import ancestors, common_ancestor, first_parents
from tfgrpo.store.records import TAGGED, RefMove, Version

if TYPE_CHECKING:
    from tfgrpo.store.store import Store

SUFFIX = r"(?:~(\d*)|\^(\d*)|@\{(\d+)\})"  # compiled when it is needed, as those below
MOST_DIGITS = 18
"""Digits of a number that a file can hold, at most."""
WHOLE = 8
"""Characters that an experience's id has, at least."""
HEX = r"[0-9a-f]{4,64}\Z"
HEAD, BRANCH, TAG, REMOTE = "HEAD", "heads/", "tags/", "remotes/"


def parse(revision: str) -> tuple[str, list[tuple[str, int]]]:
    """Takes a revision apart: its base, and its suffixes as (sign, number). Raises UnknownRevision
    when it is not of the grammar: an empty one does not mean HEAD, so that an unset shell variable
    moves nothing."""
    signs = "~" in revision or "^" in revision or "@{" in revision
    suffix = re.search(r"[~^]|@\{", revision) if signs else None
    base = revision[: suffix.start()] if suffix else revision
    rest = revision[suffix.start() :] if suffix else ""
    suffixes: list[tuple[str, int]] = []
    while rest:
        match = re.match(SUFFIX, rest)
        if match is None:
            raise UnknownRevision(
                f"cannot parse revision {revision!r}",
                hint="use v12, HEAD, a branch, a tag, step_2, a digest, v12~2 or main@{1}",
            )
        back, parent, ago = match.groups()
        if ago is not None:
            suffixes.append(("@", _count(ago)))
        else:
            suffixes.append(("^", _count(parent)) if back is None else ("~", _count(back)))
        rest = rest[match.end() :]
    if any(sign == "@" for sign, _ in suffixes[1:]):
        raise UnknownRevision(
            f"cannot parse revision {revision!r}", hint="@{n} must directly follow a name"
        )
    if not base and not (suffixes and suffixes[0][0] == "@"):
        raise UnknownRevision(
            f"{revision!r} names no version" if revision else "the revision is empty",
            hint="write HEAD for the newest one here, or v12, a branch, a tag; "
            "is a variable of the shell not set?",
        )
    return base or "HEAD", suffixes


def resolve(store: Store, revision: str) -> Version:
    """The version a revision names. Raises UnknownRevision or AmbiguousRevision."""
    if revision == "HEAD":  # what most ask for
        return store.head.version
    _check_text(revision)
    if ".." in revision:
        raise UnknownRevision(
            f"{revision!r} is a range; a single version is needed here",
            hint="use one end of it, or `tfgrpo log` or `tfgrpo diff`",
        )
    base, suffixes = parse(revision)
    if suffixes and suffixes[0][0] == "@":
        version = _earlier(store, base, suffixes[0][1])
        suffixes = suffixes[1:]
    else:
        version = _base(store, base)
    for sign, n in suffixes:
        version = _back(store, version, n) if sign == "~" else _parent(store, version, n)
    return version


def resolve_range(store: Store, text: str) -> tuple[Version | None, Version]:
    """The two ends of `a..b`; for a plain revision the first is None. `a...b` begins where the two
    parted: at the newest version that both have in their history."""
    _check_text(text)
    if ".." not in text:
        return None, resolve(store, text)
    low, dots, high = text.partition("...") if "..." in text else text.partition("..")
    with store.port.reading():
        if dots == "...":
            mine, theirs = resolve(store, low or "HEAD"), resolve(store, high or "HEAD")
            return common_ancestor(store, mine, theirs), theirs
        return resolve(store, low or "HEAD"), resolve(store, high or "HEAD")


def walk(store: Store, text: str) -> Iterator[Version]:
    """The versions in a history, `a..b` or `a...b`, newest first, resolved at the call."""
    _check_text(text)
    if "..." not in text:
        low, high = resolve_range(store, text)
        if low is None:
            return ancestors(store, [high.number])
        return ancestors(store, [high.number], [low.number])
    from heapq import merge  # which no other view needs

    left, _, right = text.partition("...")
    with store.port.reading():
        a, b = resolve(store, left or "HEAD").number, resolve(store, right or "HEAD").number
    sides = (ancestors(store, [a], [b]), ancestors(store, [b], [a]))
    return merge(*sides, key=lambda version: -version.number)


def _check_text(revision: object) -> None:
    if not isinstance(revision, str):
        raise UnknownRevision(
            f"a revision is a text, and not {revision!r}"[:200],
            hint="such as 'HEAD', 'v12' or the name of a branch",
        )


def _count(digits: str) -> int:
    """A number, 1 for none; any with too many digits is the same."""
    return int(digits or 1) if len(digits) <= MOST_DIGITS else 10**MOST_DIGITS


def _base(store: Store, base: str) -> Version:
    if base in ("HEAD", "@"):
        return store.head.version
    if match := re.match(NUMBER, base):
        version = store.port.version(_count(match[1]))
        if version is not None:
            return version
        last = store.port.last_version()
        raise UnknownRevision(f"there is no {base}", hint=f"the newest version is v{last}")
    if match := re.match(STEP, base):
        return _step(store, base)
    candidates: dict[str, Version] = {}
    for kind, prefix in (("branch", BRANCH), ("tag", TAG)):
        version = store.port.names.standing(prefix + base)
        if version is not None:
            candidates[f"{kind} {base}"] = tagged(store, version) if kind == "tag" else version
    if not candidates:
        version = store.port.names.standing(REMOTE + base.removeprefix(REMOTE))
        if version is not None:
            return version
    # A name is what somebody chose: it wins over a digest.
    if not candidates and re.match(HEX, base):
        for version in store.port.versions_by_digest(base, 5):
            candidates.setdefault(f"digest {version.digest.hex()[:12]} ({version.name})", version)
    if len({v.number for v in candidates.values()}) > 1:
        raise AmbiguousRevision(f"{base!r} is ambiguous", hint="it may be " + ", ".join(candidates))
    if candidates:
        return next(iter(candidates.values()))
    if _is_experience(store, base):
        raise UnknownRevision(
            f"{base} is an experience, and no revision",
            hint=f"`tfgrpo show {base}` tells its life, `tfgrpo log --experience {base}` its "
            "versions",
        )
    raise UnknownRevision(f"there is no revision {base!r}", hint=_near(store, base))


def _is_experience(store: Store, base: str) -> bool:
    if re.match(r"G\d+\Z", base):
        return base in store.library("HEAD").labels
    return len(base) >= WHOLE and base in store.port.experiences_like(base, 2)


def _step(store: Store, base: str) -> Version:
    run = run_of_history(store, store.head.version)
    if run is not None:
        version = store.port.names.standing(f"{TAG}{run}/{base}")
        if version is not None:
            return version
        steps = [
            int(match[1])
            for r in store.port.names.refs(f"{TAG}{run}/step_")
            if r.version is not None and (match := re.match(STEP, r.name.rpartition("/")[2]))
        ]
        newest = f"its newest is {run}/step_{max(steps)}" if steps else "all its tags are deleted"
        raise UnknownRevision(f"run {run} has no {base}", hint=newest)
    tags = [
        r.name[len(TAG) :]
        for r in store.port.names.refs(TAG)
        if r.name.endswith("/" + base) and r.version is not None
    ]
    if len(tags) == 1:
        return _base(store, tags[0])
    if tags:
        raise AmbiguousRevision(
            f"{base!r} is ambiguous: no run made HEAD's history",
            hint="it may be " + ", ".join(tags[-8:]),
        )
    raise UnknownRevision(f"there is no {base}", hint="no run has made one yet: `tfgrpo runs`")


def run_of_history(store: Store, version: Version) -> str | None:
    """The name of the run that made the nearest version on this history, if any did."""
    for ancestor in first_parents(store, version):
        run = ancestor.meta.get("run")
        if isinstance(run, str):
            return run
    return None


def _earlier(store: Store, base: str, ago: int) -> Version:
    listed = list(islice(moves_of(store, base), ago + 1))
    moves = [move.version for move in listed]
    if ago >= len(moves):
        oldest = len(moves) - 1
        raise UnknownRevision(
            f"{base} has stood in {len(moves)} places only",
            hint=f"the oldest is {base}@{{{oldest}}}",
        )
    number = moves[ago]
    if number is None:
        raise UnknownRevision(
            f"at {base}@{{{ago}}} {base} was deleted", hint=f"{base}@{{{ago + 1}}} is before that"
        )
    version = store.version(number)
    return tagged(store, version) if listed[ago].name.startswith(TAG) else version


def tagged(store: Store, version: Version) -> Version:
    """The version that a tag at `version` means: its parent, where the tag is signed."""
    own = TAGGED in version.meta and version.parent is not None
    return store.version(version.parent or 0) if own else version


def meant_by(store: Store, tags: Mapping[str, int]) -> dict[str, int]:
    """Tag → number of the version that it means; `tags` has the numbers of those it stands at."""
    at = {version.number: version for version in store.versions_at(set(tags.values()))}
    return {tag: tagged(store, at[number]).number for tag, number in tags.items()}


def moves_of(store: Store, base: str) -> Iterator[RefMove]:
    """The moves of HEAD, a branch or a tag, newest first: of a name that stands, else of one that
    did. HEAD moves when it is checked out elsewhere and whenever the branch it is on moves. Raises
    UnknownRevision."""
    if base not in ("HEAD", "@"):
        names = (BRANCH + base, TAG + base, REMOTE + base.removeprefix(REMOTE))
        last = [move for name in names if (move := store.port.names.ref(name)) is not None]
        if not last:
            raise UnknownRevision(f"{base!r} is no branch or tag", hint=_near(store, base))
        stands = next((move for move in last if move.version is not None), last[0])
        yield from store.port.names.ref_log(stands.name)
        return
    head = store.port.names.ref(HEAD)
    symbol = head.symbol if head else None
    for move in store.port.names.ref_log(None):
        if move.name == HEAD:
            yield move
            symbol = move.previous_symbol
        elif move.name == symbol and move.version is not None:  # a rename has it go in the batch
            yield move


def _back(store: Store, version: Version, n: int) -> Version:
    back = next(islice(first_parents(store, version), n, None), None)
    if back is None:
        raise UnknownRevision(
            f"{version.name}~{n} is before the first version",
            hint=f"{version.name} has fewer than {n} ancestors",
        )
    return back


def _parent(store: Store, version: Version, n: int) -> Version:
    if n == 0:
        return version
    if n > len(version.parents):
        raise UnknownRevision(
            f"{version.name} has {len(version.parents)} parents",
            hint=f"{version.name}^{n} names none",
        )
    return store.version(version.parents[n - 1])


def _near(store: Store, base: str) -> str:
    from rapidfuzz import fuzz, process

    refs = [r for prefix in (BRANCH, TAG) for r in store.port.names.refs(prefix)]
    names = [r.name.partition("/")[2] for r in refs if r.version is not None]
    near = [
        n for n, *_ in process.extract(base, names, scorer=fuzz.ratio, limit=3, score_cutoff=50)
    ]
    if near:
        return "did you mean " + " or ".join(near) + "?"
    return "`tfgrpo log` lists versions, `tfgrpo branch` and `tfgrpo tag` list names"
