"""A line of JSON for each request in a file, for the tools that read such files."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime

from tfgrpo.proxy.passing_call import Call
from tfgrpo.proxy.personal_data import Finder
from tfgrpo.store.errors import SettingsError
from tfgrpo.store.records import REDACTED
from tfgrpo.terminal_safe import complain

MODE = os.O_WRONLY | os.O_CREAT | os.O_APPEND
STDERR = 2


class AccessLog:
    """The file, or standard error for `-`. Several workers write to one: each line is one write."""

    def __init__(self, path: str, pattern: Finder) -> None:
        """`pattern` is what is taken out of paths."""
        self._path = path
        self._pattern = pattern
        self._file = STDERR
        self._trouble = False
        self.reopen()

    def reopen(self) -> None:
        """Opens the file anew, after somebody has moved it away. Raises SettingsError."""
        if self._path == "-":
            return
        try:
            opened = os.open(self._path, MODE, 0o600)
        except OSError as error:
            raise SettingsError(
                f"access_log {self._path}: {error.strerror}", hint="a file that can be written"
            ) from None
        self.close()
        self._file = opened

    def close(self) -> None:
        """Closes the file."""
        if self._file != STDERR:
            os.close(self._file)
        self._file = STDERR

    def add(self, call: Call) -> None:
        """Writes the line of a call that is over. A disk that is full ends no request: it is said
        once, until lines can be written again."""
        chosen = call.chosen
        line = {
            "time": datetime.fromtimestamp(call.time / 1e6, UTC).isoformat(timespec="milliseconds"),
            "call": call.id,
            "method": call.request.method.decode("latin-1"),
            "path": self._pattern.sub(REDACTED, call.path),
            "status": call.status,
            "ms": round(1000 * (call.ended - call.began), 1),
            "library": None if chosen is None else chosen.name,
            "version": None if chosen is None else chosen.version,
            "arm": None if chosen is None else chosen.arm,
            "model": call.model,
            "error": call.error,
        }
        try:
            os.write(self._file, json.dumps(line).encode() + b"\n")
        except OSError as error:
            if not self._trouble:
                complain(f"the access log cannot be written: {error.strerror}")
            self._trouble = True
        else:
            self._trouble = False
