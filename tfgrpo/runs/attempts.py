"""Every attempt of a run or an evaluation, for all who show them: the list from the record,
texts from the journal and the data when they are asked for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from tfgrpo.data import problems
from tfgrpo.data.problems import Problem
from tfgrpo.evaluation.eval_setup import eval_settings
from tfgrpo.result_tables import View, Viewed
from tfgrpo.rollout.attempt import CONFIRMING, EXACT, MEASURING, own_reward, pivot
from tfgrpo.runs.run_problems import reload_part
from tfgrpo.settings import TrainSettings
from tfgrpo.store.activity.runs import Call, Evaluation, Run
from tfgrpo.store.damaged_values import listed, objects
from tfgrpo.store.errors import TfgrpoError, UnknownRevision
from tfgrpo.store.records import Json
from tfgrpo.store.store import Store
from tfgrpo.wording import plural

if TYPE_CHECKING:
    import pandas

    from tfgrpo.project import Project

SHORT = 60
WINNER, LOSER = "winner", "loser"


class RecordedAttempt(NamedTuple):
    """One attempt. `step` counts from 1 (None: an evaluation), `reward` is None if it was not
    judged, `side` empty where all of its group are alike, `calls` are the journal's keys in hex."""

    step: int | None
    problem: str
    sample: int
    version: int
    calls: tuple[str, ...]
    outcome: str
    reward: float | None
    verdict: Json
    side: str = ""

    @property
    def is_right(self) -> bool:
        """Whether its own text earned the full reward."""
        return self.own_reward is not None and self.own_reward >= 1

    @property
    def own_reward(self) -> float | None:
        """What its own text earned, which an exact reward is the mean of."""
        return own_reward(self.reward, self.verdict.get("details", {}))

    @property
    def answer(self) -> str:
        """What was extracted as its answer; empty where nothing was."""
        return str(self.verdict.get("answer") or "")

    @property
    def reason(self) -> str:
        """Why it got its reward, where that is on record."""
        return str(self.verdict.get("reason") or "")

    def object(self) -> dict[str, Any]:
        """Which attempt it is and how it ended, for programs."""
        return {
            "step": self.step,
            "problem": self.problem,
            "sample": self.sample,
            "version": f"v{self.version}",
            "outcome": self.outcome,
            "reward": self.reward,
        }


class AttemptText(NamedTuple):
    """What an attempt was asked and said; ground truths are None without the data."""

    question: str
    ground_truths: tuple[str, ...] | None
    prompt: tuple[tuple[str, str], ...]
    messages: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class AttemptList(Viewed):
    """Attempts by step, problem and sample. `known` are the problems that the data has, by id;
    `missing` says why there are none, where there are none."""

    title: str
    store: Store
    attempts: tuple[RecordedAttempt, ...]
    known: Mapping[str, Problem] = field(default_factory=dict)
    missing: str = ""

    def of(
        self,
        *,
        step: int | None = None,
        problem: str | None = None,
        sample: int | None = None,
        failed: bool = False,
        outcome: str | None = None,
    ) -> AttemptList:
        """Those of a step (from 1), a problem, a sample, an outcome, or `failed` to be all
        right."""
        chosen = tuple(
            one
            for one in self.attempts
            if step in (None, one.step)
            and problem in (None, one.problem)
            and sample in (None, one.sample)
            and outcome in (None, one.outcome)
            and not (failed and one.is_right)
        )
        return AttemptList(self.title, self.store, chosen, self.known, self.missing)

    def text(self, attempt: RecordedAttempt) -> AttemptText:
        """What an attempt was asked and said. Reads the journal."""
        prompt = _prompt(self.store, attempt)
        problem = self.known.get(attempt.problem)
        question = next((text for role, text in reversed(prompt) if role == "user"), "")
        return AttemptText(
            problem.problem if problem else question,
            problem.ground_truths if problem else None,
            prompt,
            tuple(_messages(self.store, attempt)),
        )

    def groups(self) -> Iterator[tuple[RecordedAttempt, ...]]:
        """Yields the attempts at each problem in each step, winners first."""
        return _grouped(one for one in self.attempts if one.sample < CONFIRMING)

    def races(self) -> Iterator[tuple[RecordedAttempt, ...]]:
        """Yields those that only confirm a lesson, and are of no group, in the same way."""
        return _grouped(one for one in self.attempts if CONFIRMING <= one.sample < MEASURING)

    def measuring(self) -> Iterator[tuple[RecordedAttempt, ...]]:
        """Yields those that only measure what the run gains, in the same way."""
        return _grouped(one for one in self.attempts if one.sample >= MEASURING)

    def of_no_group(self) -> Iterator[str]:
        """Yields in words how many attempts are of no group, and what for."""
        confirming, measuring = self.races(), self.measuring()
        purposes = {"to confirm a lesson": confirming, "to measure the run's gain": measuring}
        for purpose, groups in purposes.items():
            if count := sum(map(len, groups)):
                verb = "is" if count == 1 else "are"
                yield f"{plural(count, 'attempt')} {purpose} {verb} of no group"

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yields a flat row for each attempt, with texts: for CSV and tables."""
        for one in self.attempts:
            text = self.text(one)
            yield one.object() | {
                "side": one.side,
                "answer": one.answer,
                "ground_truth": " | ".join(text.ground_truths or ()),
                "reason": one.reason,
                "question": text.question,
                "prompt": _transcript(text.prompt),
                "response": _transcript(text.messages),
            }

    def objects(self) -> Iterator[dict[str, Any]]:
        """Yields each attempt as JSON for programs."""
        for one in self.attempts:
            text = self.text(one)
            yield one.object() | {
                "side": one.side or None,
                "verdict": {k: v for k, v in one.verdict.items() if k != "messages"},
                "question": text.question,
                "ground_truths": text.ground_truths,
                "prompt": [{"role": role, "content": content} for role, content in text.prompt],
                "messages": [{"role": role, "content": words} for role, words in text.messages],
            }

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a table. Raises ImportError where pandas is not installed."""
        import pandas

        return pandas.DataFrame(list(self.rows()))

    def by_problem(self) -> View:
        """A row for each problem: how many attempts were right, and the answers given."""
        rows = []
        for group in self.groups():
            rewards = [one.reward for one in group if one.reward is not None]
            problem = self.known.get(group[0].problem)
            answers = dict.fromkeys(one.answer for one in group if one.answer)
            cells = [
                group[0].problem,
                _right_words(group),
                f"{fmean(rewards):.3f}" if rewards else "–",
                " | ".join(problem.ground_truths)[:SHORT] if problem else "",
                " | ".join(answers)[:SHORT],
            ]
            rows.append(cells if group[0].step is None else [str(group[0].step), *cells])
        header = ["problem", "right", "reward", "ground truth", "answers"]
        notes = (*self._notes(), *self.of_no_group())
        steps = bool(self.attempts) and self.attempts[0].step is not None
        return View(self.title, ["step", *header] if steps else header, rows, notes)

    def view(self) -> View:
        why = all(one.reason and not one.is_right for one in self.attempts)
        rows = [
            (
                "–" if one.step is None else str(one.step),
                one.problem,
                str(one.sample),
                "–" if one.reward is None else f"{one.reward:.2f}",
                one.outcome,
                one.answer,
                *((one.reason,) if why else ()),
            )
            for one in self.attempts
        ]
        header = ["step", "problem", "sample", "reward", "outcome", "answer"]
        header += ["reason"] if why else []
        return View(self.title, header, rows, self._notes())

    def _notes(self) -> tuple[str, ...]:
        return (f"ground truths are not shown: {self.missing}",) if self.missing else ()


def _right_words(group: Sequence[RecordedAttempt]) -> str:
    if all(one.own_reward is None and one.reward is not None for one in group):
        return "–"
    return f"{sum(one.is_right for one in group)} of {len(group)}"


def _grouped(attempts: Iterable[RecordedAttempt]) -> Iterator[tuple[RecordedAttempt, ...]]:
    groups: dict[tuple[int | None, str], list[RecordedAttempt]] = {}
    for one in attempts:
        groups.setdefault((one.step, one.problem), []).append(one)
    order = {WINNER: 0, "": 1, LOSER: 2}
    for group in groups.values():
        yield tuple(sorted(group, key=lambda one: (order[one.side], one.sample)))


def run_attempts(
    store: Store, run: Run, project: Project | None = None, *, step: int | None = None
) -> AttemptList:
    """A run's attempts (of a step, from 1), with its problems if `project` has them unchanged."""
    rows = store.runs.rollouts(run, None if step is None else step - 1)
    attempts = [RecordedAttempt(row.step + 1, *row[2:9]) for row in rows]
    known, missing = known_run_problems(project, run) if project else ({}, "")
    return AttemptList(f"run {run.name}", store, _sided(attempts), known, missing)


def evaluation_attempts(
    store: Store, evaluation: Evaluation, project: Project | None = None
) -> AttemptList:
    """An evaluation's attempts, with its problems if `project` has them unchanged."""
    attempts = []
    details: dict[str, Any] = {}
    if evaluation.config.get("answers") == "exact":  # scores have the expectation alone
        details = {"details": {EXACT: {}}}
    for score in store.runs.scores(evaluation):
        of = (None, score.problem, score.sample, evaluation.version)
        calls = () if score.call is None else (score.call.hex(),)
        outcome = "unverifiable" if score.reward is None else "answered"
        verdict = {"answer": score.answer, **details}
        attempts.append(RecordedAttempt(*of, calls, outcome, score.reward, verdict))
    known, missing = known_evaluation_problems(store, project, evaluation) if project else ({}, "")
    title = f"v{evaluation.version} on {evaluation.dataset}"
    return AttemptList(title, store, _sided(attempts), known, missing)


def recorded_evaluation(store: Store, version: int, dataset: str | None = None) -> Evaluation:
    """The newest evaluation of a version, on `dataset` if named. Raises UnknownRevision."""
    there = store.runs.evaluations(version)
    fitting = [one for one in there if dataset in (None, one.dataset)]
    if not fitting:
        names = ", ".join(dict.fromkeys(one.dataset for one in there))
        raise UnknownRevision(
            f"v{version} was not evaluated" + (f" on {dataset}" if dataset else ""),
            hint=f"it was on {names}" if there else "`tfgrpo eval DATA` evaluates it",
        )
    return fitting[-1]


def _sided(attempts: Sequence[RecordedAttempt]) -> tuple[RecordedAttempt, ...]:
    """Attempts, each with its side of its group; what only confirms a lesson has none."""
    rewards: dict[tuple[int | None, str], list[float]] = {}
    for one in attempts:
        if (own := one.own_reward) is not None and one.sample < CONFIRMING:
            rewards.setdefault((one.step, one.problem), []).append(own)
    middles = {group: pivot(there) for group, there in rewards.items() if len(set(there)) > 1}

    def side(one: RecordedAttempt) -> str:
        middle, own = middles.get((one.step, one.problem)), one.own_reward
        if own is None or middle in (None, own) or one.sample >= CONFIRMING:
            return ""
        assert middle is not None
        return WINNER if own > middle else LOSER

    return tuple(one._replace(side=side(one)) for one in attempts)


def known_run_problems(project: Project, run: Run) -> tuple[dict[str, Problem], str]:
    """The problems of a run by id, or none and why the data does not have them."""
    try:
        settings = TrainSettings(**run.config)
        loaded = reload_part(project, run, settings, project.problem_domain(settings))
    except (TfgrpoError, ValueError) as error:
        return {}, str(error)
    return {problem.id: problem for problem in loaded}, ""


def known_evaluation_problems(
    store: Store, project: Project, evaluation: Evaluation
) -> tuple[dict[str, Problem], str]:
    """The problems of an evaluation by id, or none and why the data does not have them."""
    config = evaluation.config
    try:
        version = store.version(evaluation.version)
        settings, _ = eval_settings(store, project, [version], {"data": evaluation.dataset})
        path = project.open_data(evaluation.dataset)
        loaded = project.problem_domain(settings).problems(path, settings.fields)
    except (TfgrpoError, ValueError) as error:
        return {}, str(error)
    loaded = problems.without(loaded, config.get("skipped", ()))[: config["problems"]]
    if problems.digest(loaded) != config["dataset"]:
        return {}, f"{path} has changed since, or its fields were named otherwise"
    return {problem.id: problem for problem in loaded}, ""


def _prompt(store: Store, attempt: RecordedAttempt) -> tuple[tuple[str, str], ...]:
    call = store.runs.call(bytes.fromhex(attempt.calls[0])) if attempt.calls else None
    return () if call is None else sent_messages(call, turns=False)


def sent_messages(call: Call, *, turns: bool = True) -> tuple[tuple[str, str], ...]:
    """The messages of a call's request, as (role, text), with the turns after them, which are
    objects there; none of a request that cannot be read."""
    try:
        sent = listed(json.loads(call.request))
    except ValueError:
        return ()
    pairs = [tuple(one) for one in sent if isinstance(one, list) and len(one) == 2]
    if turns:
        pairs += [(one.get("role"), one.get("content")) for one in objects(sent)]
    return tuple((str(role), _content(content)) for role, content in pairs)


def _content(value: object) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _messages(store: Store, attempt: RecordedAttempt) -> Iterator[tuple[str, str]]:
    verdict = attempt.verdict
    for message in verdict.get("messages", ()):
        content = str(message.get("content") or "")
        for call in message.get("tool_calls", ()):
            function = call["function"]
            content += f" {function['name']}({function['arguments']})"
        yield message["role"] + (" (cached)" if message.get("cached") else ""), content.strip()
    if "messages" not in verdict and "response" in verdict:
        yield "assistant", str(verdict["response"])
    elif "messages" not in verdict and attempt.calls:
        recorded = store.runs.call(bytes.fromhex(attempt.calls[-1]))
        if recorded is not None:
            yield "assistant", str(recorded.answer["content"])


def _transcript(messages: Sequence[tuple[str, str]]) -> str:
    if len(messages) == 1:
        return messages[0][1]
    return "\n\n".join(f"{role}: {text}" for role, text in messages)
