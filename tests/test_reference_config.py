"""The reference implementation's configuration, translated: every setting, or a word about it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from conftest import Cli, one_line_error

from tfgrpo.interchange import UnreadableLibrary
from tfgrpo.interchange.formats.youtu_agent import without_secrets
from tfgrpo.interchange.reference_config import translated
from tfgrpo.settings import EvalSettings, TrainSettings, build

PRACTICE = """\
# @package _global_
defaults:
  - /eval/math/aime@evaluation
  - /eval/gone@other
  - _self_
exp_id: math_practice
practice:
  epochs: 2
  batch_size: 50
  grpo_n: 4
  rollout_concurrency: 64
  rollout_temperature: 0.8
  rollout_data_truncate: 200
  task_timeout: 900
  do_eval: true
  eval_strategy: epoch
  eval_data_truncate: 10
  restart_step: null
  shuffle_data: true
  given_ground_truth: false
  num_experiences_per_query: 1
  agent_objective: |
    input: a question
    output: an answer with "reasons"
  learning_objective: Guidelines.
data:
  practice_dataset_name: DAPO-Math-17k
"""
EVALUATION = """\
# @package _global_
defaults:
  - /agents/math_agent@agent
  - _self_
exp_id: aime
data:
  dataset: AIME24
concurrency: 32
pass_k: 16
verify_filename: math.py
verify_func_name: verify_func
"""
AGENT = """\
# @package _global_
model:
  model_provider:
    type: chat.completions
    model: some-model
    base_url: https://api.example.invalid/v1
    api_key: ${oc.env:UTU_LLM_API_KEY}
  model_settings:
    temperature: 0.3
    max_tokens: 8192
agent:
  name: math_agent
toolkits:
  python_executor:
    mode: builtin
    activated_tools: null
"""


@pytest.fixture
def configs(tmp_path: Path) -> Path:
    """A tree of configurations; returns the practice's."""
    for name, text in (
        ("practice/math.yaml", PRACTICE),
        ("eval/math/aime.yaml", EVALUATION),
        ("agents/math_agent.yaml", AGENT),
    ):
        path = tmp_path / "configs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "configs" / "practice" / "math.yaml"


def test_a_configuration_becomes_settings_that_are_taken(configs: Path) -> None:
    found = translated(configs)
    assert found.run == "math_practice"
    tables = tomllib.loads(found.toml)
    assert tables == {
        "model": {
            "model": "some-model",
            "base_url": "https://api.example.invalid/v1",
            "api_key_env": "UTU_LLM_API_KEY",
        },
        "train": {
            "data": "DAPO-Math-17k:200",
            "epochs": 2,
            "batch_size": 50,
            "group_size": 4,
            "concurrency": 64,
            "temperature": 0.8,
            "task_timeout": 900,
            "ground_truth": False,
            "agent_objective": 'input: a question\noutput: an answer with "reasons"',
            "learning_objective": "Guidelines.",
            "heldout": "AIME24",
            "heldout_problems": 10,
            "domain": "math",
            "max_tokens": 8192,
            "mode": "agent",
        },
        "eval": {"samples": 16, "concurrency": 32, "temperature": 0.3},
        "tools": {"use": ["python"]},
    }
    settings = build(TrainSettings, tables["train"], tables["model"], {"tools": tables["tools"]})
    assert settings.group_size == 4
    assert build(EvalSettings, tables["eval"], {"data": "x"}).samples == 16


INSTRUCTED = AGENT.replace(
    "  name: math_agent\n",
    "  name: math_agent\n  instructions: |\n    Think first.\n"
    "    End with <answer>\\boxed{4}</answer>.\n"
    "    Follow these:\n    [G0]. Count twice.\n    [G1]. Draw it.\n",
)


@pytest.mark.parametrize("where", ["max_turns: 20\n", "agent_max_turns: 20\n"])
def test_the_agents_instructions_and_turns_are_kept(configs: Path, where: str) -> None:
    agent = configs.parents[1] / "agents" / "math_agent.yaml"
    agent.write_text(INSTRUCTED + where)
    found = translated(configs)
    train = tomllib.loads(found.toml)["train"]
    assert train["turns"] == 20
    assert "Think first.\nEnd with <answer>\\boxed{4}</answer>." in train["agent_objective"]
    assert "Count twice" not in train["agent_objective"], "experiences are imported apart"
    assert train["agent_objective"].startswith("input: a question")
    assert any("2 experiences in the instructions" in line for line in found.left)


def test_what_has_no_counterpart_is_said_in_the_file_and_by_the_command(configs: Path) -> None:
    configs.write_text(PRACTICE + "korgym:\n  enabled: true\n")
    found = translated(configs)
    for key in ("shuffle_data", "eval_strategy", "num_experiences_per_query", "korgym.enabled"):
        assert any(key in line for line in found.left), key
        assert key in found.toml
    assert any("/eval/gone@other: no such file" in line for line in found.left)


def test_a_key_in_the_file_is_not_copied_and_variables_are_named(configs: Path) -> None:
    agent = configs.parents[1] / "agents" / "math_agent.yaml"
    agent.write_text(
        AGENT.replace("${oc.env:UTU_LLM_API_KEY}", "sk-abcdefgh").replace(
            "some-model", "${oc.env:UTU_LLM_MODEL}"
        )
    )
    found = translated(configs)
    assert "sk-abcdefgh" not in found.toml + "".join(found.left)
    assert any("a key stands in the file" in line for line in found.left)
    assert any("$UTU_LLM_MODEL" in line for line in found.left)


def test_their_hundred_and_another_verifier(configs: Path) -> None:
    configs.write_text(PRACTICE.replace("DAPO-Math-17k", "DAPO-100").replace("200", "null"))
    evaluation = configs.parents[1] / "eval" / "math" / "aime.yaml"
    evaluation.write_text(EVALUATION.replace("math.py", "logic.py"))
    found = translated(configs)
    assert tomllib.loads(found.toml)["train"]["data"] == "dapo-math-17k:100@seed0"
    assert "domain" not in tomllib.loads(found.toml)["train"]
    assert any("logic.py: write it as a domain" in line for line in found.left)


def test_what_is_no_practice_is_refused_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    for content, said in (
        ("agent:\n  name: x\n", "has no practice settings"),
        ("practice: [\n", r"x\.yaml:2: not YAML"),
        ("a: &a 1\npractice: *a\n", r"x\.yaml:2: .*aliases"),
    ):
        file.write_text(content)
        with pytest.raises(UnreadableLibrary, match=said) as caught:
            translated(file)
        assert caught.value.hint
    with pytest.raises(UnreadableLibrary, match="cannot read"):
        translated(tmp_path / "gone.yaml")


def test_the_command_writes_settings_and_never_over_others(
    cli: Cli, tmp_path: Path, configs: Path
) -> None:
    dry = cli("import", "reference-config", str(configs), "--dry-run").stdout
    assert "group_size = 4" in dry
    assert not (tmp_path / "tfgrpo.toml").exists()
    said = cli("import", "reference-config", str(configs)).stdout
    assert "wrote tfgrpo.toml" in said
    assert "tfgrpo train --run math_practice" in said
    assert "practice.shuffle_data" in said
    assert tomllib.loads((tmp_path / "tfgrpo.toml").read_text())["train"]["group_size"] == 4
    again = cli("import", "reference-config", str(configs), ok=False)
    one_line_error(again, "there is already a tfgrpo.toml", "--dry-run")


def test_the_settings_are_written_where_the_store_is(
    cli: Cli, tmp_path: Path, configs: Path
) -> None:
    (tmp_path / "deep").mkdir()
    cli("init")
    said = cli("-C", "deep", "import", "reference-config", str(configs.absolute())).stdout
    assert "wrote ../tfgrpo.toml" in said
    assert (tmp_path / "tfgrpo.toml").exists()
    assert not (tmp_path / "deep/tfgrpo.toml").exists()


def test_no_key_is_copied_wherever_it_stands(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(
        "practice:\n  epochs: 2\n"
        "evaluation:\n  judge_model:\n    model_provider:\n      api_key: sk-REALKEY1234567890\n"
        "agent:\n  toolkits:\n    search:\n      env:\n        SERPER_API_KEY: abcd-serper-key\n"
        "        clientSecret: hush-hush\n      url: postgresql://ann:hunter2@db/prod\n"
    )
    found = translated(file)
    told = found.toml + "\n".join(found.left)
    assert not [w for w in ("REALKEY", "abcd-serper", "hush-hush", "hunter2") if w in told]
    assert "a key or a password, which is not copied" in told


def test_no_key_of_a_toolkit_is_kept() -> None:
    arguments = ["-m", "server", "postgresql://ann:hunter2@db/prod", "--key", "abcdefghijkl"]
    config = {
        "mcp": {"args": [*arguments, "--api-key=qwertyuiop", "--verbose"], "clientSecret": "hush"},
        "env": {"openaiApiKey": "zxcvbnm", "maxTokens": 5},
    }
    removed: list[str] = []
    kept = without_secrets(config, "", removed)
    expected = {"mcp": {"args": ["-m", "server", "--key", "--verbose"]}, "env": {"maxTokens": 5}}
    assert kept == expected
    assert set(removed) == {
        *("mcp.args.2", "mcp.args.4", "mcp.args.5", "mcp.clientSecret", "env.openaiApiKey"),
    }
