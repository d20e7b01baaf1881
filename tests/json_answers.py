"""Responses that give JSON: objects to compare by field, and objects that hold a label.

In a layout `@A` is the object, or the label, that the ground truth is, and `@B` another one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from word_answers import Case, choice

OBJECTS: tuple[tuple[dict[str, object], dict[str, object]], ...] = (
    ({"vendor": "Elm", "total": 12.5}, {"vendor": "Oak", "total": 80.25}),
    ({"city": "Rome", "year": 1954, "to": {"a": [1, 2]}}, {"city": "Oslo", "year": 7, "to": {}}),
    ({"title": "It's", "tags": ["a", "b"]}, {"title": "{x}", "tags": ["c"]}),
)
TWO = (
    "```json\n@B\n```\nor\n```json\n@A\n```",
    "```json\n@B\n```\n```json\n@A\n```",
    "```json\n@B\n```\n\n```\n@A\n```",
    "```json\n@A\n```\nor\n```json\n@B\n```",
    "Option 1:\n```json\n@B\n```\nOption 2:\n```json\n@A\n```",
    "Either ```json\n@B\n``` or ```json\n@A\n```",
    "```json\n@B\n``` or ```json\n@A```",
    "```json\n@A\n```\nCorrection: @B",
    "```json @A``` Correction: @B",
    "```json\n@A\n```\n\nActually, the corrected answer is:\n@B",
    "Input:\n```json\n@A\n```\nAnswer: @B",
    "```json\n@A\n```\n@B",
    "```json\n@A\n```\nor @B",
    "@B\n```json\n@A\n```",
    "<answer>@B</answer> or <answer>@A</answer>",
    "<answer>@B</answer><answer>@A</answer>",
    "<answer>@A</answer>\n@B",
    "<answer>@A</answer>\n```json\n@B\n```",
    "```json\n@A\n```\n<answer>@B</answer>",
    "\\boxed{@A}\nCorrection:\n```json\n@B\n```",
    "\\boxed{@B}\nor \\boxed{@A}",
    "<answer>@A</answer>\nFinal answer: @B",
    "@B or @A",
    "@B\n@A",
    "@B, @A",
    "Option 1: @B Option 2: @A",
    "Either @B or else @A",
    "First guess: @B. Second guess: @A",
    "If paid: @B\nOtherwise: @A",
    "@B\nAlternatively:\n@A",
    "@B\n或者：\n@A",
    "@A or @B or @A",
    "[@B, @A]",
    "Here: [@B, @A]",
)
"""Layouts in which two different objects stand, the last of which is not @A, or one of several."""
BROKEN = (
    '{"wrong": @A, "right": ',
    '{"rejected": @A,}',
    '{"a": [@B, @A, ',
    "{'example': @A, 'answer': @B}",
    '{"example": @A, // c\n "answer": 5}',
    '```json\n{"rejected": @A,}\n```',
    '```json\n{"rejected": @A, "right": \n```',
    '<answer>{"rejected": @A,}</answer>',
    '{"more": {"rejected": @A}, "right": nothing}',
    "{ rejected: @A }",
    '@A\nCorrection:\n{"vendor": "Oak", ',
    '```json\n@A\n```\nCorrection:\n```json\n{"vendor": "Oak", ',
)
"""Layouts in which the last object is no JSON."""
ONE = (
    "@A",
    "```json\n@A\n```",
    "```\n@A\n```",
    "Sure!\n\n```json\n@A\n```\n\nLet me know if you need {more}.",
    "<answer>@A</answer>",
    "<answer>\n```json\n@A\n```\n</answer>",
    "\\boxed{@A}",
    "JSON: @A.",
    "`@A`",
    "**Answer:**\n@A",
    "@A\n@A",
    "```json\n@A\n```\nAgain: @A",
    "<answer>@A</answer>\n```json\n@A\n```",
    'The format is {"vendor": ..., "total": ...}.\n@A',
    'From {"text": "Invoice"} follows @A',
    'Input:\n```json\n{"text": "Invoice"}\n```\nOutput:\n```json\n@A\n```',
    "A first look gives @B, but the total was without the tax. Corrected, it is @A",
    "```json\n@B\n```\nThe total is wrong here, it has to be with the tax.\n```json\n@A\n```",
    "Let S = {x, y} and {z}: @A",
    "The template {{name}} gives @A",
    "<think>@B</think>@A",
)
"""Layouts in which @A is the last object, and no other one is given beside it."""


def objects() -> Iterator[Case]:
    """Yields layouts of objects."""
    for one, other in OBJECTS:
        for layouts, reward in ((TWO, 0.0), (BROKEN, 0.0), (ONE, 1.0)):
            for layout in layouts:
                given = layout.replace("@A", json.dumps(one)).replace("@B", json.dumps(other))
                yield Case("json", json.dumps(one), given, reward)


LABELS = (["billing", "damage", "refund"], ["yes", "no", "maybe"], ["1", "2", "3"], ["A", "B", "C"])
NOT_GIVEN = (
    'Either\n{"label": "@B"}\nor\n{"label": "@A"}',
    '{"label": "@B"}\nor\n{"label": "@A"}',
    '{"label": "@B"}\n{"label": "@A"}',
    '```json\n{"label": "@B"}\n```\nor\n```json\n{"label": "@A"}\n```',
    'First guess:\n```\n{"label": "@B"}\n```\nSecond guess:\n```\n{"label": "@A"}\n```',
    'Option 1:\n{"label": "@B"}\nOption 2:\n{"label": "@A"}',
    'Label: @B\n\n{"label": "@A"}',
    'It is @B.\nAnswer: @B\n```json\n{"label": "@A"}\n```',
    '\\boxed{@B}\n{"label": "@A"}',
    '<answer>@B</answer>\n{"label": "@A"}',
    '{"label": "@A"}\n\\boxed{@B}',
    'This would be wrong:\n{"label": "@A"}',
    'Not this one:\n```json\n{"label": "@A"}\n```',
    'The label is not\n{"label": "@A"}',
    'The wrong answer would be:\n{"label": "@A"}',
    '{"label": "@A"}\nThat is wrong.',
    '{"not": "@A"}',
    '{"rejected": "@A"}',
    '{"ruled_out": "@A"}',
    '{"wrong_label": "@A"}',
    '{"message": "@A"}',
    '{"error": "@A"}',
    '{"second_choice": "@A"}',
    '{"excluded": ["@A"]}',
    '{"label": "@A", "applies": false}',
    '{"label": "@A", "correct": false}',
    '{"applies": "wrong", "label": "@A"}',
    '{"label": "not @A"}',
    '{"label": "@A or @B"}',
    '{"label": ["@A", "@B"]}',
    '{"label": "@A", "label": "@B"}',
    '{"label": "@A", "Label": "@B"}',
    '{"label": "@A", "category": "@B"}',
    '{"label": {"@A": 0.4, "@B": 0.6}}',
    '{"@A": 0.1, "@B": 0.9}',
    '{"wrong": {"label": "@A"},}',
    '{"rejected": "@A", "label": "@B"}',
)
GIVEN = (
    '{"label": "@A"}',
    '{"Label": "@A"}',
    '{"answer": "@A", "reason": "It is so."}',
    '{"category": "@A", "confidence": 0.9}',
    '{"final_answer": "@A"}',
    '{"final_label": "@A", "certain": true}',
    '{"Antwort": "@A"}',
    '{"label": "@A", "rejected": "@B"}',
    '```json\n{"label": "@A"}\n```',
    'It is so.\n```json\n{\n  "label": "@A"\n}\n```',
    'It is so.\n{"label": "@A"}',
    'It is so.\n{"label": "@A"}\n',
    'Label: @A\n{"label": "@A"}',
    '\\boxed{@A}\n{"label": "@A"}',
    'It is about:\n{"label": "@A"}',
    '["@A"]',
)


def labels_in_objects() -> Iterator[Case]:
    """Yields objects that hold a label, or do not."""
    for labels in LABELS:
        one, other, _ = labels
        for layouts, reward in ((NOT_GIVEN, 0.0), (GIVEN, 1.0)):
            for layout in layouts:
                given = layout.replace("@A", one).replace("@B", other)
                yield Case(choice(labels), one, given, reward)
