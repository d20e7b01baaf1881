"""Other programs' memories: what is read out of them, what is listed, and what comes back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tfgrpo import interchange
from tfgrpo.interchange import Document
from tfgrpo.interchange.incoming_versions import bring_in
from tfgrpo.store import Operation, Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.init(tmp_path / "store.db", author="me") as made:
        yield made


def read(tmp_path: Path, content: object, name: str = "memory.json") -> Document:
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))
    return interchange.read(path)


PROGRAM = {
    "retrieve": {"k": 3},
    "answer.predict": {
        "traces": [],
        "train": [],
        "demos": [{"question": "q", "answer": "a"}, {"question": "r", "answer": "b"}],
        "signature": {
            "instructions": "Answer in one word.\n\n## Rules\n- Prefer nouns.\n- No articles.",
            "fields": [{"prefix": "Question:", "description": "${question}"}],
        },
        "lm": None,
    },
    "metadata": {"dependency_versions": {"python": "3.12", "dspy": "3.0.0"}},
}


def test_a_dspy_program_gives_its_instructions_and_lists_its_demonstrations(
    tmp_path: Path,
) -> None:
    document = read(tmp_path, PROGRAM)
    assert document.format == "dspy"
    assert [item.text for item in document.items] == [
        "Answer in one word.",
        "Prefer nouns.",
        "No articles.",
    ]
    assert document.items[1].evidence == {"predictor": "answer.predict", "section": "Rules"}
    said = [str(entry) for entry in document.skipped]
    assert any(
        "a part of answer.predict that is no experience, 2 entries: demos" in s for s in said
    )
    assert any("answer.predict's signature that is no experience, 1 entries" in s for s in said)


def test_one_predictor_alone_is_a_program_too(tmp_path: Path) -> None:
    document = read(tmp_path, PROGRAM["answer.predict"])
    assert document.format == "dspy"
    assert len(document.items) == 3


def test_mem0s_memories_keep_who_and_when(tmp_path: Path) -> None:
    memory = {
        "id": "892db2ae-06d9-49e5-8b3e-585ef9b85b8e",
        "memory": "Prefers trains to planes",
        "hash": "3d1c",
        "metadata": {"topic": "travel"},
        "categories": ["travel", "preferences"],
        "created_at": "2026-07-20T10:00:00Z",
        "user_id": "mara",
        "structured_attributes": {"day": 20},
    }
    for content in ({"results": [memory], "relations": [{"source": "mara"}]}, [memory]):
        document = read(tmp_path, content)
        assert document.format == "mem0"
        (item,) = document.items
        assert item.text == "Prefers trains to planes"
        assert item.evidence == {
            "id": memory["id"],
            "user_id": "mara",
            "created_at": "2026-07-20T10:00:00Z",
            "metadata.topic": "travel",
            "categories": "travel, preferences",
        }
        said = [str(entry) for entry in document.skipped]
        assert any("structured_attributes" in text for text in said)
        assert any("relations" in text for text in said) == isinstance(content, dict)


# there and back:

PLAYBOOK = """\
## VERIFY
[chk-00007] helpful=3 harmful=1 :: Check twice.
[chk-00009] helpful=0 harmful=0 :: Read the question again.

## OTHERS
"""


def test_a_playbook_comes_back_with_its_ids_and_counters(store: Store, tmp_path: Path) -> None:
    document = read(tmp_path, PLAYBOOK, "playbook.txt")
    assert [str(entry) for entry in document.skipped] == [
        "line 5: no bullet, and in none: ## OTHERS"
    ]
    bring_in(store, document, "main")
    assert "".join(interchange.export(store, "HEAD", "ace")) == PLAYBOOK.replace("## OTHERS\n", "")
    first, second = store.library()
    store.commit("main", [Operation("KEEP", first.id)], message="seen again")
    store.commit("main", [Operation("MODIFY", second.id, "Read it aloud.")], message="better")
    store.commit("main", [Operation("ADD", None, "Draw a sketch.")], message="new")
    assert "".join(interchange.export(store, "HEAD", "ace")) == (
        "## VERIFY\n"
        "[chk-00007] helpful=4 harmful=1 :: Check twice.\n"
        "[chk-00009] helpful=0 harmful=0 :: Read it aloud.\n\n"
        "## STRATEGIES & INSIGHTS\n"
        "[exp-00010] helpful=0 harmful=0 :: Draw a sketch.\n\n"
    )


def test_a_page_with_a_bracketed_word_is_no_playbook(tmp_path: Path) -> None:
    page = "- Follow [RFC-2119](https://example.invalid/rfc) to the letter\n- One\n- [x-1] Two\n"
    document = read(tmp_path, page, "AGENTS.md")
    assert document.format == "md"
    assert len(document.items) == 3


SKILL = """\
---
name: tides
description: 'Reads tide tables: heights and times.'
license: MIT
metadata:
  owner: harbour
---

- Use the nearest port.
"""


def test_a_skill_comes_back_with_its_front_matter(store: Store, tmp_path: Path) -> None:
    bring_in(store, read(tmp_path, SKILL, "SKILL.md"), "main")
    store.commit("main", [Operation("ADD", None, "Mind the springs.")], message="later")
    exported = "".join(interchange.export(store, "HEAD", "skill"))
    front = yaml.safe_load(exported.split("---\n")[1])
    assert front == yaml.safe_load(SKILL.split("---\n")[1])
    assert list(front)[:2] == ["name", "description"]
    assert "- Mind the springs." in exported
    renamed = "".join(interchange.export(store, "HEAD", "skill", name="sea"))
    assert "name: sea" in renamed


AGENT = """\
# @package _global_
defaults: [_self_]
type: simple
model:
  model_provider:
    type: chat.completions
    model: some-model
    api_key: sk-aaaaaaaaaaaaaaaa
    base_url: https://user:secret@example.invalid/v1
  model_settings: {temperature: 0.3, max_tokens: 4096}
agent:
  name: accountant
  instructions: "Solve it.\\nShow your work.\\n[G0]. Count both days.\\n\\nBe brief."
toolkits:
  search: {mode: builtin}
"""


def test_an_agent_comes_back_with_instructions_and_model_and_without_keys(
    store: Store, tmp_path: Path
) -> None:
    document = read(tmp_path, AGENT, "agent.yaml")
    assert [entry.text for entry in document.skipped] == [
        "model.model_provider.api_key",
        "model.model_provider.base_url",
        "Be brief.",
    ]
    bring_in(store, document, "main")
    exported = "".join(interchange.export(store, "HEAD", "agent"))
    assert "secret" not in exported
    assert "sk-aaaa" not in exported
    assert b"sk-aaaa" not in (tmp_path / "store.db").read_bytes()
    found = yaml.safe_load(exported)
    assert found["agent"] == {
        "name": "accountant",
        "instructions": "Solve it.\nShow your work.\n[G0]. Count both days.",
    }
    assert found["model"] == {
        "model_provider": {"type": "chat.completions", "model": "some-model"},
        "model_settings": {"temperature": 0.3, "max_tokens": 4096},
    }
    assert found["toolkits"] == {"search": {"mode": "builtin"}}


# nothing is left out in silence:


def test_prompts_rows_and_skillbooks_list_what_they_leave_out(tmp_path: Path) -> None:
    prompt = read(tmp_path, "Read these first:\n[G0] a\n\nThen begin.\n", "prompt.txt")
    assert [(e.first, e.text) for e in prompt.skipped] == [
        (1, "Read these first:"),
        (4, "Then begin."),
    ]
    rows = read(tmp_path, '{"text": "a", "embedding": [1, 2], "n": 1}\n{"text": " "}\n', "r.jsonl")
    assert [(e.first, e.what, e.text) for e in rows.skipped] == [
        (1, "a field that is no short text, in 1 rows", "embedding"),
        (2, "has no text", ""),
    ]
    book = {"s-1": {"content": "a", "tags": ["x"]}, "s-2": {"content": "b", "status": "invalid"}}
    skills = read(tmp_path, {"skills": book})
    assert [(e.what, e.text) for e in skills.skipped] == [
        ("a field of 1 skills", "tags"),
        ("status invalid", "b"),
    ]
    blank = read(tmp_path, {"G0": "a", "G1": " "})
    assert [(e.what, e.text) for e in blank.skipped] == [("has no text", "G1")]
