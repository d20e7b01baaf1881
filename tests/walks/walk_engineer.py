"""An engineer with an application and a provider: check, learn, serve, look at the traffic."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request

from walking import Walk, main  # isort: split

from conftest import TFGRPO, problems
from scripted import LESSON
from standins import Server, StandIn


def walk(walk: Walk) -> None:
    """From a provider's address to feedback on a call that had the library in it."""
    walk.write("problems.jsonl", problems(range(6)))
    with Server(StandIn(), key="") as server:
        where = ("--model", "one-model", "--base-url", f"{server.address}/v1")
        assert "schema" in walk.run("model", "check", *where[2:])
        walk.run("init")
        small = ("--epochs", "3", "--batch-size", "3", "--group-size", "6")
        walk.run("train", "problems.jsonl", *small, *where)
        assert LESSON in walk.run("show", "HEAD") + walk.run("log", "-p")
        walk.run("branch", "prod")
        call = _proxied(walk, server)
        said = walk.run("traffic")
        assert call[:8] in said, (call, said)
        walk.run("feedback", call, "--score", "false", "--correct", "8")
        assert walk.run("traffic", "--feedback")


def _proxied(walk: Walk, server: Server) -> str:
    """Asks as an application does, with the proxy's address for the provider's; returns the id of
    the call."""
    command = ["proxy", "--library", "prod", "--port", "0", "--upstream", f"{server.address}/v1"]
    with walk.step("tfgrpo " + " ".join(command)):
        proxy = subprocess.Popen(
            [TFGRPO, *command],
            cwd=walk.folder,
            env=walk.environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert proxy.stderr is not None
        line = proxy.stderr.readline()
        address = re.search(r"http://\S+/v1", line)
        assert address, line
    try:
        with walk.step("the application asks through the proxy"):
            messages = [
                {"role": "system", "content": "You add."},
                {"role": "user", "content": "What is 2 op 5?"},
            ]
            request = urllib.request.Request(
                f"{address[0]}/chat/completions",
                json.dumps({"model": "one-model", "messages": messages}).encode(),
                {"content-type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=60) as answer:
                body, headers = json.load(answer), answer.headers
        assert "boxed{8}" in body["choices"][0]["message"]["content"]
        assert LESSON in server.served.bodies[-1]["messages"][0]["content"]
        return str(headers["x-tfgrpo-call"])
    finally:
        proxy.terminate()
        proxy.wait(120)
        proxy.stderr.close()


if __name__ == "__main__":
    main(walk)
