"""`tfgrpo traffic` and `feedback`: what a library does in production."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import click

from tfgrpo.cli import printing
from tfgrpo.cli.flags import COUNT, JSON, flag, many, option
from tfgrpo.cli.start_context import FINITE, App, Given, pass_given, refuse_others
from tfgrpo.store.activity.traffic import (
    CallFilter,
    CallRecord,
    ListedCall,
    MeasuredCall,
    Scale,
    Traffic,
    checked_scale,
    keyed,
    recent_call,
    traffic_path,
)
from tfgrpo.store.activity.traffic_figures import Cost, LiveFigures, by_dimension, by_experience
from tfgrpo.store.errors import TfgrpoError
from tfgrpo.store.history.log_filter import parse_time
from tfgrpo.store.opening import open_traffic
from tfgrpo.wording import money


@click.command()
@click.argument("call", required=False)
@option("--since", "Only calls since then: 2h, 3d, 2026-11-20.", default="7d")
@option("--version", "Only calls under this version, by name or digest.")
@option("--library", "Only calls under this library of the proxy.")
@option("--model", "Only calls of this model.")
@option("--subject", "Only calls for this subject (a conversation or user).")
@option("--arm", "Only calls in this arm of an experiment: NAME/candidate.")
@option("--key", "Only calls with this virtual key, by its name.")
@many("--tag NAME=VALUE", "Only calls with this tag; repeatable.", "tags")
@option("--trace", "Only calls of this trace, by its id.")
@flag("--failed", "Only calls that failed.")
@flag("--feedback", "Only calls with feedback.", name="with_feedback")
@option("--below", "Only calls whose mean score is below this.", type=FINITE)
@option("-n, --number", "Most.  [50; 5 experiences]", type=COUNT)
@flag("--figures", "Show figures of the calls instead of the list.")
@option(
    "--by DIMENSION", "Figures by version, arm, day, user, key, model, provider, or a tag's name."
)
@JSON
@pass_given
def traffic(app: App, given: Given) -> None:
    """List the calls that went through the proxy, or show one with its feedback.

    With --figures or --by: calls, errors, tokens, latency, cost and feedback, by version, arm and
    experience, or by one dimension.

    The words of a call are there if the proxy was told to keep them (--record content).

    \b
    Examples:
      tfgrpo traffic --since 1d --failed
      tfgrpo traffic --below 0.5 --json
      tfgrpo traffic --figures
      tfgrpo traffic --by day --tag team=blue
    """
    from tfgrpo.costs.accounts import Dollars

    start, number = parse_time(given.since, now=time.time_ns() // 1000), given.number
    given.tags = tuple(map(parse_tag, given.tags))
    in_figures = given.figures or given.by
    if in_figures:
        refuse_others(("figures", "by", "since", "tags", "number"), "has no place with --figures")
    elif given.call is not None:
        refuse_others(("call",), "filters the list: it cannot be given with CALL")
    cost = Dollars(app.project().table("prices")).of
    with opened(app) as log:
        if in_figures:
            calls = log.measured(start, given.tags)
            if given.by:
                groups = by_dimension(calls, given.by, cost)
                lines = _table(given.by, groups, {})
                printing.answer(app, [one._asdict() for one in groups], lines, given.as_json)
            else:
                show(app, calls, log.lost(), cost, number or 5, given.as_json)
        elif given.call is not None:
            call = recent_call(log, given.call)
            printing.answer(
                app, lambda: _whole(log, call, cost), _shown(log, call, cost), given.as_json
            )
        else:
            who = given.subject
            if who is not None:
                who = keyed(log.secret(), who.encode(errors="surrogatepass")).hex()
            names = ("version", "library", "model", "arm", "key", "tags", "trace", "failed")
            more = given.of(*names, "with_feedback", "below")
            calls = log.calls(CallFilter(since=start, subject=who, **more), number or 50)
            objects = [
                _call(one.call, cost) | {"feedback": one.feedback, "score": one.score}
                for one in calls
            ]
            printing.answer(app, objects, _listed(calls, cost), given.as_json)


@click.command()
@click.argument("call", required=False)
@option("--score", "true, false or a number.")
@option("--correct", "The answer that would have been right.")
@option("--label", "A word for what is wrong or right.")
@option("--comment", "Anything else.")
@option(
    "--scale LABEL=LOW..HIGH",
    "Set the scale of a label's scores instead; the label `score` is for those without one.",
)
@pass_given
def feedback(app: App, given: Given) -> None:
    """Record feedback on a call: any number of times, also late.

    An application sends the same to the proxy as POST /feedback. A score is from 0 to 1 unless
    --scale has set another scale for its label; one that is not on its scale is refused.

    \b
    Examples:
      tfgrpo feedback call-3f9c --score false --correct "40 euros"
      tfgrpo feedback --scale stars=1..5
    """
    from tfgrpo.proxy.proxy_file import withheld_beside
    from tfgrpo.proxy.telemetry import take_feedback

    texts = given.of("correct", "label", "comment").items()
    words: dict[str, object] = {name: value for name, value in texts if value is not None}
    if given.score is not None:
        words["score"] = _score(given.score)
    if given.scale is not None:
        if given.call is not None or words:
            raise click.UsageError("--scale sets a scale: leave out CALL and feedback")
        _set_scale(app, given.scale)
        return
    if given.call is None:
        raise click.UsageError("name the CALL that the feedback is on")
    with opened(app) as log:
        about = recent_call(log, given.call)
        take_feedback(log, about, words, app.author(), withheld_beside(app.root))
    printing.echo(f"recorded feedback on {about.id}")


def _set_scale(app: App, setting: str) -> None:
    label, ends = scale_of(setting)
    scale = Scale(*ends)
    with opened(app) as log:
        log.set_scale("" if label == "score" else label, checked_scale(label, scale))
    printing.echo(f"scores of {label} are from {scale}")


def scale_of(given: str) -> tuple[str, tuple[float, float]]:
    """A scale as it is typed: SCORE=LOW..HIGH. Raises UsageError."""
    name, _, ends = given.rpartition("=")
    try:
        low, high = map(float, ends.split("..") if name else ())
    except ValueError:
        raise click.UsageError(f"{given!r} is no scale: write score=1..5") from None
    return name, (low, high)


def opened(app: App) -> Any:
    """Opens the record of traffic beside the store, for a `with` block. Raises StoreError."""
    return closing(open_traffic(traffic_path(app.file)))


def parse_tag(given: str) -> tuple[str, str]:
    """A tag as it is typed: NAME=VALUE. Raises UsageError."""
    name, equals, value = given.partition("=")
    if not (name and equals):
        raise click.UsageError(f"{given!r} is no tag: write team=blue")
    return name, value


def _score(value: str) -> bool | float:
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    try:
        return float(value)
    except ValueError:
        raise click.UsageError(f"--score {value!r} is neither true, false nor a number") from None


def _call(call: CallRecord, cost: Cost) -> dict[str, Any]:
    fields = call._asdict()
    del fields["caller"]
    for name in ("experiences", "tags"):
        fields[name] = fields[name] and json.loads(fields[name])
    return fields | {"time": printing.iso(call.time), "dollars": cost(call)}


def _whole(log: Traffic, call: CallRecord, cost: Cost) -> dict[str, Any]:
    content = log.content(call.id)
    return _call(call, cost) | {
        "content": None if content is None else content._asdict(),
        "feedback": [
            one._asdict() | {"time": printing.iso(one.time)} for one in log.feedback(call.id)
        ],
    }


def _listed(calls: list[ListedCall], cost: Cost) -> Iterator[str]:
    rows = []
    for one in calls:
        call, dollars = one.call, cost(one.call)
        library = f"{call.library or ''} {call.version or ''}".strip()
        price = "" if dollars is None else money(dollars)
        score = "" if one.score is None else f"{one.score:.2f}"
        begin = (call.id[:17], printing.age(call.time), library, call.arm or "", call.model or "")
        end = (_tokens(call), price, f"{call.latency / 1000:.0f} ms", score)
        rows.append((*begin, str(call.status), *end))
    header = ("call", "age", "library", "arm", "model", "status", "tokens", "cost", "took", "score")
    yield from printing.table(rows, header=header)


def _tokens(call: CallRecord) -> str:
    if call.prompt_tokens is None and call.completion_tokens is None:
        return ""  # nobody knows, which is not none
    return f"{token_count(call.prompt_tokens)}+{token_count(call.completion_tokens)}"


def _shown(log: Traffic, call: CallRecord, cost: Cost) -> Iterator[str]:
    yield f"{printing.style(call.id, fg='yellow')}  {printing.when(call.time)}  {call.route}"
    tags, tried = json.loads(call.tags or "{}"), ""
    tokens = f"tokens {_tokens(call)}" if _tokens(call) else "its tokens are not known"
    if (call.tries or 1) > 1:
        tried = f", asked {call.tries} times"
    took = f"{call.latency / 1000:.1f} ms, of these {call.added / 1000:.2f} in the proxy"
    known = {
        "library": f"{call.library or 'none'} {call.version or ''} {call.digest or ''}",
        "answer": f"{call.status}, {took}; {tokens}",
        "provider": call.provider and f"{call.provider}{tried}; cost {money(cost(call))}",
        "key": call.key,
        "tags": ", ".join(f"{name}={value}" for name, value in tags.items()),
        "trace": call.trace,
        "arm": call.arm,
        "error": call.error,
    }
    yield from (f"{name:8} {value}" for name, value in known.items() if value)
    if content := log.content(call.id):
        yield from (printing.style("request", bold=True), content.request)
        yield from (printing.style("answer", bold=True), content.answer)
    for one in log.feedback(call.id):
        parts = [] if one.score is None else [f"score {one.score:g}"]
        words = {name: getattr(one, name) for name in ("label", "comment", "correct")}
        parts += [f"{name} {value}" for name, value in words.items() if value]
        yield f"feedback {printing.age(one.time)} by {one.author}: {'; '.join(parts)}"


def show(
    app: App, calls: list[MeasuredCall], lost: int, cost: Cost, number: int, as_json: bool
) -> None:
    """Prints calls in figures: by version, by arm, and by `number` experiences of their prompts."""
    store = app.store

    def library_of(digest: str) -> list[str]:
        try:
            return [experience.id for experience in store.library(digest)]
        except TfgrpoError:  # of another store, or redacted away
            return []

    parts = {
        "versions": by_dimension(calls, "version", cost),
        "arms": sorted(by_dimension(calls, "arm", cost)),
        "experiences": by_experience(calls, library_of),
    }
    listed = {name: [one._asdict() for one in part] for name, part in parts.items()}
    texts = {e.id: e.text[:40] for e in store.library("HEAD")}
    lines = [
        *_table("version", parts["versions"], {}),
        *(_table("arm", parts["arms"], {}) if parts["arms"] else ()),
        *_table("experience", parts["experiences"][:number], texts),
        *([f"{printing.plural(lost, 'call')} lost with workers that were killed"] if lost else ()),
    ]
    printing.answer(app, {**listed, "lost": lost}, lines, as_json)


def _table(title: str, figures: list[LiveFigures], names: dict[str, str]) -> Iterator[str]:
    rows = []
    for one in figures:
        times = (f"{one.p50 / 1000:.0f}", f"{one.p95 / 1000:.0f}", f"{one.added / 1000:.2f}")
        tokens = map(token_count, (one.prompt_tokens, one.completion_tokens))
        price = "" if one.dollars is None else _sum(one)
        score = "" if one.score is None else f"{one.score:.3f} ({one.scored})"
        counts = (str(one.calls), str(one.errors))
        rows.append((names.get(one.name, one.name), *counts, *tokens, *times, price, score))
    head = ("calls", "errors", "tokens in", "out", "p50 ms", "p95", "added", "cost", "score")
    yield from printing.table(rows, header=(title, *head))


def _sum(one: LiveFigures) -> str:
    """What calls cost together: more than the sum that is known, where some prices are not."""
    known = one.calls - one.unpriced
    if not known:
        return "unknown"
    return money(one.dollars) + (f" + {one.unpriced} unknown" if one.unpriced else "")


def token_count(tokens: int | None) -> str:
    """How many tokens, or that nobody knows."""
    return "?" if tokens is None else str(tokens)
