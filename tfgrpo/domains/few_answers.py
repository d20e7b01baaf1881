"""One of few answers: how likely a model is to give each, read in one pass.

Each answer stands in the prompt under a code of one token (A, B, C …), and the model is asked for
the code. The log-probabilities of the first token then tell how likely each answer is. What a
sampled answer earns on average follows from that without a draw (its conditional expectation, as
in Rao-Blackwellisation).

Models favour some codes whatever stands under them (Zheng et al., arXiv 2309.03882). So the
answers take turns: over as many samples as there are answers, each has had each code once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tfgrpo.rendering import prompt_templates
from tfgrpo.rendering.prompt_templates import Message
from tfgrpo.store.canonical import digest
from tfgrpo.store.records import Json

CODES = "ABCDEFGHIJKLMNOPQRST"
"""One token each with every tokenizer that is known, alone and after a space."""
TOP = len(CODES)
"""The alternatives that are asked for: OpenAI's wire lists no more, and so there are no more
codes."""
LEAST = 0.5
"""The probability that the codes have to hold together: below it the model answers otherwise."""
MARKS = " \t\r\n\"'`*.():▁Ġ"
"""What may stand around a code in a token: spaces, quotes, and the signs of spaces."""


@dataclass(frozen=True, slots=True)
class Chances:
    """How likely each answer is, in sum 1, and the probability of all that is no code."""

    by_answer: Mapping[str, float]
    outside: float

    def tempered(self, temperature: float) -> Chances:
        """Returns the chances at a sampling temperature; endpoints tell those at 1. At 0 the most
        likely answer is certain; several that are equally likely share it."""
        most = max(self.by_answer.values())
        weights = {
            answer: (chance / most) ** (1 / temperature) if temperature else float(chance == most)
            for answer, chance in self.by_answer.items()
        }
        whole = math.fsum(weights.values())
        shares = {answer: weight / whole for answer, weight in weights.items()}
        return Chances(shares, self.outside)

    def mean(self, values: Mapping[str, float]) -> float:
        """Returns the expectation of a value that each answer has."""
        return math.fsum(chance * values[answer] for answer, chance in self.by_answer.items())

    def drawn(self, *seed: str | int) -> str:
        """Returns an answer at random, by these chances; the same for the same seed."""
        point = int.from_bytes(digest(["tfgrpo.draw", *seed])[:7], "big") / (1 << 56)
        for answer, chance in sorted(self.by_answer.items()):
            point -= chance
            if point < 0:
                return answer
        return max(self.by_answer, key=lambda answer: self.by_answer[answer])

    def as_json(self) -> Json:
        """Returns the chances as they are kept: the most likely first, to four digits."""
        ordered = sorted(self.by_answer.items(), key=lambda one: (-one[1], one[0]))
        chances = {answer: round(chance, 4) for answer, chance in ordered}
        return {"chances": chances, "outside": round(self.outside, 4)}


def code_answers(answers: Sequence[str], seed: Sequence[str | int], sample: int) -> dict[str, str]:
    """Returns code → answer: an order by the seed, gone on with by one for each sample. Raises
    ValueError for more answers than codes."""
    if len(answers) > len(CODES):
        raise ValueError(f"{len(answers)} answers, and {len(CODES)} codes")
    order = sorted(answers, key=lambda answer: digest(["tfgrpo.codes", *seed, answer]))
    start = sample % len(order) if order else 0
    return dict(zip(CODES, (*order[start:], *order[:start]), strict=False))


def coded_messages(
    messages: Sequence[Message], codes: Mapping[str, str], answer_of: Mapping[str, str]
) -> tuple[Message, ...]:
    """Returns a prompt that asks for a code. The codes stand in the last message, where small
    models heed them most. Turns of an assistant that give an answer give its code instead, and the
    codes stand before them too: `answer_of` is what such a turn says → the answer."""
    code_of = {answer: code for code, answer in codes.items()}
    listed = "\n".join(f"{code}: {answer}" for code, answer in codes.items())
    values = {"codes": listed, "problem": messages[-1][1]}
    (_, table), (_, question) = prompt_templates.load("codes").render(values)
    turns = [
        (role, code_of[answer_of[text]] if role == "assistant" and text in answer_of else text)
        for role, text in messages[:-1]
    ]
    if turns != list(messages[:-1]):
        if turns[0][0] == "system":
            turns[0] = ("system", f"{turns[0][1]}\n\n{table}")
        else:
            turns.insert(0, ("system", table))
    return (*turns, (messages[-1][0], question))


def read_chances(listed: Iterable[tuple[str, float]], codes: Mapping[str, str]) -> Chances | None:
    """Returns the chances that an answer's first token tells, of tokens and their
    log-probabilities; None where it lists no code. A code may be listed several times, with and
    without a space before it. An answer whose code is not listed counts as impossible."""
    held = dict.fromkeys(codes.values(), 0.0)
    for token, logprob in listed:
        answer = codes.get(token.strip(MARKS))
        if answer is not None and logprob <= 0:
            held[answer] += math.exp(logprob)
    whole = math.fsum(held.values())
    if whole <= 0:
        return None
    shares = {answer: chance / whole for answer, chance in held.items()}
    return Chances(shares, max(0.0, 1.0 - whole))
