"""What name a branch, a tag or a run may have: none that could be read as another revision."""

from __future__ import annotations

import re

from tfgrpo.store.errors import BadName, InvalidName

NUMBER = r"v(\d+)\Z"  # compiled when it is needed, as those below
STEP = r"step_(\d+)\Z"
NAME = r"[A-Za-z0-9_](?:[A-Za-z0-9_./+-]*[A-Za-z0-9_+-])?\Z"


def check_name(kind: str, name: str, error: type[InvalidName] = BadName) -> None:
    """Raises `error` for a branch or tag name that could be read as another revision."""
    if _is_reserved(name) or ".." in name or "//" in name or not re.match(NAME, name):
        raise error(
            f"{name!r} cannot be the name of a {kind}",
            hint="use the letters a to z, digits, _ . / + -, but not HEAD, v12 or step_2, which "
            "already mean versions",
        )


def name_after(text: str, otherwise: str = "run") -> str:
    """The name that a run may have which is nearest to a text, such as the name of a file."""
    from unicodedata import normalize

    plain = re.sub(r"[\u0300-\u036f]", "", normalize("NFKD", text))  # é is e and an accent
    name = re.sub(r"[^A-Za-z0-9_+-]+", "-", plain).strip("+-") or otherwise
    return f"run-{name}" if _is_reserved(name) else name


def _is_reserved(name: str) -> bool:
    return name in ("HEAD", "@") or bool(re.match(NUMBER, name) or re.match(STEP, name))
