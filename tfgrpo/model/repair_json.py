"""JSON that is nearly JSON: what `json-repair` sees in it within a time, because some texts take it
minutes."""

from __future__ import annotations

import ctypes
import json
import threading

SECONDS = 1.0
"""What one text may take."""
LONGEST = 1_000_000
"""Characters of a text beyond which it is not tried."""


class _TimeIsUp(BaseException):
    """Raised within the thread: no handler of the library's takes it for an error of its own."""


def load_repaired(text: str) -> object:
    """The JSON that json-repair sees in a text. Blocks for `SECONDS` at most. Raises ValueError,
    for half a character and for what takes too long among others, or RecursionError."""
    if len(text) > LONGEST:
        raise ValueError(f"more than {LONGEST:,} characters cannot be repaired")
    outcome: list[object] = []

    def work() -> None:
        try:
            import json_repair

            outcome.append(json_repair.loads(text))
        except _TimeIsUp:
            outcome.append(ValueError("it takes too long to repair"))
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=work, name="tfgrpo-repair", daemon=True)
    thread.start()
    thread.join(SECONDS)
    if thread.is_alive() and thread.ident is not None:
        identity, exception = ctypes.c_ulong(thread.ident), ctypes.py_object(_TimeIsUp)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(identity, exception)
        thread.join()
    match outcome:
        case [RecursionError() as error]:
            raise error
        case [Exception() as error]:
            raise ValueError(str(error))
        case [value]:
            return check_encodable(value)
    raise ValueError("it takes too long to repair")


def check_encodable(value: object) -> object:
    """A JSON value that can be written. Raises ValueError for half a character."""
    json.dumps(value, ensure_ascii=False).encode()
    return value
