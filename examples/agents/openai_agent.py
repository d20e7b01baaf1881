import json

TOOL = {
    "type": "function",
    "function": {"name": "days", "parameters": {"type": "object", "properties": {}}},
}


async def run(problem, context):
    client = context.openai()
    messages = [{"role": "user", "content": problem.problem}]
    for _ in range(8):
        made = await client.chat.completions.create(
            model="gpt-5-mini", messages=messages, tools=[TOOL]
        )
        message = made.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return message.content
        for call in message.tool_calls:
            result = json.dumps({"days": 8})
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    return ""
