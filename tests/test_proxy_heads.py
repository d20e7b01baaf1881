"""Heads that a client sends again and again: what is known of them changes nothing of what goes
through, however the bytes arrive, and no head is taken for another."""

from __future__ import annotations

import random
import re
import socket
import time
from bisect import bisect_right

import httptools
import pytest
from providers import Provider, ProxyThread
from test_proxy_corpus import FORMS, MARK, REQUESTS, running

from tfgrpo.proxy.http_message import Headers, KnownHead, Request

__all__ = ["running"]
LINES = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nX-A: b\r\n"


def head(length: object, *, lines: bytes = LINES) -> bytes:
    return b"%bContent-Length: %b\r\nX-Last: c\r\n\r\n" % (lines, str(length).encode())


def parsed(data: bytes) -> Request:
    """A request as the parser reads its head."""
    headers: Headers = []

    class Heard:
        def on_header(self, name: bytes, value: bytes) -> None:
            headers.append((name, value))

    parser = httptools.HttpRequestParser(Heard())
    parser.feed_data(data)
    return Request(
        parser.get_method(),
        data.split()[1],
        headers,
        modern=True,
        keep_alive=parser.should_keep_alive(),
    )


def known(data: bytes) -> KnownHead | None:
    return KnownHead.of(data, parsed(data))


def read_answers(connection: socket.socket, many: int) -> bytes:
    answers = b""
    while len(re.findall(rb"\r\n\r\n\{\}", answers)) < many:
        piece = connection.recv(65536)
        assert piece, answers
        answers += piece
    return answers


def test_a_known_head_gives_the_same_request_with_another_length() -> None:
    again = known(head(5) + b"hello")
    assert again is not None
    found = again.again(head(123) + b"x")
    assert found is not None
    request, at = found
    assert at == len(head(123))
    assert request.length == 123
    fresh = parsed(head(123))
    for name in ("method", "target", "path", "headers", "modern", "keep_alive", "chunked"):
        if name != "headers":
            assert getattr(request, name) == getattr(fresh, name)
    assert [x for x in request.headers if x[0] != b"Content-Length"] == [
        x for x in fresh.headers if x[0] != b"Content-Length"
    ]


@pytest.mark.parametrize(
    "data",
    [
        *(head(bad) for bad in ("", "+5", "-5", "5 ", " 5", "0x5", "5,5", "1234567890", "٣")),
        head(0),
        head(5).replace(b"X-A: b", b"X-A: c"),
        head(5).replace(b"X-Last", b"X-last"),
        head(5).replace(b"\r\n\r\n", b"\r\nContent-Length: 6\r\n\r\n"),
        head(5).replace(b"POST", b"PUT"),
        head(5).replace(b"\r\nX-Last", b"\nX-Last"),
        head(5)[:-1],
        head(5)[:-20],
        b"\r\n" + head(5),
        b"",
    ],
)
def test_a_head_that_differs_in_anything_but_digits_is_not_known(data: bytes) -> None:
    again = known(head(5) + b"hello")
    assert again is not None
    assert again.again(data + b"hello") is None or data == head(5)[:-1]
    if data:
        assert again.again(data) is None


@pytest.mark.parametrize(
    "data",
    [
        head(0),
        head(5, lines=b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"),
        head(5, lines=b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"),
        head(5, lines=b"\r\n" + LINES),
        head(5)[:-2],
        LINES + b"Transfer-Encoding: chunked\r\n\r\n",
        LINES + b"\r\n",
    ],
)
def test_some_heads_are_left_to_the_parser(data: bytes) -> None:
    assert known(data) is None


def test_the_length_of_another_header_is_not_taken_for_the_bodys() -> None:
    again = known(head(5, lines=LINES + b"X-B: Content-Length: 9\r\n") + b"hello")
    assert again is not None
    found = again.again(head(77, lines=LINES + b"X-B: Content-Length: 9\r\n"))
    assert found is not None
    assert found[0].length == 77
    assert again.again(head(5, lines=LINES + b"X-B: Content-Length: 8\r\n")) is None


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
