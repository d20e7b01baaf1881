"""The pages as files: a folder that opens from a disk, is attached to a report or put on a host.

The application is asked for its first page and for every page that is linked from there, as a
browser would, and each answer becomes a file. Links between pages become links between files; a
link to what is not among them becomes plain words. Forms and scripts are left out: the files
record nothing, load nothing and need no script.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from html import escape, unescape
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlencode, urljoin, urlsplit

from httpx2 import ASGITransport, AsyncClient

from tfgrpo.store.atomic_write import SHARED, write
from tfgrpo.store.errors import InvalidOperation
from tfgrpo.ui.site import create_site
from tfgrpo.ui.ui_settings import UiSettings

HOST, HTML = "127.0.0.1", "text/html"
MOST = 5_000
"""Pages of an export; of a larger store, those that are fewest links from the first."""
LEFT_OUT = {"q", "show", "removed", "order", "token", "bad", "as", "after"}
"""What an address asks for that only another order or choice of a page's rows comes of."""
TEXTS = ("/group/", "/evaluation-group/", "/call/")
"""Pages of what was asked and said; left out without content."""
FORMS = ("/playground", "/search", "/experiment/new")
"""Pages that only ask for something."""
ATTRIBUTE = re.compile(r' (href|src)="([^"]*)"')
DROPPED = re.compile(
    r"<form\b.*?</form>|<footer\b.*?</footer>|<script\b.*?</script>|<kbd>.*?</kbd>|<!--.*?-->"
    r'|<p class="stays.*?</p>'
    r'| hx-[a-z-]+="[^"]*"| hx-[a-z-]+=\'[^\']*\'| data-live="[^"]*"| data-key="[^"]*"',
    re.DOTALL,
)
POLICY = (
    "<meta http-equiv=\"Content-Security-Policy\" content=\"script-src 'none'; object-src 'none'; "
    "connect-src 'none'; form-action 'none'\">"
)
STYLES = re.compile(r' (?:href|src)="(/static/[^"]+)"')


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written: how many pages and bytes; `left` pages were too many for an export.
    `failed` are those that gave no page: address → the status."""

    folder: Path
    pages: int
    bytes: int
    left: int
    failed: dict[str, int]


def export_site(
    store: Path, folder: Path, *, author: str = "export", content: bool = True
) -> Exported:
    """Writes the pages of a store into a folder that is new or empty, `index.html` first. Without
    `content`, what was asked and said in attempts and calls is left out. Files of the folder are
    written whole, each for whoever may read the folder. Raises InvalidOperation where the folder
    has something in it or the first page cannot be made, StoreError and OSError."""
    if folder.exists() and any(folder.iterdir()):
        raise InvalidOperation(
            f"{folder} is not empty", hint="name a new folder: an export takes away nothing"
        )
    folder.mkdir(parents=True, exist_ok=True)
    return asyncio.run(_export(store, folder, author, content))


def page_alone(store: Path, path: str, *, author: str = "export") -> str:
    """Returns one page, whole in itself: its style is in it, and its links are plain words. Raises
    InvalidOperation where there is no such page."""
    return asyncio.run(_alone(store, path, author))


async def _alone(store: Path, path: str, author: str) -> str:
    async with _browser(store, author, True) as browser:
        answer = await browser.get(path)
        style = (await browser.get("/static/ui.css")).text
    if answer.status_code != 200:
        raise InvalidOperation(f"there is no page {path}")
    page = _shortened(answer.text)
    page = re.sub(r"<link\b[^>]*>", "", page)
    page = re.sub(r'<nav aria-label="Pages">.*?</nav>', "", page, flags=re.DOTALL)
    page = ATTRIBUTE.sub("", page)
    return page.replace("</head>", f"<style>{style}</style></head>", 1)


async def _export(store: Path, folder: Path, author: str, content: bool) -> Exported:
    pages: dict[str, str] = {}
    failed: dict[str, int] = {}
    waiting, queued, left = deque(["/"]), {"/"}, 0
    async with _browser(store, author, content) as browser:
        while waiting:
            address = waiting.popleft()
            answer = await browser.get(address)
            if answer.status_code >= 400:
                failed[address] = answer.status_code
            if answer.status_code != 200 or not answer.headers["content-type"].startswith(HTML):
                continue
            pages[address] = _shortened(answer.text)
            for name, value in ATTRIBUTE.findall(pages[address]):
                link = _normal(unescape(value), address) if name == "href" else None
                if link is None or link in queued or not _is_followed(link, content):
                    continue
                if len(queued) >= MOST:
                    left += 1
                    continue
                queued.add(link)
                waiting.append(link)
        names = {name for page in pages.values() for name in STYLES.findall(page)}
        statics = {name: (await browser.get(name)).content for name in sorted(names)}
    if "/" not in pages:
        raise InvalidOperation(f"the first page could not be made: status {failed.get('/')}")
    file_of = file_names(pages)
    files = {name.lstrip("/"): body for name, body in statics.items()}
    for address, page in pages.items():
        files[file_of[address]] = _relinked(page, address, file_of).encode()
    for name, contents in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        write(folder / name, contents, mode=SHARED)
    return Exported(folder, len(pages), sum(map(len, files.values())), left, failed)


def file_names(addresses: Iterable[str]) -> dict[str, str]:
    """Returns address → the name of its file: readable, good on every system, and no two alike,
    whatever a system thinks of capitals."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for address in addresses:
        stem = re.sub(r"[^A-Za-z0-9._]+", "-", unquote(address)).strip("-.")[:80] or "index"
        if stem.lower() in taken:
            stem += "-" + hashlib.sha256(address.encode()).hexdigest()[:10]
        taken.add(stem.lower())
        names[address] = f"{stem}.html"
    return names


def _shortened(page: str) -> str:
    """Returns a page without what works only beside a server."""
    page = DROPPED.sub("", page)
    return page.replace('<meta charset="utf-8">', f'<meta charset="utf-8">\n  {POLICY}', 1)


def _normal(link: str, address: str) -> str | None:
    """Returns a link as an address of this server, its query in order; None where it is none. One
    attempt is a place in the page of its group, and no page of its own."""
    parts = urlsplit(urljoin(f"http://{HOST}{address}", link))
    if parts.netloc != HOST or parts.path.startswith("/static/"):
        return None
    query = sorted(one for one in parse_qsl(parts.query) if one[0] != "sample")
    return parts.path + (f"?{urlencode(query)}" if query else "")


def _is_followed(link: str, content: bool) -> bool:
    path, _, query = link.partition("?")
    names = {name for name, value in parse_qsl(query) if value}
    sorted_anew = any(name.startswith("sort-") for name in names)
    if names & LEFT_OUT or sorted_anew or path in FORMS:
        return False
    return content or not path.startswith(TEXTS)


def _relinked(page: str, address: str, names: Mapping[str, str]) -> str:
    def link(match: re.Match[str]) -> str:
        name, value = match[1], unescape(match[2])
        if value.startswith("/static/"):
            return f' {name}="{escape(value[1:])}"'
        if value.startswith("#"):
            return match[0]
        target = names.get(_normal(value, address) or "")
        if target is None:
            return ""
        parts = urlsplit(value)
        sample = dict(parse_qsl(parts.query)).get("sample")
        fragment = parts.fragment or (f"attempt-{sample}" if sample else "")
        return f' {name}="{escape(target + (f"#{fragment}" if fragment else ""))}"'

    return ATTRIBUTE.sub(link, page)


@asynccontextmanager
async def _browser(store: Path, author: str, content: bool) -> AsyncIterator[AsyncClient]:
    """Yields a client that is logged in at the pages of a store, which nothing listens for."""
    token = secrets.token_urlsafe(24)
    app = create_site(UiSettings(store, {token: author}, read_only=True, content=content))
    async with AsyncClient(transport=ASGITransport(app), base_url=f"http://{HOST}") as client:
        await client.get("/", params={"token": token})
        yield client
