"""``evenbeat explain``: a trigger in words, and the effect of clock changes on it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from evenbeat.cli.clock_changes import ClockChange, coming_changes, effect
from evenbeat.cli.layout import headed, labelled, listed
from evenbeat.cli.local import local_zone
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.phrases import date_time, timespec, utc_offset
from evenbeat.cli.ticks import Tick, coming_ticks, tick_document, why_no_more
from evenbeat.cli.trigger_input import EXPRESSIONS, TriggerInput, read_trigger_input, trigger_arguments
from evenbeat.core.instants import from_ms, write_instant
from evenbeat.observe.phrases import span
from evenbeat.triggers import At, Cron, Every

if TYPE_CHECKING:
    from rich.console import RenderableType

_TICKS = 3
_CHANGES = 2


@click.command("explain", epilog=EXPRESSIONS)
@trigger_arguments
@json_option
def command(
    expr: tuple[str, ...], tz: str | None, since: str | None, name: str | None, as_json: bool
) -> None:
    """Explain a trigger in words, with its next ticks.

    Shows the next clock changes in its zone and their effect on it, too.
    """
    asked = read_trigger_input(expr, tz=tz, since=since, name=name)
    ticks = coming_ticks(asked, _TICKS)
    changes = _changes(asked)
    notes = list(asked.notes)
    if len(ticks) < _TICKS:
        notes.append(why_no_more(asked, ticks))
    mine = local_zone()

    def people() -> Iterable[RenderableType]:
        yield from headed(asked.trigger.explain())
        yield ""
        yield listed(
            [
                ("trigger", str(asked.written)),
                *([("becomes", str(asked.trigger))] if asked.trigger != asked.written else []),
                ("zone", _zone_words(asked)),
                *labelled("clock", _change_words(asked, changes)),
                *labelled("next", _tick_words(asked, ticks)),
                *labelled("note", notes),
            ]
        )

    document = {
        "trigger": str(asked.trigger),
        "explain": asked.trigger.explain(),
        "tz": asked.zone.key,
        "my_tz": mine.name,
        "from": write_instant(asked.since),
        "clock_changes": [_change_document(change, words) for change, words in changes],
        "ticks": [tick_document(tick, asked.zone, mine) for tick in ticks],
        "notes": notes,
    }
    answer(document, people, as_json=as_json)


def _changes(asked: TriggerInput) -> list[tuple[ClockChange, str]]:
    """Return the clock changes before the end of a trigger, and their effect."""
    trigger = asked.trigger
    if not isinstance(trigger, Cron):
        return []
    begin = asked.since if trigger.start is None else max(asked.since, trigger.start)
    return [
        (change, effect(trigger, change))
        for change in coming_changes(asked.zone, begin, _CHANGES)
        if trigger.until is None or change.instant <= trigger.until
    ]


def _change_document(change: ClockChange, words: str) -> dict[str, Any]:
    return {
        "at": write_instant(change.instant),
        "clock_from": change.clock_from,
        "clock_to": change.clock_to,
        "effect": words,
    }


def _zone_words(asked: TriggerInput) -> str:
    if asked.zone.key == "UTC":
        return "UTC"
    since = from_ms(asked.since, asked.zone.info)
    return f"{asked.zone.key} ({utc_offset(since)} on {since.date()})"


def _change_words(asked: TriggerInput, changes: list[tuple[ClockChange, str]]) -> list[str]:
    trigger = asked.trigger
    if asked.zone.fixed is not None or isinstance(trigger, At):
        return []
    if isinstance(trigger, Every):
        return ["counts real time: a change of the clock moves no tick"]
    lines = []
    for change, words in changes:
        day = from_ms(change.instant - 1, asked.zone.info)
        back = "back " if change.after < change.before else ""
        lines.append(f"{day:%a} {day.date()} goes {back}from {change.clock_from} to {change.clock_to}")
        lines.append(f"  {words}")
    return lines or ["no change ahead" if trigger.until is None else "no change before it ends"]


def _tick_words(asked: TriggerInput, ticks: list[Tick]) -> list[str]:
    precision = timespec([tick.instant for tick in ticks])
    return [
        f"{date_time(from_ms(tick.instant, asked.zone.info), precision)}, in {span(tick.away)}"
        for tick in ticks
    ]
