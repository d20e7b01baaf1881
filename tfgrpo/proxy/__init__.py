"""A proxy that puts the library in force into each request, and passes all else through.

    client → client_connection.py → exchange.py → provider_connection.py → provider
                                        ↓
            library_choice.py (which library) → rendering/request_placement.py (where it goes)

A request is parsed strictly (llhttp, by `httptools`), so that no two programs can read it
differently; its body is edited in place, so that every byte but the library's is the caller's own;
an answer is passed on as it arrives. Nothing waits for the store or for the record of traffic:
`recorder.py` hands calls to a process that writes them.
"""
