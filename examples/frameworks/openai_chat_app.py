"""OpenAI's client, chat completions, asked under the library in force at every request."""

from openai import OpenAI

import tfgrpo

library = tfgrpo.live("prod")  # store="path/to/project" where it is not at or above this folder


def instructions() -> str:
    return f"You answer customers of a bike hire.\n\n{library.prompt()}"


client = OpenAI()


def answer(question: str) -> str:
    done = client.chat.completions.create(
        model="gpt-5-mini",
        messages=[
            {"role": "system", "content": instructions()},
            {"role": "user", "content": question},
        ],
    )
    return done.choices[0].message.content
