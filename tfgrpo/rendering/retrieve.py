"""Retrieval: the experiences that fit a problem best, for libraries too large to inject whole.
Ranking is deterministic in every language: BM25 over n-grams of characters, then library order.

Where a library has more examples than a prompt takes, the prompt gets those that are most like its
problem (Liu et al., What Makes Good In-Context Examples for GPT-3?, arXiv 2101.06804), and before
them the first ones, which are the same for each: a small model sees every answer that there is, and
an endpoint reads these once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property, lru_cache
from importlib.util import find_spec
from typing import TypeAlias

from tfgrpo.rendering.experience_texts import instruction_ids, is_example
from tfgrpo.rendering.near_duplicates import NgramIndex, PlainIndex
from tfgrpo.rendering.token_count import count_tokens
from tfgrpo.store.errors import TfgrpoError
from tfgrpo.store.history.walks import first_parents
from tfgrpo.store.records import Json, Library, Version
from tfgrpo.store.store import Store

Rank: TypeAlias = Callable[[Library, str], Iterable[str]]
"""From a library and the text of a problem to the ids of experiences, the best first."""


WHOLE = 32
"""The examples in a prompt at most: all of a library, or those chosen of more."""
NEAREST = 8
"""How many of those chosen are the most alike (`benchmarks/RESULTS-retrieval.md`)."""
MOST_TOKENS = 1536
"""The most tokens of those chosen: a model on this machine reads 4,096 in all."""


class RetrievalFailed(TfgrpoError):
    """A ranking of the user's could not be used."""


class Part(Library):
    """A part of a library, in its order and with its labels."""

    def __init__(self, whole: Library, ids: Collection[str]) -> None:
        super().__init__(whole.version, tuple(e for e in whole if e.id in ids))
        self._whole = whole

    @cached_property
    def labels(self) -> Mapping[str, str]:
        """Label → experience id, as in the whole library."""
        return {label: id for label, id in self._whole.labels.items() if id in self.by_id}


@lru_cache(maxsize=8)
def index(library: Library) -> NgramIndex | PlainIndex:
    """A library's readable experiences, ready to be ranked; the last used ones are kept."""
    texts = {e.id: e.text for e in library.readable}
    return NgramIndex(texts) if find_spec("numpy") else PlainIndex(texts)


def is_whole(library: Library, top_k: int | None) -> bool:
    """Whether each prompt gets all of a library, where it gets `top_k` experiences."""
    examples = sum(is_example(e.text) for e in library.readable)
    if examples > WHOLE or top_k is None:
        return examples <= WHOLE
    return len(library.readable) - examples - len(instruction_ids(library)) <= top_k


def relevant(
    library: Library,
    problem: str,
    top_k: int | None,
    *,
    always: Collection[str] = (),
    rank: Rank | None = None,
    without: Collection[str] = (),
) -> Library:
    """The `top_k` experiences that fit a problem best, those in `always` among them, with words
    for base prompt and tools beside them, and all examples, or of many the nearest and the first:
    in library order, with their labels; of what is no example all for None. `rank` takes BM25's
    place where lessons are ranked. What is left out by `without` counts, and does not come. Raises
    RetrievalFailed."""
    if not without and is_whole(library, top_k):
        return library
    examples = [e.id for e in library.readable if is_example(e.text)]
    words = instruction_ids(library)
    lessons = [e.id for e in library.readable if not (is_example(e.text) or e.id in words)]
    if len(examples) > WHOLE:
        texts = {id: library.by_id[id].text for id in examples if id not in without}
        order = index(library).ranked(problem) if problem else texts
        nearest = [id for id in order if id in texts][:NEAREST]
        examples = _in_room((*nearest, *texts), texts)
    if top_k is not None and len(lessons) > top_k:
        fitting = (
            index(library).ranked(problem) if rank is None else _ranked(rank, library, problem)
        )
        first = [id for id in always if id in library.by_id]
        there = set(lessons).difference(first)
        ranked = [id for id in fitting if id in there]
        lessons = [*first, *ranked[: max(0, top_k - len(first))]]
    return Part(library, {*lessons, *words, *examples}.difference(without))


def _in_room(ids: Iterable[str], texts: Mapping[str, str]) -> list[str]:
    """Of ids, which may come twice, as many as a prompt has room for."""
    chosen: dict[str, None] = {}
    left = MOST_TOKENS
    for id in ids:
        tokens = count_tokens(texts[id])
        if id not in chosen and tokens <= left and len(chosen) < WHOLE:
            chosen[id] = None
            left -= tokens
    return list(chosen)


def _ranked(rank: Rank, library: Library, problem: str) -> list[str]:
    name = getattr(rank, "__name__", type(rank).__name__)
    try:
        order = list(dict.fromkeys(rank(library, problem)))
    except (Exception, SystemExit) as error:  # whatever code of the user's does
        raise RetrievalFailed(
            f"retrieve {name}: {type(error).__name__}: {error}",
            hint="it takes a library and a text, and returns ids of experiences, the best first",
        ) from error
    unknown = next((id for id in order if id not in library.by_id), None)
    if unknown is not None:
        raise RetrievalFailed(
            f"retrieve {name} gave {unknown!r}, which is the id of no experience in the library",
            hint="an experience has its id in `id`; labels such as G0 are no ids",
        )
    return order


OBJECT = "object:"
"""What begins the name of a domain or an agent that a run was given as a Python object."""


def trained_with(store: Store, version: Version) -> Json:
    """The settings of the run that a version's history comes from: all on record, or `domain`,
    `agent_objective` and `top_k` as a clone's version has them; {} for none."""
    for ancestor in first_parents(store, version):
        name = ancestor.meta.get("run")
        if isinstance(name, str):
            run = store.runs.find(name)
            rendering = ancestor.meta.get("rendering")
            if run is not None:
                return run.config
            return rendering if isinstance(rendering, dict) else {}
    return {}


def shown_in_training(config: Json) -> int | None:
    """How many experiences a problem's prompt had in the run with these settings; None for all
    of them, and for a number that is none, as somebody else's store may have it."""
    most = config.get("top_k")
    return most if isinstance(most, int) and not isinstance(most, bool) and most > 0 else None
