"""Workers on a Ray cluster.

ray job submit --working-dir . --runtime-env-json \
    '{"env_vars": {"TFGRPO_STORE": "…", "OPENAI_API_KEY": "…"}}' -- python ray_workers.py 16
"""

import subprocess
import sys

import ray

ray.init()


@ray.remote(num_cpus=2, max_restarts=-1, max_task_retries=-1)
class Worker:
    def work(self):
        return subprocess.call(["tfgrpo", "workers", "run", "--slots", "32"])


ray.get([Worker.remote().work.remote() for _ in range(int(sys.argv[1]))])
