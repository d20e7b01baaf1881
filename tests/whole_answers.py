r"""Whole responses as models write them, around values that `drawn_values.py` draws.

Reasoning stands before the answer, with other boxes in it; the box stands in a sentence of some
language, in a display, in a tag, in another box. A near miss ends with another value, takes the
right one back, breaks off, or names two.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import drawn_collections as collections
import drawn_measures as measures
import drawn_values as values
from answer_pairs import Pair
from drawn_values import Dice, Drawn

KINDS: dict[str, Callable[[Dice], Drawn]] = {
    "whole numbers": values.whole,
    "fractions": values.fraction,
    "powers of ten": values.scientific,
    "per cent": values.per_cent,
    "roots": values.radical,
    "constants": values.constant,
    "polynomials": values.polynomial,
    "quotients": values.quotient,
    "identities": values.identity,
    "complex numbers": values.complex_number,
    "points": collections.point,
    "solutions": collections.roots,
    "intervals": collections.interval,
    "matrices": collections.matrix,
    "lines": collections.line,
    "money": measures.money,
    "units": measures.measure,
    "dates": measures.day,
    "compounds": measures.compound,
    "letters": measures.letter,
    "words": measures.word,
    "counted": measures.counted,
}
REASONING = [
    "",
    "Let me work through this step by step.\n\nFirst, we set up what is given. ",
    "<think>\nMaybe it is \\boxed{«B»}? Let me check. No.\n</think>\n\n",
    "We try $«B»$ first, which fails. ",
    "**Step 1.** Suppose the answer were \\boxed{«B»}. Then a condition fails.\n\n**Step 2.** "
    "We correct this.\n\n",
    "### Solution\n\nBy the formula, $$a^2 + b^2 = c^2$$ so we continue.\n\n",
    "One candidate is $«B»$, another is $«A»$. The second one holds. ",
    "<answer>«B»</answer> was my first thought; I looked again. ",
]
ENDINGS = [
    "\\boxed{«A»}",
    "The answer is $\\boxed{«A»}$.",
    "Therefore, the final answer is: $\\boxed{«A»}$. I hope it is correct.",
    "$$\\boxed{«A»}$$",
    "\\[\n\\boxed{«A»}\n\\]",
    "**Final Answer**\n\n\\[ \\boxed{«A»} \\]",
    "\\(\\boxed{«A»}\\)",
    "**Answer:** $\\boxed{«A»}$\n",
    "Die Antwort lautet \\boxed{«A»}.",
    "La réponse est donc \\boxed{«A»}.",
    "Por lo tanto, la respuesta es \\boxed{«A»}.",
    "所以答案是 \\boxed{«A»}。",
    "إذن الجواب هو \\boxed{«A»}",
    "<answer>«A»</answer>",
    "<answer>\\boxed{«A»}</answer>",
    "<answer>$«A»$</answer>",
    "$\\boxed{\\displaystyle «A»}$",
    "$\\boxed{\\,«A»\\,}$",
    "\\boxed{$«A»$}",
    "\\fbox{$«A»$}",
    "$$\n\\boxed{\n«A»\n}\n$$",
    "\\begin{align*}\n&\\boxed{«A»}\n\\end{align*}",
    "So we get $\\boxed{«A»}$, as required. This completes the solution. ∎",
    "```\n\\boxed{«A»}\n```",
]
SPOILT = [
    "The answer is \\boxed{«A»}. Wait, that is not right.",
    "\\boxed{«A»} is wrong, so there must be another one.",
    "It is not \\boxed{«A»}.",
    "\\boxed{«A»} or \\boxed{«B»}",
    "\\boxed{«A»}, \\boxed{«B»}",
    "\\boxed{«A» \\text{ or } «B»}",
    "\\boxed{«A»}\n\nSo in the end \\boxed{«B»",
    "$«A»$",
    "<answer>«A»",
    "<think>It is \\boxed{«A»}.</think> I could not find it.",
    "<think>It is \\boxed{«A»}.",
    "First \\boxed{«A»}. Then the total is \\boxed{«B»}.",
    "First \\boxed{«A»}. Then the total is \\boxed{}.",
    "\\boxed{«A»} <answer>«B»</answer>",
    "\\boxed{\\text{not } «A»}",
    "\\boxed{\\text{between } «A» \\text{ and } «B»}",
    "\\boxed{\\text{either } «A» \\text{ or } «B»}",
    "\\boxed{«A» \\text{ is not possible}}",
    "\\boxed{\\text{at least } «A»}",
    "\\boxed{\\boxed{«A»} \\text{ or } \\boxed{«B»}}",
]
"""Responses that name the right value, and do not give it."""


def _filled(form: str, answer: str, other: str) -> str:
    return form.replace("«A»", answer).replace("«B»", other)


def response(pick: random.Random, answer: str, other: str, endings: list[str] = ENDINGS) -> str:
    """Returns a response that ends in an answer; another value may stand before it."""
    several = "\\boxed" in answer + other
    before = pick.choice([one for one in REASONING if "«" not in one] if several else REASONING)
    end = pick.choice(endings)
    if "\\boxed" in answer:  # an answer of several boxes brings its own
        end = pick.choice([one for one in endings if "boxed{«A»}" in one])
    return _filled(before, answer, other) + _filled(end, answer, other)


def whole_answers(count: int = 20_000, seed: int = 1) -> Iterator[Pair]:
    """Yields that many right responses and that many wrong ones, of each kind as many."""
    pick = random.Random(seed)
    kinds = list(KINDS)
    for number in range(count):
        kind = kinds[number % len(kinds)]
        drawn: Drawn = KINDS[kind](pick)
        yield Pair(kind, drawn.gold, response(pick, drawn.right, drawn.wrong), True)
        if number % 4:
            yield Pair(kind, drawn.gold, response(pick, drawn.wrong, drawn.gold), False)
        else:
            spoilt = response(pick, drawn.gold, drawn.wrong, SPOILT)
            yield Pair(f"{kind}, not given", drawn.gold, spoilt, False)
