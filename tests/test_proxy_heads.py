"""Requests on one connection: each goes through as it is, however the bytes arrive."""

from __future__ import annotations

import random
import re
import socket
import time
from bisect import bisect_right

import pytest
from providers import Provider, ProxyThread
from test_proxy_corpus import FORMS, MARK, REQUESTS, running

__all__ = ["running"]


def read_answers(connection: socket.socket, many: int) -> bytes:
    answers = b""
    while len(re.findall(rb"\r\n\r\n\{\}", answers)) < many:
        piece = connection.recv(65536)
        assert piece, answers
        answers += piece
    return answers


@pytest.mark.parametrize("route", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
def test_requests_on_one_connection_go_through_alike_however_they_arrive(
    route: str, running: tuple[Provider, ProxyThread]
) -> None:
    provider, proxy = running
    rng = random.Random(f"heads {route}")
    shapes = [text for path, text in REQUESTS.values() if path == route]
    shapes = [text for text in shapes for _ in range(1 + 20 // len(shapes))]
    rng.shuffle(shapes)
    other = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
    wire, ends, whole_at, wanted = b"", [], [], []
    for text in shapes:
        plain = MARK.sub(lambda mark: "null" if mark[1] == "q" else "", text).encode()
        number = b"%d" % rng.choice([1, 1, 1, 1, 1, 2])  # some heads differ now and then
        wire += b"POST %b HTTP/1.1\r\nHost: localhost\r\nX-Number: %b\r\n" % (
            route.encode(),
            number,
        )
        wire += b"Content-Length: %d\r\n\r\n" % len(plain) + plain
        wanted.append((number, MARK.sub(lambda mark: FORMS[mark[1]], text).encode()))
        whole_at.append(len(wire))
        if rng.random() < 0.1:
            wire += other
            wanted.append((None, b""))
            whole_at.append(len(wire))
        ends.append(len(wire))
    before = len(provider.received)
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=240) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answered, sent = 0, 0
        while sent < len(wire):
            following = [end for end in ends if end > sent]
            to = rng.choice(  # a piece of a request, one, several, one and a piece of the next
                [sent + 1, sent + 90, *following[:3], *following[:2], following[0] + 30]
            )
            connection.sendall(wire[sent:to])
            sent = min(to, len(wire))
            if sent not in ends:
                time.sleep(0.01)  # so that it mostly arrives apart from what follows
            if rng.random() < 0.6:
                whole = bisect_right(whole_at, sent)
                read_answers(connection, whole - answered)
                answered = whole
        read_answers(connection, len(wanted) - answered)
    got = provider.received[before:]
    assert [(x.header(b"x-number"), x.body) for x in got] == wanted
    for one in got:
        lengths = [value for name, value in one.headers if name.lower() == b"content-length"]
        assert lengths == ([b"%d" % len(one.body)] if one.body else [])
