import asyncio
import json
import sys

import verifiers.v1 as vf
from verifiers.v1.env import RunSlot

seat = {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}}
config = {"taskset": {"id": sys.argv[1]}, "agent": seat}
env = vf.load_environment(vf.SingleAgentEnvConfig.model_validate(config))
tasks = {task.data.id or f"task-{task.data.idx}": task for task in env.taskset}


async def attempt(given):
    client = vf.EvalClientConfig(base_url=given["base_url"], api_key_var="OPENAI_API_KEY")
    sampling = vf.SamplingConfig(temperature=given["temperature"], seed=given["seed"])
    model = vf.ModelContext(client=client, model=given["model"], sampling=sampling)
    async with env.serving():
        trace = (await env.run_slot(RunSlot(tasks[given["id"]]), model)).traces[0]
    return {"answer": trace.last_reply, "reward": trace.reward}


if sys.argv[2:]:  # --rows
    for id, task in tasks.items():
        print(json.dumps({"id": id, "problem": task.data.prompt_text}))
else:
    print(json.dumps(asyncio.run(attempt(json.load(sys.stdin)))))
