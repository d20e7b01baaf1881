"""`tfgrpo collect`: what went wrong in production, or elsewhere, becomes problems to learn from."""

from __future__ import annotations

import codecs
import json
import re
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import TFGRPO, environment
from providers import Provider, ProxyThread, post
from proxy_fixtures import Choice, answer, make
from scripted import Reply, ScriptedEndpoint
from test_proxy import CHAT
from waiting import until

from tfgrpo.cli.main import tfgrpo
from tfgrpo.data import datasets
from tfgrpo.data.compressed_files import DatasetError
from tfgrpo.improvement.collection import read_collected
from tfgrpo.proxy.proxy_settings import ProxySettings, parse_upstream
from tfgrpo.redaction import redact_everywhere
from tfgrpo.store import Operation, Store, TfgrpoError, atomic_write, process_lock
from tfgrpo.store.activity.traffic import (
    CallContent,
    CallRecord,
    Feedback,
    FeedbackRefused,
    checked_feedback,
    traffic_path,
)
from tfgrpo.store.address import project_root
from tfgrpo.store.opening import open_traffic
from tfgrpo.store.redact import Target

SAID = b'{"choices":[{"message":{"role":"assistant","content":"35 euros"}}]}'
BLANK = CallRecord(*[None] * len(CallRecord._fields))._replace(
    worker="w", route=CHAT, status=200, streamed=0, latency=1, added=0, stale=0
)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.chdir(tmp_path)
    with make(tmp_path / ".tfgrpo/store.db", "Count both days.") as made:
        yield made


def run(*arguments: str) -> str:
    done = CliRunner().invoke(tfgrpo, ["--no-pager", "collect", *arguments])
    if isinstance(done.exception, TfgrpoError):
        raise done.exception
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


def collect(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("--json", "--since", "2000-01-01", *arguments))
    return found


def problems(*arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = collect(*arguments)["problems"]
    return found


def record(
    store: Store,
    id: str,
    question: Any,
    said: str = "35 euros",
    arm: str | None = None,
    **more: Any,
) -> None:
    """Records a call with its words and, where any is given, feedback on it."""
    body = question if isinstance(question, dict) else {"messages": _turns(question)}
    reply = json.dumps({"choices": [{"message": {"content": said}}]})
    with closing(open_traffic(traffic_path(store.path), create=True)) as traffic:
        now = store.now()
        digest = more.pop("digest", "d1")
        call = BLANK._replace(id=id, time=now, digest=digest, version="v1", arm=arm, model="m")
        traffic.add([call], [CallContent(id, json.dumps(body), reply)])
        if more:
            traffic.add_feedback(Feedback(id, now, more.pop("author", "me"), **more))


def _turns(question: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": question}]


def test_a_corrected_answer_on_the_wire_becomes_a_problem_once(
    store: Store, tmp_path: Path
) -> None:
    with Provider(answer(SAID)) as provider:
        upstream = parse_upstream(provider.url)
        settings = ProxySettings({"s": Choice(store.path)}, "s", upstream, upstream, port=0)
        with ProxyThread(replace(settings, record="content")) as proxy:
            turns = [{"role": "system", "content": "You do bills. Ask ann@sund.example."}]
            turns += [{"role": "user", "content": "5 to 12 June at 5 euros?"}]
            body = json.dumps({"model": "m", "messages": turns}).encode()
            got = proxy.ask(post(CHAT, body, b"Authorization: Bearer k"))
            call = re.search(rb"X-Tfgrpo-Call: (\S+)", got)[1].decode()  # type: ignore[index]
            said = json.dumps({"call": call, "score": False, "correct": "40 euros"}).encode()
            assert b" 201 " in proxy.ask(post("/feedback", said, b"Authorization: Bearer k"))
    assert "appended 1 problem" in run()
    (row,) = map(json.loads, (tmp_path / "collected.jsonl").read_text().splitlines())
    saved_by_an_editor = tmp_path / "saved.jsonl"
    saved_by_an_editor.write_bytes(codecs.BOM_UTF8 + (tmp_path / "collected.jsonl").read_bytes())
    assert read_collected(saved_by_an_editor) == [row]
    assert row["id"] == row["from"]["call"] == call
    assert row["answer"] == "40 euros"
    assert row["from"]["because"] == ["corrected", "low score"]
    assert row["from"]["said"] == "35 euros"
    assert row["from"]["version"] == "v1"
    assert datetime.fromisoformat(row["from"]["time"]).tzinfo is not None
    assert row["problem"] == [
        {"role": "system", "content": "You do bills. Ask [redacted]."},
        {"role": "user", "content": "5 to 12 June at 5 euros?"},
    ], "the library is not in it"
    (problem,) = datasets.load("collected.jsonl")
    assert problem.answer == "40 euros"
    assert [role for role, _ in problem.messages] == ["system", "user"]
    assert "nothing new" in run()
    assert len((tmp_path / "collected.jsonl").read_text().splitlines()) == 1
    (tmp_path / "other.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(DatasetError, match="not UTF-8"):
        collect("-o", "other.jsonl")


def test_only_what_went_wrong_is_collected_and_the_rest_is_counted(store: Store) -> None:
    record(store, "call-fine", "What is 1 op 2?")
    record(store, "call-good", "What is 2 op 3?", score=1.0)
    record(store, "call-low", "What is 3 op 4?", score=0.2)
    record(store, "call-confirmed", "What is 4 op 5?", "ten", correct="Ten")
    record(store, "call-fixed", "What is 5 op 6?", score=0.2, correct="12")
    found = collect()
    assert [row["id"] for row in found["problems"]] == ["call-fixed"]
    why = {one["where"]: one["why"] for one in found["left_out"]}
    assert why["call-low"] == "no corrected answer"
    assert why["call-fine"] == why["call-good"] == why["call-confirmed"]
    rows = problems("--unanswered", "-o", "other.jsonl")
    assert [row["id"] for row in rows] == ["call-low", "call-fixed"]
    assert "answer" not in rows[0]
    assert problems("--below", "0.1", "--by", "me", "-o", "third.jsonl")[0]["from"]["because"] == [
        "corrected"
    ]
    assert "left out 1: no corrected answer; `tfgrpo feedback CALL" in run("-o", "4.jsonl")


def test_a_judges_scores_alone_can_be_the_bar(store: Store) -> None:
    record(store, "call-a", "What is 5 op 6?", "11", score=1.0)
    record(store, "call-b", "What is 5 op 6?", "12", score=0.0, author="judge rubric")
    assert problems("--by", "judge rubric", "--unanswered", "--dry-run")[0]["from"]["because"] == [
        "low score"
    ]
    assert problems("--by", "someone", "--unanswered", "--dry-run") == []
    (row,) = problems()
    assert row["answer"] == "11", "the answer of the other call, which was scored right"


RUBRIC = """
[[criteria]]
name = "signed"
ends_with = "The Sund team"

[[criteria]]
name = "kind"
question = "Is it kind?"

[[criteria]]
name = "short"
question = "Is it short?"
"""


def test_a_rubric_scores_each_call_once_and_its_failures_are_taken(
    store: Store, tmp_path: Path
) -> None:
    (tmp_path / "style.toml").write_text(RUBRIC)
    record(store, "call-a", "When do you open?", "At nine. The Sund team", score=0.0)
    record(store, "call-b", "Where are you?", "Look it up.")

    def kind(request: dict[str, Any]) -> str:
        said = "no" if "Look it up" in str(request["messages"]) else "yes"
        return json.dumps({"why": "so", "verdict": said})

    with ScriptedEndpoint(kind) as endpoint:
        judge = ("--judge", "rubric:style.toml", "--model", "m", "--base-url", endpoint.base_url)
        planned = json.loads(run(*judge, "--estimate", "--json"))
        assert [(one["stage"], one["calls"]) for one in planned["expected"]] == [("judge", 4)]
        assert not endpoint.requests
        for more, why in ((("--dry-run",), "--estimate"), (("style.toml",), "FILES")):
            refused = CliRunner().invoke(tfgrpo, ["collect", *judge, *more])
            assert (refused.exit_code, why in refused.output) == (2, True), refused.output
        assert not endpoint.requests
        said = run(*judge)
        assert "rubric:style.toml scored 2 calls" in said
        asked = len(endpoint.requests)
        assert asked == 4
        said = run(*judge)
        assert "scored 0 calls" in said
        assert len(endpoint.requests) == asked
    (row,) = map(json.loads, (tmp_path / "collected.jsonl").read_text().splitlines())
    assert (row["id"], row["from"]["because"]) == ("call-b", ["low score"])
    assert "signed" in row["from"]["comment"]
    assert "answer" not in row
    with closing(open_traffic(traffic_path(store.path))) as traffic:
        scores = [(one.author, one.score) for one in traffic.feedback("call-a")]
    assert scores == [("me", 0.0), ("judge rubric:style.toml", 1.0)]
    with pytest.raises(TfgrpoError, match="right answer"):
        run("--judge", "math")


KINDNESS = """
from tfgrpo.domains.base import Domain, Verdict

async def verify(context, trajectory):
    return Verdict(0.0, None, "so " * 150 + "rude to " + trajectory.response)

kindness = Domain(name="kindness", verify=verify, ground_truth=False)
"""


def test_a_judges_reason_loses_what_the_proxys_file_and_the_options_take_out(
    store: Store, tmp_path: Path
) -> None:
    (tmp_path / "judging_kindness.py").write_text(KINDNESS)
    (tmp_path / "proxy.toml").write_text('redact = ["Jane (Mary )+Doe", "Sund\\\\d+"]\n')
    long = f"Jane {'Mary ' * 30}Doe"
    record(store, "call-a", "When do you open?", f"Sund4711, Kim and {long}")
    judge = ("--judge", "judging_kindness:kindness", "--model", "m", "--base-url", "http://[::1]:9")
    with pytest.raises(TfgrpoError, match="Kim"):
        run(*judge, "--redact", "Kim(")
    with closing(open_traffic(traffic_path(store.path))) as traffic:
        assert not traffic.feedback("call-a"), "nobody judges what cannot be recorded"
        run(*judge, "--redact", "Kim")
        (given,) = traffic.feedback("call-a")
    assert given.comment is not None
    assert given.comment.endswith("rude to [redacted], [redacted] and [redacted]")


def test_two_at_once_judge_no_call_twice(store: Store, tmp_path: Path) -> None:
    (tmp_path / "style.toml").write_text(RUBRIC)
    record(store, "call-a", "When do you open?", "At nine.")
    begun, ended = threading.Event(), threading.Event()

    def slow(_: dict[str, Any]) -> str:
        begun.set()
        assert ended.wait(60)
        return json.dumps({"why": "so", "verdict": "yes"})

    with ScriptedEndpoint(slow) as endpoint:
        judge = ("--judge", "rubric:style.toml", "--model", "m", "--base-url", endpoint.base_url)
        command = (TFGRPO, "collect", *judge)
        first = subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL)
        try:
            assert begun.wait(60)
            with pytest.raises(TfgrpoError, match="another process"):
                run(*judge)
        finally:
            ended.set()
            assert first.wait(60) == 0
        assert "scored 0 calls" in run(*judge)
        assert len(endpoint.requests) == 2, "one for each criterion that asks"


@pytest.mark.parametrize("is_late", [True, False])
def test_a_redaction_and_a_collection_at_once_undo_nothing(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    """One of the two is held up before it writes; the other one waits for it."""
    file = tmp_path / "collected.jsonl"
    file.write_text(
        json.dumps({"id": "1", "problem": "Does Ann Smith pay?", "answer": "no"}) + "\n"
    )
    record(store, "call-a", "What is 5 op 6?", "12", score=0.0, correct="11")
    store.commit("main", [Operation("ADD", text="Ann Smith pays late.")], message="by hand")
    at, go, waits = threading.Event(), threading.Event(), threading.Event()
    write, held = atomic_write.write, process_lock.held

    def noted(path: Path, **more: Any) -> Any:
        if at.is_set() and path.name.startswith("alone-"):
            waits.set()
        return held(path, **more)

    def held_up(path: Path, *content: Any, **more: Any) -> None:
        if Path(path).name == file.name and not at.is_set():
            at.set()
            assert go.wait(60)
        write(path, *content, **more)

    def redact() -> None:
        with Store.open(store.path) as own:
            redact_everywhere(own, Target(texts=("Ann Smith",)), reason="a name")

    both = [redact, lambda: run("--since", "2000-01-01")]
    first, second = both if is_late else both[::-1]
    monkeypatch.setattr(atomic_write, "write", held_up)
    monkeypatch.setattr(process_lock, "held", noted)
    with ThreadPoolExecutor() as pool:
        one = pool.submit(first)
        assert at.wait(60)
        other = pool.submit(second)
        until(lambda: waits.is_set() or other.done())
        go.set()
        one.result()
        other.result()
    text = file.read_text()
    assert "Ann Smith" not in text
    assert "5 op 6" in text


def test_a_file_of_the_proxy_above_takes_words_out_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "agents" / "support"
    folder.mkdir(parents=True)
    body = {"messages": [{"role": "user", "content": "Does Zaphod pay Trillian?"}]}
    row = {"custom_id": "ann@example.com", "model": "m", "body": body, "score": 0, "correct": "no"}
    row |= {"response": {"body": {"choices": [{"message": {"content": "yes"}}]}}}
    (folder / "in.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "proxy.toml").write_text('redact = ["Zaphod\\\\w*"]\n')
    (tmp_path / "agents" / "proxy.toml").write_text('redact = "Trillian"\n')
    monkeypatch.chdir(folder)
    Store.init(folder).close()
    (found,) = problems("in.jsonl", "--dry-run")
    assert found["problem"] == "Does [redacted] pay [redacted]?"
    assert "ann@example.com" not in json.dumps(found), "ids from elsewhere are words too"


@pytest.mark.parametrize("option", ["--model", "--base-url", "--api-key-env", "--budget"])
def test_options_of_the_judge_need_one(store: Store, option: str) -> None:
    refused = CliRunner().invoke(tfgrpo, ["collect", option, "1.00"])
    assert (refused.exit_code, f"{option} needs --judge" in refused.output) == (2, True)


def test_what_a_judge_cannot_do_is_told(store: Store, tmp_path: Path) -> None:
    (tmp_path / "style.toml").write_text(RUBRIC)
    record(store, "call-a", "When do you open?", "At nine.")

    def plain(request: dict[str, Any]) -> str | Reply:
        if "seed" in request:
            error = {"message": "Unsupported parameter: 'seed'", "param": "seed"}
            return Reply({"error": error}, status=400)
        return json.dumps({"why": "so", "verdict": "yes"})

    with ScriptedEndpoint(plain) as endpoint:
        said = run("--judge", "rubric:style.toml", "--model", "m", "--base-url", endpoint.base_url)
        assert "does not take seed: left out" in said
        assert "scored 1 call" in said
        record(store, "call-b", "Where are you?", "In Sund.")
        words = ("--judge", "rubric:style.toml", "--model", "m", "--base-url", endpoint.base_url)
        done = CliRunner().invoke(tfgrpo, ["collect", "--json", *words])
    assert json.loads(done.stdout)["problems"] == [], "warnings are beside it"
    assert "left out" in done.stderr


def test_arms_that_disagree_are_a_problem_where_one_was_right(store: Store) -> None:
    record(store, "call-a", "What is 5 op 6?", "12", "control", score=1.0)
    record(store, "call-b", "what is  5 op 6?", "11", "candidate")
    record(store, "call-c", "What is 6 op 7?", "14", "control")
    record(store, "call-d", "What is 6 op 7?", "14 ", "candidate")
    record(store, "call-e", "Say hello.", "Hello!", "control", score=1.0)
    record(store, "call-f", "Say hello.", "Good day!", "candidate", score=1.0)
    record(store, "call-g", "Say thanks.", "Thanks!", score=1.0)
    record(store, "call-h", "Say thanks.", "Thank you!", score=1.0, digest="of a later version")
    (row,) = problems("--unanswered")
    assert row["from"]["because"] == ["arms disagree"]
    assert row["answer"] == "12"
    assert row["from"]["calls"] == ["call-a", "call-b"]


def test_nothing_of_a_held_out_or_sealed_set_is_ever_collected(
    store: Store, tmp_path: Path
) -> None:
    sets = {
        "heldout": "A room costs 40 euros a night. What do 3 nights cost at the inn by the sea?",
        "sealed": "A boat leaves at 9 and takes 55 minutes. When is it there?",
        "gate": "How many days are 5 to 12 June?",
        "more": "What is the fare for two adults?",
    }
    for name, text in sets.items():
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"problem": text, "answer": "1"}))
    (tmp_path / "tfgrpo.toml").write_text(
        '[train]\nheldout = "heldout.jsonl"\nsealed = "sealed.jsonl"\ngate = "gate.jsonl"\n'
    )
    near = sets["heldout"].replace("at the inn", "in the inn")
    system = {"role": "system", "content": "You work for the inn, with many rules. " * 20}
    for number, text in enumerate([*sets.values(), near, "What is 5 op 6?"]):
        turns = {"messages": [system, *_turns(text)]}
        record(store, f"call-{number}", turns, correct="160 euros")
    found = collect("--heldout", "more.jsonl", "--no-system")
    assert [row["problem"] for row in found["problems"]] == ["What is 5 op 6?"]
    assert {one["why"] for one in found["left_out"]} == {"in a held-out, gate or sealed set"}
    assert len(found["left_out"]) == 5
    (tmp_path / "sealed.jsonl").unlink()
    with pytest.raises(TfgrpoError, match="sealed"):
        run()


def test_examples_that_every_conversation_begins_with_are_the_applications_own(
    store: Store, tmp_path: Path
) -> None:
    examples = [
        {"role": "system", "content": "You work for the inn."},
        {"role": "user", "content": f"What do 2 rooms cost, at 7 euros? {'Be brief. ' * 40}"},
        {"role": "assistant", "content": "2 * 7 = 14"},
    ]
    asked = ["What is 5 op 6?", "What is 3 op 4?", "Where is the inn?"]

    def call(number: int) -> None:
        turns = {"messages": [*examples, *_turns(asked[number])]}
        record(store, f"call-{number}", turns, correct="11")

    for number in range(2):
        call(number)
    (row, _) = collect("--no-system", "--dry-run")["problems"]
    assert [turn["role"] for turn in row["problem"]] == ["user", "assistant", "user"]
    call(2)
    held = json.dumps({"problem": asked[2], "answer": "1"})
    (tmp_path / "held.jsonl").write_text(held)
    found = collect("--no-system", "--heldout", "held.jsonl", "--dry-run")
    assert [row["problem"] for row in found["problems"]] == asked[:2]
    assert [row["problem"] for row in problems("--dry-run")] == [
        [*examples, *_turns(text)] for text in asked
    ]


def test_what_a_run_was_judged_by_is_kept_out_too(store: Store, tmp_path: Path) -> None:
    rows = json.dumps({"problem": "What is 5 op 6?", "answer": "12"})
    (tmp_path / "old.jsonl").write_text(rows)
    config = {"data": "x.jsonl", "gate": "old.jsonl", "domain": "math"}
    run_ = store.runs.prepare("old", "u" * 32, "main", 1, config, "me")
    store.runs.append(run_)
    record(store, "call-a", "What is 5 op 6?", correct="12")
    record(store, "call-b", "What is 6 op 7?", correct="14")
    found = collect("--dry-run")
    assert [row["id"] for row in found["problems"]] == ["call-b"]
    (tmp_path / "old.jsonl").unlink()
    found = collect("--dry-run")
    assert "old.jsonl" in found["warnings"][0]


def test_texts_are_redacted_and_an_answer_that_loses_some_is_no_truth(store: Store) -> None:
    (project_root(store.path) / "proxy.toml").write_text('redact = ["(?i)mr bo"]')
    asked = "Mail zoe@sund.example about 4711, Mr Bo"
    record(store, "call-a", asked, correct="done", comment="b@c.de!")
    record(store, "call-b", "Whom do I mail?", correct="zoe@sund.example")
    found = collect("--redact", "4711")
    (row,) = found["problems"]
    assert row["problem"] == "Mail [redacted] about [redacted], [redacted]"
    assert row["from"]["comment"] == "[redacted]!"
    assert found["left_out"] == [{"where": "call-b", "why": "its answer holds what is redacted"}]
    with pytest.raises(TfgrpoError, match="redact"):
        run("--redact", "(")


REQUESTS = {
    "responses": {
        "instructions": "Be brief.",
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "5 op 6?"}]}],
    },
    "responses text": {"input": "5 op 6?", "instructions": "Be brief."},
    "messages": {
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "5 op 6?"}]}],
    },
    "developer": {"messages": [{"role": "developer", "content": "Be brief."}, *_turns("5 op 6?")]},
}


@pytest.mark.parametrize("name", REQUESTS)
def test_requests_of_every_route_are_read(name: str, store: Store) -> None:
    record(store, "call-a", REQUESTS[name], correct="12")
    (row,) = problems()
    assert [turn["content"] for turn in row["problem"]] == ["Be brief.", "5 op 6?"]


def test_what_cannot_be_asked_again_is_named(store: Store) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:"}}
    record(store, "call-a", {"messages": [{"role": "user", "content": [image]}]}, correct="x")
    tool = {"role": "assistant", "tool_calls": [{"id": "1"}], "content": None}
    record(store, "call-b", {"messages": [*_turns("hi"), tool]}, correct="x")
    record(store, "call-c", {"input": "go on", "previous_response_id": "r"}, correct="x")
    with closing(open_traffic(traffic_path(store.path))) as traffic:
        traffic.add([BLANK._replace(id="call-d", time=store.now())], [])
        cut = CallContent("call-e", '{"messages":[{"ro', "{}")
        traffic.add([BLANK._replace(id="call-e", time=store.now())], [cut])
        for id in ("call-d", "call-e"):
            traffic.add_feedback(Feedback(id, store.now(), "me", 0.0))
    found = {one["where"]: one["why"] for one in collect()["unread"]}
    assert "image_url" in found["call-a"]
    assert "tools" in found["call-b"]
    assert "earlier" in found["call-c"]
    assert "--record content" in found["call-d"]
    assert "too long" in found["call-e"]
    assert "cannot use call-d: its words were not kept" in run()


def test_without_a_record_there_is_a_hint(store: Store) -> None:
    with pytest.raises(TfgrpoError, match="no traffic is on record") as told:
        run()
    assert "tfgrpo proxy" in (told.value.hint or "")


# files from elsewhere, in shapes as those programs write them:


def _attribute(key: str, value: object) -> dict[str, Any]:
    return {"key": key, "value": _wrapped(value)}


def _wrapped(value: object) -> dict[str, Any]:
    if isinstance(value, dict):
        return {"kvlistValue": {"values": [_attribute(k, v) for k, v in value.items()]}}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_wrapped(one) for one in value]}}
    kinds = {bool: "boolValue", int: "intValue", float: "doubleValue"}
    kind = kinds.get(type(value), "stringValue")
    return {kind: str(value) if kind == "intValue" else value}


def _span(id: str, *events: dict[str, Any], **attributes: object) -> dict[str, Any]:
    found = {name.replace("__", "."): value for name, value in attributes.items()}
    return {
        "traceId": "5b8efff798038103d269b633813fc60c",
        "spanId": id,
        "name": "chat m",
        "kind": 3,
        "attributes": [_attribute(k, v) for k, v in found.items()],
        "events": list(events),
    }


def _batch(*spans: dict[str, Any], **more: Any) -> dict[str, Any]:
    resource = {"attributes": [_attribute("service.name", "shop")]}
    scope = {"scope": {"name": "genai"}, "spans": list(spans)}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}], **more}


def _parts(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


EVALUATED = {
    "name": "gen_ai.evaluation.result",
    "attributes": [
        _attribute("gen_ai.evaluation.name", "correctness"),
        _attribute("gen_ai.evaluation.score.label", "fail"),
        _attribute("gen_ai.evaluation.explanation", "one day short"),
    ],
}


def write(path: Path, *rows: object) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_otlp_spans_with_genai_messages_are_read(store: Store, tmp_path: Path) -> None:
    question = [_parts("user", "5 to 12 June?")]
    spans = [
        _span(  # messages as structures, judged by an event of the span
            "a1",
            EVALUATED,
            gen_ai__request__model="m",
            gen_ai__input__messages=question,
            gen_ai__output__messages=[{**_parts("assistant", "7 days"), "finish_reason": "stop"}],
            gen_ai__system_instructions=[{"type": "text", "content": "Be brief."}],
            tfgrpo__correct="8 days",
        ),
        _span("a2", name="execute_tool"),
        _span(  # as JSON in strings, with a log of the same span
            "a3",
            gen_ai__input__messages=json.dumps([_parts("user", "1 to 3 May?")]),
            gen_ai__output__messages=json.dumps([_parts("assistant", "2 days")]),
            langfuse__experiment__item__expected_output="3 days",
        ),
        _span(  # what Langfuse's own clients write
            "a4",
            langfuse__observation__input=json.dumps(
                [{"role": "system", "content": "Be brief."}, *_turns("2 to 4 July?")]
            ),
            langfuse__observation__output=json.dumps({"role": "assistant", "content": "2 days"}),
            langfuse__observation__metadata__expected_output='"3 days in all"',
        ),
        _span("a5", gen_ai__input__messages=[{"role": "user", "parts": [{"type": "blob"}]}]),
    ]
    log = {
        "traceId": "5b8efff798038103d269b633813fc60c",
        "spanId": "a3",
        "eventName": "gen_ai.evaluation.result",
        "attributes": [_attribute("gen_ai.evaluation.score.value", 0)],
    }
    logs = {"resourceLogs": [{"scopeLogs": [{"logRecords": [log]}]}]}
    file = write(tmp_path / "spans.jsonl", _batch(*spans[:2]), _batch(*spans[2:]), logs)
    found = collect(file)
    first, second, third = found["problems"]
    assert first["answer"] == "8 days"
    assert [turn["role"] for turn in first["problem"]] == ["system", "user"]
    assert first["from"]["comment"] == "one day short"
    assert first["from"]["because"] == ["corrected", "low score"]
    assert (first["from"]["trace"], first["from"]["span"]) == (spans[0]["traceId"], "a1")
    assert (second["problem"], second["answer"]) == ("1 to 3 May?", "3 days")
    assert second["from"]["because"] == ["corrected", "low score"]
    assert third["answer"] == "3 days in all"
    (unread,) = found["unread"]
    assert unread["where"] == f"{file}:2 span a5"
    whole = tmp_path / "whole.json"
    whole.write_text(json.dumps(_batch(*spans), indent=2))
    assert len(problems(str(whole), "--dry-run", "-o", "n.jsonl")) == 3


def test_openai_files_of_each_kind_are_read_and_garbage_is_named(
    store: Store, tmp_path: Path
) -> None:
    done = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "11"}}]}
    rows: list[Any] = [
        {"messages": [*_turns("1 op 2?"), {"role": "assistant", "content": "4"}]},
        {
            "messages": [*_turns("2 op 3?"), {"role": "assistant", "content": "5"}],
            "metadata": {"score": "0", "correct": "6"},
        },
        {
            "custom_id": "request-3",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {"model": "m", "messages": _turns("3 op 4?")},
            "response": {"status_code": 200, "body": done},
            "correct": "8",
        },
        {
            "input": {"messages": _turns("4 op 5?"), "tools": []},
            "preferred_output": [{"role": "assistant", "content": "10"}],
            "non_preferred_output": [{"role": "assistant", "content": "9"}],
        },
        {
            "id": "chatcmpl-5",
            "object": "chat.completion",
            "model": "gpt-5-mini",
            "metadata": {"score": "false", "expected": "12"},
            "messages": {"object": "list", "data": _turns("5 op 6?")},
            **done,
        },
        {
            "id": "outputitem_6",
            "object": "eval.run.output_item",
            "status": "fail",
            "datasource_item": {"item": {"question": "6 op 7?", "ground_truth": "14"}},
            "results": [{"name": "equals", "passed": False, "score": 0.0}],
            "sample": {
                "input": _turns("6 op 7?"),
                "output": [{"role": "assistant", "content": "13"}],
            },
        },
        {
            "object": "eval.run.output_item",
            "datasource_item": {"question": "7 op 8?", "ground_truth": "16"},
            "results": [{"name": "equals", "passed": True, "score": 1.0}],
            "sample": {"output": [{"role": "assistant", "content": "16"}]},
        },
        {"object": "chat.completion", "id": "chatcmpl-8", **done},
        {"surprise": 1},
        ["a list"],
    ]
    file = Path(write(tmp_path / "mixed.jsonl", *rows))
    file.write_text(file.read_text() + "{half a line\n\n")
    found = collect(str(file))
    assert [row["answer"] for row in found["problems"]] == ["4", "6", "8", "10", "12", "14"]
    because = [row["from"]["because"] for row in found["problems"]]
    assert because[0] == ["corrected"]
    assert because[1] == because[5] == ["corrected", "low score"]
    assert found["problems"][5]["from"]["comment"] == "failed equals"
    assert found["problems"][4]["id"] == "chatcmpl-5"
    assert found["problems"][0]["from"]["file"] == f"{file}:1"
    assert [one["why"] for one in found["left_out"]] == ["nothing is known against it"]
    unread = {one["where"]: one["why"] for one in found["unread"]}
    assert list(unread) == [f"{file}:{n}" for n in (8, 9, 10, 11)]
    assert "without the messages" in unread[f"{file}:8"]
    assert "not JSON" in unread[f"{file}:11"]
    page = tmp_path / "page.json"
    page.write_text(json.dumps({"object": "list", "data": rows[5:7], "has_more": False}))
    assert len(problems(str(page), "--dry-run", "-o", "n.jsonl")) == 1
    assert datasets.load("collected.jsonl")


HALF = "How much is \ud83d for me?"


def test_half_a_character_does_not_keep_the_others_from_being_collected(
    store: Store, tmp_path: Path
) -> None:
    """Programs that cut strings in the middle send it, and JSON can name it."""
    record(store, "call-a", HALF, said="35 \ud83d", correct="40 euros")
    record(store, "call-b", "And 3 days?", correct="15 euros")
    found = problems()
    assert [row["problem"] for row in found] == ["How much is \ufffd for me?", "And 3 days?"]
    assert found[0]["from"]["said"] == "35 \ufffd"
    rows = [
        {"messages": _turns(HALF), "correct": "x\udc00", "id": "1\ud83d", "comment": "\ud83d"},
        _batch(_span("a1", gen_ai__input__messages=json.dumps([_parts("user", HALF)]))),
    ]
    for number, row in enumerate(rows):
        collect(write(tmp_path / f"{number}.jsonl", row), "-o", f"{number}-out.jsonl")
    assert "x\ufffd" in (tmp_path / "0-out.jsonl").read_text()


def test_scores_that_no_sum_takes_are_refused_or_named(store: Store, tmp_path: Path) -> None:
    for score in (1e308, 10**400, float("nan"), float("inf")):
        with pytest.raises(FeedbackRefused, match="at most 1,000,000,000"):
            checked_feedback("call-a", {"score": score}, author="me", time=0, scales={})
    huge = {
        "name": "gen_ai.evaluation.result",
        "attributes": [_attribute("gen_ai.evaluation.score.value", 1e308)],
    }
    odd = _span("a3", gen_ai__input__messages=[_parts("user", "Three?")])
    odd["attributes"] += [
        {"key": "n", "value": {"intValue": "abc"}},
        {"key": "l", "value": {"arrayValue": [1]}},
        {"key": "k", "value": {"kvlistValue": {"values": [{"key": "x", "value": 3}]}}},
    ]
    asking = _span("a2", huge, huge, gen_ai__input__messages=[_parts("user", "Two?")])
    result = {"name": "g", "passed": True, "score": 1e308}
    item = {"datasource_item": {"question": "One?", "ground_truth": "1"}, "results": [result] * 2}
    file = write(tmp_path / "odd.jsonl", item, _batch(asking, odd), {"messages": 3, "score": "x"})
    found = collect(file)
    assert [one["why"] for one in found["unread"]][::2] == [
        "one of its scores is not a number, or is far too large"
    ] * 2
    assert found["problems"] == []


def test_two_that_collect_into_one_file_lose_nothing(store: Store, tmp_path: Path) -> None:
    for name in "abcd":
        rows = [{"messages": _turns(f"{name} {n * 7919}?"), "correct": f"{n}"} for n in range(60)]
        write(tmp_path / f"{name}.jsonl", *rows)
    commands = [
        subprocess.Popen([TFGRPO, "collect", f"{name}.jsonl"], env=environment(), cwd=tmp_path)
        for name in "abcd"
    ]
    assert [command.wait(120) for command in commands] == [0] * 4
    lines = (tmp_path / "collected.jsonl").read_text().splitlines()
    assert len({json.loads(line)["problem"] for line in lines}) == 240
