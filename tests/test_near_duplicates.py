"""What is like a lesson in the library: pointed out before it enters, by words and by meaning."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, problems
from scripted import Reply, ScriptedEndpoint, opened_calls, stage, teachable
from test_controller import KNOWN, B, decision, lesson, planned, short
from test_reflection import reflection

from tfgrpo.connect import CallLimits, Endpoints
from tfgrpo.model.embeddings import PATIENCE, EmbeddingEndpoint, Embeddings
from tfgrpo.model.endpoint import CallFailed, Endpoint, EndpointError
from tfgrpo.session import Session
from tfgrpo.settings import TrainSettings, build
from tfgrpo.store import Operation, Store, derived_id
from tfgrpo.store.errors import SettingsError
from tfgrpo.store.journal import Journal
from tfgrpo.store.redact import Target, redact
from tfgrpo.training.controller import BatchPlan, Controller
from tfgrpo.training.reflection import StepOrigin

VECTORS = {
    "Carry the ten.": [1.0, 0.0],
    "Check the sign.": [0.0, 2.0],
    "Bring the decade over.": [3.0, 1.0],
    "Look for a minus.": [0.1, 1.0],
}


def embedding(request: dict[str, Any]) -> str | Reply:
    """Embeds by VECTORS, and decides that everything is new."""
    if stage(request) != "embedding":
        return decision(None, "new")
    vector = VECTORS.get(request["input"], [-1.0, -1.0])
    return Reply({"data": [{"embedding": vector}], "usage": {"prompt_tokens": 3}})


def embedded(
    folder: Path, script: Callable[[dict[str, Any]], str | Reply], *texts: str, **more: Any
) -> tuple[BatchPlan, list[dict[str, Any]]]:
    """Plans lessons with embeddings from the same server; returns plan and requests."""
    with ScriptedEndpoint(script) as server, opened_calls(folder, server.base_url) as calls:
        store = folder / "embeddings"
        store.mkdir(exist_ok=True)
        with opened_calls(store, server.base_url, tries=2, **more) as asking:
            asking.endpoint = EmbeddingEndpoint("e", server.base_url, None, 20)

            async def run() -> BatchPlan:
                try:
                    return await Controller(calls, reflection(), Embeddings(asking)).plan(
                        [lesson(text) for text in texts], KNOWN, StepOrigin("run", 3, {})
                    )
                finally:
                    await calls.endpoint.close()
                    await asking.endpoint.close()

            return asyncio.run(run()), server.requests


def shown(requests: Sequence[dict[str, Any]]) -> list[str]:
    return [r["messages"][-1]["content"] for r in requests if stage(r) == "controller"]


def test_a_near_duplicate_in_words_is_pointed_out_to_the_controller(tmp_path: Path) -> None:
    found, requests = planned(tmp_path, [decision("G1", "same")], "Check the signs.")
    assert short(found.operations) == [("KEEP", B, None)]
    assert shown(requests)[0].endswith(
        "New lesson: Check the signs.\n"
        "Alike in the library: G1 (86 % of the words). Only what these do not say yet is new."
    )


def test_where_nothing_is_alike_the_prompt_says_nothing_of_it(tmp_path: Path) -> None:
    _, requests = planned(tmp_path, [decision(None, "new")], "Round down.")
    assert shown(requests)[0].endswith("New lesson: Round down.")


def test_a_near_duplicate_among_the_lessons_of_the_batch_is_pointed_out(tmp_path: Path) -> None:
    answers = [decision(None, "new"), decision("G2", "same")]
    _, requests = planned(tmp_path, answers, "Round down to tens.", "Round down to ten.")
    assert "Alike in the library: G2 (" in shown(requests)[1]


def test_what_is_close_in_meaning_is_pointed_out_where_embeddings_are_configured(
    tmp_path: Path,
) -> None:
    _, requests = embedded(tmp_path, embedding, "Bring the decade over.", "Look for a minus.")
    first, second = shown(requests)
    assert "Alike in the library: G0 (95 % in meaning)." in first
    assert "Alike in the library: G1 (100 % in meaning)." in second
    assert {r["model"] for r in requests if stage(r) == "embedding"} == {"e"}


def test_a_text_is_embedded_once_and_after_a_restart_not_again(tmp_path: Path) -> None:
    texts = ("Bring the decade over.", "Look for a minus.")
    first, requests = embedded(tmp_path, embedding, *texts)
    inputs = [r["input"] for r in requests if stage(r) == "embedding"]
    assert sorted(inputs) == sorted(VECTORS)
    again, requests = embedded(tmp_path, embedding, *texts)
    assert requests == []
    assert again == first


def test_the_embedding_of_a_redacted_text_goes_with_it(tmp_path: Path) -> None:
    texts = ("Bring the decade over.", "Look for a minus.")
    embedded(tmp_path, embedding, *texts)
    with Store.open(tmp_path / "embeddings" / "store.db") as store:
        db = store.port.connection  # type: ignore[attr-defined]
        store.commit("main", [Operation("ADD", text=texts[0])], message="leak")
        redact(store, Target(texts=(texts[0],)), reason="leaked")
        kept = db.execute("select json_extract(answer, '$.content') from journal").fetchall()
    assert sorted(bool(content) for (content,) in kept) == [False, True, True, True]


BAD = [
    Reply({"data": []}),
    Reply({"data": [{"embedding": []}]}),
    Reply({"data": [{"embedding": "x"}]}),
    Reply({"data": [{"embedding": [0, 0]}]}),
    Reply({"data": [{"embedding": [1, "inf"]}]}),
    Reply({"data": [{"embedding": [[1.0, 2.0]]}]}),
    Reply({"error": {"message": "too long"}}, status=400),
]


@pytest.mark.parametrize("bad", BAD, ids=range(len(BAD)))
def test_a_lesson_whose_embedding_fails_goes_on_by_its_words_and_that_is_on_record(
    tmp_path: Path, bad: Reply
) -> None:
    asked, alive, again = threading.Event(), threading.Event(), threading.Event()

    def script(request: dict[str, Any]) -> str | Reply:
        """Two bad answers in a row would open the breaker; a good one comes between them."""
        if request.get("input") == "Carry the tens.":
            if asked.is_set() and not again.is_set():
                again.set()
                assert alive.wait(240)
                time.sleep(1)
            asked.set()
            return bad
        if stage(request) == "embedding":
            assert asked.wait(240)
            time.sleep(0.5)
            alive.set()
        return embedding(request)

    found, requests = embedded(tmp_path, script, "Carry the tens.")
    assert [f.stage for f in found.failures] == ["embedding"]
    assert found.failures[0].problem == "p1"
    assert [o.op for o in found.operations] == ["ADD"]
    assert "G0 (85 % of the words)" in shown(requests)[0]


def test_embeddings_of_two_lengths_are_not_compared(tmp_path: Path) -> None:
    def script(request: dict[str, Any]) -> str | Reply:
        if request.get("input") == "Round down.":
            return Reply({"data": [{"embedding": [1, 2, 3]}]})
        return embedding(request)

    found, _ = embedded(tmp_path, script, "Round down.")
    assert "different lengths" in found.failures[0].reason


def test_a_refused_key_stops_the_run(tmp_path: Path) -> None:
    def script(request: dict[str, Any]) -> str | Reply:
        if stage(request) == "embedding":
            return Reply({"error": {"message": "who are you?"}}, status=401)
        return embedding(request)

    with pytest.raises(EndpointError, match="refused the key"):
        embedded(tmp_path, script, "Round down.")
    assert not issubclass(EndpointError, CallFailed)


def test_an_embedding_model_is_one_at_an_endpoint() -> None:
    with pytest.raises(SettingsError, match="no embeddings"):
        build(TrainSettings, {"data": "d", "embedding_model": "local:qwen2.5-coder-1.5b"})


def test_records_name_the_embedding_model() -> None:
    plain = build(TrainSettings, {"data": "d"}).model_dump(mode="json")
    assert plain["models"]["embedding_model"] is None
    named = build(TrainSettings, {"data": "d", "embedding_model": "e"}).model_dump(mode="json")
    assert named["models"]["embedding_model"] == "e"


def test_a_run_with_an_embedding_model_counts_what_it_costs(cli: Cli, tmp_path: Path) -> None:
    lessons = iter(["Add one to the sum.", "Put a unit on top.", "Sum up and increment."])

    def script(request: dict[str, Any]) -> str | Reply:
        match stage(request):
            case "embedding" | "controller":
                return embedding(request)
            case "comparison":
                row = {"reason": "It is more.", "text": next(lessons, "Add one to the sum.")}
                return json.dumps({"right_did": "", "wrong_did": "", "lessons": [row]})
            case _:
                return teachable(request)

    (tmp_path / "problems.jsonl").write_text(problems(range(8)))
    with ScriptedEndpoint(script) as server:
        (tmp_path / "tfgrpo.toml").write_text(
            f"""
            [model]
            model = "m"
            base_url = "{server.base_url}"
            embedding_model = "e"

            [prices]
            m = {{prompt = 1, completion = 1}}
            e = {{prompt = 1, completion = 0}}
            """
        )
        cli("train", "problems.jsonl", "--epochs", "1", "--batch-size", "8", "--budget", "5.00")
        asked = server.stages["embedding"]
    assert asked >= 3
    costs = json.loads(cli("cost", "--json").stdout)
    (row,) = [row for row in costs["calls"] if row["stage"] == "embedding"]
    assert (row["calls"], row["model"], row["prompt_tokens"]) == (asked, "e", 3 * asked)
    assert costs["total"]["unknown_prices"] == []
    assert "embeddings" in cli("cost", "problems").stdout
    with Store.open(tmp_path / ".tfgrpo" / "store.db") as store:
        assert derived_id(store.runs.get("problems").uid, 0, 0) in store.library().by_id


def test_an_embedding_endpoint_that_is_away_is_given_up_for_words(tmp_path: Path) -> None:
    """The run goes on by words, with a failure on record for each lesson, and asks no more."""
    asked = 0

    def away(request: dict[str, Any]) -> str | Reply:
        nonlocal asked
        if stage(request) != "embedding":
            return decision(None, "new")
        asked += 1
        return Reply(status=503)

    texts = ("Check the signs.", "Bring the decade over.", "Look for a minus.")
    plan, requests = embedded(tmp_path, away, *texts, patience=0.2)
    assert len(plan.operations) == 3
    assert [failure.stage for failure in plan.failures] == ["embedding"] * 3
    assert "given up" in plan.failures[-1].reason
    assert "86 % of the words" in shown(requests)[0]
    assert asked < 20


def test_embeddings_are_not_waited_for_as_long_as_a_model(tmp_path: Path) -> None:
    limits = CallLimits(patience=3600.0)
    model = EmbeddingEndpoint("e", "http://127.0.0.1:9/v1", None, 20)
    policy = Endpoint("m", "http://127.0.0.1:9/v1")
    with Store.init(tmp_path / "s.db") as store:
        journal = Journal(store.port.records.writer())
        session = Session(store, journal, Endpoints(policy, policy, limits, model), None)  # type: ignore[arg-type]
        assert session.calls("embedding", "x", None).throttle.patience == PATIENCE
        assert session.calls("policy", "x", None).throttle.patience == 3600.0
        journal.close()
