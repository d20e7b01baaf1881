"""A prompt that is answered under two versions of a library, side by side, and kept as a case."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from weakref import WeakKeyDictionary

from starlette.responses import Response, StreamingResponse

from tfgrpo.store.address import project_root
from tfgrpo.store.errors import UnknownRevision
from tfgrpo.terminal_safe import shown
from tfgrpo.ui.call_conversation import parsed, turns_of
from tfgrpo.ui.page_route import Route
from tfgrpo.ui.page_visit import BadForm, Visit, event
from tfgrpo.ui.playground_trials import Answered, Trial, Trials, side
from tfgrpo.ui.shown_project import branches_of_people
from tfgrpo.ui.store_per_thread import Stores
from tfgrpo.ui.traffic_beside import traffic_of

NONE = "none"
LONGEST = 200_000
EVERY = 0.1
"""Seconds between two looks at a trial that is under way."""
CASES = "cases.jsonl"
_trials: WeakKeyDictionary[Stores, Trials] = WeakKeyDictionary()


def show(visit: Visit) -> Response:
    """Answers with the form, filled with the words of a call where one is named."""
    system, prompt = visit.query("system"), visit.query("prompt")
    if visit.query("call"):
        system, prompt = _words_of(visit, visit.query("call"))
    return _page(visit, system, prompt, visit.query("a", NONE), visit.query("b", "HEAD"))


def _page(
    visit: Visit, system: str, prompt: str, a: str, b: str, trial: Trial | None = None
) -> Response:
    return visit.render(
        "playground.html",
        title="Playground",
        system=system,
        prompt=prompt,
        a=a,
        b=b,
        places=[NONE, "HEAD", *branches_of_people(visit)],
        trial=trial,
        heard=[one.heard for one in trial.sides] if trial else [],
    )


def _words_of(visit: Visit, id: str) -> tuple[str, str]:
    """Returns the system text and what the user said last of a call, as it was asked."""
    if not visit.content:
        raise UnknownRevision("what was asked and said is not shown here")
    with traffic_of(visit) as traffic:
        content = None if traffic is None else traffic.content(traffic.call(id).id)
    turns = None if content is None else turns_of(parsed(content.request))
    if turns is None:
        raise UnknownRevision("the words of this call were not kept")
    system = "\n\n".join(turn.text for turn in turns if turn.role in ("system", "developer"))
    return system, next((turn.text for turn in reversed(turns) if turn.role == "user"), "")


def ask(visit: Visit) -> Response:
    """Asks the model of the settings file under both versions, which costs what two calls cost."""
    visit.required("prompt", "the prompt")
    prompt, system = visit.text("prompt"), visit.text("system").strip()
    if len(prompt) + len(system) > LONGEST:
        raise BadForm(f"a prompt has at most {LONGEST:,} characters")
    names = (visit.required("a", "the first version"), visit.required("b", "the second version"))
    sides = tuple(_side(visit, name, (system, prompt)) for name in names)
    trials = _trials.setdefault(visit.site.stores, Trials())
    path = visit.site.settings.store
    trial = trials.begin(path, visit.who, (system, prompt), sides)
    return visit.done(f"/playground/{trial.id}")


def _side(visit: Visit, name: str, words: tuple[str, str]) -> Answered:
    if name == NONE:
        return side("no library", None, None, words)
    version = visit.store.resolve(name)
    return side(name, version, visit.store.library(version), words)


def _trial(visit: Visit) -> Trial:
    trials = _trials.get(visit.site.stores)
    trial = None if trials is None else trials.of(visit.path("id"))
    if trial is None:
        raise UnknownRevision("this trial was of an earlier start, or is long ago")
    return trial


def answers(visit: Visit) -> Response:
    """Answers with a trial as far as it is answered."""
    trial = _trial(visit)
    first, second = (one.version or NONE for one in trial.sides)
    return _page(visit, trial.system, trial.prompt, first, second, trial)


async def follow(visit: Visit) -> Response:
    """Answers with a stream: both sides whenever one begins anew or ends, and between that the
    words that came on each."""
    trial = _trial(visit)
    template = visit.site.templates.get_template("trial.html")

    async def events() -> AsyncIterator[str]:
        there, over = [""] * len(trial.sides), -1
        while not trial.is_over:
            heard = [one.heard for one in trial.sides]
            if trial.over != over or not all(map(str.startswith, heard, there)):
                over = trial.over
                yield event("part", template.render(trial=trial, heard=heard))
            elif heard != there:
                more = [shown(now[len(then) :]) for now, then in zip(heard, there, strict=True)]
                yield event("words", json.dumps(more))
            there = heard
            await asyncio.sleep(EVERY)
        yield event("over", "")

    return StreamingResponse(events(), media_type="text/event-stream")


def keep(visit: Visit) -> Response:
    """Keeps the prompt with its right answer as a case of an evaluation, a line of JSON."""
    trial = _trial(visit)
    case = {"problem": trial.prompt, "answer": visit.required("answer", "the right answer")}
    path = project_root(visit.site.settings.store) / CASES
    with path.open("a", encoding="utf-8", errors="replace") as file:
        file.write(json.dumps(case, ensure_ascii=False) + "\n")
        file.flush()
        os.fsync(file.fileno())
    return visit.done(f"/playground/{trial.id}", f"It is a case in {CASES}")


ROUTES = (
    Route("/playground", show),
    Route("/playground", ask, "POST"),
    Route("/playground/{id}", answers),
    Route("/playground-live/{id}", follow, live=True),
    Route("/playground/{id}/keep", keep, "POST"),
)
