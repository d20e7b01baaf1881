"""SkillOpt: one document, edited under a budget of edits, strict on the validation problems.

The document is the seed text, which is the system text of every attempt. Neither the wheel nor the
source of version 0.2.0 in the package index holds the prompts that its optimizer needs: they are
taken from a clone of its repository, whose folder `skillopt/prompts` SKILLOPT_PROMPTS names.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from racing import BudgetSpent, Job, attempt_all, feedback, leave, main, prompt_of, rendered

NEEDED = "analyst_error.md"
PROMPTS = "SKILLOPT_PROMPTS"
RECIPE: dict[str, Any] = {
    "num_epochs": 4,
    "batch_size": 20,
    "accumulation": 1,
    "minibatch_size": 8,
    "merge_batch_size": 8,
    "edit_budget": 4,
    "min_edit_budget": 2,
    "lr_scheduler": "cosine",
    "use_slow_update": True,
    "use_meta_skill": True,
    "use_gate": True,
    "gate_metric": "hard",
    "eval_test": False,
}
"""Its published recipe, with batches that 60 problems have room for."""
OPTIMIZER_TOKENS = 1024


def optimise(job: Job) -> None:
    """Leaves the document that was best by validation, and the last one."""
    import skillopt
    from skillopt.datasets.base import SplitDataLoader
    from skillopt.engine.trainer import ReflACTTrainer
    from skillopt.envs.base import EnvAdapter

    prompts = Path(skillopt.__file__).parent / "prompts"
    if not (prompts / NEEDED).exists():
        if not os.environ.get(PROMPTS):
            sys.exit(f"skillopt as installed has no {NEEDED}: {PROMPTS} takes a clone's folder")
        for path in Path(os.environ[PROMPTS]).glob("*.md"):
            shutil.copy(path, prompts / path.name)

    splits = job.folder / "splits"
    for name, rows in (("train", job.train), ("val", job.validation), ("test", job.validation)):
        (splits / name).mkdir(parents=True, exist_ok=True)
        (splits / name / "items.json").write_text(json.dumps(rows))
    (job.folder / "seed.md").write_text(job.seed_text)

    class Loader(SplitDataLoader):  # type: ignore[misc,unused-ignore]
        """The race's problems."""

        def load_split_items(self, split_path: str) -> list[dict[str, Any]]:
            items: list[dict[str, Any]] = json.loads((Path(split_path) / "items.json").read_text())
            return items

    class Attempts(EnvAdapter):  # type: ignore[misc,unused-ignore]
        """The race's attempts and judge."""

        def __init__(self) -> None:
            self.loader = Loader(split_dir=str(splits), split_mode="split_dir", seed=job.seed)
            self.analyst_workers = job.concurrency
            self.failure_only = False
            self.minibatch_size = RECIPE["minibatch_size"]
            self.edit_budget = RECIPE["edit_budget"]
            self.turn = 0

        def setup(self, cfg: dict[str, Any]) -> None:
            super().setup(cfg)
            self.loader.setup(cfg)

        def get_dataloader(self) -> Any:
            return self.loader

        def build_env_from_batch(self, batch: Any, **kwargs: Any) -> Any:
            return list(batch.payload or [])

        def build_train_env(self, batch_size: int, seed: int, **kwargs: Any) -> Any:
            return self.loader.build_train_batch(batch_size=batch_size, seed=seed).payload

        def build_eval_env(self, env_num: int, split: str, seed: int, **kwargs: Any) -> Any:
            return self.loader.build_eval_batch(env_num=env_num, split=split, seed=seed).payload

        def get_task_types(self) -> list[str]:
            return [job.kind]

        def rollout(
            self, env_manager: Any, skill_content: str, out_dir: str, **kwargs: Any
        ) -> list[dict[str, Any]]:
            self.turn += 1
            prompt, results = prompt_of(skill_content), []
            for one in attempt_all(job, prompt, env_manager, self.turn):
                folder = Path(out_dir) / "predictions" / one.row["id"]
                folder.mkdir(parents=True, exist_ok=True)
                turns = [
                    *rendered(prompt, one.row["problem"])[1:],
                    {"role": "assistant", "content": one.response},
                    {"role": "user", "content": feedback(job.kind, one)},
                ]
                (folder / "conversation.json").write_text(json.dumps(turns))
                results.append(
                    {
                        "id": one.row["id"],
                        "hard": int(one.reward),
                        "soft": one.reward,
                        "task_type": job.kind,
                        "task_description": one.row["problem"],
                        "fail_reason": "" if one.reward else feedback(job.kind, one),
                        "n_turns": 1,
                    }
                )
            return results

    out = job.folder / "skillopt"
    config = {
        **RECIPE,
        "out_root": str(out),
        "skill_init": str(job.folder / "seed.md"),
        "env": "race",
        "seed": job.seed + 1,
        "train_size": len(job.train),
        "sel_env_num": len(job.validation),
        "test_env_num": len(job.validation),
        "analyst_workers": job.concurrency,
        "split_dir": str(splits),
        "split_mode": "split_dir",
        "model_backend": "qwen_chat",
        "optimizer_backend": "qwen_chat",
        "target_backend": "qwen_chat",
        "optimizer_model": job.model,
        "target_model": job.model,
        "qwen_chat_base_url": job.base_url,
        "qwen_chat_api_key": "none",
        "qwen_chat_max_tokens": OPTIMIZER_TOKENS,
    }
    ended = "done"
    try:
        ReflACTTrainer(config, Attempts()).train()
    except BudgetSpent:
        ended = "budget"
    skills = sorted((out / "skills").glob("skill_v*.md"))
    best = out / "best_skill.md"
    final = skills[-1].read_text() if skills else job.seed_text
    chosen = best.read_text() if best.exists() else job.seed_text
    ended = "budget" if job.spent >= 1.0 else ended
    leave(job, prompt_of(final), prompt_of(chosen), ended=ended, notes={"versions": len(skills)})


if __name__ == "__main__":
    main(optimise)
