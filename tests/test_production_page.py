"""docs/production.md: every step of it is run, in order, against a provider on loopback."""

from __future__ import annotations

import json
import os
import re
import shlex
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import ROOT
from providers import Provider
from proxy_fixtures import answer
from test_proxy import listen

from tfgrpo.cli.main import tfgrpo
from tfgrpo.proxy.proxy_file import read_file
from tfgrpo.proxy.proxy_settings import SpendLimit, Timeouts
from tfgrpo.store.activity.key_ledger import Budget

PAGE = (ROOT / "docs/production.md").read_text()
LEARN = re.search(r"^## Learn from it\n.*?(?=^## )", PAGE, re.M | re.S)
assert LEARN is not None, "its steps are run by test_learn_page.py, where there is something wrong"
BLOCK = re.compile(r"^```(console|python|toml)\n(.*?)^```$", re.M | re.S)
BLOCKS = BLOCK.findall(PAGE.replace(LEARN[0], ""))
SAID = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-5-mini",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": "Eight days: 40 euros."},
            }
        ],
        "usage": {"prompt_tokens": 40, "completion_tokens": 8, "total_tokens": 48},
    }
).encode()


def test_every_step_of_the_page_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-page")
    for variable in ("AZURE_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(variable, "sk-other")
    names: dict[str, Any] = {}
    processes = []
    port = 0

    def command(line: str, base_url: str) -> str:
        nonlocal port
        words = shlex.split(line)
        if words[:2] == ["tfgrpo", "proxy"]:
            arguments = [word if word != "8484" else "0" for word in words[2:]]
            arguments += ["--upstream", base_url]
            process, opened = listen(arguments, tmp_path, OPENAI_API_KEY="sk-page")
            processes.append(process)
            if "--require-key" not in words:  # the page's clients bring the provider's key
                port = opened
            return ""
        if words[0] != "tfgrpo":
            return ""
        if words[1] == "watch" and "--once" not in words:  # it runs until it is stopped
            words.append("--once")
        if "call" in names:
            words = [names["call"] if word.startswith("call-") else word for word in words]
        for _ in range(200):
            done = CliRunner().invoke(tfgrpo, ["--no-pager", *words[1:]], catch_exceptions=False)
            assert done.exit_code == 0, (line, done.output)
            if line != "tfgrpo traffic --since 1d" or "40+8" in done.output:
                break
            time.sleep(0.05)  # a call is written down a little after it was answered
        return done.output

    outputs: dict[str, str] = {}
    with Provider(answer(SAID)) as provider:
        try:
            for kind, block in BLOCKS:
                if kind == "console":
                    for line, shown in re.findall(r"^\$ (.+)\n((?:[^$].*\n)*)", block, re.M):
                        outputs[line] = command(line, provider.url)
                        if not line.startswith("tfgrpo proxy"):
                            assert shown in outputs[line], line
                elif kind == "python":
                    exec(block.replace(":8484", f":{port}"), names)
                else:
                    (tmp_path / "page.toml").write_text(block)
                    found = read_file(tmp_path / "page.toml")
                    if "[[rules]]" in block:
                        assert set(found["libraries"]) == {"support", "sales"}
                        assert len(found["rules"]) == 2
                    elif "[[providers]]" in block:
                        assert [one.weight for one in found["providers"]] == [3, 1, 1, 0]
                        assert found["timeouts"] == Timeouts(first_byte=60, total=600)
                    else:
                        assert found["budgets"] == (
                            SpendLimit(Budget(100, "day"), "support", stop=True),
                        )
                        assert found["require_key"]
        finally:
            for process in processes:
                process.terminate()
                process.communicate()
    said = capsys.readouterr().out
    assert "Eight days: 40 euros." in said
    assert "v1 " in said, "the version of the answer"
    sent = json.loads(provider.received[0].body)["messages"]
    assert sent[0]["content"].startswith("You answer customers of a bike hire.\n\nExperiences")
    assert provider.received[0].header(b"authorization") == b"Bearer sk-page"
    assert "40+8" in outputs["tfgrpo traffic --since 1d"]
    assert "Give the price in euros." in outputs["tfgrpo traffic --figures"]
    assert "recorded feedback" in next(out for line, out in outputs.items() if "feedback" in line)
    assert names["library"].prompt() == "[G0] Give the price in euros."
    shown = CliRunner().invoke(tfgrpo, ["traffic", names["call"], "--json"])
    assert [one["correct"] for one in json.loads(shown.output)["feedback"]] == ["40 euros"] * 2
    assert "both-days/control" in said or "both-days/candidate" in said
    status = outputs["tfgrpo experiment status both-days"]
    assert "10 % of subjects get main (v2), the others prod (v1)" in status
    assert "no decision yet" in status
    decided = outputs["tfgrpo log --decisions prod"]
    for why in ("answers got longer", "June was short", "no more short totals", "incident 214"):
        assert why in decided
    assert "incident 214" in decided.split("no more short totals")[0], "newest first"
    assert not [path for path in os.listdir(tmp_path / ".tfgrpo") if "worker" in path]
    assert "Give the price in euros." in (tmp_path / "AGENTS.md").read_text()
    assert "name: bike-hire" in (tmp_path / ".claude/skills/bike-hire/SKILL.md").read_text()
