"""The event store: versions, events, replay, diff, names. Knows no model and no terminal.

Start at `store.py`; `records.py` has the nouns, `port.py` what needs a database.
"""

from tfgrpo.store.canonical import derived_id
from tfgrpo.store.errors import (
    AmbiguousRevision,
    BadLocation,
    InvalidName,
    InvalidOperation,
    ProtectedName,
    PushRefused,
    StaleVersion,
    StoreError,
    TfgrpoError,
    TransferError,
    UnknownRevision,
)
from tfgrpo.store.find import find, store_path
from tfgrpo.store.records import (
    OPS,
    Change,
    Event,
    Experience,
    Head,
    Json,
    Library,
    Op,
    Operation,
    RefMove,
    Version,
)
from tfgrpo.store.store import ROOT, Store

__all__ = [
    "OPS",
    "ROOT",
    "AmbiguousRevision",
    "BadLocation",
    "Change",
    "Event",
    "Experience",
    "Head",
    "InvalidName",
    "InvalidOperation",
    "Json",
    "Library",
    "Op",
    "Operation",
    "ProtectedName",
    "PushRefused",
    "RefMove",
    "StaleVersion",
    "Store",
    "StoreError",
    "TfgrpoError",
    "TransferError",
    "UnknownRevision",
    "Version",
    "derived_id",
    "find",
    "store_path",
]
