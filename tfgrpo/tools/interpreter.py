"""The interpreter inside the sandbox: reads code, runs it, answers with what came of it.

Runs as a program of its own (`python -I interpreter.py PLAN required|optional`) with the standard
library alone; PLAN is a `confine.Plan` as JSON. It confines itself first, writes on its first line
what it could not, and then answers each line `{"code", "mark"}` with whatever the code printed,
followed by the mark and `{"value", "error"}` on one line. The mark is new in every call. It keeps
the answer apart from the output; it is no proof, because the code could read it here.
"""

import ast
import importlib
import json
import os
import sys
import traceback
from typing import Any

CODE = "<code>"


def main(plan: str, required: str) -> None:
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    confine: Any = importlib.import_module("confine")
    del sys.path[0]
    own_plan = confine.Plan(**json.loads(plan))
    os.chdir(own_plan.scratch)
    os.dup2(1, 2)
    confinement = confine.confine(own_plan, confine.python_files())
    print(json.dumps(confinement._asdict()), flush=True)
    if confinement.missing and required == "required":
        sys.exit(3)
    commands = os.fdopen(os.dup(0), encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # input() finds nothing, and no commands
    namespace: dict[str, object] = {"__name__": "__main__"}
    for line in commands:
        command = json.loads(line)
        outcome = run(command["code"], namespace)
        sys.stdout.flush()
        os.write(1, f"\n{command['mark']}{json.dumps(outcome)}\n".encode())


def run(code: str, namespace: dict[str, object]) -> dict[str, str | None]:
    """Runs code as a notebook does: the value of a last expression is part of what it gives."""
    try:
        tree = ast.parse(code, CODE)
        last = tree.body[-1] if tree.body else None
        if isinstance(last, ast.Expr):
            tree.body.pop()
        exec(compile(tree, CODE, "exec"), namespace)
        if not isinstance(last, ast.Expr):
            return {"value": None, "error": None}
        value = eval(compile(ast.Expression(last.value), CODE, "eval"), namespace)
        return {"value": None if value is None else repr(value)[:20_000], "error": None}
    except BaseException as error:  # SystemExit and KeyboardInterrupt too: the session goes on
        # Where in the code, and not in whose library: that is noise, and tells of the machine.
        own = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == CODE]
        lines = traceback.format_list(own) + traceback.format_exception_only(error)
        return {"value": None, "error": "".join(lines)[-4000:]}


if __name__ == "__main__":
    main(*sys.argv[1:])
