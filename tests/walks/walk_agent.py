"""An engineer with an agent of their own: it is trained as it is, looked at and measured."""

from __future__ import annotations

import sys

from walking import Walk, main  # isort: split

from conftest import problems
from scripted import LESSON
from standins import Server, StandIn

AGENT = """
import json, os, sys, urllib.request

task = json.load(sys.stdin)
body = {"model": "gpt-of-mine", "messages": [
    {"role": "system", "content": "You add."}, {"role": "user", "content": task["problem"]}],
    "seed": task["seed"]}
request = urllib.request.Request(
    os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(body).encode(),
    {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "content-type": "application/json"})
print(json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"])
"""
SCORE = """
import json, sys

told = json.load(sys.stdin)
right = told["answer"].endswith("{" + told["problem"]["answer"] + "}")
print(1 if right else "0 the sum is off by one")
"""


def walk(walk: Walk) -> None:
    """From a program and a score to a library that was measured with the program."""
    walk.write("problems.jsonl", problems(range(8)))
    walk.write("others.jsonl", problems(range(30, 34)))
    walk.write("agent.py", AGENT)
    walk.write("score.py", SCORE)
    with Server(StandIn(), key="") as server:
        where = ("--model", "one-model", "--base-url", f"{server.address}/v1")
        small = ("--policy", "paper", "--epochs", "1", "--batch-size", "8", "--group-size", "4")
        wrong = walk.run("train", "problems.jsonl", *where, "--agent", "agnet.sh", code=2)
        assert "there is no command agnet.sh" in wrong
        agent = ("--agent", f"{sys.executable} agent.py", "--reward", f"{sys.executable} score.py")
        assert walk.run("train", "problems.jsonl", *small, *where, *agent, "--estimate")
        walk.run("train", "problems.jsonl", *small, *where, *agent)
        assert LESSON in walk.run("show", "HEAD") + walk.run("log", "-p")
        assert "answered" in walk.run("rollouts", "problems")
        assert "the sum is off by one" in walk.run("rollouts", "problems", "--csv")
        costs = walk.read("cost")["calls"]
        assert sum(one["calls"] for one in costs if one["stage"] == "rollout") == 32
        scores = walk.run("eval", "others.jsonl", "--samples", "2", "--against", "v0", *where[2:])
        assert "v1" in scores


if __name__ == "__main__":
    main(walk)
