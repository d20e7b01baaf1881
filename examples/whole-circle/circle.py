"""The whole circle: bad answers in production, what is learned from them, and the way back.

    python examples/whole-circle/circle.py
    python examples/whole-circle/circle.py --base-url https://api.openai.com/v1 --model gpt-5-mini

A small firm's application asks a model through `tfgrpo proxy`; the firm's bookkeeper says which
answers were wrong. `tfgrpo improve` learns from those on a branch, a person accepts the proposal
into `main`, an experiment gives half of the customers `main` instead of `prod`, and what is shown
to be better is promoted. Every command that is run is printed with what it says. By default the
model is a local one, which `tfgrpo model serve` serves.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

HERE = Path(__file__).parent
BILLS = HERE.parent / "time-on-the-bill"
LOCAL = "qwen2.5-coder-1.5b"
TFGRPO = shutil.which("tfgrpo", path=str(Path(sys.executable).parent)) or "tfgrpo"
KEY = "TFGRPO_CIRCLE_KEY"
OBJECTIVE = (
    "A small firm bills its work. Write the calculation, then the result as a whole number in "
    "\\boxed{}."
)
EXAMPLE = [  # as in the prompts: with it, a small model writes one line
    {"role": "user", "content": "Six cups fit in a box. How many boxes do 18 cups fill?"},
    {"role": "assistant", "content": "18 / 6 = 3. The result is \\boxed{3}."},
]
SETTINGS = f"""
[train]
agent_objective = '{OBJECTIVE}'
learning_objective = "How this firm counts time on its bills: which numbers to calculate with."
epochs = 4
batch_size = 8
group_size = 5
max_tokens = 400
heldout_samples = 2
gate_rule = "above-zero"

[eval]
temperature = 0.7
"""


def main() -> int:
    """Goes round once; returns 0 if the circle closed."""
    options = arguments()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="circle-"))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tfgrpo.toml").write_text(SETTINGS)
    print(f"in {folder}", flush=True)
    with upstream(options) as (base_url, model, key):
        shop = Shop(folder, base_url, model, key)
        return go_round(shop, options)


def go_round(shop: Shop, options: argparse.Namespace) -> int:
    """Does the steps of the circle."""
    shop.tfgrpo("init")
    shop.tfgrpo("branch", "prod")
    with shop.proxy():
        print("\n# 1. Customers ask, and the bookkeeper says what was wrong.")
        right = [shop.ask(row) for row in questions("train", options.calls, 1)]
        print(f"{sum(right)} of {len(right)} answers were right")
        shop.tfgrpo("traffic", "--figures")
        if not learn(shop):
            print("nothing was proposed: ask more (--calls), or another model")
            return 1
        return 0 if experiment(shop, questions("heldout", options.most, 2)) else 1


def learn(shop: Shop) -> bool:
    """Improves `main` by what went wrong; returns whether there was a proposal to accept."""
    print("\n# 2. Learn from it.")
    shop.tfgrpo(
        *("improve", "--target", "main", "--no-system", "--model", shop.model),
        *("--base-url", shop.base_url, "--api-key-env", KEY),
    )
    proposals = json.loads(shop.tfgrpo("proposal", "list", "--json", show=False))
    if not proposals:
        return False
    print("\n# 3. A person decides.")
    id = proposals[0]["id"]
    shop.tfgrpo("proposal", "show", id)
    shop.tfgrpo("proposal", "accept", id, "--why", "it says what the firm does")
    return True


def experiment(shop: Shop, rows: list[dict[str, str]]) -> bool:
    """Gives half of these customers what was learned, until a test decides; returns whether it was
    promoted."""
    print("\n# 4. Half of the customers get it.")
    shop.tfgrpo(
        *("experiment", "start", "learned", "--control", "prod", "--candidate", "main"),
        # Three lessons are a third of so short a prompt: its tokens are no guard here.
        *("--share", "50%", "--guard", "errors", "--guard", "latency=20%"),
    )
    verdict = "none"
    for start in range(0, len(rows), 8):
        for row in rows[start : start + 8]:
            shop.ask(row)
        status = json.loads(shop.tfgrpo("experiment", "status", "--json", show=False))
        verdict = status["evidence"]["verdict"]
        if verdict != "none":
            break
    shop.tfgrpo("experiment", "status", "learned")
    if verdict != "benefit":
        shop.tfgrpo("experiment", "stop", "learned", "--why", f"the verdict is {verdict}")
        return False
    print("\n# 5. What is better is promoted.")
    shop.tfgrpo("experiment", "promote", "learned", "--why", "shown to be better")
    right = [shop.ask(row) for row in questions("heldout", 8, 3)]
    print(f"{sum(right)} of {len(right)} answers are right now")
    shop.tfgrpo("log", "prod", "--oneline")
    shop.tfgrpo("log", "--decisions")
    return True


class Shop:
    """The firm's application: its folder, its provider, and the proxy between the two."""

    def __init__(self, folder: Path, base_url: str, model: str, key: str) -> None:
        self.folder, self.base_url, self.model, self.key = folder, base_url, model, key
        self.port = 0
        self.customers = 0

    def tfgrpo(self, *words: str, show: bool = True) -> str:
        """Runs a command in the folder, and prints it with what it says."""
        if show:
            print(f"$ tfgrpo {shlex.join(words)}", flush=True)
        done = subprocess.run(
            [TFGRPO, *words],
            cwd=self.folder,
            env={**os.environ, KEY: self.key},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        if show:
            print(done.stdout, flush=True)
        return done.stdout

    @contextmanager
    def proxy(self) -> Iterator[None]:
        """Has the proxy run for as long as the block lasts, with the words of calls on record."""
        words = ["--library", "prod", "--record", "content", "--upstream", self.base_url]
        print(f"$ tfgrpo proxy {shlex.join(words)} &", flush=True)
        process = subprocess.Popen(
            [TFGRPO, "proxy", "--port", "0", *words],
            cwd=self.folder,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stderr is not None
            self.port = int(re.search(r":(\d+)/v1", process.stderr.readline())[1])  # type: ignore[index]
            yield
        finally:
            process.terminate()
            process.wait()

    def ask(self, row: dict[str, str]) -> bool:
        """Asks as a customer who was never there before, and gives feedback on the answer."""
        self.customers += 1
        messages = [
            {"role": "system", "content": OBJECTIVE},
            *EXAMPLE,
            {"role": "user", "content": row["problem"]},
        ]
        body = {"model": self.model, "messages": messages, "temperature": 0.7, "max_tokens": 80}
        call, said = self._post("/v1/chat/completions", body)
        found = re.findall(r"\\boxed\{(\d+)\}", said["choices"][0]["message"]["content"])
        right = bool(found) and found[-1] == row["answer"]
        feedback: dict[str, object] = {"call": call, "score": right}
        if not right:
            feedback["correct"] = row["answer"]
        self._post("/feedback", feedback)
        return right

    def _post(self, path: str, body: dict[str, object]) -> tuple[str, dict[str, object]]:
        request = Request(
            f"http://127.0.0.1:{self.port}{path}",
            json.dumps(body).encode(),
            {
                "Authorization": f"Bearer {self.key}",
                "Content-Type": "application/json",
                "x-tfgrpo-subject": f"customer-{self.customers}",
            },
        )
        with urlopen(request, timeout=600) as answer:
            return answer.headers.get("x-tfgrpo-call", ""), json.loads(answer.read() or b"{}")


def questions(split: str, count: int, seed: int) -> list[dict[str, str]]:
    """Returns customers' questions, with the right answers that only the bookkeeper knows."""
    spec = importlib.util.spec_from_file_location("bills", BILLS / "problems.py")
    assert spec is not None
    assert spec.loader is not None
    bills = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bills)
    rows: list[dict[str, str]] = bills.draw(split, count, seed)
    return rows


@contextmanager
def upstream(options: argparse.Namespace) -> Iterator[tuple[str, str, str]]:
    """Yields the provider's base URL, the model and the key; serves a local model by default."""
    if options.base_url:
        yield options.base_url, options.model, os.environ.get(options.api_key_env, "none")
        return
    model = options.model.removeprefix("local:")
    print(f"$ tfgrpo model serve {model} &", flush=True)
    process = subprocess.Popen(
        [TFGRPO, "model", "serve", model, "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        ready, key = process.stdout.readline(), process.stdout.readline()
        base_url = ready.partition(" is ready at ")[2].partition(";")[0]
        yield base_url, model, key.partition(": ")[2].strip()
    finally:
        process.terminate()
        process.wait()


def arguments() -> argparse.Namespace:
    """Returns the command line's arguments."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--base-url", help="an OpenAI-compatible provider; by default a local one")
    parser.add_argument("--model", default=LOCAL)
    parser.add_argument("--api-key-env", default="OPENAI_API_KEY")
    parser.add_argument("--folder", type=Path, help="where the store goes; by default a new one")
    parser.add_argument("--calls", type=int, default=28, help="customers before the improvement")
    parser.add_argument("--most", type=int, default=240, help="customers of the experiment at most")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
