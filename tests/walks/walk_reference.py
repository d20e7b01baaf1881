"""A user of the reference implementation: brings settings and a library along."""

from __future__ import annotations

from walking import Walk, main  # isort: split

from conftest import problems
from scripted import ScriptedEndpoint

SETTINGS = """\
[model]
model = "m"
base_url = "BASE_URL"
[train]
data = "problems.jsonl"
epochs = 1
batch_size = 4
group_size = 3
temperature = 0.7
[eval]
samples = 2
"""


def walk(walk: Walk) -> None:
    """From their files to a run here and an agent back."""
    with ScriptedEndpoint() as server:
        walk.write("experiences.json", '{"G0": "Read the question twice."}')
        walk.write("problems.jsonl", problems(range(4)))
        walk.run("init")
        walk.write("tfgrpo.toml", SETTINGS.replace("BASE_URL", server.base_url))
        walk.run("import", "experiences.json")
        walk.run("train", "--run", "sums", "--keep-going")
        assert "learned" in walk.run("log", "-1") or "sums" in walk.run("log")
        walk.run("eval", "problems.jsonl")
        walk.run("export", "-o", "agent.yaml", "--name", "sums")
        assert "[G0]. Read the question twice." in (walk.folder / "agent.yaml").read_text()


if __name__ == "__main__":
    main(walk)
