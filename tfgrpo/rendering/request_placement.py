"""Where a library's text goes, by route: after the application's own system text, examples
before its own turns, the same to the byte each time, so that providers' prompt caches keep
working. No cache mark is added: a request may have four, and they are the application's."""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from tfgrpo.rendering.json_splice import Edit, Value, escaped, items, members, skip, string_end
from tfgrpo.rendering.render import examples_of, prompt_text, rules_of
from tfgrpo.store.records import Library

SYSTEM = ("system", "developer")
KEYS = frozenset(
    {
        *("model", "stream", "messages", "input", "instructions", "system"),
        *("user", "safety_identifier", "conversation", "metadata", "previous_response_id"),
    }
)
"""The members of a request that are read; none of them may stand in it twice."""
_usual = re.compile(
    r'\[\s*\{\s*"role"\s*:\s*"(?:system|developer)"\s*,\s*"content"\s*:\s*(?=")', re.ASCII
).match
_usual_end = re.compile(r"\s*\}", re.ASCII).match
"""How messages usually begin: with one system message that has a role and a text, nothing else."""
INTRODUCTION = "Experiences from earlier problems. Where one fits the problem, follow it:"
"""The words of training's own prompt, under which the experiences were tried."""

Members: TypeAlias = Mapping[str, Value]


class Addition(NamedTuple):
    """A text that goes into requests, as it stands in a JSON string. Where its library has
    examples, `turns` are the same as messages in JSON, and `rules` the text without them."""

    escaped: str
    rules: str = ""
    turns: str = ""


def addition(library: Library) -> Addition:
    """A library as it goes into requests."""
    examples = examples_of(library)
    whole = escaped(f"{INTRODUCTION}\n{prompt_text(library)}")
    if not examples:
        return Addition(whole)
    rules = prompt_text(rules_of(library))
    turns = (
        f'{{"role":"{role}","content":"{escaped(content)}"}}'
        for problem, answer in examples
        for role, content in (("user", problem), ("assistant", answer))
    )
    return Addition(whole, escaped(f"{INTRODUCTION}\n{rules}"), ",".join(turns))


Place: TypeAlias = Callable[[str, Members, Addition], list[Edit]]


def place_in_chat(text: str, body: Members, new: Addition) -> list[Edit]:
    """Chat completions: in the last of the system or developer messages that come first, else as
    a system message before all others; examples as turns after those."""
    messages = body.get("messages")
    if messages is None or not isinstance(messages.value, list):
        return []
    first = 0  # how many system messages come first: what follows them is not read again
    for message in messages.value:
        if not isinstance(message, dict) or message.get("role") not in SYSTEM:
            break
        first += 1
    turns = _turns(text, messages, first, new)
    own = new.rules if turns else new.escaped
    return [_place_in_system(text, messages, first, own), *turns]


def _turns(text: str, messages: Value, first: int, new: Addition) -> list[Edit]:
    """The edit that puts examples before a message; none without examples, or the message."""
    if not new.turns or len(messages.value) <= first:
        return []
    at = next(islice(items(text, messages.start), first, None)).start
    return [(at, at, f"{new.turns},")]


def _place_in_system(text: str, messages: Value, first: int, added: str) -> Edit:
    if first == 1 and (begun := _usual(text, messages.start)) is not None:
        content = messages.value[0].get("content")
        end = string_end(text, begun.end())
        edit = _appended(Value(content, begun.end(), end), added)
        if edit is not None and _usual_end(text, end) is not None:  # neither key is there twice
            return edit
    last = deque(islice(items(text, messages.start), first), maxlen=1)
    own = f'{{"role":"system","content":"{added}"}}'
    if not last:
        at = messages.start + 1
        return at, at, own + ("," if messages.value else "")
    content = members(text, last[0].start, ("role", "content")).get("content")
    if content is None or (edit := _appended(content, added)) is None:
        return last[0].end, last[0].end, f",{own}"
    return edit


def place_in_responses(text: str, members: Members, new: Addition) -> list[Edit]:
    """Responses: at the end of `instructions`, examples too: the input may go on with a
    conversation that the provider keeps, and turns would come in its middle."""
    return _place_in_member("instructions", text, members, new.escaped)


def place_in_messages(text: str, members: Members, new: Addition) -> list[Edit]:
    """Anthropic's Messages: at the end of `system`; examples as turns before the first message."""
    messages = members.get("messages")
    turns: list[Edit] = []
    if messages is not None and isinstance(messages.value, list):
        turns = _turns(text, messages, 0, new)
    own = new.rules if turns else new.escaped
    placed = _place_in_member("system", text, members, own)
    return [*placed, *turns] if placed else []


def _place_in_member(key: str, text: str, members: Members, added: str) -> list[Edit]:
    member = members.get(key)
    if member is None:
        start = text.index("{") + 1
        comma = "" if text[skip(text, start)] == "}" else ","
        return [(start, start, f'"{key}":"{added}"{comma}')]
    if member.value is None:
        return [(member.start, member.end, f'"{added}"')]
    edit = _appended(member, added)
    return [] if edit is None else [edit]


def _appended(member: Value, added: str) -> Edit | None:
    """The edit that appends to a string or to parts of text; None for anything else."""
    at = member.end - 1
    if isinstance(member.value, str):
        return at, at, f"\\n\\n{added}" if member.value else added
    if isinstance(member.value, list):
        comma = "," if member.value else ""
        return at, at, f'{comma}{{"type":"text","text":"{added}"}}'
    return None


ROUTES: Mapping[str, Place] = {
    "/chat/completions": place_in_chat,
    "/responses": place_in_responses,
    "/responses/input_tokens": place_in_responses,
    "/messages": place_in_messages,
    "/messages/count_tokens": place_in_messages,
}
"""The routes whose requests get a library, below `/v1` or alone."""


def place_of(method: bytes, path: str) -> Place | None:
    """How a request to this path (without its query) gets a library; None for not."""
    if method != b"POST":
        return None
    place = ROUTES.get(path.removeprefix("/v1"))
    return ROUTES.get(_route(path)) if place is None else place


def _route(path: str) -> str:
    """Which route a path is that is written otherwise: with a slash at its end or two in a row,
    below a gateway's or a deployment's own prefix."""
    plain = re.sub("/+", "/", path).rstrip("/")
    if plain.endswith("/chat/completions"):
        return "/chat/completions"
    _, below, route = plain.rpartition("/v1/")
    if not below:
        _, below, route = plain.rpartition("/openai/")
    return f"/{route}" if below else plain


CHATTY = re.compile(
    r"(?:completions?|responses|messages|chat|generate[-_]?content|converse(?:-stream)?|invoke"
    r"(?:-with-response-stream)?)/*\Z",
    re.IGNORECASE,
)
"""What the paths of conversations end in, here and at other providers."""


def looks_like_chat(method: bytes, path: str) -> bool:
    """Whether a path is probably one of a conversation, though no library goes in."""
    return method == b"POST" and place_of(method, path) is None and bool(CHATTY.search(path))


def question(members: Members) -> str:
    """What the user said last: what experiences are picked by."""
    return _first_words(members, reversed)


def opening(members: Members) -> str:
    """What the user said first: the same in every request of a conversation."""
    return _first_words(members, iter)


def _first_words(members: Members, order: Callable[[list[Any]], Iterator[Any]]) -> str:
    """What the user said in the first of its turns, in this order."""
    for key in ("messages", "input"):
        turns = members[key].value if key in members else None
        if isinstance(turns, str):
            return turns
        for turn in order(turns) if isinstance(turns, list) else ():
            if isinstance(turn, dict) and turn.get("role") == "user":
                return _words(turn.get("content"))
    return ""


def conversation(members: Members) -> str | None:
    """The subject of a request that names none: a digest of the words its conversation begins
    with; None where it has none, or its beginning is at the provider."""
    if "previous_response_id" in members:
        return None
    words = opening(members)
    if not words.strip():
        return None
    return hashlib.sha256(words.encode("utf-8", "surrogatepass")).hexdigest()


def metadata(members: Members, names: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Those of a body's metadata that are named and have a plain value."""
    given = members["metadata"].value if "metadata" in members else None
    if not isinstance(given, dict):
        return ()
    return tuple(
        (name, str(given[name])) for name in names if isinstance(given.get(name), (str, int, float))
    )


def subject(members: Members) -> str | None:
    """Whom a request is for, a conversation or a user, as far as its body says; half of a
    surrogate pair, which no digest can be made of, is a question mark in it."""
    named = _subject(members)
    return None if named is None else named.encode(errors="replace").decode()


def _subject(members: Members) -> str | None:
    for key in ("conversation", "safety_identifier", "user"):
        member = members.get(key)
        if member is None:
            continue
        value = member.value
        if isinstance(value, dict):
            value = value.get("id")
        if isinstance(value, str) and value:
            return value
    metadata = members["metadata"].value if "metadata" in members else None
    value = metadata.get("user_id") if isinstance(metadata, dict) else None
    return value if isinstance(value, str) and value else None


def _words(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return "\n".join(text for text in texts if isinstance(text, str))
