"""A prompt that is answered under two versions of a library, side by side, and kept as a case."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from starlette.responses import Response, StreamingResponse

from tfgrpo.rendering.prompt_templates import Message
from tfgrpo.rendering.retrieve import relevant, shown_in_training, trained_with
from tfgrpo.runs.attempts import known_run_problems, run_attempts
from tfgrpo.store.address import project_root
from tfgrpo.store.errors import UnknownRevision
from tfgrpo.terminal_safe import shown
from tfgrpo.ui.call_conversation import SYSTEM, parsed, turns_of
from tfgrpo.ui.page_visit import BadForm, Route, Visit, event
from tfgrpo.ui.playground_trials import Answered, Trial, Words, begin, side
from tfgrpo.ui.shown_project import branches_of_people, problems_of, traffic_of

NONE = "none"
SPEAKERS = ("user", "assistant")
LONGEST = 200_000
EVERY = 0.1
"""Seconds between two looks at a trial that is under way."""
CASES = "cases.jsonl"


def show(visit: Visit) -> Response:
    """Answers with the form, filled with the words of a call or with a run's problem where one is
    named."""
    words = Words(visit.query("system"), (), visit.query("prompt"))
    if visit.query("call"):
        words = _words_of(visit, visit.query("call"))
    elif visit.query("problem"):
        words = words._replace(prompt=_problem(visit, visit.query("problem")))
    return _page(visit, words, visit.query("a", NONE), visit.query("b", "HEAD"))


def _page(visit: Visit, words: Words, a: str, b: str, trial: Trial | None = None) -> Response:
    return visit.render(
        "playground.html",
        title="Playground",
        words=words,
        turns=json.dumps(words.turns) if words.turns else "",
        a=a,
        b=b,
        places=[NONE, "HEAD", *branches_of_people(visit)],
        trial=trial,
        heard=[one.heard for one in trial.sides] if trial else [],
    )


def _problem(visit: Visit, id: str) -> str:
    visit.require_content()
    run = visit.store.runs.get(visit.query("run"))
    attempts = run_attempts(visit.store, run, step=visit.number("step", 1)).of(problem=id)
    if not attempts.attempts:
        raise UnknownRevision(f"{attempts.title} has no attempt at {id[:80]!r}")
    known, _ = problems_of(visit, run.uid, lambda project: known_run_problems(project, run))
    return replace(attempts, known=known).text(attempts.attempts[0]).question


def _words_of(visit: Visit, id: str) -> Words:
    """Returns the words of a call as it was asked: what the user said last is the prompt, and what
    both said before goes along. Tools are left out: nobody answers their calls here."""
    visit.require_content()
    with traffic_of(visit) as traffic:
        content = None if traffic is None else traffic.content(traffic.call(id).id)
    turns = None if content is None else turns_of(parsed(content.request))
    if turns is None:
        raise UnknownRevision("the words of this call were not kept")
    system = "\n\n".join(turn.text for turn in turns if turn.role in SYSTEM)
    spoken = [(turn.role, turn.text) for turn in turns if turn.role in SPEAKERS and turn.text]
    last = max((at for at, (role, _) in enumerate(spoken) if role == "user"), default=0)
    prompt = spoken[last][1] if spoken and spoken[last][0] == "user" else ""
    return Words(system, tuple(spoken[:last]), prompt)


def _earlier(visit: Visit) -> tuple[Message, ...]:
    """Returns the earlier turns that go along with the form, as it was made with them."""
    pairs = parsed(visit.field("turns") or "[]")
    turns = (
        [tuple(one) for one in pairs if isinstance(one, list)] if isinstance(pairs, list) else []
    )
    good = [
        one for one in turns if len(one) == 2 and one[0] in SPEAKERS and isinstance(one[1], str)
    ]
    if not isinstance(pairs, list) or len(good) != len(pairs):
        raise BadForm("the earlier turns cannot be read", hint="go back and try the call again")
    return tuple((role, text) for role, text in good)


def ask(visit: Visit) -> Response:
    """Asks the model of the settings file under both versions, which costs what two calls cost."""
    visit.required("prompt", "the prompt")
    words = Words(visit.text("system").strip(), _earlier(visit), visit.text("prompt"))
    if sum(len(one["content"]) for one in words.messages) > LONGEST:
        raise BadForm(f"a prompt has at most {LONGEST:,} characters")
    names = (visit.required("a", "the first version"), visit.required("b", "the second version"))
    sides = tuple(_side(visit, name, words) for name in names)
    trial = begin(visit.site.trials, visit.site.settings.store, visit.who, words, sides)
    return visit.done(f"/playground/{trial.id}")


def _side(visit: Visit, name: str, words: Words) -> Answered:
    if name == NONE:
        return side("no library", None, None, words)
    version = visit.store.resolve(name)
    top_k = shown_in_training(trained_with(visit.store, version))
    library = relevant(visit.store.library(version), words.prompt, top_k)
    return side(name, version, library, words)


def _trial(visit: Visit) -> Trial:
    trial = visit.site.trials.get(visit.path("id"))
    if trial is None:
        raise UnknownRevision("this trial was of an earlier start, or is long ago")
    return trial


def answers(visit: Visit) -> Response:
    trial = _trial(visit)
    first, second = (one.version or NONE for one in trial.sides)
    return _page(visit, trial.words, first, second, trial)


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
    """Keeps the prompt with its right answer as a case of an evaluation, a line of JSON; with a
    system text or earlier turns it is the whole conversation."""
    words = (trial := _trial(visit)).words
    problem = words.messages if words.system or words.turns else words.prompt
    case = {"problem": problem, "answer": visit.required("answer", "the right answer")}
    path = project_root(visit.site.settings.store) / CASES
    _append(path, json.dumps(case, ensure_ascii=False).encode(errors="replace"))
    return visit.done(f"/playground/{trial.id}", f"It is a case in {CASES}")


def _append(path: Path, line: bytes) -> None:
    """Adds a line to a file, whole or not at all; also to one whose last line has no end. Raises
    OSError."""
    with path.open("a+b", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        between = b"" if file.read(1) in (b"", b"\n") else b"\n"
        rest = memoryview(between + line + b"\n")
        try:
            while rest:
                rest = rest[file.write(rest) :]
            os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):  # what is in the way of the line may be in the way of this too
                file.truncate(size)
            raise


ROUTES = (
    Route("/playground", show),
    Route("/playground", ask, "POST"),
    Route("/playground/{id}", answers),
    Route("/playground-live/{id}", follow, live=True),
    Route("/playground/{id}/keep", keep, "POST"),
)
