"""The OpenAI Agents SDK, asked under the library in force at every request."""

from agents import Agent, RunContextWrapper, Runner

import tfgrpo

library = tfgrpo.live("prod")  # store="path/to/project" where it is not at or above this folder


def instructions() -> str:
    return f"You answer customers of a bike hire.\n\n{library.prompt()}"


def of_agent(context: RunContextWrapper, agent: Agent) -> str:
    return instructions()


agent = Agent(name="Support", model="gpt-5-mini", instructions=of_agent)


def answer(question: str) -> str:
    return Runner.run_sync(agent, question).final_output
