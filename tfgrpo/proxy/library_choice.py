"""Which library a request gets, and its text.

In this order: the header `x-tfgrpo-library`, the name of the model (`support@prod/gpt-5-mini`),
the first rule that fits, the default. A library is named `support`, `support@prod` or `@prod`
(of the default's store), or `none` for no library at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from tfgrpo.domains.prompt_library import LiveLibrary, PromptLibrary
from tfgrpo.proxy.proxy_settings import LOOPBACK, LibraryChoice, ProxySettings, Rule
from tfgrpo.proxy.running_experiments import Arms, RunningExperiment
from tfgrpo.rendering.request_placement import Addition, Members, addition
from tfgrpo.rendering.retrieve import Part, is_whole, relevant
from tfgrpo.store.canonical import digest
from tfgrpo.store.errors import TfgrpoError
from tfgrpo.store.records import Library

NONE = "none"
HEADER = b"x-tfgrpo-library"
MOST_REVISIONS = 64
"""Revisions that requests may have open at a time beside the libraries' own."""
MOST_ARMS = 8
"""Arms whose texts are held at a time."""


class UnknownLibrary(TfgrpoError):
    """A request names a library that is not served here."""


class Chosen(NamedTuple):
    """The library of a request: as which it was named, the version, the experiences that are in
    its text (None: all of them), the text (None where the library is empty), what is wrong with
    the store, if anything, and the arm of the experiment that it is in."""

    name: str
    version: str
    digest: str
    experiences: tuple[str, ...] | None
    addition: Addition | None
    trouble: str | None
    header: bytes
    """The header of an answer that names the version."""
    arm: str | None = None


class Source:
    """A library at a revision, and its text as it was last asked for."""

    def __init__(self, name: str, choice: LibraryChoice, revision: str) -> None:
        self.name = name
        self.choice = choice
        self.arms = Arms(revision)
        self.live = LiveLibrary(revision, store=choice.store, beside=self.arms.read)
        self._wholes: dict[str | None, tuple[PromptLibrary, Chosen, bool]] = {}

    def chosen(self, words: Callable[[], str], call: str, subject: str | None = None) -> Chosen:
        """Returns what a request gets, by the id of its call. `words` gives the text that
        experiences are picked by, and `subject`, whom it is for (None: nobody else), decides which
        are left out of it, and its arm."""
        live, choice = self.live, self.choice
        library, running = live.in_force
        arm, coin = None, subject or call
        if isinstance(running, RunningExperiment):
            arm, candidate = running.arm(coin, call)
            library = library if candidate is None else candidate
        known = self._wholes.get(arm)
        if known is None or known[0] is not library or known[1].trouble != live.trouble:
            if arm is None or len(self._wholes) > MOST_ARMS:
                self._wholes.clear()
            choice_of_all = self._build_choice(library, None, arm)
            known = self._wholes[arm] = library, choice_of_all, is_whole(library, None)
        top_k = choice.top_k or library.top_k
        part: Library = library
        if top_k is not None or not known[2]:
            part = relevant(library, words(), top_k)
        elif not choice.dropout:
            return known[1]
        if choice.dropout:
            without = left_out([e.id for e in library], choice.dropout, coin)
            part = Part(library, {e.id for e in part} - without)
        return self._build_choice(part, tuple(e.id for e in part), arm)

    def _build_choice(
        self, library: Library, experiences: tuple[str, ...] | None, arm: str | None
    ) -> Chosen:
        new = addition(library) if library.readable else None
        version, trouble = library.version, self.live.trouble
        short = version.digest.hex()[:16]
        header = f"X-Tfgrpo-Version: {version.name} {short}".encode()
        return Chosen(self.name, version.name, short, experiences, new, trouble, header, arm)


def left_out(ids: Sequence[str], rate: float, coin: str) -> frozenset[str]:
    """Returns the ids that a request goes without: each with chance `rate`, by a coin of its own,
    which falls the same way for the same conversation and experience."""
    limit = int(rate * 2**32)
    drawn = {id: digest(["tfgrpo.proxy.dropout", coin, id])[:4] for id in ids}
    return frozenset(id for id, draw in drawn.items() if int.from_bytes(draw, "big") < limit)


class Chooser:
    """The libraries that are served, and which one a request gets."""

    def __init__(self, settings: ProxySettings) -> None:
        self._choices = settings.libraries
        self._rules = settings.rules
        self._default = settings.default
        self.sources: dict[str, Source] = {}
        """The open ones, by what they are named as."""
        self._local = settings.host in LOOPBACK
        self._opening = True
        self._fixed = MOST_REVISIONS
        self._home = ""
        if settings.default != NONE:
            self._home = self._parse(settings.default)[0]
        ruled = (rule.library for rule in settings.rules)
        for name in (*settings.libraries, settings.default, *ruled):
            self.source(name)
        self._fixed = len(self.sources)
        self._opening = False

    @property
    def served(self) -> dict[str, Source]:
        """The libraries that the settings name, without what requests named beside them."""
        return dict(islice(self.sources.items(), self._fixed))

    def named(self, headers: Mapping[bytes, bytes], members: Members) -> tuple[str, str | None]:
        """Returns what names the library of a request, and the model's name without the library
        where that named it."""
        header, name, rest = headers.get(HEADER), "", None
        model = members["model"].value if "model" in members else None
        if isinstance(model, str):
            before, _, after = model.partition("/")
            library, at, _ = before.partition("@")
            if at and after and library in self._choices:
                name, rest = before, after
        if header:
            return header.decode("latin-1").strip(), rest
        if name:
            return name, rest
        fitting = (rule.library for rule in self._rules if fits(rule, headers, members))
        return next(fitting, self._default), None

    def source(self, name: str) -> Source | None:
        """Returns the library of a name; None for `none`. Raises UnknownLibrary or StoreError."""
        source = self.sources.get(name)
        if source is not None or name == NONE:
            return source
        library, revision = self._parse(name)
        choice = self._choices[library]
        if revision and not (self._opening or choice.allows(revision, local=self._local)):
            raise UnknownLibrary(
                f"{name}: requests may not name that revision",
                hint=f"`allow` of the library {library} lists those that they may",
            )
        try:
            source = Source(name, choice, revision or choice.revision)
        except TfgrpoError as error:
            raise UnknownLibrary(f"{name}: {error}", hint=error.hint) from error
        self.sources[name] = source
        if len(self.sources) > self._fixed + MOST_REVISIONS:
            oldest = list(self.sources)[self._fixed]
            self.sources.pop(oldest).live.close()
        return source

    def _parse(self, name: str) -> tuple[str, str]:
        library, _, revision = name.partition("@")
        library = library or self._home
        if library not in self._choices:
            raise UnknownLibrary(
                f"there is no library {library!r} here",
                hint=f"these are served: {', '.join(sorted(self._choices))}",
            )
        return library, revision

    def close(self) -> None:
        """Closes the stores."""
        for source in self.sources.values():
            source.live.close()


def fits(rule: Rule, headers: Mapping[bytes, bytes], members: Members) -> bool:
    """Returns whether a request is one that a rule is for."""
    if rule.header is not None:
        raw = headers.get(rule.header.lower().encode())
        value: Any = None if raw is None else raw.decode("latin-1")
    else:
        assert rule.field is not None
        first, *rest = rule.field.split(".")
        value = members[first].value if first in members else None
        for key in rest:
            value = value.get(key) if isinstance(value, dict) else None
    if value is None or isinstance(value, (dict, list)):
        return False
    text = value if isinstance(value, str) else str(value)
    return text == rule.equals if rule.matches is None else bool(rule.matches.search(text))


def fields_of(rules: Sequence[Rule]) -> set[str]:
    """Returns the members of a body that rules look at."""
    return {rule.field.partition(".")[0] for rule in rules if rule.field is not None}
