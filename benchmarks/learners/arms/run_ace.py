"""ACE (the ace-framework package): a playbook of bullets, reflection on every problem, no gate.

Its agent, reflector and curator are used as they are, each sample of the training problems in turn
and as many epochs as the budget has room for. A checkpoint is left after every tenth, and the race
takes the best of them by validation. What is deployed is the seed text with the playbook, in the
words that ACE's own wrapper puts it into a prompt with.
"""

from __future__ import annotations

import json
from typing import Any

from racing import (
    BudgetSpent,
    Job,
    Prompt,
    RowFile,
    answer_of,
    ask,
    is_right,
    leave,
    main,
    prompt_of,
)

EPOCHS = 5
EVERY = 10
CHECKPOINTS = 6
ROLE_TOKENS = 1024
TRIES = 3


def learn(job: Job) -> None:
    """Leaves the playbook, and some on the way."""
    from ace import Agent, EnvironmentResult, Reflector, Sample, Skillbook, SkillManager
    from ace.adaptation import OfflineACE, TaskEnvironment
    from ace.llm import LLMClient, LLMResponse

    class Client(LLMClient):
        """Asks through the meter, with the answer's schema in the request as the endpoint takes
        it, and again with what was wrong, as the package's own client does."""

        def __init__(self) -> None:
            super().__init__(model=job.model)
            self.calls, self.is_over, self.failed = 0, False, 0

        def complete(self, prompt: str, **kwargs: Any) -> LLMResponse:
            return LLMResponse(self._text([{"role": "user", "content": prompt}]))

        def complete_structured(self, prompt: str, response_model: Any, **kwargs: Any) -> Any:
            schema = response_model.model_json_schema()
            wanted = f"{prompt}\n\nAnswer with JSON that follows this schema:\n{json.dumps(schema)}"
            messages, error = [{"role": "user", "content": wanted}], ValueError("no answer")
            for _ in range(TRIES):
                text = self._text(messages, response_format={"type": "json_object"})
                try:
                    start, end = text.index("{"), text.rindex("}") + 1
                    return response_model.model_validate_json(text[start:end])
                except ValueError as problem:
                    error = problem
                    messages = [
                        messages[0],
                        {"role": "assistant", "content": text},
                        {"role": "user", "content": f"That cannot be read: {str(problem)[:300]}"},
                    ]
            self.failed += 1
            raise error

        def _text(self, messages: list[dict[str, str]], **wanted: Any) -> str:
            self.calls += 1
            try:
                seed = job.seed * 100_003 + self.calls
                return ask(job, messages, seed=seed, max_tokens=ROLE_TOKENS, **wanted).text
            except BudgetSpent:
                self.is_over = True
                raise

    class Judged(TaskEnvironment):
        """The race's judge."""

        def evaluate(self, sample: Any, agent_output: Any) -> Any:
            given, gold = agent_output.final_answer, sample.ground_truth
            right = is_right(job.kind, gold, given)
            verdict = (
                f"Right: {gold}." if right else f"Wrong: {answer_of(job.kind, given)}, not {gold}."
            )
            return EnvironmentResult(verdict, gold, {"correct": float(right)})

    client, books_file = Client(), RowFile(job.folder / "playbooks.jsonl")
    book = Skillbook.loads(json.dumps(books_file.rows[-1][1])) if books_file.rows else Skillbook()
    learner = OfflineACE(
        skillbook=book,
        agent=Agent(client),
        reflector=Reflector(client),
        skill_manager=SkillManager(client),
        enable_observability=False,
    )
    samples = [
        Sample(row["problem"], context=job.seed_text, ground_truth=row["answer"])
        for row in job.train
    ] * EPOCHS
    done = books_file.rows[-1][0] if books_file.rows else 0
    while done < len(samples) and not client.is_over and job.spent < 1.0:
        learner.run(samples[done : done + EVERY], Judged())
        done += EVERY
        books_file.add([done, learner.skillbook.to_dict()])
    books = [Skillbook.loads(json.dumps(row[1])) for row in books_file.rows] or [learner.skillbook]
    step = -(-len(books) // CHECKPOINTS)
    leave(
        job,
        deployed(job, books[-1]),
        None,
        checkpoints=[deployed(job, one) for one in books[::-1][::step]],
        ended="budget" if job.spent >= 1.0 else "done",
        notes={"problems": done, "bullets": len(books[-1].skills()), "unreadable": client.failed},
    )


def deployed(job: Job, book: Any) -> Prompt:
    """Returns the seed text with a playbook, as ACE puts it before a task."""
    from ace.integrations.base import wrap_skillbook_context

    if not book.skills():
        return prompt_of(job.seed_text)
    return prompt_of(f"{job.seed_text}\n\n{wrap_skillbook_context(book)}")


if __name__ == "__main__":
    main(learn)
