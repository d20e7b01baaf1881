"""The lines the house is built along: who imports whom, what starts light, what is documented."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import click
import pytest
from conftest import ROOT, environment, run_command

FOLDERS = {
    "migrations": "tfgrpo.migrations",
    "store": "tfgrpo.store",
    "tfgrpo": "tfgrpo",
    "cli": "tfgrpo.cli",
}
LEVELS = list(FOLDERS)
HEAVY = (
    "openai",
    "math_verify",
    "numpy",
    "sympy",
    "pydantic",
    "rich",
    "sqlite_utils",
    "pebble",
    "asyncio",
    "filelock",
)
SLOW = (
    "pathlib",
    "json",
    "hashlib",
    "difflib",
    "shutil",
    "dataclasses",
    "tempfile",
    "importlib.metadata",
)
"""Of the standard library: each takes from one to eight per cent of a bare start with click."""
NOT_SHOWN = ("tfgrpo.store.activity.runs", "tfgrpo.store.port", "tfgrpo.store.signing")
"""Of ours: what a log loads for its options alone, or nothing of it."""
LIGHT = (
    ["--help"],
    ["log"],
    ["log", "--oneline"],
    ["log", "--graph", "-p", "--since", "1d"],
    ["branch"],
    ["diff", "v0", "HEAD"],
    ["show"],
    ["checkout", "main"],
    ["status"],
    ["train", "--help"],
)


def level(module: str) -> int:
    """Returns how high a module stands: what it may import is no higher."""
    for name in ("tfgrpo.migrations", "tfgrpo.store", "tfgrpo.cli"):
        if module == name or module.startswith(name + "."):
            return LEVELS.index(name.rpartition(".")[2])
    return LEVELS.index("tfgrpo")


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Returns all nodes of a file's syntax tree."""
    return tuple(ast.walk(ast.parse(path.read_text())))


def imported(path: Path) -> Iterator[str]:
    """Yields the modules that a file imports, wherever in it."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def importers(*packages: str) -> set[str]:
    """Returns the files that import any of these packages, or a module in one, for more than its
    types."""
    wanted = tuple(f"{package}." for package in packages)
    return {
        str(path.relative_to(ROOT))
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        if any(f"{name}.".startswith(wanted) for name in imported_at_runtime(path))
    }


def test_imports_point_one_way() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for number, folder in enumerate(LEVELS)
        for path in sorted((ROOT / folder).rglob("*.py"))
        for name in imported(path)
        if name.split(".")[0] == "tfgrpo" and level(name) > number
    ]
    assert not wrong


ROOMS = (
    ("terminal_safe", "web_address", "wording"),
    ("migrations", "notices", "result_tables", "prompts"),
    ("store",),
    ("toml_text",),
    ("author", "rendering", "local", "costs", "one_writer"),
    ("data", "model"),
    ("trust",),
    ("domains", "tools", "connect"),
    ("agents",),
    ("settings", "session"),
    ("interchange",),
    ("mirror",),
    ("project", "rollout", "init_from_data", "hand_edits"),
    ("evaluation",),
    ("runs",),
    ("learn",),
    ("production", "workers"),
    ("display", "proxy", "redaction"),
    ("improvement",),
    ("ui", "serving"),
    ("api", "cli"),
)
"""The rooms of the package from the ground up: each imports only those below it."""


def test_a_room_imports_only_those_below_it() -> None:
    floors = {room: floor for floor, rooms in enumerate(ROOMS) for room in rooms}
    wrong = []
    for folder, package in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = (*package.split("."), *path.relative_to(ROOT / folder).with_suffix("").parts)
            if len(parts) < 2 or parts[1] == "__init__":  # what is offered, loaded when used
                continue
            for name in imported_at_runtime(path):
                other = name.split(".")[1] if name.startswith("tfgrpo.") else parts[1]
                if other in floors and other != parts[1] and floors[other] >= floors[parts[1]]:
                    wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert wrong == []


def imported_at_runtime(path: Path) -> Iterator[str]:
    """Yields the modules that a file imports, those apart that serve types alone."""
    waiting: list[ast.AST] = [ast.parse(path.read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            node.body = []
        waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_no_module_has_the_name_of_what_its_package_offers() -> None:
    """Where it is imported it takes the name's place: the call of a function becomes one of a
    module."""
    shadowed = []
    for folder, package in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("__init__.py")):
            name = ".".join((package, *path.parent.relative_to(ROOT / folder).parts))
            offered = getattr(import_module(name), "__all__", ())
            modules = {module.name for module in iter_modules([str(path.parent)])}
            shadowed += [f"{name}.{one}" for one in sorted(modules.intersection(offered))]
    assert shadowed == []


def test_the_table_of_packages_is_what_the_tree_has() -> None:
    import tomllib

    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    tree = {
        ".".join((*package.split("."), *path.parent.relative_to(ROOT / folder).parts)): str(
            path.parent.relative_to(ROOT)
        )
        for folder, package in FOLDERS.items()
        for path in (ROOT / folder).rglob("__init__.py")
    }
    assert table["package-dir"] == tree
    assert sorted(table["packages"]) == sorted(tree)


def test_one_place_chooses_the_implementation_of_the_port() -> None:
    for room in ("sqlite", "postgres"):
        users = importers(f"tfgrpo.store.{room}")
        assert {f for f in users if not f.startswith(f"store/{room}/")} == {"store/opening.py"}


def test_a_class_of_the_port_has_at_most_25_methods() -> None:
    methods = {
        node.name: sum(
            isinstance(one, ast.FunctionDef)
            and not one.name.startswith("_")
            and not any("property" in ast.unparse(part) for part in one.decorator_list)
            for one in node.body
        )
        for name in ("sql/port", "sql/port_parts", "sql/runs", "sqlite/side_files")
        for node in nodes(ROOT / "store" / f"{name}.py")
        if isinstance(node, ast.ClassDef)
    }
    assert {"Port", "SqlNames", "SqlStorage", "SqlRecords", "SqliteTraffic"} <= methods.keys()
    assert {name: number for name, number in methods.items() if number > 25} == {}


def test_sql_is_spoken_by_the_implementation_and_its_schema() -> None:
    spoken = importers("sqlite3", "sqlite_utils")
    outside = {f for f in spoken if not f.startswith(("store/sqlite/", "migrations/"))}
    assert outside == set()


PRINTING = {"echo", "secho", "style", "confirm", "prompt", "echo_via_pager", "pause"}
"""What click prints with, or makes to be printed."""
PRINTERS = ("cli/printing.py", "tfgrpo/terminal_safe.py")
CHILDREN = ("tfgrpo/tools/interpreter.py", "tfgrpo/local/model_process.py")
"""Programs whose output is read by ours."""


def test_one_module_prints_all_that_reaches_a_terminal() -> None:
    """`cli/printing.py` makes visible what would command a terminal. What rich draws went through
    it in one function of `cli/live_display.py`, and `tfgrpo serve` writes bytes for a program."""
    around = []
    for path in sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        name = str(path.relative_to(ROOT))
        for node in nodes(path):
            if not isinstance(node, ast.Call) or name in (*PRINTERS, *CHILDREN):
                continue
            called = ast.unparse(node.func)
            module, _, attribute = called.rpartition(".")
            prints = called == "print" or (module == "click" and attribute in PRINTING)
            prints |= module.startswith(("sys.stdout", "sys.stderr")) and "write" in attribute
            prints |= called == "Console" and name != "cli/live_display.py"
            prints |= called == "Text" and "shown(" not in ast.unparse(node)
            if prints:
                around.append(f"{name}:{node.lineno} calls {called}")
    assert around == []


WRITING, MOVING = {"write_text", "write_bytes", "mkstemp"}, {"replace", "rename", "renames"}
WRITERS = {
    "store/atomic_write.py": "writes all the others",
    "store/transfer/locations.py": "a clone whose file was synchronised takes its place",
    "tfgrpo/local/partial_download.py": "a download that was synchronised takes its place",
    "tfgrpo/local/weights_sources.py": "what pip says, until it ends",
    "tfgrpo/tools/corpus.py": "an index that is made anew where it is not whole",
    "tfgrpo/tools/session_bounds.py": "files of the kernel",
    "cli/fsck_redact.py": "an account of a crash, in the folder for temporary files",
}
"""Who writes files in a way of their own, and why a loss of power or a kill does no harm there."""


def test_one_module_writes_files_that_stay() -> None:
    around = set()
    for path in sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        for node in nodes(path):
            if not isinstance(node, ast.Call):
                continue
            module, _, attribute = ast.unparse(node.func).rpartition(".")
            if module in ("formatter", "port.redactions"):  # no files
                continue
            of_path = len(node.args) == 1 and not node.keywords  # a text has replace(old, new)
            writes = attribute in WRITING or (attribute in MOVING and (module == "os" or of_path))
            modes = [ast.unparse(one) for one in node.args[:2]] if attribute == "open" else []
            if writes or any(re.fullmatch("'[wx]b?\\+?'", mode) for mode in modes):
                around.add(str(path.relative_to(ROOT)))
    assert around == {*WRITERS}


def test_a_tree_has_files_in_every_folder() -> None:
    for folder in FOLDERS:
        assert list((ROOT / folder).glob("*.py")), folder


def test_nothing_else_lies_at_the_top_of_the_repository() -> None:
    """What a command or a test left behind is not committed with the rest."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a clone of a repository")
    texts = {"CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md"}
    texts |= {".ci", ".gitignore", "pyproject.toml", "benchmarks", "docs", "examples", "tests"}
    top = {line.split("/")[0] for line in listed.stdout.splitlines()}
    assert top - texts - set(FOLDERS) == set()


def test_a_wheel_holds_tfgrpo_alone_with_its_prompts(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in (*FOLDERS, "pyproject.toml", "README.md", "LICENSE"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path)]
    subprocess.run([*pip, str(source)], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"tfgrpo", f"{wheel.name[:12]}.dist-info"}
    prompts = {Path(name).stem for name in names if name.startswith("tfgrpo/prompts/")}
    assert prompts >= {"rollout", "summary", "comparison", "plan"}
    formats = {path.name for path in (ROOT / "tfgrpo/interchange/formats").glob("*.py")}
    for name in (*(f"interchange/formats/{n}" for n in formats), "interchange/markdown_blocks.py"):
        assert f"tfgrpo/{name}" in names
    for name in (
        "mirror/git_commands.py",
        "store/transfer/receive.py",
        "store/sqlite/port.py",
        "store/store.py",
        "cli/main.py",
        "migrations/migrations.py",
        "py.typed",
    ):
        assert f"tfgrpo/{name}" in names


MAIN = """
import gc, sys
runs = lambda: sum(one["collections"] for one in gc.get_stats())
import click, sqlite3, tfgrpo.cli
gc.collect()
before, collected = set(sys.modules), runs()  # an editable install has some already
from tfgrpo.cli.main import main
try: main()
except SystemExit as stop: assert not stop.code, stop.code
"""


@pytest.fixture(scope="module")
def looked_at(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store."""
    folder = tmp_path_factory.mktemp("looked_at")
    for line in (["init"], ["add", "Count both days."]):
        assert run_command(line, folder).returncode == 0
    return folder


def seen_after(folder: Path, arguments: Sequence[str], expression: str) -> str:
    """What an expression is after a command that looks, in a process of its own."""
    script = f"{MAIN}print({expression}, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
    )
    return done.stderr.strip()


@pytest.mark.parametrize("arguments", LIGHT, ids=" ".join)
def test_looking_imports_nothing_heavy(arguments: list[str], looked_at: Path) -> None:
    assert seen_after(looked_at, arguments, f"[m for m in {HEAVY!r} if m in sys.modules]") == "[]"


@pytest.mark.parametrize("arguments", [["log"], ["diff", "v0", "HEAD"]], ids=" ".join)
def test_a_log_or_diff_loads_no_slow_module_of_the_standard_library(
    arguments: list[str], looked_at: Path
) -> None:
    loaded = f"[m for m in {SLOW!r} if m in sys.modules.keys() - before]"
    assert seen_after(looked_at, arguments, loaded) == "[]"


def test_a_log_loads_no_module_of_ours_that_it_does_not_show_anything_with(looked_at: Path) -> None:
    """Signatures and runs are loaded where there are any; a port's signatures are for who writes
    one. What is loaded is not searched for garbage either."""
    loaded = f"[m for m in {NOT_SHOWN!r} if m in sys.modules], runs() - collected"
    assert seen_after(looked_at, ["log"], loaded) == "[] 0"


def test_importing_the_package_imports_nothing() -> None:
    script = "import sys, tfgrpo; print([m for m in sys.modules if m.startswith('tfgrpo.')])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_python_at_the_top_of_a_clone_has_the_whole_package() -> None:
    """There the folder `tfgrpo` comes before a package that is installed as a copy."""
    script = (
        "import sys; sys.meta_path = [f for f in sys.meta_path if '_Editable' not in str(f)]\n"
        "import tfgrpo, tfgrpo.store, tfgrpo.migrations, tfgrpo.cli.main, tfgrpo.store.sqlite\n"
        "import os, pkgutil; print(os.getcwd() == os.path.dirname(tfgrpo.store.__path__[0]))\n"
        "print(tfgrpo.Store is tfgrpo.store.Store, 'store' in sys.modules)\n"
        "names = [m.name for m in pkgutil.walk_packages(tfgrpo.__path__, 'tfgrpo.')]\n"
        "print(len(names) == len(set(names)) < 1000)\n"
        "try: import tfgrpo.tests\n"
        "except ModuleNotFoundError as error: print(error.name)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.split() == ["True", "True", "False", "True", "tfgrpo.tests"], done.stderr


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yields every command there is, with its whole name."""
    from tfgrpo.cli.main import tfgrpo

    def walk(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
        yield name, command
        if isinstance(command, click.Group):
            context = click.Context(command)
            for sub in command.list_commands(context):
                found = command.get_command(context, sub)
                assert found is not None
                yield from walk(f"{name} {sub}", found)

    yield from walk("tfgrpo", tfgrpo)


def examples(command: click.Command) -> list[str]:
    """Returns the examples in a command's help."""
    return re.findall(r"^\s*(tfgrpo .+)$", (command.help or "").partition("Examples:")[2], re.M)


def test_every_command_has_an_example() -> None:
    assert [name for name, command in commands() if not examples(command)] == []


def test_every_flag_has_help() -> None:
    bare = [
        f"{name} {parameter.opts[0]}"
        for name, command in commands()
        for parameter in command.params
        if isinstance(parameter, click.Option)
        and not parameter.help
        and parameter.opts[0] not in ("--port", "--slots", "--context")
    ]
    assert bare == []


def test_every_command_is_documented() -> None:
    documented = (ROOT / "docs/commands.md").read_text()
    for name, command in commands():
        assert f"## {name}\n" in documented, name
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.opts[-1] in documented, (name, parameter.opts)


WRITTEN = {
    "docs/commands.py": "docs/commands.md",
    "docs/setting_options.py": "cli/setting_options.json",
}


@pytest.mark.parametrize("script", WRITTEN)
def test_what_a_script_writes_is_up_to_date(script: str) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / script],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    file = WRITTEN[script]
    assert done.stdout == (ROOT / file).read_text(), f"run `python {script} > {file}`"


def test_help_fits_a_terminal_and_no_sentence_is_cut_off() -> None:
    lines = (ROOT / "docs/commands.md").read_text().splitlines()
    assert [line for line in lines if len(line) > 80] == []
    assert [line for line in lines if re.search(r"[a-z],? ?\.\.\.$", line)] == []


def test_no_page_has_both_sides_of_a_merge() -> None:
    """A page with markers of a conflict is still a page, and nothing else complains of it."""
    command = ["git", "grep", "-lE", "^(<{7}|>{7}) ", "--", ":!tests/vendor"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")


def test_ci_runs_the_readmes_test_command() -> None:
    ci = (ROOT / ".ci/run").read_text()
    assert "<!-- test command -->" in ci
    assert "<!-- test command -->" in (ROOT / "README.md").read_text()


def test_no_file_is_more_than_one_room() -> None:
    long = [
        str(path.relative_to(ROOT))
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        if len(path.read_text().splitlines()) > 600
    ]
    assert long == []


UNNAMED = {"found", "told", "said", "asked", "made", "kept"}
"""Words that say what was done and not what the value is."""
NAMED_SO = {
    "store/text_occurrences.py": {"kept"},
    "store/redact.py": {"kept"},
    "store/transfer/sync.py": {"kept"},
    "tfgrpo/domains/json_fields.py": {"told"},
    "tfgrpo/improvement/exchange.py": {"asked"},
    "tfgrpo/improvement/proposals.py": {"made"},
    "tfgrpo/mirror/commit_layout.py": {"made_of", "made_by_hand"},
    "tfgrpo/model/request_adaptation.py": {"asked_in_words"},
    "tfgrpo/production/experiment_evidence.py": {"said", "difference_said"},
    "tfgrpo/proxy/recorded_call.py": {"asked"},
    "tfgrpo/proxy/client_connection.py": {"connection_made"},
    "tfgrpo/proxy/passed_socket.py": {"connection_made"},
    "tfgrpo/proxy/provider_connection.py": {"connection_made"},
    "tfgrpo/runs/group_details.py": {"asked", "is_kept"},
    "tfgrpo/runs/run_record.py": {"asked"},
}
"""Those that remain: `connection_made` is asyncio's word; the others are fields, methods and
functions that other files, pages, recorded figures or the JSON of a command read by these names."""


SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
BINDINGS = (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)


def given_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yields each name that code gives to a value, parameter, function or class, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.alias) and node.asname:
            yield node.lineno, node.asname
        elif isinstance(node, (*SCOPES, *BINDINGS)) and node.name:
            yield node.lineno, node.name


def test_names_say_what_a_value_is() -> None:
    wrong, remaining = [], {path: set(names) for path, names in NAMED_SO.items()}
    for path in sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        file = str(path.relative_to(ROOT))
        for line, name in given_names(ast.parse(path.read_text())):
            if UNNAMED.isdisjoint(name.lower().split("_")):
                continue
            if name in NAMED_SO.get(file, ()):
                remaining[file].discard(name)
            else:
                wrong.append(f"{file}:{line} {name}")
    assert wrong == []
    assert not any(remaining.values()), f"named so no longer: {remaining}"


def test_no_name_of_a_module_is_given_twice() -> None:
    """Where two modules became one, the second of two constants would be what both read."""
    twice = []
    for path in sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        body = ast.parse(path.read_text()).body
        single = [node.target for node in body if isinstance(node, ast.AnnAssign)]
        several = [to for node in body if isinstance(node, ast.Assign) for to in node.targets]
        given = Counter(to.id for to in single + several if isinstance(to, ast.Name))
        twice += [f"{path.relative_to(ROOT)} {name}" for name, count in given.items() if count > 1]
    assert twice == []


def test_the_learner_knows_no_words_of_any_language() -> None:
    """What a lesson is worth is measured: no pattern of phrases, and no list of words, reads it."""
    wrong = []
    rooms = (ROOT / "tfgrpo" / room for room in ("learn", "runs"))
    for path in sorted(path for room in rooms for path in room.rglob("*.py")):
        for node in nodes(path):
            if not (isinstance(node, ast.Call) and ast.unparse(node.func).startswith("re.")):
                continue
            texts = [c.value for a in node.args for c in ast.walk(a) if isinstance(c, ast.Constant)]
            plain = " ".join(text for text in texts if isinstance(text, str))
            if len(set(re.findall(r"(?<![\\\w])[a-z]{3,}", plain))) >= 3:
                wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert wrong == []


def test_a_command_asks_its_record_only_for_what_it_was_given() -> None:
    """`Given` has no types: a name that is none of the command's would fail when it is called."""
    taken: dict[str, dict[str, set[str]]] = {}
    for _, command in commands():
        run = command.callback
        while hasattr(run, "__wrapped__"):
            run = run.__wrapped__
        assert run is not None
        names = {str(parameter.name) for parameter in command.params}
        taken.setdefault(run.__module__, {})[run.__name__] = names
    wrong = []
    for module, functions in taken.items():
        path = ROOT / "cli" / f"{module.rpartition('.')[2]}.py"
        every = set().union(*functions.values()) | {"of", "settings", "take"}
        for function in (one for one in nodes(path) if isinstance(one, ast.FunctionDef)):
            records = {a.arg for a in function.args.args if a.annotation}
            if "given" not in records or "Given" not in ast.unparse(function.args):
                continue
            own = functions.get(function.name, every) | {"of", "settings", "take"}
            for node in ast.walk(function):
                if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "given":
                    wrong += [f"{path.name} {function.name} {node.attr}"] * (node.attr not in own)
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "given.of":
                    named = {one.value for one in node.args if isinstance(one, ast.Constant)}
                    wrong += [f"{path.name} {function.name} {name}" for name in named - own]
    assert [one for one in wrong if "print_figures" not in one] == []  # its callers have those
