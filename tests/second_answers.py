"""Responses that give another answer beside the first, and those that only say more.

In a layout `@A` is the ground truth and `@B` another answer of its kind.
"""

from __future__ import annotations

from collections.abc import Iterator

from word_answers import Case, choice

BOXES = (r"\boxed{@A}", r"$\boxed{@A}$", r"**\boxed{@A}**", "<answer>@A</answer>")
BEHIND_NUMBERS = (
    "{} or @B",
    "{}, or maybe @B.",
    "{} (or @B)",
    "Either {} or @B.",
    "{} oder @B",
    "{} or $@B$",
    "{}\n\nCorrection: the answer is @B.",
    "{}\n\n**Correction:** @B",
    "{}\n\nActually, I made an arithmetic error; the answer is @B.",
    "{}\n\nLet me recheck: so the answer is @B, not @A.",
    "{}\n\nFinal answer: @B",
    "{}\n\n**Final answer: @B**",
    "{}\n\n**Final Answer**\n@B\n",
    "{}\n\nThe final answer is $@B$.",
    "{}\n\nThe answer is **@B**. Thank you!",
    "{}. No, @B.",
    "{}. Wait, it's @B.",
    "{}\nActually @B",
    "{}\n\nDie Antwort ist @B.",
    "{}\n\n答案是@B。",
)
"""Another number behind a box."""
MORE = (
    "{}",
    "{} or @A",
    "{}\n\nFinal answer: @A",
    "{}\n\nThe answer is $@A$.",
    "{}\n\nThe final answer is @A.0, as wanted.",
    "{}. This is @B less than we thought.",
    "{}, which is not @B.",
    "{}\n\nA common wrong answer is @B.",
    "{}\n\nThe student's answer was @B.",
    "{}\n\nCheck: $@A + @B = 900$.",
    "{} (see page @B)",
    "{} as in example @B.",
    "{}. Note that @B is too large.",
    "{}\n\nBut @B of them are red.",
    "The answer is @B? No. It is {}",
    "{}\n\nConfidence: 95",
)
"""What is no other answer."""


def second_numbers() -> Iterator[Case]:
    """Yields boxes of math with another number, or none, behind them."""
    for layouts, reward in ((BEHIND_NUMBERS, 0.0), (MORE, 1.0)):
        for layout in layouts:
            for box in BOXES:
                for one, other in (("57", "59"), ("21", "26")):
                    given = layout.format(box).replace("@A", one).replace("@B", other)
                    yield Case("math", one, given, reward)
    yield from (
        Case("math", r"\frac{1}{2}", r"\boxed{\frac12} or 0.5", 1.0),
        Case("math", "0.5", "\\boxed{0.5}\n\nFinal answer: $\\frac{1}{2}$", 1.0),
        Case("math", "57, 59", r"\boxed{57} or 59", 1.0),
        Case("math", "C", "\\boxed{C}\n\nThe answer is 12.", 1.0),
        Case("math", "C", "\\boxed{C}\n\nThe answer is (C).", 1.0),
        Case("math", "12", "\\boxed{12}\n\nFinal answer: 12 apples", 1.0),
    )


WORDED = (
    r"\boxed{@A} or @B",
    r"\boxed{@A}, or maybe @B.",
    "<answer>@A</answer> or @B",
    "\\boxed{@A}\n\n{L}: @B",
    "\\boxed{@A}\n\nCorrection: @B",
    "\\boxed{@A}\n\n**Correction:** @B",
    "\\boxed{@A}\nActually, {L}: @B",
    "\\boxed{@A}\n\nActually the answer is @B.",
    "\\boxed{@A}\n\nFinal answer: @B\nThank you.",
    "<answer>@A</answer>\n{L}: @B\n\nI hope that this helps.",
    "{L}: @B\nor\n{L}: @A",
    "{L}: @B\n\nAlternatively,\n\n{L}: @A",
    "{L}: @B\n\nAlternatively:\n\n{L}: @A",
    "If it was paid:\n{L}: @B\nOtherwise:\n{L}: @A",
    "Candidate 1\n{L}: @B\nCandidate 2\n{L}: @A",
    "{L}: @B\nSecond guess:\n{L}: @A",
    "Most likely:\n{L}: @B\nLess likely:\n{L}: @A",
    "{L}: @B\n\nRunner-up:\n@A",
    "**{L}:** @B\n\nA common wrong guess would be\n@A",
    "{L}: @B\n\nOther candidates:\n- @A",
    "{L}: @B\n\nThe message in question says the following:\n@A",
    "The customer wrote:\n> @A",
    "The text says:\n\n> @A",
    "> @A",
    "@B\nor\n@A",
    "It could be @B or\n@A",
    "It is @B, not\n@A",
    "I cannot decide between @B and\n@A",
)
"""Another label or text beside the first."""
WORDED_ONCE = (
    "@A",
    "{L}: @A",
    r"\boxed{@A}",
    "\\boxed{@A}\n\n{L}: @A",
    "\\boxed{@A}\n\nFinal answer: @A\nThank you.",
    r"\boxed{@A} or @A",
    "\\boxed{@A}\n\nThis is right, and @B is not.",
    "\\boxed{@A}\n\nSource: an atlas",
    "{L}: @B\nWait, that is wrong.\n{L}: @A",
    "{L}: @B\nDoch nicht.\n{L}: @A",
    "{L}: @A\n\n{L}: @A",
    "The answer is as follows:\n@A",
    "{L}:\n\n@A",
    "It is not @B, as one may see.\n@A",
    "> Which one is it?\n\n{L}: @A",
    "> {L}: @A",
    "First I took it for @B.\n\nFinal answer: @A",
)
"""Layouts in which @A alone is the answer."""


def second_words() -> Iterator[Case]:
    """Yields labels and texts with another one, or none, beside them."""
    labels = ["billing", "damage", "refund"]
    for spec, name, one, other in (
        (choice(labels), "Label", "refund", "billing"),
        (choice(labels), "Answer", "damage", "refund"),
        ("exact", "Answer", "Paris", "London"),
        ("exact", "Answer", "Marie Curie", "blue whale"),
        ("exact:case=ignore", "Answer", "H2O", "iron"),
    ):
        for layouts, reward in ((WORDED, 0.0), (WORDED_ONCE, 1.0)):
            for layout in layouts:
                given = layout.replace("{L}", name).replace("@A", one).replace("@B", other)
                yield Case(spec, one, given, reward)
