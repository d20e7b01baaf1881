"""The pages. A module here has those that belong together, with their `ROUTES`.

To add one: write `pages/NAME.py` with handlers that take a `Visit` and end in
`visit.render("NAME.html", …)`, list their routes as `ROUTES`, write `templates/NAME.html` on
`base.html` with the partials of `parts.html`, and add a line here.
"""

from __future__ import annotations

from tfgrpo.ui.page_visit import Page

PAGES = (
    Page("home", "Home", "/"),
    Page("library", "Library", "/library"),
    Page("history", "History", "/history"),
    Page("runs", "Runs", "/runs"),
    Page("evaluations", "Evaluations", "/evaluations"),
    Page("review", "Review", "/review"),
    Page("production", "Production", "/production"),
    Page("cost", "Cost", "/cost"),
    Page("search", "Search", "/search"),
    Page("playground", under="library"),
    Page("order", under="library"),
    Page("attempts", under="runs"),
    Page("experience", under="library"),
    Page("combine", under="history"),
    Page("bisect", under="history"),
    Page("calls", under="production"),
    Page("keys", under="production"),
)
"""Every page, in the order of the navigation."""
