"""The whole prompt of a library, as it goes into requests, with the tokens of each line."""

from __future__ import annotations

from typing import NamedTuple

from starlette.responses import Response

from tfgrpo.rendering.experience_texts import one_line
from tfgrpo.rendering.render import prompt_text
from tfgrpo.rendering.request_placement import INTRODUCTION
from tfgrpo.rendering.retrieve import is_whole, relevant, shown_in_training, trained_with
from tfgrpo.rendering.token_count import count_tokens
from tfgrpo.ui.page_visit import DIGITS, Route, Visit
from tfgrpo.ui.sortable_tables import Column, table
from tfgrpo.ui.without_content import HIDDEN


class PromptLine(NamedTuple):
    """A line of the prompt: the experience, its place, label and text, and its tokens; None where
    the text is not shown."""

    place: int
    label: str
    id: str
    text: str
    tokens: int | None


COLUMNS: tuple[Column[PromptLine], ...] = (
    Column("place", "Place", lambda one: one.place),
    Column("label", "Label", lambda one: one.label, False),
    Column("id", "Experience", lambda one: one.id, False),
    Column("text", "Text", lambda one: one.text, False),
    Column("tokens", "Tokens", lambda one: one.tokens),
)


def show(visit: Visit) -> Response:
    """Answers with the prompt of the library at a revision."""
    version = visit.store.resolve(visit.query("at", "HEAD"))
    whole = visit.store.library(version)
    library = relevant(whole, "", None)  # of many examples the first, as a request about nothing
    top_k = shown_in_training(trained_with(visit.store, version))
    label = library.label_of
    lines = []
    for place, one in enumerate(library.readable, 1):
        text = one_line(one.text)
        known = one.text != HIDDEN
        tokens = count_tokens(f"[{label[one.id]}] {text}\n") if known else None
        lines.append(PromptLine(place, label[one.id], one.id, text, tokens))
    prompt = f"{INTRODUCTION}\n{prompt_text(library)}" if lines else ""
    return visit.render(
        "prompt.html",
        title=f"Prompt of {version.name}",
        version=version,
        is_part=not is_whole(whole, top_k),
        stays=visit.address(at=version.digest.hex()[:DIGITS]),
        prompt=prompt,
        tokens=count_tokens(prompt) if all(one.tokens is not None for one in lines) else None,
        lines=table(visit, lines, COLUMNS, "prompt"),
    )


ROUTES = (Route("/library/prompt", show),)
