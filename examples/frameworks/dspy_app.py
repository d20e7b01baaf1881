"""DSPy, asked under the library in force at every request."""

import dspy

import tfgrpo

library = tfgrpo.live("prod")  # store="path/to/project" where it is not at or above this folder


def instructions() -> str:
    return f"You answer customers of a bike hire.\n\n{library.prompt()}"


dspy.configure(lm=dspy.LM("openai/gpt-5-mini", cache=False))
signature = dspy.Signature("question -> answer")


def answer(question: str) -> str:
    predict = dspy.Predict(signature.with_instructions(instructions()))
    return predict(question=question).answer
