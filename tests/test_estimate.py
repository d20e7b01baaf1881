"""Estimates that hold: a model that takes every turn, every token and every second try.

The model of these tests has a token for each byte, counts what surrounds messages as the most
wasteful chat template would, answers with all the tokens it may have, mixes every group, teaches
as much as it can, and gives each structured answer only when it is asked again.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import Cli, one_line_error
from scripted import Reply, ScriptedEndpoint, completion, stage, write_problems
from test_examples_apart import write_messages

from tfgrpo.domains.conversation import PERSONA_TOKENS
from tfgrpo.model import costs
from tfgrpo.model.budget import PER_MESSAGE
from tfgrpo.rollout.agent import CALLS
from tfgrpo.store import Operation, Store
from tfgrpo.store.canonical import derived_id

MOST = 96
"""The most tokens of an attempt's answer here."""
UNDER = (2, 3, 5, 7)
"""Which of a group's attempts succeed that are two plain ones, two under a strategy, and two for
each of two lessons."""
RUBRIC = """
[[criteria]]
name = "kind"
question = "Is it kind?"

[[criteria]]
name = "whole"
question = "Is all of it kind?"
over = "conversation"

[[criteria]]
name = "short"
max_words = 4
"""
SCALE = """
scale = "10: solves it. 5: half of it. 0: nothing."
repeat = 2
"""


class Worst:
    """The model. `tools` says whether it calls tools, and whether its endpoint takes them.

    With `unsolved` it solves nothing but under a strategy, and with a lesson the second time; a
    `wordy` answer is in other words.
    """

    def __init__(self, tools: str, *, unsolved: bool, wordy: bool) -> None:
        self.tools, self.unsolved, self.wordy = tools, unsolved, wordy
        self.asked: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __call__(self, request: dict[str, Any]) -> Reply:
        if "input" in request:
            seed = hashlib.sha256(request["input"].encode()).digest()
            usage = {"prompt_tokens": len(request["input"].encode()) + PER_MESSAGE}
            return Reply({"data": [{"embedding": [1 + b for b in seed[:8]]}], "usage": usage})
        if self.tools == "text" and "tools" in request:
            return Reply({"error": {"message": "no tools here"}}, status=400)
        kind, most = named(request), request["max_tokens"]
        with self._lock:
            self.asked[kind] += 1
            number = self.asked[kind]
        if "response_format" in request:
            mended = "cannot be used" in request["messages"][-1]["content"]
            text = json.dumps(self.typed(kind, request, number)) if mended else "x" * most
        elif kind == "rollout" and self.tools != "none":
            return self.acted(request, number)
        elif kind == "rollout":
            text = self.answered(request, number)
        else:
            text = f"{kind} {number} " + "y" * most
        assert len(text) <= most or "response_format" not in request, "it would be cut off"
        return self.reply(request, text[:most].ljust(most))

    def reply(self, request: dict[str, Any], text: str, **message: Any) -> Reply:
        body = completion(text, model=request["model"])
        body["choices"][0]["message"] |= message
        read = sum(taken(message) for message in request["messages"])
        read += sum(len(json.dumps(tool)) + PER_MESSAGE for tool in request.get("tools", ()))
        if "response_format" in request:
            read += len(json.dumps(request["response_format"]["json_schema"]["schema"]))
        body["usage"] = {"prompt_tokens": read, "completion_tokens": request["max_tokens"]}
        return Reply(body)

    def answered(self, request: dict[str, Any], number: int) -> str:
        """An answer of all the tokens there are, right every other time."""
        asked = "".join(str(m["content"]) for m in request["messages"])
        problem = asked.rpartition("What is ")[2].split("?")[0]
        a, b = map(int, problem.split(" op "))
        right = self.turn(problem, 8) in UNDER if self.unsolved else self.turn(problem)
        if "The labels are:" in asked:
            return f"\nLabel: {'late' if right else 'none'}".rjust(request["max_tokens"], "z")
        about = "about " if self.wordy else ""
        value = f"\\boxed{{{about}{a + b + 1 if right else 10_000 + number}}}"
        return "z" * (request["max_tokens"] - len(value)) + value

    def acted(self, request: dict[str, Any], number: int) -> Reply:
        """More tool calls than are made, until there are no more turns."""
        last = "No more tools" in str(request["messages"][-1]["content"])
        if last:
            return self.reply(request, self.answered(request, number))
        arguments = json.dumps({"url": "far", "n": number})
        if self.tools == "text":
            call = f'<tool>{{"name": "visit", "arguments": {arguments}}}</tool>'
            return self.reply(request, call.rjust(request["max_tokens"], "w"))
        called = [
            {
                "id": f"call_{number:020}{n:030}",
                "type": "function",
                "function": {"name": "visit", "arguments": arguments if n else arguments + " " * 8},
            }
            for n in range(CALLS + 3)
        ]
        return self.reply(request, "", tool_calls=called)

    def typed(self, kind: str, request: dict[str, Any], number: int) -> dict[str, Any]:
        new = hashlib.sha256(f"{kind} {number}".encode()).hexdigest()[:12]
        longest = " ".join(f"{new}{n:06}" for n in range(25))
        match kind:
            case "judge" if "grade" in json.dumps(request["response_format"]):
                return {"why": "w" * 300, "grade": 10 * (number // 4 % 2)}
            case "judge" if "incorrect" in json.dumps(request["response_format"]):
                right = self.right(request)
                return {
                    "ground_truth": "g" * 100,
                    "answer": "a" * 100,
                    "verdict": "correct" if right else "incorrect",
                }
            case "judge":
                return {"why": "w" * 300, "verdict": "yes" if self.turn("rubric") else "no"}
            case "comparison" | "reconcile":
                texts = (f"{longest} first", f"{longest} second")
                lessons = [{"reason": "r", "text": text} for text in texts]
                return {"right_did": "a", "wrong_did": "b", "lessons": lessons}
            case "strategies":
                return {"strategies": [f"{new} {n} ".ljust(240, "s") for n in range(3)]}
            case "direct":
                return {"experiences": [f"{new} {n} ".ljust(150, "s") for n in range(9)]}
            case "prune":
                return {"why": "", "action": "delete", "experiences": ["G0"], "text": ""}
        if "operations" in json.dumps(request["response_format"]):
            add = {"op": "add", "experience": None}
            return {"operations": [{"lessons": [n], **add, "text": longest} for n in range(1, 5)]}
        return {"about": "", "closest": None, "decision": "new", "text": ""}

    def right(self, request: dict[str, Any]) -> bool:
        """Whether the attempt that a judge is shown is right: that each group is mixed must not
        hang on the order in which judges are asked."""
        shown = "".join(str(m["content"]) for m in request["messages"])
        a, b = map(int, re.findall(r"What is (\d+) op (\d+)", shown)[-1])
        return re.findall(r"about (\d+)", shown)[-1] == str(a + b + 1)

    def turn(self, what: str, size: int = 2) -> int:
        with self._lock:
            self.asked[what] += 1
            return (self.asked[what] - 1) % size


def named(request: dict[str, Any]) -> str:
    """Returns the stage of a request."""
    if "response_format" in request:
        return str(request["response_format"]["json_schema"]["name"])
    first = request["messages"][0]["content"]
    if request["max_tokens"] == PERSONA_TOKENS:
        return "persona"
    if request["max_tokens"] == 32:
        return "next action"
    return "summary" if "You keep a record of attempts" in first else "rollout"


def taken(message: dict[str, Any]) -> int:
    """Returns the tokens of a message for this model."""
    calls = sum(len(json.dumps(call)) for call in message.get("tool_calls") or ())
    return len(str(message["content"] or "").encode()) + calls + PER_MESSAGE


class Case(NamedTuple):
    """Flags of a run, the model's tools, and the stages whose calls are just what was said."""

    flags: tuple[str, ...]
    exact: tuple[str, ...]
    tools: str = "none"
    unsolved: bool = False
    toml: str = ""
    row: dict[str, Any] = {}  # noqa: RUF012


REFLECTION = ("summary", "comparison", "controller")
LONG = ("--domain", "choice", "--prompts", "long", "--exemplars", "4", "--epochs", "2")
AGENT = ("--mode", "agent", "--turns", "3", "--corpus", "passages.jsonl")
TOOLS = "[tools]\noutput = 150\n"
OTHERS = ("--gate", "gate.jsonl", "--gate-samples", "2", "--heldout", "heldout.jsonl")
FACTORIAL = ("--gate-trial", "factorial", "--batch-size", "1")
CASES = {
    "plain": Case(
        (*OTHERS, "--sealed", "sealed.jsonl", "--exemplars", "0"),
        ("rollout", *REFLECTION, "evaluation"),
    ),
    "credit": Case(("--dropout", "0.3", "--controller-sees-credit"), ("rollout",)),
    "agent": Case((*AGENT, *OTHERS), ("rollout", *REFLECTION, "evaluation"), "api", toml=TOOLS),
    "agent in text": Case(AGENT, ("rollout", *REFLECTION), "text", toml=TOOLS),
    "branch": Case((*AGENT, "--rollouts", "branch"), (), "api", toml=TOOLS),
    "branch in text": Case((*AGENT, "--rollouts", "branch"), (), "text", toml=TOOLS),
    "web": Case(
        ("--domain", "web", *AGENT, *OTHERS),
        ("rollout", "judge", *REFLECTION, "reconcile"),
        "api",
        toml=TOOLS,
    ),
    "judge": Case(("--domain", "judge:scale.toml", *OTHERS), ("rollout", "judge")),
    "compare": Case(("--domain", "judge:compare.toml", *OTHERS), ("rollout", "judge")),
    "rubric": Case(
        ("--domain", "rubric:rubric.toml", *OTHERS),
        ("rollout", "judge"),
        row={"criteria": [{"name": "own", "question": "Is it 4711?"}]},
    ),
    "persona": Case(
        ("--domain", "rubric:rubric.toml", *OTHERS),
        ("rollout", "persona", "judge"),
        row={"persona": "A customer in a hurry.", "turns": 3},
    ),
    "hints": Case(("--hints", "2"), ("rollout", "strategies", *REFLECTION), unsolved=True),
    "adaptive": Case(("--rollouts", "adaptive", "--hints", "1"), ()),
    "alone": Case(("--group-size", "1"), ("rollout", *REFLECTION)),
    "direct": Case(("--direct", "5", *OTHERS), ("direct",)),
    "capped": Case(("--library-tokens", "400"), ("rollout", "summary", "comparison")),
    "as they are": Case(("--summarise-over", "5000"), ("rollout", "comparison", "controller")),
    "as a rule": Case(("--summarise-over", "1500"), ("rollout",)),
    "quorum": Case(("--quorum", "0.5"), ("rollout",)),
    "ahead": Case((), ("rollout", "summary", "comparison")),
    "one plan": Case(("--controller", "batch"), ("rollout", "summary", "comparison")),
    "all wrong": Case(
        ("--all-wrong", "2", "--group-size", "2"), ("summary", "comparison"), unsolved=True
    ),
    "confirm": Case(("--confirm", "2"), ("summary", "comparison")),
    "blame": Case(("--blame", "--exemplars", "2"), ("rollout", "summary", "comparison")),
    "examples in a long prompt": Case(LONG, ("rollout",), row={"answer": "late"}),
    "examples first": Case(
        ("--domain", "choice", "--exemplars", "2", *OTHERS), ("rollout",), row={"answer": "late"}
    ),
    "factorial": Case((*OTHERS, "--exemplars", "0", *FACTORIAL), ("rollout", *REFLECTION)),
    "embeddings": Case((), ("rollout",), toml='[model]\nembedding_model = "e"\n'),
}


def written(folder: Path, case: Case) -> None:
    """Writes what the runs of these tests read."""
    for name, start in (("problems", 1), ("gate", 50), ("heldout", 60), ("sealed", 70)):
        path = write_problems(folder / f"{name}.jsonl", 4 if start == 1 else 2, start=start)
        rows = [json.loads(line) | case.row for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    far = {"title": "Far", "text": "\N{ELEPHANT} " * 200, "url": "far"}
    (folder / "passages.jsonl").write_text(json.dumps(far) + "\n")
    (folder / "rubric.toml").write_text(RUBRIC)
    (folder / "scale.toml").write_text(SCALE)
    (folder / "compare.toml").write_text(SCALE + "compare = true\n")
    (folder / "long").mkdir()
    around = "Read it twice. " * 1000
    rollout = "<!-- system -->\n{{agent_objective}}\n{{library}}\n<!-- user -->\n"
    (folder / "long" / "rollout.md").write_text(f"{rollout}{around}{{{{problem}}}}\n")
    prices = "[prices]\nworst = {prompt = 1, completion = 2}\ne = {prompt = 3, completion = 0}\n"
    (folder / "tfgrpo.toml").write_text(case.toml + prices)


@pytest.mark.parametrize("name", CASES)
def test_no_stage_takes_more_than_the_upper_estimate(cli: Cli, tmp_path: Path, name: str) -> None:
    case = CASES[name]
    written(tmp_path, case)
    with Store.init(tmp_path / ".tfgrpo" / "store.db") as store:
        store.commit(
            "main", [Operation("ADD", derived_id("e"), "Look at the numbers first.")], message="a"
        )
    flags = ("--batch-size", "2", "--epochs", "1", "--group-size", "4", "--max-tokens", str(MOST))
    if name != "ahead":  # where the most that can be asked is what is asked
        flags += ("--lessons-ahead", "1", "--deploy", "last")
    if "--summarise-over" not in case.flags:
        flags += ("--summarise-over", "0")
    model = Worst(case.tools, unsolved=case.unsolved, wordy="web" in case.flags)
    with ScriptedEndpoint(model) as server:
        asked = ("train", "problems.jsonl", "--model", "worst", "--base-url", server.base_url)
        asked = (*asked, *flags, *case.flags)
        said = json.loads(cli(*asked, "--estimate", "--json").stdout)
        assert not server.requests
        cli(*asked, "--run", "r")
    made: Counter[str] = Counter()
    prices = {"worst": {"prompt": 1, "completion": 2}, "e": {"prompt": 3, "completion": 0}}
    with Store.open(tmp_path / ".tfgrpo" / "store.db") as store:
        for one in costs.costs(store, prices, store.runs.get("r")):
            if not one.model.startswith("tool:"):
                made[f"{one.stage} dollars"] += one.dollars or 0
                for what in ("calls", "prompt_tokens", "completion_tokens"):
                    made[f"{one.stage} {what}"] += getattr(one.usage, what)
    upper = {stage["stage"]: stage for stage in said["upper"]}
    expected = {stage["stage"]: stage for stage in said["expected"]}
    for key in made:
        stage, _, what = key.rpartition(" ")
        assert made[key] <= upper[stage][what] + 1e-9, key
    assert expected.keys() <= upper.keys()
    for stage, found in expected.items():
        for what in ("calls", "prompt_tokens", "completion_tokens", "dollars"):
            assert found[what] <= upper[stage][what] + 1e-9, (stage, what)
    for stage in case.exact:
        assert made[f"{stage} calls"] == upper[stage]["calls"], stage
    assert said["left_out"] == []


def learner(request: dict[str, Any]) -> str:
    """A model that is right at the gate the more often the more its prompt holds, and learns two
    lessons from every group."""
    text = json.dumps([request["messages"], request.get("seed")])
    drawn = hashlib.sha256(text.encode())
    match stage(request):
        case "rollout":
            examples = sum(message["role"] == "assistant" for message in request["messages"])
            chance = 0.2 + 0.08 * (examples + text.count("When it is"))
            is_held = "Message 7" in request["messages"][-1]["content"]
            right = drawn.digest()[0] / 256 < chance if is_held else request["seed"] % 2
            return "refund" if right else "fraud"
        case "comparison":
            cases = [f"case {drawn.digest()[n]}" for n in range(2)]
            texts = [f"When it is about {case}, the answer is refund." for case in cases]
            lessons = [{"reason": "r", "text": text} for text in texts]
            return json.dumps({"right_did": "a", "wrong_did": "b", "lessons": lessons})
        case "controller":
            return json.dumps({"closest": None, "decision": "new", "text": ""})
    return "It answered."


@pytest.mark.parametrize("examples", ["0", "2"])
@pytest.mark.parametrize("trial", ["bundle", "factorial"])
def test_the_attempts_of_a_gate_stay_within_the_upper_estimate(
    cli: Cli, tmp_path: Path, trial: str, examples: str
) -> None:
    write_messages(tmp_path / "train.jsonl", 15, 100)
    write_messages(tmp_path / "gate.jsonl", 8, 700)
    flags = ("--gate", "gate.jsonl", "--gate-trial", trial, "--gate-rule", "above-zero")
    flags += ("--exemplars", examples, "--deploy", "last", "--domain", 'choice:["refund", "fraud"]')
    flags += ("--batch-size", "3", "--group-size", "4", "--epochs", "1", "--run", "r")
    with ScriptedEndpoint(learner) as server:
        asked = ("train", "train.jsonl", "--model", "m", "--base-url", server.base_url, *flags)
        said = json.loads(cli(*asked, "--estimate", "--json").stdout)
        cli(*asked)
    with Store.open(tmp_path / ".tfgrpo" / "store.db") as store:
        spent = [one for one in store.runs.spent() if one.stage == "evaluation"]
        metas = [store.resolve(f"r/step_{n}").meta for n in range(1, 6)]
    gates = [meta["gate"] for meta in metas if "gate" in meta]
    kinds = {gate.get("lessons", gate)["trial"] for gate in gates}
    made = sum(one.usage.calls for one in spent)
    (upper,) = (one["calls"] for one in said["upper"] if one["stage"] == "evaluation")
    assert made <= upper
    assert trial in kinds


@pytest.mark.parametrize(
    ("name", "limits"), [("web", (210_000, 230_000)), ("persona", (70_000, 90_000))]
)
def test_the_calls_of_judges_personas_and_agents_stay_within_a_budget(
    cli: Cli, tmp_path: Path, name: str, limits: tuple[int, int]
) -> None:
    case = CASES[name]
    written(tmp_path, case)
    model = Worst(case.tools, unsolved=False, wordy="web" in case.flags)
    with ScriptedEndpoint(model) as server:
        asked = ("train", "problems.jsonl", "--model", "worst", "--base-url", server.base_url)
        flags = ("--epochs", "1", "--group-size", "2", "--max-tokens", str(MOST), "--run", "r")
        for limit in limits:
            done = cli(*asked, *flags, *case.flags, "--budget", f"{limit}tok", ok=False)
            # Calls that were in flight when the first budget ended may leave groups all alike.
            alike = limit == limits[1] and "learned nothing: in each of 4 groups" in done.stdout
            if not alike:
                one_line_error(done, f"the budget of {limit:,} tokens is reached")
            rows = json.loads(cli("cost", "r", "--json").stdout)["calls"]
            spent = sum(row["prompt_tokens"] + row["completion_tokens"] for row in rows)
            assert limit / 2 < spent <= limit
            assert {"rollout", "judge"} <= {row["stage"] for row in rows}


def test_an_estimate_in_a_folder_without_a_store_leaves_none(cli: Cli, tmp_path: Path) -> None:
    written(tmp_path, CASES["plain"])
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    asked = ("train", "problems.jsonl", "--model", "worst", *OTHERS, "--estimate")
    said = cli(*asked).stdout
    assert "made an empty library" not in said
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert json.loads(cli(*asked, "--json").stdout)["upper"][0]["stage"] == "rollout"
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    with Store.init(tmp_path / ".tfgrpo" / "store.db"):
        pass
    stored = (tmp_path / ".tfgrpo" / "store.db").read_bytes()
    assert cli(*asked).stdout == said
    assert (tmp_path / ".tfgrpo" / "store.db").read_bytes() == stored


def test_json_is_for_an_estimate_alone(cli: Cli, tmp_path: Path) -> None:
    written(tmp_path, CASES["plain"])
    done = cli("train", "problems.jsonl", "--json", ok=False)
    assert done.returncode == 2
    assert "--json needs --estimate" in done.stderr
    assert not (tmp_path / ".tfgrpo").exists()


JUDGED = """
from tfgrpo.domains import Domain, PlannedCalls, Request, Trajectory, Verdict, converse


async def verify(context, trajectory):
    return Verdict(1.0, None, "")


def judgements(problem, trajectory):
    return [Request("judge", (("user", trajectory.response),), 0.0, 50)]


SILENT = Domain(name="silent", verify=verify, rollout=converse)
TELLING = Domain(name="telling", verify=verify, judgements=judgements)
"""


def test_what_a_domain_does_not_say_is_said_to_be_left_out(cli: Cli, tmp_path: Path) -> None:
    written(tmp_path, CASES["plain"])
    (tmp_path / "judged.py").write_text(JUDGED)
    asked = ("train", "problems.jsonl", "--model", "worst", "--epochs", "1", "--max-tokens", "9")
    silent = cli(*asked, "--domain", "judged:SILENT", "--estimate").stdout
    assert "the domain silent may ask a judge" in silent
    assert "the domain silent does not say what an attempt takes" in " ".join(silent.split())
    wide = [line for line in silent.splitlines() if len(line) > 80]
    assert all(line.startswith("about ") for line in wide), "a sentence is wrapped on a terminal"
    telling = cli(*asked, "--domain", "judged:TELLING", "--estimate", "--json").stdout
    found = json.loads(telling)
    assert found["left_out"] == []
    judged = next(one for one in found["upper"] if one["stage"] == "judge")
    assert (judged["calls"], judged["completion_tokens"]) == (4 * 5, 4 * 5 * 50)
    assert judged["prompt_tokens"] == 4 * 5 * (2 * 9 + PER_MESSAGE)


def test_tools_of_mcp_servers_are_said_to_be_left_out(cli: Cli, tmp_path: Path) -> None:
    written(tmp_path, CASES["plain"]._replace(toml='[tools.mcp.files]\ncommand = "no-such"\n'))
    asked = ("train", "problems.jsonl", "--model", "worst", *AGENT, "--estimate", "--json")
    (left_out,) = json.loads(cli(*asked).stdout)["left_out"]
    assert "MCP" in left_out
