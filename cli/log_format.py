"""`tfgrpo log --format`: a version by placeholders, as git's users write them."""

from __future__ import annotations

import re

import click

from tfgrpo.cli import printing
from tfgrpo.display.version_rows import StandingNames, signed
from tfgrpo.store.history.log_filter import subject
from tfgrpo.store.records import Version
from tfgrpo.store.store import Store

NAMED = ("oneline", "short", "medium", "full", "fuller")
"""Git's own formats: the first is `--oneline`, the others are what a log shows anyway."""
PLACEHOLDER = re.compile(r"%(C\([^)]*\)|C[a-z]+|[ac][nedIirt]|[HhPpsBbdDnv%]|.)")
PLACEHOLDERS = "%v (v12), %H, %h (digest), %P, %p (parents), %s (subject), %an, %ad, %ar, %d, %n"


def checked(format: str) -> str:
    """A format without `format:` before it. Raises UsageError for one that is none."""
    plain = re.sub(r"\At?format:", "", format)
    unknown = [match[0] for match in PLACEHOLDER.finditer(plain) if not _is_known(match[1])]
    if unknown or ("%" not in plain and plain not in NAMED):
        wrong = unknown[0] if unknown else repr(format)
        raise click.UsageError(f"--format: {wrong} is none; there are {PLACEHOLDERS}")
    return plain


def line(format: str, store: Store, version: Version, names: StandingNames) -> str:
    """A version by a format that was checked."""
    standing = ", ".join(names[version.number])
    parents = [store.version(number).digest.hex() for number in version.parents]
    values = {
        "v": version.name,
        "H": version.digest.hex(),
        "h": version.digest.hex()[:8],
        "P": " ".join(parents),
        "p": " ".join(parent[:8] for parent in parents),
        "s": subject(store, version),
        "B": subject(store, version),
        "b": "",
        "D": standing,
        "d": f" ({standing})" if standing else "",
        "n": "\n",
        "%": "%",
        "an": signed(store, version),
        "ae": "",
        "ad": printing.when(version.time),
        "ai": printing.when(version.time),
        "aI": printing.iso(version.time),
        "ar": printing.age(version.time),
        "at": str(version.time // 1_000_000),
    }
    values |= {"c" + name[1:]: value for name, value in values.items() if name[0] == "a"}
    filled = PLACEHOLDER.sub(lambda match: values.get(match[1], ""), format)
    return "\n".join(printing.shown(part) for part in filled.split("\n"))


def _is_known(name: str) -> bool:
    return len(name) > 1 or name in "HhPpsBbdDnv%"
