"""Examples: problems with a right answer, whose way of answering a model copies.

Where answers are shared, as labels are, or attempts say nothing but an answer, an example is a
problem with its ground truth: for such tasks many right examples are worth more than rules
(Agarwal et al., Many-Shot In-Context Learning, arXiv 2404.11018). Elsewhere it is a verified
attempt. It is a candidate like any other, but all of a step are shown or hidden together
(`assign.py`), and none at its own problem, whose answer it gives away.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from math import inf
from statistics import fmean, median
from typing import Any, NamedTuple

from tfgrpo.data.problems import Problem
from tfgrpo.learn.reflection import StepOrigin, right_answers
from tfgrpo.model.response import visible
from tfgrpo.rendering.experience_texts import example_beginning, example_text, one_line
from tfgrpo.rendering.retrieve import MOST_TOKENS, WHOLE
from tfgrpo.rendering.token_count import count_tokens
from tfgrpo.rollout.attempt import Group
from tfgrpo.store.canonical import derived_id
from tfgrpo.store.records import Operation
from tfgrpo.store.store import Store

MOST = 512
"""Examples of a run at most, of which a prompt gets a part."""
LONGEST = 400
"""The most tokens of an example: a longer attempt says too much of its own problem."""
ANSWER = "\N{OBJECT REPLACEMENT CHARACTER}"
"""What stands for the answer in a form of giving one."""
LOOKED_AT = 8
"""The attempts whose record is read: a model that thinks before it answers does so mostly."""
AROUND = 6
"""The most tokens that an attempt has beside an answer where it has nothing else: a box, a fence.
"""
BLANKS = re.compile(r"\s*([^\w\s])\s*")
LONGEST_FORM = 40
"""The most characters that a form has beside the answer: more say something of the problem."""


class Example(NamedTuple):
    """A problem with a right answer, as an experience says it, and what shows that it is right."""

    problem: Problem
    text: str
    reason: str
    evidence: dict[str, Any]


def redacted_problems(store: Store) -> set[str]:
    """The problems whose examples were redacted: none of them becomes one again."""
    events = store.events_at(store.port.redactions.rows()).values()
    proofs = [event.evidence or {} for event in events]
    return {str(proof["problem"]) for proof in proofs if proof.get("kind") == "example"}


def are_answers_alone(groups: Sequence[Group], store: Store) -> bool:
    """Whether most attempts give a readable answer and nothing else, without thinking before it, by
    the record of their calls in a store. An example that is only the ground truth then shows the
    expected form."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    around = [
        inf if one.answer is None else tokens_beside(one.answer, one.response) for one in rollouts
    ]
    if not (around and median(around) <= AROUND):
        return False
    if not all(right_answers(group.problem) for group in groups):
        return False
    calls = [store.runs.call(bytes.fromhex(one.call)) for one in rollouts[:LOOKED_AT] if one.call]
    return not any(call.reasoning_tokens for call in calls if call is not None)


def tokens_beside(answer: str, response: str) -> int:
    """About how many tokens a response has beside an answer. How an object is laid out is none."""
    if answer.startswith('{"'):
        answer, response = (BLANKS.sub(r"\1", text) for text in (answer, response))
    return count_tokens(response) - count_tokens(answer)


def winning_attempts(groups: Iterable[Group]) -> Iterator[Example]:
    """Yields the shortest winner of each mixed group, groups with the lowest rewards first. Where
    the right answer is known, an attempt that is only partly right is no winner."""
    mixed = (group for group in groups if group.mixed)
    for group in sorted(mixed, key=lambda group: fmean(group.rewards)):
        best = max(rollout.own_reward or 0.0 for rollout in group.winners)
        if best < 1 and right_answers(group.problem):
            continue
        winners = [rollout for rollout in group.winners if rollout.own_reward == best]
        winner = min(winners, key=lambda one: (len(visible(one.response)), one.sample))
        if visible(winner.response).strip():
            text = example_text(group.problem.problem, visible(winner.response))
            evidence = {
                "rollouts": [[winner.sample, winner.reward]],
                "calls": [key[:16] for key in winner.calls],
                "call": winner.call,
            }
            yield Example(group.problem, text, "a verified attempt", evidence)


def right_examples(groups: Sequence[Group], *batches: Sequence[Problem]) -> Iterator[Example]:
    """Yields the problems of `batches` with their ground truth, in the form of most right attempts
    of `groups`. Problems whose groups are mixed come first, then the others, those that every
    attempt solved last. No answer is repeated before every other answer has come as often."""
    form, by_id = _form(groups), {group.problem.id: group for group in groups}

    def rank(problem: Problem) -> tuple[int, float]:
        group = by_id.get(problem.id)
        rewards = group.rewards if group is not None else ()
        mean = fmean(rewards) if rewards else 0.0
        return (0 if group is not None and group.mixed else 1 if mean < 1.0 else 2), mean

    seen: Counter[str] = Counter()
    turns: list[tuple[int, Example]] = []
    for problem in sorted(chain.from_iterable(batches), key=rank):
        for answer in right_answers(problem)[:1]:
            text = example_text(problem.problem, form.replace(ANSWER, answer))
            turns.append((seen[answer], Example(problem, text, "a right answer", {})))
            seen[answer] += 1
    yield from (example for _, example in sorted(turns, key=lambda turn: turn[0]))


def _form(groups: Sequence[Group]) -> str:
    forms: Counter[str] = Counter()
    for group in groups:
        for rollout in group.rollouts:
            lines = visible(rollout.response).strip().splitlines()
            last = one_line(lines[-1]) if lines else ""
            for answer in (
                right_answers(group.problem)[:1] if (rollout.own_reward or 0) >= 1 else ()
            ):
                if last.count(answer) == 1 and len(last) - len(answer) <= LONGEST_FORM:
                    forms[last.replace(answer, ANSWER)] += 1
    return max(forms, key=lambda form: (forms[form], form), default=ANSWER)


def add_examples(
    examples: Iterable[Example], there: Iterable[str], step: int, origin: StepOrigin
) -> list[Operation]:
    """The ADDs of examples that are short and new; `there` are the texts of the pool. They are as
    many as fit into each prompt, or all where there are more than a prompt may have."""
    begun = tuple(there)
    usable = [
        (one, tokens)
        for one in examples
        if not one.problem.messages  # a conversation has several turns, and others' words
        and (tokens := count_tokens(one.text)) <= LONGEST
        and not any(text.startswith(example_beginning(one.problem.problem)) for text in begun)
    ]
    chosen, left = usable[:MOST], MOST_TOKENS
    if len(usable) <= WHOLE:
        chosen = []
        for one, tokens in usable:
            if tokens <= left:
                chosen.append((one, tokens))
                left -= tokens
    operations = []
    for one, _ in chosen:
        id = derived_id(origin.uid, step, "example", one.problem.id)
        proof = {**origin.evidence, "kind": "example", "problem": one.problem.id, **one.evidence}
        operations.append(Operation("ADD", id, one.text, one.reason, proof))
    return operations
