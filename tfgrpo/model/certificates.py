"""Whom the environment trusts to sign certificates (`SSL_CERT_FILE`, `SSL_CERT_DIR` and others),
loaded once, and for plain http only when needed: it takes a tenth of a second."""

from __future__ import annotations

import os
import ssl
from functools import lru_cache
from typing import Any

from tfgrpo.store.errors import TfgrpoError

AUTHORITIES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


class CertificatesUnreadable(TfgrpoError):
    """The file of authorities that the environment names is none."""


def authorities(tls: bool) -> ssl.SSLContext | None:
    """The context for an address of https (`tls`) or not; None where the environment names no
    authorities. Raises CertificatesUnreadable, without `tls` only when they are needed."""
    file = next(filter(None, map(os.environ.get, AUTHORITIES)), None)
    folder = os.environ.get("SSL_CERT_DIR") or None
    if not tls:
        return _WhenNeeded(file, folder)
    return _loaded(file, folder) if file or folder else None


class _WhenNeeded(ssl.SSLContext):
    """A context that loads its authorities when a first connection is made with it."""

    def __new__(cls, *_: object) -> _WhenNeeded:
        return super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)

    def __init__(self, file: str | None, folder: str | None) -> None:
        self._named = (file, folder)

    def set_alpn_protocols(self, alpn_protocols: Any) -> None:
        _loaded(*self._named).set_alpn_protocols(alpn_protocols)

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        return _loaded(*self._named).wrap_bio(*arguments, **named)

    def wrap_socket(self, *arguments: Any, **named: Any) -> ssl.SSLSocket:
        return _loaded(*self._named).wrap_socket(*arguments, **named)


def _loaded(file: str | None, folder: str | None) -> ssl.SSLContext:
    return _load(file, folder, *map(_changed, (file, folder)))


@lru_cache(maxsize=8)
def _load(file: str | None, folder: str | None, *_: int) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context()
        if file or folder:
            context.load_verify_locations(file, folder)
    except (OSError, ssl.SSLError) as error:
        raise CertificatesUnreadable(
            f"the certificates at {file or folder} cannot be read: {error}",
            hint="SSL_CERT_FILE is a PEM file of authorities",
        ) from None
    return context


def _changed(path: str | None) -> int:
    try:
        return os.stat(path).st_mtime_ns if path else 0
    except OSError:
        return 0
