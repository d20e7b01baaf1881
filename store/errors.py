"""The errors a user can meet, each one line with a hint.

`TfgrpoError` is the root of everything that the product raises on purpose. The
message says what is wrong, `hint` what to do about it; the command line prints
both and exits with `exit_code`. A program catches the kinds below.
"""

from __future__ import annotations

import errno


class TfgrpoError(Exception):
    """Something a user can mend. `hint` tells how, when that is known."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class StoreError(TfgrpoError):
    """The store file cannot be used: missing, damaged, locked, full, or of another schema."""


class StoreAway(StoreError):
    """The database of a shared store does not answer now. It may later."""


class FileChanged(StoreError):
    """A file in a folder that cannot be written has been written to. Opened anew it is read."""


class RowRefused(StoreError):
    """A row breaks a rule of the store. Others that were to be written with it need not wait."""


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


class TransferError(TfgrpoError):
    """Another store cannot be reached, or what it sent cannot be taken. Nothing was recorded."""


class PushRefused(TfgrpoError):
    """A name of another store does not move forward to where it was asked to go."""


class InvalidName(TfgrpoError):
    """A branch, tag or run name that cannot be used."""


class ProtectedName(TfgrpoError):
    """A branch or tag that is protected would have moved, been renamed or gone."""


class SettingsError(TfgrpoError):
    """A setting that is unknown or out of range."""

    exit_code = 2


NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def advice(error: OSError) -> str:
    """Returns what to do about a file that the system does not let us have."""
    if error.errno in NO_ROOM:
        return "free some space and run the same command again"
    return "check the permissions"
