"""The first page: where the libraries stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgrpo.ui.route import Route

if TYPE_CHECKING:
    from starlette.responses import Response

    from tfgrpo.ui.visit import Visit


def show(visit: Visit) -> Response:
    """Answers with the branches and the last versions."""
    store = visit.store
    head = store.head
    branches = [(name, store.version(number)) for name, number in store.branches().items()]
    return visit.render(
        "home.html",
        title="Home",
        head=head,
        branches=[(name, version, len(store.library(version))) for name, version in branches],
    )


ROUTES = (Route("/", show),)
