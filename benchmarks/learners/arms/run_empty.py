"""The empty library: the seed text, and nothing learned."""

from __future__ import annotations

from racing import Job, leave, main, prompt_of


def empty(job: Job) -> None:
    """Leaves the seed."""
    leave(job, prompt_of(job.seed_text), prompt_of(job.seed_text))


if __name__ == "__main__":
    main(empty)
