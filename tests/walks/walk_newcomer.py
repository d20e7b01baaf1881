"""A newcomer with a CSV of labels, as a spreadsheet wrote it, and an address of a model."""

from __future__ import annotations

import json
from typing import Any

from walking import Walk, main  # isort: split

from scripted import ScriptedEndpoint, stage

LESSON = "When a part of the bike does not work, the label is damage, not booking."
PARTS = ("chain", "brake", "saddle", "light", "pedal", "lock", "tyre")
TEXTS = {
    "damage": "The {} does not work, I noticed on day {}.",
    "booking": "Can I have a bike with a good {} on day {}?",
    "billing": "The {} was charged twice, says receipt {}.",
}


def table() -> str:
    """A CSV as Excel writes it where commas are for decimals."""
    rows = [
        f"{text.format(part, number)};{label}"
        for number, part in enumerate(PARTS * 2)
        for label, text in TEXTS.items()
    ]
    return "\r\n".join(["text;label", *rows, ";"])


def model(request: dict[str, Any]) -> str:
    """Takes every other broken bike for a booking, until it is told."""
    system, user = request["messages"][0]["content"], request["messages"][-1]["content"]
    match stage(request):
        case "rollout":
            label = next(name for name in TEXTS if TEXTS[name].split("{}")[1][:9] in user)
            if label == "damage" and LESSON not in system and request["seed"] % 2:
                label = "booking"
            return f"Label: {label}"
        case "comparison":
            lesson = {"reason": "It is broken.", "text": LESSON}
            said = {"right_did": "a", "wrong_did": "b", "lessons": [lesson]}
            return json.dumps({**said, "when": "", "do": LESSON})
        case "summary":
            return "It chose a label."
    return json.dumps({"about": "x", "closest": None, "decision": "new", "text": LESSON})


def walk(walk: Walk) -> None:
    """From a spreadsheet to a library that helps, and a file of it for another program."""
    walk.write("tickets.csv", table())
    with ScriptedEndpoint(model) as server:
        where = ("--model", "m", "--base-url", server.base_url)
        said = walk.run("init", "--from", "tickets.csv", *where)
        assert "'text' is asked, 'label' is the answer" in said
        walk.run("train", "--estimate")
        said = walk.run("train")
        assert "learned" in said, said
        assert LESSON in walk.run("export", "--format", "prompt")
        assert "damage" in walk.run("rollouts", "--failed")
        walk.run("status")
        walk.run("export", "-o", "SKILL.md", "--name", "tickets")
        assert "name: tickets" in (walk.folder / "SKILL.md").read_text()


if __name__ == "__main__":
    main(walk)
