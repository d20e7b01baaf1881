"""Attempts are compared from where they part: what is left out, and what is learned from the rest.

Two agents are trained with whole attempts and with parted ones: one with tools of our own loop, and
a program that works in a folder. The reflection model is scripted, and knows no more than what it
is shown: its lesson names the call that stands in every better attempt and in no worse one.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import Reply, ScriptedEndpoint, completion

import tfgrpo
from tfgrpo.data.problems import Problem
from tfgrpo.learn import propose, run_setup
from tfgrpo.learn.parting import parted
from tfgrpo.rendering.token_count import count_tokens
from tfgrpo.rollout.attempt import Group, Rollout

PROBLEM = Problem("p", "When does order 4471 arrive?", "Friday")
LONG = "Nothing on this page matters to the question. " * 40
CALL = re.compile(r'"name": "(\w+)"')

# one group:


def call(name: str, argument: object = "4471", thought: str = "") -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps({"order": argument})}
    return {"role": "assistant", "content": thought, "tool_calls": [{"function": function}]}


def result(text: str) -> dict[str, Any]:
    return {"role": "tool", "content": text}


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def group(*attempts: tuple[float | None, list[dict[str, Any]]]) -> Group:
    rollouts = [
        Rollout(PROBLEM, n, "", "answered", reward, "", "", messages=tuple(messages))
        for n, (reward, messages) in enumerate(attempts)
    ]
    return Group(PROBLEM, tuple(rollouts))


def texts(*attempts: tuple[float | None, list[dict[str, Any]]]) -> list[str]:
    return [one.transcript for one in parted(group(*attempts), 0).rollouts]


def test_what_attempts_have_in_common_is_told_in_a_line_and_what_differs_is_kept_whole() -> None:
    before = [call("find", thought="Let me see."), result(LONG), call("open"), result(LONG)]
    again = [call("find", thought="I look."), *before[1:]]
    right, wrong = texts(
        (1.0, [*before, call("calendar"), result("Friday"), said("On Friday.")]),
        (0.0, [*again, said("On Thursday.")]),
    )
    assert right.startswith('before: 2 steps as in a worse attempt: {"arguments": ')
    assert wrong.startswith("before: 2 steps as in a better attempt: ")
    for one in (right, wrong):
        assert CALL.findall(one)[:2] == ["find", "open"]
        assert one.count("Nothing on this page") < 8
    assert CALL.findall(right)[2:] == ["calendar"]
    assert right.endswith("tool: Friday\n\nassistant: On Friday.")
    assert wrong.endswith("assistant: On Thursday.")


def test_a_call_that_differs_is_a_parting_though_its_result_is_the_same() -> None:
    found = [call("find"), result(LONG)]
    right, wrong = texts(
        (1.0, [*found, call("write", "x + 1"), result("ok"), said("Done.")]),
        (0.0, [*found, call("write", "x + 2"), result("ok"), said("Done.")]),
    )
    assert "x + 1" in right
    assert "x + 2" in wrong


def test_each_parts_from_the_one_of_the_other_side_that_goes_along_longest() -> None:
    first, second = [call("find"), result(LONG)], [call("open"), result(LONG)]
    right, far, near = texts(
        (1.0, [*first, *second, said("On Friday.")]),
        (0.0, [call("guess"), result(LONG), said("On Monday.")]),
        (0.0, [*first, *second, said("On Thursday.")]),
    )
    assert right.startswith("before: 2 steps as in a worse attempt")
    assert near.startswith("before: 2 steps as in a better attempt")
    assert far.count("Nothing on this page") == LONG.count("Nothing"), (
        "it shares no beginning with any"
    )


@pytest.mark.parametrize("rewards", [(1.0, 1.0), (None, 0.0), (0.0, 0.0)])
def test_attempts_of_one_side_are_left_as_they_are(rewards: tuple[float | None, ...]) -> None:
    messages = [call("find"), result(LONG), said("On Friday.")]
    found = group(*((reward, messages) for reward in rewards))
    assert parted(found, 0) == found


MESSAGES = st.lists(
    st.sampled_from([call("find"), call("open", "x"), result("ok"), result(LONG), said("So.")]),
    max_size=7,
)


@given(st.lists(st.tuples(st.sampled_from([1.0, 0.5, 0.0, None]), MESSAGES), max_size=5))
def test_whatever_attempts_did_none_becomes_longer_or_loses_its_end(
    attempts: list[tuple[float | None, list[dict[str, Any]]]],
) -> None:
    found = group(*attempts)
    for old, new in zip(found.rollouts, parted(found, 0).rollouts, strict=True):
        assert len(new.transcript) <= len(old.transcript)
        assert new.messages[-1:] == old.messages[-1:]
        assert (new.sample, new.reward) == (old.sample, old.reward)
        left_out = len(old.messages) - len(new.messages[1:]) if new != old else 0
        assert new.messages[1:] == old.messages[left_out:] or new == old


# two agents, with a reflection model that knows what it is shown:


def reflects(request: dict[str, Any]) -> str | None:
    """Answers what reflection asks; None for an attempt's call."""
    text = request["messages"][-1]["content"]
    if "You keep a record of attempts" in request["messages"][0]["content"]:
        made = " ".join(f'"name": "{one}"' for one in CALL.findall(text))
        return f"It made the calls {made}" + " and looked at what it got" * 8  # 60 words, as asked
    if "Worse attempts:" not in text:
        return None
    worse, better = text.rpartition("Worse attempts:")[2].split("Better attempts:")
    calls = [set(CALL.findall(line)) for line in better.splitlines() if "(right" in line]
    both = set.intersection(*calls) if calls else set()
    only = sorted(both - set(CALL.findall(worse)))
    return json.dumps({"when": "before the last step", "do": f"call {only[0]}" if only else ""})


def calls(name: str, **arguments: str) -> Reply:
    body = completion("", model="scripted")
    function = {"name": name, "arguments": json.dumps(arguments)}
    told = {"content": None, "tool_calls": [{"id": "c", "type": "function", "function": function}]}
    body["choices"][0]["message"] |= told
    return Reply(body)


def taught(request: dict[str, Any], lesson: str) -> bool:
    return lesson in json.dumps(request["messages"][0]) or bool(request["seed"] % 2)


def at_a_desk(request: dict[str, Any]) -> str | Reply:
    """Looks at an order and its carrier, and at the calendar if a lesson or chance says so."""
    if (answer := reflects(request)) is not None:
        return answer
    done = [one["content"] for one in request["messages"] if one["role"] == "tool"]
    steps = ["order", "carrier", *(["calendar"] if taught(request, "call calendar") else [])]
    if len(done) < len(steps):
        return calls(steps[len(done)], number=re.findall(r"\d+", str(request["messages"]))[0])
    return "<answer>Friday</answer>" if "calendar" in steps else "<answer>Thursday</answer>"


def order(number: str) -> str:
    """What is on record of an order."""
    return f"Order {number}. {LONG}"


def carrier(number: str) -> str:
    """What the carrier says of an order."""
    return f"Parcel of {number}. {LONG}"


def calendar(number: str) -> str:
    """The days on which nobody delivers."""
    return "Thursday is a holiday."


def train_a_desk(folder: Path, base_url: str) -> tfgrpo.TrainResult:
    rows = [{"problem": f"When does order {n} arrive?", "answer": "Friday"} for n in range(40, 48)]
    more: dict[str, Any] = {"tools": [order, carrier, calendar], "turns": 6, "domain": "exact"}
    return tfgrpo.train_sync(
        rows, store=folder, mode="agent", base_url=base_url, **more, **MEASURED
    )


AGENT = """
import json, os, pathlib, sys, urllib.request
task = json.load(sys.stdin)
messages = [{"role": "user", "content": task["problem"]}]

def read(path): return pathlib.Path(path).read_text()
def write(path, text): pathlib.Path(path).write_text(text); return "ok"
def note(text): pathlib.Path("CHANGES").write_text(text); return "ok"

while True:
    body = {"model": "m", "messages": messages, "seed": task["seed"], "tools": []}
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(body).encode(),
        {"content-type": "application/json"})
    message = json.load(urllib.request.urlopen(request))["choices"][0]["message"]
    messages.append(message)
    if not message.get("tool_calls"):
        break
    for call in message["tool_calls"]:
        made = globals()[call["function"]["name"]](**json.loads(call["function"]["arguments"]))
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": made})
print(message["content"])
"""
SCORE = "import pathlib; print(int(pathlib.Path('CHANGES').exists()))"


def in_a_folder(request: dict[str, Any]) -> str | Reply:
    """Reads two files and mends one, and notes the change if a lesson or chance says so."""
    if (answer := reflects(request)) is not None:
        return answer
    done = [one for one in request["messages"] if one["role"] == "tool"]
    steps = [
        calls("read", path="README"),
        calls("read", path="main.py"),
        *([calls("note", text="Mended.")] if taught(request, "call note") else []),
        calls("write", path="main.py", text="a = 2\n"),
    ]
    return steps[len(done)] if len(done) < len(steps) else "Done."


def train_a_folder(folder: Path, base_url: str) -> tfgrpo.TrainResult:
    repo = folder / "repo"
    repo.mkdir()
    for name in ("README", "main.py"):
        (repo / name).write_text(LONG)
    (folder / "agent.py").write_text(AGENT)
    (folder / "score.py").write_text(SCORE)
    rows = [{"problem": f"Mend fault {n}.", "answer": "-"} for n in range(40, 48)]
    more: dict[str, Any] = {"workspace": str(repo)}
    more["agent"] = f"{sys.executable} {folder}/agent.py"
    more["reward"] = f"{sys.executable} {folder}/score.py"
    return tfgrpo.train_sync(rows, store=folder, base_url=base_url, **more, **MEASURED)


MEASURED: dict[str, Any] = {
    "model": "scripted",
    "policy": "probation",
    "epochs": 2,
    "batch_size": 4,
    "group_size": 4,
    "examples": False,
    "seed": 1,
}


class Reflected(NamedTuple):
    """The tokens of what reflection was asked and answered, and the lessons, with how often."""

    tokens: int
    written: int
    lessons: Counter[str]

    @classmethod
    def of(cls, requests: list[dict[str, Any]]) -> Reflected:
        answers = [(one, said) for one in requests if (said := reflects(one)) is not None]
        asked = (message["content"] for one, _ in answers for message in one["messages"])
        lessons = [json.loads(said)["do"] for one, said in answers if "response_format" in one]
        written = sum(count_tokens(said) for _, said in answers)
        return cls(sum(map(count_tokens, asked)), written, Counter(lessons))


@pytest.mark.parametrize(
    ("script", "train", "lesson"),
    [
        (at_a_desk, train_a_desk, "call calendar"),
        (in_a_folder, train_a_folder, "call note"),
    ],
)
def test_the_same_is_learned_from_what_differs_as_from_all_with_fewer_tokens(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: Callable[[dict[str, Any]], str | Reply],
    train: Callable[[Path, str], tfgrpo.TrainResult],
    lesson: str,
) -> None:
    same = SimpleNamespace(uuid4=lambda: UUID(int=5))  # what decides by chance who is shown what
    monkeypatch.setattr(run_setup, "uuid", same)
    found = {}
    for name, view in (("whole", lambda group, long: group), ("parted", parted)):
        monkeypatch.setattr(propose, "parted", view)
        (tmp_path / name).mkdir()
        with ScriptedEndpoint(script) as server:
            train(tmp_path / name, server.base_url)
        found[name] = Reflected.of(server.requests)
    whole, short = found["whole"], found["parted"]
    print(f"{script.__name__}: {whole} before, {short} now")
    assert short.lessons == whole.lessons, "as often from as many"
    assert short.lessons[lesson]
    assert short.tokens < 0.75 * whole.tokens
    assert short.written <= whole.written
