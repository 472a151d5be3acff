"""``evenbeat schedules show``: the definition, coming ticks, history, and skipped ticks with reasons."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from evenbeat.cli.calendar_input import calendar_lines
from evenbeat.cli.dependencies import dependency_lines
from evenbeat.cli.layout import Column, Fitted, headed, labelled, listed, styled
from evenbeat.cli.local_time import LocalTime, whole
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.phrases import one_line, printable
from evenbeat.cli.run_table import run_table
from evenbeat.cli.states import bound, priority_words, reason, recent_strip, schedule_state
from evenbeat.cli.store_input import complete_schedule, opened, store_options
from evenbeat.cli.ticks import Tick, TickTable
from evenbeat.core.durations import write_duration
from evenbeat.core.instants import to_ms, write_instant
from evenbeat.core.json_form import json_form
from evenbeat.core.records import CatchUp, Execution
from evenbeat.core.results import RecentRun, Schedule, ScheduleStats, SkippedTicks
from evenbeat.observe.phrases import count, measured
from evenbeat.rules.calendars import bare_trigger
from evenbeat.rules.ownership import declared_in
from evenbeat.triggers import Cron
from evenbeat.triggers.zones import read_zone

if TYPE_CHECKING:
    from rich.console import RenderableType

_TICKS = 5
_RUNS = 5
_SKIPPED = 10
_LEGEND = "| succeeded, x failed, - cancelled, . queued, > running; the newest is on the right"


@click.command("show")
@click.argument("name", shell_complete=complete_schedule)
@store_options
@json_option
def command(name: str, store: str | None, tenant: str | None, as_json: bool) -> None:
    """Show a schedule in full, with the ticks that were skipped and why."""
    with opened(store, tenant) as app:
        schedule = app.schedules.get(name)
        # A paused or unreadable schedule has no ticks to come.
        waits = schedule.damage or (schedule.paused and schedule.paused_until is None)
        coming = [] if waits else app.schedules.preview(name, _TICKS)
        linked = app.schedules.dependencies(name)
        calendars = app.schedules.calendars(name)
        stats = app.schedules.stats(name)
        skipped = app.schedules.skipped(name, _SKIPPED)
        recent = app.schedules.recent(name)
        runs = app.runs.list(schedule=name, brief=not as_json, limit=_RUNS)
        local = LocalTime.at(app.store.now())
    starts = [to_ms(moment + schedule.spread_delay) for moment in coming]

    def people() -> Iterable[RenderableType]:
        yield styled((schedule.name, "bold"))
        yield from headed(schedule.words)
        yield ""
        yield listed(
            [
                *_definition(schedule, local),
                *calendar_lines(calendars, local),
                *dependency_lines(linked, local),
            ]
        )
        if coming:
            bare = bare_trigger(bound(schedule))
            yield ""
            away = [
                Tick(start, start - whole(local.now), bare.note(tick) if isinstance(bare, Cron) else None)
                for tick, start in zip(map(to_ms, coming), map(whole, starts), strict=True)
            ]
            zone = bare.zone if isinstance(bare, Cron) else local.zone.zone
            if zone is None or zone.fixed == 0:
                zone = read_zone("UTC")  # containers call it Etc/UTC
            yield TickTable(away, zone, local.zone)
        yield ""
        yield listed(_history(stats, recent, local))
        if runs:
            yield ""
            yield run_table(runs, local, of_schedule=True)
        if skipped:
            yield ""
            yield _ledger(skipped, schedule, local)

    answer(
        {
            "schedule": json_form(schedule),
            "explain": schedule.words,
            "next": [write_instant(start) for start in starts],
            "calendars": json_form(calendars),
            "dependencies": json_form(linked),
            "stats": json_form(stats),
            "recent": json_form(recent),
            "runs": json_form(runs),
            "skipped": [json_form(row) | {"why": reason(row, schedule)} for row in skipped],
        },
        people,
        as_json=as_json,
    )


def _definition(schedule: Schedule, local: LocalTime) -> Iterator[tuple[str, RenderableType]]:
    yield "state", styled(schedule_state(schedule, local))
    if schedule.paused and (schedule.paused_by or schedule.paused_at):
        by = f"by {printable(schedule.paused_by)}, " if schedule.paused_by else ""
        at = (
            ""
            if schedule.paused_at is None
            else f"{local.full(schedule.paused_at)}, {local.away(schedule.paused_at)}"
        )
        yield "paused", f"{by}{at}"
    if schedule.is_waiting and schedule.next_run is not None:
        what = "other schedules to succeed" if schedule.after else "a run to end"
        yield "waits", f"for {what}, with the tick of {local.full(schedule.next_run)}"
    if schedule.catch_up_at is not None:
        left = count(schedule.catch_up_left, "tick")
        yield "catching up", f"{left} left, next at {local.full(schedule.catch_up_at)}"
    if schedule.damage:
        yield "damage", styled((printable(schedule.damage), "red"))
        yield "", "declare or update it (what can't be read gets its default), or delete it"
    if schedule.last_error and not schedule.damage:
        yield "stuck", styled((printable(schedule.last_error), "red"))
    if schedule.description:
        yield "about", printable(schedule.description)
    if schedule.tags:
        yield "tags", ", ".join(schedule.tags)
    yield "task", schedule.task
    yield "trigger", schedule.trigger
    if schedule.payload is not None:
        yield "payload", printable(json.dumps(schedule.payload, ensure_ascii=False))
    yield "policy", ", ".join(_policies(schedule))
    yield "runs", ", ".join(_execution(schedule))
    if schedule.template is not None:
        inherited = ", ".join(schedule.inherited) or "no option: all are its own"
        yield "template", f"{schedule.template}; inherits {inherited}"
    if schedule.edited:
        declared = ", ".join(f"{name} {_as_code(value)}" for name, value in schedule.edited.items())
        yield "edited", f"by hand; the {declared_in(schedule.managed_by)} declares {printable(declared)}"
        yield "", f"to undo the edit: evenbeat schedules reset {schedule.name}"
    if schedule.managed_by != "api":
        yield "declared", f"by the {schedule.managed_by}" + (f" of {schedule.source}" * bool(schedule.source))
    maker = declared_in(schedule.managed_by) if schedule.declared else "hand"
    made = f"{local.full(schedule.created_at)}, by {maker}"
    yield "created", made if schedule.tenant == "default" else f"{made}, for tenant {schedule.tenant}"


def _as_code(value: object) -> str:
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)


def _policies(schedule: Schedule) -> Iterator[str]:
    words = f"catch-up {schedule.catch_up}"
    if schedule.catch_up == "skip":
        words += f" (later than {write_duration(schedule.grace)})"
    if schedule.catch_up == "all" and schedule.catch_up_limit != CatchUp().limit:
        words += f" (at most {schedule.catch_up_limit:,})"
    if schedule.catch_up != "skip" and schedule.catch_up_max_age is not None:
        words += f", not later than {write_duration(schedule.catch_up_max_age)}"
    if schedule.catch_up != "latest" and schedule.catch_up_rate is not None:
        words += f", at most {schedule.catch_up_rate}"
    yield words
    yield f"overlap {schedule.overlap}"
    if schedule.max_concurrent is not None:
        yield f"at most {count(schedule.max_concurrent, 'run')} at once"
    if schedule.spread:
        share = measured(schedule.spread_delay)
        yield f"spread over {write_duration(schedule.spread)} (fires {share} after each tick)"


def _execution(schedule: Schedule) -> Iterator[str]:
    yield f"queue {schedule.queue}"
    yield f"priority {priority_words(schedule)}"
    if schedule.retries:
        retries = count(schedule.retries, "retry", "retries")
        yield f"{retries} after {write_duration(schedule.backoff)}, doubled"
    else:
        yield "no retries"
    if schedule.timeout is not None:
        yield f"timeout {write_duration(schedule.timeout)}"
    if schedule.expires is not None:
        yield f"expires {write_duration(schedule.expires)} after the planned start"
    if schedule.on_crash != Execution().on_crash:
        yield "fails when its worker dies"


def _history(
    stats: ScheduleStats, recent: list[RecentRun], local: LocalTime
) -> Iterator[tuple[str, RenderableType]]:
    yield from _ended(stats, local)
    if len(recent) > _RUNS:
        # Fewer are all in the table below.
        yield from labelled(f"last {len(recent)}", [recent_strip(recent), _LEGEND])


def _ended(stats: ScheduleStats, local: LocalTime) -> list[tuple[str, RenderableType]]:
    if stats.last_run is None:
        return [("history", "no run has ended yet")]
    ended = f"{stats.success_count:,} succeeded, {stats.failure_count:,} failed"
    if cancelled := stats.run_count - stats.success_count - stats.failure_count:
        ended += f", {cancelled:,} cancelled"
    lines: list[RenderableType] = [f"{count(stats.run_count, 'run')}: {ended}"]
    for word, moment in (("success", stats.last_success), ("failure", stats.last_failure)):
        if moment is not None:
            lines.append(f"last {word} {local.full(moment)}, {local.away(moment)}")
    if stats.last_failure is not None and stats.last_error:
        lines.append(styled((one_line(stats.last_error), "red")))
    return labelled("history", lines)


def _ledger(skipped: list[SkippedTicks], schedule: Schedule, local: LocalTime) -> Fitted:
    def ticks(row: SkippedTicks) -> str:
        first, last = local.near(row.first), local.near(row.last)
        return first if row.count == 1 else f"{first} to {last}"

    return Fitted(
        [
            Column("skipped", [ticks(row) for row in skipped]),
            Column("ticks", [f"{row.count:,}" for row in skipped], justify="right"),
            Column("why", [reason(row, schedule) for row in skipped], wraps=24),
        ]
    )
