"""Writes train.jsonl and heldout.jsonl from the tasks that a desk's package has.

python rows.py retail [COUNT]
python rows.py airline [COUNT]
"""

from __future__ import annotations

import importlib.resources
import json
import sys
from pathlib import Path
from typing import Any

READS = ("get_", "find_", "list_", "search_", "calculate", "transfer_")
"""How tools are called that change nothing."""


def row(desk: str, task: dict[str, Any]) -> dict[str, Any]:
    """Returns a task as a problem: what the customer wants and knows, and what should be done."""
    told = task["user_scenario"]["instructions"]
    parts = ("reason_for_call", "known_info", "unknown_info", "task_instructions")
    checks = task["evaluation_criteria"]
    return {
        "id": f"{desk}-{task['id']}",
        "problem": told["reason_for_call"],
        "persona": "\n".join(told[part] for part in parts if told.get(part)),
        "desk": desk,
        "expected": [{key: one[key] for key in ("name", "arguments")} for one in checks["actions"]],
        "tell": checks.get("communicate_info") or [],
    }


def can_be_checked(criteria: dict[str, Any]) -> bool:
    """Returns whether data and words decide alone, and data should change."""
    read = "NL_ASSERTION" in criteria["reward_basis"] and criteria.get("nl_assertions")
    changes = [one for one in criteria["actions"] if not one["name"].startswith(READS)]
    return bool(changes) and not read


def main() -> None:
    """Takes the tasks with the fewest expected calls among those that data can decide."""
    desk, count = sys.argv[1], int(sys.argv[2]) if sys.argv[2:] else 8
    data = importlib.resources.files(f"tau2_{desk}_mcp") / "data" / "tau2" / "domains" / desk
    tasks = {one["id"]: one for one in json.loads((data / "tasks.json").read_text())}
    splits = json.loads((data / "split_tasks.json").read_text())
    for name, split in (("train", "train"), ("heldout", "test")):
        listed = [tasks[id] for id in splits[split]]
        plain = [one for one in listed if can_be_checked(one["evaluation_criteria"])]
        plain.sort(key=lambda one: len(one["evaluation_criteria"]["actions"]))
        lines = [json.dumps(row(desk, one), ensure_ascii=False) + "\n" for one in plain[:count]]
        Path(f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
