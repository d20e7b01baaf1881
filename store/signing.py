"""Signatures: they show whose a version is, by an SSH key, as `ssh-keygen -Y` makes and checks
them.

A signature stands in the version's meta and signs the digest that the version has without it. A
signed tag is a version of its own: without events, with the tag's name in its meta. The keys that
count are in `allowed_signers` beside the store, in git's form, which never travels.

**Nobody waits for a signature**: a key may ask a person for a passphrase or a touch. A transaction
that reaches a version to be signed ends there, and nothing of it is recorded. The version is signed
outside, and the transaction begins again. The same version then has its signature; if others wrote
meanwhile, the version is another one and is signed in the same way.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from tfgrpo.store import child_processes
from tfgrpo.store.canonical import (
    canonical,
    new_id,
    new_salts,
    signed_payload,
    version_digest,
)
from tfgrpo.store.errors import InvalidName, PushRefused, TfgrpoError, UnknownRevision
from tfgrpo.store.history.allowed_names import check_name
from tfgrpo.store.history.append import content_of, new_version
from tfgrpo.store.history.revisions import TAG
from tfgrpo.store.history.walks import ancestors
from tfgrpo.store.records import SIGNATURE, TAGGED, BranchTip, Operation, Version
from tfgrpo.store.store import Store

NAMESPACE = "tfgrpo"
"""What a signature is for: one that was made for git's commits is none for a version."""
FILE = "allowed_signers"
LONGEST = 65536
"""Characters that a signature has at most."""

MISSING = "no signature"
Pending: TypeAlias = Callable[[], str]
"""Makes a signature: it may take as long as a person takes."""
Signer: TypeAlias = Callable[[bytes], Pending | None]
"""Returns at once what signs a payload, or None where nothing is to be signed."""


class Checked(NamedTuple):
    """A checked signature: `by` is whose it is, where it is good, `why` what is wrong."""

    by: str | None
    why: str

    @property
    def state(self) -> str:
        """`good`, `none` or `bad`."""
        return "good" if self.by is not None else "none" if self.why == MISSING else "bad"

    @property
    def object(self) -> dict[str, str | None]:
        """The same for programs."""
        return {"state": self.state, "by": self.by, "why": self.why or None}

    def __str__(self) -> str:
        return f"signed by {self.by}" if self.by is not None else self.why


def signer(key: str) -> Signer:
    """What signs with a key: a file with one, or with a public key whose private half an agent
    holds. Signing raises TfgrpoError where there is none, or ssh-keygen refuses."""

    def sign(message: bytes) -> Pending:
        return lambda: _signature(message, key)

    return sign


def _signature(message: bytes, key: str) -> str:
    command = ["-Y", "sign", "-n", NAMESPACE, "-f", os.path.expanduser(key)]
    code, output, complaint = _ssh_keygen(command, message)
    if code:
        raise TfgrpoError(
            f"cannot sign with {key}: {complaint}",
            hint="`ssh-add` gives a key with a passphrase to your agent; "
            "key in [commit] of tfgrpo.toml, or git's user.signingkey, says which",
        )
    return output


def allowed_signers(store: Store) -> str:
    """The path of the file that says whose signatures count in a store."""
    return os.path.join(os.path.dirname(store.file), FILE)


def unsigned_digest(store: Store, version: Version) -> bytes:
    """The digest that a version would have without its signature."""
    link = next(iter(store.port.chain([version.number])))
    rows = store.port.events(version.position - version.events, version.position)
    meta = {key: value for key, value in version.meta.items() if key != SIGNATURE}
    parents = [store.version(number).digest for number in version.parents]
    written = canonical(meta).decode() if meta else None
    return version_digest(content_of(version, link.schema, parents, written, rows))


def check(store: Store, version: Version) -> Checked:
    """Checks the signature of a version."""
    if SIGNATURE not in version.meta:
        return Checked(None, MISSING)
    message = signed_payload(unsigned_digest(store, version))
    return check_signature(store, version.meta[SIGNATURE], message, version.time)


def check_signature(store: Store, signature: object, message: bytes, moment: int) -> Checked:
    """Checks a signature of a message, made at a moment in microseconds (UTC), by those who are
    allowed in a store. Where ssh-keygen cannot be run, it is one that cannot be checked."""
    if signature is None:
        return Checked(None, MISSING)
    allowed = allowed_signers(store)
    if not os.path.isfile(allowed):
        return Checked(None, f"a signature that nobody is allowed to make: there is no {allowed}")
    if not isinstance(signature, str) or len(signature) > LONGEST:
        return Checked(None, "a bad signature: it is none")
    try:
        return _verified(signature, message, allowed, moment)
    except TfgrpoError as error:
        return Checked(None, f"a signature that cannot be checked here: {error}")


def _verified(signature: str, message: bytes, allowed: str, moment: int) -> Checked:
    import tempfile

    at = time.strftime("%Y%m%d%H%M%S", time.localtime(moment // 1_000_000))
    with tempfile.NamedTemporaryFile() as file:
        file.write(signature.encode("utf-8", "replace"))
        file.flush()
        options = ["-s", file.name, "-f", allowed, f"-Overify-time={at}"]
        code, principals, complaint = _ssh_keygen(["-Y", "find-principals", *options], b"")
        if code or not principals.strip():
            return Checked(None, f"a bad signature: {complaint or 'its key is not allowed'}")
        for principal in principals.splitlines():
            verify = ["-Y", "verify", "-n", NAMESPACE, "-I", principal, *options]
            code, output, complaint = _ssh_keygen(verify, message)
            if not code:
                key = output.rpartition(" with ")[2].strip()
                return Checked(f"{principal} ({key})", "")
    return Checked(None, f"a bad signature: {complaint}")


def check_tag(store: Store, name: str) -> Checked:
    """Checks the signature of a tag: that of the version it stands at, which has to be a tag's of
    that very name. Raises UnknownRevision."""
    return _tag_checked(store, name, standing_tag(store, name))


def _tag_checked(store: Store, name: str, version: Version) -> Checked:
    if TAGGED not in version.meta:
        return Checked(None, MISSING)
    if version.meta[TAGGED] != name:
        return Checked(None, f"a signature for another tag: {version.meta[TAGGED]!r}")
    if version.events or len(version.parents) != 1:
        return Checked(None, "a bad signature: the version is no tag's")
    return check(store, version)


def signatures_at(store: Store, version: Version) -> dict[str, Checked]:
    """The signatures that a version has: its own, named "", then that of each tag that means it."""
    checked = {"": check(store, version)} if SIGNATURE in version.meta else {}
    tags = _signed_tags(store, version)
    return checked | {name: _tag_checked(store, name, own) for name, own in tags}


def is_tagged(store: Store, version: Version) -> bool:
    """Whether this store's author has a tag of a version that is signed."""
    return any(own.author == store.author for _, own in _signed_tags(store, version))


def _signed_tags(store: Store, version: Version) -> Iterator[tuple[str, Version]]:
    """Yields the signed tags that mean a version, and the versions that they stand at."""
    for mark in store.port.names.marks_at(version.number, store.port.names.last_move()):
        own = store.port.names.standing(mark) if mark.startswith(TAG) else None
        if own is not None and TAGGED in own.meta:
            yield mark.removeprefix(TAG), own


def standing_tag(store: Store, name: str) -> Version:
    """The version that a tag stands at: its own, where it is signed. Raises UnknownRevision."""
    version = store.port.names.standing(TAG + name)
    if version is None:
        raise UnknownRevision(f"there is no tag {name!r}", hint="`tfgrpo tag` lists them")
    return version


def sign_tag(store: Store, name: str, at: str, sign: Signer, why: str, *, force: bool) -> Version:
    """Makes a signed tag of a revision; returns the version that was tagged. Raises InvalidName for
    one that is there, unless `force`, and TfgrpoError."""
    check_name("tag", name)
    signer, store.signer = store.signer, sign
    try:
        for recording in recordings(store):
            with recording:
                target = store.resolve(at)
                _append_tag(store, name, target, why, force)
    finally:
        store.signer = signer
    return target


def _append_tag(store: Store, name: str, target: Version, why: str, force: bool) -> None:
    there = store.port.names.standing(TAG + name)
    if there is not None and not force:
        raise InvalidName(
            f"tag {name} exists", hint="choose another name, or use --force to move it"
        )
    last = store.port.last_version()
    on = BranchTip("", target, target.number, None, last, 0, False, False)
    details: Any = {"author": store.author, "meta": {TAGGED: name}}
    message, now = why or f"tag {name}", drawn(store, target, []).time
    version = new_version(on, [], message, details, now, partial(signature, store))
    store.port.append_version(version, [])
    store.create_tag(name, version, force=force, why=why)


def require(store: Store, name: str, before: Version | None, after: Version) -> None:
    """Raises PushRefused for a move of a whole name that brings an unsigned version, or tag."""
    if name.startswith(TAG):
        checks = iter([(after, _tag_checked(store, name[len(TAG) :], after))])
    else:
        without = [] if before is None else [before.number]
        coming = ancestors(store, [after.number], without)
        checks = ((version, check(store, version)) for version in coming if version.number)
    for version, checked in checks:
        if checked.by is None:
            raise PushRefused(
                f"{name.partition('/')[2]} is protected there, and takes only signed versions: "
                f"{version.digest.hex()[:12]} has {checked}",
                hint="sign = true in [commit] of tfgrpo.toml signs versions, `tfgrpo tag -s` a "
                f"tag; {FILE} beside the store there says whose keys count",
            )


def _ssh_keygen(arguments: Sequence[str], message: bytes) -> tuple[int, str, str]:
    from subprocess import PIPE

    try:
        process = child_processes.start(
            ["ssh-keygen", *arguments],
            child_processes.without_keys("SSH_", "DISPLAY"),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
        )
    except OSError as error:
        raise TfgrpoError(
            f"cannot run ssh-keygen: {error.strerror}", hint="it comes with OpenSSH"
        ) from None
    with process:
        output, complaint = process.communicate(message)
    lines = complaint.decode(errors="replace").strip().splitlines()
    return process.returncode, output.decode(errors="replace"), lines[-1] if lines else ""


class Unsigned(Exception):
    """A transaction that has to end because one of its versions is not signed yet."""


class Draft(NamedTuple):
    """The values drawn for a version: the time, the ids of new experiences, the salts of texts."""

    on: bytes
    given: Sequence[Operation]
    time: int
    operations: Sequence[Operation]
    salts: bytes


class SigningTurns:
    """The attempts at one transaction: what is drawn for its versions, and their signatures."""

    def __init__(self) -> None:
        self._drafts: list[Draft] = []
        self._signatures: dict[bytes, str] = {}
        self._pending: tuple[bytes, Pending] | None = None
        self._at = 0
        self.is_done = False

    def begin(self) -> None:
        """Signs the version that the last attempt reached, and starts with the first version
        again."""
        self._at = 0
        if self._pending is not None:
            payload, pending = self._pending
            self._signatures[payload] = pending()
            self._pending = None

    def draft(self, on: bytes, operations: Sequence[Operation], now: Callable[[], int]) -> Draft:
        """What was drawn for the next version if it is the same, on that digest; else drawn now."""
        known = self._drafts[self._at :][:1]
        if not known or (known[0].on, known[0].given) != (on, operations):
            named = [
                one._replace(experience=new_id())
                if one.op == "ADD" and one.experience is None
                else one
                for one in operations
            ]
            known = [Draft(on, operations, now(), named, new_salts(len(named)))]
            self._drafts[self._at :] = known
        self._at += 1
        return known[0]

    def signature(self, payload: bytes, pending: Pending) -> str:
        """The signature of a payload. Raises Unsigned where there is none yet."""
        if payload not in self._signatures:
            self._pending = payload, pending
            raise Unsigned
        return self._signatures[payload]


def recordings(store: Store, action: str | None = None) -> Iterator[AbstractContextManager[None]]:
    """Attempts at one transaction of a store, an operation where it has a name. It begins again
    for each version in it that had to be signed first:

        for recording in recordings(store, "…"):
            with recording:
                …
    """
    if store.signer is None or store.port.in_transaction:
        yield _whole(store, action)
        return
    turns = SigningTurns()
    while not turns.is_done:
        turns.begin()
        yield _recording(store, action, turns)


def _whole(store: Store, action: str | None) -> AbstractContextManager[None]:
    return store.port.transaction() if action is None else store.operation(action)


@contextmanager
def _recording(store: Store, action: str | None, turns: SigningTurns) -> Iterator[None]:
    store.turns, turns.is_done = turns, True
    try:
        with _whole(store, action):
            yield
    except Unsigned:
        turns.is_done = False
        store.forget()  # it may be of what was just rolled back
    finally:
        store.turns = None


def drawn(store: Store, on: Version, operations: Sequence[Operation]) -> Draft:
    """What is drawn for a version on top of another: the same in each recording of it."""
    if store.turns is not None:
        return store.turns.draft(on.digest, operations, store.now)
    return Draft(on.digest, operations, store.now(), operations, new_salts(len(operations)))


def signature(store: Store, payload: bytes) -> str | None:
    """What signs a payload; None where nothing is to be signed. In a transaction that was not begun
    by `recordings` it is made while others wait. Raises TfgrpoError."""
    pending = None if store.signer is None else store.signer(payload)
    if pending is None or store.turns is None:
        return None if pending is None else pending()
    return store.turns.signature(payload, pending)
