"""``evenbeat explain``: a trigger in words, and the effect of clock changes on it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from evenbeat.cli.layout import headed, labelled, listed
from evenbeat.cli.local import local_zone
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.store_input import store_options
from evenbeat.cli.ticks import explanation_document, shown_ticks
from evenbeat.cli.trigger_input import EXPRESSIONS, explain_input, trigger_arguments
from evenbeat.core.forecasts import TriggerExplanation
from evenbeat.core.instants import from_ms, to_ms
from evenbeat.core.json_form import json_form
from evenbeat.observe.phrases import date_time, span, timespec, utc_offset
from evenbeat.triggers.zones import read_zone

if TYPE_CHECKING:
    from rich.console import RenderableType

_TICKS = 3


@click.command("explain", epilog=EXPRESSIONS)
@trigger_arguments
@store_options
@json_option
def command(
    expr: tuple[str, ...],
    tz: str | None,
    since: str | None,
    name: str | None,
    store: str | None,
    tenant: str | None,
    as_json: bool,
) -> None:
    """Explain a trigger in words, with its next ticks.

    Shows the next clock changes in its zone and their effect on it, too.
    """
    found = explain_input(expr, _TICKS, tz=tz, since=since, name=name, store=store, tenant=tenant)

    def people() -> Iterable[RenderableType]:
        yield from headed(found.words)
        yield ""
        yield listed(
            [
                ("trigger", found.written),
                *([("becomes", found.trigger)] if found.trigger != found.written else []),
                ("zone", _zone_words(found)),
                *labelled("clock", _change_words(found)),
                *labelled("next", _tick_words(found)),
                *labelled("note", found.notes),
            ]
        )

    changes = [
        {
            "at": json_form(change.at),
            "clock_from": change.clock_from,
            "clock_to": change.clock_to,
            "effect": change.effect,
        }
        for change in found.clock_changes
    ]
    document = {**explanation_document(found, local_zone()), "clock_changes": changes}
    answer(document, people, as_json=as_json)


def _zone_words(found: TriggerExplanation) -> str:
    if found.zone == "UTC":
        return "UTC"
    return f"{found.zone} ({utc_offset(found.since)} on {found.since.date()})"


def _change_words(found: TriggerExplanation) -> list[str]:
    if read_zone(found.zone).fixed is not None or found.kind == "at":
        return []
    if found.kind == "every":
        return ["counts real time: a change of the clock moves no tick"]
    lines = []
    for change in found.clock_changes:
        # The day on which the clock is changed, which may be the day before the one that it shows then.
        day = from_ms(to_ms(change.at) - 1, read_zone(found.zone).info)
        back = "back " if change.shift < timedelta(0) else ""
        lines.append(f"{day:%a} {day.date()} goes {back}from {change.clock_from} to {change.clock_to}")
        lines.append(f"  {change.effect}")
    return lines or ["no change ahead" if found.until is None else "no change before it ends"]


def _tick_words(found: TriggerExplanation) -> list[str]:
    precision = timespec([tick.instant for tick in shown_ticks(found)])
    return [f"{date_time(tick.at, precision)}, in {span(tick.away)}" for tick in found.ticks]
