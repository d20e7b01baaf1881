"""Where other stores are: a name and a location each. A setting of this store, never shared."""

from __future__ import annotations

import re
from typing import NamedTuple

from tfgrpo.store.address import is_address, named_by
from tfgrpo.store.errors import BadLocation, BadName, InvalidName, UnknownRevision
from tfgrpo.store.history.revisions import REMOTE
from tfgrpo.store.history.walks import ancestors
from tfgrpo.store.sql.port import Port
from tfgrpo.store.store import Store

SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
SECRET = re.compile(r"[^/@]*:[^/]*@")
CUT_SECRET = re.compile(r"[^/@:\[]*:.*@", re.S)
"""A password in an address of which a parser takes some for a port, a path or something else."""
CUT_SECRET_SCP = re.compile(r"[^/@:\[]{2,}:.*@[^/@]*:", re.S)
"""The same in `user:password@host:path`."""
QUERY = re.compile(r"[^?#]*[?#]")
QUERY_SCP = re.compile(r"[^/:]{2,}:[^?]*\?[^/]*=")
"""What follows is a query, which ssh has no use for, and which may hold a secret."""
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\Z")


class Remotes:
    """Reads and writes the remotes of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._port = store.port

    def all(self) -> dict[str, str]:
        """Name → location, names ascending."""
        return self._port.names.remotes()

    def location(self, name: str) -> str:
        """Where a remote is. Raises UnknownRevision when there is none of that name."""
        remotes = self.all()
        if name not in remotes:
            there = ", ".join(remotes)
            raise UnknownRevision(
                f"there is no remote {name!r}",
                hint=f"there is {there}"
                if there
                else "add one with `tfgrpo remote add NAME LOCATION`",
            )
        return remotes[name]

    def default(self) -> str:
        """`origin`, or the only remote. Raises UnknownRevision."""
        names = list(self.all())
        if "origin" in names:
            return "origin"
        if len(names) == 1:
            return names[0]
        raise UnknownRevision(
            "no remote was given" if names else "there is no remote",
            hint=f"choose one of {', '.join(names)}"
            if names
            else "add one with `tfgrpo remote add origin LOCATION`",
        )

    def add(self, name: str, location: str) -> None:
        """Adds a remote. Raises InvalidName when it exists or cannot be one, BadLocation."""
        check_location(location)
        if name == "HEAD" or not NAME.match(name) or ".." in name:
            raise BadName(
                f"{name!r} cannot be the name of a remote", hint="use letters, digits, _ . -"
            )
        with self._port.transaction():
            if name in self.all():
                raise InvalidName(
                    f"remote {name} already exists, at {self.location(name)}",
                    hint=f"`tfgrpo remote set-url {name} LOCATION` changes it",
                )
            self._port.names.put_remote(name, _recorded(location))

    def move(self, name: str, location: str) -> str:
        """Moves a remote; returns where it was. Raises UnknownRevision, BadLocation."""
        check_location(location)
        with self._port.transaction():
            before = self.location(name)
            self._port.names.put_remote(name, _recorded(location))
        return before

    def remove(self, name: str) -> int:
        """Forgets a remote and the names of its branches here; returns how many those were.
        Versions that came from it stay. Raises UnknownRevision."""
        with self._port.transaction():
            self.location(name)
            branches = tracked(self._port, name)
            self._port.names.drop_remote(name)
            if branches:
                moves = [(f"{REMOTE}{name}/{branch}", None, None) for branch in branches]
                self._store.move_names(moves, f"remove remote {name}")
        return len(branches)


def _recorded(location: str) -> str:
    return str(named_by(location)) if is_address(location) else location


def check_location(location: str) -> None:
    """Raises BadLocation, which does not repeat it, for a location with a password or a query in
    it. The address of a database, whose query names the library, is not for this."""
    scheme = SCHEME.match(location)
    rest = location[scheme.end() :] if scheme else location
    if SECRET.match(rest) or (CUT_SECRET if scheme else CUT_SECRET_SCP).match(rest):
        raise BadLocation(
            "the location contains a password",
            hint="leave it out: ssh will ask for it, or use a key",
        )
    if not is_address(location) and (QUERY if scheme else QUERY_SCP).match(rest):
        raise BadLocation(
            "the location has a query, which may hold a secret",
            hint="leave it out: ssh has no use for it; in ssh://HOST/PATH a ? of a path is %3F",
        )


def tracked(port: Port, remote: str) -> dict[str, int]:
    """Branch → version number: where a remote's branches stood when last heard of."""
    prefix = f"{REMOTE}{remote}/"
    return {
        m.name[len(prefix) :]: m.version for m in port.names.refs(prefix) if m.version is not None
    }


class Apart(NamedTuple):
    """A remote's branch, such as `origin/main`, and how many versions each side has alone."""

    name: str
    ahead: int
    behind: int


def apart_from_remote(store: Store, branch: str) -> Apart | None:
    """How far a branch is from the default remote's, as last heard of; None if it is not known."""
    remotes = Remotes(store)
    try:
        remote = remotes.default()
    except UnknownRevision:
        return None
    there = tracked(store.port, remote).get(branch)
    if there is None:
        return None
    here = store.tip(branch).number
    ahead = sum(1 for _ in ancestors(store, [here], [there]))
    behind = sum(1 for _ in ancestors(store, [there], [here]))
    return Apart(f"{remote}/{branch}", ahead, behind)
