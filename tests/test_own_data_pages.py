"""docs/classification.md and docs/extraction.md: every command of the pages is run, and says so."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, TFGRPO, Cli, environment
from scripted import ScriptedEndpoint, comparison_of, stage

from tfgrpo.domains.prompt_library import read_library

LESSON = "When a part of the bike does not work, the label is damage, not booking."
TOTAL = "For the total of a bill, take what is to be paid, with tax and delivery."
OTHER = "When a bike is asked for, the label is booking, not damage."


def answers(request: dict[str, Any], rows: dict[str, dict[str, str]]) -> str:
    """Knows half of the labels and fields of some rows, and what its library says."""
    system, user = request["messages"][0]["content"], request["messages"][-1]["content"]
    match stage(request):
        case "rollout" if "The labels are:" in system:
            label = rows[user]["label"]
            known = {"damage": LESSON in system, "booking": OTHER in system, "billing": True}
            if request["seed"] % 4 == 0 or known[label]:
                return f"Label: {label}"
            return f"It is hired. Label: {'booking' if label == 'damage' else 'damage'}"
        case "rollout":
            assert "- total (number): what is to be paid, with tax and delivery" in system
            row = rows[user]
            total = float(row["total"]) if request["seed"] % 4 == 0 or TOTAL in system else 1
            return json.dumps({"vendor": row["vendor"], "total": total, "due": row["due"]})
        case "comparison":
            assert "total: 1 is not" in user or "answer booking" in user or "answer damage" in user
            text = OTHER if "Right answer: booking" in user else LESSON
            text = TOTAL if "total: 1 is not" in user else text
            lesson = {"reason": "It is broken.", "text": text}
            return json.dumps(comparison_of([lesson]))
    return "It chose."


def table(content: str) -> dict[str, dict[str, str]]:
    """Returns the rows of a CSV by their text."""
    return {row["text"]: row for row in csv.DictReader(io.StringIO(content))}


def blocks(page: str) -> list[tuple[str, str, str]]:
    """Returns what the page gives, in order: (file or run, name, content). Of a file of which it
    shows the beginning, the whole file is the content."""
    found = re.findall(
        r"<!-- (file|beginning|run)(?:: (\S+))? -->\n```\w+\n(.*?)^```$",
        page,
        re.DOTALL | re.MULTILINE,
    )
    given = []
    for kind, name, content in found:
        if kind == "beginning":
            whole = (ROOT / "docs" / name).read_text()
            assert whole.startswith(content)
            assert f"]({name})" in page
            given.append(("file", Path(name).name, whole))
        else:
            given.append((kind, name, content))
    return given


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("page", ["classification", "extraction"])
def test_every_command_of_the_page_does_what_it_shows(
    cli: Cli, tmp_path: Path, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = blocks((ROOT / f"docs/{page}.md").read_text())
    rows = next(table(content) for _, name, content in given if name.endswith(".csv"))
    with ScriptedEndpoint(lambda request: answers(request, rows)) as server:
        for kind, name, content in given:
            if kind == "file":
                (tmp_path / name).write_text(content)
                continue
            said = ""
            for line in content.splitlines():
                if not line.startswith("$ "):
                    assert line in said, (line, said)
                    continue
                words = shlex.split(line[2:])[1:]
                if "--model" in words:
                    words[words.index("--model") + 1] = "m"
                    words += ["--base-url", server.base_url]
                said = cli(*words, timeout=240).stdout
                if words[0] == "train" and "--estimate" not in words:
                    assert re.search("next: (it helps|it hurts|not decided)", said), said
    settings = tomllib.loads((tmp_path / "tfgrpo.toml").read_text())
    (run,) = json.loads(cli("runs", "--json").stdout)
    assert run["state"] == "finished"
    assert run["sealed"]["intact"]
    for key, value in settings["train"].items():
        if key not in ("run", "data", "sealed", "domain"):
            assert run["config"][key] == value, key
    (tmp_path / "labels.txt").unlink(missing_ok=True)  # what a library needs is on record
    (tmp_path / "fields.toml").unlink(missing_ok=True)
    monkeypatch.chdir(tmp_path.parent)
    library = read_library(store=tmp_path / ".tfgrpo/store.db")
    system = library.render("Where is my bike?")[0]["content"]
    assert ("- booking\n- damage" if page == "classification" else "- vendor (text)") in system
    if page == "classification":
        assert LESSON in cli("show", "HEAD").stdout + cli("log", "-p").stdout


def test_own_data_is_split_fairly_and_nothing_is_overwritten(cli: Cli, tmp_path: Path) -> None:
    labels = [f"intent_{n}" for n in range(10)]
    rows = [f"{n},message number {n} of a kind,{labels[n % 10]}\n" for n in range(120)]
    twice = "200,message number 7 of a kind,intent_7\n201,message number 8 of a kind,intent_1\n"
    (tmp_path / "mail.csv").write_text(
        "id,text,intent\n" + "".join(rows) + twice + "202,,intent_1\n"
    )
    said = cli("init", "--from", "mail.csv").stdout
    assert "left out: 1 rows without a text or an answer" in said
    assert "left out: 1 texts that have two different answers" in said
    parts = {
        name: [json.loads(line) for line in (tmp_path / f"data/{name}.jsonl").open()]
        for name in ("train", "gate", "heldout")
    }
    assert {name: len(part) for name, part in parts.items()} == {
        "train": 59,
        "gate": 24,
        "heldout": 36,
    }
    texts = [row["problem"] for part in parts.values() for row in part]
    assert len(set(texts)) == len(texts) == 119
    for part in parts.values():
        assert {row["answer"] for row in part[:10]} == set(labels)
    settings = tomllib.loads((tmp_path / "tfgrpo.toml").read_text())
    assert settings["model"]["model"].startswith("local:")
    train = settings["train"]
    assert train["data"] == "data/train.jsonl:48"
    # a local model writes ten tokens a second, and a label takes some thirty
    steps = -(-48 // train["batch_size"]) * train["epochs"]
    tries = 48 * train["epochs"] * train["group_size"]
    tries += 24 * train["heldout_samples"] * (steps + 1) + 36 * train["heldout_samples"] * 2
    assert train["heldout_samples"] == 1
    assert tries * 30 / 10 < 3600, "and as long again for what is learned from them"
    before = (tmp_path / "tfgrpo.toml").read_bytes()
    assert "wrote" in cli("init", "--from", "mail.csv").stdout  # the same again changes nothing
    done = cli("init", "--from", "mail.csv", "--kind", "exact", ok=False)
    assert done.returncode == 1
    assert "is there already, with other content" in done.stderr
    assert (tmp_path / "tfgrpo.toml").read_bytes() == before


def test_on_a_terminal_what_is_guessed_is_asked(tmp_path: Path) -> None:
    pty = pytest.importorskip("pty")
    rows = [f"a long remark {n},word {n},{'ab'[n % 2]}\n" for n in range(30)]
    (tmp_path / "mail.csv").write_text("remark,title,kind\n" + "".join(rows))
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [TFGRPO, "init", "--from", "mail.csv"],
        cwd=tmp_path,
        env=environment(),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.write(ours, b"remark\nkind\n\nmine\nhttp://127.0.0.1:9/v1\n")
    assert process.wait(timeout=120) == 0
    said = os.read(ours, 100_000).decode()
    assert "Which field is asked? [title]" in said
    assert "How are answers judged?" in said
    settings = tomllib.loads((tmp_path / "tfgrpo.toml").read_text())
    assert settings["model"] == {"model": "mine", "base_url": "http://127.0.0.1:9/v1"}
    assert settings["train"]["domain"] == "choice:labels.txt"
    first = json.loads((tmp_path / "data/train.jsonl").read_text().splitlines()[0])
    assert first["problem"].startswith("a long remark")


def test_on_a_terminal_enter_asks_options_and_context_too(tmp_path: Path) -> None:
    pty = pytest.importorskip("pty")
    rows = [
        {"question": f"Which is {n} squared?", "choices": [f"{n}", f"{n * n}"], "answer": 1}
        for n in range(3, 27)
    ]
    (tmp_path / "quiz.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [TFGRPO, "init", "--from", "quiz.jsonl", "--model", "local:any"],
        cwd=tmp_path,
        env=environment(),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.write(ours, b"\n\n\n")
    assert process.wait(timeout=120) == 0
    first = json.loads((tmp_path / "data/train.jsonl").read_text().splitlines()[0])
    assert "\n\nA. " in first["problem"]
    assert first["answer"] == "B"


@pytest.mark.parametrize(
    ("head", "rows", "fields", "kind"),
    [
        ("text,label", [f"t{n},{'ab'[n % 2]}" for n in range(20)], ("text", ("label",)), "choice"),
        (
            "question,answer",
            [f"q{n},{n * 7}" for n in range(20)],
            ("question", ("answer",)),
            "math",
        ),
        ("Prompt,Target", [f"p{n},word {n}" for n in range(20)], ("Prompt", ("Target",)), "exact"),
        ("input,class", [f"i{n},{n % 3}" for n in range(20)], ("input", ("class",)), "choice"),
        (
            "note,who,sum",
            [f"a long note {n},w{n},{n}" for n in range(20)],
            ("note", ("who", "sum")),
            "json",
        ),
        ("message", [f"m{n}" for n in range(20)], ("message", ()), "rubric"),
    ],
)
def test_fields_and_kind_are_guessed(
    head: str, rows: list[str], fields: tuple[str, tuple[str, ...]], kind: str
) -> None:
    from tfgrpo.data.column_roles import guess_columns

    names = head.split(",")
    table = [dict(zip(names, row.split(","), strict=True)) for row in rows]
    guess = guess_columns(table)
    assert ((guess.problem, guess.answers), guess.kind) == (fields, kind)


def test_defaults_fit_the_data_and_the_model_and_a_preset_keeps_the_papers() -> None:
    from tfgrpo.data.problems import Problem
    from tfgrpo.learn.fitted_defaults import fit
    from tfgrpo.runs.run_problems import RunProblems
    from tfgrpo.settings import TrainSettings, build

    tickets = RunProblems(tuple(Problem(str(n), "a line", "yes") for n in range(200)))
    given = {"data": "d", "preset": "fit"}
    paper = build(TrainSettings, {"data": "d", "preset": "paper"})
    assert (paper.policy, paper.epochs, paper.batch_size, paper.group_size) == ("paper", 3, 100, 5)
    local, said = fit(build(TrainSettings, {**given, "domain": "choice"}), tickets, ("domain",))
    assert (local.batch_size, local.max_tokens, local.epochs, local.group_size) == (29, 96, 6, 3)
    assert "200 problems and a local model: batches of 29" in said
    exact, _ = fit(build(TrainSettings, {**given, "domain": "exact"}), tickets, ("domain",))
    assert (exact.batch_size, exact.epochs, exact.group_size) == (16, 3, 6)
    assert "\n" not in said
    named, _ = fit(build(TrainSettings, {**given, "batch_size": 50}), tickets, ("batch_size",))
    assert named.batch_size == 50
    for gate, more, sizes in [
        (200, {}, (64, 1)),  # each once where there are enough
        (200, {"domain": "exact"}, (32, 1)),
        (24, {}, (64, 3)),
        (12, {"domain": "exact"}, (32, 3)),
        (3, {}, (64, 4)),
        (200, {"heldout_samples": 4}, (64, 4)),
        (200, {"heldout_problems": 16}, (16, 1)),
    ]:
        gated = RunProblems(tickets.train, gate=tickets.train[:gate])
        fitted, _ = fit(
            build(TrainSettings, {**given, "domain": "choice", **more}), gated, tuple(more)
        )
        assert (fitted.heldout_problems, fitted.heldout_samples) == sizes
    sealed = RunProblems(tickets.train, sealed=tickets.train)
    fitted, said = fit(build(TrainSettings, {**given, "domain": "choice"}), sealed, ())
    assert fitted.heldout_samples == 1
    assert "one attempt each" in said
    assert "problems of those that check it" not in said, "sealed problems are all used"
    for more, shown in [
        ({"domain": "math"}, 2),
        ({"domain": "exact"}, 2),
        ({"domain": "math", "top_k": 5}, 5),
        ({"domain": "math", "top_k": 0}, 0),
        ({"domain": "math", "model": "m"}, 0),
        ({"domain": "math", "mode": "agent"}, 0),
        ({"domain": "choice"}, 0),
        ({"domain": "json"}, 0),
    ]:
        fitted, chosen = fit(build(TrainSettings, {**given, **more}), tickets, tuple(more))
        assert fitted.top_k == shown
        is_said = "experiences that fit a problem best" in chosen
        assert is_said is (shown == 2), "what was named was not chosen"
    few = RunProblems(tickets.train[:60])
    far = build(TrainSettings, {**given, "model": "m"})
    assert fit(far, few, ()) == (far, "")  # what it comes to is the paper's
