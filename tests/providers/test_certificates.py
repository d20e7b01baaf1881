"""Authorities are loaded once in a process, and not at all where nothing is of https."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import openai  # noqa: F401  (what it imports loads authorities of its own)
import pytest
from scripted import ScriptedEndpoint
from standins import AUTHORITY

from tfgrpo.model import http_connection
from tfgrpo.model.endpoint import Endpoint, Request
from tfgrpo.model.http_connection import (
    CertificatesUnreadable,
    Connection,
    authorities,
    open_client,
)


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with every time that authorities are loaded; the environment names a file of one."""
    seen: list[int] = []
    create = ssl.create_default_context

    def counted() -> ssl.SSLContext:
        seen.append(1)
        return create()

    monkeypatch.setattr(ssl, "create_default_context", counted)
    for name in (*http_connection.AUTHORITIES, "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", str(AUTHORITY))
    http_connection._loaded.cache_clear()
    return seen


def test_clients_of_https_share_what_was_loaded_of_a_file(
    loads: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own.pem"
    own.write_bytes(AUTHORITY.read_bytes())
    monkeypatch.setenv("SSL_CERT_FILE", str(own))
    for _ in range(3):
        open_client(Connection("https://llm.example.com/v1", "k"), 5.0)
    assert len(loads) == 1
    other = tmp_path / "other.pem"
    other.write_text("no certificate")
    monkeypatch.setenv("SSL_CERT_FILE", str(other))
    with pytest.raises(CertificatesUnreadable, match=r"other\.pem"):
        open_client(Connection("https://llm.example.com/v1", "k"), 5.0)


def test_an_address_of_http_is_asked_without_them(loads: list[int]) -> None:
    async def ask(address: str) -> str:
        endpoint = Endpoint("m", address, "k", 60.0)
        try:
            return (await endpoint.ask(Request("check", (("user", "hello"),), 0.0, 8))).content
        finally:
            await endpoint.close()

    with ScriptedEndpoint(lambda _: "hi") as server:
        assert asyncio.run(ask(server.base_url)) == "hi"
    assert loads == []


def test_what_http_leads_to_over_tls_is_held_to_them(loads: list[int]) -> None:
    context = authorities(tls=False)
    assert context is not None
    assert loads == []
    context.set_alpn_protocols(["http/1.1"])
    wrapped = context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="x.example")
    assert len(loads) == 1
    assert wrapped.context.verify_mode == ssl.CERT_REQUIRED
    assert wrapped.context.check_hostname
    own = ssl.PEM_cert_to_DER_cert(AUTHORITY.read_text())
    assert own in wrapped.context.get_ca_certs(binary_form=True)
