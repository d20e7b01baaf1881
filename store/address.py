"""Where a store is: the path of its file, or the address of a database.

    .tfgrpo/store.db                                     found by walking up as git finds .git
    postgresql://ann@db.example/team?library=support

`library` names one of several in the database (by default `main`); the rest is libpq's. The
password is used for this process's connections alone, and never shown, recorded or handed on.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from tfgrpo.store.errors import SECRET, BadLocation, StoreError

if TYPE_CHECKING:
    from pathlib import Path


SCHEMES = ("postgresql:", "postgres:")
DEFAULT_LIBRARY = "main"
CONNECT_SECONDS = 10
LIVENESS = {
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""What libpq is told unless an address says otherwise: a connection over which nothing came through
for half a minute is lost, where it would be waited for for a quarter of an hour or more."""
_anchors: dict[str, str] = {}
"""Path that stands for a database here → its address without a password."""
_secrets: dict[str, dict[str, str]] = {}
"""Address without secrets → those that came with it, by libpq's names, of this process alone."""
_passwords: set[str] = set()
"""All secrets that came with an address, also with one that had others later."""
FOLDER = ".tfgrpo"
FILE = "store.db"


class Address(NamedTuple):
    """An address taken apart: how it is shown, what libpq is given, and the library's schema."""

    text: str
    conninfo: str
    library: str
    host: str
    database: str
    user: str

    @property
    def schema(self) -> str:
        """The schema of the database that the library is in."""
        return f"tfgrpo_{self.library}"

    @property
    def queue(self) -> str:
        """The schema of the database that the library's queue of workers is in."""
        return f"{self.schema}_queue"

    @property
    def place(self) -> str:
        """The library and its database in words, for an error: `support in team on db.example`."""
        return f"library {self.library} in {self.database or 'the database'} on {self.host}"


def is_address(text: str | os.PathLike[str]) -> bool:
    """Whether a store is named by the address of a database, and not by a path."""
    return isinstance(text, str) and text.lower().startswith(SCHEMES)


def with_password(text: str) -> str:
    """The address with its password, for a program that this one starts. It is never shown."""
    from urllib.parse import quote, urlencode, urlsplit

    text = str(named_by(text))
    secrets = dict(_secrets.get(text, {}))
    if not secrets:
        return text
    parts = urlsplit(text)
    user, _, hosts = parts.netloc.rpartition("@")
    password = secrets.pop("password", "")
    netloc = f"{user}:{quote(password, safe='')}@{hosts}" if password else parts.netloc
    rest = urlencode(secrets, safe="", quote_via=quote)
    query = "&".join(filter(None, (parts.query, rest)))
    return f"{parts.scheme}://{netloc}{parts.path}{_query(query)}"


def secrets_of(address: Address) -> dict[str, str]:
    """The password, and what else is secret, that came with an address, by libpq's names."""
    return dict(_secrets.get(address.text, {}))


def connection_settings(address: Address, program: str = "tfgrpo") -> dict[str, Any]:
    """What libpq is told beside the address, which has the last word, with its secrets."""
    usual = {"application_name": program, "connect_timeout": CONNECT_SECONDS, **LIVENESS}
    named = address.conninfo.partition("?")[2]
    settings = {name: value for name, value in usual.items() if f"{name}=" not in named}
    return {**settings, **secrets_of(address)}


def passwords_read() -> set[str]:
    """The secrets with which this process may have opened a database: those of each address that
    was read, and the password of the environment, if any."""
    usual = os.environ.get("PGPASSWORD", "") if _secrets else ""
    return {usual, *_passwords} - {""}


def parse_address(text: str) -> Address:
    """Takes an address apart, and its password out. Raises BadLocation, which repeats nothing."""
    import re
    from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

    hint = "postgresql://USER@HOST/DATABASE?library=NAME"
    try:
        parts = urlsplit(text)
        if "," not in parts.netloc and not (parts.port is None or parts.port):
            raise ValueError("0 is no port")
        settings = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise BadLocation("the address of the database cannot be read", hint=hint) from None
    is_cut = "@" in parts.path  # by a / in a password
    if not text[len(parts.scheme) + 1 :].startswith("//") or parts.fragment or is_cut:
        raise BadLocation("the address of the database cannot be read", hint=hint)
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    user, hosts = user.replace("@", "%40"), parts.netloc.rpartition("@")[2]  # as libpq reads it
    given = dict(settings)
    named_secret = [name for name in given if re.search(SECRET, name, re.IGNORECASE)]
    secrets = {name: given.pop(name) for name in named_secret}
    secrets["password"] = unquote(password) or secrets.get("password", "")
    library = given.pop("library", DEFAULT_LIBRARY)
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,39}", library):
        raise BadLocation(
            "a library's name has small letters, digits, - and _ (40 at most)", hint=hint
        )
    netloc = f"{user}@{hosts}" if user else hosts
    base = f"postgresql://{netloc}{parts.path}"
    rest = sorted(pair for pair in given.items())
    named = [("library", library)] if library != DEFAULT_LIBRARY else []
    shown = base + _query(urlencode([*rest, *named], safe="/", quote_via=quote))
    secrets = {name: secret for name, secret in secrets.items() if secret}
    if secrets:
        _secrets[shown] = secrets
        _passwords.update(secrets.values())
    else:
        _secrets.setdefault(shown, {})
    host = unquote(hosts.partition(":")[0]) if not hosts.startswith("[") else hosts
    return Address(
        shown,
        base + _query(urlencode(rest, safe="/", quote_via=quote)),
        library,
        host or given.get("host") or os.environ.get("PGHOST") or "this machine",
        unquote(parts.path.lstrip("/")) or given.get("dbname", ""),
        unquote(user) or given.get("user", ""),
    )


def _query(text: str) -> str:
    return f"?{text}" if text else ""


def _checked(place: Path | str) -> Path | str:
    with suppress(UnicodeEncodeError):
        if isinstance(place, str | os.PathLike) and b"\0" not in os.fsencode(place):
            return place
    raise BadLocation(
        f"a store is named by a path or an address, and not by {place!r}"[:200],
        hint="give its file or the folder of its project",
    )


def anchor(text: str | Path) -> Path:
    """The path that stands for a store on this machine: the file, if it has one.

    For a database nothing is at the path. Beside it, in the nearest `.tfgrpo`, lie the settings,
    locks and traffic of the project here; in this process it opens the store as its address does.
    """
    from pathlib import Path

    if not is_address(text):
        return Path(_checked(text))
    address = parse_address(os.fspath(text))
    here = Path.cwd()
    root = next((at for at in (here, *here.parents) if (at / FOLDER).is_dir()), here)
    names = (address.library, address.database or "postgresql", address.host)
    name = "@".join("".join(c if c.isalnum() or c in "-_." else "_" for c in n) for n in names)
    path = root / FOLDER / f"{name}.postgresql"
    for one in (path, path.resolve()):
        _anchors[str(one)] = address.text
    return path


def named_by(path: Path | str) -> Path | str:
    """The path or address that opens a store: an address without its password,
    which is also what a path that `anchor` gave stands for. Raises BadLocation."""
    if is_address(_checked(path)):
        return parse_address(os.fspath(path)).text
    return _anchors.get(os.fspath(path), path) if _anchors else path


def store_path(root: Path) -> Path:
    """Where the store of the project at `root` is or would be."""
    return root / FOLDER / FILE


def project_root(path: Path) -> Path:
    """The folder that a store file belongs to; paths in records are relative to it."""
    from pathlib import Path

    return Path(project_folder(str(path)))


def project_folder(file: str) -> str:
    """The same as `project_root`, for a command that needs no Path."""
    folder = os.path.dirname(os.path.realpath(file))
    return os.path.dirname(folder) if os.path.basename(folder) == FOLDER else folder


def located(place: Path | str) -> Path:
    """The store file that a path means: the file itself, or that of the project there; for
    the address of a database what stands for it here. Raises BadLocation."""
    path = anchor(place)
    return store_path(path) if os.path.isdir(path) else path


def in_folder(place: Path | str) -> Path | str:
    """The store file of a project's folder, or of its `.tfgrpo`; any other place as it is."""
    if not os.path.isdir(place):
        return place
    inner = () if os.path.basename(os.path.realpath(place)) == FOLDER else (FOLDER,)
    return os.path.join(place, *inner, FILE)


def find(start: Path) -> Path:
    """The path of the nearest store at or above `start`. Raises StoreError if none."""
    from pathlib import Path

    return Path(find_file(str(start)))


def find_file(start: str) -> str:
    """The same as `find`, for a command that needs no Path."""
    start = folder = os.path.realpath(start)
    while True:
        path = os.path.join(folder, FOLDER, FILE)
        if os.path.isfile(path):
            return path
        above = os.path.dirname(folder)
        if above == folder:
            raise StoreError(
                f"no store in or above {start}",
                hint="create one with `tfgrpo init`, or use --store FILE",
            )
        folder = above
