"""The event store: versions, events, replay, diff, names. Start at `store.py`. A name is loaded
from its module when it is first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfgrpo.store.address import find, store_path

if TYPE_CHECKING:
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
    from tfgrpo.store.records import (
        OPS,
        ROOT,
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
    from tfgrpo.store.store import Store

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

MODULES = ("errors", "records", "store", "canonical")
"""Where the names come from, quickest to load first."""


def __getattr__(name: str) -> Any:
    from importlib import import_module

    for module in MODULES if name in __all__ else ():
        loaded = import_module(f"tfgrpo.store.{module}")
        if hasattr(loaded, name):
            globals()[name] = value = getattr(loaded, name)
            return value
    raise AttributeError(f"module 'tfgrpo.store' has no attribute {name!r}")
