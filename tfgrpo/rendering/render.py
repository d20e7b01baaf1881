"""A library as inference sees it: labels (`[G0]`, given anew for every rendering), prompt text,
messages. An empty library is a word in the same prompt, which makes it the control."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgrpo.rendering.experience_texts import (
    OBJECTIVE,
    ExampleParts,
    example_parts,
    instruction_ids,
    instructions,
    is_example,
    one_line,
)
from tfgrpo.rendering.retrieve import Part
from tfgrpo.store.records import Library

if TYPE_CHECKING:
    from tfgrpo.rendering import prompt_templates

EMPTY = "(none yet)"
AGENT_OBJECTIVE = "Solve the problem. Work briefly, then give the final answer in \\boxed{}."
LEARNING_OBJECTIVE = "Rules that make attempts at problems like these come out right."


def prompt_text(library: Library) -> str:
    """A line `[G0] …` for each experience but redacted ones, or a word for none."""
    label = library.label_of
    return "\n".join(f"[{label[e.id]}] {one_line(e.text)}" for e in library.readable) or EMPTY


def examples_of(library: Library) -> list[ExampleParts]:
    """The examples that can be turns, in library order."""
    return [parts for e in library.readable if (parts := example_parts(e.text)) is not None]


def rules_of(library: Library) -> Library:
    """A library without those, labelled as in the whole; itself where it has none."""
    rules = {e.id for e in library if not is_example(e.text)}
    return library if len(rules) == len(library) else Part(library, rules)


def rollout_messages(
    template: prompt_templates.Template, library: Library, problem: str, agent_objective: str
) -> tuple[prompt_templates.Message, ...]:
    """The messages of a rollout: the task with the library, whose words for base prompt and
    tools win, examples as turns of their own, which small models copy far more from
    (docs/evaluation.md), then the problem. In a prompt of one message examples are lines. Raises
    TemplateError for a prompt without a place for the library or the problem."""
    template.require("library", *(["problem"] if problem else []))
    words = instructions(library)
    if words and template.uses("agent_objective"):
        agent_objective = words.get(OBJECTIVE, agent_objective)
        library = Part(library, library.by_id.keys() - instruction_ids(library))
    examples = examples_of(library)
    place = _turn_of_problem(template) if examples else 0
    values = {
        "agent_objective": agent_objective,
        "library": prompt_text(rules_of(library) if place else library),
        "problem": problem,
    }
    if not place:
        return template.render(values)
    before, asking, after = template.split(place)
    turns = [
        message
        for example in examples
        for message in (
            *asking.render({**values, "problem": example.problem}),
            ("assistant", example.answer),
        )
    ]
    return (*before.render(values), *turns, *asking.render(values), *after.render(values))


def _turn_of_problem(template: prompt_templates.Template) -> int:
    """The number of the part that asks for the problem alone, after the library's; 0 for none."""
    texts = [text if role == "user" else "" for role, text in template.parts]
    places = [number for number, text in enumerate(texts) if "{{problem}}" in text]
    holding = [number for number, (_, text) in enumerate(template.parts) if "{{library}}" in text]
    return places[0] if len(places) == 1 and holding and max(holding) < places[0] else 0
