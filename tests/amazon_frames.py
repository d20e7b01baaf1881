"""Streams in the frames of Amazon, `application/vnd.amazon.eventstream`.

https://smithy.io/2.0/aws/amazon-eventstream.html
"""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any


def framed(*events: tuple[str, Any]) -> bytes:
    """Returns events, each a name and its data, as frames; a name that begins with `!` is that of
    an exception."""
    return b"".join(_frame(name, json.dumps(data).encode()) for name, data in events)


def _frame(name: str, data: bytes) -> bytes:
    kind = "exception" if name.startswith("!") else "event"
    headers = {f":{kind}-type": name.removeprefix("!"), ":content-type": "application/json"}
    headers[":message-type"] = kind
    packed = b"".join(
        b"%c%b\7%b%b" % (len(key), key.encode(), struct.pack(">H", len(value)), value.encode())
        for key, value in headers.items()
    )
    prelude = struct.pack(">II", 16 + len(packed) + len(data), len(packed))
    checked = prelude + struct.pack(">I", zlib.crc32(prelude)) + packed + data
    return checked + struct.pack(">I", zlib.crc32(checked))
