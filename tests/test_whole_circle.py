"""examples/whole-circle: from bad answers to a promotion, against a scripted provider."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from conftest import ROOT, environment
from scripted import Reply, ScriptedEndpoint, comparison_of, completion, stage

from tfgrpo.store import Store

LESSON = "A week has five working days, a day eight hours, a month four weeks."
FILE = ROOT / "examples/whole-circle/circle.py"


def circle() -> ModuleType:
    spec = importlib.util.spec_from_file_location("circle", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_bad_answers_lead_to_a_proposal_an_experiment_and_a_promotion(tmp_path: Path) -> None:
    asked = circle().questions
    drawn = [("train", 28, 1), ("heldout", 64, 2), ("heldout", 8, 3)]
    answers = {row["problem"]: row["answer"] for one in drawn for row in asked(*one)}

    def model(request: dict[str, Any]) -> str | Reply:
        system, user = (request["messages"][n]["content"] for n in (0, -1))
        match stage(request):
            case "rollout":
                chance = hashlib.sha256(f"{user}/{request.get('seed')}".encode()).digest()[0]
                lucky = chance % 4 == 0 and "Example: " not in system  # no example enters by luck
                right = LESSON in system or lucky
                said = answers[user] if right else "1"
                return Reply(completion(f"It is \\boxed{{{said}}}.", model=request["model"]))
            case "summary":
                return "It multiplied."
            case _:
                lesson = {"reason": "The bills count so.", "text": LESSON}
                return json.dumps(comparison_of([lesson]))

    with ScriptedEndpoint(model) as endpoint:
        done = subprocess.run(
            [
                *(sys.executable, FILE, "--base-url", endpoint.base_url, "--model", "m"),
                *("--calls", "28", "--most", "64", "--folder", str(tmp_path)),
            ],
            env=environment(OPENAI_API_KEY="sk-circle"),
            capture_output=True,
            text=True,
            timeout=400,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "proposal for main from" in done.stdout
    assert "8 of 8 answers are right now" in done.stdout
    assert "promoted learned: prod is at" in done.stdout
    with Store.open(tmp_path / ".tfgrpo/store.db") as store:
        assert [e.text for e in store.library("prod")] == [LESSON]
        assert store.tip("prod") == store.tip("main")
        (run,) = store.runs.all()
        assert run.config["models"]["api_key_env"] == "TFGRPO_CIRCLE_KEY"
    assert b"sk-circle" not in b"".join(
        path.read_bytes() for path in (tmp_path / ".tfgrpo").rglob("*") if path.is_file()
    )
