"""Problems that stand twice, in a dataset or in what was trained on and is evaluated: equal but
for case, white space and punctuation, or nearly the same words with the same numbers. Only
problems that share runs of words are compared in full. What an application says before every
conversation, which makes no two of them alike, does not count."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from tfgrpo.data.problems import Problem

Turns: TypeAlias = tuple[tuple[str, str], ...]
ALIKE = 3
"""Different questions that begin with the same turns before those are the application's own."""


def shared_turns(questions: Sequence[Turns]) -> tuple[Turns, ...]:
    """The turns that `ALIKE` or more questions under one system text begin with, but last turns."""
    under: dict[Turns, list[Turns]] = {}
    for messages in questions:
        system = tuple(one for one in messages if one[0] == "system")
        under.setdefault(system, []).append(_spoken(messages))
    shared = []
    for spoken in under.values():
        if len(spoken) < ALIKE:
            continue
        count = 0
        for turns in zip(*(one[:-1] for one in spoken), strict=False):
            if len(set(turns)) > 1:
                break
            count += 1
        while count and any(one[count][0] != "user" for one in spoken):
            count -= 1
        if count:
            shared.append(spoken[0][:count])
    return tuple(dict.fromkeys(shared))


def own_words(messages: Turns, examples: Sequence[Turns]) -> Turns:
    """A conversation without the application's own text."""
    spoken = _spoken(messages)
    for turns in examples:
        if len(spoken) > len(turns) and spoken[: len(turns)] == turns:
            return spoken[len(turns) :]
    return spoken


def _spoken(messages: Turns) -> Turns:
    return tuple(one for one in messages if one[0] != "system")


RUN = 4
"""How many words in a row texts share that are compared: to compare all with all takes minutes."""
NEAR = 90.0
"""How alike two texts are, out of 100 (rapidfuzz's ratio), to be nearly the same."""


class Duplicate(NamedTuple):
    """Problems of one dataset with the same text. They conflict when their answers differ."""

    ids: tuple[str, ...]
    answers: tuple[str, ...]

    @property
    def conflicting(self) -> bool:
        """Whether their ground truths are not the same."""
        return len(self.answers) > 1


class Leak(NamedTuple):
    """An evaluation problem among the training data; `likeness` is 100 for an equal one."""

    evaluation: str
    training: str
    likeness: float
    same_answer: bool = True


def plain(text: str) -> str:
    """A text without what does not make it another problem."""
    return " ".join(re.findall(r"[^\W_]+", text.casefold()))


def duplicates(problems: Sequence[Problem]) -> list[Duplicate]:
    """The problems whose text stands more than once, in the order of the dataset."""
    by_text: dict[str, list[Problem]] = defaultdict(list)
    for problem in problems:
        by_text[_key(problem)].append(problem)
    return [
        Duplicate(
            tuple(p.id for p in same),
            tuple(dict.fromkeys(" ".join(p.answer.split()) for p in same)),
        )
        for same in by_text.values()
        if len(same) > 1
    ]


def leaks(training: Sequence[Problem], evaluation: Sequence[Problem]) -> list[Leak]:
    """The evaluation problems that were trained on, each with the nearest training problem."""
    from rapidfuzz import fuzz, process

    equal: dict[str, Problem] = {}
    for problem in reversed(training):
        equal[_key(problem)] = problem
    problems = [*training, *evaluation]
    examples = shared_turns(list(dict.fromkeys(one.messages for one in problems if one.messages)))
    own = [
        "\n\n".join(text for _, text in own_words(one.messages, examples)) or one.problem
        for one in problems
    ]
    texts = [plain(text) for text in own]
    figures = [_numbers(text) for text in own]
    having: dict[int, list[int]] = defaultdict(list)
    for place in range(len(training)):
        for run in _runs(texts[place]):
            having[run].append(place)
    leaked = []
    for number, problem in enumerate(evaluation, len(training)):
        twin = equal.get(_key(problem))
        if twin is not None:
            leaked.append(Leak(problem.id, twin.id, 100.0, _same_answer(problem, twin)))
            continue
        text = texts[number]
        places = sorted({place for run in _runs(text) for place in having.get(run, ())})
        others = {n: texts[n] for n in places if figures[n] == figures[number]}
        nearest = process.extractOne(text, others, scorer=fuzz.ratio, score_cutoff=NEAR)
        if nearest is not None:
            _, likeness, place = nearest
            twin = training[place]
            same = _same_answer(problem, twin)
            leaked.append(Leak(problem.id, twin.id, min(likeness, 99.9), same))
    return leaked


def describe_duplicates(problems: Sequence[Problem], name: str) -> list[str]:
    """What a person should know about duplicates in a dataset; nothing if all is well."""
    repeated = duplicates(problems)
    conflicting = [d for d in repeated if d.conflicting]
    lines = []
    if repeated:
        count = f"{len(repeated)} problem{'s' if len(repeated) > 1 else ''}"
        lines.append(f"{name}: {count} in it more than once ({_listed(d.ids for d in repeated)})")
    if conflicting:
        lines.append(
            f"{name}: {len(conflicting)} of them with answers that differ, as "
            f"{' and '.join(conflicting[0].ids[:2])}: {' and '.join(conflicting[0].answers[:2])}"
        )
    return lines


def describe_leaks(
    training: Sequence[Problem],
    evaluation: Sequence[Problem],
    name: str,
    what: str = "memorisation",
) -> list[str]:
    """What to know before trusting a figure, if anything; `name` is the training data's, and `what`
    scores on problems of it reflect."""
    leaked = leaks(training, evaluation)
    if not leaked:
        return []
    nearly = sum(leak.likeness < 100 for leak in leaked)
    other = sum(not leak.same_answer for leak in leaked)
    close = f", {nearly} of them nearly" if nearly else ""
    close += f", {other} with another answer" if other else ""
    may = " may" if other == len(leaked) else ""
    return [
        f"{len(leaked)} of {len(evaluation)} evaluation problems are in {name} too{close} "
        f"({_listed(leak[:2] for leak in leaked)}): their scores{may} reflect {what}"
    ]


def _listed(groups: Iterable[tuple[str, ...]], most: int = 3) -> str:
    shown = [" = ".join(group[:3]) for group in groups]
    return ", ".join(shown[:most]) + (", …" if len(shown) > most else "")


def _key(problem: Problem) -> str:
    """What equal problems share: signs count, as a question of mathematics may be one."""
    return re.sub(r"[\s.,;:!?'\"$]+", "", problem.problem.casefold()) + str(problem.messages)


def _same_answer(one: Problem, other: Problem) -> bool:
    return one.answer.casefold().split() == other.answer.casefold().split()


def _runs(text: str) -> set[int]:
    """The runs of words in a text, as hashes; a short text is one run."""
    words = text.split()
    return {hash(tuple(words[i : i + RUN])) for i in range(max(1, len(words) - RUN + 1))}


def _numbers(text: str) -> tuple[str, ...]:
    return tuple(sorted(re.findall(r"\d+", text)))
