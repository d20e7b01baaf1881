"""What requests to one endpoint have turned out to need, remembered for as long as it is open. It
stands in the record of an answer (`sent`), so that a resumed run goes on with it.

A reasoning model spends a request's limit of tokens on its thinking too: an answer that this cut
off is asked for again with more room, up to `MOST_ROOM` tokens, as is every request after it. Where
answers stay out of shape more often than not until the schema is put into words, it is put into
every prompt. A server that leaves out log-probabilities is not asked for them again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tfgrpo.store.records import Json

if TYPE_CHECKING:
    from tfgrpo.model.endpoint import Answer, Request

FIRST_ROOM = 2048
STEP = 4
"""By how much the room grows each time that it was not enough."""
LONG_PROMPT = 2_000
"""Tokens from which on a prompt that was cut is told from one that was counted in another way."""
MOST_ROOM = 32_768
"""The most tokens for thinking, unless `max_completion_tokens` says otherwise."""


@dataclass(slots=True)
class Adaptation:
    """What requests to an endpoint need beside what they ask: `room` tokens for thinking, at most
    `most` tokens of an answer, nothing that is `refused`. `on_note` is told what was found out."""

    name: str
    room: int = 0
    most: int | None = None
    refused: set[str] = field(default_factory=set)
    hits: int = 0
    misses: int = 0
    in_words: bool = False
    on_note: Callable[[str], None] | None = None
    _noted: set[str] = field(default_factory=set)

    def note(self, text: str) -> None:
        """Tells something about this endpoint, unless it was told before."""
        if text not in self._noted:
            self._noted.add(text)
            if self.on_note is not None:
                self.on_note(f"{self.name} {text}")

    def sent(self) -> Json:
        """How requests differ from what they ask, for the record; empty where they do not."""
        state: dict[str, Any] = {}
        if self.room:
            state["room"] = self.room
        if self.in_words:
            state["schema"] = "prompt"
        if self.refused:
            state["without"] = sorted(self.refused)
        return state

    def restore(self, sent: Json) -> None:
        """Goes on with what a record says was found out before."""
        self.room = max(self.room, min(int(sent.get("room", 0)), 1 << 30))
        self.in_words |= sent.get("schema") == "prompt"
        self.refused |= {str(name) for name in sent.get("without", ())}

    def words(self) -> str:
        """How requests are sent beside what they ask, for people; empty where as they are."""
        parts = [f"{self.room:,} tokens of room for thinking"] if self.room else []
        in_words = self.in_words or "response_format" in self.refused
        parts += ["schemas said in the prompt"] if in_words else []
        without = sorted(self.refused - {"response_format", "max_tokens"})
        parts += [f"without {', '.join(without)}"] if without else []
        return f"{self.name}: {'; '.join(parts)}" if parts else ""

    def prompt_read(self, reported: int, counted: int) -> None:
        """Takes note of how many tokens a server tells of a prompt that has about so many."""
        if cuts(reported, counted):
            self.note(
                f"read {reported:,} tokens of a prompt of about {counted:,}: its server may cut "
                "prompts without an error (Ollama does, beyond OLLAMA_CONTEXT_LENGTH or num_ctx); "
                "`tfgrpo model check` tries it"
            )

    # log-probabilities:

    @property
    def tells_chances(self) -> bool:
        """Whether answers may come with log-probabilities, for all that is known."""
        return "logprobs" not in self.refused

    def without_chances(self) -> None:
        """Takes note of an answer without the log-probabilities that it was asked for."""
        if self.tells_chances:
            self.refused.add("logprobs")
            self.note("returns no log-probabilities: they are not asked for again")

    # room for thinking:

    def limit(self, request: Request, ceiling: int | None) -> int:
        """The tokens of a request with room for thinking; `ceiling` is the settings' most."""
        known = [limit for limit in (self.most, ceiling) if limit is not None]
        return min([request.max_tokens + self.room, *known])

    def widen(self, request: Request, limit: int, ceiling: int | None) -> bool:
        """Makes more room after thinking used up `limit`; returns whether there is more now."""
        had = limit - request.max_tokens
        if self.room <= had:
            most = MOST_ROOM if ceiling is None else max(0, ceiling - request.max_tokens)
            room = min(most, max(FIRST_ROOM, STEP * had))
            if room > self.room:
                self.room = room
                self.note(
                    f"thinks before it answers, and used up the limit of a {request.stage} call: "
                    f"limits are raised by {room:,} tokens for thinking"
                )
        return self.limit(request, ceiling) > limit

    # schemas:

    def schema_followed(self, *, asked_in_words: bool) -> None:
        """Takes note of an answer that has the shape it was asked for."""
        if not asked_in_words:
            self.hits += 1

    def schema_missed(self) -> None:
        """Takes note of an answer that was out of shape until the schema was said in words."""
        self.misses += 1
        if self.misses > self.hits and not self.in_words:
            self.in_words = True
            self.note("does not follow response_format: schemas go into its prompts")


def cuts(reported: int, counted: int) -> bool:
    """Whether a server that tells so few tokens of a prompt has left some of it out."""
    return counted >= LONG_PROMPT and reported < 0.6 * counted


def used_up(answer: Answer, request: Request) -> bool:
    """Whether thinking took what a request allows for the answer. One for the first tokens'
    probabilities is meant to be cut off."""
    if not answer.truncated or answer.tool_calls or request.top_logprobs:
        return False
    if not answer.visible.strip():
        return True
    seen = answer.completion_tokens - answer.reasoning_tokens
    return answer.reasoning_tokens > 0 and seen < request.max_tokens
