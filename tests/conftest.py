"""Fixtures that more than one file of tests needs."""

from __future__ import annotations

import atexit
import compileall
import gc
import importlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pytest
import workers
from forked import CommandServer
from hypothesis import HealthCheck, settings
from scripted import LIVE, ScriptedEndpoint, Spoken

from tfgrpo.author import AUTHOR
from tfgrpo.domains.verifier import Verifier
from tfgrpo.local.model_server import available_cpus
from tfgrpo.model.http_connection import Connection, open_client

ROOT = Path(__file__).parent.parent
TFGRPO = Path(sys.executable).with_name("tfgrpo")
LONG = os.environ.get("TFGRPO_LONG") == "1"
"""Whether all is tried of what is tried by a few examples else."""

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # An ignored signal stays so in every child, one with a handler does not: the suite still
    # ignores Ctrl-C, as whoever started it wanted, and the programs it tests hear it.
    signal.signal(signal.SIGINT, lambda number, frame: None)

OWN = os.pathsep.join((str(ROOT), tempfile.gettempdir()))
"""Folders of the tests' own, trusted as by whoever made them; test_trust.py does without."""
os.environ["TFGRPO_TRUST"] = OWN
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="tfgrpo-state-")
atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)
os.environ["TFGRPO_TRAIN_POLICY"] = "paper"
"""Most tests are about what surrounds learning, and a run of six attempts measures nothing."""

settings.register_profile(
    "suite",
    deadline=None,  # how long an example takes is the machine's affair, not the code's
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="TFGRPO_SAME_EXAMPLES" in os.environ,
)
settings.load_profile("suite")

if TYPE_CHECKING:
    from postgres import Cluster

Cli: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]


LONGEST = (
    "test_crossfit.py",
    "test_ui_axe.py",
    "test_improve_killed.py",
    "test_agent_killed.py",
    "test_training_killed.py",
    "test_whole_circle.py",
    "test_ui_runs_browser.py",
    "test_gate.py",
    "test_probation.py",
)
"""What is begun first, lest one of several processes is still at it when the others are done."""


def pytest_configure(config: pytest.Config) -> None:
    """Compiles the product, once, where interpreters are told to keep nothing that they compile:
    every process that tests start would compile it again."""
    if sys.dont_write_bytecode and not hasattr(config, "workerinput"):
        for folder in ("cli", "migrations", "store", "tfgrpo"):
            compileall.compile_dir(ROOT / folder, quiet=2)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Collects with less work: pytest's assertions are written into a file of tests once, and kept.

    Each of several processes begins with other files, and finds those of the others done. What is
    there afterwards stays for good, so nobody has to look for garbage in it.
    """
    told, sys.dont_write_bytecode = sys.dont_write_bytecode, False
    gc.disable()
    try:
        worker = getattr(session.config, "workerinput", None)
        given = {session.config.invocation_params.dir / arg for arg in session.config.args}
        if worker is not None and given & {ROOT, ROOT / "tests"}:
            files = sorted((ROOT / "tests").glob("test_*.py"))
            number = int(worker["workerid"].removeprefix("gw"))
            first = len(files) * number // worker["workercount"]
            for file in files[first:] + files[:first]:
                with suppress(Exception, pytest.skip.Exception):  # collecting it says so
                    importlib.import_module(file.stem)
        return (yield)
    finally:
        sys.dont_write_bytecode = told
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """Twice as many processes as there are cores, as many a test waits for something."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    return 2 * available_cpus()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in LONGEST)


def environment(**more: str) -> dict[str, str]:
    """This process's environment without what would change how the product behaves."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("TFGRPO_", "OPENAI_", "NO_COLOR", "FORCE_COLOR"))
    }
    named = {"TFGRPO_AUTHOR": "tester", "COLUMNS": "80", "TFGRPO_TRUST": OWN}
    named["TFGRPO_TRAIN_POLICY"] = os.environ["TFGRPO_TRAIN_POLICY"]
    return kept | named | more


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has runs go by the default policy, which measures what it learns."""
    monkeypatch.setenv("TFGRPO_TRAIN_POLICY", "probation")


@pytest.fixture
def spoken() -> Iterator[None]:
    """Has scripted endpoints of this process tell their answers without a connection each, but for
    those with a delay: a script that waits for another request needs one."""

    def opens(where: Connection, timeout: float) -> Any:
        client, server = open_client(where, timeout), LIVE.get(where.base_url or "")
        return client if server is None or server.delay else Spoken(server, client)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tfgrpo.model.endpoint.open_client", opens)
        yield


@pytest.fixture
def always_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has live libraries look at their store's file whenever they are asked for anything."""
    monkeypatch.setattr("tfgrpo.domains.prompt_library.LOOK", 0.0)


@pytest.fixture(params=["bubblewrap", "confined"])
def wall(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Has the sandbox run code in each of its walls; bubblewrap's where `bwrap` starts anything."""
    from tfgrpo.tools import sandbox

    if reason := refused_here():
        pytest.skip(reason)
    if request.param == "confined":
        monkeypatch.setattr(sandbox, "bubblewrap", lambda: None)
    elif not bubblewrap_starts():
        pytest.skip("no bubblewrap that works here")
    return str(request.param)


@cache
def refused_here() -> str:
    """Returns why this system's kernel has no walls to run code behind; empty where it has."""
    from tfgrpo.tools import sandbox

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sandbox, "bubblewrap", lambda: None)
        try:
            sandbox.strength("auto")
        except sandbox.SandboxError as refusal:
            return str(refusal)
    return ""


@cache
def bubblewrap_starts() -> bool:
    """Returns whether `bwrap` starts anything here, asked without our own code."""
    command = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"]
    return bool(shutil.which("bwrap")) and not subprocess.run(command, check=False).returncode


def alive(path: Path) -> list[int]:
    """Returns the processes, whoever's children they are, whose command has that path in it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):
            if str(path).encode() in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    return found


READ_AT_START = ("PYTHON", "LC_", "LANG")
"""What an interpreter reads before it runs anything."""


@cache
def worker_server() -> workers.WorkerServer:
    """What forks worker processes off, one for this process and the commands of its tests."""
    server = workers.WorkerServer()
    atexit.register(server.__exit__)
    return server


@pytest.fixture(autouse=True, scope="session")
def _workers() -> None:
    workers.use(worker_server().address)


@pytest.fixture
def spawned() -> Iterator[None]:
    """Has worker processes spawned, as they are where no tests run."""
    workers.spawn_again()
    yield
    workers.use(worker_server().address)


@cache
def command_server() -> CommandServer:
    """What forks commands off, one for this process and all of its tests."""
    server = CommandServer(worker_server().address)
    atexit.register(server.__exit__)
    return server


def quick_path() -> str:
    """A PATH on which the `tfgrpo` of shells is forked off as `run_command`'s is."""
    return os.pathsep.join((str(command_server().programs), str(TFGRPO.parent), os.environ["PATH"]))


def run_command(
    arguments: Sequence[str],
    folder: Path,
    env: dict[str, str] | None = None,
    *,
    input: str = "",
    timeout: float = 240,
) -> subprocess.CompletedProcess[str]:
    """Runs `tfgrpo` as a process of its own in that folder; returns what it printed and its code.

    It is forked off a process that has imported everything, which takes a tenth of the time;
    where the environment is of the kind that is read at an interpreter's start, it is started
    anew.
    """
    env = environment() if env is None else env
    if any(env.get(k) != os.environ.get(k) for k in env if k.startswith(READ_AT_START)):
        return subprocess.run(
            [TFGRPO, *arguments],
            cwd=folder,
            env=env,
            input=input,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
    return command_server().run(arguments, folder, env, input=input, timeout=timeout)


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """A throw-away PostgreSQL of this process's tests; they are skipped where there is none."""
    import postgres

    if reason := postgres.missing():
        pytest.skip(reason)
    return postgres.cluster()


LIBRARIES = count()


@pytest.fixture
def shared(cluster: Cluster) -> str:
    """The address of a library of the test's own that was not made yet."""
    return cluster.address(f"t{next(LIBRARIES)}")


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """Runs `tfgrpo` in `tmp_path` as a process of its own, and returns what it printed."""

    def run(
        *arguments: str, ok: bool = True, env: dict[str, str] | None = None, timeout: float = 240
    ) -> subprocess.CompletedProcess[str]:
        done = run_command(arguments, tmp_path, environment(**(env or {})), timeout=timeout)
        assert not ok or done.returncode == 0, done.stderr
        return done

    return run


@pytest.fixture
def endpoint() -> Iterator[ScriptedEndpoint]:
    """A model on loopback that can be taught."""
    with ScriptedEndpoint() as running:
        yield running


@pytest.fixture(scope="session")
def verifier() -> Iterator[Verifier]:
    """One worker process that judges answers."""
    with Verifier(workers=1) as running:
        yield running


def problems(numbers: Sequence[int]) -> str:
    """A JSONL dataset for the model of `scripted.py`: one problem for each number."""
    rows = [{"problem": f"What is {n} op {n + 3}?", "answer": 2 * n + 4} for n in numbers]
    return "".join(json.dumps(row) + "\n" for row in rows)


def one_line_error(done: subprocess.CompletedProcess[str], *said: str, code: int = 1) -> None:
    """Asserts that a command failed as promised: one line, a hint, a code, no traceback."""
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    lines = done.stderr.strip().splitlines()
    errors = [line for line in lines if line.startswith("error: ")]
    assert len(errors) == 1, done.stderr
    assert lines[-1].startswith("hint: "), done.stderr
    assert "Traceback" not in done.stderr
    for words in said:
        assert words in done.stderr, done.stderr


class Printed(NamedTuple):
    """What a command printed, and its exit code."""

    out: str
    err: str
    code: int


Verb = Callable[..., Printed]


@pytest.fixture
def verb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Verb:
    """Runs `tfgrpo` in this process, in `tmp_path`, as ann."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(AUTHOR, "ann")
    monkeypatch.delenv("TFGRPO_STORE", raising=False)

    from tfgrpo.cli.main import main

    def run(*words: str, typed: str = "") -> Printed:
        monkeypatch.setattr(sys, "argv", ["tfgrpo", *words])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed.encode())))
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        return Printed(captured.out, captured.err, int(stop.value.code or 0))

    return run
