"""Child processes: the one place where any is started.

Ours run Python with `-P` or `-I`, so that no file of the working folder takes a module's place.
What asks no model gets an environment `without_keys`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from subprocess import Popen

NEEDED = frozenset(
    (
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TERM"),
        *("TMPDIR", "TEMP", "TMP", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"),
        *("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX"),
        *("SYSTEMROOT", "WINDIR", "COMSPEC", "PATHEXT", "USERPROFILE", "APPDATA", "LOCALAPPDATA"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "CUDA_VISIBLE_DEVICES"),
        *("TFGRPO_AUTHOR", "TFGRPO_TRUST", "TFGRPO_WORKER_PARENT"),
    )
)
"""Variables without which programs do not run, or not in the user's language and folders."""
FAMILIES = ("LC_", "XDG_", "PYTHON", "OMP_", "OPENBLAS_", "MKL_", "GGML_", "MALLOC_", "ASAN_")
"""How the names of variables begin that set up a system's parts, and hold no keys."""
DATABASE = ("PG",)
"""How the names of libpq's variables begin, for what opens a store in a shared database."""
NETWORK = ("PIP_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "NETRC", "REQUESTS_")
"""How those begin that say how the network is reached, for what downloads."""


def python(*arguments: str) -> list[str]:
    """The command that runs this Python, without the working folder on its path."""
    return [sys.executable, "-P", *arguments]


def isolated_python(*arguments: str) -> list[str]:
    """The command that runs this Python without what the user has set up for it either."""
    return [sys.executable, "-I", *arguments]


def without_keys(*families: str) -> dict[str, str]:
    """The part of this process's environment that any program needs, which has no keys, and the
    variables whose names begin with one of `families`."""
    begins = FAMILIES + families
    return {
        name: value
        for name, value in os.environ.items()
        if name.upper() in NEEDED or name.upper().startswith(begins)
    }


def whole(**more: str) -> dict[str, str]:
    """This process's whole environment and `more`: for what asks models, and users' programs."""
    return {**os.environ, **more}


def start(command: Sequence[str], env: Mapping[str, str], **options: Any) -> Popen[Any]:
    """Starts a program with exactly that environment; `options` are Popen's. Raises OSError, and
    ValueError for Python that is not kept from the working folder's modules."""
    check(command)
    return start_as_written(command, env, **options)


def start_as_written(command: Sequence[str], env: Mapping[str, str], **options: Any) -> Popen[Any]:
    """Starts a command that the user has written, which may be a script for this very Python."""
    import subprocess

    return subprocess.Popen(list(command), env=dict(env), **options)


def check(command: Sequence[str]) -> None:
    """Raises ValueError for a command that runs our Python with the working folder on its path."""
    if command[0] == sys.executable and not {"-P", "-I"} & set(command[1:2]):
        raise ValueError("a child process of ours is started without -P or -I")
