"""Without content no page has what was asked and said: every file is looked through for words that
were planted wherever problems and answers are kept."""

from __future__ import annotations

import json
import re
import time
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from ui_records import AT_WORK, BLANK, every_record
from ui_rig import Visitor, crawled, store_at

from tfgrpo.cli.main import tfgrpo
from tfgrpo.evaluation.scoring import figures
from tfgrpo.improvement.proposals import Draftsman, list_proposals, propose, reject
from tfgrpo.learn.pool import append_to_pool
from tfgrpo.rendering.experience_texts import example_text
from tfgrpo.store import Operation, Store
from tfgrpo.store.activity.runs import Call, Score
from tfgrpo.store.activity.traffic import CallContent, Feedback, traffic_path
from tfgrpo.store.canonical import canonical
from tfgrpo.store.opening import open_traffic
from tfgrpo.ui.pages.runs import output_path

CANARY = re.compile(r"canary\w*", re.IGNORECASE)


def example(name: str) -> str:
    """An example whose problem and answer are known by their words, each of which is planted."""
    problem = f"Canary{name}Ask what does Canary{name}Also say? {'Canary' + name + 'Far '} ."
    return example_text(problem, f"Canary{name}Says it")


def planted(folder: Path) -> Path:
    """A store with everything that a page shows, and a canary in every problem and answer."""
    path = every_record(folder, now=time.time_ns() // 1000)
    with Store.open(path, author="ana") as store:
        add = [Operation("ADD", text=example(f"Live{n}"), reason=example("Why")) for n in range(3)]
        store.commit("main", [*add, Operation("ADD", text="A lesson of its own.")], message="more")
        ids = [e.id for e in store.library() if e.text.startswith("Example: ")]
        words = [
            Operation("MODIFY", ids[0], example("Other"), "in other words"),
            Operation("KEEP", ids[1], None, "again"),
            Operation("DELETE", ids[2], None, example("Gone")),
        ]
        store.commit("main", words, message=f"add: {example('Told')[:30]}")
        store.commit("main", [Operation("MODIFY", ids[0], example("Last"))], message="again")
        run = store.runs.get(AT_WORK)
        meta = {
            "run": run.name,
            "step": 2,
            "refused": [{"text": example("Refused"), "problem": "hire-1", "reason": "too long"}],
            "failed": [{"stage": "summary", "problem": "hire-1", "reason": "no JSON: CanaryRaw"}],
        }
        store.commit("main", [Operation("KEEP", ids[1])], message="step 3 of 4", meta=meta)
        pool = [Operation("ADD", "e" * 12, example("Pool"), "a verified attempt")]
        append_to_pool(store, run, store.tip("main"), pool, "candidates of step 3")
        for name in ("open", "down"):
            base, branch = store.tip("main"), f"proposal/{name}"
            store.create_branch(branch, base)
            change = [
                Operation("ADD", text=example(f"New{name}"), reason="a call that went wrong"),
                Operation("MODIFY", ids[1], example(f"Changed{name}"), "so said two calls"),
            ]
            store.commit(branch, change, message="from calls that went wrong")
            made = propose(store, Draftsman(branch, "main", "tfgrpo improve", base))
        reject(store, made.id, why="not so")
        key = bytes(32)
        answer = {"content": "CanaryJournal", "finish_reason": "stop"}
        asked = json.dumps([["user", "CanaryPrompt?"]])
        call = Call(key, run.id, "rollout", 0, "m", asked, answer, 9, 0, 9, 0, 1, 0.1, 1)
        verdict = canonical({"answer": "CanaryVerdict", "reason": "it says CanaryReason"}).decode()
        place = (run.id, 3, "hire-1", 0, store.tip("main").number, json.dumps([key.hex()]))
        rows = [(*place, "answered", 1.0, verdict, 1)]
        writer = store.port.records.writer()
        writer.append([(*call[:6], canonical(answer).decode(), *call[7:])], rows)
        writer.close()
        scores = [Score("p0", 0, None, 1.0, "CanaryScored")]
        config = {"samples": 1, "temperature": 0.7, "max_tokens": 9, "seed": 0, "model": "m"}
        for version in (1, 2):
            store.runs.put_evaluation(
                version, "held.jsonl", "a" * 64, config, figures(scores), scores
            )
        output_path(store, run).parent.mkdir(exist_ok=True)
        output_path(store, run).write_text("learned: + CanaryOutput")
        with closing(open_traffic(traffic_path(store.path))) as traffic:
            row = BLANK._replace(
                id="call-canaries",
                time=store.now(),
                status=500,
                latency=1,
                model="m",
                version="v1",
                error="upstream: CanaryError",
            )
            body = json.dumps({"messages": [{"role": "user", "content": "CanaryCall?"}]})
            said = json.dumps({"choices": [{"message": {"content": "CanaryAnswer"}}]})
            traffic.add([row], [CallContent(row.id, body, said)])
            told = Feedback(row.id, 1, "till", 0.0, None, "CanaryComment", "CanaryCorrect")
            traffic.add_feedback(told)
    folder.joinpath("hires.jsonl").write_text('{"id": "hire-1", "problem": "CanaryData?"}\n')
    return path


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted(tmp_path_factory.mktemp("canaries"))


def exported(store: Path, out: Path, *how: str) -> dict[str, str]:
    given = ["--store", str(store), "ui", "--export", str(out), *how]
    done = CliRunner().invoke(tfgrpo, given, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "is left out" not in done.output
    return {path.name: path.read_text() for path in out.rglob("*") if path.is_file()}


def test_no_exported_file_has_a_word_of_a_problem_or_an_answer(store: Path, tmp_path: Path) -> None:
    whole = exported(store, tmp_path / "whole")
    seen = {word for text in whole.values() for word in CANARY.findall(text)}
    assert len(seen) > 25, "where they are shown, they are found"
    bare = exported(store, tmp_path / "bare", "--no-content")
    told = {(n, word) for n, text in bare.items() for word in CANARY.findall(n + text)}
    assert told == set()
    assert set(bare) >= {name for name in whole if name.startswith(("experience", "library"))}
    everything = "".join(bare.values())
    assert "Example: [not shown] → [not shown]" in everything
    assert "A lesson of its own." in everything


def test_a_server_without_content_has_no_word_of_them_and_records_nothing(store: Path) -> None:
    visitor = Visitor(store, content=False)
    looked_at = {path: answer.text for path, answer in crawled(visitor)}
    assert len(looked_at) > 100
    for path in ("/library?as=csv", "/library?as=json", "/library/prompt?as=csv", "/runs?as=json"):
        looked_at[path] = visitor.get(path)
    for path in (
        "/search?q=CanaryLive0Ask",
        "/search?q=Example",
        "/library?q=CanaryLive0",
        "/diff/v1/HEAD",
    ):
        looked_at[path] = visitor.client.get(path).text.replace(path.partition("=")[2], "")
    told = {(path, word) for path, text in looked_at.items() for word in CANARY.findall(text)}
    assert told == set()
    assert "/experience/" not in looked_at["/search?q=CanaryLive0Ask"]
    with Store.open(store) as opened:
        before = opened.port.last_version()
        (kept,) = [e.id for e in opened.library() if "CanaryLast" in e.text]
    for path in ("/library/change", "/library/add", "/library/whole", "/review"):
        fields = {"branch": "main", "experience": kept, "reason": "x", "text": "y", "texts": "y"}
        assert visitor.client.post(path, data=fields).status_code >= 400
    with Store.open(store) as opened:
        assert opened.port.last_version() == before
        assert [one.id for one in list_proposals(opened, "open")] != []


def test_tokens_of_an_example_that_is_not_shown_are_not_told(tmp_path: Path) -> None:
    store = store_at(tmp_path, "A lesson.", example("One"))
    page = Visitor(store, content=False).get("/library")
    cells = re.findall(r'data-title="Tokens">([^<]*)<', page)
    assert sorted(cells) == ["3", "–"] or "–" in cells
    assert "–" not in re.findall(r'data-title="Tokens">([^<]*)<', Visitor(store).get("/library"))
