"""Web: questions that take searching, judged against a ground truth. `--domain web --mode agent`

An answer that is the ground truth, give or take case, a leading article and punctuation, is right
without asking. Any other is put to the judge model (the reflection model) with question and ground
truth, since right answers come in many words; its prompt's digest, name and verdict are recorded.
What one group taught is reconciled with the library before the batch is decided about, as the web
domain of the paper does (arXiv 2510.08191).
"""

from __future__ import annotations

import re
import unicodedata
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator

from tfgrpo.data.problems import Problem
from tfgrpo.domains.answer_reading import unwrap_latex
from tfgrpo.domains.base import Context, Domain, Trajectory, Verdict
from tfgrpo.domains.judge import ask_judge, normalized_word
from tfgrpo.domains.mathematics.extract import ending, spoken
from tfgrpo.domains.punctuation import without_punctuation
from tfgrpo.model.structured_answers import text_field
from tfgrpo.rendering import prompt_templates

AGENT_OBJECTIVE = (
    "Answer the question. Search, and read what you find, until you are sure. "
    "Then give the answer alone in <answer></answer>."
)
LEARNING_OBJECTIVE = "How to search for and check answers to questions like these."
TOKENS = 300
ARTICLE = re.compile(r"\A(?:a|an|the) ")


class AnswerJudgement(BaseModel):
    """What the judge says: both sides in its words, and then which it is."""

    ground_truth: str = text_field(200, 1000, default="")
    answer: str = text_field(200, 1000, default="")
    verdict: Annotated[Literal["correct", "incorrect"], BeforeValidator(normalized_word)]

    @property
    def why(self) -> str:
        """What the verdict rests on."""
        return f"{self.answer or '?'}, where the ground truth is {self.ground_truth or '?'}"


async def verify(context: Context, trajectory: Trajectory) -> Verdict:
    """Judges an answer. Raises CallFailed where the judge's answer cannot be read."""
    problem = context.problem
    answer = final_answer(trajectory)
    if not normalize(answer):
        return Verdict(0.0, None, "there is no answer")
    known = ground_truths(problem)
    if normalize(answer) in map(normalize, known):
        return Verdict(1.0, normalize(answer), "the ground truth, word for word", {"judge": "none"})
    values = {"problem": problem.problem, "ground_truth": " or ".join(known), "response": answer}
    judgement = await ask_judge(context, "answer", values, AnswerJudgement, tokens=TOKENS)
    details = {
        "judge": context.judge.endpoint.model,
        "prompt": prompt_templates.load("answer").digest[:16],
        "verdict": judgement.verdict,
        "why": judgement.why,
    }
    right = judgement.verdict == "correct"
    return Verdict(
        float(right), normalize(answer), f"judged {judgement.verdict}: {judgement.why}", details
    )


def final_answer(trajectory: Trajectory) -> str:
    """Returns the answer that a trajectory marks as one. Where it marks none or several, or takes
    its answer back, that is all of its response."""
    end = ending(trajectory.response)
    if len(end.boxes) == 1 and not end.behind and not end.retracted:
        return unwrap_latex(end.boxes[0][1])
    return spoken(trajectory.response).strip()


def normalize(text: str) -> str:
    """Returns a text without what does not matter when answers are compared: case, a leading
    article, and punctuation that makes no other answer."""
    text = "".join(map(_compatible, unicodedata.normalize("NFC", text))).casefold()
    text = re.sub(r"(?<![\w.,])\.(?=\d)", "0.", text.replace("⁄", "/"))
    return ARTICLE.sub("", " ".join(without_punctuation(text).split()))


def _compatible(c: str) -> str:
    """Returns a character as the usual one; raised and lowered ones stay, and ½ stands apart."""
    kind = unicodedata.decomposition(c).partition(" ")[0]
    if kind in ("<super>", "<sub>"):
        return c
    return " " * (kind == "<fraction>") + unicodedata.normalize("NFKC", c)


def ground_truths(problem: Problem) -> tuple[str, ...]:
    """Returns the answers that a problem has: one, or the field `answers` where it is a list."""
    return tuple(filter(None, problem.ground_truths))


def check(problem: Problem) -> str | None:
    """Returns what is wrong with a ground truth, or None."""
    if not ground_truths(problem):
        return "there is none"
    return None if all(map(normalize, ground_truths(problem))) else "it holds no word and no number"


DOMAIN = Domain(
    name="web",
    verify=verify,
    check=check,
    extra=("answers",),
    ground_truth=False,
    agent_objective=AGENT_OBJECTIVE,
    learning_objective=LEARNING_OBJECTIVE,
    reconcile=True,
    judge_calls=lambda _: 1,
    needs_search=True,
)
