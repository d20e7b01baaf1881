"""The pages lead where they say, and are a site with navigation and search."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from conftest import ROOT
from markdown_it import MarkdownIt

PAGES = sorted(
    {
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("examples/*/README.md"),
        *ROOT.glob("benchmarks/*.md"),
    }
)
BUILT = re.compile(r"sphinx-build -W (.+) build/site")


def targets(page: Path) -> Iterator[str]:
    """Yields what the links and pictures of a page point to, without addresses on the web."""
    for block in MarkdownIt("commonmark").enable("table").parse(page.read_text()):
        for part in block.children or ():
            target = str(part.attrGet("href") or part.attrGet("src") or "")
            if target and not re.match(r"[a-z]+:", target):
                yield target


def anchors(page: Path) -> set[str]:
    """Returns the names of a page's headings, as forges and the site make them."""
    blocks = MarkdownIt("commonmark").parse(page.read_text())
    found: dict[str, int] = {}
    for head, inline in pairwise(blocks):
        if head.type == "heading_open":
            text = "".join(part.content for part in inline.children or ())
            name = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            found[name] = found.get(name, -1) + 1
    return {f"{name}-{n}" if n else name for name, most in found.items() for n in range(most + 1)}


def astray(page: Path) -> list[str]:
    """Returns the links of a page that lead to no file, or to no heading of one."""
    wrong = []
    for target in targets(page):
        file, _, anchor = target.partition("#")
        path = page.parent / file if file else page
        if not path.exists() or (anchor and anchor not in anchors(path)):
            wrong.append(f"{page.name}: {target}")
    return wrong


def test_every_link_of_every_page_leads_somewhere() -> None:
    assert [link for page in PAGES for link in astray(page)] == []


def test_a_link_to_a_file_or_a_heading_that_is_not_there_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A: `b-c` → d\n\n## Two\n\n## Two\n\n"
        "[a](#a-b-c--d) [b](#two-1) [c](#two-2) [d](page.md#two) [e](page.md#three)\n\n"
        "| ![f](no.png) | [g](no.md#two) |\n|---|---|\n| [h](https://example.org/#x) | `[i](j)` |\n"
    )
    assert [link.split()[1] for link in astray(page)] == [
        *("#two-2", "page.md#three"),
        *("no.png", "no.md#two"),
    ]


def test_every_row_of_a_table_is_in_it() -> None:
    """A row after an empty line begins a table without a head: it is shown as text with bars."""
    lost = [
        f"{page.name}: {part.content.splitlines()[0]}"
        for page in PAGES
        for part in MarkdownIt("commonmark").enable("table").parse(page.read_text())
        if part.type == "inline" and part.content.startswith("| ")
    ]
    assert lost == []


def test_the_pages_in_the_browser_are_compared_both_ways() -> None:
    """Of every product a row says what it does, and where it is worse than here and better."""
    _, _, section = (
        (ROOT / "benchmarks/README.md").read_text().partition("\n### Beside other products\n")
    )
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.partition("\n## ")[0].splitlines()
        if line.startswith("| ")
    ]
    assert [row[0].partition(",")[0] for row in rows] == [
        "product",
        *("Linear", "GitHub", "Langfuse", "W&B", "Datasette"),
    ]
    assert rows[0][1:] == ["what it does", "better here", "worse here"]
    assert all(len(row) == 4 and all(row) for row in rows)


def test_the_readme_lists_every_page_once() -> None:
    listed = re.findall(
        r"\]\((docs/[^)#]+\.md)\)",
        (ROOT / "README.md").read_text().partition("\n## Documentation\n")[2],
    )
    pages = [path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/*.md")]
    assert sorted(listed) == sorted(pages)


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    for module in ("sphinx", "myst_parser", "furo"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"needs {module}: pip install -e '.[docs]'")
    (options,) = BUILT.findall((ROOT / "CONTRIBUTING.md").read_text())
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", *options.split()]
    done = subprocess.run(
        [*command, str(tmp_path / "site"), "-d", str(tmp_path / "read")],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    first = (tmp_path / "site/index.html").read_text()
    captions = re.findall(r'class="caption-text">(.+?)<', first.partition("</aside>")[0])
    assert captions[:2] == ["Quick start", "Your data"]
    assert 'href="docs/redaction.html"' in first
    assert "docs/redaction" in (tmp_path / "site/searchindex.js").read_text()
