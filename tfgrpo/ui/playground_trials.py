"""One prompt under two versions of a library, asked in a thread of its own.

A trial is kept as long as the server runs; what was asked, answered and paid is in the store's
journal like every other call. The library goes where the proxy puts it.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import threading
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tfgrpo.evaluation.eval_setup import eval_settings
from tfgrpo.model.endpoint import CallFailed, Request
from tfgrpo.model.gather import gather_all
from tfgrpo.project import open_project
from tfgrpo.rendering.json_splice import document, edited
from tfgrpo.rendering.prompt_templates import Message
from tfgrpo.rendering.request_placement import KEYS, addition, place_in_chat
from tfgrpo.rendering.token_count import count_tokens
from tfgrpo.session import open_session, options_of
from tfgrpo.store.address import project_root
from tfgrpo.store.errors import TfgrpoError
from tfgrpo.store.records import Library, Version
from tfgrpo.store.store import Store
from tfgrpo.ui.call_conversation import turns_of

MOST = 200
"""Trials that are kept, the last."""
STAGE = "playground"


class Words(NamedTuple):
    """What is asked under both versions: a system text of the application's, which may be empty,
    the earlier turns of the conversation, and the prompt."""

    system: str
    turns: tuple[Message, ...]
    prompt: str

    @property
    def messages(self) -> list[dict[str, str]]:
        own = (("system", self.system),) if self.system else ()
        every = (*own, *self.turns, ("user", self.prompt))
        return [{"role": role, "content": text} for role, text in every]


@dataclass(slots=True)
class Answered:
    """One side of a trial: its version (None for no library), the messages that are sent, and what
    came of them: `heard` is the answer as far as it has come, `text` the whole one. `error` says
    why there is none; `dollars` is None where no price is known."""

    name: str
    version: str | None
    messages: tuple[Message, ...]
    added: int
    heard: str = ""
    text: str | None = None
    error: str | None = None
    tokens: tuple[int, int] | None = None
    dollars: float | None = None
    seconds: float = 0.0

    @property
    def is_over(self) -> bool:
        return self.text is not None or self.error is not None


@dataclass(slots=True)
class Trial:
    """A prompt and its sides."""

    id: str
    author: str
    words: Words
    sides: tuple[Answered, ...]

    @property
    def over(self) -> int:
        return sum(one.is_over for one in self.sides)

    @property
    def is_over(self) -> bool:
        return self.over == len(self.sides)


def begin(
    trials: dict[str, Trial], path: Path, author: str, words: Words, sides: tuple[Answered, ...]
) -> Trial:
    """Begins to ask, and returns the trial, which is kept among those of its server."""
    trial = Trial(secrets.token_hex(8), author, words, sides)
    trials[trial.id] = trial
    while len(trials) > MOST:
        del trials[next(iter(trials))]
    threading.Thread(target=_ask, args=(path, trial), daemon=True).start()
    return trial


def side(name: str, version: Version | None, library: Library | None, words: Words) -> Answered:
    """Returns a side that is to be asked, with the library where the proxy puts it."""
    body = json.dumps({"messages": words.messages})
    added = 0
    if library is not None and library.readable:
        placed = addition(library)
        added = count_tokens(json.loads(f'"{placed.escaped}"'))
        edits = place_in_chat(body, document(body, KEYS), placed)
        body = edited(body.encode(), body, edits).decode()
    turns = turns_of(json.loads(body)) or []
    messages = tuple((turn.role, turn.text) for turn in turns)
    return Answered(name, None if version is None else version.name, messages, added)


def _ask(path: Path, trial: Trial) -> None:
    try:
        with Store.open(path, author=trial.author) as store:
            asyncio.run(_ask_all(store, trial))
    except TfgrpoError as error:
        for one in trial.sides:
            if not one.is_over:
                one.error = str(error)


async def _ask_all(store: Store, trial: Trial) -> None:
    project = open_project(project_root(Path(store.file)))
    settings, _ = eval_settings(store, project, [store.head.version], {})
    prices = project.prices(settings.models)
    options = options_of(settings, prices, endpoints=project.endpoints(settings.models))
    async with open_session(store, settings.models, options) as session:
        calls = session.calls("policy", f"{STAGE} {trial.id}")

        async def ask(number: int, one: Answered) -> None:
            how = (settings.temperature, settings.max_tokens)
            request = Request(STAGE, one.messages, *how, heard=partial(setattr, one, "heard"))
            began = time.monotonic()
            try:
                answer = (await calls.ask(request, call_path=(number,))).answer
            except CallFailed as error:
                one.error = str(error)
            else:
                price = prices.policy
                one.tokens = answer.prompt_tokens, answer.completion_tokens
                one.dollars = None if price is None else price.cost(answer)
                one.text = answer.content
            one.seconds = time.monotonic() - began

        try:
            await gather_all(ask(number, one) for number, one in enumerate(trial.sides))
        finally:  # also where one side cannot be asked: what the other answers is paid for
            await calls.finish_in_flight()
