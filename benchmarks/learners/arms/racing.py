"""What every arm of the race shares: its job, asking, judging, and leaving what it learned.

It is run by the Python of each learner's own environment, so it needs the standard library alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import time
import unicodedata
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

PROBLEM = "{{problem}}"
TRIES = 5
Row = dict[str, Any]
Messages = list[dict[str, str]]
Prompt = Messages | dict[str, Any]
"""Messages in which PROBLEM stands for the problem; or a `pool` of problems with answers, of which
the `count` that are most like a problem are examples before it, after a `text`. A pool without a
text gives the answer to the problem most like it, and no model is asked. The texts of a `library`
are put before a problem by tfgrpo, as its users have it done."""


class BudgetSpent(Exception):
    """The meter gives no more."""


@dataclass
class Job:
    """What an arm is asked to do, from the file that the race wrote. `budget` is in
    compute-seconds, by the `speeds` of reading and writing: tokens a second."""

    base_url: str
    model: str
    arm: str
    seed: int
    seed_text: str
    kind: str
    train: list[Row]
    validation: list[Row]
    folder: Path
    budget: float
    temperature: float
    max_tokens: int
    concurrency: int
    local: bool = False
    rules: Sequence[str] = ()
    speeds: dict[str, float] = field(default_factory=dict)

    @property
    def spent(self) -> float:
        """The share of the budget that is spent, in [0, 1]."""
        root = self.base_url.removesuffix("/v1")
        with urllib.request.urlopen(f"{root}/spent", timeout=60) as answer:
            return float(json.load(answer)["spent"]) / self.budget


def read_job() -> Job:
    """Returns the job that the command line names."""
    values = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    return Job(**{**values, "folder": Path(values["folder"])})


class Answer(NamedTuple):
    """A model's answer, with the tokens that its prompt took."""

    text: str
    prompt_tokens: int


def seeded(*parts: object) -> int:
    """Returns a number for some parts, the same in every process."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:4], "big") >> 1


def ask(job: Job, messages: Sequence[dict[str, str]], **wanted: Any) -> Answer:
    """Returns an answer. Raises BudgetSpent, and OSError where the server does not answer."""
    body = {
        "model": job.model,
        "messages": list(messages),
        "temperature": job.temperature,
        "max_tokens": job.max_tokens,
        **wanted,
    }
    request = urllib.request.Request(
        f"{job.base_url}/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    for turn in range(TRIES):
        try:
            with urllib.request.urlopen(request, timeout=1800) as answer:
                reply = json.load(answer)
                text = reply["choices"][0]["message"]["content"] or ""
                return Answer(text, int((reply.get("usage") or {}).get("prompt_tokens") or 0))
        except urllib.error.HTTPError as error:
            if error.code == 402:
                raise BudgetSpent from None
            if error.code == 400:  # a prompt too long for the model is a wrong answer
                return Answer("", 0)
            if turn == TRIES - 1 or (error.code < 500 and error.code not in (408, 429)):
                raise
        except OSError:
            if turn == TRIES - 1:
                raise
        time.sleep(2**turn)
    raise AssertionError


def prompt_of(text: str) -> Messages:
    """Returns the prompt with a system text."""
    return [{"role": "system", "content": text}, {"role": "user", "content": PROBLEM}]


def with_rules(text: str, rules: Sequence[str]) -> Messages:
    """Returns the prompt with a system text, and rules below it."""
    return prompt_of("\n".join((text, "", *(f"- {rule}" for rule in rules))))


def with_examples(text: str, examples: Sequence[tuple[str, str]]) -> Messages:
    """Returns the prompt with a system text, and problems with right answers before the problem."""
    prompt = prompt_of(text)
    turns = [
        {"role": role, "content": content}
        for problem, answer in examples
        for role, content in (("user", problem), ("assistant", answer))
    ]
    return [prompt[0], *turns, prompt[1]]


@cache
def trigrams(text: str) -> Counter[str]:
    """Returns how often each three characters stand together in a text."""
    text = f"  {unicodedata.normalize('NFKC', text).casefold()} "
    return Counter(text[at : at + 3] for at in range(len(text) - 2))


def by_letters(one: str, other: str) -> float:
    """Returns how alike two texts are: the cosine of their trigrams."""
    a, b = trigrams(one), trigrams(other)
    shared = sum(a[gram] * b[gram] for gram in a.keys() & b.keys())
    norms = [sum(count * count for count in grams.values()) for grams in (a, b)]
    return float(shared / (norms[0] * norms[1]) ** 0.5)


def nearest(prompt: dict[str, Any], problem: str) -> list[tuple[str, str]]:
    """Returns the pairs of a prompt's pool that are most like a problem, the most alike last."""
    return sorted(prompt["pool"], key=lambda pair: by_letters(problem, pair[0]))


@cache
def _library(text: str, texts: tuple[str, ...]) -> Any:
    from tfgrpo.domains.prompt_library import PromptLibrary
    from tfgrpo.store import ROOT, Experience, Library

    held = tuple(Experience(str(n), one, n) for n, one in enumerate(texts))
    return PromptLibrary(Library(ROOT, held), agent_objective=text)


def rendered(prompt: Prompt, problem: str) -> Messages:
    """Returns the messages that ask for one problem."""
    if isinstance(prompt, dict) and "library" in prompt:
        messages = _library(prompt["text"], tuple(prompt["library"])).render(problem)
        return [dict(message) for message in messages]
    if isinstance(prompt, dict):
        some = nearest(prompt, problem)[-prompt["count"] :]
        prompt = with_examples(prompt["text"], some)
    return [
        {**message, "content": message["content"].replace(PROBLEM, problem)} for message in prompt
    ]


class Attempt(NamedTuple):
    """An attempt at a problem: its response, and 1.0 for a right one."""

    row: Row
    response: str
    reward: float
    prompt_tokens: int


def attempt_all(job: Job, prompt: Prompt, rows: Sequence[Row], salt: object) -> list[Attempt]:
    """Returns an attempt at each problem; `salt` tells repeated ones apart. Raises BudgetSpent."""

    def answered(row: Row) -> Answer:
        if isinstance(prompt, dict) and "text" not in prompt:
            return Answer(nearest(prompt, row["problem"])[-1][1], 0)
        seed = seeded(job.seed, salt, row["id"])
        return ask(job, rendered(prompt, row["problem"]), seed=seed)

    def attempt(row: Row) -> Attempt:
        answer = answered(row)
        right = is_right(job.kind, row["answer"], answer.text)
        return Attempt(row, answer.text, float(right), answer.prompt_tokens)

    with ThreadPoolExecutor(job.concurrency) as pool:
        return list(pool.map(attempt, rows))


def mean(attempts: Sequence[Attempt]) -> float:
    """Returns the share of right ones."""
    return sum(one.reward for one in attempts) / len(attempts)


BOXED = re.compile(r"\\boxed\s*\{((?:[^{}]|\{[^{}]*\})*)\}")
NUMBER = re.compile(r"[-−]?\$?\d[\d,]*(?:\.\d+)?|[-−]?\.\d+")
TOLERANCE = 0.0051
"""Answers are asked for with two decimal places."""


def answer_of(kind: str, response: str) -> str | None:
    """Returns what a response gives for its answer: what is in its last box, else its last number
    or, of a label, its last line."""
    boxes = BOXED.findall(response)
    if kind == "label":
        lines = [line for line in response.splitlines() if line.strip()]
        text = boxes[-1] if boxes else lines[-1] if lines else ""
        text = re.sub(r"\\text\{(.*)\}", r"\1", text).replace("\\_", "_")
        return text.strip(" \t`'\"*.:").lower().replace(" ", "_") or None
    numbers = NUMBER.findall(boxes[-1] if boxes else response)
    if not numbers:
        return None
    return str(numbers[-1]).replace(",", "").replace("$", "").replace("−", "-")


def is_right(kind: str, gold: str, response: str) -> bool:
    """Says whether a response gives the answer."""
    given = answer_of(kind, response)
    if given is None:
        return False
    if kind == "label":
        return given == gold.lower()
    return abs(float(given) - float(gold)) <= TOLERANCE


def answer_text(gold: str) -> str:
    """Returns a right answer as an example gives it."""
    return f"\\boxed{{{gold}}}"


def feedback(kind: str, attempt: Attempt) -> str:
    """Returns what is said of an attempt to a model that reflects, the same for every peer."""
    gold = attempt.row["answer"]
    if attempt.reward:
        return f"Right: the answer is {gold}."
    given = answer_of(kind, attempt.response)
    return f"Wrong: it gave {given or 'no answer'}, the right answer is {gold}."


def right_examples(job: Job, prompt: Prompt, rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Returns problems with an answer: the model's own where it was right, else the right one."""
    attempts = attempt_all(job, prompt, rows, "examples")
    return [
        (one.row["problem"], one.response if one.reward else answer_text(one.row["answer"]))
        for one in attempts
    ]


class RowFile:
    """The answers of a job's attempts so far, in a file, so that a restart asks for none twice."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[Any] = []
        if path.exists():
            text = path.read_text(encoding="utf-8")
            self.rows = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
            write_text(path, "".join(json.dumps(row) + "\n" for row in self.rows))

    def add(self, row: Any) -> None:
        """Writes one more."""
        self.rows.append(row)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def write_text(path: Path, text: str) -> None:
    """Writes a file whole or not at all."""
    partial = path.with_name(path.name + ".part")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)


def leave(
    job: Job,
    final: Prompt,
    best: Prompt | None = None,
    *,
    checkpoints: Sequence[Prompt] = (),
    ended: str = "done",
    notes: dict[str, Any] | None = None,
) -> None:
    """Leaves what was learned: the last prompt, and the best by the learner's own account. Where
    it has none (`best` is None) the race chooses among `checkpoints` on the validation problems."""
    learned = {
        "final": final,
        "best": best,
        "checkpoints": list(checkpoints),
        "ended": ended,
        "notes": notes or {},
    }
    write_text(job.folder / "learned.json", json.dumps(learned, indent=1, ensure_ascii=False))


def main(arm: Callable[[Job], None]) -> None:
    """Runs an arm, which says itself what it leaves."""
    arm(read_job())
