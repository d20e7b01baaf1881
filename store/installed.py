"""How to get what is missing, in words that work wherever the package came from.

`pip install 'tfgrpo[hub]'` helps only where the package is on an index. What an extra stands for
is in the installed package's own metadata, so a hint names those packages. Loaded only where a
hint is needed: reading metadata takes longer than a view of the log.
"""

from __future__ import annotations

import re

NAME = "tfgrpo"
MARKER = r"""extra\s*==\s*['"]([\w.-]+)['"]"""


def install_hint(extra: str) -> str:
    """Returns the command that installs what an extra stands for: `pip install 'openpyxl>=3.1'`."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        listed = requires(NAME) or []
    except PackageNotFoundError:  # run from a folder that was never installed
        listed = []
    wanted = []
    for requirement in listed:
        what, _, marker = requirement.partition(";")
        if (match := re.search(MARKER, marker)) and match[1] == extra:
            wanted.append(f"'{what.strip()}'")
    return "pip install " + (" ".join(wanted) or f"'.[{extra}]' in a clone of {NAME}")


def upgrade_hint() -> str:
    """Returns how to get a newer version: from where this one was installed."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        origin = json.loads(distribution(NAME).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        origin = {}
    url = str(origin.get("url", ""))
    if url.startswith("file://") and "dir_info" in origin:
        from shlex import quote
        from urllib.parse import unquote, urlsplit

        folder = quote(unquote(urlsplit(url).path))
        editable = "-e " if origin["dir_info"].get("editable") else ""
        return f"upgrade {NAME}: `git -C {folder} pull && pip install {editable}{folder}`"
    if "vcs_info" in origin:
        return f"upgrade {NAME}: `pip install -U '{origin['vcs_info'].get('vcs', 'git')}+{url}'`"
    if url:
        return f"upgrade {NAME}: it was installed from {url}"
    return f"upgrade {NAME}: `pip install -U {NAME}`"
