"""docs/recipes.md, run: each file of it asks a provider on loopback before and after a commit.

`python tests/recipes.py [FOLDER]` makes an environment with every framework in FOLDER (about
1 GB; a new one under the temporary folder unless it is named) and runs them all in it. Most of
them pin versions that others do not want, so none of them is among the tests' own dependencies.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from providers import Provider, Received

from tfgrpo.store import Operation, Store

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs/recipes.md").read_text()
FRAMEWORKS = (
    *("openai", "anthropic", "openai-agents", "pydantic-ai-slim[openai]", "langchain"),
    *("langchain-openai", "dspy", "google-adk", "inspect-ai", "litellm"),
)
PYTHON = "TFGRPO_RECIPES_PYTHON"
"""Names the Python that has them."""
QUESTION = "What is 5 to 12 June?"
ANSWER = "8 days."
DRIVER = """
import json, sys
names = {}
exec(json.loads(sys.stdin.readline()), names)
for _ in range(2):
    print("answered: " + str(names["answer"](sys.stdin.readline().strip())), flush=True)
"""


def recipes() -> list[str]:
    """The names of the files that the page lists, in its order."""
    return re.findall(r"\]\(\.\./examples/frameworks/(\w+)\.py\)", PAGE)


def code_of(name: str) -> str:
    """The code of a recipe."""
    return (ROOT / f"examples/frameworks/{name}.py").read_text()


def blocks(kind: str, heading: str = "") -> list[str]:
    """The page's blocks of code under a heading, or those before the first one."""
    section = PAGE.partition(f"\n## {heading}\n")[2] if heading else PAGE
    return re.findall(rf"^```{kind}\n(.*?)^```$", section.partition("\n## ")[0], re.M | re.S)


def reply(connection: socket.socket, request: Received) -> None:
    """Answers as the API does that is asked."""
    path = request.line.split()[1].decode()
    usage = {"input_tokens": 40, "output_tokens": 8, "total_tokens": 48}
    found: dict[str, Any]
    if path.endswith("/responses"):
        part = {"type": "output_text", "text": ANSWER, "annotations": [], "logprobs": []}
        message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
        found = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m"}
        found |= {"status": "completed", "output": [{**message, "content": [part]}]}
        found |= {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "error": None}
        details = {"input_tokens_details": {"cached_tokens": 0}}
        details |= {"output_tokens_details": {"reasoning_tokens": 0}}
        found |= {"usage": {**usage, **details}}
    elif path.endswith("/messages"):
        found = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m"}
        found |= {"content": [{"type": "text", "text": ANSWER}], "stop_reason": "end_turn"}
        found |= {"stop_sequence": None, "usage": usage}
    else:
        text = ANSWER
        if b"[[ ## answer ## ]]" in request.body:  # DSPy's own format
            text = f"[[ ## answer ## ]]\n{ANSWER}\n\n[[ ## completed ## ]]"
        message = {"role": "assistant", "content": text}
        found = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
        found |= {"choices": [{"index": 0, "finish_reason": "stop", "message": message}]}
        found |= {"usage": {"prompt_tokens": 40, "completion_tokens": 8, "total_tokens": 48}}
    body = json.dumps(found).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    connection.sendall(head % len(body) + body)


def instructions_of(request: Received) -> str:
    """Returns the text that a request brings as its instructions."""
    body = json.loads(request.body)
    found = body.get("instructions") or body.get("system")
    if "systemInstruction" in body:
        found = body["systemInstruction"]["parts"]
    if found is None:
        turns = body.get("messages") or body["input"]
        found = next(turn["content"] for turn in turns if turn["role"] in ("system", "developer"))
    return found if isinstance(found, str) else "\n".join(part["text"] for part in found)


def run(python: str, code: str, store: Store, folder: Path) -> None:
    """Runs a recipe, and asserts that each of two questions is asked under the library that is in
    force, after the application's own text."""
    with Provider(reply) as provider:
        root = provider.url.removesuffix("/v1")
        keys = {"OPENAI_API_KEY": "sk-recipe", "ANTHROPIC_API_KEY": "sk-recipe"}
        addresses = {"OPENAI_BASE_URL": provider.url, "ANTHROPIC_BASE_URL": root}
        addresses |= {"OPENAI_API_BASE": provider.url}
        quiet = {"OPENAI_AGENTS_DISABLE_TRACING": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        quiet |= {"DSPY_CACHEDIR": str(folder / "dspy"), "HOME": str(folder)}
        process = subprocess.Popen(
            [python, "-c", DRIVER],
            cwd=folder,
            env={"PATH": os.environ["PATH"], **keys, **addresses, **quiet},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(code) + "\n")
            for text in ("Count both days.", "Give units."):
                store.commit("prod", [Operation("ADD", text=text)], message=text)
                process.stdin.write(QUESTION + "\n")
                process.stdin.flush()
                while (line := process.stdout.readline()) and not line.startswith("answered: "):
                    pass
                if not line:
                    raise AssertionError(process.communicate(timeout=60)[1][-4000:])
                assert line == f"answered: {ANSWER}\n"
                asked = [r for r in provider.received if QUESTION.encode() in r.body][-1]
                own, _, rest = instructions_of(asked).partition("You answer customers of a bike")
                assert rest.index("hire.") < rest.index(f"] {text}"), (own, rest)
        finally:
            process.kill()
            process.communicate()


def main() -> None:
    """Makes the environment, and runs the tests that need it."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="recipes-"))
    python = folder / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *FRAMEWORKS], check=True)
    install = [python, "-m", "pip", "install", "-q", "--no-deps", "--force-reinstall", str(ROOT)]
    subprocess.run(install, check=True)
    tests = [sys.executable, "-m", "pytest", "-m", "recipes", "tests/test_recipes.py"]
    env = {**os.environ, PYTHON: str(python)}
    raise SystemExit(subprocess.run(tests, cwd=ROOT, env=env).returncode)


if __name__ == "__main__":
    main()
