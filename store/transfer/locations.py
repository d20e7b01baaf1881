"""Where another store may be: a path, a bundle file, `host:path` or `ssh://host/path`."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from tfgrpo.store import atomic_write
from tfgrpo.store.address import FOLDER, is_address, located, named_by, parse_address
from tfgrpo.store.errors import BadLocation, StoreError, TransferError, advice
from tfgrpo.store.fsck import fsck
from tfgrpo.store.opening import begin, is_store, is_there, new_library, there_already
from tfgrpo.store.store import Store
from tfgrpo.store.transfer import sync
from tfgrpo.store.transfer.bundle import Bundle
from tfgrpo.store.transfer.other_store import SSH, FetchSource, Peer, SshPeer, StorePeer
from tfgrpo.store.transfer.remotes import SCHEME, Remotes, check_location
from tfgrpo.store.transfer.sync import Transferred

SCP = re.compile(r"([^/:]{2,}|\[[^]/]*\]):(.*)\Z", re.S)
"""host:path, with the colon before any slash; one letter before it is a drive of Windows."""


class Location(NamedTuple):
    """A location taken apart. `host` is None for a path of this machine."""

    text: str
    path: str
    host: str | None = None
    port: int | None = None


def parse(text: str, *, base: Path | None = None) -> Location:
    """Takes a location apart; a path of this machine is made absolute from `base`. Raises
    BadLocation for a password (which is not repeated), a host like a flag, or an unknown scheme."""
    if is_address(text):
        text = str(named_by(text))
        return Location(text, text)
    check_location(text)
    scheme = SCHEME.match(text)
    if scheme:
        return _address(text, scheme[0])
    match = SCP.match(text)
    if match and not Path(text).exists():
        return _remote(text, match[1].strip("[]"), match[2], None)
    if not text:
        raise BadLocation("the location is empty", hint="give a path or host:path")
    path = str((base or Path.cwd()).joinpath(Path(text).expanduser()).resolve())
    return Location(path, path)


def _address(text: str, scheme: str) -> Location:
    if scheme.lower() != "ssh://":
        raise BadLocation(
            f"cannot reach {scheme}…",
            hint="give a path, a bundle file, host:path or ssh://host/path",
        )
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:  # whose words may have a password
        raise BadLocation(
            "the location cannot be read", hint="ssh://USER@HOST:PORT/PATH, with a number as PORT"
        ) from None
    host = (f"{parts.username}@" if parts.username else "") + (parts.hostname or "")
    path = unquote(parts.path)
    return _remote(text, host, path[1:] if path.startswith("/~") else path, port)


def _remote(text: str, host: str, path: str, port: int | None) -> Location:
    if not host or host.startswith("-") or not host.isprintable() or " " in host:
        raise BadLocation(f"{host!r} is not a valid host", hint="host:path, or ssh://host/path")
    return Location(text, path or ".", host, port)


@contextmanager
def source(location: Location, *, author: str, ssh: Sequence[str] = SSH) -> Iterator[FetchSource]:
    """Opens a store or bundle to fetch from. Raises StoreError or TransferError."""
    here = location.host is None and not is_address(location.path)
    if here and not _is_store(located(Path(location.path))):
        with closing(Bundle(Path(location.path))) as bundle:
            yield bundle
    else:
        with peer(location, author=author, ssh=ssh) as there:
            yield there


@contextmanager
def peer(location: Location, *, author: str, ssh: Sequence[str] = SSH) -> Iterator[Peer]:
    """Opens a store; `author` signs what moves there. Raises StoreError or TransferError."""
    if location.host is None:
        path = located(location.path)
        if path.is_file() and not _is_store(path):
            raise TransferError(
                f"{path} is a file and no store: nothing is pushed into it",
                hint="`tfgrpo bundle create FILE NAME` writes a bundle for its owner to pull from",
            )
        with Store.open(path, author=author) as store:
            yield StorePeer(store)
    else:
        far = SshPeer(location.host, location.path, port=location.port, ssh=ssh)
        with closing(far):
            yield far


def _is_store(path: Path) -> bool:
    """Whether a path is no readable bundle: a store, or nothing at all."""
    return not path.is_file() or is_store(path)


def clone(
    location: Location, path: Path, *, author: str, remote: str = "origin", ssh: Sequence[str] = SSH
) -> Transferred:
    """Makes the store file at `path`, whole or not at all, from another store, which becomes its
    remote. Raises StoreError when there is something at `path`."""
    shared = is_address(named_by(path))
    if is_there(path) if shared else path.exists():
        raise there_already(named_by(path))
    if shared:
        return _clone_into_database(location, path, author, remote, ssh)
    new_folders = [folder for folder in path.parents if not folder.exists()]
    scratch: Path | None = None
    try:
        with source(location, author=author, ssh=ssh) as there:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            atomic_write.clear(path)
            with atomic_write.held_folder(path.parent, atomic_write.SCRATCH) as scratch:
                with Store.init(scratch / path.name, author=author) as store:
                    Remotes(store).add(remote, location.text)
                    done = sync.clone(store, there, remote)
                    versions = store.port.last_version() + 1
                _check_whole(scratch / path.name, versions)
                (scratch / path.name).rename(path)
                atomic_write.sync_folder(path.parent)
                shutil.rmtree(scratch)
    except BaseException as error:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)
        for folder in new_folders:
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
        if isinstance(error, OSError):
            raise StoreError(f"cannot make {path}: {error.strerror}", hint=advice(error)) from error
        raise
    return done


def _check_whole(file: Path, versions: int) -> None:
    """Raises StoreError unless a store that was closed is whole in its one file, on the disk, with
    so many versions. Closing it moves its log into the file, and says nothing where that fails."""
    log = file.with_name(f"{file.name}-wal")
    if log.exists() and log.stat().st_size:
        raise StoreError(
            "the copy could not be written to the disk as a whole",
            hint="check the disk, free some space, and clone again",
        )
    with file.open("rb+") as handle:
        os.fsync(handle.fileno())
    with Store.open(file) as store:
        checked = fsck(store)
    if checked.problems or checked.versions != versions:
        what = "versions are missing"
        for where, wrong, *_ in checked.problems[:1]:
            what = f"{where} {wrong}"
        raise StoreError(
            f"the copy was damaged as it was written: {what}",
            hint="check the disk, and clone again",
        )


def _clone_into_database(
    location: Location, path: Path, author: str, remote: str, ssh: Sequence[str]
) -> Transferred:
    address = str(named_by(path))
    with source(location, author=author, ssh=ssh) as there, new_library(address) as port:
        store = Store(port, address, author=author, now=lambda: time.time_ns() // 1000)
        begin(store)
        Remotes(store).add(remote, location.text)
        return sync.clone(store, there, remote)


def folder_for(location: Location) -> str:
    """The folder that a clone makes: the last part of the path, or a library's name."""
    if is_address(location.path):
        return parse_address(location.path).library
    path = Path(location.path)
    name = path.parent.parent.name if path.parent.name == FOLDER else path.name
    name = name.removesuffix(".bundle").removesuffix(".db")
    if not name or name in (".", "..", "~"):
        raise BadLocation(
            f"{location.text} has no name to use for the folder", hint="name a folder: DIR"
        )
    return name
