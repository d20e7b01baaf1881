"""A card: one Markdown file about a library, for people to read and programs to check: the
experiences, what each was measured to do, on which models and data (by digest), the licence, and
digests. Examples, which are problems with their answers, stay out unless they are asked for. The
last block has all of it as JSON, from which the rest is written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tfgrpo.costs.accounts import addresses, costs, total
from tfgrpo.interchange.format_types import Content, Document, Format, Item, SourceFile
from tfgrpo.interchange.formats import markdown
from tfgrpo.interchange.library_files import DESCRIPTION, NAME, Outgoing, about
from tfgrpo.rendering.experience_texts import is_example
from tfgrpo.store.canonical import canonical, digest, is_id
from tfgrpo.store.records import SIGNATURE, Experience, Library, evidence_of
from tfgrpo.store.signing import Checked, check_signature, signature
from tfgrpo.store.store import Store
from tfgrpo.wording import money

MARK = "<!-- tfgrpo card 1 -->"
FENCE = "~~~json"
FIGURES = ("effect", "chance", "attempts", "pairs", "verdict", "model")
"""What of an event's evidence says how an experience was measured."""
LEFT_OUT = "examples_left_out"
"""How many examples of the version are not on the card; not there for none."""
WHY_LEFT_OUT = "each is a problem and its answer"
CHANGED = "does not match its last block: it was changed after it was written"


def detect(source: SourceFile) -> int:
    return 4 * (MARK in source.lines)


def read(source: SourceFile) -> Content:
    starts = [number for number, line in enumerate(source.lines) if line == FENCE]
    try:
        card = json.loads(source.lines[starts[-1] + 1])
        items = [_item(source, one) for one in card["experiences"]]
        same = "".join(_rendered(card)) == "\n".join(source.lines)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        hint = "get it again, or read its list alone with --format md"
        raise source.wrong("is no card that can be read", hint=hint) from None
    if not same:
        raise source.wrong(CHANGED, hint="get it again, or read its list with --format md")
    fields = ("version", "licence", "models", "data", SIGNATURE, *({LEFT_OUT} & card.keys()))
    facts = {key: card.get(key) for key in fields}
    return Content(items, meta={"card": {**facts, "digest": digest_of(card).hex()}})


def _item(source: SourceFile, one: Mapping[str, Any]) -> Item:
    if not is_id(one["id"]) or not isinstance(one["text"], str):
        raise TypeError("no experience")
    claimed = {key: value for key, value in one.items() if key in FIGURES}
    line = source.line_of(f"<!-- {one['id']} -->")
    return Item(one["text"], one["id"], None, {"claimed": claimed} if claimed else None, line)


def digest_of(card: Mapping[str, Any]) -> bytes:
    """The digest of a card, which its signature is over."""
    return digest({key: value for key, value in card.items() if key != SIGNATURE})


def payload(card_digest: bytes) -> bytes:
    """What is signed of a card."""
    return b"tfgrpo card 1\n" + card_digest.hex().encode() + b"\n"


def checked(store: Store, document: Document) -> Checked | None:
    """What the signature of a card is worth in a store; None for another file."""
    if document.format != "card":
        return None
    card = document.meta["card"]
    message = payload(bytes.fromhex(card["digest"]))
    return check_signature(store, card[SIGNATURE], message, store.now())


def write(out: Outgoing) -> Iterator[str]:
    known, store = about(out), out.store
    left_out = 0 if out.with_examples else examples_in(out.library)
    experiences = [
        {"id": e.id, "text": e.text, **_measured(store, e)}
        for e in out.library.readable
        if out.with_examples or not is_example(e.text)
    ]
    names = {str(v.meta["run"]) for v in store.log(out.version) if "run" in v.meta}
    runs = [run for run in store.runs.all() if run.name in names]
    cost = total(part for run in runs for part in costs(store, out.prices, run))
    calls = cost.usage.calls
    models = {str(one["model"]) for one in experiences if "model" in one}
    models |= {model for run in runs for model in addresses(run)}
    card: dict[str, Any] = {
        "tfgrpo": "card",
        "format": 1,
        "name": out.name or str(known.get("skill_name") or NAME),
        "description": out.description or str(known.get("skill_description") or DESCRIPTION),
        "licence": out.licence,
        "version": out.version.digest.hex(),
        "experiences": experiences,
        "models": sorted(models),
        "data": sorted({str(run.config.get("data_digest", "")) for run in runs} - {""}),
        "calls": calls,
        "tokens": cost.usage.prompt_tokens + cost.usage.completion_tokens,
        **({} if cost.dollars is None or not calls else {"dollars": round(cost.dollars, 6)}),
        **({LEFT_OUT: left_out} if left_out else {}),
    }
    signed = signature(store, payload(digest_of(card)))
    yield from _rendered(card if signed is None else {**card, SIGNATURE: signed})


def examples_in(library: Library) -> int:
    """How many examples a card of a library leaves out."""
    return sum(is_example(e.text) for e in library.readable)


def _measured(store: Store, experience: Experience) -> dict[str, Any]:
    from tfgrpo.store.history.blame import Origins

    event = store.events_at([experience.row])[experience.row]
    origin = Origins(store).of(event, store.version(event.version)).event
    evidence = origin.evidence or {}
    is_measured = evidence_of(origin).measured is not None
    return {key: evidence[key] for key in FIGURES if key in evidence} if is_measured else {}


def _rendered(card: Mapping[str, Any]) -> Iterator[str]:
    yield f"# {_plain(card['name'])}\n\n{_plain(card['description'])}\n\n{MARK}\n\n"
    left_out = card.get(LEFT_OUT)
    rows = [
        ("experiences", str(len(card["experiences"]))),
        *([("examples", f"{left_out} left out: {WHY_LEFT_OUT}")] if left_out else []),
        ("licence", card["licence"] or "none was named"),
        ("models", ", ".join(card["models"]) or "none on record"),
        ("data, by digest", ", ".join(one[:16] for one in card["data"]) or "none on record"),
        ("calls, tokens", f"{card['calls']:,}, {card['tokens']:,}"),
        *([("cost", money(card["dollars"]))] if "dollars" in card else []),
        ("version", card["version"] + (" without its examples" if left_out else "")),
        ("digest of this card", digest_of(card).hex()),
        ("signed", "yes" if SIGNATURE in card else "no"),
    ]
    yield _table(("what", "is"), rows) + "\n## Experiences\n\n"
    for one in card["experiences"]:
        yield markdown.written(Experience(one["id"], one["text"], 0)) + "\n"
    measured = [one for one in card["experiences"] if "effect" in one]
    if measured:
        heads = ("experience", "effect on the reward", "95 %", "with, without", "model")
        yield "\n## Effects\n\n" + _table(heads, [_row(one) for one in measured])
    yield f"\n## For programs\n\n{FENCE}\n{canonical(card).decode()}\n{FENCE[:3]}\n"


def _row(one: Mapping[str, Any]) -> Sequence[str]:
    effect, low, high = (float(value) for value in one["effect"])
    counts = ", ".join(str(count) for count in one.get("attempts", ()))
    interval = f"{low:+.3f} to {high:+.3f}"
    return one["id"], f"{effect:+.3f}", interval, counts, str(one.get("model", ""))


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(
        "| " + " | ".join(_plain(c).replace("|", "/") for c in line) + " |\n" for line in lines
    )


def _plain(text: str) -> str:
    return " ".join(text.replace("<", "&lt;").split())


FORMAT = Format(
    "card",
    "people and programs: experiences with effects, data, models, cost, licence, digest, signature",
    "md",
    "ids",
    detect,
    read,
    write,
)
