"""What needs no search: the seed text alone, and what a person could set beside it at once.

`rules` are a person's who knows the conventions. `unsearched` are right answers to random training
problems, and `trajectories` attempts at them as they came, each with what the judge says of it.
`nearest` shows each problem the right answers to those most like it, and `lookup` gives the answer
of the one most like it, without a model. Likeness is that of character trigrams.
"""

from __future__ import annotations

import random

from racing import (
    Job,
    Prompt,
    answer_text,
    attempt_all,
    feedback,
    leave,
    main,
    prompt_of,
    right_examples,
    with_examples,
    with_rules,
)

SHOWN = 32
NEAREST = 8


def given(job: Job) -> Prompt:
    """Returns the prompt of an arm. Raises BudgetSpent, and ValueError for one that is not here."""
    seed = prompt_of(job.seed_text)
    some = random.Random(job.seed).sample(job.train, min(SHOWN, len(job.train)))
    match job.arm:
        case "empty":
            return seed
        case "rules":
            return with_rules(job.seed_text, job.rules)
        case "unsearched":
            return with_examples(job.seed_text, right_examples(job, seed, some))
        case "trajectories":
            attempts = attempt_all(job, seed, some, "examples")
            told = (
                f"{one.row['problem']}\n{one.response}\n{feedback(job.kind, one)}"
                for one in attempts
            )
            return prompt_of("\n\n".join((job.seed_text, "Attempts of before:", *told)))
        case "nearest":
            pool = right_examples(job, seed, job.train)
            return {"text": job.seed_text, "pool": pool, "count": NEAREST}
        case "lookup":
            return {"pool": [(row["problem"], answer_text(row["answer"])) for row in job.train]}
    raise ValueError(f"{job.arm} is no arm of what is given")


def leave_given(job: Job) -> None:
    """Leaves the prompt of an arm."""
    prompt = given(job)
    leave(job, prompt, prompt)


if __name__ == "__main__":
    main(leave_given)
