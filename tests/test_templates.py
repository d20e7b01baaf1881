"""Prompts are files: found, taken apart, filled in, and known by their digest."""

from __future__ import annotations

import hashlib
from importlib import resources
from pathlib import Path

import pytest

from tfgrpo.rendering.prompt_templates import TemplateError, load, parse

NAMES = ("rollout", "summary", "comparison", "lesson", "plan")


@pytest.mark.parametrize("name", NAMES)
def test_our_prompts_have_a_system_and_a_user_part_and_the_digest_of_their_file(name: str) -> None:
    text = resources.files("tfgrpo.prompts").joinpath(f"{name}.md").read_bytes()
    template = load(name)
    assert [role for role, _ in template.parts] == ["system", "user"]
    assert template.digest == hashlib.sha256(text).hexdigest()


def test_every_name_is_filled_in_and_values_are_taken_literally() -> None:
    template = parse("x", "<!-- system -->\nA {{one}}.\n<!-- user -->\n{{two}} and {{one}}\n")
    values = {"one": r"\1 \g<0> {{two}} \boxed{3}", "two": "{{one}} <!-- user -->\n2", "more": ""}
    assert template.render(values) == (
        ("system", rf"A {values['one']}."),
        ("user", f"{values['two']} and {values['one']}"),
    )


def test_braces_that_are_no_place_stay() -> None:
    template = parse("x", "<!-- user -->\n\\boxed{} {x} {{ y }} {{z}}\n")
    assert template.render({"z": "Z"}) == (("user", r"\boxed{} {x} {{ y }} Z"),)


def test_a_name_without_a_value_is_an_error_that_lists_the_names_there_are() -> None:
    template = parse("mine", "<!-- user -->\n{{problme}}\n")
    with pytest.raises(TemplateError, match=r"mine.*problme") as caught:
        template.render({"problem": "p", "library": "l"})
    assert "library, problem" in str(caught.value.hint)


def test_parts_left_empty_are_dropped() -> None:
    template = parse("x", "<!-- system -->\n{{a}}\n<!-- user -->\nq\n")
    assert template.render({"a": "  "}) == (("user", "q"),)


def test_a_prompt_without_a_user_part_is_refused() -> None:
    for text in ("", "hello", "<!-- system -->\nhello\n"):
        with pytest.raises(TemplateError, match="no user part") as caught:
            parse("x", text)
        assert caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff<!-- system -->\nA\n<!-- user -->\nB",
        "<!-- system -->\r\nA\r\n<!-- user -->\r\nB\r\n",
        "<!-- system --> \nA\n<!-- user -->\t\nB\n",
        "<!--system-->\nA\n<!--  user  -->\nB\n",
        " <!-- system -->\nA\n  <!-- user -->\nB\n",
        "\n \n<!-- system -->\nA\n<!-- user -->\nB\n",
        "<!-- a note -->\n\n<!-- about: it --><!-- system -->\nA\n<!-- user -->\nB\n",
        "<!-- system -->\nA\n<!-- user -->\nB\n<!-- assistant -->",
        "<!-- system -->\nA\n<!-- user -->\nB\n<!-- assistant --> ",
    ],
)
def test_a_message_begins_wherever_its_line_can_be_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "rollout.md").write_text(text, newline="")
    template = load("rollout", tmp_path)
    assert template.render({}) == (("system", "A"), ("user", "B"))
    assert not any("\ufeff" in said or "<!--" in said for _, said in template.parts)


@pytest.mark.parametrize("before", ["Rules:", "<!-- System -->\nRules:", "\u200b", "<!-- system"])
def test_words_before_the_first_message_are_refused(before: str) -> None:
    with pytest.raises(TemplateError, match="before the first message") as caught:
        parse("x", f"<!-- about: it -->\n{before}\n<!-- user -->\nq\n")
    assert caught.value.hint


def test_a_comment_about_the_prompt_is_not_sent_but_counts_in_the_digest() -> None:
    bare = "<!-- user -->\nq\n"
    noted = "<!-- about: why this\nis so -->\n" + bare
    assert parse("x", noted).render({}) == parse("x", bare).render({})
    assert parse("x", noted).digest != parse("x", bare).digest


def test_a_prompt_of_the_same_name_in_the_users_folder_takes_the_place_of_ours(
    tmp_path: Path,
) -> None:
    (tmp_path / "rollout.md").write_text("<!-- user -->\nMine: {{problem}}\n")
    assert load("rollout", tmp_path).render({"problem": "p"}) == (("user", "Mine: p"),)
    assert load("rollout", tmp_path).digest != load("rollout").digest
    assert load("summary", tmp_path) == load("summary")


def test_a_prompt_that_is_changed_between_two_loads_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "rollout.md"
    path.write_text("<!-- user -->\none\n")
    first = load("rollout", tmp_path)
    path.write_text("<!-- user -->\ntwo\n")
    assert load("rollout", tmp_path).digest != first.digest


def test_a_folder_that_is_not_there_is_an_error_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(TemplateError) as caught:
        load("rollout", tmp_path / "none")
    assert caught.value.hint


def test_a_prompt_that_is_not_utf8_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "rollout.md").write_bytes(b"<!-- user -->\n\xff\xfe\n")
    with pytest.raises(TemplateError, match="rollout"):
        load("rollout", tmp_path)
