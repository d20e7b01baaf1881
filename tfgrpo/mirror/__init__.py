"""A store as a real git repository, and back.

One version is one commit, whose tree holds

- `library.md`, the library with one experience a line, so that `git log -p`, `git blame` and
  review on a forge work on it;
- `events.jsonl`, the version itself: a line with its digest, parents, author, time, message and
  meta, then a line for each of its events with text, reason, evidence, seal and salt. Each commit
  replaces the one before, and `.gitattributes` keeps it out of diffs.

The commit's message is the version's, with one trailer, `Tfgrpo-Version: <digest>`. Branches and
tags are git's. Nothing else is kept anywhere: which versions are there already is read from the
trailers. What a commit holds follows from its version alone, so everybody who mirrors a store
gets the same commit ids.

`bring_back` adopts versions under their digests, which it makes again from what it reads, and
turns commits that people made by hand into versions.
"""

from tfgrpo.mirror.from_git import Returned, bring_back
from tfgrpo.mirror.git_commands import MirrorError
from tfgrpo.mirror.to_git import Mirrored, mirror

__all__ = ["MirrorError", "Mirrored", "Returned", "bring_back", "mirror"]
