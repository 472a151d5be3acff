"""A trigger on the command line: its arguments, and the trigger that they describe."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click
import msgspec

from evenbeat.cli.failures import ExpressionRefused
from evenbeat.cli.local import now
from evenbeat.core.instants import Instant, read_instant
from evenbeat.errors import InvalidValue
from evenbeat.triggers import At, Cron, Every, parse_trigger
from evenbeat.triggers.zones import Zone, read_zone

_Function = TypeVar("_Function", bound=Callable[..., Any])

EXPRESSIONS = """\b
EXPR is the text of a trigger:
  0 9 * * mon-fri         cron; six fields start with seconds
  @daily                  a short name; also @hourly @weekly @monthly @yearly
  every 10m               a period of real time
  at 2026-03-01T09:00Z    once
Options may follow in the text: tz= gap= repeat= start= until=
Quote it, so that the shell leaves the * alone.
"""


class TriggerInput(msgspec.Struct, frozen=True, kw_only=True):
    """A trigger as a schedule that was created at ``since`` would have it, and how to show it."""

    trigger: Cron | Every | At
    written: Cron | Every | At
    """The trigger as the user wrote it: ``H`` and the start of a period are still open."""
    zone: Zone
    """The zone to show dates in."""
    since: Instant
    notes: tuple[str, ...]
    """Notes below the answer."""


def trigger_arguments(function: _Function) -> _Function:
    """Add EXPR, --tz, --from and --name, as ``read_trigger_input`` takes them."""
    for decorate in (
        click.option("--name", metavar="NAME", help="The schedule's name, which decides the value of H."),
        click.option(
            "--from",
            "since",
            metavar="WHEN",
            show_default="now",
            help="Show ticks after this: 2026-03-01T09:00, in the trigger's zone if it has no offset.",
        ),
        click.option(
            "--tz",
            metavar="ZONE",
            show_default="UTC",
            help="Zone of a cron, such as Europe/Berlin; for other triggers, the zone of the dates shown.",
        ),
        click.argument("expr", nargs=-1, required=True, metavar="EXPR"),
    ):
        function = decorate(function)
    return function


def read_trigger_input(
    expr: tuple[str, ...], *, tz: str | None, since: str | None, name: str | None
) -> TriggerInput:
    """Return the trigger that the arguments describe; ``ExpressionRefused`` for an expression that is not
    valid."""
    text = " ".join(" ".join(expr).split())
    asked = None if tz is None else read_zone(tz)
    own = next((word.partition("=")[2] for word in text.split() if word.startswith("tz=")), None)
    written = _parse(text, expr, asked if own is None else None)
    if isinstance(written, Cron):
        if asked is not None and written.zone is not asked:
            raise InvalidValue(
                f"--tz {asked.key} contradicts tz={own} in the expression",
                field="tz",
                value=tz,
                hint="give the zone once",
            )
        zone = written.zone
    else:
        zone = asked or read_zone(own or "UTC")
    start = now() if since is None else read_instant(since, "--from", zone.info)
    trigger = _bind(written, name, start)
    return TriggerInput(
        trigger=trigger, written=written, zone=zone, since=start, notes=tuple(_notes(written, name))
    )


def _parse(text: str, expr: tuple[str, ...], zone: Zone | None) -> Cron | Every | At:
    rule = [word.lower() for word in text.split() if "=" not in word]
    complete = text
    if zone is not None and rule[:1] not in (["every"], ["@every"]):
        # As part of the text, the zone also applies to a start or a date without an offset.
        complete = f"{text} tz={zone.key}"
    try:
        return parse_trigger(complete)
    except InvalidValue as problem:
        raise ExpressionRefused(text, problem, _hint(expr)) from problem


def _hint(expr: tuple[str, ...]) -> str | None:
    """Return a hint about the shell; None keeps the hint of the library."""
    if len(expr) > 1 and any(not word.isdigit() and os.path.exists(word) for word in expr):
        return "the shell put file names in place of *: quote the expression, '0 9 * * *'"
    return None


def _bind(trigger: Cron | Every | At, name: str | None, since: Instant) -> Cron | Every | At:
    if isinstance(trigger, Cron) and name is None:
        return trigger  # H stays H
    return trigger.bind(name or "", since)


def _notes(trigger: Cron | Every | At, name: str | None) -> list[str]:
    if isinstance(trigger, Cron) and trigger.expression.hashed and name is None:
        return ["H depends on the schedule's name: give --name to see its real ticks"]
    if isinstance(trigger, Every) and trigger.start is None:
        return ["it has no start: the first tick is one period later, as for a new schedule"]
    return []
