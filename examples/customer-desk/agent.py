"""An agent at the desk of a shop or an airline, with tools over MCP and a simulated customer."""

import importlib.resources
import json
import os
import sys
import tempfile
from pathlib import Path

from mcp import Client, StdioServerParameters

import tfgrpo

TURNS, CALLS = 8, 24
CONTROLS = ("reset_state", "get_call_log")


async def run(problem, context):
    """Serves one customer at a desk of its own, and is rewarded by what it left in the data."""
    module = f"tau2_{problem.meta['desk']}_mcp"
    with tempfile.TemporaryDirectory() as folder:
        variables = {"PATH": os.environ["PATH"], f"{module.upper()}_STATE_DIR": folder}
        variables |= {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
        server = StdioServerParameters(
            command=sys.executable, args=["-m", f"{module}.server"], env=variables
        )
        async with Client(server) as desk:
            for key in ("agent", "right"):
                await desk.call_tool("reset_state", {"state_key": key})
            messages = await serve(problem, context, desk, policy(problem.meta["desk"], module))
            for call in problem.meta["expected"]:
                await used(desk, "right", call["name"], call["arguments"])
        data = [json.loads(path.read_text()) for path in Path(folder).glob("*.json")]
    told = "\n".join(one["content"] or "" for one in messages if one["role"] == "assistant")
    missing = [text for text in problem.meta["tell"] if text not in told]
    same = data[0]["db"] == data[1]["db"]
    words = f"the data {'are' if same else 'are not'} as they should be; expected calls: "
    words += json.dumps(problem.meta["expected"]) + (f"; not told: {missing}" if missing else "")
    return tfgrpo.Attempt(told, reward=float(same and not missing), words=words)


def policy(desk, module):
    """Returns the rules of a desk, which its package has."""
    files = importlib.resources.files(module)
    return (files / "data" / "tau2" / "domains" / desk / "policy.md").read_text()


async def serve(problem, context, desk, rules):
    """Returns the conversation: model, tools and customer by turns, until the customer is done."""
    tools = [function(tool) for tool in (await desk.list_tools()).tools]
    tools = [tool for tool in tools if tool["function"]["name"] not in CONTROLS]
    messages, calls = [{"role": "system", "content": rules}], 0
    for _ in range(TURNS):
        said = await context.reply(messages)
        if said is None:
            break
        messages.append({"role": "user", "content": said})
        while calls < CALLS:
            answer = await context.openai().chat.completions.create(
                model=context.model,
                messages=messages,
                tools=tools,
                seed=context.seed,
                temperature=context.temperature,
                max_tokens=context.max_tokens,
            )
            message = answer.choices[0].message.model_dump(exclude_none=True)
            messages.append({"role": "assistant", "content": None, **message})
            if not message.get("tool_calls"):
                break
            for call in message["tool_calls"]:
                calls += 1
                name, given = call["function"]["name"], call["function"]["arguments"]
                got = await used(desk, "agent", name, given)
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": got})
    return messages


def function(tool):
    """Returns a tool as chat APIs are told of it, without the state that it works on."""
    schema = dict(tool.input_schema)
    schema["properties"] = {k: v for k, v in schema["properties"].items() if k != "state_key"}
    named = {"name": tool.name, "description": tool.description, "parameters": schema}
    return {"type": "function", "function": named}


async def used(desk, state, name, arguments):
    """Returns what a tool says in words, of arguments as JSON or as they are."""
    try:
        given = json.loads(arguments) if isinstance(arguments, str) else arguments
        answer = await desk.call_tool(name, {**given, "state_key": state})
    except (ValueError, TypeError) as error:
        return f"Error: {error}"
    return answer.structured_content["tau2_tool_message"]["content"]
