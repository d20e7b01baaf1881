"""LangChain, asked under the library in force at every request."""

from langchain.agents import create_agent
from langchain.agents.middleware import ModelRequest, dynamic_prompt

import tfgrpo

library = tfgrpo.live("prod")  # store="path/to/project" where it is not at or above this folder


def instructions() -> str:
    return f"You answer customers of a bike hire.\n\n{library.prompt()}"


@dynamic_prompt
def with_library(request: ModelRequest) -> str:
    return instructions()


agent = create_agent("openai:gpt-5-mini", middleware=[with_library])


def answer(question: str) -> str:
    done = agent.invoke({"messages": [{"role": "user", "content": question}]})
    return done["messages"][-1].content
