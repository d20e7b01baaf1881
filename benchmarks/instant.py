"""An OpenAI-compatible endpoint that costs next to nothing, as a process of its own.

    python benchmarks/instant.py [--tokens N] [--median SECONDS --sigma S]

It prints its port. Every `What is A op B?` is answered right, with a reasoning of `--tokens`
tokens before it; the n-th request is answered after the n-th of a fixed row of lognormal
latencies, or at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re

QUESTION = re.compile(rb"What is (\d+) op (\d+)\?")
WORDS = "so we add the first number to the second and then one more, as the rule says. "
BODY = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


def latencies(count: int, median: float, sigma: float) -> list[float]:
    """Returns the latencies of the first `count` requests, in seconds."""
    chance = random.Random(11)
    return [median * chance.lognormvariate(0.0, sigma) for _ in range(count)]


def reasoning(tokens: int) -> str:
    """Returns a text of about so many tokens: four characters each."""
    return (WORDS * (tokens * 4 // len(WORDS) + 1))[: tokens * 4]


class Connection(asyncio.Protocol):
    """One connection: the bodies of its requests, one after the other."""

    def __init__(self) -> None:
        self._pending = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._pending += data
        while True:
            end = self._pending.find(b"\r\n\r\n")
            length = BODY.search(self._pending[:end]) if end >= 0 else None
            if length is None or len(self._pending) < end + 4 + int(length[1]):
                return
            body = self._pending[end + 4 : end + 4 + int(length[1])]
            self._pending = self._pending[end + 4 + int(length[1]) :]
            self._answer(body)

    def _answer(self, body: bytes) -> None:
        raise NotImplementedError

    def send(self, answer: bytes) -> None:
        """Sends an answer: the JSON of it."""
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        self._transport.write(head % len(answer) + answer)


class Server(Connection):
    """A connection whose requests are answered right."""

    def __init__(self, head: bytes, tail: bytes, waits: list[float], shared: list[int]) -> None:
        super().__init__()
        self._head, self._tail = head, tail
        self._waits, self._count = waits, shared

    def _answer(self, body: bytes) -> None:
        found = QUESTION.findall(body)[-1]
        answer = b"%s%d%s" % (self._head, int(found[0]) + int(found[1]) + 1, self._tail)
        self._count[0] += 1
        if self._waits:
            wait = self._waits[(self._count[0] - 1) % len(self._waits)]
            asyncio.get_running_loop().call_later(wait, self.send, answer)
        else:
            self.send(answer)


def body(tokens: int) -> tuple[bytes, bytes]:
    """Returns what comes before and after the number in an answer of about so many tokens."""
    text = reasoning(tokens) + "\\boxed{@@}"
    completion = {
        "id": "c",
        "object": "chat.completion",
        "created": 0,
        "model": "instant",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": text},
            }
        ],
        "usage": {"prompt_tokens": 200, "completion_tokens": tokens, "total_tokens": 200 + tokens},
    }
    head, tail = json.dumps(completion).encode().split(b"@@")
    return head, tail


async def serve(tokens: int, median: float, sigma: float) -> None:
    """Serves until the process is ended."""
    head, tail = body(tokens)
    waits = latencies(20_000, median, sigma) if median else []
    count = [0]
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: Server(head, tail, waits, count), "127.0.0.1", 0, backlog=1024
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=50)
    parser.add_argument("--median", type=float, default=0.0)
    parser.add_argument("--sigma", type=float, default=0.6)
    given = parser.parse_args()
    asyncio.run(serve(given.tokens, given.median, given.sigma))
