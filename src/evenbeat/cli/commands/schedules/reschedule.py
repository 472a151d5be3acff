"""``evenbeat schedules reschedule``."""

from __future__ import annotations

from collections.abc import Iterator

import click

from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.store_input import complete_schedule, opened, store_options
from evenbeat.core.instants import from_ms
from evenbeat.core.json_form import json_form
from evenbeat.errors import InvalidValue
from evenbeat.observe.phrases import command_line, measured


@click.command("reschedule")
@click.argument("name", shell_complete=complete_schedule)
@click.argument("when")
@store_options
@json_option
def command(name: str, when: str, store: str | None, tenant: str | None, as_json: bool) -> None:
    """Move the next run of a schedule, and only that one.

    WHEN is a time of day (the next one), a date and time (in your zone unless it has an offset), or +2h from
    now. Later runs follow the trigger. The ledger records the ticks before WHEN as skipped. The schedule's
    share of its spread is added.
    """
    with opened(store, tenant) as app:
        local = LocalTime.at(app.store.now())
        tick = from_ms(local.read(when, "WHEN"))
        try:
            moved = app.schedules.reschedule(name, tick)
        except InvalidValue as error:
            if error.field != "at":
                raise
            run_now = command_line(f"schedules run {name}", app.tenant)
            raise InvalidValue(
                f"{when} is in the past",
                field="WHEN",
                value=when,
                hint=f"give a time to come; '{run_now}' runs it now",
            ) from error

    def people() -> Iterator[str]:
        until = moved.paused_until
        if until is not None and tick < until:
            yield f"moved the next tick of {name} to {local.full(tick)}, {local.away(tick)}"
            yield f"it is paused until {local.full(until)}: this tick will be skipped"
            if moved.next_run is not None:
                yield f"next run {local.full(moved.next_run)}, {local.away(moved.next_run)}"
            return
        assert moved.next_run is not None
        yield f"next run of {name}: {local.full(moved.next_run)}, {local.away(moved.next_run)}"
        if moved.spread_delay:
            yield f"that is {local.full(tick)} and its share of the spread, {measured(moved.spread_delay)}"
        if until is not None:
            yield f"it is paused until {local.full(until)}"
        elif moved.paused:
            resume = command_line(f"schedules resume {name}", moved.tenant)
            yield f"it is paused, and runs only if it is resumed before: {resume}"

    answer({"schedule": json_form(moved)}, people, as_json=as_json)
