"""DSPy as an agent: a cache of its own would answer two attempts alike, so it is off."""

import dspy


def run(problem, context):
    lm = dspy.LM(
        "openai/gpt-5-mini", api_base=context.base_url, api_key=context.api_key, cache=False
    )
    with dspy.context(lm=lm):
        return str(dspy.Predict("question -> answer")(question=problem.problem).answer)
