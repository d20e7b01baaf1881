"""LiteLLM, asked under the library in force at every request."""

import litellm

import tfgrpo

library = tfgrpo.live("prod")  # store="path/to/project" where it is not at or above this folder


def instructions() -> str:
    return f"You answer customers of a bike hire.\n\n{library.prompt()}"


def answer(question: str) -> str:
    done = litellm.completion(
        model="openai/gpt-5-mini",
        messages=[
            {"role": "system", "content": instructions()},
            {"role": "user", "content": question},
        ],
    )
    return done.choices[0].message.content
