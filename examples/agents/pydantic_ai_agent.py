from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


async def run(problem, context):
    provider = OpenAIProvider(base_url=context.base_url, api_key=context.api_key)
    agent = Agent(OpenAIChatModel("gpt-5-mini", provider=provider), instructions="Be brief.")
    result = await agent.run(problem.problem)
    return result.output
