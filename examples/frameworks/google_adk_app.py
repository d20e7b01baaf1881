"""Google's ADK, asked under the library in force at every request."""

import asyncio

from google.adk.agents import LlmAgent
from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.genai import types

import tfgrpo

library = tfgrpo.live("prod")  # store="path/to/project" where it is not at or above this folder


def instructions() -> str:
    return f"You answer customers of a bike hire.\n\n{library.prompt()}"


def of_agent(context: ReadonlyContext) -> str:
    return instructions()


agent = LlmAgent(name="support", model=LiteLlm("openai/gpt-5-mini"), instruction=of_agent)
runner = InMemoryRunner(agent, app_name="support")


async def ask(question: str) -> str:
    session = await runner.session_service.create_session(app_name="support", user_id="u")
    message = types.Content(role="user", parts=[types.Part(text=question)])
    said = ""
    async for event in runner.run_async(user_id="u", session_id=session.id, new_message=message):
        if event.is_final_response():
            said = event.content.parts[0].text
    return said


def answer(question: str) -> str:
    return asyncio.run(ask(question))
