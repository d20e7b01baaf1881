"""Edits in a JSON text: what is found is what the `json` module reads, and nothing else changes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfgrpo.rendering.json_splice import NotJson, RepeatedKey, document, edited
from tfgrpo.rendering.request_placement import KEYS, addition, place_in_chat
from tfgrpo.store import ROOT, Experience, Library

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
messages = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "developer", "user"]), "content": values}
    ),
    max_size=4,
)
bodies = st.dictionaries(st.sampled_from(sorted(KEYS)) | st.text(max_size=4), values, max_size=5)
NEW = addition(Library(ROOT, (Experience("a" * 12, "Grüße.", 1),)))


@settings(deadline=None)
@given(bodies, st.booleans(), st.sampled_from([None, 1, "\t"]))
def test_what_is_found_is_what_json_reads(
    body: dict[str, Any], ascii: bool, indent: int | str | None
) -> None:
    text = json.dumps(body, ensure_ascii=ascii, indent=indent)
    found = document(text, KEYS)
    assert {key: one.value for key, one in found.items()} == {
        key: value for key, value in body.items() if key in KEYS
    }
    assert all(json.loads(text[one.start : one.end]) == one.value for one in found.values())


@settings(deadline=None)
@given(bodies, messages, st.booleans())
def test_a_body_with_the_library_taken_out_again_is_the_same_to_the_byte(
    body: dict[str, Any], turns: list[dict[str, Any]], ascii: bool
) -> None:
    text = json.dumps({**body, "messages": turns}, ensure_ascii=ascii)
    plain = text.encode(errors="surrogatepass")
    try:
        text = plain.decode()
    except UnicodeDecodeError:
        return  # such a body goes on as it is
    ((start, end, new),) = place_in_chat(text, document(text, KEYS), NEW)
    changed = edited(plain, text, [(start, end, new)]).decode()
    assert start == end
    assert NEW.escaped in new
    assert changed[:start] + changed[start + len(new) :] == text
    assert len(json.loads(changed)["messages"]) - len(turns) in (0, 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"a"}',
        '{"a":1,}',
        '{"a":1}x',
        '{"a" 1}',
        "\ufeff{}",
        '{"a":%s}' % ("1" * 5000),
    ],
)
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(NotJson):
        document(text, {"a"})


def test_a_key_that_is_there_twice_is_refused_however_it_is_written() -> None:
    with pytest.raises(RepeatedKey):
        document('{"model":1,"mod\\u0065l":2}', {"model"})
    assert document('{"x":1,"x":2}', {"model"}) == {}
