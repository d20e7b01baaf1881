"""Exemplars: verified winning attempts as experiences, of which a model copies the way.

An example is an experience like any other, told by how its text begins, with all that experiences
have: events, diff, blame, credit, a place under the cap on tokens. Its event names the journal's
call that the attempt is on record with; the text holds the attempt itself, so that a library can
be rendered where there is no journal. An example is not shown at its own problem, whose answer it
gives away, and the controller may drop it but not reword it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from tfgrpo.model.response import visible
from tfgrpo.model.tokens import count
from tfgrpo.rendering.render import one_line
from tfgrpo.rollout.attempt import Group, Rollout
from tfgrpo.store.canonical import derived_id
from tfgrpo.store.records import Library, Operation
from tfgrpo.training.draft import Draft
from tfgrpo.training.pruning import fits

EXAMPLE = "Example: "
ANSWERED = " → "
LONGEST, LONGEST_BYTES = 400, 3200
"""The most tokens and bytes of an example: a longer attempt says too much of its own problem."""


def is_example(text: str) -> bool:
    """Returns whether an experience is an example."""
    return text.startswith(EXAMPLE)


def example_text(rollout: Rollout) -> str:
    """Returns an attempt as an example: its problem, and its answer as it was given."""
    answer = one_line(visible(rollout.response))
    return f"{EXAMPLE}{one_line(rollout.problem.problem)}{ANSWERED}{answer}"


def of_other_problems(library: Library, problem: str) -> Library:
    """Returns a library without the examples of a problem; itself where it has none."""
    own = f"{EXAMPLE}{one_line(problem)}{ANSWERED}"
    ids = frozenset(e.id for e in library.readable if e.text.startswith(own))
    return library.less(ids) if ids else library


def add_examples(
    groups: Sequence[Group],
    library: Library,
    most: int,
    cap: int | None,
    evidence: Mapping[str, Any],
    step_path: tuple[str, int],
) -> list[Operation]:
    """Returns the ADDs of at most so many examples: of the mixed groups with the lowest rewards,
    the shortest winner each, as far as it fits under the cap.

    `library` is the one that the step has come to; `step_path` are the run's uid and the step.
    """
    draft = Draft(library)
    operations: list[Operation] = []
    mixed = sorted((g for g in groups if g.mixed), key=lambda group: fmean(group.rewards))
    for group in mixed:
        if len(operations) == most:
            break
        best = max(rollout.reward or 0.0 for rollout in group.winners)
        winners = [rollout for rollout in group.winners if rollout.reward == best]
        winner = min(winners, key=lambda one: (len(visible(one.response)), one.sample))
        text = example_text(winner)
        known = draft.library
        there = of_other_problems(known, group.problem.problem) is not known
        long = count(text) > LONGEST or len(text.encode()) > LONGEST_BYTES
        if winner.hint or there or long or not visible(winner.response).strip():
            continue
        id = derived_id(*step_path, "example", group.problem.id)
        proof = {
            **evidence,
            "kind": "example",
            "problem": group.problem.id,
            "rollouts": [[winner.sample, winner.reward]],
            "calls": [key[:16] for key in winner.calls],
            "call": winner.call,
        }
        operation = Operation("ADD", id, text, "a verified attempt", proof)
        if fits(draft, operation, cap):
            draft.apply(operation)
            operations.append(operation)
    return operations
