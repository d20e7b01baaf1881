"""Exemplars: problems with a right answer as experiences, of which a model copies the way.

Mostly they are verified winning attempts. Where answers are shared, as labels are, or attempts
give nothing but an answer, a problem that no attempt solved is as good an example as any, with its
ground truth: for tasks of this kind many right examples are worth more than rules (Agarwal et al.,
Many-Shot In-Context Learning, arXiv 2404.11018), and it is one line each.

An example is an experience like any other (rendering/examples.py), with all that experiences
have: events, diff, blame, credit, a place under the cap on tokens. Its event names the journal's
call that the attempt is on record with; the text holds the attempt itself, so that a library can
be rendered where there is no journal. An example is not shown at its own problem, whose answer it
gives away. Lessons are learned and decided about without regard to examples: those are many, and
say nothing in general.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import inf
from statistics import fmean, median
from typing import Any, NamedTuple

from tfgrpo.data.problems import Problem
from tfgrpo.model.response import visible
from tfgrpo.model.tokens import count
from tfgrpo.rendering.examples import example_beginning, example_text, is_example
from tfgrpo.rendering.lines import one_line
from tfgrpo.rollout.attempt import Group
from tfgrpo.store.canonical import derived_id
from tfgrpo.store.records import Library, Operation
from tfgrpo.store.store import Store
from tfgrpo.training.draft import Draft
from tfgrpo.training.pruning import fits
from tfgrpo.training.text_check import right_answers

LONGEST, LONGEST_BYTES = 400, 3200
"""The most tokens and bytes of an example: a longer attempt says too much of its own problem."""

MOST_TOKENS = 1536
"""The most tokens of a library that examples are added to, where it has no cap of its own: they
stand in every prompt, and a model on this machine reads 4,096 tokens in all."""
FIRST_EXAMPLES = 2
"""How many times a step's examples the step before the first attempt tries: where nothing is in
force, a trial sees what they are worth, and more of them are worth more."""
OTHERS = (2, 0.0)
"""The place of a problem without attempts among those that may be examples."""
ANSWER = "\N{OBJECT REPLACEMENT CHARACTER}"
"""What stands for the answer in a form of giving one."""
ANSWER_FORMS = {"\\boxed{": f"\\boxed{{{ANSWER}}}", "Label:": f"Label: {ANSWER}"}
"""What the text of a task says of the form of an answer, and that form."""
LOOKED_AT = 8
"""The attempts whose record is read: a model that thinks before it answers does so mostly."""
AROUND = 6
"""The most tokens that an attempt has beside an answer where it has nothing else, as a box."""
LONGEST_FORM = 40
"""The most characters that a form has beside the answer: more say something of the problem."""


def adds_example(operation: Operation) -> bool:
    """Returns whether an operation adds an example."""
    return operation.op == "ADD" and is_example(operation.text or "")


def of_other_problems(library: Library, problem: str) -> Library:
    """Returns a library without the examples of a problem; itself where it has none."""
    own = example_beginning(problem)
    ids = frozenset(e.id for e in library.readable if e.text.startswith(own))
    return library.less(ids) if ids else library


def redacted_problems(store: Store) -> set[str]:
    """Returns the problems whose examples were redacted: none of them becomes one again."""
    events = store.events_at(store.port.redactions.rows()).values()
    proofs = [event.evidence or {} for event in events]
    return {str(proof["problem"]) for proof in proofs if proof.get("kind") == "example"}


def can_be_example(problem: Problem) -> bool:
    """Returns whether a problem can be a turn: a conversation has several, and others' words."""
    return not problem.messages


class Example(NamedTuple):
    """A problem with a right answer, as an experience says it, and why it may be one."""

    problem: Problem
    text: str
    reason: str
    evidence: dict[str, Any]


def are_answers_alone(groups: Sequence[Group], store: Store) -> bool:
    """Returns whether most attempts give an answer that can be read and nothing else, no thoughts
    before it either, by the record of their calls in a store: an example with no more than the
    ground truth then shows the way that is asked for."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    around = [
        inf if one.answer is None else count(one.response) - count(one.answer) for one in rollouts
    ]
    if not (around and median(around) <= AROUND):
        return False
    if not all(right_answers(group.problem) for group in groups):
        return False
    calls = [store.runs.call(bytes.fromhex(one.call)) for one in rollouts[:LOOKED_AT] if one.call]
    return not any(call.reasoning_tokens for call in calls if call is not None)


def winning_attempts(groups: Sequence[Group]) -> list[Example]:
    """Returns the shortest winner of each mixed group, those with the lowest rewards first."""
    plain = [group for group in groups if can_be_example(group.problem)]
    mixed = sorted((g for g in plain if g.mixed), key=lambda group: fmean(group.rewards))
    examples = []
    for group in mixed:
        best = max(rollout.reward or 0.0 for rollout in group.winners)
        winners = [rollout for rollout in group.winners if rollout.reward == best]
        winner = min(winners, key=lambda one: (len(visible(one.response)), one.sample))
        if winner.hint or not visible(winner.response).strip():
            continue
        text = example_text(group.problem.problem, visible(winner.response))
        evidence = {
            "rollouts": [[winner.sample, winner.reward]],
            "calls": [key[:16] for key in winner.calls],
            "call": winner.call,
        }
        examples.append(Example(group.problem, text, "a verified attempt", evidence))
    return examples


def right_examples(
    groups: Sequence[Group], others: Sequence[Problem], library: Library, objective: str
) -> list[Example]:
    """Returns each problem with its ground truth, in the form that the `objective` asks for or
    most attempts have, without those that a library has.

    `others` are problems that were not attempted: an answer that is known needs no attempt. Mixed
    groups come first, then those without a right attempt, then the others, then what every attempt
    solved; but no answer comes once more before each has come as often, the library's included.
    """
    form = _form(groups, objective)
    ranked = [(_rank(group), group.problem, group.rollouts) for group in groups]
    ranked += [(OTHERS, problem, ()) for problem in others]
    seen: Counter[str] = Counter()
    turns: list[tuple[int, Example]] = []
    fresh = []
    for rank, problem, rollouts in ranked:
        for answer in right_answers(problem)[:1] if can_be_example(problem) else ():
            if of_other_problems(library, problem.problem) is library:
                fresh.append((rank, problem, rollouts, answer))
            else:
                seen[answer] += 1
    for _, problem, rollouts, answer in sorted(fresh, key=lambda one: one[0]):
        text = example_text(problem.problem, form.replace(ANSWER, answer))
        attempts = [[one.sample, one.reward] for one in rollouts]
        evidence = {"rollouts": attempts} if attempts else {}
        turns.append((seen[answer], Example(problem, text, "a right answer", evidence)))
        seen[answer] += 1
    return [example for _, example in sorted(turns, key=lambda turn: turn[0])]


def _rank(group: Group) -> tuple[int, float]:
    """Returns the place of a group's problem: what the model knows already comes last."""
    mean = fmean(group.rewards) if group.rewards else 0.0
    return (0 if group.mixed else OTHERS[0] + 1 if mean > 0.0 else 1), mean


def _form(groups: Sequence[Group], objective: str) -> str:
    """Returns how an answer is given, with ANSWER in its place: as the task asks for it, else as
    most right attempts end. Examples in another form take the model away from what it is told."""
    places = {form: objective.rfind(words) for words, form in ANSWER_FORMS.items()}
    form = max(places, key=places.__getitem__)
    if places[form] >= 0:
        return form
    forms: Counter[str] = Counter()
    for group in groups:
        for rollout in group.rollouts:
            lines = visible(rollout.response).strip().splitlines()
            last = one_line(lines[-1]) if lines else ""
            for answer in right_answers(group.problem)[:1] if (rollout.reward or 0) >= 1 else ():
                if last.count(answer) == 1 and len(last) - len(answer) <= LONGEST_FORM:
                    forms[last.replace(answer, ANSWER)] += 1
    return max(forms, key=lambda form: (forms[form], form), default=ANSWER)


def add_examples(
    examples: Sequence[Example],
    library: Library,
    most: int,
    cap: int | None,
    evidence: Mapping[str, Any],
    step_path: tuple[str, int],
) -> list[Operation]:
    """Returns the ADDs of the first `most` examples that are short, are not there yet, and fit
    under the cap (MOST_TOKENS where there is none).

    `library` is the one that the step has come to; `step_path` are the run's uid and the step.
    """
    cap = MOST_TOKENS if cap is None else cap
    draft = Draft(library)
    operations: list[Operation] = []
    left = cap - draft.tokens
    for example in examples:
        if len(operations) == most:
            break
        problem, text, known = example.problem, example.text, draft.library
        if count(text) > min(LONGEST, left) or len(text.encode()) > LONGEST_BYTES:
            continue
        if of_other_problems(known, problem.problem) is not known:
            continue
        id = derived_id(*step_path, "example", problem.id)
        proof = {**evidence, "kind": "example", "problem": problem.id, **example.evidence}
        operation = Operation("ADD", id, text, example.reason, proof)
        if fits(draft, operation, cap):
            draft.apply(operation)
            operations.append(operation)
            left = cap - draft.tokens
    return operations
