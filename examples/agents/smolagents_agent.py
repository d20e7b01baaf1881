from smolagents import OpenAIServerModel, ToolCallingAgent


def run(problem, context):
    model = OpenAIServerModel("gpt-5-mini", api_base=context.base_url, api_key=context.api_key)
    agent = ToolCallingAgent(tools=[], model=model, max_steps=4, verbosity_level=0)
    return str(agent.run(problem.problem))
