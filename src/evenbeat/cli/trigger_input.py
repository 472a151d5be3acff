"""A trigger on the command line: its arguments, and the trigger that they describe."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import click

from evenbeat.cli.failures import ExpressionRefused, Failed
from evenbeat.cli.local import now
from evenbeat.cli.option_flags import added
from evenbeat.cli.store_input import opened
from evenbeat.core.forecasts import TriggerExplanation
from evenbeat.errors import InvalidTrigger
from evenbeat.node.calendar_copies import resolved
from evenbeat.observe.trigger_explanations import explain_trigger, read_written
from evenbeat.rules.templates import BUILT_IN, template_word, trigger_of_template
from evenbeat.triggers import At, Calendared, Cron, Every, OnSuccess

EXPRESSIONS = """\b
EXPR is the text of a trigger:
  0 9 * * mon-fri         cron; six fields start with seconds
  @daily                  a short name; also @hourly @weekly @monthly @yearly
  @workdays               the trigger of a template
  every 10m               a period of real time
  at 2026-03-01T09:00Z    once
  on success of load      after each success of another schedule
Options may follow in the text: tz= gap= repeat= days= start= until=,
and calendars: skip= only= move=
Quote it, so that the shell leaves the * alone.
"""


trigger_arguments = added(
    click.argument("expr", nargs=-1, required=True, metavar="EXPR"),
    click.option(
        "--tz",
        metavar="ZONE",
        show_default="UTC",
        help="Zone of a cron, such as Europe/Berlin; for other triggers, the zone of the dates shown.",
    ),
    click.option(
        "--from",
        "since",
        metavar="WHEN",
        show_default="now",
        help="Show ticks after this: 2026-03-01T09:00, in the trigger's zone if it has no offset.",
    ),
    click.option("--name", metavar="NAME", help="The schedule's name, which decides the value of H."),
)
"""Adds EXPR, --tz, --from and --name, as ``explain_input`` takes them."""


def read_trigger_input(
    expr: tuple[str, ...], *, tz: str | None, name: str | None
) -> Cron | Every | At | Calendared | OnSuccess | str:
    """Return the trigger that the arguments describe, as it was written; ``ExpressionRefused`` for an
    expression that is not valid. ``@`` and a name that may be that of a template stay a text."""
    with expression_refusals(expr) as text:
        if template_word(text) is not None:
            _refuse_zone(tz)
            return text
        return read_written(text, tz=tz, since=None, name=name, now=now()).written


def explain_input(
    expr: tuple[str, ...],
    count: int,
    *,
    tz: str | None,
    since: str | None,
    name: str | None,
    store: str | None,
    tenant: str | None,
) -> TriggerExplanation:
    """Return the explanation of the trigger that the arguments describe, with ``count`` ticks;
    ``ExpressionRefused`` for an expression that is not valid.

    The store is opened only if the trigger names a template or calendars that are not built in.
    """

    def resolve(trigger: Calendared) -> Calendared:
        if trigger.copies is not None:
            return trigger
        with opened(store, tenant) as app:
            return resolved(app.store, app.tenant, trigger)

    with expression_refusals(expr) as text:
        if (word := template_word(text)) is not None:
            _refuse_zone(tz)
            text = _trigger_of(word, store, tenant)
        return explain_trigger(text, count, now=now(), tz=tz, since=since, name=name, resolve=resolve)


def _trigger_of(template: str, store: str | None, tenant: str | None) -> str:
    """Return the trigger of a template. Without a database only built-in ones are known: the text of another
    one is refused as a macro."""
    if template in BUILT_IN:
        return trigger_of_template(template, BUILT_IN[template])
    try:
        with opened(store, tenant) as app:
            return str(app.explain(f"@{template}", 1).written)
    except Failed:
        return f"@{template}"


def _refuse_zone(tz: str | None) -> None:
    if tz is not None:
        raise click.UsageError("--tz goes with a trigger; a template has its own zone")


@contextmanager
def expression_refusals(expr: tuple[str, ...]) -> Iterator[str]:
    """Yield the expression as one text, and turn its refusal into one for the command line."""
    text = " ".join(" ".join(expr).split())
    try:
        yield text
    except InvalidTrigger as problem:
        raise ExpressionRefused(text, problem, _hint(expr)) from problem


def _hint(expr: tuple[str, ...]) -> str | None:
    """Return a hint about the shell; None keeps the hint of the library."""
    if len(expr) > 1 and any(not word.isdigit() and os.path.exists(word) for word in expr):
        return "the shell put file names in place of *: quote the expression, '0 9 * * *'"
    return None
