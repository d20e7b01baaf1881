"""A store as a real git repository, and back.

One version is one commit, whose tree holds `library.md`, one experience a line, and `events.jsonl`,
the version itself and its events, a line each (`.gitattributes` keeps it out of diffs). The message
is the version's, with the trailer `Tfgrpo-Version: <digest>`, by which versions that are there are
known. What a commit holds follows from its version alone, so every mirror of a store has the same
commit ids.
"""

from tfgrpo.mirror.from_git import Returned, bring_back
from tfgrpo.mirror.git_commands import MirrorError
from tfgrpo.mirror.to_git import Mirrored, mirror

__all__ = ["MirrorError", "Mirrored", "Returned", "bring_back", "mirror"]
