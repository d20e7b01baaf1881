"""The base prompt as a candidate: it is written anew, and enters where attempts under it are
better."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli
from desk import Desk, libraries, steps
from desk import made as made_desk
from scripted import Reply, ScriptedEndpoint, comparison_of, stage, write_problems
from store_helpers import fixed

from tfgrpo.domains.verifier import Verifier
from tfgrpo.learn.policies.base_prompt import BasePrompt
from tfgrpo.learn.policies.protocol import Step
from tfgrpo.rendering.render import AGENT_OBJECTIVE
from tfgrpo.store import Store
from tfgrpo.store.activity.decisions import decide

pytestmark = pytest.mark.usefixtures("spoken")

GOOD = "Löse die Aufgabe Schritt für Schritt.\n\nGib das Ergebnis in \\boxed{} an."
BAD = "Answer with a poem."


def scripted(written: Sequence[str], chances: dict[str, float]) -> Callable[[dict[str, Any]], str]:
    """Attempts are right by a coin that the base prompt turns; the model writes some of these."""

    def script(request: dict[str, Any]) -> str:
        user, system = request["messages"][-1]["content"], request["messages"][0]["content"]
        coin = hashlib.sha256(f"{user}/{request.get('seed')}".encode()).digest()
        match stage(request):
            case "objective":
                return json.dumps({"instructions": written[coin[0] % len(written)]})
            case "comparison":
                return json.dumps(comparison_of([]))
            case "summary":
                return "It gave a number."
        a, b = (int(word) for word in user.rstrip("?").split() if word.isdigit())
        chance = next((c for words, c in chances.items() if words in system), 0.3)
        return f"\\boxed{{{a + b + (int.from_bytes(coin[:4], 'big') / 2**32 < chance)}}}"

    return script


@pytest.fixture
def make(tmp_path: Path, verifier: Verifier) -> Callable[..., Desk]:
    values = {"policy": "base-prompt", "count": 16, "batch_size": 8, "group_size": 6, "epochs": 4}
    return partial(made_desk, tmp_path, verifier, examples=False, **values)


def trained(
    desk: Desk, script: Callable[[dict[str, Any]], str | Reply], *first: str
) -> tuple[list[str], ScriptedEndpoint]:
    """Returns the library that a run ends with, and who answered."""
    if first:
        with desk.store() as store:
            store.commit("main", map(fixed, first), message="m")
    desk.prepare()
    with ScriptedEndpoint(script) as server:
        desk.train(server)
    return [text for _, text in libraries(desk.path)[-1]], server


def test_a_base_prompt_under_which_attempts_are_better_enters(make: Callable[..., Desk]) -> None:
    desk = make()
    final, server = trained(desk, scripted([GOOD, BAD], {GOOD: 0.85, BAD: 0.0}))
    assert final == [f"[objective] {GOOD}"]
    with Store.open(desk.path) as store:
        (event,) = [e for v in steps(desk.path) for e in store.events(v) if e.text]
    assert event.op == "ADD"
    evidence = event.evidence or {}
    assert evidence["effect"][1] > 0
    assert evidence["prompts"].keys() == {"objective"}
    asked = [r["messages"] for r in server.requests if stage(r) == "objective"]
    assert AGENT_OBJECTIVE in asked[0][-1]["content"]
    assert "Right answer: " in asked[0][-1]["content"]
    assert "right, answer" in asked[0][-1]["content"]
    assert "wrong, answer" in asked[0][-1]["content"]
    assert any(GOOD in messages[-1]["content"] for messages in asked[1:]), "once it is in force"


def test_a_base_prompt_under_which_they_are_worse_never_does(make: Callable[..., Desk]) -> None:
    desk = make()
    final, _ = trained(desk, scripted([BAD], {BAD: 0.0}))
    assert final == []
    with Store.open(desk.path) as store:
        assert not any(
            "[objective]" in (e.text or "") for v in store.log("main") for e in store.events(v)
        )
        pool = [e for v in store.log("run/candidates") for e in store.events(v)]
    assert {e.op for e in pool} >= {"ADD", "DELETE"}


def test_words_that_are_in_force_are_changed_in_their_place(make: Callable[..., Desk]) -> None:
    words = "Rechne und gib das Ergebnis in \\boxed{} an."
    desk = make()
    script = scripted([GOOD], {GOOD: 0.95, words: 0.55})
    final, _ = trained(desk, script, f"[objective] {words}")
    assert final == [f"[objective] {GOOD}"]
    with Store.open(desk.path) as store:
        (before,), (after,) = store.library("run/step_0"), store.library("main")
    assert before.id == after.id


def test_a_run_that_was_cut_off_goes_on_to_the_same_base_prompt(
    make: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = scripted([GOOD, BAD], {GOOD: 0.85, BAD: 0.0})
    whole, cut = (make(name=name, epochs=3) for name in ("whole", "cut"))
    _, server = trained(whole, script)
    ask = BasePrompt._ask

    class CutOff(Exception):
        pass

    async def dies(self: BasePrompt, step: Step, about: Any, one: Any) -> Any:
        answer = await ask(self, step, about, one)
        if one.draw and step.number == 0:
            raise CutOff
        return answer

    monkeypatch.setattr(BasePrompt, "_ask", dies)
    with pytest.raises(CutOff):
        trained(cut, script)
    monkeypatch.undo()
    with ScriptedEndpoint(script) as rest:
        cut.train(rest)
    assert libraries(whole.path) == libraries(cut.path)
    assert rest.stages["objective"] < server.stages["objective"], "what was answered is not asked"
    with Store.open(whole.path) as one, Store.open(cut.path) as other:
        assert one.library("run/candidates") == other.library("run/candidates")


def test_no_other_policy_asks_for_a_base_prompt(make: Callable[..., Desk]) -> None:
    for policy in ("probation", "paper"):
        desk = make(policy=policy, name=policy, epochs=2)
        _, server = trained(desk, scripted([GOOD], {GOOD: 0.85}))
        assert not server.stages["objective"]


def test_what_a_person_turned_down_or_is_there_is_no_candidate(make: Callable[..., Desk]) -> None:
    desk = make(epochs=2)
    with desk.store() as store:
        decide(store, "proposal", "p1", {"base": store.tip("main").digest.hex()})
        change = {"before": None, "after": f"[objective] {GOOD}"}
        decide(store, "proposal", "p1", {"changes": [change]})
    final, _ = trained(desk, scripted([GOOD, AGENT_OBJECTIVE], {GOOD: 0.85}))
    assert final == []
    with Store.open(desk.path) as store:
        assert "run/candidates" not in store.branches()
    reasons = {one["reason"] for v in steps(desk.path) for one in v.meta.get("refused", ())}
    assert reasons == {"a person has turned it down"}


def test_an_estimate_has_its_calls(cli: Cli, tmp_path: Path) -> None:
    write_problems(tmp_path / "problems.jsonl", 16)
    sizes = ("--model", "m", "--base-url", "http://127.0.0.1:9/v1", "--batch-size", "8")

    def calls(policy: str) -> float:
        shown = cli("train", "problems.jsonl", *sizes, "--policy", policy, "--estimate", "--json")
        stages = json.loads(shown.stdout)["expected"]
        return float(sum(one["calls"] for one in stages if one["stage"] == "comparison"))

    assert calls("base-prompt") >= calls("probation") + 2 * 4
