"""Random search over examples: sets of right answers before the problem, the best by validation.

The model attempts training problems; what came out right is an example as it is, of the rest the
right answer is. Each candidate is a random set of them, scored once on the validation problems,
until the budget is spent or there are enough.
"""

from __future__ import annotations

import random

from racing import (
    BudgetSpent,
    Job,
    RowFile,
    attempt_all,
    leave,
    main,
    mean,
    prompt_of,
    right_examples,
    with_examples,
)

SIZES = (4, 8, 16, 32)
CANDIDATES = 24


def random_search(job: Job) -> None:
    """Leaves the best of the sets that were tried, and the seed where none is better."""
    seed, ended = prompt_of(job.seed_text), "done"
    tried, pool = RowFile(job.folder / "tried.jsonl"), RowFile(job.folder / "pool.jsonl")
    try:
        if not pool.rows:
            pool.add(right_examples(job, seed, job.train))
        if not tried.rows:
            tried.add([mean(attempt_all(job, seed, job.validation, "seed")), seed])
        for number in range(len(tried.rows), CANDIDATES + 1):
            dice = random.Random(f"{job.seed}/{number}")
            size = min(dice.choice(SIZES), len(pool.rows[0]))
            chosen = [tuple(pair) for pair in dice.sample(pool.rows[0], size)]
            prompt = with_examples(job.seed_text, chosen)
            tried.add([mean(attempt_all(job, prompt, job.validation, number)), prompt])
    except BudgetSpent:
        ended = "budget"
    score, best = max(tried.rows, key=lambda row: row[0]) if tried.rows else (None, seed)
    final = tried.rows[-1][1] if tried.rows else seed
    leave(job, final, best, ended=ended, notes={"validation": score, "tried": len(tried.rows)})


if __name__ == "__main__":
    main(random_search)
