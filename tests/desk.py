"""A desk to train at: a dataset, a store and settings in one folder, and what a run left there."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripted import ScriptedEndpoint, write_problems
from store_helpers import begin

from tfgrpo.connect import CallLimits, Endpoints
from tfgrpo.data import datasets
from tfgrpo.domains import math
from tfgrpo.domains.base import Domain
from tfgrpo.domains.verifier import Verifier
from tfgrpo.learn.loop import Training
from tfgrpo.model.budget import Budget
from tfgrpo.model.endpoint import Endpoint
from tfgrpo.runs.run_problems import RunProblems
from tfgrpo.runs.run_versions import pool_branch
from tfgrpo.session import Session
from tfgrpo.settings import TrainSettings, build
from tfgrpo.store import Store, Version
from tfgrpo.store.activity.journal import Journal

UID = "5" * 32


@dataclass
class Desk:
    """A dataset, a store and settings in one folder; `train()` is one session of a run."""

    folder: Path
    verifier: Verifier
    settings: TrainSettings

    @property
    def path(self) -> Path:
        return self.folder / "store.db"

    def store(self) -> Store:
        return Store.init(self.path, author="tests")

    def prepare(self, uid: str = UID, name: str = "run") -> None:
        """Makes the run with a uid of our choice, so that two stores can be compared."""
        with self.store() as store:
            config = self.settings.model_dump(mode="json")
            base = store.tip("main")
            store.runs.create(name, uid, "main", base.number, config, store.author)
            store.create_tag(f"{name}/step_0", base)

    def train(
        self,
        server: ScriptedEndpoint,
        *,
        concurrency: int = 8,
        timeout: float = 20,
        domain: Domain = math.DOMAIN,
        budget: Budget | None = None,
    ) -> Training:
        with self.store() as store:
            run, _ = begin(store, self.settings)
            journal = Journal(store.port.records.writer())
            try:
                endpoint = Endpoint("scripted", server.base_url, None, timeout)
                limits = CallLimits(concurrency, self.settings.task_timeout, self.settings.patience)
                endpoints = Endpoints(endpoint, endpoint, limits)
                gate = datasets.load(named) if (named := self.settings.gate) else ()
                training = Training(
                    Session(store, journal, endpoints, self.verifier, budget=budget),
                    run,
                    RunProblems(datasets.load(self.settings.data), gate=gate),
                    domain=domain,
                )
                asyncio.run(trained(training, endpoints))
                return training
            finally:
                journal.close()


async def trained(training: Training, endpoints: Endpoints) -> None:
    """Does what is left of a run, and closes the connections."""
    try:
        await training.run()
    finally:
        await endpoints.close()


def made(
    parent: Path, verifier: Verifier, name: str = "a", *, count: int = 6, **values: Any
) -> Desk:
    """Makes a desk with `count` problems, for 2 epochs of batches of 3 and groups of 3."""
    folder = parent / name
    folder.mkdir()
    data = parent / "problems.jsonl"
    write_problems(data, count)
    chosen = {"epochs": 2, "batch_size": 3, "group_size": 3, "data": str(data), "policy": "paper"}
    chosen |= values
    return Desk(folder, verifier, build(TrainSettings, {"model": "scripted", **chosen}))


def libraries(path: Path, run: str = "run") -> list[list[tuple[str, str]]]:
    """Returns the library at every step of a run, as (id, text)."""
    with Store.open(path) as store:
        found = []
        while f"{run}/step_{len(found)}" in store.tags():
            library = store.library(f"{run}/step_{len(found)}")
            found.append([(e.id, e.text) for e in library])
    return found


def learned(path: Path, run: str = "run") -> list[list[tuple[str, str]]]:
    """Returns the library at every step, and at every version of the candidates' branch."""
    with Store.open(path) as store:
        name = pool_branch(store.runs.get(run))
        candidates = [*store.log(name)][::-1] if name in store.branches() else []
        pools = [[(e.id, e.text) for e in store.library(version)] for version in candidates]
    return libraries(path, run) + pools


def steps(path: Path, run: str = "run") -> list[Version]:
    """Returns the versions that a run made, in order."""
    with Store.open(path) as store:
        versions = [v for v in store.log("main") if v.meta.get("run") == run]
    return versions[::-1]
