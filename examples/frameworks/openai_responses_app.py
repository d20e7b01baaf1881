"""OpenAI's client, responses, asked under the library in force at every request."""

from openai import OpenAI

import tfgrpo

library = tfgrpo.live("prod")  # store="path/to/project" where it is not at or above this folder


def instructions() -> str:
    return f"You answer customers of a bike hire.\n\n{library.prompt()}"


client = OpenAI()


def answer(question: str) -> str:
    done = client.responses.create(model="gpt-5-mini", instructions=instructions(), input=question)
    return done.output_text
