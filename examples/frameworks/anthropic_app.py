"""Anthropic's client, asked under the library in force at every request."""

from anthropic import Anthropic

import tfgrpo

library = tfgrpo.live("prod")  # store="path/to/project" where it is not at or above this folder


def instructions() -> str:
    return f"You answer customers of a bike hire.\n\n{library.prompt()}"


client = Anthropic()


def answer(question: str) -> str:
    done = client.messages.create(
        model="claude-haiku-4-5",
        max_tokens=1000,
        system=instructions(),
        messages=[{"role": "user", "content": question}],
    )
    return done.content[0].text
