"""Telling addresses what waits for a person: a proposal, a question, a run that failed, harm that
an experiment shows, a bound that a day crosses, a month's budget that is nearly spent.

The server looks now and then, and tells what was not so at the last look: by mail, or as JSON
whose `text` says it in a sentence, as chat programs take it, with its `kind` and the `address` of
the page. What is so when the server starts is not told. What could not be delivered is tried again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from tfgrpo.improvement.proposal_comments import discussions
from tfgrpo.improvement.proposals import list_proposals
from tfgrpo.production.by_day import (
    bounds,
    budget_alert,
    crossed,
    month_began,
    month_spending,
    production_report,
)
from tfgrpo.production.experiment import all_running
from tfgrpo.production.experiment_evidence import evidence
from tfgrpo.production.mail import is_mail, mail_server, send_mail
from tfgrpo.production.webhook import checked_webhook, post_webhook
from tfgrpo.project import open_project
from tfgrpo.store.activity.traffic import traffic_path
from tfgrpo.store.address import project_root
from tfgrpo.store.errors import TfgrpoError
from tfgrpo.store.store import Store
from tfgrpo.ui.store_per_thread import Stores
from tfgrpo.ui.ui_settings import UiSettings
from tfgrpo.wording import plural

EVERY = 30.0
"""Seconds between two looks."""
MOST = 100
"""Notices that wait for an address that does not answer."""
LASTING = ("bound ", "budget ", "harm ")
"""How the keys of notices about a day, a month or an experiment begin: each is told once."""
DAYS = 2
"""The days before today that are held against the bounds."""
log = logging.getLogger("tfgrpo.ui")


class Notice(NamedTuple):
    """What a person should know, and the page that shows it."""

    kind: str
    text: str
    page: str


def notices(store: Store) -> Mapping[str, Notice]:
    """Returns what waits for a person now, each under a key of its own. Raises TfgrpoError."""
    waiting: dict[str, Notice] = {}
    spoken = discussions(store)
    for one in list_proposals(store, "open"):
        page = f"/review?id={one.id}"
        words = f"Proposal {one.id} waits: {one.summary} for {one.target}"
        waiting[f"proposal {one.id} {one.decisions}"] = Notice("proposal", words, page)
        if one.id in spoken:
            for name, by in spoken[one.id].awaited:
                words = f"{by} asks {name} to look at proposal {one.id}"
                waiting[f"asked {one.id} {name}"] = Notice("asked", words, page)
    for run in store.runs.listed():
        states = store.runs.states(run)
        if states and states[-1].state == "failed":
            words = f"Run {run.name} failed" + (f": {states[-1].words}" if states[-1].words else "")
            waiting[f"run {run.uid} {states[-1].time}"] = Notice("run", words, f"/run/{run.name}")
    for looked_at in (_of_bounds, _of_experiments):
        try:
            waiting |= looked_at(store)
        except TfgrpoError as trouble:  # such as a price that cannot be read: alerts may be missing
            words = f"Production could not be looked at: {trouble}"
            waiting[f"trouble {looked_at.__name__} {trouble}"] = Notice(
                "trouble", words, "/production"
            )
    return waiting


def _of_bounds(store: Store) -> dict[str, Notice]:
    path, waiting = traffic_path(store.file), dict[str, Notice]()
    set_to, _ = bounds(store)
    if not os.path.isfile(path) or all(value is None for value in set_to):
        return waiting
    now = time.time_ns() // 1000
    prices = open_project(project_root(Path(store.file))).table("prices")
    if set_to.month is not None:
        spent = month_spending(path, month_began(now), prices)
        for much, words in budget_alert(spent, set_to.month).items():
            waiting[f"budget {spent.month} {much} {set_to.month}"] = Notice(
                "budget", f"{spent.month}: {words}", "/production"
            )
    if any(value is not None for value in set_to[:-1]):
        for day in production_report(path, now - DAYS * 86_400_000_000, prices).days:
            for name, words in crossed(day, set_to).items():
                limit = getattr(set_to, "dollars" if name == "unpriced" else name)
                waiting[f"bound {day.day} {name} {limit}"] = Notice(
                    "bound", f"{day.day}: {words}", "/production"
                )
    return waiting


def _of_experiments(store: Store) -> dict[str, Notice]:
    verdicts = [(one, evidence(store, one).verdict) for one in all_running(store)]
    return {
        f"harm {one.id}": Notice("harm", f"Experiment {one.name}: {verdict.said}", "/production")
        for one, verdict in verdicts
        if verdict.kind == "harm"
    }


def teller(url: str) -> Callable[[Notice, str], str | None]:
    """Returns what tells an address, a webhook's or a mail server's, of a notice and the address
    of its page, and returns why that failed. Raises SettingsError."""
    if is_mail(url):
        server = mail_server(url)
        return lambda notice, page: send_mail(server, notice.text, f"{notice.text}\n\n{page}\n")
    checked_webhook(url)
    return lambda notice, page: post_webhook(
        url, {"kind": notice.kind, "text": notice.text, "address": page}
    )


class Notifier:
    """Looks at a store as long as the server runs, and tells each address what is new."""

    def __init__(self, stores: Stores, settings: UiSettings) -> None:
        self._stores, self._pages = stores, settings.public
        self._known: Collection[str] | None = None
        self._undelivered: dict[str, dict[str, Notice]] = {url: {} for url in settings.notify}

    async def run(self) -> None:
        while True:
            try:
                await self.look()
            except TfgrpoError as trouble:
                log.warning("nothing could be looked at: %s", trouble)
            await asyncio.sleep(EVERY)

    async def look(self) -> int:
        """Looks once, and tells what is new; returns how many notices were delivered."""
        now = await self._stores.run("notifier", notices)
        known = now.keys() if self._known is None else self._known
        for key, one in now.items():
            if one.kind == "trouble" and key not in (self._known or ()):
                log.warning("%s", one.text)
        self._known = now.keys() | {key for key in known if key.startswith(LASTING)}
        new = {key: one for key, one in now.items() if key not in known}
        return sum(await asyncio.gather(*(self._tell(url, new) for url in self._undelivered)))

    async def _tell(self, url: str, new: Mapping[str, Notice]) -> int:
        waiting, delivered = self._undelivered[url], 0
        waiting |= new
        tell = teller(url)
        for key, notice in list(waiting.items()):
            trouble = await asyncio.to_thread(tell, notice, self._pages + notice.page)
            if trouble is not None:
                still = plural(len(waiting), "notice")
                log.warning("%s could not be delivered: %s", still, trouble)
                break
            del waiting[key]
            delivered += 1
        while len(waiting) > MOST:
            del waiting[next(iter(waiting))]
        return delivered
