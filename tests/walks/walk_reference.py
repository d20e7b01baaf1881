"""A user of the reference implementation: brings settings and a library along."""

from __future__ import annotations

from walking import Walk, main  # isort: split

from conftest import problems
from scripted import ScriptedEndpoint

PRACTICE = """\
# @package _global_
defaults: [_self_]
exp_id: sums
practice:
  epochs: 1
  batch_size: 4
  grpo_n: 3
  rollout_temperature: 0.7
  shuffle_data: true
data:
  practice_dataset_name: problems.jsonl
evaluation:
  pass_k: 2
  data: {dataset: AIME24}
  verify_filename: math.py
  agent:
    model:
      model_provider: {type: chat.completions, model: m, base_url: BASE_URL}
"""


def walk(walk: Walk) -> None:
    """From their files to a run here and an agent back."""
    with ScriptedEndpoint() as server:
        walk.write("practice.yaml", PRACTICE.replace("BASE_URL", server.base_url))
        walk.write("experiences.json", '{"G0": "Read the question twice."}')
        walk.write("problems.jsonl", problems(range(4)))
        walk.run("init")
        assert "shuffle_data" in walk.run("import", "reference-config", "practice.yaml")
        walk.run("import", "experiences.json")
        walk.run("train", "--run", "sums", "--keep-going")
        assert "learned" in walk.run("log", "-1") or "sums" in walk.run("log")
        walk.run("eval", "problems.jsonl")
        walk.run("export", "-o", "agent.yaml", "--name", "sums")
        assert "[G0]. Read the question twice." in (walk.folder / "agent.yaml").read_text()


if __name__ == "__main__":
    main(walk)
