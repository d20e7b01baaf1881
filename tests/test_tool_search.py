"""Search and visit: a local corpus, HTTP providers by template, and pages of the public web."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy
import pytest
from pydantic import ValidationError

from tfgrpo.tools import corpus as corpus_module
from tfgrpo.tools import toolbox
from tfgrpo.tools.corpus import Corpus, CorpusError, Passage
from tfgrpo.tools.http_fetch import FetchError, fetch
from tfgrpo.tools.search_and_visit import Search, Visit
from tfgrpo.tools.search_provider import PROVIDERS, Provider, SearchTemplate
from tfgrpo.tools.tool import ToolFailure
from tfgrpo.tools.toolbox import ToolSettings

PASSAGES = [
    {"id": "a1", "title": "Lighthouses", "text": "The keepers of the lighthouse at Sund lit it."},
    {"id": "a2", "title": "Sund", "text": "Sund is a village with a harbour. It exports salt."},
    {"title": "Salt", "text": "Salt is mined in the hills.", "url": "https://salt.example/hills"},
]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "passages.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in PASSAGES))
    return path


# The corpus:


def test_what_fits_best_comes_first_and_titles_count_more(tmp_path: Path) -> None:
    rows = [{"id": f"x{n}", "title": f"Other {n}", "text": "of no concern"} for n in range(9)]
    rows += [{"id": "text", "title": "Trade", "text": "the harbour exports salt and fish"}]
    rows += [{"id": "title", "title": "Harbour", "text": "exports from here are salt and fish"}]
    path = tmp_path / "passages.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    corpus = Corpus(path)
    assert [passage.url for passage in corpus.search("harbour", 5)] == ["title", "text"]
    assert [passage.url for passage in corpus.search("harbour trade", 1)] == ["text"]


@pytest.mark.parametrize(
    "query",
    [
        '"',
        "NEAR(",
        "a OR",
        "title:",
        "*",
        "salt AND",
        "'; drop table",
        "",
        "_",
        "北京 NEAR",
        "a" * 100_000,
        "a b " * 50_000,
    ],
)
def test_no_query_is_a_syntax_error(corpus: Path, query: str) -> None:
    Corpus(corpus).search(query, 5)


def test_words_are_found_in_their_other_forms(corpus: Path) -> None:
    assert [p.title for p in Corpus(corpus).search("mining", 5)] == ["Salt"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "contains no passages"),
        ('{"title": "x"}\n', ":1: no passage"),
        ('{"text": "x"}\nnot json\n', ":2: no passage"),
        ('{"text": 3}\n', ":1: no passage"),
        ("[1]\n", ":1: no passage"),
        ('{"text": "\\ud800"}\n', ":1: no passage"),
        ('{"text": ' + "[" * 100_000 + "\n", ":1: no passage"),
    ],
)
def test_a_corpus_that_cannot_be_read_names_the_line(
    tmp_path: Path, content: str, message: str
) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(content)
    with pytest.raises(CorpusError, match=message):
        Corpus(path)
    with pytest.raises(CorpusError, match="cannot read"):
        Corpus(tmp_path / "missing.jsonl")


@pytest.mark.parametrize(
    ("query", "titles"),
    [
        ("北京大学", ["甲", "乙"]),
        ("上海在哪里", ["丙"]),
        ("京", ["甲", "乙", "丁"]),
        ("北大", []),
        ("Café 上海", ["丙"]),
        ("東京タワー", ["丁"]),
        ("乙", ["乙"]),
        ("서울", ["Seoul"]),
        ("москва", ["Москва"]),
    ],
)
def test_scripts_without_blanks_are_searched_too(
    tmp_path: Path, query: str, titles: list[str]
) -> None:
    rows = [
        {"title": "甲", "text": "北京大学位于北京。"},
        {"title": "乙", "text": "他住在北京市。"},
        {"title": "丙", "text": "上海是海港。"},
        {"title": "丁", "text": "東京タワーは高い。"},
        {"title": "Seoul", "text": "서울 is large."},
        {"title": "Москва", "text": "large too"},
    ]
    path = tmp_path / "passages.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = Corpus(path).search(query, 5)
    assert [passage.title for passage in found] == titles
    assert all(
        passage in [Passage(r["title"], r["title"], r["text"]) for r in rows] for passage in found
    )


def test_passages_of_one_address_are_one_page(tmp_path: Path) -> None:
    rows = [
        {"url": "u", "title": "T", "text": "first"},
        {"id": 0, "text": "zero"},
        {"url": "u", "title": "T", "text": "second"},
    ]
    path = tmp_path / "passages.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    corpus = Corpus(path)
    assert corpus.page_at("u") == Passage("u", "T", "first\n\nsecond")
    assert corpus.page_at("0") == Passage("0", "", "zero")
    assert [passage.text for passage in corpus.search("second", 5)] == ["second"]


def test_search_shows_addresses_that_visit_takes(corpus: Path) -> None:
    async def look() -> tuple[str, str, str, str]:
        async with toolbox.opened(
            ToolSettings(use=("search", "visit"), corpus=corpus.name), corpus.parent
        ) as box:
            search, visit = box.tools()
            listed = await search.call({"query": "salt hills"})
            page = await visit.call({"url": "https://salt.example/hills"})
            by_title = await visit.call({"url": "Sund"})
            nothing = await visit.call({"url": "nowhere"})
            assert nothing.failed
            return listed.text, page.text, by_title.text, nothing.text

    listed, page, by_title, nothing = asyncio.run(look())
    assert listed.startswith("1. Salt <https://salt.example/hills>\nSalt is mined in the hills.")
    assert page == "Salt\n\nSalt is mined in the hills."
    assert by_title.startswith("Sund\n\n")
    assert nothing == "there is no page 'nowhere'; use an address that search gave"


def test_another_corpus_is_another_state(corpus: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text(json.dumps(PASSAGES[0]))
    states = {Search(Corpus(path)).state for path in (corpus, other)}
    assert len(states | {Search(Corpus(corpus), count=3).state}) == 3


def test_a_call_without_its_argument_is_told_so(corpus: Path) -> None:
    async def calls() -> list[bool]:
        search, visit = Search(Corpus(corpus)), Visit(Corpus(corpus))
        return [
            (await tool.call(arguments)).failed
            for tool in (search, visit)
            for arguments in ({}, {"query": 3, "url": 3}, {"query": " ", "url": " "})
        ]

    assert all(asyncio.run(calls()))


# The index:


def indexed(corpus: Path, folder: Path, query: str = "salt of the hills") -> list[Passage]:
    """Opens a corpus whose index is kept in a folder, and searches it."""
    return Corpus(corpus, folder).search(query, 5)


def test_an_index_is_made_once_and_loaded_the_next_time(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "search"
    first = indexed(corpus, kept)
    assert first == Corpus(corpus).search("salt of the hills", 5) != []
    assert len(list(kept.iterdir())) == 1
    assert kept.stat().st_mode & 0o777 == 0o700

    def fail(passages: Any) -> Any:
        raise AssertionError("made again")

    with monkeypatch.context() as patched:
        patched.setattr(corpus_module, "_build", fail)
        assert indexed(corpus, kept) == first
        with corpus.open("a") as file:
            file.write(json.dumps({"text": "More salt."}) + "\n")
        with pytest.raises(AssertionError, match="made again"):
            indexed(corpus, kept)
    assert len(indexed(corpus, kept)) == len(first) + 1
    assert len(list(kept.iterdir())) == 2


def forge(name: str, **arrays: Any) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        for array, value in arrays.items():
            path = folder / f"{array}.csc.index.npy"
            numpy.save(path, value(numpy.load(path)))

    write.__name__ = name
    return write


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: [path.unlink() for path in folder.iterdir()],
        lambda folder: [path.write_bytes(b"") for path in folder.iterdir()],
        lambda folder: [path.write_bytes(b"[" * 100_000) for path in folder.iterdir()],
        lambda folder: (folder / "vocab.index.json").write_text('{"salt": 0}'),
        lambda folder: (folder / "vocab.index.json").write_text('["salt"]'),
        lambda folder: (folder / "params.index.json").write_text('{"k1": 1, "x": 2}'),
        lambda folder: (folder / "params.index.json").write_text("{}"),
        lambda folder: (folder / "data.csc.index.npy").write_bytes(b"\x93NUMPY" + b"x" * 200),
        forge("far", indices=lambda rows: rows + 1000),
        forge("negative", indices=lambda rows: rows - 1000),
        forge("ends", indptr=lambda ends: ends[::-1]),
        forge("long", indptr=lambda ends: ends * 1000),
        forge("short", data=lambda data: data[:1]),
        forge("texts", data=lambda data: data.astype(str)),
        forge("objects", data=lambda data: data.astype(object)),
        forge("flat", indices=lambda rows: rows.reshape(1, -1)),
    ],
)
def test_an_index_that_does_not_fit_its_passages_is_made_anew(
    damage: Callable[[Path], object], corpus: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "search"
    sound = indexed(corpus, kept)
    (index,) = kept.iterdir()
    damage(index)
    assert indexed(corpus, kept) == sound
    assert indexed(corpus, kept) == sound
    assert list(kept.iterdir()) == [index]


def test_a_folder_that_cannot_be_written_to_costs_no_search(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert indexed(corpus, tmp_path / "file") != []
    assert indexed(corpus, tmp_path / "no" / "folder") != []


def test_the_index_lies_beside_the_store(corpus: Path) -> None:
    async def look() -> None:
        settings = ToolSettings(use=("search",), corpus=corpus.name)
        async with toolbox.opened(settings, corpus.parent) as box:
            await box.tools()[0].call({"query": "salt"})

    asyncio.run(look())
    assert not (corpus.parent / ".tfgrpo").exists()
    (corpus.parent / ".tfgrpo").mkdir()
    asyncio.run(look())
    assert len(list((corpus.parent / ".tfgrpo" / "search").iterdir())) == 1


def test_nothing_is_indexed_or_searched_on_the_event_loop(
    corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = set()
    search, build = corpus_module._ranked, corpus_module._build

    def searched(retriever: Any, query: str, count: int) -> list[int]:
        threads.add(threading.get_ident())
        return search(retriever, query, count)

    def built(passages: Any) -> Any:
        threads.add(threading.get_ident())
        return build(passages)

    monkeypatch.setattr(corpus_module, "_ranked", searched)
    monkeypatch.setattr(corpus_module, "_build", built)

    async def look() -> None:
        settings = ToolSettings(use=("search",), corpus=corpus.name)
        async with toolbox.opened(settings, corpus.parent) as box:
            assert "Salt" in (await box.tools()[0].call({"query": "salt"})).text

    asyncio.run(look())
    assert threads
    assert threading.get_ident() not in threads


def test_of_passages_that_fit_equally_the_first_come_first(tmp_path: Path) -> None:
    path = tmp_path / "passages.jsonl"
    rows = [{"id": n, "text": "salt and fish"} for n in range(300)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = Corpus(path).search("fish", 7)
    assert [passage.url for passage in found] == [str(n) for n in range(7)]
    assert len(Corpus(path).search("fish", 1000)) == 300
    assert Corpus(path).search("meat", 5) == []


def test_a_corpus_without_a_word_can_be_opened(tmp_path: Path) -> None:
    path = tmp_path / "passages.jsonl"
    path.write_text(json.dumps({"id": "a", "text": "…"}))
    assert indexed(path, tmp_path / "search", "x") == []
    assert Corpus(path).page_at("a") == Passage("a", "", "…")


# Providers:


class Handler(BaseHTTPRequestHandler):
    """Answers what `pages` says, and keeps what it was asked."""

    pages: dict[str, tuple[int, dict[str, str], bytes]]
    asked: list[tuple[str, dict[str, str], bytes]]

    def do_GET(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        self.asked.append((self.path, dict(self.headers), self.rfile.read(size)))
        status, headers, body = self.pages.get(urlsplit(self.path).path, (404, {}, b""))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


@contextmanager
def web(pages: dict[str, tuple[int, dict[str, str], bytes]]) -> Iterator[tuple[str, list[Any]]]:
    """Yields the address of a server with these pages, and the list of what it is asked."""
    asked: list[Any] = []
    kind = type("Pages", (Handler,), {"pages": pages, "asked": asked})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


def found_by(template: SearchTemplate, environment: dict[str, str]) -> list[Any]:
    return asyncio.run(Provider(template, environment=environment).search("a & b", 2))


@pytest.mark.parametrize("name", sorted(PROVIDERS))
def test_each_provider_is_asked_and_read_by_its_template(name: str) -> None:
    template = PROVIDERS[name]
    row = {
        template.fields["url"]: "https://x.example",
        template.fields["title"]: "X",
        template.fields["text"]: "about x",
    }
    answer: Any = [row, row, row]
    for part in reversed(template.results.split(".")):
        answer = {part: answer}
    path = urlsplit(template.url).path
    with web({path: (200, {}, json.dumps(answer).encode())}) as (address, asked):
        here = template.model_copy(update={"url": address + path, "private": True})
        keys = {"SERPER_API_KEY": "k1", "TAVILY_API_KEY": "k2", "BRAVE_API_KEY": "k3"}
        found = found_by(here, keys)
    assert found == [("https://x.example", "X", "about x")] * 2
    path_asked, headers, body = asked[0]
    if template.body is not None:
        sent = json.loads(body)
        assert "a & b" in sent.values()
        assert 2 in sent.values(), "a number stays a number"
    else:
        assert parse_qs(urlsplit(path_asked).query)["q"] == ["a & b"]
    if template.headers:
        assert any(key in value for key in keys.values() for value in headers.values())


def test_a_key_that_is_missing_is_named_and_one_in_the_file_is_refused() -> None:
    with pytest.raises(ToolFailure, match="the environment has no SERPER_API_KEY"):
        found_by(PROVIDERS["serper"], {})
    with pytest.raises(ValidationError, match=r"write \$NAME"):
        SearchTemplate(url="https://x.example", headers={"X-API-KEY": "sk-123"}, results="r")


def test_a_key_never_shows_in_a_failure_or_in_the_name() -> None:
    with web({"/": (500, {}, b"")}) as (address, _):
        template = SearchTemplate(
            url=f"{address}/", headers={"X-Key": "$K"}, results="r", private=True
        )
        provider = Provider(template, environment={"K": "127.0.0.1"})
        with pytest.raises(ToolFailure) as failure:
            asyncio.run(provider.search("q", 1))
    assert "127.0.0.1" not in str(failure.value), "here the host stands for the key"
    assert "127.0.0.1" not in provider.name


@pytest.mark.parametrize("body", [b"[]", b'{"r": 3}', b'{"r": [1, null]}', b"{}"])
def test_an_answer_of_another_shape_gives_no_results(body: bytes) -> None:
    with web({"/": (200, {}, body)}) as (address, _):
        template = SearchTemplate(url=f"{address}/", results="r", private=True)
        assert found_by(template, {}) == []


def test_an_answer_that_is_not_json_is_a_failure() -> None:
    with web({"/": (200, {}, b"<html>")}) as (address, _):
        template = SearchTemplate(url=f"{address}/", results="r", private=True)
        with pytest.raises(ToolFailure, match="not JSON"):
            found_by(template, {})


# Visiting:


HTML = b"""<html><head><title>T</title></head><body><nav>menu menu menu</nav><article><h1>Tides</h1>
<p>The tide at the harbour rises twice a day, and falls as often, which the keepers note.</p>
<p>Every keeper writes the height down in a book that has been kept since long ago.</p></article>
<script>alert(1)</script></body></html>"""


def visited(url: str, **options: Any) -> Any:
    return asyncio.run(Visit(private=True, **options).call({"url": url}))


def test_a_page_is_read_without_its_menus_and_scripts() -> None:
    with web({"/p": (200, {"Content-Type": "text/html; charset=utf-8"}, HTML)}) as (address, _):
        result = visited(f"{address}/p")
    assert not result.failed
    assert "The tide at the harbour" in result.text
    assert "alert" not in result.text


def test_results_with_long_titles_are_cut(tmp_path: Path) -> None:
    path = tmp_path / "passages.jsonl"
    path.write_text(json.dumps({"title": "salt " * 1000, "text": "x"}))
    search = Search(Corpus(path), characters=100)
    found = asyncio.run(search.call({"query": "salt"}))
    assert len(found.text) == 100 + len("\n[cut]")


def test_long_pages_are_cut() -> None:
    with web({"/p": (200, {"Content-Type": "text/plain"}, b"x" * 9000)}) as (address, _):
        assert visited(f"{address}/p", characters=100).text == "x" * 100 + "\n[cut]"


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ((404, {}, b""), "answered 404"),
        ((200, {"Content-Type": "image/png"}, b"x"), "no text to read"),
        ((200, {"Content-Type": "text/html"}, b""), "no text to read"),
        ((302, {"Location": "/p"}, b""), "too many redirects"),
        ((302, {"Location": "file:///etc/passwd"}, b""), "no http address"),
        ((302, {"Location": "http://["}, b""), "no http address"),
    ],
)
def test_what_cannot_be_read_is_a_failed_result(page: Any, words: str) -> None:
    with web({"/p": page}) as (address, _):
        result = visited(f"{address}/p")
    assert result.failed
    assert words in result.text


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:PORT/p",
        "http://localhost:PORT/p",
        "http://[::1]:PORT/p",
        "http://0.0.0.0:PORT/p",
        "http://[::ffff:127.0.0.1]:PORT/p",
        "http://2130706433:PORT/p",
        "http://0x7f.1:PORT/p",
        "http://10.0.0.1/",
        "http://192.168.1.1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[fe80::1]/",
        "http://[fd00::1]/",
        "http://100.64.0.1/",
        "http://224.0.0.1/",
        "http://[64:ff9b::7f00:1]:PORT/p",
        "http://[64:ff9b:1::7f00:1]:PORT/p",
        "http://[2002:7f00:1::]:PORT/p",
        "http://[::127.0.0.1]:PORT/p",
        "http://[::ffff:0:127.0.0.1]:PORT/p",
        "http://[fec0::1]/",
    ],
)
def test_private_addresses_are_refused_however_they_are_written(url: str) -> None:
    with web({"/p": (200, {}, b"secret")}) as (address, asked):
        with pytest.raises(FetchError) as refused:
            fetch(url.replace("PORT", address.rpartition(":")[2]))
        assert not asked
    assert "private address" in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://x.example/",
        "file:///etc/passwd",
        "x",
        "http://",
        "http://u:p@x.example/",
        "http://x.example:99999/",
        "http://a b/",
        "http://\x00/",
        "http://[",
        "http://[::1",
        "http://\ud800/",
        "//x.example/",
        "",
    ],
)
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(FetchError):
        fetch(url)


def test_keys_do_not_follow_a_redirect_to_another_host() -> None:
    with web({"/b": (200, {}, b"{}")}) as (other, asked_other):
        there = other.replace("127.0.0.1", "localhost") + "/b"
        with web({"/a": (307, {"Location": there}, b"")}) as (address, _):
            fetch(f"{address}/a", headers={"X-Key": "secret"}, body=b"secret", private=True)
    _, headers, body = asked_other[0]
    assert "secret" not in str(headers)
    assert body == b""


def test_keys_do_not_follow_a_redirect_that_leaves_https(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[str, dict[str, str]]] = []

    def once(parts: Any, body: Any, headers: Any, end: float, private: bool) -> Any:
        sent.append((parts.geturl(), headers))
        turns = ["https://a.example/2", "http://a.example/3", None]
        return 302 if turns[len(sent) - 1] else 200, "text/plain", turns[len(sent) - 1], b""

    monkeypatch.setattr("tfgrpo.tools.http_fetch._request_once", once)
    fetch("http://a.example/1", headers={"X-Key": "secret"})
    assert [(url, "X-Key" in headers) for url, headers in sent] == [
        ("http://a.example/1", True),
        ("https://a.example/2", True),
        ("http://a.example/3", False),
    ]


@pytest.mark.parametrize("key", ["sek\nrit", "sekrit…"])
def test_a_key_that_no_header_can_carry_is_named_and_not_quoted(key: str) -> None:
    template = SearchTemplate(url="http://x.example/", headers={"X-Key": "$K"}, results="r")
    with pytest.raises(ToolFailure, match="K in the environment") as failure:
        found_by(template, {"K": key})
    assert "sek" not in str(failure.value)


def test_a_line_break_at_the_end_of_a_key_is_none_of_it() -> None:
    with web({"/": (200, {}, b'{"r": []}')}) as (address, asked):
        template = SearchTemplate(
            url=f"{address}/", headers={"X-Key": "$K"}, results="r", private=True
        )
        found_by(template, {"K": "sekrit\n"})
    assert asked[0][1]["X-Key"] == "sekrit"


@pytest.mark.parametrize(("key", "title"), [("sekrit-123456", "you sent ***"), ("you", None)])
def test_a_key_that_a_provider_sends_back_is_in_no_result(key: str, title: str | None) -> None:
    row = {"url": "u", "title": f"you sent {key}", "snippet": "x"}
    with web({"/": (200, {}, json.dumps({"r": [row]}).encode())}) as (address, _):
        template = SearchTemplate(
            url=f"{address}/", headers={"X-Key": "$K"}, results="r", private=True
        )
        (found,) = found_by(template, {"K": key})
    assert found.title == title or (title is None and found.title == "you sent you")


def test_addresses_in_other_scripts_are_asked_for_as_http_writes_them() -> None:
    page = (200, {"Content-Type": "text/plain"}, b"found")
    moved = (302, {"Location": "/日本 x?q=ü".encode().decode("latin-1")}, b"")
    with web({"/%E6%97%A5%E6%9C%AC%20x": page, "/moved": moved}) as (address, asked):
        assert visited(f"{address}/日本 x?q=ü#z").text == "found"
        assert visited(f"{address}/%E6%97%A5%E6%9C%AC%20x?a=%26").text == "found"
        assert visited(f"{address}/moved").text == "found"
    assert [path for path, *_ in asked] == [
        "/%E6%97%A5%E6%9C%AC%20x?q=%C3%BC",
        "/%E6%97%A5%E6%9C%AC%20x?a=%26",
        "/moved",
        "/%E6%97%A5%E6%9C%AC%20x?q=%C3%BC",
    ]


@pytest.mark.parametrize("head", [b"", b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n"])
def test_a_server_that_sends_a_byte_now_and_then_is_left(head: bytes) -> None:
    left = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            client, _ = server.accept()
            with client, suppress(OSError):
                client.sendall(head)
                for byte in itertools.cycle(b"HTTP/1.0 200 OK\r\n"):
                    client.sendall(bytes([byte]))
                    time.sleep(0.05)
            left.set()

        threading.Thread(target=drip, daemon=True).start()
        with pytest.raises(FetchError, match=r"did not come to an end|took too long"):
            fetch(f"http://127.0.0.1:{server.getsockname()[1]}/", seconds=0.5, private=True)
        assert left.wait(240), "the server goes on for ever, so it was the client that left"


def test_settings_that_cannot_work_are_told_apart() -> None:
    for wrong in (
        {"use": ("search",)},
        {"use": ("search",), "provider": "altavista"},
        {"use": ("search",), "provider": "brave", "corpus": "x"},
        {"use": ("shell",)},
        {"mcp": {"x": {}}},
        {"mcp": {"x": {"command": "a", "url": "b"}}},
    ):
        with pytest.raises(ValidationError):
            ToolSettings(**wrong)  # type: ignore[arg-type]
