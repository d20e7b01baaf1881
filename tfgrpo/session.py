"""A session: what every part of a run or an evaluation works with, opened once and handed down.

    async with open_session(store, settings.models, limits=limits) as session:
        policy = session.calls("policy", scope=run.uid, run=run)

Nothing in it changes while it is open but the journal, the budget and the meter, which count.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from tfgrpo.connect import CallLimits, Download, Endpoints, open_endpoints
from tfgrpo.costs.prices import ModelPrices, model_prices
from tfgrpo.domains.verifier import Verifier
from tfgrpo.model.budget import Budget
from tfgrpo.model.client import CallConditions, Calls, Meter
from tfgrpo.model.endpoint import Endpoint
from tfgrpo.model.fleet import FleetEndpoint, ListedEndpoint
from tfgrpo.notices import DownloadProgress, OnProgress, WarningNotice, ignore
from tfgrpo.store.activity.journal import Journal
from tfgrpo.store.activity.runs import Run
from tfgrpo.store.address import project_root
from tfgrpo.store.store import Store

if TYPE_CHECKING:
    from pathlib import Path

    from tfgrpo.model.settings import ModelSettings
    from tfgrpo.settings import Settings

Role: TypeAlias = Literal["policy", "reflection"]
FULL = 10.0
"""Seconds for which a file is waited for that cannot be written, as on a full disk."""
AWAY = 90.0
"""Seconds for which a shared journal that is away is waited for: what was answered is paid for."""
ToolFunction: TypeAlias = Callable[..., Any]
"""A Python function that an agent may call."""


class _DownloadCancelled(Exception):
    """Nobody waits for the download any more."""


@dataclass(frozen=True, slots=True)
class Session:
    """The frozen record of what a run works with: `prices` None where unknown, `budget` None
    without a limit, `functions` as agents' tools; others call in a `shared` journal."""

    store: Store
    journal: Journal
    endpoints: Endpoints
    verifier: Verifier
    prices: ModelPrices = field(default_factory=ModelPrices)
    budget: Budget | None = None
    meter: Meter = field(default_factory=Meter)
    functions: tuple[ToolFunction, ...] = ()
    shared: bool = False

    @property
    def folder(self) -> Path:
        """The folder that the store belongs to: paths in records are relative to it."""
        return project_root(self.store.path)

    def calls(self, role: Role, scope: str, run: Run | None = None) -> Calls:
        """How to ask a role's model: a `scope` is answered once, `run` is whose costs the calls
        are."""
        endpoint: Endpoint = getattr(self.endpoints, role)
        if run is not None:  # what the run had found out of it before
            for model, sent in self.store.runs.sent(run):
                if model == endpoint.model:
                    endpoint.adaptation.restore(sent)
        price, fleet = getattr(self.prices, role), getattr(self.endpoints, f"{role}_fleet")
        policy = self.endpoints.policy
        if not fleet and endpoint.model == policy.model and endpoint.base_url != policy.base_url:
            fleet = (FleetEndpoint(endpoint, price=price),)  # its answers say what they cost
        conditions = CallConditions(
            scope,
            run=run,
            **asdict(self.endpoints.limits),
            price=price,
            meter=self.meter,
            budget=self.budget,
            shared=self.shared,
            fleet=fleet,
        )
        return Calls(endpoint, self.journal, self.store.runs, conditions)

    def model_calls(self, scope: str, run: Run | None = None) -> tuple[Calls, Calls]:
        """The ways to ask the policy and the reflection model; one, with its limits, if they are
        one."""
        policy = self.calls("policy", scope, run)
        if self.endpoints.reflection is self.endpoints.policy:
            return policy, policy
        return policy, self.calls("reflection", scope, run)


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """How a session is opened beside its models: limits, money, tools. Prices are those of the
    catalogue unless others are given. `on_note` is told of what an endpoint turns out to be, a
    `shared` journal is waited for when it is away."""

    limits: CallLimits = field(default_factory=CallLimits)
    prices: ModelPrices | None = None
    budget: Budget | None = None
    functions: Sequence[ToolFunction] = ()
    on_download: Download | None = None
    on_note: Callable[[str], None] | None = None
    verifier_seconds: float = 10.0
    verifier_workers: int = 2
    shared: bool = False
    endpoints: Sequence[ListedEndpoint] = ()


def options_of(
    settings: Settings,
    prices: ModelPrices,
    budget: Budget | None = None,
    on_progress: OnProgress = ignore,
    **more: Any,
) -> SessionOptions:
    """The options that settings stand for; downloads and notes go to `on_progress`."""
    return SessionOptions(
        CallLimits(settings.concurrency, settings.task_timeout, settings.patience),
        prices,
        budget,
        on_download=lambda *at: on_progress(DownloadProgress(*at)),
        on_note=lambda text: on_progress(WarningNotice(text)),
        verifier_seconds=settings.verify_timeout,
        **more,
    )


@asynccontextmanager
async def open_session(
    store: Store, models: ModelSettings, options: SessionOptions | None = None
) -> AsyncIterator[Session]:
    """Opens endpoints (local models in a thread), a verifier and the journal for as long as the
    block lasts. Raises EndpointError, LocalModelError and StoreError."""
    options = options or SessionOptions()
    cancelled = threading.Event()

    def on_download(name: str, done: int, total: int) -> None:
        if cancelled.is_set():
            raise _DownloadCancelled
        if options.on_download is not None:
            options.on_download(name, done, total)

    opening = open_endpoints(models, options.limits, os.environ, on_download, options.endpoints)
    entered = asyncio.ensure_future(asyncio.to_thread(opening.__enter__))
    try:
        endpoints = await asyncio.shield(entered)
    except asyncio.CancelledError:
        cancelled.set()
        [outcome] = await asyncio.gather(entered, return_exceptions=True)
        if not isinstance(outcome, BaseException):
            await asyncio.to_thread(opening.__exit__, None, None, None)
        raise
    noted: set[str] = set()

    def note(text: str) -> None:
        if options.on_note is not None and text not in noted:
            noted.add(text)
            options.on_note(text)

    async with AsyncExitStack() as stack:
        stack.push_async_callback(asyncio.to_thread, opening.__exit__, None, None, None)
        for endpoint in (endpoints.policy, endpoints.reflection):
            endpoint.adaptation.on_note = note
        patience = AWAY if options.shared else FULL
        journal = Journal(store.port.records.writer(), patience=patience)
        stack.callback(journal.close)
        workers, seconds = options.verifier_workers, options.verifier_seconds
        verifier = stack.enter_context(Verifier(workers=workers, seconds=seconds))
        stack.push_async_callback(endpoints.close)
        yield Session(
            store,
            journal,
            endpoints,
            verifier,
            options.prices or model_prices(models, {}),
            options.budget,
            functions=tuple(options.functions),
            shared=options.shared,
        )
