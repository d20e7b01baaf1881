"""`train`, `eval` and `runs` against a model on loopback, as a person meets them."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from conftest import TFGRPO, Cli, environment, one_line_error, problems
from scripted import LESSON, Reply, ScriptedEndpoint, teachable
from waiting import until

from tfgrpo.learn.run_setup import PACE, RunChoice, plan_choice
from tfgrpo.model.settings import ModelSettings
from tfgrpo.project import open_project
from tfgrpo.settings import TrainSettings, option_of
from tfgrpo.store import Store
from tfgrpo.store.errors import SettingsError

SMALL = ("--epochs", "1", "--batch-size", "4", "--model", "m")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Twelve problems to learn from, and twelve others."""
    (tmp_path / "problems.jsonl").write_text(problems(range(12)))
    (tmp_path / "heldout.jsonl").write_text(problems(range(20, 32)))
    return tmp_path


def train(cli: Cli, endpoint: ScriptedEndpoint, *more: str, ok: bool = True) -> str:
    arguments = ("train", "problems.jsonl", *SMALL, "--base-url", endpoint.base_url, *more)
    done = cli(*arguments, ok=ok)
    return done.stdout + done.stderr


def test_training_learns_tags_its_steps_and_checks_out_the_last(
    cli: Cli, data: Path, endpoint: ScriptedEndpoint
) -> None:
    said = train(cli, endpoint)
    assert "learned 1 experience in 3 versions; step_3 is checked out" in said
    assert json.loads((data / ".tfgrpo/experiences.json").read_text()) == {"G0": LESSON}
    tags = json.loads(cli("tag", "--json").stdout)["tags"]
    assert tags == {f"problems/step_{n}": n for n in range(4)}


def test_every_event_says_who_taught_it(cli: Cli, data: Path, endpoint: ScriptedEndpoint) -> None:
    train(cli, endpoint)
    shown = json.loads(cli("show", "step_1", "--json").stdout)
    for event in shown["events"]:
        evidence = event["evidence"]
        assert event["reason"]
        assert evidence["run"] == "problems"
        assert len(evidence["rollouts"]) == 5
        assert set(evidence["prompts"]) == {"rollout", "summary", "comparison", "plan"}


def test_a_step_that_learned_nothing_makes_a_version_that_says_so(
    cli: Cli, data: Path, endpoint: ScriptedEndpoint
) -> None:
    assert "nothing learned" in train(cli, endpoint)
    assert json.loads(cli("log", "-n", "1", "--json").stdout)[0]["version"] == "v3"


def test_the_same_command_again_shows_a_finished_run_and_asks_for_nothing(
    cli: Cli, data: Path, endpoint: ScriptedEndpoint
) -> None:
    first = train(cli, endpoint, "--heldout", "heldout.jsonl")
    asked = len(endpoint.requests)
    for more in ((), ("--run", "problems")):
        again = train(cli, endpoint, "--heldout", "heldout.jsonl", *more)
        assert "run problems is finished; --new begins another" in again
        assert "learned 1 experience in 3 versions; step_3 is checked out" in again
    assert "run problems is finished" in cli("train", "--resume", "problems").stdout
    assert len(endpoint.requests) == asked
    assert "finished" not in first
    (run,) = json.loads(cli("runs", "--json").stdout)
    assert (run["name"], run["state"]) == ("problems", "finished")


def test_another_run_of_the_same_settings_begins_when_it_is_asked_for(
    cli: Cli, data: Path, endpoint: ScriptedEndpoint
) -> None:
    train(cli, endpoint)
    assert "run problems-2" in train(cli, endpoint, "--new", "--keep-going")
    assert [r["name"] for r in json.loads(cli("runs", "--json").stdout)] == [
        "problems",
        "problems-2",
    ]


def test_the_held_out_comparison_is_against_the_empty_library(
    cli: Cli, data: Path, endpoint: ScriptedEndpoint
) -> None:
    said = train(cli, endpoint, "--heldout", "heldout.jsonl")
    assert "v3 - v0: +" in said
    assert said.count("better") == 1


def test_evaluations_stick_to_their_version_and_are_not_paid_for_twice(
    cli: Cli, data: Path, endpoint: ScriptedEndpoint
) -> None:
    train(cli, endpoint)
    arguments = ("eval", "heldout.jsonl", "--samples", "4", "--against", "v0")
    first = cli(*arguments).stdout
    calls = len(endpoint.requests)
    assert cli(*arguments).stdout == first
    assert len(endpoint.requests) == calls
    assert "mean@4 1.000" in cli("log", "-n", "1").stdout
    found = json.loads(cli(*arguments, "--json").stdout)
    assert found["differences"][0]["verdict"] == "better"


def test_an_evaluation_before_any_run_attempts_problems_as_the_run_will(
    cli: Cli, data: Path, endpoint: ScriptedEndpoint
) -> None:
    (data / "tfgrpo.toml").write_text(
        f'[model]\nmodel = "m"\nbase_url = "{endpoint.base_url}"\n'
        '[train]\ndata = "train.jsonl"\nagent_objective = "Count."\nmax_tokens = 77\n'
        "[eval]\nsamples = 1\n"
    )
    cli("init")
    cli("eval", "heldout.jsonl")
    request = endpoint.requests[-1]
    assert "Count." in request["messages"][0]["content"]
    assert request["max_tokens"] == 77


def test_shells_complete_revisions_and_experiences(
    cli: Cli, data: Path, endpoint: ScriptedEndpoint
) -> None:
    train(cli, endpoint)

    def offered(typed: str) -> list[str]:
        words = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
        done = cli(env={"_TFGRPO_COMPLETE": "bash_complete", **words})
        return [line.partition(",")[2] for line in done.stdout.splitlines()]

    assert offered("tfgrpo show st") == ["step_0", "step_1", "step_2", "step_3"]
    assert offered("tfgrpo diff ma") == ["main"]
    assert offered("tfgrpo show G") == ["G0"]
    assert set(offered("tfgrpo che")) == {"checkout", "cherry-pick"}


def test_settings_come_from_the_file_beside_the_store_and_flags_win(
    cli: Cli, data: Path, endpoint: ScriptedEndpoint
) -> None:
    (data / "tfgrpo.toml").write_text(
        f"""
        [model]
        model = "m"
        base_url = "{endpoint.base_url}"

        [train]
        data = "problems.jsonl"
        epochs = 2
        batch_size = 6
        """
    )
    cli("init")
    assert "learned 1 experience in 2 versions" in cli("train", "--epochs", "1").stdout


def test_objectives_reach_the_prompts(cli: Cli, data: Path, endpoint: ScriptedEndpoint) -> None:
    train(cli, endpoint, "--agent-objective", "AGENTGOAL", "--learning-objective", "LEARNINGGOAL")
    texts = [json.dumps(request["messages"]) for request in endpoint.requests]
    assert all("AGENTGOAL" in text for text in texts if "op" in text and "What is" in text)
    assert any("LEARNINGGOAL" in text for text in texts)


@pytest.mark.parametrize(
    ("policy", "idle"),
    [
        ("probation", ["comparison", "plan", "reconcile", "answer", "lessons"]),
        ("paper", ["lesson", "reconcile", "answer", "lessons"]),
    ],
)
def test_prompts_that_a_policy_does_not_ask_are_told_of_at_the_start(
    cli: Cli, data: Path, endpoint: ScriptedEndpoint, policy: str, idle: list[str]
) -> None:
    folder = data / "mine"
    folder.mkdir()
    for name in ("rollout", "summary", "lesson", "comparison", "plan", "reconcile", "answer"):
        text = resources.files("tfgrpo.prompts").joinpath(f"{name}.md").read_text("utf-8")
        (folder / f"{name}.md").write_text(text)
    (folder / "lessons.md").write_text(text)
    flags = ("--base-url", endpoint.base_url, "--model", "m", "--prompts", "mine")
    told = cli("train", "problems.jsonl", *flags, "--policy", policy, "--estimate").stderr
    said = " ".join(told.split())
    assert [name for name in idle if f"mine/{name}.md has no effect" in said] == idle
    assert said.count("has no effect") == len(idle)


@pytest.mark.parametrize(
    ("options", "idle"),
    [
        (["--policy", "paper", "--no-examples"], ["--no-examples has no effect"]),
        (["--policy", "probation", "--no-examples"], []),
        (["--policy", "base-prompt", "--no-examples"], []),
        (["--gate-rule", "not-worse"], ["--gate-rule has no effect"]),
        (["--gate-rule", "not-worse", "--gate", "problems.jsonl"], []),
    ],
)
def test_settings_that_nothing_reads_are_told_of_at_the_start(
    cli: Cli, data: Path, endpoint: ScriptedEndpoint, options: list[str], idle: list[str]
) -> None:
    flags = ("--base-url", endpoint.base_url, "--model", "m", "--estimate")
    said = " ".join(cli("train", "problems.jsonl", *flags, *options).stderr.split())
    assert said.count("has no effect") == len(idle)
    assert all(words in said for words in idle)


def test_prompts_can_be_overridden_by_a_folder(
    cli: Cli, data: Path, endpoint: ScriptedEndpoint
) -> None:
    (data / "mine").mkdir()
    (data / "mine/rollout.md").write_text(
        "<!-- system -->\nMYPROMPT {{library}}\n<!-- user -->\n{{problem}}\n"
    )
    train(cli, endpoint, "--prompts", "mine")
    rollouts = [r for r in endpoint.requests if r["messages"][-1]["content"][:7] == "What is"]
    assert rollouts
    assert all("MYPROMPT" in r["messages"][0]["content"] for r in rollouts)


def test_paths_in_a_record_hold_in_any_folder_of_the_project(
    cli: Cli, data: Path, endpoint: ScriptedEndpoint
) -> None:
    import tfgrpo

    (data / "mine").mkdir()
    (data / "mine/rollout.md").write_text(
        "<!-- system -->\nMYPROMPT {{library}}\n<!-- user -->\n{{problem}}\n"
    )
    cli("init")
    below = data / "below"
    below.mkdir()
    flags = (*SMALL, "--base-url", endpoint.base_url, "--prompts", "../mine")
    done = start(below, "train", "../problems.jsonl", *flags, "--heldout", "../heldout.jsonl")
    out, err = done.communicate(timeout=240)
    assert done.returncode == 0, err
    assert "step_3 is checked out" in out
    rollouts = [r for r in endpoint.requests if r["messages"][-1]["content"].startswith("What is")]
    assert rollouts
    assert all("MYPROMPT" in r["messages"][0]["content"] for r in rollouts)
    library = tfgrpo.library(store=data / ".tfgrpo/store.db")
    assert "MYPROMPT" in library.render("x")[0]["content"]
    (run,) = json.loads(cli("runs", "--json").stdout)
    assert (run["config"]["data"], run["config"]["prompts"]) == ("problems.jsonl", "mine")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"problem": "What is 1 op 2?"}\n', "problems.jsonl:1: no 'answer'"),
        ('{"answer": 3}\n', "problems.jsonl:1: no 'problem'"),
        ('{"problem": "a", "answer": 1}\nnot json\n', "problems.jsonl:2: not JSON"),
        ('{"problem": "a", "answer": "\\\\frac{"}\n', "cannot parse the answer"),
        ("\n", "contains no problems"),
    ],
)
def test_a_bad_dataset_is_named_by_line_before_anything_is_spent(
    cli: Cli, data: Path, endpoint: ScriptedEndpoint, content: str, said: str
) -> None:
    (data / "problems.jsonl").write_text(content)
    done = cli("train", "problems.jsonl", *SMALL, "--base-url", endpoint.base_url, ok=False)
    one_line_error(done, said)
    assert not endpoint.requests


def test_a_missing_dataset_is_named(cli: Cli, endpoint: ScriptedEndpoint) -> None:
    done = cli("train", "nowhere.jsonl", *SMALL, "--base-url", endpoint.base_url, ok=False)
    one_line_error(done, "no file nowhere.jsonl")


def test_without_a_key_the_hint_names_the_ways_out(cli: Cli, data: Path) -> None:
    done = cli("train", "problems.jsonl", "--model", "big", ok=False)
    one_line_error(done, "no API key", "local:")


def refusing(status: int, message: str) -> Reply:
    return Reply({"error": {"message": message}}, status)


def test_a_refused_key_is_told_without_the_key(cli: Cli, data: Path) -> None:
    secret = "sk-verysecret123"
    with ScriptedEndpoint(lambda _: refusing(401, f"Incorrect API key: {secret}")) as endpoint:
        done = cli(
            "train",
            "problems.jsonl",
            *SMALL,
            "--base-url",
            endpoint.base_url,
            "--api-key-env",
            "OPENAI_API_KEY",
            ok=False,
            env={"OPENAI_API_KEY": secret},
        )
        assert endpoint.keys[0] == f"Bearer {secret}"
    one_line_error(done, "refused the key")
    assert secret not in done.stdout + done.stderr
    for file in (data / ".tfgrpo").rglob("*"):
        assert not file.is_file() or secret.encode() not in file.read_bytes()


def test_a_model_that_does_not_exist_is_named(cli: Cli, data: Path) -> None:
    with ScriptedEndpoint(lambda _: refusing(404, "model not found")) as endpoint:
        done = cli("train", "problems.jsonl", *SMALL, "--base-url", endpoint.base_url, ok=False)
    one_line_error(done, "no model 'm'", "--model")


def mortal(answers: int) -> Any:
    """A model that answers so many requests and no more."""
    left = iter(range(answers))

    def script(request: dict[str, Any]) -> Any:
        if next(left, None) is None:
            return Reply({"error": {"message": "no such model"}}, status=404)
        return teachable(request)

    return script


def test_a_dead_endpoint_leaves_nothing_that_was_not_begun(cli: Cli, data: Path) -> None:
    done = cli("train", "problems.jsonl", *SMALL, "--base-url", "http://127.0.0.1:9/v1", ok=False)
    one_line_error(done, "gave up", "same command")
    assert "0 runs" in cli("status").stdout


def test_an_endpoint_that_dies_stops_the_run_and_keeps_it(cli: Cli, data: Path) -> None:
    with ScriptedEndpoint(mortal(5)) as endpoint:
        where = ("--base-url", endpoint.base_url)
        done = cli("train", "problems.jsonl", *SMALL, *where, ok=False)
    assert done.returncode == 1
    assert "--resume problems" in cli("status").stdout


def test_a_run_that_is_resumed_takes_another_pace(cli: Cli, data: Path) -> None:
    with ScriptedEndpoint(mortal(5)) as endpoint:
        where = ("--base-url", endpoint.base_url, "--patience", "0.5")
        cli("train", "problems.jsonl", *SMALL, *where, ok=False)
    with Store.open(data) as store:
        run = store.runs.get("problems")
        plan = partial(plan_choice, store, open_project(data), choice=RunChoice(resume=run.name))
        pace: dict[str, Any] = {"concurrency": 3, "patience": 900.0, "verify_timeout": 20.0}
        settings = plan(given={**pace, "data": None})[0].settings
        assert {name: getattr(settings, name) for name in PACE} == pace
        assert plan(given={})[0].settings.patience == 0.5
        with pytest.raises(SettingsError, match="patience"):
            plan(given={"patience": -1})
    assert cli("train", "--resume", "problems", "--patience", "9", "--estimate").stdout


def test_a_run_that_is_resumed_takes_no_other_setting(cli: Cli, data: Path) -> None:
    """Each setting that has an option: the value on record goes, and any other is refused."""
    with ScriptedEndpoint(mortal(5)) as endpoint:
        where = ("--base-url", endpoint.base_url, "--patience", "0.5")
        cli("train", "problems.jsonl", *SMALL, *where, ok=False)
    (data / "other.jsonl").write_text((data / "problems.jsonl").read_text())
    others: dict[str, Any] = {
        "domain": "exact",
        "policy": "base-prompt",
        "mode": "agent",
        "answers": "exact",
        "gate_rule": "not-worse",
        "fields": {"id": "name"},
        "api_key_env": "OTHER_KEY",
        "reflection_api_key_env": "OTHER_KEY",
        "heldout_problems": 3,
        "library_tokens": 64,
        "base_url": "http://127.0.0.1:9/v1",
        "reflection_base_url": "http://127.0.0.1:9/v1",
    }
    with Store.open(data) as store:
        run = store.runs.get("problems")
        plan = partial(plan_choice, store, open_project(data), choice=RunChoice(resume=run.name))
        recorded = TrainSettings(**run.config)
        names = 0
        for record, holder in ((TrainSettings, recorded), (ModelSettings, recorded.models)):
            for name in record.model_fields.keys() - set(PACE):
                value = getattr(holder, name)
                if option_of(record, name) is None:
                    continue
                if isinstance(value, bool):
                    other: object = not value
                elif isinstance(value, int | float):
                    other = value + 1
                else:
                    other = others.get(name, "other.jsonl")
                with pytest.raises(SettingsError, match=f"another value of {name} "):
                    plan(given={name: other})
                assert plan(given={name: value})[0].settings == recorded, name
                names += 1
        assert names > 30
        for key in ("run", "answer_file"):
            with pytest.raises(SettingsError, match="agent"):
                plan(given={"agent": {key: "other"}})
        for preset in ("paper", "fit"):  # SMALL is the paper's
            assert plan(given={"preset": preset, "data": str(data / "problems.jsonl")})
        with pytest.raises(SettingsError, match="policy"):
            plan(given={"preset": "fit", "policy": "probation"})
    for options in (("--epochs", "9"), ("--new",), ("--run", "x"), ("--policy", "probation")):
        done = cli("train", "--resume", "problems", *options, ok=False)
        assert done.returncode == 2, done.stderr
    done = cli("train", "other.jsonl", "--resume", "problems", ok=False)
    assert done.returncode == 2
    assert "another value of data" in done.stderr


@pytest.mark.parametrize("stopped_by", ["its budget", "an outage"])
def test_a_new_run_that_is_stopped_is_named_and_goes_on_as_the_hint_says(
    cli: Cli, data: Path, stopped_by: str
) -> None:
    def dying(request: dict[str, Any]) -> Any:
        if stopped_by == "an outage" and len(endpoint.requests) > 5 and not back:
            return Reply({"error": {"message": "down"}}, status=503)
        return teachable(request)

    back: list[bool] = []
    least = ("--budget", "900tok") if stopped_by == "its budget" else ("--patience", "0.5")
    with ScriptedEndpoint(dying) as endpoint:
        where = ("--base-url", endpoint.base_url, "--max-tokens", "64")
        asked = ("train", "problems.jsonl", *SMALL, *where, "--new")
        done = cli(*asked, *least, ok=False)
        resume = "tfgrpo train --resume problems"
        larger = " --budget …`, a larger one," if stopped_by == "its budget" else "`"
        one_line_error(done, f"every answer is saved; `{resume}{larger} goes on")
        back.append(True)
        before = len(endpoint.requests)
        cli(*resume.split()[1:], "--budget", "1Mtok")
        assert len(endpoint.requests) > before > 0
    assert [one["name"] for one in json.loads(cli("runs", "--json").stdout)] == ["problems"]


def test_a_pasted_key_is_not_repeated(cli: Cli, data: Path) -> None:
    done = cli("train", "problems.jsonl", "--api-key-env", "sk-pasted-key-1", ok=False)
    assert "sk-pasted" not in done.stdout + done.stderr
    assert done.returncode == 2


def test_a_changed_dataset_does_not_go_on_with_an_old_run(cli: Cli, data: Path) -> None:
    with ScriptedEndpoint(mortal(5)) as endpoint:
        cli("train", "problems.jsonl", *SMALL, "--base-url", endpoint.base_url, ok=False)
    (data / "problems.jsonl").write_text(problems(range(5)))
    one_line_error(cli("train", "--resume", "problems", ok=False), "has changed", "--new")


def start(data: Path, *arguments: str, **popen: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [TFGRPO, *arguments],
        cwd=data,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **popen,  # type: ignore[call-overload]
    )


def test_ctrl_c_tells_how_to_go_on_and_loses_nothing(cli: Cli, data: Path) -> None:
    with ScriptedEndpoint(delay=0.1) as endpoint:
        flags = (*SMALL, "--base-url", endpoint.base_url, "--concurrency", "4")
        running = start(data, "train", "problems.jsonl", *flags)
        until(lambda: sum(endpoint.stages.values()) > 10)
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=120)
        assert running.returncode == 130
        assert "tfgrpo train --resume problems" in err
        assert "Traceback" not in err
        endpoint.delay = 0.0
        assert "step_3 is checked out" in cli("train", "--resume", "problems").stdout


def test_after_kill_9_the_same_command_goes_on_and_repeats_no_recorded_call(
    cli: Cli, data: Path
) -> None:
    import sqlite3

    with ScriptedEndpoint(delay=0.05) as endpoint:
        flags = (*SMALL, "--base-url", endpoint.base_url, "--concurrency", "4")
        running = start(data, "train", "problems.jsonl", *flags)
        until(lambda: sum(endpoint.stages.values()) > 30)
        running.kill()
        running.communicate()
        with sqlite3.connect(data / ".tfgrpo/store.db") as db:
            (recorded,) = db.execute("select count(*) from journal").fetchone()
        assert "is interrupted" in cli("status").stdout
        asked = len(endpoint.requests)
        endpoint.delay = 0.0
        said = cli("train", "problems.jsonl", *flags).stdout
        assert "resumed" in said
        assert "step_3 is checked out" in said
        with sqlite3.connect(data / ".tfgrpo/store.db") as db:
            (all_calls,) = db.execute("select count(*) from journal").fetchone()
        assert recorded > 20
        assert len(endpoint.requests) - asked == all_calls - recorded


def test_one_run_is_worked_on_by_one_process(cli: Cli, data: Path) -> None:
    with ScriptedEndpoint(delay=0.2) as endpoint:
        flags = (*SMALL, "--base-url", endpoint.base_url, "--concurrency", "2")
        running = start(data, "train", "problems.jsonl", *flags)
        try:
            until(lambda: len(endpoint.requests) > 2)
            done = cli("train", "--resume", "problems", ok=False)
            one_line_error(done, "running in another process")
            assert "is running" in cli("status").stdout
        finally:
            running.kill()
            running.communicate()


def test_a_full_disk_is_told_and_what_is_there_stays(
    cli: Cli, data: Path, endpoint: ScriptedEndpoint
) -> None:
    cli("init")
    size = (data / ".tfgrpo/store.db").stat().st_size

    def small_files() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 60_000, size + 60_000))

    running = start(
        data,
        "train",
        "problems.jsonl",
        *SMALL,
        "--base-url",
        endpoint.base_url,
        preexec_fn=small_files,
    )
    _, err = running.communicate(timeout=240)
    assert running.returncode == 1
    assert err.count("error: ") == 1
    assert "Traceback" not in err
    assert "hint: free some space" in err
    assert "step_3 is checked out" in train(cli, endpoint)


def test_output_that_is_no_terminal_has_no_escapes(
    cli: Cli, data: Path, endpoint: ScriptedEndpoint
) -> None:
    assert "\x1b" not in train(cli, endpoint, "--heldout", "heldout.jsonl")


def test_the_library_is_three_lines_away_in_python(
    cli: Cli, data: Path, endpoint: ScriptedEndpoint
) -> None:
    import tfgrpo

    train(cli, endpoint, "--agent-objective", "Be brief.")
    library = tfgrpo.library("step_1", store=data / ".tfgrpo/store.db")
    assert library.prompt() == f"[G0] {LESSON}"
    system, user = library.render("What is 1 op 1?")
    assert LESSON in system["content"]
    assert "Be brief." in system["content"]
    assert user == {"role": "user", "content": "What is 1 op 1?"}


def test_a_sandbox_that_is_not_the_strongest_says_so_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tfgrpo.rollout.agent_loop import sandbox_warnings
    from tfgrpo.settings import TrainSettings, build
    from tfgrpo.tools import sandbox

    asked, bubblewrap = build(TrainSettings, {"data": "x", "mode": "agent"}), sandbox.bubblewrap()
    monkeypatch.setattr(sandbox, "bubblewrap", lambda: None)
    assert "".join(sandbox_warnings(asked)).count("--sandbox require refuses that") == 1
    if bubblewrap is None:
        pytest.skip("the strongest is bubblewrap, which is not installed")
    monkeypatch.setattr(sandbox, "bubblewrap", lambda: bubblewrap)
    assert sandbox_warnings(asked) == []
    assert sandbox_warnings(build(TrainSettings, {"data": "x"})) == []
