"""Where a library's text goes, by route: after the application's own system text, examples
before its own turns, the same to the byte each time, so that providers' prompt caches keep
working. No cache mark is added: a request may have four, and they are the application's."""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import unquote

from tfgrpo.rendering.json_splice import (
    Edit,
    RepeatedKey,
    Value,
    escaped,
    items,
    members,
    skip,
)
from tfgrpo.rendering.render import examples_of, prompt_text, rules_of
from tfgrpo.store.records import Library

SYSTEM = ("system", "developer")
GEMINI_SYSTEM = ("systemInstruction", "system_instruction")
GEMINI_CACHE = ("cachedContent", "cached_content")
"""Members of Gemini's requests, each in the two spellings that it takes."""
KEYS = frozenset(
    {
        *("model", "stream", "messages", "input", "instructions", "system"),
        *("user", "safety_identifier", "conversation", "metadata", "previous_response_id"),
        *("contents", *GEMINI_SYSTEM, *GEMINI_CACHE),
    }
)
"""The members of a request that are read; none of them may stand in it twice."""
INTRODUCTION = "Experiences from earlier problems. Where one fits the problem, follow it:"
"""The words of training's own prompt, under which the experiences were tried."""

Members: TypeAlias = Mapping[str, Value]


CHAT = '{"role":"%s","content":"%s"}', "assistant"
GEMINI = '{"role":"%s","parts":[{"text":"%s"}]}', "model"
CONVERSE = '{"role":"%s","content":[{"text":"%s"}]}', "assistant"
"""How a turn is written, and what whoever answers is called."""
TYPED, UNTYPED = '{"type":"text","text":"%s"}', '{"text":"%s"}'
"""How a part that is text is written."""


class Addition(NamedTuple):
    """A text that goes into requests, as it stands in a JSON string. Where its library has
    examples, `turns` are the same as messages in JSON, in each way in which turns are written, and
    `rules` the text without them."""

    escaped: str
    rules: str = ""
    turns: Mapping[tuple[str, str], str] = {}


def addition(library: Library) -> Addition:
    """A library as it goes into requests."""
    examples = examples_of(library)
    whole = escaped(f"{INTRODUCTION}\n{prompt_text(library)}")
    if not examples:
        return Addition(whole)
    rules = prompt_text(rules_of(library))
    pairs = [(escaped(problem), escaped(answer)) for problem, answer in examples]
    turns = {
        (form, answerer): ",".join(
            form % turn
            for problem, answer in pairs
            for turn in (("user", problem), (answerer, answer))
        )
        for form, answerer in (CHAT, GEMINI, CONVERSE)
    }
    return Addition(whole, escaped(f"{INTRODUCTION}\n{rules}"), turns)


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
    turns = _turns(text, messages, first, new.turns.get(CHAT))
    own = new.rules if turns else new.escaped
    return [_place_in_system(text, messages, first, own), *turns]


def _turns(text: str, messages: Value | None, first: int, turns: str | None) -> list[Edit]:
    if not turns or messages is None or not isinstance(messages.value, list):
        return []
    if len(messages.value) <= first:
        return []
    at = next(islice(items(text, messages.start), first, None)).start
    return [(at, at, f"{turns},")]


def _place_in_system(text: str, messages: Value, first: int, added: str) -> Edit:
    last = deque(islice(items(text, messages.start), first), maxlen=1)
    own = f'{{"role":"system","content":"{added}"}}'
    if not last:
        at = messages.start + 1
        return at, at, own + ("," if messages.value else "")
    content = members(text, last[0].start, ("role", "content")).get("content")
    if content is None or (edit := _appended(content, added)) is None:
        return last[0].end, last[0].end, f",{own}"
    return edit


def place_in_responses(text: str, body: Members, new: Addition) -> list[Edit]:
    """Responses: at the end of `instructions`, examples too: the input may go on with a
    conversation that the provider keeps, and turns would come in its middle."""
    return _place_in_member("instructions", text, body, new.escaped)


def place_in_messages(text: str, body: Members, new: Addition) -> list[Edit]:
    """Anthropic's Messages: at the end of `system`, a string or blocks; examples as turns before
    the first message."""
    turns = _turns(text, body.get("messages"), 0, new.turns.get(CHAT))
    own = new.rules if turns else new.escaped
    placed = _place_in_member("system", text, body, own)
    return [*placed, *turns] if placed else []


def place_in_converse(text: str, body: Members, new: Addition) -> list[Edit]:
    """Bedrock's Converse: a block more of `system`; examples as turns before the first message."""
    turns = _turns(text, body.get("messages"), 0, new.turns.get(CONVERSE))
    block = UNTYPED % (new.rules if turns else new.escaped)
    member = body.get("system")
    if member is None or member.value is None:
        return [_new_member("system", text, body, f"[{block}]"), *turns]
    return [_item(member, block), *turns] if isinstance(member.value, list) else []


def place_in_gemini(text: str, body: Members, new: Addition) -> list[Edit]:
    """Gemini's generateContent: a part more of the system instruction, and examples as turns before
    the first. Where the system instruction is in a cache, which takes no other beside it, all of it
    is a turn before the first."""
    contents = body.get("contents")
    if any(name in body and body[name].value for name in GEMINI_CACHE):
        return _turns(text, contents, 0, GEMINI[0] % ("user", new.escaped))
    turns = _turns(text, contents, 0, new.turns.get(GEMINI))
    part = UNTYPED % (new.rules if turns else new.escaped)
    named = [name for name in GEMINI_SYSTEM if name in body]
    if len(named) > 1:
        raise RepeatedKey(named[0])
    name = named[0] if named else GEMINI_SYSTEM[0]
    member = body.get(name)
    if member is None or member.value is None:
        return [_new_member(name, text, body, f'{{"parts":[{part}]}}'), *turns]
    if not isinstance(member.value, dict):
        return []
    within = members(text, member.start, ("parts",))
    parts = within.get("parts")
    if parts is None or parts.value is None:
        placed = [_new_member("parts", text, within, f"[{part}]", member.start)]
    elif isinstance(parts.value, list):
        placed = [_item(parts, part)]
    else:  # a part alone, which stands for a list of one
        placed = [(parts.start, parts.start, "["), (parts.end, parts.end, f",{part}]")]
    return [*placed, *turns]


def _place_in_member(key: str, text: str, body: Members, added: str) -> list[Edit]:
    member = body.get(key)
    if member is None or member.value is None:
        return [_new_member(key, text, body, f'"{added}"')]
    edit = _appended(member, added)
    return [] if edit is None else [edit]


def _new_member(key: str, text: str, body: Members, value: str, start: int = 0) -> Edit:
    member = body.get(key)
    if member is not None:
        return member.start, member.end, value
    at = text.index("{", start) + 1
    comma = "" if text[skip(text, at)] == "}" else ","
    return at, at, f'"{key}":{value}{comma}'


def _appended(member: Value, added: str) -> Edit | None:
    if isinstance(member.value, str):
        at = member.end - 1
        return at, at, f"\\n\\n{added}" if member.value else added
    return _item(member, TYPED % added) if isinstance(member.value, list) else None


def _item(member: Value, item: str) -> Edit:
    at = member.end - 1
    return at, at, f",{item}" if member.value else item


ROUTES: Mapping[str, Place] = {
    "/chat/completions": place_in_chat,
    "/responses": place_in_responses,
    "/responses/input_tokens": place_in_responses,
    "/messages": place_in_messages,
    "/messages/count_tokens": place_in_messages,
    ":generateContent": place_in_gemini,
    ":streamGenerateContent": place_in_gemini,
    "/converse": place_in_converse,
    "/converse-stream": place_in_converse,
}
"""The routes whose requests get a library, below `/v1` or alone; those of Gemini and Bedrock behind
the name of a model."""
_named = re.compile(
    r"/(?:models?|tunedModels)/([^/]+)(:generateContent|:streamGenerateContent|/converse(?:-stream)?)/*\Z"
).search
"""The name of a model in a path, and the route behind it."""
OPENAI, ANTHROPIC, GOOGLE, BEDROCK = "openai", "anthropic", "gemini", "bedrock"
APIS: Mapping[str, tuple[bytes, tuple[str, ...]]] = {
    ANTHROPIC: (b"anthropic-version", ("/v1/messages", "/messages")),
    GOOGLE: (b"x-goog-api-key", ("/v1beta/", "/v1beta1/", "/v1alpha/", "/upload/v1beta/")),
    BEDROCK: (b"amz-sdk-invocation-id", ("/model/",)),
}
"""Which providers' requests are told apart from OpenAI's: by a header of their clients, or by what
their paths begin with."""


def api_of(path: str, headers: Collection[bytes] = ()) -> str:
    """Returns whose API a request is for, by its path and the names of its headers."""
    for api, (header, beginnings) in APIS.items():
        if header in headers or path.startswith(beginnings):
            return api if not path.startswith("/v1beta/openai/") else OPENAI
    return GOOGLE if "odels/" in path and _named(path) else OPENAI


def named_by(path: str) -> tuple[str, bool] | None:
    """Returns the model that a path names, and whether its answer comes as a stream; None where
    the body says both."""
    match = _named(path) or _named(unquote(path))
    return None if match is None else (unquote(match[1]), "tream" in match[2])


def place_of(method: bytes, path: str) -> Place | None:
    """How a request to this path (without its query) gets a library; None for not."""
    if method != b"POST":
        return None
    place = ROUTES.get(path.removeprefix("/v1"))
    return ROUTES.get(route_of(path)) if place is None else place


def route_of(path: str) -> str:
    """Returns which route a path is, also one that is written otherwise: with a slash at its end or
    two in a row, letters in codes, below a gateway's or a deployment's own prefix."""
    plain = re.sub("/+", "/", unquote(path)).rstrip("/")
    named = _named(path) or _named(plain)
    if named is not None:
        return named[2]
    if plain.endswith("/chat/completions"):
        return "/chat/completions"
    _, below, route = plain.rpartition("/v1/")
    if not below:
        _, below, route = plain.rpartition("/openai/")
    return f"/{route}" if below else plain


CHATTY = {
    b"POST": re.compile(
        r"(?:completions?|responses|messages|chat|generate[-_]?content|converse(?:-stream)?|invoke"
        r"(?:-with-response-stream)?|[/:]generate|predict|responses/compact|messages/batches)"
        r"(?:/|;[^/]*)*\Z",
        re.IGNORECASE,
    ),
    b"GET": re.compile(r"/realtime/*\Z"),
}
"""What the paths of conversations end in, here and at other providers, by method."""


def looks_like_chat(method: bytes, path: str) -> bool:
    """Returns whether a path is probably one of a conversation, though no library goes in."""
    chatty = CHATTY.get(method)
    return chatty is not None and place_of(method, path) is None and bool(chatty.search(path))


def question(members: Members) -> str:
    """Returns what the user said last: what experiences are picked by."""
    return _words_of_user(members, reversed)


def opening(members: Members) -> str:
    """Returns what the user said first: the same in every request of a conversation."""
    return _words_of_user(members, iter)


def _words_of_user(members: Members, order: Callable[[list[Any]], Iterator[Any]]) -> str:
    for key in ("messages", "input", "contents"):
        turns = members[key].value if key in members else None
        if isinstance(turns, str):
            return turns
        for turn in order(turns) if isinstance(turns, list) else ():
            if isinstance(turn, dict) and turn.get("role", "user") == "user":
                return _words(turn.get("content", turn.get("parts")))
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
