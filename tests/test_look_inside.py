"""Looking inside runs and evaluations: what was asked, what was said, who won and why."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import problems, run_command
from scripted import LESSON as SCRIPTED
from scripted import ScriptedEndpoint, teachable

import tfgrpo
from tfgrpo.cli.main import COMMANDS
from tfgrpo.cli.main import tfgrpo as command
from tfgrpo.evaluation.comparison import paired_problems, pairs_of, recorded_pairs
from tfgrpo.learn.run import next_steps
from tfgrpo.project import open_project
from tfgrpo.rendering import prompt_templates
from tfgrpo.rendering.experience_texts import example_text
from tfgrpo.rendering.render import rollout_messages
from tfgrpo.runs.attempts import evaluation_attempts, recorded_evaluation, run_attempts
from tfgrpo.runs.group_details import PromptPart, group_view, highlighted
from tfgrpo.store import ROOT, Experience, Library, Operation, Store, TfgrpoError

NUMBERS = (2, 5, 9)
LESSON = "Op means: add the numbers and then add one."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project with one run, and an evaluation of its library and of the empty one."""
    where = tmp_path_factory.mktemp("inside")
    (where / "p.jsonl").write_text(problems(NUMBERS))
    (where / "held.jsonl").write_text(problems((11, 12)))
    with pytest.MonkeyPatch.context() as patch, ScriptedEndpoint(teachable) as server:
        patch.chdir(where)
        asked: dict[str, Any] = {"model": "m", "base_url": server.base_url}
        sizes = {"epochs": 1, "batch_size": 3, "group_size": 3, "policy": "paper"}
        tfgrpo.train_sync("p.jsonl", run="quick", **sizes, **asked)
        compared = tfgrpo.compare_sync("v0", "HEAD", "held.jsonl", samples=2, **asked)
        (where / "compared.txt").write_text(f"{compared}\n")
        scores = tfgrpo.evaluate_sync(
            "held.jsonl", library="HEAD", against="v0", samples=2, **asked
        )
        (where / "scores.txt").write_text(f"{scores}\n")
        yield where


def run(folder: Path, *words: str) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = CliRunner().invoke(command, ["rollouts", *words])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


def refused(folder: Path, *words: str) -> tuple[int, str]:
    """Returns the exit code of a command that is refused, and what it complains of."""
    done = run_command(["rollouts", *words], folder)
    assert done.returncode != 0
    return done.returncode, done.stderr


def rows(text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(text)
    return found


def test_an_attempt_is_shown_with_all_that_it_was_asked_and_why_it_won_or_lost(
    folder: Path,
) -> None:
    with Store.open(folder / ".tfgrpo/store.db") as store:
        found = run_attempts(store, store.runs.get("quick"), open_project(folder))
        group = next(group for group in found.groups() if group[0].side)
        text = found.text(group[0])
    assert [one.side for one in group][:: len(group) - 1] == ["winner", "loser"]
    number = NUMBERS[int(group[0].problem.removeprefix("line-")) - 1]
    question = f"What is {number} op {number + 3}?"
    assert text.ground_truths == (str(2 * number + 4),)
    assert text.question == question
    assert question in text.prompt[-1][1], "as sent, with what stands around it"
    shown = run(folder, "--problem", group[0].problem)
    assert shown.splitlines()[0].startswith(f"step 1, {group[0].problem}: ")
    for part in (f"question {question}", f"ground truth {2 * number + 4}", "prompt 1/", "reason: "):
        assert part in shown, part
    assert shown.index("winner, reward 1.00") < shown.index("loser, reward 0.00")


def test_failed_attempts_alone_as_csv_and_json(folder: Path) -> None:
    every = rows(run(folder, "--json"))
    assert {row["problem"] for row in every} == {"line-1", "line-2", "line-3"}
    wrong = rows(run(folder, "--failed", "--json"))
    assert wrong == [row for row in every if row["reward"] != 1.0]
    assert wrong, "the scripted model is wrong before it is taught"
    sheet = list(csv.DictReader(io.StringIO(run(folder, "--failed", "--csv"))))
    assert [(row["problem"], row["sample"]) for row in sheet] == [
        (row["problem"], str(row["sample"])) for row in wrong
    ]
    assert all(row["ground_truth"] and row["prompt"] and row["response"] for row in sheet)
    assert {row["question"] for row in every} >= {"What is 5 op 8?"}


def test_an_evaluation_is_read_by_problem(folder: Path) -> None:
    shown = run(folder, "--eval", "HEAD", "--by-problem").splitlines()
    assert shown[0].split() == ["problem", "right", "reward", "ground", "truth", "answers"]
    assert [line.split()[:4] for line in shown[1:]] == [
        ["line-1", "2", "of", "2"],
        ["line-2", "2", "of", "2"],
    ]
    attempts = rows(run(folder, "--eval", "v0", "--problem", "line-1", "--json"))
    assert [row["ground_truths"] for row in attempts] == [["26"], ["26"]]
    assert all(row["messages"] and row["prompt"] for row in attempts)
    assert "question What is 11 op 14?" in run(folder, "--eval", "v0", "--problem", "line-1")


def test_two_libraries_are_paired_by_problem(folder: Path) -> None:
    pairs = rows(run(folder, "--eval", "HEAD", "--against", "v0", "--json"))
    assert [(row["problem"], row["outcome"]) for row in pairs] == [
        ("line-1", "won"),
        ("line-2", "won"),
    ]
    shown = run(folder, "--eval", "HEAD", "--against", "v0")
    assert shown.splitlines()[-1].strip() == "won 2 problems, lost 0, even on 0"
    with Store.open(folder / ".tfgrpo/store.db") as store:
        found = recorded_pairs(store, store.version(0), store.head.version)
        assert "won 2 problems" in str(paired_problems(store, *found[-1]))


def test_pairs_are_those_of_a_problem_and_have_no_attempts(folder: Path) -> None:
    both = ("--eval", "HEAD", "--against", "v0")
    (pair,) = rows(run(folder, *both, "--problem", "line-2", "--json"))
    assert (pair["problem"], pair["outcome"]) == ("line-2", "won")
    for flags in (["--failed"], ["--by-problem"], ["--sample", "0"], ["--outcome", "failed"]):
        code, output = refused(folder, *both, *flags)
        assert (code, f"{flags[0]} lists attempts" in output) == (2, True)
    assert refused(folder, *both, "--problem", "line-9")[0] == 1


def test_every_figure_stands_with_a_row_of_its_settings_and_what_would_decide(
    folder: Path,
) -> None:
    settings = "settings: 2 samples each, temperature 0.3, at most "
    for name in ("compared.txt", "scores.txt"):
        shown = (folder / name).read_text()
        (line,) = [line for line in shown.splitlines() if line.startswith("settings: ")]
        assert line.startswith(settings)
        assert line.endswith(" tokens, seed 0")
        assert "inconclusive; about 6 problems × 2 samples would decide" in shown
    assert "won 2 problems, lost 0, even on 0\n" in (folder / "compared.txt").read_text()


def comparison(verdict: str, needed: int | None = None) -> SimpleNamespace:
    """What of a comparison decides what to do next."""
    return SimpleNamespace(
        verdict=verdict,
        conditions={"samples": 2},
        control=SimpleNamespace(number=0),
        difference=SimpleNamespace(problems_needed=needed),
    )


@pytest.mark.parametrize(
    ("experiences", "compared", "first", "named"),
    [
        (3, None, "does it help? `tfgrpo compare HELDOUT`", "--heldout"),
        (3, comparison("better"), "it helps: `tfgrpo export main", "--eval main --against v0"),
        (-2, comparison("better"), "it helps: `tfgrpo proxy --library main", "examples as turns"),
        (3, comparison("worse"), "it hurts: ", "tfgrpo reset quick/step_0"),
        (3, comparison("inconclusive", 61), "not decided: about 61 problems × 2 samples", "power"),
        (3, comparison("inconclusive"), "not decided: more problems", "compare MORE"),
        (0, None, "`tfgrpo rollouts quick --failed`", "why"),
    ],
)
def test_the_end_of_a_run_says_what_to_do_next(
    experiences: int, compared: SimpleNamespace | None, first: str, named: str
) -> None:
    text = "Always." if experiences >= 0 else example_text("Is it?", "yes")
    rows = [Experience(str(number), text, number) for number in range(abs(experiences))]
    result: Any = SimpleNamespace(
        run=SimpleNamespace(name="quick", branch="main"),
        versions=(),
        library=Library(ROOT, tuple(rows)),
        comparison=compared,
        nothing_learned=None,
    )
    said = list(next_steps(result))
    assert said[0].startswith(first)
    assert named in " ".join(said)
    for words in re.findall(r"`tfgrpo ([\w-]+)", " ".join(said)):
        assert words in COMMANDS


def test_won_lost_and_even_count_what_both_have() -> None:
    before = {"a": [0.0, 0.0], "b": [1.0, 1.0], "c": [0.5], "only": [1.0]}
    after = {"a": [1.0, 0.0], "b": [0.0, 1.0], "c": [0.5], "other": [1.0]}
    found = pairs_of(before, after, ("v0", "v4"))
    assert [(p.problem, p.outcome) for p in found.pairs] == [
        ("a", "won"),
        ("c", "even"),
        ("b", "lost"),
    ]
    assert found.summary == "won 1 problem, lost 1, even on 1"
    with pytest.raises(TfgrpoError, match="no scored problem in common"):
        pairs_of({"a": [1.0]}, {"b": [1.0]}, ("v0", "v4"))


def test_a_changed_file_gives_no_ground_truth_and_says_so(folder: Path) -> None:
    for name, reads in (("p.jsonl", ()), ("held.jsonl", ("--eval", "HEAD"))):
        before = (folder / name).read_text()
        (folder / name).write_text(before.replace('"answer": ', '"answer": 1'))
        try:
            shown = run(folder, *reads, "--problem", "line-1")
        finally:
            (folder / name).write_text(before)
        assert "no ground truth: " in shown
        assert "has changed since" in shown
        assert "op" in shown.split("question ")[1].splitlines()[0], "the prompt still has it"


def test_python_reads_the_same(folder: Path) -> None:
    with Store.open(folder / ".tfgrpo/store.db") as store:
        version = store.head.version.number
        project = open_project(folder)
        found = evaluation_attempts(store, recorded_evaluation(store, version), project)
        assert "\nproblem" in found.by_problem().text()
        assert len(found.of(failed=True).attempts) == 0
        with pytest.raises(TfgrpoError, match="was not evaluated on other"):
            recorded_evaluation(store, version, "other")


def test_a_group_is_shown_with_its_prompt_its_comparison_and_what_was_decided(
    folder: Path,
) -> None:
    with Store.open(folder / ".tfgrpo/store.db") as store:
        run = store.runs.get("quick")
        found = run_attempts(store, run, open_project(folder))
        mixed = [group[0].problem for group in found.groups() if group[0].side]
        seen = [group_view(store, found.of(step=1, problem=problem), run) for problem in mixed]
    assert seen
    for view in seen:
        assert view.side("winner")
        assert view.side("loser")
        assert view.right == len(view.side("winner"))
        assert view.compared is not None
        assert (view.compared.right_did, view.compared.wrong_did) == ("added one", "did not")
        assert [text for text, _ in view.compared.lessons] == [SCRIPTED]
        comparison = view.compared.calls[0]
        assert comparison.stage == "comparison"
        assert any(view.question in text for _, text in comparison.asked)
        (decision,) = view.decisions
        assert decision.event.evidence is not None
        assert view.problem in decision.event.evidence["problems"]
        assert decision.event.op == "ADD"
        assert decision.is_kept
    assert len({view.decisions[0].event.row for view in seen}) == 1, "one plan for all groups"


def test_a_group_whose_lesson_was_measured_is_shown_with_what_became_of_it(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text(problems(range(6)))
    with ScriptedEndpoint(teachable) as server:
        sizes = {"epochs": 4, "batch_size": 6, "group_size": 6, "examples": False}
        where = {"model": "m", "base_url": server.base_url, "store": str(tmp_path)}
        tfgrpo.train_sync(str(tmp_path / "p.jsonl"), run="r", policy="probation", **sizes, **where)
    with Store.open(tmp_path / ".tfgrpo/store.db") as store:
        run = store.runs.get("r")
        found = run_attempts(store, run)
        events = [event for version in store.log("main") for event in store.events(version)]
        (promoted,) = [event for event in events if event.op == "ADD"]
        assert promoted.text == SCRIPTED
        (tried,) = store.library("r/candidates")
        assert tried.text == SCRIPTED, "what was promoted is not tried again"
        assert promoted.evidence is not None
        taught = found.of(step=1, problem=promoted.evidence["problem"])
        view = group_view(store, taught, run)
        later = [
            group_view(store, found.of(step=2, problem=p.problem), run)
            for p in found.of(step=2, sample=0).attempts
        ]
    assert view.compared is not None
    assert len(view.compared.calls) == 4, "it is asked four times"
    assert [text for text, _ in view.compared.lessons] == [SCRIPTED]
    tried, entered = view.decisions
    assert (tried.event.op, tried.event.text, tried.is_kept) == ("ADD", SCRIPTED, False)
    assert (entered.event.row, entered.is_kept) == (promoted.row, True)
    votes = [one for view in later for one in view.decisions]
    assert {(one.event.op, one.before, one.is_kept) for one in votes} == {("KEEP", SCRIPTED, False)}


def test_experiences_are_found_in_the_prompt_as_it_was_sent(folder: Path) -> None:
    with Store.open(folder / ".tfgrpo/store.db") as store:
        evaluation = recorded_evaluation(store, store.resolve("HEAD").number)
        found = evaluation_attempts(store, evaluation, open_project(folder))
        view = group_view(store, found.of(problem=found.attempts[0].problem))
        (experience,) = store.library("HEAD")
        sent = found.text(found.attempts[0]).prompt
    parts = [part for _, there in view.prompt for part in there]
    assert [part for part in parts if part.experience] == [
        PromptPart(experience.text, experience.id, "G0")
    ]
    assert view.compared is None
    assert view.decisions == ()
    texts = ["".join(part.text for part in there) for _, there in view.prompt]
    assert texts == [text for _, text in sent]


def test_the_longer_of_two_texts_that_begin_alike_is_the_one_in_the_prompt(tmp_path: Path) -> None:
    with Store.init(tmp_path / "store.db", author="tests") as store:
        texts = ("Add one.", "Add one. Then stop.", "Never (said) [x]+")
        store.commit("main", [Operation("ADD", text=text) for text in texts], message="some")
        library = store.library("HEAD")
    prompt = (("system", "[G1] Add one. Then stop.\n[G0] Add one.\n"), ("user", "Add two."))
    (_, system), (_, user) = highlighted(prompt, library)
    assert [part.label for part in system] == [None, "G1", None, "G0", None]
    assert [part.text for part in user] == ["Add two."]


def test_an_example_is_known_by_the_turn_that_asks_its_problem(tmp_path: Path) -> None:
    with Store.init(tmp_path / "store.db", author="tests") as store:
        texts = ("Add one.", "Example: Where is my card? → late")
        store.commit("main", [Operation("ADD", text=text) for text in texts], message="some")
        library = store.library("HEAD")
    prompt = rollout_messages(prompt_templates.load("rollout"), library, "Hello?", "Label it.")
    shown = [(role, [part.label for part in parts]) for role, parts in highlighted(prompt, library)]
    assert shown == [
        ("system", [None, "G0"]),
        ("user", ["G1"]),
        ("assistant", [None]),
        ("user", [None]),
    ]


def test_a_short_example_is_marked_in_its_own_turn_alone(tmp_path: Path) -> None:
    with Store.init(tmp_path / "store.db", author="tests") as store:
        store.commit("main", [Operation("ADD", text="Example: card → late")], message="some")
        library = store.library("HEAD")
    prompt = rollout_messages(
        prompt_templates.load("rollout"), library, "My card?", "Say card_late."
    )
    shown = [[part.label for part in parts] for _, parts in highlighted(prompt, library)]
    assert shown == [[None], ["G0"], [None], [None]]
    assert highlighted((), library) == ()


def test_attempts_are_chosen_by_what_became_of_them(folder: Path) -> None:
    told = rows(run(folder, "quick", "--outcome", "answered", "--json"))
    assert len(told) == 9
    with pytest.raises(AssertionError, match="no such rollouts"):
        run(folder, "quick", "--outcome", "truncated")
