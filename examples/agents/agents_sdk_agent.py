from agents import Agent, OpenAIProvider, RunConfig, Runner


async def run(problem, context):
    provider = OpenAIProvider(base_url=context.base_url, api_key=context.api_key)
    agent = Agent(name="billing", instructions="Answer briefly.", model="gpt-5-mini")
    config = RunConfig(model_provider=provider, tracing_disabled=True)
    result = await Runner.run(agent, problem.problem, run_config=config)
    return str(result.final_output)
