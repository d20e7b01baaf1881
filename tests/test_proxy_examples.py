"""Examples go through the proxy as training shows them: turns before the application's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from providers import OK, Provider, ProxyThread, post
from test_proxy_splice import bodies, messages, values

from tfgrpo.domains.prompt_library import PromptLibrary
from tfgrpo.proxy.proxy_settings import LibraryChoice, ProxySettings, upstreams
from tfgrpo.rendering.experience_texts import example_text
from tfgrpo.rendering.json_splice import document, edited
from tfgrpo.rendering.request_placement import (
    INTRODUCTION,
    KEYS,
    addition,
    place_in_chat,
    place_in_messages,
    place_in_responses,
)
from tfgrpo.store import ROOT, Experience, Library, Operation, Store

TEXTS = ("When it is late, say so.", example_text('My "card"?', "Label: late"))
LIBRARY = Library(ROOT, tuple(Experience(f"{n}" * 12, text, n) for n, text in enumerate(TEXTS)))
NEW = addition(LIBRARY)
RULES = f"{INTRODUCTION}\n[G0] When it is late, say so."
WHOLE = f'{RULES}\n[G1] Example: My "card"? → Label: late'
TURNS = [
    {"role": "user", "content": 'My "card"?'},
    {"role": "assistant", "content": "Label: late"},
]
HI = {"role": "user", "content": "Hi"}
MEMBERS = {"chat": place_in_chat, "messages": place_in_messages, "responses": place_in_responses}


def placed(route: str, body: dict[str, Any], **how: Any) -> dict[str, Any]:
    """Returns a body with the library, and checks that nothing else in it has changed."""
    text = json.dumps(body, **how)
    edits = MEMBERS[route](text, document(text, KEYS), NEW)
    changed = edited(text.encode(), text, edits).decode()
    for _, _, new in edits:
        assert changed.count(new) >= 1
        changed = changed.replace(new, "", 1)
    assert changed == text
    result: dict[str, Any] = json.loads(edited(text.encode(), text, edits))
    return result


@pytest.mark.parametrize("indent", [None, 2])
def test_turns_come_after_the_system_messages_of_a_chat(indent: int | None) -> None:
    system = {"role": "system", "content": "Be brief."}
    developer = {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]}
    for before, first in (
        ([system], {"role": "system", "content": f"Be brief.\n\n{RULES}"}),
        ([], {"role": "system", "content": RULES}),
    ):
        body = placed("chat", {"messages": [*before, HI, developer]}, indent=indent)
        assert body["messages"] == [first, *TURNS, HI, developer]
    body = placed("chat", {"messages": [system, developer, HI]}, indent=indent)
    assert [m["role"] for m in body["messages"][:3]] == ["system", "developer", "user"]
    assert body["messages"][1]["content"][1] == {"type": "text", "text": RULES}
    assert body["messages"][2:] == [*TURNS, HI]


def test_without_a_turn_of_the_application_examples_are_lines() -> None:
    (only,) = placed("chat", {"messages": [{"role": "system", "content": ""}]})["messages"]
    assert only["content"] == WHOLE
    assert placed("chat", {"messages": []})["messages"] == [{"role": "system", "content": WHOLE}]
    assert placed("responses", {"input": [HI]})["instructions"] == WHOLE
    assert placed("messages", {"messages": []})["system"] == WHOLE


def test_turns_come_first_in_anthropics_messages() -> None:
    assert placed("messages", {"messages": [HI]}) == {"system": RULES, "messages": [*TURNS, HI]}
    blocks = [{"type": "text", "text": "Be brief."}]
    body = placed("messages", {"system": blocks, "messages": [HI]})
    assert body["system"] == [*blocks, {"type": "text", "text": RULES}]
    assert body["messages"] == [*TURNS, HI]
    assert placed("messages", {"system": 5, "messages": [HI]}) == {"system": 5, "messages": [HI]}


def test_the_application_gets_what_training_shows() -> None:
    trained = PromptLibrary(LIBRARY, agent_objective="Be brief.").render("Hi")
    asked = [{"role": "system", "content": "Be brief."}, HI]
    assert placed("chat", {"messages": asked})["messages"] == trained


@settings(deadline=None)
@given(bodies, messages | values, st.sampled_from(sorted(MEMBERS)))
def test_whatever_is_sent_stays_json_and_has_all_that_it_had(
    body: dict[str, Any], turns: Any, route: str
) -> None:
    text = json.dumps({**body, "messages": turns})
    edits = MEMBERS[route](text, document(text, KEYS), NEW)
    changed = json.loads(edited(text.encode(), text, edits))
    assert set(changed) - set(body) <= {"messages", "system", "instructions"}
    if isinstance(turns, list) and route != "responses":
        left = [one for one in changed["messages"] if one not in TURNS]
        assert len(left) - len([one for one in turns if one not in TURNS]) in (0, 1)


def test_examples_reach_a_provider_through_the_proxy(tmp_path: Path) -> None:
    with Store.init(tmp_path / "store.db") as store:
        for text in TEXTS:
            store.commit("main", [Operation("ADD", text=text)], message="add")
    with Provider() as provider:
        provider.answer = OK
        libraries = {"default": LibraryChoice(tmp_path / "store.db")}
        served = ProxySettings(libraries, "default", **upstreams({"openai": provider.url}), port=0)
        with ProxyThread(served) as proxy:
            sent = json.dumps({"model": "m", "messages": [HI]}).encode()
            answer = proxy.ask(post("/v1/chat/completions", sent, b"authorization: Bearer k"))
        assert answer.startswith(b"HTTP/1.1 200 OK")
        asked = json.loads(provider.received[-1].body)
    assert asked["messages"] == [{"role": "system", "content": RULES}, *TURNS, HI]
