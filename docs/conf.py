"""The pages as a site with navigation and search; CONTRIBUTING.md has the command.

Sphinx reads the whole repository, so a link leads there where it leads in a clone. What the README
lists under "Documentation" is the navigation, in its order.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

project = "tfgrpo"
extensions = ["myst_parser"]
root_doc = "README"
include_patterns = [
    "*.md",
    "docs/*.md",
    "benchmarks/*.md",
    "examples/*/*.md",
    "tfgrpo/prompts/*.md",
]
suppress_warnings = ["toc.not_included"]  # results and prompts: pages link to them
myst_heading_anchors = 4
nitpicky = True
html_theme = "furo"
html_title = "tfgrpo"
html_copy_source = False


def add_navigation(app: Sphinx, page: str, source: list[str]) -> None:
    """Appends a part of the navigation to the README for each list of pages in it."""
    if page != root_doc:
        return
    for caption, links in re.findall(r"^- \*\*(.+?):?\*\*(.+)$", source[0], re.MULTILINE):
        pages = "\n".join(re.findall(r"\]\(([^)#]+)\.md\)", links))
        source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{pages}\n```\n"


def begin_with_readme(app: Sphinx, failure: Exception | None) -> None:
    """Makes the README the page that a host shows for the folder."""
    if failure is None:
        shutil.copy(Path(app.outdir) / "README.html", Path(app.outdir) / "index.html")


def setup(app: Sphinx) -> None:
    app.add_lexer("csv", TextLexer)
    app.connect("source-read", add_navigation)
    app.connect("build-finished", begin_with_readme)
