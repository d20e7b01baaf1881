"""Files as other tools really write them: front matter, playbooks, memories, and traces."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tfgrpo import interchange
from tfgrpo.improvement.exchange import Exchange
from tfgrpo.improvement.exchange_files import read_exchanges

FRONTS = {
    "a colon": "description: Review a plan. Two roles: reader, writer.",
    "brackets": "argument-hint: [file] [--deep]",
    "stars": "globs: **/*.ts, **/*.tsx",
    "one star": "globs: *.py",
    "an at": "owner: @platform-team",
    "a backtick": "run: `make test`",
    "a percent": "share: %5 of all",
    "a quote that goes on": 'title: "Plan" review',
    "a bracket that stays open": "hint: [file",
    "an exclamation mark": "when: !always",
    "a sign of a folded text": "description: > folded",
    "a bar": "tools: | Read",
}
RULES = ["Read the whole plan.", "Name the file of each remark."]


@pytest.mark.parametrize("name", FRONTS)
def test_front_matter_is_read_as_tools_write_it(tmp_path: Path, name: str) -> None:
    path = tmp_path / "SKILL.md"
    points = "".join(f"- {rule}\n" for rule in RULES)
    path.write_text(f"---\nname: plan-review\n{FRONTS[name]}\n---\n\n{points}")
    document = interchange.read(path)
    assert document.format == "skill"
    assert [item.text for item in document.items] == RULES
    key, _, value = FRONTS[name].partition(": ")
    front = {"description": document.meta.get("skill_description"), **document.meta}
    held = front.get(key) or document.meta.get("skill_front", {}).get(key)
    assert held == value


IDS = ("7", "S8", "ctx-1699-ab12", "str-00001", "a.b", "12:3", "x_1", "00042", "#1", "x/1")


@pytest.mark.parametrize("dash", ["", "- "])
@pytest.mark.parametrize("id", IDS)
def test_bullets_have_any_id_and_their_own_counters(tmp_path: Path, id: str, dash: str) -> None:
    path = tmp_path / "playbook.txt"
    path.write_text(
        f"## STRATEGIES\n{dash}[str-00009] helpful=1 harmful=0 :: Validate first.\n"
        f"{dash}[{id}] helpful=3 harmful=1 :: Break the task up.\nAnd name each step.\n"
    )
    document = interchange.read(path)
    assert document.format == "ace"
    first, second = document.items
    assert first.text == "Validate first."
    assert second.text == "Break the task up.\nAnd name each step."
    evidence = second.evidence or {}
    assert (evidence["bullet"], evidence["helpful"], evidence["harmful"]) == (id, 3, 1)


def _memories() -> list[dict[str, Any]]:
    states = ("active", "deleted", "archived", "paused", "active")
    return [
        {"id": f"m{n}", "content": f"Memory number {n}.", "metadata": {}, "state": state}
        for n, state in enumerate(states)
    ]


@pytest.mark.parametrize("form", ["whole", "lines", "lines.gz", "whole.gz"])
def test_active_memories_alone_are_read_and_the_others_listed(tmp_path: Path, form: str) -> None:
    rows = _memories()
    whole = {"user": {"id": "u"}, "apps": [], "categories": [], "memories": rows}
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    data = (json.dumps(whole) if form.startswith("whole") else lines).encode()
    path = tmp_path / ("memories.json" + (".gz" if form.endswith("gz") else ""))
    path.write_bytes(gzip.compress(data) if form.endswith("gz") else data)
    document = interchange.read(path)
    assert [item.text for item in document.items] == ["Memory number 0.", "Memory number 4."]
    left = sorted(one.what for one in document.skipped)
    assert left == ["is archived", "is deleted", "is paused"]


@pytest.mark.parametrize("state", ["deleted", "archived"])
def test_a_memory_with_the_time_of_its_end_is_left_out(tmp_path: Path, state: str) -> None:
    rows = [
        {"id": "m1", "content": "Keep it.", "state": "active", f"{state}_at": None},
        {"id": "m2", "content": "Leave it.", "state": "active", f"{state}_at": "2026-01-01"},
    ]
    path = tmp_path / "memories.json"
    path.write_text(json.dumps({"memories": rows}))
    document = interchange.read(path)
    assert [item.text for item in document.items] == ["Keep it."]
    assert [one.what for one in document.skipped] == [f"is {state}"]


TRACES = {
    "OpenLLMetry": ("gen_ai.prompt.{}.{}", "gen_ai.completion.{}.{}"),
    "OpenInference": ("llm.input_messages.{}.message.{}", "llm.output_messages.{}.message.{}"),
    "older OpenLLMetry": ("llm.prompts.{}.{}", "llm.completions.{}.{}"),
}


def _span(asked: str, answered: str) -> dict[str, Any]:
    values = {
        asked.format(0, "role"): "system",
        asked.format(0, "content"): "Be short.",
        asked.format(1, "role"): "user",
        asked.format(1, "content"): "How many nights?",
        answered.format(0, "role"): "assistant",
        answered.format(0, "content"): "Seven.",
    }
    attributes = [{"key": k, "value": {"stringValue": v}} for k, v in values.items()]
    span = {"traceId": "1" * 32, "spanId": "2" * 16, "name": "chat", "attributes": attributes}
    return {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}


@pytest.mark.parametrize("name", TRACES)
def test_messages_with_an_attribute_for_each_field_are_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / "traces.json"
    path.write_text(json.dumps(_span(*TRACES[name])))
    (one,) = read_exchanges(path)
    assert isinstance(one, Exchange)
    assert one.messages == (("system", "Be short."), ("user", "How many nights?"))
    assert one.answer == "Seven."


@pytest.mark.parametrize("heading", ["## FORMULAS", "### Formulas:", "\n# Formulas"])
def test_a_heading_of_a_playbook_ends_a_bullet(tmp_path: Path, heading: str) -> None:
    path = tmp_path / "playbook.txt"
    path.write_text(
        "## STRATEGIES\n[str-00001] helpful=1 harmful=0 :: Validate first.\n# and again\nAlways.\n"
        f"{heading}\n(none yet)\n\nNone.\n"
        "## LAST\n[str-00002] helpful=0 harmful=0 :: Break it up.\n"
    )
    document = interchange.read(path)
    assert [one.text for one in document.items] == ["Validate first.\nAlways.", "Break it up."]
    assert (document.items[1].evidence or {})["section"] == "LAST"
    words = "\n".join(map(str, document.skipped))
    at = 5 + heading.startswith("\n")
    assert f"lines {at}–{at + 1}: no bullet, and in none: {heading.strip()}" in words
    assert f"line {at + 3}: no bullet, and in none: None." in words


def test_a_heading_ends_a_labelled_line(tmp_path: Path) -> None:
    path = tmp_path / "prompt.txt"
    path.write_text("[G0] Validate\nfirst.\n## Formulas\n(none yet)\n[G1] Break it up.\n")
    document = interchange.read(path)
    assert [one.text for one in document.items] == ["Validate first.", "Break it up."]
    assert [str(one) for one in document.skipped] == ["lines 3–4: no labelled line: ## Formulas"]
