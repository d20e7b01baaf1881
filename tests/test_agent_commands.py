"""Agents that are commands: a process for each attempt, its limits, its workspace, its reward."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import ROOT, Cli, alive, one_line_error
from scripted import ScriptedEndpoint, write_problems
from test_agent_gateway import Rig, looks_up, rigged
from waiting import until_so
from wires import WireEndpoint

import tfgrpo
from tfgrpo.agents.agent_attempts import AgentRollout, by_agent
from tfgrpo.agents.agent_settings import AgentSettings
from tfgrpo.agents.command_agent import GIVEN, _read_output, command_from, read_reward
from tfgrpo.agents.user_program import MARK, Limits, Task, run
from tfgrpo.agents.workspace import SHOWN, Workspace
from tfgrpo.domains.base import Domain, Trajectory, Verdict
from tfgrpo.domains.verifier import Verifier
from tfgrpo.model import secrets
from tfgrpo.rollout.attempt import Rollout, attempt
from tfgrpo.store.canonical import canonical
from tfgrpo.store.errors import SettingsError
from tfgrpo.tools.session_bounds import remove_scratch

pytestmark = pytest.mark.skipif(os.name != "posix", reason="process groups")
PYTHON = sys.executable


async def right(context: Any, trajectory: Trajectory) -> Verdict:
    return Verdict(float(trajectory.response == "12"), trajectory.response, "")


DOMAIN = Domain(name="x", verify=right)


def script(folder: Path, text: str, name: str = "agent.py") -> str:
    (folder / name).write_text(textwrap.dedent(text))
    return f"{PYTHON} {name}"


def made(rig: Rig, root: Path, seconds: float = 20.0, **settings: Any) -> Rollout:
    """Makes one attempt by a command and judges it."""
    domain = by_agent(DOMAIN, AgentSettings(**settings), root, {}, 4)
    assert isinstance(domain.rollout, AgentRollout)

    async def run() -> Rollout:
        try:
            async with domain.rollout.opened(seconds) as rollout:  # type: ignore[attr-defined]
                from dataclasses import replace

                return await attempt(replace(domain, rollout=rollout), rig.context())
        finally:
            await rig.calls.endpoint.close()

    return asyncio.run(run())


@pytest.fixture
def rig(tmp_path: Path, verifier: Verifier) -> Any:
    with WireEndpoint(looks_up) as server, rigged(tmp_path, server, verifier) as opened:
        yield opened


def left() -> list[int]:
    """The processes of attempts that still run."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            environment = (entry / "environ").read_bytes()
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        of_tests = f"TEST_OF={os.getpid()}".encode() in environment.split(b"\0")
        if of_tests and f"{MARK}=attempt-".encode() in environment and state not in "ZX":
            found.append(int(entry.name))
    return found


@pytest.fixture(autouse=True)
def marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_OF", str(os.getpid()))


def test_what_is_printed_is_the_answer_or_the_last_line_is_json(rig: Rig, tmp_path: Path) -> None:
    told = {"answer": 12, "usage": {"prompt_tokens": 7, "completion_tokens": 2}}
    plain = script(tmp_path, "print('some'); print('words')")
    assert made(rig, tmp_path, run=plain).response == "some\nwords"
    last = script(tmp_path, f"print('log'); print({json.dumps(told)!r})", "last.py")
    found = made(rig, tmp_path, run=last)
    assert (found.response, found.reward) == ("12", 1.0)
    assert not found.calls, "its own rollout counts what is told, with the run's"


def test_tokens_by_other_names_count_and_usage_without_any_is_refused() -> None:
    counted: list[dict[str, int]] = []
    context: Any = SimpleNamespace(record=lambda answer, **tokens: counted.append(tokens))

    def told(**usage: int) -> None:
        _read_output(json.dumps({"answer": "12", "usage": usage}), context)

    told(input_tokens=7, output_tokens=2, cache_read_input_tokens=3)
    told(prompt_tokens=10, completion_tokens=2, cached_tokens=3)
    assert counted[0] == counted[1]
    assert counted[0] == {"prompt_tokens": 10, "completion_tokens": 2, "cached_tokens": 3}
    told(input_tokens=50, cache_read_input_tokens=100_000, cache_creation_input_tokens=20_000)
    assert counted[2] == {
        "prompt_tokens": 120_050,
        "completion_tokens": 0,
        "cached_tokens": 100_000,
    }, "Anthropic counts what was in a cache, or came into it, beside the others"
    told(prompt_tokens=9, cache_read_input_tokens=3)
    told(input_tokens=9, cached_tokens=3)
    assert counted[3] == counted[4]
    assert counted[3] == {"prompt_tokens": 9, "completion_tokens": 0, "cached_tokens": 3}
    with pytest.raises(SettingsError, match="says nothing of tokens: total"):
        told(total=9)


def test_a_store_is_no_part_of_a_workspace(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / ".tfgrpo").mkdir()
    (tmp_path / ".tfgrpo" / "store.db").write_text("1")
    workspace = Workspace(tmp_path, 1 << 20)
    (tmp_path / ".tfgrpo" / "store.db").write_text("22")
    assert Workspace(tmp_path, 1 << 20).identity == workspace.identity
    copy = workspace.copy()
    try:
        assert [one.name for one in copy.iterdir()] == ["a.txt"]
        (copy / ".tfgrpo").mkdir()
        assert workspace.changes(copy) == {}
    finally:
        remove_scratch(copy)


def test_half_a_character_of_a_command_or_a_files_name_is_a_question_mark(
    rig: Rig, tmp_path: Path
) -> None:
    (tmp_path / "work").mkdir()
    text = """
    open(b"caf\\xe9.txt", "w").write("x")
    print('{"answer": "caf\\\\udce9", "messages": [{"role": "assistant", "content": "\\\\udce9"}]}')
    """
    found = made(rig, tmp_path, run=script(tmp_path, text), workspace="work")
    assert found.response == "caf?"
    canonical(list(found.messages))
    assert "caf?.txt" in str(found.messages[-1]["content"])


@pytest.mark.parametrize("usage", [10**30, -(10**30)])
def test_usage_beyond_all_bounds_costs_its_own_attempt(
    rig: Rig, tmp_path: Path, usage: int
) -> None:
    told = {"answer": "12", "usage": {"prompt_tokens": usage}}
    found = made(rig, tmp_path, run=script(tmp_path, f"print({json.dumps(told)!r})"))
    assert found.outcome == ("failed" if usage > 0 else "answered")


def test_a_command_may_be_a_whole_script(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    steps = "cat > given; " + "echo step; " * 30
    command = f"sh -c '{steps}echo 12'"
    for more in ({}, {"workspace": "work"}):
        found = made(rig, tmp_path, run=command, **more)
        assert found.response.endswith("step\n12")
    with pytest.raises(SettingsError, match="there is no command xxx"):
        by_agent(DOMAIN, AgentSettings(run="x" * 300), tmp_path, {}, 4)


def test_an_answer_of_null_is_none(rig: Rig, tmp_path: Path) -> None:
    found = made(rig, tmp_path, run=script(tmp_path, """print('{"answer": null}')"""))
    assert found.outcome == "failed"
    assert found.reason == "the agent printed no answer"


def test_the_key_of_the_endpoint_is_not_in_a_commands_environment(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_PROVIDERS_KEY", "endpoint-key-1")
    monkeypatch.setenv("SOME_OTHER", "there")
    names = "import os; print('SOME_PROVIDERS_KEY' in os.environ, os.environ['SOME_OTHER'])"
    assert made(rig, tmp_path, run=script(tmp_path, names)).response == "False there"


SEES = """
import json, os, sys
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), sys.argv[1]), "a") as file:
    print(" ".join(sorted(name for name in os.environ if name.startswith("OWN_"))), file=file)
print(1)
"""


def test_no_key_that_a_run_reads_is_in_the_environment_of_its_commands(
    cli: Cli, tmp_path: Path
) -> None:
    write_problems(tmp_path / "problems.jsonl", 2)
    (tmp_path / "sees.py").write_text(SEES)
    variables = {
        "OWN_POLICY_KEY": "k-1",
        "OWN_REFLECTION_KEY": "key-of-the-reflection-model",
        "OWN_FLEET_KEY": "key-of-another-endpoint",
        "OWN_HEADER": "Bearer key-of-the-reflection-model",
        "OWN_OTHER": "there",
        "OWN_EMPTY": "",
    }
    with ScriptedEndpoint() as server:
        (tmp_path / "tfgrpo.toml").write_text(f"""
[model]
model = "m"
reflection_base_url = "{server.base_url}"
reflection_api_key_env = "OWN_REFLECTION_KEY"
[[endpoints]]
base_url = "{server.base_url}"
api_key_env = "OWN_POLICY_KEY"
[[endpoints]]
base_url = "{server.base_url}/"
api_key_env = "OWN_FLEET_KEY"
[agent]
run = "{PYTHON} sees.py agent"
reward = "{PYTHON} sees.py reward"
""")
        options = ("--epochs", "1", "--group-size", "2", "--keep-going")
        cli("train", "problems.jsonl", *options, env=variables)
    for name in ("agent", "reward"):
        *_, last = (tmp_path / name).read_text().splitlines()
        assert last == "OWN_EMPTY OWN_OTHER", name


@pytest.mark.parametrize(
    "command",
    [("train", "--epochs", "1"), ("train", "--estimate"), ("eval",), ("eval", "--estimate")],
)
def test_no_first_call_of_a_reward_has_a_key_that_a_setting_names(
    cli: Cli, tmp_path: Path, command: tuple[str, ...]
) -> None:
    write_problems(tmp_path / "problems.jsonl", 2)
    (tmp_path / "sees.py").write_text(SEES)
    keys = {
        "OWN_KEY": "k-1",
        "OWN_REFLECTION": "key-of-the-reflection-model",
        "OWN_HEADER": "key-in-a-header",
        "OWN_SEARCH": "key-of-a-search-provider",
        "OWN_SERVER": "key-of-an-mcp-server",
        "OWN_ADDRESS": "key-in-the-address-of-an-mcp-server",
        "OWN_COPY": "key-in-a-header",
    }
    cli("init")
    (tmp_path / "tfgrpo.toml").write_text(f"""
[model]
reflection_model = "r"
reflection_api_key_env = "OWN_REFLECTION"
extra_headers = {{ x-other = "env:OWN_HEADER" }}
[tools.search]
url = "http://127.0.0.1:9/?q={{query}}"
headers = {{ x-key = "$OWN_SEARCH" }}
results = "all"
fields = {{ url = "u", title = "t", text = "x" }}
[tools.mcp.one]
command = "one"
env = ["OWN_SERVER", "OWN_LATER"]
[tools.mcp.other]
url = "http://127.0.0.1:9/?q=$OWN_ADDRESS"
[agent]
run = "{PYTHON} sees.py agent"
reward = "{PYTHON} sees.py reward"
""")
    with ScriptedEndpoint() as server:
        where = ("--model", "m", "--base-url", server.base_url, "--api-key-env", "OWN_KEY")
        verb, *more = command
        cli(verb, "problems.jsonl", *where, *more, env={**keys, "OWN_OTHER": "there"})
    seen = (tmp_path / "reward").read_text().splitlines()
    assert set(seen) == {"OWN_OTHER"}


@pytest.mark.parametrize("named", ["TFGRPO_API_KEY", "OPENAI_API_KEY"])
def test_no_first_call_of_a_reward_has_a_key_that_no_setting_names(
    cli: Cli, tmp_path: Path, named: str
) -> None:
    write_problems(tmp_path / "problems.jsonl", 2)
    cli("init")
    where = ("--model", "m", "--agent", "echo 12", "--reward", f"printenv {named}")
    done = cli("eval", "problems.jsonl", *where, env={named: "0.5"}, ok=False)
    one_line_error(done, "gives no reward", code=2)


SECRET = "zq-7f3Kd0Vb9sX2mWq81"
SAYS = f"""
import json, os, sys
say = {{"answer": "12 {SECRET}", "words": "w" * 190 + "{SECRET}", "reward": 1,
       "messages": [{{"role": "assistant", "content": "{SECRET}"}}],
       "usage": {{"prompt_tokens": 1}}}}
open("new.txt", "w").write("y" * 5990 + "{SECRET}\\n")
print(json.dumps(say))
"""
DIES = f"""
import sys
sys.stderr.write("{SECRET}" + "x" * 390)
sys.exit(1)
"""
JUDGES = f"""
import sys
assert "{SECRET}" not in sys.stdin.read()
print("0.5", "w" * 190 + "{SECRET}")
"""


def test_a_key_that_commands_know_by_other_ways_is_in_nothing_that_they_say(
    rig: Rig, tmp_path: Path
) -> None:
    secrets.know(SECRET, "SOME_KEY")
    folder = tmp_path / "workspace"
    folder.mkdir()
    says, dies = script(tmp_path, SAYS, "says.py"), script(tmp_path, DIES, "dies.py")
    judges = script(tmp_path, JUDGES, "judges.py")
    known = {
        "own reward": made(rig, tmp_path, run=says, workspace="workspace", reward="agent"),
        "judged": made(rig, tmp_path, run=says, workspace="workspace", reward=judges),
        "dead": made(rig, tmp_path, run=dies),
    }
    with pytest.raises(SettingsError, match="gives no reward") as refused:
        made(rig, tmp_path, run="echo 12", reward=f"{PYTHON} -c 'print(\"{SECRET}\")'")
    assert SECRET not in str(refused.value)
    assert known["own reward"].reward == 1.0
    assert known["judged"].reward == 0.5
    assert known["dead"].outcome == "failed"
    for name, rollout in known.items():
        told = repr((rollout.response, rollout.reason, rollout.details, rollout.messages))
        assert "*" in told, name
        assert SECRET[:8] not in told, name
        assert SECRET[-8:] not in told, name
    rows = rig.calls._runs._port.connection.execute("select * from journal")  # type: ignore[attr-defined]
    assert SECRET not in repr(rows.fetchall())


@pytest.mark.parametrize("name", ["NO_PROXY", "no_proxy"])
def test_what_is_reached_without_a_proxy_stays_so(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv(name, "intern.corp")
    names = "import os; print(os.environ['NO_PROXY'], os.environ['no_proxy'])"
    direct = "intern.corp,127.0.0.1,localhost"
    assert made(rig, tmp_path, run=script(tmp_path, names)).response == f"{direct} {direct}"


BIG = "a = bytearray(400 << 20); import time; time.sleep(60)"
AWAY = f"""
import os
if os.fork():
    os.wait()
    import time; time.sleep(60)
os.setsid()
if os.fork() == 0:
    {BIG}
"""
"""The same by a process whose parent is gone."""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "import sys; sys.stderr.write('the last words'); sys.exit(3)",
            "ended with 3: the last words",
        ),
        ("import sys; sys.stderr.write('nothing to say')", "printed no answer: nothing to say"),
        ("import os, signal; print('hm', flush=True); os.kill(os.getpid(), 11)", "SIGSEGV: hm"),
        (
            "import time; print('thinking', flush=True); time.sleep(60)",
            "not done in 1.5 s: thinking",
        ),
        ("while True: print('flood' * 1000)", "wrote more than 65,536 bytes"),
        (BIG, "took more than 200 MiB"),
        (AWAY, "took more than 200 MiB"),
    ],
)
def test_one_that_dies_hangs_or_floods_fails_alone_with_its_last_words(
    rig: Rig, tmp_path: Path, text: str, said: str
) -> None:
    seconds = 1.5 if "thinking" in text else 30.0
    command = script(tmp_path, text)
    found = made(rig, tmp_path, seconds, run=command, output=1 << 16, memory=200)
    assert (found.outcome, found.reward) == ("failed", None)
    assert said in found.reason
    assert not left()


def test_what_a_command_leaves_running_is_ended_wherever_it_went(rig: Rig, tmp_path: Path) -> None:
    command = script(
        tmp_path,
        """
        import os, subprocess, sys, time
        wait = [sys.executable, "-c", "import time; time.sleep(600)"]
        subprocess.Popen(wait)
        subprocess.Popen(wait, start_new_session=True)
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(600)
            os._exit(0)
        print("12")
        """,
    )
    assert made(rig, tmp_path, run=command).reward == 1.0
    assert not left()


def test_memory_that_processes_share_counts_once(rig: Rig, tmp_path: Path) -> None:
    command = script(
        tmp_path,
        """
        import os, time
        a = bytearray(b"x" * (60 << 20))
        for _ in range(4):
            if os.fork() == 0:
                time.sleep(1.5)
                os._exit(0)
        for _ in range(4):
            os.wait()
        print("12")
        """,
    )
    assert made(rig, tmp_path, run=command, memory=200).reason == ""


def test_what_was_seen_of_an_attempt_is_ended_with_it_without_a_mark(
    rig: Rig, tmp_path: Path
) -> None:
    """One in a session of its own, with an empty environment, whose parent is gone."""
    (tmp_path / "stray.py").write_text("import time; open('up', 'w'); time.sleep(600)")
    command = script(
        tmp_path,
        """
        import os, subprocess, sys, time
        if os.fork() == 0:
            os.setsid()
            subprocess.Popen([sys.executable, os.path.abspath("stray.py")], env={})
            time.sleep(1)
            os._exit(0)
        time.sleep(2)
        print(os.path.exists("up"))
        """,
    )
    assert made(rig, tmp_path, run=command).response == "True"
    assert not alive(tmp_path / "stray.py")


def test_each_attempt_has_its_own_copy_and_its_changes_are_in_the_trajectory(
    rig: Rig, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    (work / "src").mkdir(parents=True)
    (work / "src" / "main.py").write_text("a = 1\n")
    (work / "gone.txt").write_text("gone\n")
    (work / "run.sh").write_text("#!/bin/sh\necho 12\n")
    (work / "run.sh").chmod(0o755)
    (work / "link").symlink_to("src/main.py")
    command = script(
        tmp_path,
        """
        import pathlib, subprocess
        pathlib.Path("src/main.py").write_text("a = 2\\n")
        pathlib.Path("gone.txt").unlink()
        pathlib.Path("new.bin").write_bytes(bytes(range(256)))
        pathlib.Path("answer.txt").write_text(subprocess.check_output(["./run.sh"], text=True))
        print("not the answer")
        """,
    )
    options = {"run": command, "workspace": "work", "answer_file": "answer.txt"}
    found = made(rig, tmp_path, **options)
    assert (found.response, found.reward) == ("12", 1.0)
    assert [m["role"] for m in found.messages] == ["assistant", "files"]
    changes = found.messages[-1]["content"]
    assert "-a = 1\n+a = 2" in str(changes)
    assert "gone.txt: removed" in str(changes)
    assert "new.bin: new" in str(changes)
    assert (work / "src" / "main.py").read_text() == "a = 1\n"
    assert not (work / "answer.txt").exists()
    missing = made(rig, tmp_path, **{**options, "answer_file": "other.txt"})
    assert missing.outcome == "failed"
    assert "there is no answer file other.txt" in missing.reason


def test_links_within_a_workspace_lead_within_its_copy(tmp_path: Path) -> None:
    work = tmp_path / "repo"
    (work / "a" / "b").mkdir(parents=True)
    (work / "data.txt").write_text("as it was\n")
    (work / "a" / "file").write_text("x")
    texts = {
        "whole": f"{work}/data.txt",
        "plain": "data.txt",
        "out and back": "../repo/data.txt",
        "a/folder": str(work / "a" / "b"),
        "a/b/top": "../..",
        "a/b/by another": "top/../repo/a/file",
        "a/b/by a whole one": "../../whole",
        "dangling": f"{work}/nowhere",
        "loop": "loop",
    }
    for name, text in texts.items():
        (work / name).symlink_to(text)
    workspace = Workspace(work, 100)
    copy = workspace.copy()
    try:
        assert workspace.changes(copy) == {}
        for name in set(texts) - {"loop"}:
            there, here = (copy / name).resolve(), (work / name).resolve()
            assert there.relative_to(copy) == here.relative_to(work), name
        assert os.readlink(copy / "plain") == "data.txt"
        assert os.readlink(copy / "a" / "b" / "top") == "../.."
        assert os.readlink(copy / "loop") == "loop"
        (copy / "whole").write_text("changed\n")
        (copy / "a" / "folder" / "new").write_text("new\n")
        assert set(workspace.changes(copy)) == {"data.txt", "a/b/new"}
    finally:
        remove_scratch(copy)
    assert (work / "data.txt").read_text() == "as it was\n"
    assert not (work / "a" / "b" / "new").exists()


def test_a_copy_that_is_still_made_when_its_attempt_is_cancelled_is_removed(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, places = tmp_path / "work", tmp_path / "places"
    work.mkdir()
    places.mkdir()
    for number in range(2000):
        (work / f"{number}.txt").write_text("x" * 100)
    settings = AgentSettings(run=script(tmp_path, "print(12)"), workspace="work")
    rollout = by_agent(DOMAIN, settings, tmp_path, {}, 4).rollout
    monkeypatch.setattr("tempfile.tempdir", str(places))

    async def run() -> None:
        async with rollout.opened(30.0) as opened:  # type: ignore[attr-defined]
            attempt = asyncio.ensure_future(opened(rig.context()))
            await until_so(lambda: any(places.iterdir()))
            attempt.cancel()
            await asyncio.gather(attempt, return_exceptions=True)
        await rig.calls.endpoint.close()

    asyncio.run(run())
    assert list(places.iterdir()) == []


HOSTILE = """
import os, sys
from pathlib import Path
from tfgrpo.agents.orphan_guard import guarded
from tfgrpo.agents.workspace import Workspace
from tfgrpo.store.errors import SettingsError
from tfgrpo.tools.session_bounds import remove_scratch
guarded()  # the interpreter may lie where its owner alone may run it
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
try:
    Workspace(Path(sys.argv[1]).parent, 100)
except SettingsError as error:
    print(error)
workspace = Workspace(Path(sys.argv[1]), 100)
copy = workspace.copy()
here = os.open(copy, os.O_RDONLY)
for number in range(3000):
    os.mkdir("d", dir_fd=here)
    inner = os.open("d", os.O_RDONLY, dir_fd=here)
    os.close(here)
    here = inner
os.close(here)
(copy / "closed").mkdir()
(copy / "closed" / "file").write_text("x")
(copy / "closed").chmod(0)
(copy / "new").write_text("new")
print(sorted(workspace.changes(copy)))
copy.chmod(0)
remove_scratch(copy)
print(copy.exists())
"""


def test_a_copy_is_looked_through_and_removed_whatever_was_made_of_it(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as place:  # another user may look into it
        os.chmod(place, 0o755)
        work = Path(place, "work")
        work.mkdir()
        (work / "a.txt").write_text("a")
        Path(place, "secret").mkdir(0o000)
        line = [PYTHON, "-c", HOSTILE, str(work)]
        done = subprocess.run(line, capture_output=True, text=True, cwd="/")
    refused = f"secret in the workspace {place} cannot be read: Permission denied"
    assert done.stdout == f"{refused}\n['new']\nFalse\n", done.stderr


@pytest.mark.parametrize("make", ["mkfifo", "mkdir"])
def test_an_answer_file_that_is_no_file_is_none(rig: Rig, tmp_path: Path, make: str) -> None:
    (tmp_path / "work").mkdir()
    command = script(tmp_path, f"import os; os.{make}('answer.txt')")
    before = open_files()
    found = made(rig, tmp_path, run=command, workspace="work", answer_file="answer.txt")
    assert found.reason == "the answer file answer.txt is no file"
    assert not {one for one in open_files() - before if one.endswith("answer.txt")}


def open_files() -> set[str]:
    links = (f"/proc/self/fd/{one}" for one in os.listdir("/proc/self/fd"))
    return {os.readlink(one) for one in links if os.path.lexists(one)}


def test_a_signal_without_a_name_is_told_by_its_number(rig: Rig, tmp_path: Path) -> None:
    found = made(rig, tmp_path, run=script(tmp_path, "import os; os.kill(os.getpid(), 40)"))
    assert "was ended by signal 40" in found.reason


def test_what_is_shown_of_changes_is_bounded_and_long_new_files_are_not_read(
    tmp_path: Path,
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "a.txt").write_text("as it was\n")
    (work / "long.bin").write_bytes(bytes(100_000))
    (work / "same.bin").write_bytes(bytes(100_000))
    workspace = Workspace(work, 100)
    copy = workspace.copy()
    try:
        assert workspace.changes(copy) == {}
        with (copy / "huge").open("wb") as file:
            file.truncate(1 << 38)
        (copy / "long.bin").write_bytes(bytes(99_999) + b"1")
        (copy / "module").mkdir()
        for number in range(3000):
            (copy / "module" / f"{number:060}.js").write_text("x\n")
        (copy / "z.txt").write_text("new\n")
        changes = workspace.changes(copy)
    finally:
        remove_scratch(copy)
    assert (changes["huge"], changes["long.bin"]) == ("new, and no short text", "changed")
    *_, last = changes.values()
    listed = len(changes) - 1
    assert last == f"and {3003 - listed:,} more"
    assert 2 * SHOWN < sum(len(name) + len(words) for name, words in changes.items()) < 3 * SHOWN
    assert "same.bin" not in changes


def test_a_reward_command_sees_everything_and_its_words_are_shown(rig: Rig, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    agent = script(tmp_path, "open('made.txt', 'w').write('made'); print('12')")
    reward = script(
        tmp_path,
        """
        import json, os, sys
        told = json.load(sys.stdin)
        assert told["problem"]["answer"] == told["answer"] == "12", told
        assert open("made.txt").read() == "made" and os.getcwd() == told["workspace"]
        assert "made.txt" in told["files"] and told["messages"]
        print("0.25: the file is too short")
        """,
        "reward.py",
    )
    found = made(rig, tmp_path, run=agent, workspace="work", reward=reward)
    assert (found.reward, found.reason) == (0.25, "the file is too short")
    assert found.details == {"words": "the file is too short"}


def test_an_agent_may_tell_its_own_reward(rig: Rig, tmp_path: Path) -> None:
    lines = {
        "half": {"answer": "x", "reward": 0.5, "words": "half of it"},
        "none": {"answer": "x"},
        "large": {"answer": "x", "reward": 7},
    }
    found = {
        name: made(
            rig,
            tmp_path,
            run=script(tmp_path, f"print({json.dumps(line)!r})", f"{name}.py"),
            reward="agent",
        )
        for name, line in lines.items()
    }
    assert (found["half"].reward, found["half"].details) == (0.5, {"words": "half of it"})
    assert (found["none"].outcome, found["large"].outcome) == ("unverifiable", "unverifiable")
    with pytest.raises(ValueError, match="needs --agent, which reports it"):
        AgentSettings(reward="agent")


@pytest.mark.parametrize(
    ("said", "reward", "reason"),
    [
        ("1", 1.0, "the reward is 1"),
        ("0.5\n", 0.5, "the reward is 0.5"),
        (".75 - nearly", 0.75, "nearly"),
        ("1e-1 words", 0.1, "words"),
        ("", None, "printed nothing, which does not begin"),
        ("good", None, "printed 'good'"),
        ("2", None, "2 is not from 0 to 1"),
        ("-0.1", None, "is not from 0 to 1"),
        ("0.5, two of four fail", 0.5, "two of four fail"),
        ("0.5; two of four fail", 0.5, "two of four fail"),
        ("50%", None, "printed '50%'"),
        (
            "1/4 tests pass",
            None,
            "printed '1/4 tests pass', which does not begin with a number that stands alone",
        ),
        ("1 / 4", None, "does not begin with a number that stands alone"),
        ("1/2", None, "does not begin with a number that stands alone"),
        ("1:3", None, "does not begin with a number that stands alone"),
        ("1 of 4", None, "does not begin with a number that stands alone"),
        ("1 out of 4", None, "does not begin with a number that stands alone"),
        ("1 of four tests", None, "does not begin with a number that stands alone"),
        ("1 out of the 4", None, "does not begin with a number that stands alone"),
        ("1 von 4 Tests", None, "does not begin with a number that stands alone"),
        ("1 sur 4", None, "does not begin with a number that stands alone"),
        ("1 из 4", None, "does not begin with a number that stands alone"),
        ("1 von den 4", None, "does not begin with a number that stands alone"),
        ("1 \u00f7 4", None, "does not begin with a number that stands alone"),
        ("1 \u2215 4", None, "does not begin with a number that stands alone"),
        ("1 %", None, "does not begin with a number that stands alone"),
        ("1, all of 4", 1.0, "all of 4"),
        ("0.25 as 1 of 4", 0.25, "as 1 of 4"),
        ("1\n4 tests", 1.0, "4 tests"),
        ("0,75", None, "does not begin with a number that stands alone"),
        ("0,9\n", None, "does not begin with a number that stands alone"),
        ("1;0", None, "does not begin with a number that stands alone"),
        ("1-3", None, "does not begin with a number that stands alone"),
        ("1st place", None, "printed '1st place'"),
        ("nan", None, "printed 'nan'"),
    ],
)
def test_a_reward_is_a_number_and_nothing_else_is(
    said: str, reward: float | None, reason: str
) -> None:
    verdict = read_reward(said, "12")
    assert verdict.reward == reward
    assert reason in verdict.reason


def test_a_workspace_that_is_none_is_refused_before_the_first_attempt(tmp_path: Path) -> None:
    agent = script(tmp_path, "print(12)")

    def refused(workspace: str, **more: Any) -> str:
        settings = AgentSettings(run=agent, workspace=workspace, **more)
        with pytest.raises(SettingsError) as raised:
            by_agent(DOMAIN, settings, tmp_path, {}, 4)
        assert raised.value.hint
        return str(raised.value)

    assert "is no folder" in refused("nowhere")
    assert "is no folder" in refused("agent.py")
    leads_out = tmp_path / "leads-out"
    leads_out.mkdir()
    (leads_out / "passwd").symlink_to("/etc/passwd")
    assert "a link that leads out of it" in refused("leads-out")
    for name, leads in (("worktree", "/elsewhere/.git/worktrees/x"), ("part", "../.git/modules/x")):
        (tmp_path / name).mkdir()
        (tmp_path / name / ".git").write_text(f"gitdir: {leads}\n")
        assert ".git in the workspace" in refused(name)
        assert "a repository that its copies would share" in refused(name)
    large = tmp_path / "large"
    large.mkdir()
    with (large / "big").open("wb") as file:
        file.truncate(3 << 20)
    assert "more than 2 MiB" in refused("large", copy_limit=2)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "pipes").mkdir()
    os.mkfifo(tmp_path / "pipes" / "pipe")
    assert "is no file" in refused("pipes")
    with pytest.raises(SettingsError, match="no command no-such for the reward"):
        by_agent(DOMAIN, AgentSettings(run=agent, reward="no-such"), tmp_path, {}, 4)
    with pytest.raises(
        ValueError, match="an answer file needs an agent that is a command, and a workspace"
    ):
        AgentSettings(run=agent, answer_file="answer.txt")


def test_an_answer_file_that_never_comes_ends_a_run_at_its_first_attempts(
    cli: Cli, tmp_path: Path
) -> None:
    write_problems(tmp_path / "problems.jsonl", 40)
    (tmp_path / "there").mkdir()
    (tmp_path / "agent.py").write_text(AGENT)
    command = ("train", "problems.jsonl", "--model", "m", "--group-size", "5", "--concurrency", "4")
    agent = ("--agent", f"{PYTHON} agent.py", "--workspace", "there", "--answer-file", "out.txt")
    with ScriptedEndpoint() as server:
        done = cli(*command, "--base-url", server.base_url, *agent, ok=False)
        assert "attempts failed: there is no answer file out.txt" in done.stderr
        assert len(server.requests) == 50


AGENT = """
import json, os, sys, urllib.request
task = json.load(sys.stdin)
body = {"messages": [{"role": "user", "content": task["problem"]}], "seed": task["seed"]}
request = urllib.request.Request(
    os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(body).encode(),
    {"content-type": "application/json"})
print(json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"])
"""


def test_a_folder_of_somebody_elses_runs_no_command_before_trust(cli: Cli, tmp_path: Path) -> None:
    write_problems(tmp_path / "problems.jsonl", 4)
    run = "touch ran.txt"
    (tmp_path / "tfgrpo.toml").write_text(f'[agent]\nrun = "{run}"\nreward = "echo 1"\n')
    untrusted = {"TFGRPO_TRUST": ""}
    with ScriptedEndpoint() as server:
        command = ("train", "problems.jsonl", "--base-url", server.base_url, "--model", "m")
        for more in ((), ("--workspace", "."), ("--agent", "echo 12")):
            done = cli(*command, *more, ok=False, env=untrusted)
            one_line_error(done, "tfgrpo.toml")
            assert ("runs touch ran.txt for each attempt" in done.stderr) is (
                "--agent" not in more
            ) or "touch" in done.stderr
        assert not (tmp_path / "ran.txt").exists()
        assert not server.requests
    (tmp_path / "tfgrpo.toml").write_text(f'[agent]\nrun = "{run}"\nreward = "agent"\n')
    listed = cli("trust", env=untrusted).stdout
    assert "runs touch ran.txt for each attempt" in listed
    assert "to judge" not in listed, "no command judges"


@pytest.mark.parametrize(
    ("reward", "why"),
    [
        ("echo good", "printed 'good', which does not begin"),
        ("echo score: 1", "printed 'score: 1', which does not begin"),
        ("true", "printed nothing, which does not begin"),
        ("echo 7", "the reward 7 is not from 0 to 1"),
        ("echo -1", "the reward -1 is not from 0 to 1"),
        ("echo 80%", "printed '80%', which does not begin"),
        ("echo nan", "printed 'nan', which does not begin"),
        ("echo {}", "printed '{}', which does not begin"),
    ],
)
@pytest.mark.parametrize("verb", ["train", "eval", "by the model"])
def test_a_reward_that_prints_no_number_is_an_error_before_a_paid_call(
    cli: Cli, tmp_path: Path, reward: str, why: str, verb: str
) -> None:
    write_problems(tmp_path / "problems.jsonl", 4)
    (tmp_path / "agent.py").write_text(AGENT)
    with ScriptedEndpoint() as server:
        where = ("--base-url", server.base_url, "--model", "m", "--reward", reward)
        agent = () if verb == "by the model" else ("--agent", f"{PYTHON} agent.py")
        cli("init")
        command = "eval" if verb == "eval" else "train"
        done = cli(command, "problems.jsonl", *where, *agent, ok=False)
        one_line_error(done, why, "prints a number from 0 to 1", code=2)
        assert not server.requests


@pytest.mark.parametrize("reward", ["echo 1", "agent"])
@pytest.mark.parametrize("domain", ["math", "rubric:polite.toml"])
def test_an_estimate_counts_no_judge_where_a_command_judges(
    cli: Cli, tmp_path: Path, domain: str, reward: str
) -> None:
    write_problems(tmp_path / "problems.jsonl", 4)
    (tmp_path / "agent.py").write_text(AGENT)
    polite = '[[criteria]]\nname = "polite"\nquestion = "Is it polite?"\n'
    (tmp_path / "polite.toml").write_text(polite)
    agent = ("--agent", f"{PYTHON} agent.py", "--domain", domain, "--model", "m")
    cli("init")
    with ScriptedEndpoint() as server:
        asked = ("train", "problems.jsonl", *agent, "--base-url", server.base_url, "--estimate")
        judged = json.loads(cli(*asked, "--json", "--reward", reward).stdout)
        by_model = json.loads(cli(*asked, "--json").stdout)
    stages = {one["stage"] for one in (*judged["expected"], *judged["most"])}
    assert {"rollout"} <= stages
    assert "judge" not in stages
    assert len(judged["left_out"]) == 1, "an agent of which no attempt is known"
    assert (domain != "math") == ("judge" in {one["stage"] for one in by_model["expected"]})
    assert by_model["left_out"] == judged["left_out"]


@pytest.mark.parametrize("reward", ["no-such-file.py", "sh -c 'exit 3'", "sh -c 'echo 1; exit 1'"])
def test_a_reward_that_fails_is_an_error_at_the_first_attempt(
    cli: Cli, tmp_path: Path, reward: str
) -> None:
    write_problems(tmp_path / "problems.jsonl", 12)
    if reward == "no-such-file.py":
        reward = f"{PYTHON} no-such-file.py"
    with ScriptedEndpoint() as server:
        where = ("--base-url", server.base_url, "--model", "m", "--reward", reward)
        done = cli("train", "problems.jsonl", *where, "--concurrency", "2", ok=False)
        one_line_error(done, "the reward command gives no reward", code=2)


def test_a_command_is_trained_evaluated_and_compared_from_the_command_line(
    cli: Cli, tmp_path: Path
) -> None:
    write_problems(tmp_path / "problems.jsonl", 8)
    write_problems(tmp_path / "heldout.jsonl", 10, start=20)
    (tmp_path / "agent.py").write_text(AGENT)
    with ScriptedEndpoint() as server:
        once = ("--epochs", "1", "--batch-size", "8", "--group-size", "4", "--model", "m")
        agent = ("--agent", f"{PYTHON} agent.py", "--base-url", server.base_url)
        cli("train", "problems.jsonl", *once, *agent, "--gate", "heldout.jsonl")
        cost = json.loads(cli("cost", "--json").stdout)["calls"]
        assert sum(one["calls"] for one in cost if one["stage"] == "rollout") == 32
        where = ("--base-url", server.base_url)
        scores = cli("eval", "heldout.jsonl", "--samples", "2", "--against", "v0", *where).stdout
        assert re.search(r"v1 +1\.000", scores), scores
        page = cli("rollouts", "problems").stdout
        assert len(re.findall("answered", page)) == 32, page
        asked = len(server.requests)
        cli("train", "problems.jsonl", *once, *agent, "--gate", "heldout.jsonl")
        assert len(server.requests) == asked, "it is finished"
        (tmp_path / "agent.py").write_text(AGENT + "# another one\n")
        done = cli("train", "problems.jsonl", *once, *agent, "--gate", "heldout.jsonl", ok=False)
        assert "problems-2" in done.stderr, "an agent that was changed is another run's"


NAMES = {
    "outside": f"{PYTHON} ../elsewhere/code.py",
    "an absolute path": f"{PYTHON} {{there}}/code.py",
    "a script of its own": "{there}/code.sh",
    "an option": f"{PYTHON} -X utf8 run.py --code=../elsewhere/code.py",
    "a shell": f"sh -c 'echo 1 > log.txt; {PYTHON} ../elsewhere/code.py'",
    "an import": f"{PYTHON} imports.py",
    "an import of an import": f"{PYTHON} ../elsewhere/again.py",
    "an import in a package": f"{PYTHON} inside.py",
    "a module": f"{PYTHON} -m package.inner",
    "a package": f"{PYTHON} -m package",
    "a text": f"{PYTHON} -c 'import helper; print(helper.L)'",
    "a folder": f"{PYTHON} package",
}


@pytest.mark.parametrize("role", ["run", "reward"])
@pytest.mark.parametrize("way", NAMES)
def test_another_file_that_a_command_names_or_imports_is_another_command(
    tmp_path: Path, way: str, role: str
) -> None:
    root, there = tmp_path / "project", tmp_path / "elsewhere"
    code = [there / "code.py", there / "code.sh", there / "helper.py", root / "helper.py"]
    code.append(root / "package" / "deep.py")
    texts = {
        there / "again.py": "import os, broken\nif os.name:\n    from imports import x\n",
        there / "imports.py": "import json\ndef x():\n    import helper\n",
        there / "broken.py": "this is no Python \\d",
        root / "run.py": "",
        root / "imports.py": "import helper, no_such\n",
        root / "inside.py": "from package import inner\n",
        root / "log.txt": "",
        root / "package" / "__init__.py": "",
        root / "package" / "__main__.py": "from .inner import y\n",
        root / "package" / "inner.py": "from . import deep\ny = 1\n",
    }
    for path, text in {**texts, **dict.fromkeys(code, "# one")}.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (there / "code.sh").chmod(0o755)

    def identity() -> str:
        commands = {role: NAMES[way].format(there=there)}
        return by_agent(DOMAIN, AgentSettings(**commands), root, {}, 4).identity

    before = identity()
    (root / "log.txt").write_text("what a script has written")
    (root / "no_import.py").write_text("")
    assert identity() == before
    for path in code:
        path.write_text("# another")
    assert identity() != before


def test_scores_of_an_agent_before_its_helper_changed_are_not_those_of_now(
    cli: Cli, tmp_path: Path
) -> None:
    write_problems(tmp_path / "problems.jsonl", 2)
    (tmp_path / "agent.py").write_text("import helper\nprint(helper.ANSWER)\n")
    cli("init")
    with ScriptedEndpoint() as server:
        where = ("--model", "m", "--base-url", server.base_url, "--samples", "1")
        judge = ("--agent", f"{PYTHON} agent.py", "--reward", f"{PYTHON} judge.py")
        judges = "import json\nprint(min(1, float(json.load(open(0))['answer'])))\n"
        (tmp_path / "judge.py").write_text(judges)
        for answer in ("0.25", "0.125"):  # of two lengths, by which Python tells a file's cache
            (tmp_path / "helper.py").write_text(f"ANSWER = {answer}\n")
            scores = cli("eval", "problems.jsonl", *where, *judge).stdout
            assert re.search(rf"v0 .*{float(answer):.3f}", scores), scores


def test_a_run_that_goes_on_with_another_agent_says_so(cli: Cli, tmp_path: Path) -> None:
    write_problems(tmp_path / "problems.jsonl", 4)
    (tmp_path / "agent.py").write_text("print('no answer')\n")
    with ScriptedEndpoint() as server:
        options = ("--model", "m", "--base-url", server.base_url, "--agent", f"{PYTHON} agent.py")
        less = ("--epochs", "2", "--batch-size", "4", "--group-size", "6", "--run", "r")
        stopped = cli("train", "problems.jsonl", *options, *less, ok=False)
        assert "stopped after 24 attempts" in stopped.stderr
        told = "the agent, its workspace or its reward has changed since run r began"
        assert told not in " ".join(cli("train", "--resume", "r", ok=False).stderr.split())
        (tmp_path / "agent.py").write_text("print('none')\n")
        assert told in " ".join(cli("train", "--resume", "r", ok=False).stderr.split())


@pytest.mark.parametrize("way", ["a folder", "an evaluation", "a settings file", "a program"])
def test_files_in_a_command_are_looked_for_where_the_data_is(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    sub = tmp_path / "a sub"
    sub.mkdir()
    write_problems(sub / "problems.jsonl", 2)
    (sub / "agent.py").write_text("import sys\nprint(open(sys.argv[1].split('=')[1]).read())\n")
    (sub / "answer.txt").write_text("0.5")
    judges = "import json\nprint(+(json.load(open(0))['answer'] == '0.5'))\n"
    (sub / "judge.py").write_text(f"#!{PYTHON}\n{judges}")
    (sub / "judge.py").chmod(0o755)
    given = {"agent": f"{PYTHON} agent.py --from=answer.txt", "reward": "./judge.py"}
    cli("init")
    with ScriptedEndpoint() as server:
        models = {"model": "m", "base_url": server.base_url}
        once = {"epochs": 1, "group_size": 2, "keep_going": True}
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in (models | given).items()]
        if way == "a folder":
            more = ("--epochs=1", "--group-size=2", "--keep-going")
            cli("-C", "a sub", "train", "problems.jsonl", *flags, *more)
        elif way == "an evaluation":
            scores = cli("-C", "a sub", "eval", "problems.jsonl", *flags).stdout
            assert re.search(r"v0 .*1\.000", scores), scores
        elif way == "a settings file":
            agent = {"run": given["agent"], "reward": given["reward"]}
            tables = {"model": models, "train": once | {"data": "problems.jsonl"}, "agent": agent}
            lines = [
                "\n".join([f"[{name}]", *(f"{k} = {json.dumps(v)}" for k, v in table.items())])
                for name, table in tables.items()
            ]
            (sub / "my.toml").write_text("\n".join(lines))
            cli("train", "--config", "a sub/my.toml")
        else:
            monkeypatch.chdir(sub)
            tfgrpo.train_sync("problems.jsonl", store="..", **models, **once, **given)
    with tfgrpo.Store.open(tmp_path) as store:
        runs = store.runs.all()
        assert bool(runs) is (way != "an evaluation")
        for run in runs:
            assert {row.reward for row in store.rollouts(run.name)} == {1.0}
            agent = {"run": f"{PYTHON} 'a sub/agent.py' '--from=a sub/answer.txt'"}
            assert run.config["agent"].items() >= (agent | {"reward": "'a sub/judge.py'"}).items()


def test_what_of_a_command_is_a_file_where_it_is_given(tmp_path: Path) -> None:
    root, sub, repo = tmp_path, tmp_path / "sub", tmp_path / "sub" / "repo"
    repo.mkdir(parents=True)
    (sub / "run").mkdir()
    for path in (root / "a.py", sub / "b.py", sub / "c.py", repo / "c.py", sub / "python"):
        path.touch()

    def seen(command: str, here: Path = sub, workspace: Path | None = None) -> str:
        return command_from(command, here, root, None if workspace is None else str(workspace))

    assert seen("python b.py no.py a.py") == "python sub/b.py no.py a.py"
    assert seen("npm run build ./run --in=b.py") == "npm run build sub/run --in=sub/b.py"
    assert seen("../a.py ../a.py") == "./a.py ./a.py"
    assert seen(f"python {sub}/b.py") == f"python {sub}/b.py"
    assert seen("python  b.py", root) == "python  b.py", "as it is written"
    assert seen("python 'b.py") == "python 'b.py", "which is refused elsewhere"
    assert seen("python b.py c.py ./run", workspace=repo) == "python sub/b.py c.py ./run"
    assert seen("inspect:b.py") == "inspect:b.py"


def test_a_command_that_is_not_there_is_refused_with_the_folder_where_it_runs(
    cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "sub").mkdir()
    write_problems(tmp_path / "problems.jsonl", 2)
    cli("init")
    done = cli("-C", "sub", "eval", "../problems.jsonl", "--reward", "./no.sh", ok=False)
    one_line_error(done, f"no command ./no.sh for the reward in {tmp_path}", code=2)


def test_the_page_names_each_field_that_a_command_reads() -> None:
    _, _, section = (ROOT / "docs/your-agent.md").read_text().partition("## A command\n")
    known = set(re.findall(r"`(\w+)`", section.partition("\n## ")[0]))
    assert {"prompt", *GIVEN} <= known


def test_nothing_fails_unseen_behind_a_program_that_ends_well(tmp_path: Path) -> None:
    tasks: list[asyncio.Task[Any]] = []

    def remembered(loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> asyncio.Task[Any]:
        tasks.append(asyncio.Task(work, loop=loop, **more))
        return tasks[-1]

    async def ask(*command: str) -> bytes:
        asyncio.get_running_loop().set_task_factory(remembered)
        task = Task(command, tmp_path, {}, b"x" * 300_000)
        return (await run(task, Limits(240, 1000, 1 << 20), "token"))[0]

    assert asyncio.run(ask("cat")) == b"x" * 300_000
    assert asyncio.run(ask("true")) == b""
    assert len(tasks) >= 6
    assert [one for one in tasks if not one.cancelled() and one.exception()] == []
