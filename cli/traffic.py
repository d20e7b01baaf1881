"""`tfgrpo traffic` and `tfgrpo feedback`: what a library does in production."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import click
from click.core import ParameterSource

from tfgrpo.author import default_author
from tfgrpo.cli import options, printing, traffic_figures
from tfgrpo.cli.flags import COUNT, JSON, flag, option
from tfgrpo.cli.start_context import FINITE, App, pass_app
from tfgrpo.cli.traffic_figures import token_count
from tfgrpo.proxy.withheld_words import clean_feedback
from tfgrpo.store.activity.traffic import CallRecord, Cost, Feedback, ListedCall, Traffic
from tfgrpo.terminal_safe import shown
from tfgrpo.wording import money


@click.command()
@click.argument("call", required=False)
@option("--since", "From when on: 2h, 3d, 2026-11-20.", default="7d")
@option("--version", "Only calls under this version, by name or digest.")
@option("--library", "Only calls under this library of the proxy.")
@option("--model", "Only calls of this model.")
@option("--subject", "Only calls for this subject (a conversation or user).")
@option("--arm", "Only calls in this arm of an experiment: NAME/candidate.")
@option("--key", "Only calls with this virtual key, by its name.")
@option(
    "--tag",
    "Only calls with this tag; repeatable.",
    name="tags",
    multiple=True,
    metavar="NAME=VALUE",
)
@option("--trace", "Only calls of this trace, by its id.")
@flag("--failed", "Only calls that failed.")
@flag("--feedback", "Only calls with feedback.", name="with_feedback")
@option("--below", "Only calls whose mean score is below this.", type=FINITE)
@option("-n, --number", "Most.  [50; 5 experiences]", type=COUNT)
@flag("--figures", "Show what the calls came to instead, in figures.")
@option(
    "--by",
    "Figures by version, arm, day, user, key, model, provider, or a tag's name.",
    metavar="DIMENSION",
)
@JSON
@pass_app
def traffic(
    app: App, /, call: str | None, since: str, subject: str | None, as_json: bool, **flags: Any
) -> None:
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
    from tfgrpo.store.activity.traffic import CallFilter, keyed
    from tfgrpo.store.history.log_filter import parse_time

    by, number = flags.pop("by"), flags.pop("number")
    start = parse_time(since, now=time.time_ns() // 1000)
    flags["tags"] = tuple(map(parse_tag, flags["tags"]))
    in_figures = flags.pop("figures") or by
    if in_figures:
        _refuse_others(("figures", "by", "since", "tags", "number"), "has no place with --figures")
    elif call is not None:
        _refuse_others(("call",), "filters the list: it cannot be given with CALL")
    cost = dollars_of(app)
    with opened(app) as log:
        if in_figures:
            calls = log.measured(start, flags["tags"])
            if by:
                traffic_figures.show_by(app, calls, by, cost, as_json)
            else:
                traffic_figures.show(app, calls, log.lost(), cost, number or 5, as_json)
            return
        if call is not None:
            if as_json:
                printing.emit_json(_whole(log, call, cost))
            else:
                printing.emit(app, _shown(log, call, cost))
            return
        who = (
            None
            if subject is None
            else keyed(log.secret(), subject.encode(errors="surrogatepass")).hex()
        )
        calls = log.calls(CallFilter(since=start, subject=who, **flags), number or 50)
        printing.answer(app, [_object(one, cost) for one in calls], _listed(calls, cost), as_json)


@click.command()
@click.argument("call", required=False)
@option("--score", "true, false or a number.")
@option("--correct", "The answer that would have been right.")
@option("--label", "A word for what is wrong or right.")
@option("--comment", "Anything else.")
@option(
    "--scale",
    "Set the scale of a label's scores instead; the label `score` is for those without one.",
    metavar="LABEL=LOW..HIGH",
)
@pass_app
def feedback(
    app: App, /, call: str | None, score: str | None, scale: str | None, **given: str | None
) -> None:
    """Record what became known of a call: any number of times, late as well.

    An application sends the same to the proxy as POST /feedback. A score is from 0 to 1 unless
    --scale has set another scale for its label; one that is not on its scale is refused.

    \b
    Examples:
      tfgrpo feedback call-3f9c --score false --correct "40 euros"
      tfgrpo feedback --scale stars=1..5
    """
    from tfgrpo.proxy.telemetry import sums_of_feedback
    from tfgrpo.store.activity.traffic import checked_feedback, recent_call

    words: dict[str, object] = {key: value for key, value in given.items() if value is not None}
    if score is not None:
        words["score"] = _score(score)
    if scale is not None:
        if call is not None or words:
            raise click.UsageError("--scale stands alone: it is no feedback on a call")
        _set_scale(app, scale)
        return
    if call is None:
        raise click.UsageError("name the CALL that the feedback is on")
    with opened(app) as log:
        about = recent_call(log, call)
        id, now = about.id, time.time_ns() // 1000
        who, scales = default_author(), log.scales()
        checked = checked_feedback(id, words, author=who, time=now, scales=scales)
        checked = clean_feedback(checked)
        log.add_feedback(checked, sums_of_feedback(checked, about))
    printing.echo(f"recorded feedback on {id}")


def _set_scale(app: App, setting: str) -> None:
    from tfgrpo.store.activity.traffic import Scale, checked_scale

    label, _, ends = setting.rpartition("=")
    low, between, high = ends.partition("..")
    try:
        scale = Scale(float(low), float(high))
    except ValueError:
        between = ""
    if not between or not label:
        raise click.UsageError(f"{setting!r} is no scale: write one as stars=1..5")
    with opened(app) as log:
        log.set_scale("" if label == "score" else label, checked_scale(label, scale))
    printing.echo(f"scores of {label} are from {scale}")


def _refuse_others(names: tuple[str, ...], why: str) -> None:
    """Raises UsageError where anything is given that is none of these, nor --json."""
    context = click.get_current_context()
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
        if given and parameter.name not in (*names, "as_json"):
            raise click.UsageError(f"{parameter.opts[0]} {why}")


def opened(app: App) -> Any:
    """Opens the record of traffic beside the store, for a `with` block. Raises StoreError."""
    from tfgrpo.store.activity.traffic import traffic_path
    from tfgrpo.store.opening import open_traffic

    return closing(open_traffic(traffic_path(app.file)))


def dollars_of(app: App) -> Cost:
    """What tells the price of a call."""
    from tfgrpo.costs.accounts import Dollars

    return Dollars(options.open_project(app, None).table("prices")).of


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


def _object(one: ListedCall, cost: Cost) -> dict[str, Any]:
    return _call(one.call, cost) | {"feedback": one.feedback, "score": one.score}


def _call(call: CallRecord, cost: Cost) -> dict[str, Any]:
    fields = call._asdict()
    del fields["caller"]
    for name in ("experiences", "tags"):
        fields[name] = fields[name] and json.loads(fields[name])
    return fields | {"dollars": cost(call)}


def _whole(log: Traffic, id: str, cost: Cost) -> dict[str, Any]:
    from tfgrpo.store.activity.traffic import recent_call

    call = recent_call(log, id)
    content = log.content(call.id)
    return _call(call, cost) | {
        "content": None if content is None else content._asdict(),
        "feedback": [one._asdict() for one in log.feedback(call.id)],
    }


def _listed(calls: list[ListedCall], cost: Cost) -> Iterator[str]:
    rows = [
        (
            one.call.id[:17],
            printing.age(one.call.time),
            f"{one.call.library or ''} {one.call.version or ''}".strip(),
            shown(one.call.arm or ""),
            shown(one.call.model or ""),
            str(one.call.status),
            _tokens(one.call),
            _price(one.call, cost),
            f"{one.call.latency / 1000:.0f} ms",
            "" if one.score is None else f"{one.score:.2f}",
        )
        for one in calls
    ]
    header = ("call", "age", "library", "arm", "model", "status", "tokens", "cost", "took", "score")
    yield from printing.table(rows, header=header)


def _price(call: CallRecord, cost: Cost) -> str:
    dollars = cost(call)
    return "" if dollars is None else money(dollars)


def _tokens(call: CallRecord) -> str:
    if call.prompt_tokens is None and call.completion_tokens is None:
        return ""  # nobody knows, which is not none
    return f"{token_count(call.prompt_tokens)}+{token_count(call.completion_tokens)}"


def _counted(call: CallRecord) -> str:
    if not _tokens(call):
        return "its tokens are not known"
    return f"{token_count(call.prompt_tokens)} tokens in, {token_count(call.completion_tokens)} out"


def _shown(log: Traffic, id: str, cost: Cost) -> Iterator[str]:
    from tfgrpo.store.activity.traffic import recent_call

    call = recent_call(log, id)
    yield f"{printing.style(call.id, fg='yellow')}  {printing.when(call.time)}  {call.route}"
    yield f"library  {call.library or 'none'} {call.version or ''} {call.digest or ''}"
    yield (
        f"answer   {call.status}, {call.latency / 1000:.1f} ms, of these {call.added / 1000:.2f} "
        f"in the proxy; {_counted(call)}"
    )
    if call.provider:
        tried = f", asked {call.tries} times" if (call.tries or 1) > 1 else ""
        yield f"provider {shown(call.provider)}{tried}; cost {money(cost(call))}"
    if call.key:
        yield f"key      {shown(call.key)}"
    if call.tags:
        pairs = json.loads(call.tags).items()
        yield "tags     " + shown(", ".join(f"{name}={value}" for name, value in pairs))
    if call.trace:
        yield f"trace    {call.trace}"
    if call.arm:
        yield f"arm      {shown(call.arm)}"
    if call.error:
        yield f"error    {shown(call.error)}"
    content = log.content(call.id)
    if content is not None:
        yield printing.style("request", bold=True)
        yield shown(content.request)
        yield printing.style("answer", bold=True)
        yield shown(content.answer)
    for one in log.feedback(call.id):
        yield _feedback(one)


def _feedback(one: Feedback) -> str:
    parts = [] if one.score is None else [f"score {one.score:g}"]
    for name in ("label", "comment", "correct"):
        value = getattr(one, name)
        if value:
            parts.append(f"{name} {shown(value)}")
    return f"feedback {printing.age(one.time)} by {shown(one.author)}: {'; '.join(parts)}"
