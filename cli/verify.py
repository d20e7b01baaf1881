"""`tfgrpo verify`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from tfgrpo.cli import options, printing
from tfgrpo.cli.flags import COUNT, JSON, flag, many, option, path
from tfgrpo.cli.start_context import App, Given, pass_given

if TYPE_CHECKING:
    from tfgrpo.domains.base import Domain
    from tfgrpo.evaluation.verifier_cases import Case, JudgedCase
    from tfgrpo.session import SessionOptions

SHOWN = 28


@click.command()
@click.argument("file", type=path())
@option(
    "--domain",
    "Domain whose verifier to use: a name or package.module:object; by default that in "
    "[train] of tfgrpo.toml, else math.",
)
@many(
    "--field OURS=THEIRS",
    "Field names in FILE for gold, pred, expected, problem or id, such as gold=answer.",
    "fields",
)
@flag("--answers", "Treat every pred as a bare answer, not a full response.")
@option(
    "--pattern REGEX",
    "Extract the answer with this regex: the last match's first group, such as '^A: (.*)'.",
)
@flag("--all", "Show every verdict, not only unexpected ones.", name="everything")
@option("--timeout", "Seconds per case.", type=click.FloatRange(0, min_open=True), default=10.0)
@option("--workers", "Worker processes.", type=COUNT, default=2)
@options.CONFIG
@option("--model", "Model for domains that use a judge.")
@option("--base-url", "Base URL of that model.")
@option("--api-key-env", "Environment variable with its API key.")
@JSON
@pass_given
def verify(app: App, given: Given) -> None:
    """Run the cases in FILE through a domain's verifier, before you pay for a run.

    Each row has a ground truth (gold), a response (pred) and, optionally, the expected verdict
    (expected: true, false, a reward, or null for a case that cannot be judged). Verdicts are right,
    wrong or unverifiable; unexpected ones are listed with reasons.

    \b
    Examples:
      tfgrpo verify cases.jsonl
      tfgrpo verify cases.jsonl --answers --all --json
    """
    from tfgrpo.domains.registry import with_data
    from tfgrpo.evaluation.verifier_cases import agreement, read_cases
    from tfgrpo.session import SessionOptions

    project = app.project(given.config)
    spec = given.domain or project.table("train").get("domain")
    judging_domain = project.domain(spec)
    named = options.read_flags({"fields": given.fields}).get("fields")
    how = given.of("answers", "pattern")
    cases = read_cases(given.file, judging_domain, named, **how)
    problems = [case.problem for case in cases]
    judging_domain, _ = with_data(judging_domain, str(spec), problems)
    printing.warn(judging_domain.remarks(problems) if judging_domain.remarks else ())
    limits = SessionOptions(verifier_seconds=given.timeout, verifier_workers=given.workers)
    judged = _judged(app, cases, judging_domain, limits, given)
    right, known = agreement(judged)
    if given.as_json:
        printing.emit_json(
            {
                "file": str(given.file),
                "domain": judging_domain.name,
                "cases": len(judged),
                "verdicts": _counts(judged),
                "agreement": [right, known] if known else None,
                "judged": [_json(case) for case in judged],
            }
        )
        return
    size = printing.plural(len(judged), "case")
    printing.echo(f"{given.file}: {size}, domain {judging_domain.name}")
    printing.echo("  " + ", ".join(f"{count} {word}" for word, count in _counts(judged).items()))
    if known:
        printing.echo(f"  agreement {right} of {known} ({100 * right / known:.1f} %)")
    everything = given.everything or not known
    odd = [case for case in judged if everything or case.agrees is False]
    if odd:
        printing.echo()
        printing.emit(app, _table(odd, bool(known)))


def _judged(
    app: App,
    cases: Sequence[Case],
    domain: Domain,
    limits: SessionOptions,
    given: Given,
) -> list[JudgedCase]:
    import asyncio

    from tfgrpo.domains.verifier import Verifier
    from tfgrpo.evaluation.verifier_cases import judge_cases

    if domain.judge is None:
        workers, seconds = limits.verifier_workers, limits.verifier_seconds
        with Verifier(workers=workers, seconds=seconds) as verifier:
            return asyncio.run(judge_cases(cases, domain, verifier))
    from tfgrpo.connect import named_models
    from tfgrpo.session import open_session
    from tfgrpo.settings import Settings, build

    project, model = app.project(given.config), given.of("model", "base_url", "api_key_env")
    project.require_trust(model)
    layers = [model, project.table("model")]
    named, notes = named_models(layers, os.environ, project.listed(layers))
    for note in notes:
        printing.echo(f"note: {note}", err=True)
    settings = build(Settings, named, *layers)
    prices, endpoints = project.prices(settings.models), project.endpoints(settings.models)
    session_options = replace(limits, prices=prices, endpoints=endpoints)

    async def judge() -> list[JudgedCase]:
        async with open_session(app.store, settings.models, session_options) as session:
            calls = session.calls("reflection", f"verify/{domain.name}/{domain.identity}")
            return await judge_cases(cases, domain, session.verifier, calls)

    return asyncio.run(judge())


def _counts(judged: Sequence[JudgedCase]) -> dict[str, int]:
    words = [case.word for case in judged]
    first = [word for word in ("right", "wrong", "unverifiable") if word in words]
    return {word: words.count(word) for word in dict.fromkeys([*first, *sorted(words)])}


def _json(case: JudgedCase) -> dict[str, Any]:
    record: dict[str, Any] = {
        "id": case.case.problem.id,
        "reward": case.verdict.reward,
        "verdict": case.word,
        "answer": case.verdict.answer,
        "reason": case.verdict.reason,
    }
    if case.verdict.details:
        record["details"] = dict(case.verdict.details)
    if case.case.known:
        record |= {"expected": case.case.expected, "agrees": case.agrees}
    return record


def _table(judged: Sequence[JudgedCase], known: bool) -> Iterator[str]:
    from tfgrpo.evaluation.verifier_cases import word

    header = ["case", "verdict", *(["expected"] if known else []), "reason"]
    rows = []
    for case in judged:
        expected = [word(case.case.expected) if case.case.known else ""] if known else []
        id = case.case.problem.id
        id = id if len(id) <= SHOWN else "…" + id[1 - SHOWN :]
        rows.append([id, case.word, *expected, " ".join(case.verdict.reason.split())])
    yield from printing.table(rows, header=header)
