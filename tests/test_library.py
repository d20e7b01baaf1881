"""A library as inference sees it: labels, prompts, messages and files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.data.problems import Problem
from tfgrpo.domains.base import problem_messages
from tfgrpo.domains.prompt_library import PromptLibrary, read_library
from tfgrpo.rendering import prompt_templates
from tfgrpo.rendering.experience_texts import example_parts, example_text, one_line
from tfgrpo.rendering.render import EMPTY, prompt_text, rollout_messages
from tfgrpo.store import ROOT, Experience, Operation, Store, UnknownRevision, derived_id
from tfgrpo.store.records import REDACTED
from tfgrpo.store.records import Library as StoredLibrary

texts = st.lists(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)
    .map(lambda text: " ".join(text.split()))
    .filter(bool),
    max_size=6,
    unique=True,
)


def library(*found: str) -> StoredLibrary:
    return StoredLibrary(
        ROOT, tuple(Experience(derived_id(n), text, n) for n, text in enumerate(found))
    )


def test_an_experience_is_a_labelled_line_of_the_prompt_in_library_order() -> None:
    assert (
        prompt_text(library("Add one.", "Carry the ten.")) == "[G0] Add one.\n[G1] Carry the ten."
    )


def test_an_example_says_a_problem_and_an_answer_that_can_be_told_apart() -> None:
    late = example_text("Where is\nmy card → now?", "\\boxed{late}")
    assert late == "Example: Where is my card -> now? → \\boxed{late}"
    assert example_parts(late) == ("Where is my card -> now?", "\\boxed{late}")
    assert example_text(*example_parts(late) or ("", "")) == late
    for text in ("Example: a", "Example: → b", "Example: a → ", "a → b"):
        assert example_parts(text) is None
    assert prompt_text(library("Add one.", late)) == f"[G0] Add one.\n[G1] {late}"


words = st.text(st.sampled_from("a→ \n-b"), min_size=1).filter(str.strip)


@given(words, words)
def test_whatever_arrows_a_problem_has_its_example_is_read_again(problem: str, answer: str) -> None:
    parts = example_parts(example_text(problem, answer))
    assert parts == (one_line(problem).replace("→", "->"), one_line(answer))
    assert example_text(*parts) == example_text(problem, answer)


ASKED = "<!-- system -->\n{{library}}\n<!-- user -->\nOne?\n<!-- assistant -->\n1\n"


@pytest.mark.parametrize("missing", ["{{library}}", "{{problem}}"])
def test_a_prompt_of_attempts_has_a_place_for_the_library_and_the_problem(missing: str) -> None:
    text = "<!-- user -->\nQ: {{library}}\n{{problem}}\n".replace(missing, "")
    template = prompt_templates.parse("rollout", text)
    with pytest.raises(prompt_templates.TemplateError, match=missing) as caught:
        rollout_messages(template, library(), "One?", "")
    assert caught.value.hint
    if missing == "{{problem}}":  # a conversation follows the prompt
        assert rollout_messages(template, library(), "", "") == (("user", "Q: (none yet)"),)


LIBRARY_BESIDE = "<!-- user -->\n{{library}}\n\n{{problem}}\n"
LIBRARY_AFTER = "<!-- user -->\n{{problem}}\n<!-- user -->\n{{library}}\n"


def test_examples_are_turns_before_the_problem_asked_as_it_is() -> None:
    mixed = library("Add one.", example_text("Two?", "2"), example_text("Three?", "3"))
    asked = prompt_templates.parse("rollout", ASKED + "<!-- user -->\nQ: {{problem}}\n")
    worked = [("user", "One?"), ("assistant", "1")]
    shown = [("user", "Q: Two?"), ("assistant", "2"), ("user", "Q: Three?"), ("assistant", "3")]
    assert list(rollout_messages(asked, mixed, "Four?", "")) == [
        ("system", "[G0] Add one."),
        *worked,
        *shown,
        ("user", "Q: Four?"),
    ]
    gone = StoredLibrary(ROOT, (Experience("a" * 12, REDACTED, 0, redacted=True), *mixed))
    assert rollout_messages(asked, gone, "Four?", "")[0] == ("system", "[G1] Add one.")
    alone = mixed.less({mixed.labels["G0"]})
    assert rollout_messages(asked, alone, "Four?", "")[0] == ("system", EMPTY)
    for text in (LIBRARY_BESIDE, LIBRARY_AFTER):
        messages = rollout_messages(prompt_templates.parse("rollout", text), mixed, "Four?", "")
        assert {role for role, _ in messages} == {"user"}
        assert "[G1] Example: Two? → 2\n" in "\n".join(text for _, text in messages)
    problem = Problem("1", "Hello", messages=(("user", "Hello"),))
    spoken = problem_messages(prompt_templates.load("rollout"), alone, problem, "")
    assert [text for _, text in spoken[1:]] == ["Two?", "2", "Three?", "3", "Hello"]


def test_the_empty_library_stands_in_the_same_prompt() -> None:
    template = prompt_templates.load("rollout")
    empty = rollout_messages(template, library(), "Q?", "Solve it.")
    full = rollout_messages(template, library("Add one."), "Q?", "Solve it.")
    assert EMPTY in empty[0][1]
    assert [(r, t.replace(EMPTY, "[G0] Add one.")) for r, t in empty] == list(full)


def test_messages_are_what_the_openai_client_takes() -> None:
    found = PromptLibrary(library("Add one."), agent_objective="Solve it.").render(
        "What is 1 op 2?"
    )
    assert [message["role"] for message in found] == ["system", "user"]
    assert "Solve it." in found[0]["content"]
    assert "[G0] Add one." in found[0]["content"]
    assert found[1]["content"] == "What is 1 op 2?"


def test_a_prompt_of_the_users_own_is_used(tmp_path: Path) -> None:
    (tmp_path / "rollout.md").write_text("<!-- user -->\n{{library}}\n{{problem}}\n")
    found = PromptLibrary(library("Add one."), prompts=tmp_path).render("Q?")
    assert found == [{"role": "user", "content": "[G0] Add one.\nQ?"}]


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """A store whose only step added `Add one.` to the empty library."""
    path = tmp_path / ".tfgrpo" / "store.db"
    with Store.init(path) as store:
        config = {"agent_objective": "Balance the books.", "data": "d"}
        store.runs.create("books", "uid", "main", 0, config, "me")
        store.create_tag("books/step_0", "v0")
        store.commit(
            "main",
            [Operation("ADD", text="Add one.")],
            message="step 1",
            meta={"run": "books", "step": 0},
            tags=["books/step_1"],
        )
    return path


def test_a_library_is_read_by_revision_with_the_objective_it_was_trained_with(
    trained: Path,
) -> None:
    found = read_library("HEAD", store=trained)
    assert [e.text for e in found] == ["Add one."]
    assert found.agent_objective == "Balance the books."
    assert len(read_library("books/step_0", store=trained)) == 0
    with pytest.raises(UnknownRevision):
        read_library("step_9", store=trained)


def test_libraries_are_read_from_the_package_as_often_as_one_likes(trained: Path) -> None:
    code = """
import sys, tfgrpo
for revision in ("HEAD", "step_0", "step_1"):
    print(len(tfgrpo.library(revision, store=sys.argv[1])))
"""
    told = subprocess.run(
        [sys.executable, "-c", code, str(trained)], capture_output=True, text=True, check=False
    )
    assert told.stdout.split() == ["1", "0", "1"], told.stderr


def test_importing_the_package_imports_nothing_else() -> None:
    code = (
        "import sys, tfgrpo; print([m for m in sys.modules if m.startswith(('tfgrpo', 'openai'))])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "['tfgrpo']"
