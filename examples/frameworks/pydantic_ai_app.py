"""Pydantic AI, asked under the library in force at every request."""

from pydantic_ai import Agent

import tfgrpo

library = tfgrpo.live("prod")  # store="path/to/project" where it is not at or above this folder


def instructions() -> str:
    return f"You answer customers of a bike hire.\n\n{library.prompt()}"


agent = Agent("openai:gpt-5-mini")
agent.instructions(instructions)


def answer(question: str) -> str:
    return agent.run_sync(question).output
