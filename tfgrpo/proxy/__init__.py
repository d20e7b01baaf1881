"""A proxy that puts the library in force into each request, and passes all else through.

    client → connection.py → exchange.py → upstream.py → provider
                                 ↓
              choice.py (which library) → placement.py (where its text goes) → splice.py

A request is parsed strictly, so that no two programs can read it differently; its body is edited
in place (`splice.py`), so that every byte but the library's is the caller's own; an answer is
passed on as it arrives. Nothing waits for the store or for the record of traffic: `live_library`
says in a microsecond whether the library changed, and `recorder.py` hands calls to a process that
writes them.

HTTP/1.1 is parsed by llhttp (`httptools`), the parser of Node.js; the rest is asyncio's protocols.
A general client and server were measured first: they cost three to five times as much a request.
"""
