"""tfgrpo with its defaults, and the method as published.

Both start from the race's seed text and are judged by the race's judge; the prompts are the
built-in ones. tfgrpo measures on the problems that it learns from, so those for validation are
further ones of these. It knows its budget, as a person's run with `--budget` does: a second is a
dollar. A library that stayed empty is deployed as the seed text.
"""

from __future__ import annotations

import json
from typing import Any

from racing import Job, Prompt, Row, answer_of, is_right, leave, main, prompt_of

import tfgrpo
from tfgrpo.domains.base import Context, Domain, Judge, Trajectory, Verdict
from tfgrpo.learn.fitted_defaults import local_sizes
from tfgrpo.model.budget import BudgetReached
from tfgrpo.runs.run_versions import versions_of
from tfgrpo.store.errors import TfgrpoError

PUBLISHED: dict[str, Any] = {"epochs": 3, "batch_size": 100, "group_size": 5, "policy": "paper"}
"""arXiv 2510.08191: three epochs, the whole set a step, groups of five, one plan for a batch."""
CHECKPOINTS = 6


def judge_of(kind: str) -> Judge:
    """Returns the race's judge as ours takes one."""

    async def judge(context: Context, trajectory: Trajectory) -> Verdict:
        gold = str(context.problem.answer)
        right = is_right(kind, gold, trajectory.response)
        answer = answer_of(kind, trajectory.response)
        return Verdict(float(right), answer, "right" if right else f"not {gold}")

    return judge


def settings_of(job: Job) -> dict[str, Any]:
    """Returns the settings of an arm. Raises ValueError for one that is not ours."""
    settings: dict[str, Any] = {
        "model": job.model,
        "agent_objective": job.seed_text,
        "temperature": job.temperature,
        "max_tokens": job.max_tokens,
        "concurrency": job.concurrency,
        "seed": job.seed,
    }
    if job.arm == "published":
        return settings | PUBLISHED
    if job.arm != "tfgrpo":
        raise ValueError(f"{job.arm} is no arm of tfgrpo")
    if job.local:
        kind = "choice" if job.kind == "label" else "math"
        settings |= local_sizes(len(job.train) + len(job.validation), 0, kind)
    return settings | {"budget": f"{job.budget:.6f}"}


def train(job: Job) -> None:
    """Leaves the library that the run deploys, rendered, and its versions as checkpoints."""
    settings = settings_of(job)
    domain = Domain(
        name=f"race-{job.kind}",
        verify=judge_of(job.kind),
        shared_answers=job.kind == "label",
    )
    config, file = job.folder / "tfgrpo.toml", job.folder / "train.jsonl"
    prices = {name: 1e6 / speed for name, speed in job.speeds.items()}
    price = f"prompt = {prices['prefill']}, cached = 0, completion = {prices['decode']}"
    # No other project's settings are those of the race. The meter has another address each time,
    # and a run goes on with other endpoints, not with another base_url.
    table = f"[prices]\n{json.dumps(job.model)} = {{ {price} }}\n"
    table += f"[[endpoints]]\nbase_url = {json.dumps(job.base_url)}\n"
    config.write_text(table, encoding="utf-8")
    rows = job.train if job.arm == "published" else [*job.train, *job.validation]
    file.write_text("".join(json.dumps(_plain(row)) + "\n" for row in rows))
    store, ended, notes = job.folder / "store.db", "done", {}
    try:
        result = tfgrpo.train_sync(
            str(file),
            store=store,
            config=config,
            run="race",
            domain=domain,
            keep_going=True,
            **settings,
        )
        notes = {"experiences": len(result.library), "seconds": round(result.seconds, 1)}
    except TfgrpoError as error:
        if job.spent < 1.0 and not isinstance(error, BudgetReached):
            raise
        ended, notes = "budget", {"stopped": str(error)}
    with tfgrpo.Store.open(store) as opened:
        run = opened.runs.find("race")
        versions = versions_of(opened, run)
        chosen = opened.tags().get("race/best")
        final = versions[-1] if versions else opened.version(0)
        best = final if chosen is None else opened.version(chosen)
        prompts = {v.number: _prompt(job, opened, v) for v in (*versions, final, best)}
    step = -(-len(versions) // CHECKPOINTS) or 1
    leave(
        job,
        prompts[final.number],
        None if job.arm == "published" else prompts[best.number],
        checkpoints=[prompts[v.number] for v in versions[::-1][::step]],
        ended=ended,
        notes=notes,
    )


def _plain(row: Row) -> Row:
    return {name: row[name] for name in ("id", "problem", "answer")}


def _prompt(job: Job, store: tfgrpo.Store, version: Any) -> Prompt:
    """Returns a version's library as a prompt."""
    texts = [one.text for one in store.library(version).readable]
    return {"text": job.seed_text, "library": texts} if texts else prompt_of(job.seed_text)


if __name__ == "__main__":
    main(train)
