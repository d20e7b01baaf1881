"""The errors a user can meet: a message, a `hint` what to do, the command's `exit_code`."""

from __future__ import annotations

import errno
import re

from tfgrpo.store.exit_codes import FAILED, NOT_BEGUN

NAME = "tfgrpo"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
HALF_A_CHARACTER = "part of a character is missing (a lone surrogate)"
"""The hint for a text that is not Unicode."""
MARKER = r"""extra\s*==\s*['"]([\w.-]+)['"]"""


SECRET = (
    r"pass(?!file)|pwd|secret|token|credential|bearer|cookie|authori[sz]ation|signature|^sig$|^auth$"
    r"|(?:^|[-_]|api|access|account|private|shared)key$"
)
"""What a parameter of an address is called whose value is a secret, libpq's among them."""
_USER = re.compile(r"(?<=:/)(/?)[^\s/?#]*@")
_PARAMETER = re.compile(r"(?<=[?&;#])([\w.~%+-]+)=[\w.~%+/:=-]+")
"""A parameter with a value. No sign of a shell's is in it: it would hide what a program is."""


def hide_secrets(text: str) -> str:
    """A text for people in which no address has a user, a password or the value of a parameter that
    is called like a secret. The address may be of a kind that nothing here takes."""

    def hidden(match: re.Match[str]) -> str:
        return f"{match[1]}=***" if re.search(SECRET, match[1], re.IGNORECASE) else match[0]

    return _PARAMETER.sub(hidden, _USER.sub(r"\1***@", text))


class TfgrpoError(Exception):
    """An error that a user can fix. `hint` says how, when that is known. A secret in an address is
    left out of the message."""

    exit_code = FAILED

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(hide_secrets(message))
        self.hint = hint


class StoreError(TfgrpoError):
    """The store file cannot be used: missing, damaged, locked, full, or of another schema."""


class StoreAway(StoreError):
    """The database of a shared store does not answer now. It may later."""


class FileChanged(StoreError):
    """A file in a folder that cannot be written has been written to. Opened anew it is read."""


class RowRefused(StoreError):
    """A row breaks a rule of the store. Others that were to be written with it need not wait."""


def not_unicode(error: UnicodeEncodeError) -> RowRefused:
    """The error for a text that no store can hold, with what stands around the place."""
    around = error.object[max(0, error.start - 20) : error.end + 20]
    return RowRefused(f"{around!r} is not valid Unicode", hint=HALF_A_CHARACTER)


class UnknownRevision(TfgrpoError):
    """A revision names nothing. The hint lists near misses."""


class AmbiguousRevision(TfgrpoError):
    """A revision names several things. The hint lists them."""


class StaleVersion(TfgrpoError):
    """A commit named a version to build on that the branch has left behind."""


class InvalidOperation(TfgrpoError):
    """An operation cannot apply to the library it was meant for."""


class BadLocation(TfgrpoError):
    """A location that cannot be one, or that must not be kept."""

    exit_code = NOT_BEGUN


class TransferError(TfgrpoError):
    """Another store cannot be reached, or what it sent cannot be taken. Nothing was recorded."""


class PushRefused(TfgrpoError):
    """A name of another store does not move forward to where it was asked to go."""


class InvalidName(TfgrpoError):
    """A branch, tag or run name that cannot be used."""


class BadName(InvalidName):
    """A name whose spelling is not allowed."""

    exit_code = NOT_BEGUN


class ProtectedName(TfgrpoError):
    """A branch or tag that is protected would have moved, been renamed or gone."""


class SettingsError(TfgrpoError):
    """A setting that is unknown or out of range."""

    exit_code = NOT_BEGUN


def advice(error: OSError) -> str:
    """The hint for a file that the system does not let us use."""
    if error.errno in NO_ROOM:
        return "free some space and run the same command again"
    return "check the permissions"


def install_hint(extra: str) -> str:
    """The command that installs what an extra stands for: `pip install 'openpyxl>=3.1'`."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        listed = requires(NAME) or []
    except PackageNotFoundError:  # run from a folder that was never installed
        listed = []
    wanted = []
    for requirement in listed:
        what, _, marker = requirement.partition(";")
        if (match := re.search(MARKER, marker)) and match[1] == extra:
            wanted.append(f"'{what.strip()}'")
    return "pip install " + (" ".join(wanted) or f"'.[{extra}]' in a clone of {NAME}")


def upgrade_hint() -> str:
    """How to get a newer version: from where this one was installed."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        origin = json.loads(distribution(NAME).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        origin = {}
    url = str(origin.get("url", ""))
    if url.startswith("file://") and "dir_info" in origin:
        from shlex import quote
        from urllib.parse import unquote, urlsplit

        folder = quote(unquote(urlsplit(url).path))
        editable = "-e " if origin["dir_info"].get("editable") else ""
        return f"upgrade {NAME}: `git -C {folder} pull && pip install {editable}{folder}`"
    if "vcs_info" in origin:
        return f"upgrade {NAME}: `pip install -U '{origin['vcs_info'].get('vcs', 'git')}+{url}'`"
    if url:
        return f"upgrade {NAME}: it was installed from {url}"
    return f"upgrade {NAME}: `pip install -U {NAME}`"
