"""The pages of runs, attempts, evaluations and costs, without a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from click.testing import CliRunner
from conftest import problems
from scripted import ScriptedEndpoint, restless, stage, teachable
from ui_rig import Visitor, crawl, links, store_at

import tfgrpo
from tfgrpo.cli.main import tfgrpo as command
from tfgrpo.evaluation.scoring import figures
from tfgrpo.evaluation.statistics import paired
from tfgrpo.runs.attempts import run_attempts
from tfgrpo.store import Operation, Store
from tfgrpo.store.activity.runs import Score
from tfgrpo.store.transfer.locations import clone, parse
from tfgrpo.ui.charts import CurvePoint, chart
from tfgrpo.ui.pages.runs import output_path

HOSTILE = '</pre><script>alert(1)</script>"><img src=x onerror=alert(2)>\x1b[2J\u202e'


def script(request: dict[str, Any]) -> str:
    """Learns, and says hostile things on the way."""
    answer = teachable(request)
    if stage(request) == "rollout":
        return f"{HOSTILE} {answer}"
    return answer.replace("added one", HOSTILE[:29]) if stage(request) == "comparison" else answer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project with a run whose model has a price, one whose model has none, and evaluations."""
    where = tmp_path_factory.mktemp("pages")
    (where / "p.jsonl").write_text(problems((2, 5, 9)))
    (where / "held.jsonl").write_text(problems((11, 12)))
    (where / "tfgrpo.toml").write_text("[prices]\nm = { prompt = 1000.0, completion = 0 }\n")
    sizes = {"epochs": 1, "batch_size": 3, "group_size": 3, "policy": "paper"}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(where)
        with ScriptedEndpoint(script) as server:
            asked: dict[str, Any] = {"base_url": server.base_url}
            tfgrpo.train_sync("p.jsonl", run="quick", model="m", budget="5", **sizes, **asked)
            tfgrpo.compare_sync("v0", "HEAD", "held.jsonl", samples=2, model="m", **asked)
        with ScriptedEndpoint(restless) as server:
            tfgrpo.train_sync("p.jsonl", run="a/b", model="n", base_url=server.base_url, **sizes)
        yield where


@pytest.fixture(scope="module")
def visitor(folder: Path) -> Visitor:
    return Visitor(folder / ".tfgrpo/store.db")


def words(page: str) -> str:
    """Returns a page's text, without its marks."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())


def test_runs_are_listed_newest_first(visitor: Visitor) -> None:
    page = visitor.get("/runs")
    assert page.index(">a/b<") < page.index(">quick<")
    assert "/run/a/b" in links(page)


def test_a_run_shows_its_steps_its_money_and_what_was_refused(visitor: Visitor) -> None:
    page = words(visitor.get("/run/quick"))
    assert "finished" in page
    assert "Steps 1 of 1" in page
    assert re.search(r"Spent \$\d", page)
    assert "Mean reward of attempts" in page
    spent = float(re.search(r"Spent \$([\d.]+)", page)[1])  # type: ignore[index]
    left = float(re.search(r"Budget \$5.00 Left of it \$([\d.]+)", page)[1])  # type: ignore[index]
    assert spent > 0
    assert abs(spent + left - 5) < 0.02
    page = words(visitor.get("/run/a/b"))
    assert "Budget none" in page
    assert "Spent unknown" in page, "a price that nobody knows is not nothing"
    assert "$0" not in page
    assert "Cost of a step" not in page


def test_a_run_that_is_not_there_is_said_so(visitor: Visitor) -> None:
    for path in ("/run/none", "/attempts/none", "/group/none?problem=x", "/run-live/none"):
        assert "there is no run" in unescape(visitor.get(path, status=404))


def test_a_finished_run_is_streamed_once_and_over(visitor: Visitor) -> None:
    answer = visitor.client.get("/run-live/quick")
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = answer.text.strip().split("\n\n")
    assert [event.splitlines()[0] for event in events] == ["event: part", "event: over"]
    assert "<script" not in events[0]
    assert all(line.startswith(("event: ", "data: ")) for line in events[0].splitlines())


def test_attempts_are_listed_group_by_group_and_every_one_has_a_link(
    visitor: Visitor, folder: Path
) -> None:
    with Store.open(folder / ".tfgrpo/store.db") as store:
        found = run_attempts(store, store.runs.get("quick"), step=1)
    page = visitor.get("/attempts/quick")
    wanted = {
        f"/group/quick?step=1&problem={quote(one.problem)}&sample={one.sample}"
        for one in found.attempts
    }
    assert wanted <= set(links(page))
    for address in sorted(wanted)[:2]:
        shown = visitor.get(address)
        assert f'id="attempt-{address[-1]}"' in shown
        assert shown.count('<article class="attempt ') == 1
    mixed = len({one.problem for one in found.attempts if one.side})
    assert visitor.get("/attempts/quick?show=mixed").count('class="group-name"') == mixed
    assert "no such group" in visitor.get("/attempts/quick?show=truncated")
    assert visitor.get("/attempts/quick?show=nonsense").count('class="group-name"') == 3
    assert "no such group" in visitor.get("/attempts/quick?step=99")


def test_a_group_shows_both_sides_the_prompt_the_comparison_and_the_decision(
    visitor: Visitor,
) -> None:
    listed = visitor.get("/attempts/quick?show=mixed")
    address = next(one for one in links(listed) if one.startswith("/group/quick"))
    page = visitor.get(address)
    for part in ("Winners", "Losers", "The prompt as it was sent", "ground truth", "losers did"):
        assert part in page, part
    assert "The right answer is one more." in page
    assert "What was decided" in page
    assert "/version/v1" in links(page)


def test_what_models_say_is_text_and_nothing_else(visitor: Visitor) -> None:
    listed = visitor.get("/attempts/quick?show=mixed")
    address = next(one for one in links(listed) if one.startswith("/group/quick"))
    for path in (address, "/attempts/quick", "/run/quick"):
        page = visitor.get(path)
        assert "<script>" not in page, path
        assert "<img" not in page, path
        assert "\x1b" not in page, path
        assert "\u202e" not in page, path
    assert "&lt;script&gt;alert(1)" in visitor.get(address)


def test_two_evaluations_are_paired_problem_by_problem(visitor: Visitor) -> None:
    page = visitor.get("/evaluations")
    pair = next(one for one in links(page) if one.startswith("/paired/0/1/"))
    shown = words(visitor.get(pair))
    assert "v1 beside v0 (empty)" in shown
    assert "inconclusive" in shown, "two problems show nothing"
    assert "rejected" not in shown
    won = words(visitor.get(f"{pair}?show=won"))
    assert won.count(" won ") >= 1
    group = next(one for one in links(visitor.get(pair)) if one.startswith("/evaluation-group/1/"))
    assert "<mark>" in visitor.get(group), "the experience in the prompt stands out"
    assert "/evaluation/1/" in visitor.get(group)
    whole = next(one for one in links(visitor.get(group)) if one.startswith("/evaluation/1/"))
    for path in (group, whole):
        assert 'href="/evaluations" aria-current' in visitor.get(path), "where the page is"
    for path in ("/paired/0/99/abc", "/evaluation/x/y", "/evaluation/1/0000"):
        visitor.get(path, status=404)


def test_an_evaluation_offers_no_filter_for_what_its_scores_do_not_say(visitor: Visitor) -> None:
    found = re.search(r'href="(/evaluation/[^"]+)"', visitor.get("/evaluations"))
    assert found is not None
    offered = re.findall(r'<option value="(\w*)"', visitor.get(found[1]))
    assert offered == ["", "mixed", "failed", "unverifiable"]
    assert "truncated" in re.findall(r'<option value="(\w*)"', visitor.get("/attempts/quick"))
    there = visitor.get(f"{found[1]}?show=truncated")
    assert "no such group" not in there, "an address from elsewhere shows all"


def test_costs_are_by_run_stage_model_and_day_and_the_unknown_is_not_nothing(
    visitor: Visitor,
) -> None:
    page = words(visitor.get("/cost"))
    for part in ("By run", "By stage and model", "By model", "By day", "price of n is unknown"):
        assert part in page, part
    one = words(visitor.get("/cost?run=a/b"))
    assert "Cost unknown" in one
    assert "$0" not in one
    assert re.search(r"By step Step .*? step 1 unknown", one)


def test_nothing_can_be_stopped_or_gone_on_with_that_is_finished(
    visitor: Visitor, folder: Path
) -> None:
    assert "nothing to stop" in visitor.post("/run-stop/quick", {}, status=400)
    assert "nothing to go on with" in visitor.post("/run-resume/quick", {}, status=400)
    reader = Visitor(folder / ".tfgrpo/store.db", read_only=True)
    reader.post("/run-stop/quick", {}, status=400)
    assert "run-resume" not in reader.get("/run/quick")


def test_a_run_that_stops_as_soon_as_it_goes_on_is_not_said_to_go_on(tmp_path: Path) -> None:
    path = tmp_path / ".tfgrpo/store.db"
    with Store.init(path, author="ana") as store:
        run = store.runs.create("lost", "6" * 32, "main", 0, {"models": {"model": "m"}}, "ana")
        store.runs.note(run, "started")
        store.runs.note(run, "stopped")
    page = words(Visitor(path).post("/run-resume/lost", {}, status=400))
    assert "run lost has stopped at once: error: " in page


def test_a_run_whose_output_cannot_be_written_does_not_go_on(tmp_path: Path) -> None:
    path = tmp_path / ".tfgrpo/store.db"
    with Store.init(path, author="ana") as store:
        run = store.runs.create("lost", "6" * 32, "main", 0, {"models": {"model": "m"}}, "ana")
        store.runs.note(run, "stopped")
        output = output_path(store, run)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.symlink_to(tmp_path / "elsewhere")
    page = words(Visitor(path).post("/run-resume/lost", {}, status=503))
    assert "That did not work" in page
    assert not (tmp_path / "elsewhere").exists()


def test_a_curve_leaves_a_gap_where_nothing_is_known() -> None:
    points = [
        CurvePoint("step 1", 0.5, 0.25, 0.75),
        CurvePoint("step 2", None),
        CurvePoint("step 3", 1.0, float("-inf"), float("inf")),
        CurvePoint("step 4", 0.75),
    ]
    found = chart("reward", points, lambda value: f"{value:.2f}", 1.0)
    assert found is not None
    assert [mark.words for mark in found.marks] == [
        "step 1: 0.50 [0.25, 0.75]",
        "step 3: 1.00",
        "step 4: 0.75",
    ]
    assert [(m.low is None, m.high is None) for m in found.marks] == [
        (False, False),
        (True, True),
        (True, True),
    ]
    assert len(found.lines) == 1, "a line from step 3 to step 4 alone"
    assert found.marks[0].y > found.marks[2].y > found.marks[1].y
    assert chart("nothing", [CurvePoint("step 1", None)], str) is None


def in_folder(folder: Path, *words: str) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = CliRunner().invoke(command, words)
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


def test_the_pages_are_written_as_files_whose_links_lead_somewhere(
    folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "report"
    told = in_folder(folder, "ui", "--export", str(out))
    pages = {path.name: path.read_text() for path in out.glob("*.html")}
    assert f"wrote {len(pages)} pages" in told
    assert {"index.html", "runs.html", "run-quick.html", "cost.html"} <= set(pages)
    for name, page in pages.items():
        for mark in ("<script", "<form", " hx-", "data-live", "csrf"):
            assert mark not in page, (name, mark)
        for link in links(page):
            file, _, place = link.partition("#")
            assert not file.startswith("/"), (name, link)
            assert "://" not in link, (name, link)
            assert not file or (out / file).is_file(), (name, link)
            if place:
                assert f'id="{place}"' in pages[file or name], (name, link)
    groups = [page for name, page in pages.items() if name.startswith("group-quick")]
    assert len(groups) == 3
    assert any("&lt;script&gt;alert(1)" in page for page in groups)
    again = CliRunner().invoke(
        command, ["--store", str(folder / ".tfgrpo/store.db"), "ui", "--export", str(out)]
    )
    assert again.exit_code == 1
    assert "is not empty" in str(again.exception)


def test_without_content_what_was_asked_and_said_is_in_no_file(
    folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "bare"
    in_folder(folder, "ui", "--export", str(out), "--no-content")
    files = {path.name: path.read_text() for path in out.rglob("*") if path.is_file()}
    assert "run-quick.html" in files
    assert not [name for name in files if name.startswith(("group", "evaluation-group"))]
    for name, text in files.items():
        for said in ("What is 2 op 5?", "alert(1)", "Thinking."):
            assert said not in text, (name, said)
    assert "line-1" in "".join(files.values()), "which problems there were is told"


def test_a_run_is_written_as_one_file(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "one.html"
    assert str(out) in in_folder(folder, "plot", "quick", "--html", str(out))
    page = out.read_text()
    assert links(page) == []
    assert "<style>" in page
    assert "<script" not in page
    assert "Mean reward of attempts" in page
    assert "<svg" in page


def test_a_server_without_content_shows_no_words_of_attempts_and_calls(folder: Path) -> None:
    bare = Visitor(folder / ".tfgrpo/store.db", content=False)
    page = bare.get("/attempts/quick")
    assert "What is" not in page
    assert 'class="answer"' not in page
    assert "not shown here" in bare.get("/group/quick?step=1&problem=line-1", status=404)
    assert "not shown here" in bare.get("/call/anything", status=404)
    statuses = crawl(bare, most=600) | crawl(bare, "/problem?id=line-1", most=10)
    assert {path: status for path, status in statuses.items() if status != 200} == {}
    kinds = {path.partition("?")[0].split("/")[1] for path in statuses}
    assert kinds >= {"attempts", "evaluation", "problem", "paired"}
    assert not kinds & {"call", "group", "evaluation-group"}


def test_a_pair_has_the_interval_that_the_terminal_has(tmp_path: Path) -> None:
    store = store_at(tmp_path, "One.")
    with Store.open(store) as opened:
        for n, rewards in enumerate(((1.0, 0.0, 0.0), (1.0, 1.0, 1.0))):
            config = {"samples": 1, "temperature": 0.7, "max_tokens": 9, "seed": 0, "model": "m"}
            scores = [Score(f"p{p}", 0, None, reward, "1") for p, reward in enumerate(rewards)]
            summary = figures(scores)
            opened.runs.put_evaluation(n, "held.jsonl", "a" * 64, config, summary, scores)
    (pair,) = {one for one in links(Visitor(store).get("/evaluations")) if "/paired/0/1/" in one}
    shown = words(Visitor(store).get(pair))
    told = paired({f"p{n}": [float(n < 1)] for n in range(3)}, {f"p{n}": [1.0] for n in range(3)})
    assert told.words == "+0.667 [-0.937, +1.000]", "no difference of rewards is beyond one"
    assert told.words in shown.replace("−", "-"), shown


def test_every_evaluation_has_links_to_those_that_are_nearest(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    with Store.open(store) as opened:
        for n in range(20):
            opened.commit("main", [Operation("ADD", text=f"Lesson {n}.")], message=f"{n}")
        for n in range(20):
            config = {"samples": 1, "temperature": 0.7, "max_tokens": 9, "seed": 0}
            summary = {"mean": [0.5, 0.4, 0.6], "unscored": 0}
            scores = [Score("p", 0, None, 1.0, "1")]
            opened.runs.put_evaluation(n, "held.jsonl", "a" * 64, config, summary, scores)
    page = Visitor(store).get("/evaluations")
    beside: dict[int, list[int]] = {}
    for other, one in re.findall(r'href="/paired/(\d+)/(\d+)/', page):
        beside.setdefault(int(one), []).append(int(other))
    assert beside[0] == list(range(1, 13))
    assert beside[19] == list(range(7, 19))
    assert beside[10] == [*range(4, 10), *range(11, 17)]
    assert {len(others) for others in beside.values()} == {12}
    assert len(beside) == 20


def test_in_a_clone_no_link_leads_to_a_run_that_is_not_there(folder: Path, tmp_path: Path) -> None:
    """Runs do not travel."""
    copy = tmp_path / ".tfgrpo" / "store.db"
    clone(parse(str(folder)), copy, author="ben")
    visitor = Visitor(copy)
    page = visitor.get("/version/v1")
    assert "Attempts at line-" in page
    assert "<dt>Run</dt><dd>quick</dd>" in page
    statuses = crawl(visitor)
    assert {path: status for path, status in statuses.items() if status != 200} == {}
    assert len(statuses) > 15
