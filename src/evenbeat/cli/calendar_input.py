"""Calendars on the command line: failures, who uses them, and what they remove from a schedule."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from evenbeat.cli.failures import Failed
from evenbeat.cli.layout import labelled
from evenbeat.cli.local_time import LocalTime
from evenbeat.core.calendars import Calendar, ScheduleCalendars
from evenbeat.record_errors import CalendarInUse, CalendarNotFound

if TYPE_CHECKING:
    from rich.console import RenderableType


@contextmanager
def finding_calendar() -> Iterator[None]:
    """Report a calendar that does not exist, with the nearest name, or that is in use."""
    try:
        yield
    except CalendarNotFound as error:
        problem = f'there is no calendar "{error.name}"'
        raise Failed(problem, error.hint or "'evenbeat calendars list' shows those that exist") from error
    except CalendarInUse as error:
        names = [*error.schedules, *(f"the template {each}" for each in error.templates)]
        some = ", ".join(names[:5]) + (f" and {len(names) - 5:,} more" if len(names) > 5 else "")
        command = f"schedules update {error.schedules[0]}" if error.schedules else "templates set …"
        those = "it" if len(names) == 1 else "them"
        hint = f"give {those} another trigger first: evenbeat {command} --trigger …"
        raise Failed(f'calendar "{error.name}" is used by {some}', hint) from error


def users_of(calendar: Calendar) -> str:
    """Return which schedules and templates use a calendar: ``3: a, b, c``."""
    number = calendar.schedule_count
    if number is None:
        words = "not counted"
    elif number == 0:
        words = "none"
    else:
        more = f" and {number - len(calendar.schedules):,} more" if number > len(calendar.schedules) else ""
        words = f"{number:,}: {', '.join(calendar.schedules)}{more}"
    templates = ", ".join(calendar.templates)
    return f"{words}; templates: {templates}" if templates else words


def calendar_lines(found: ScheduleCalendars, local: LocalTime) -> Iterator[tuple[str, RenderableType]]:
    """Yield the calendars of a schedule, and what they remove next; nothing if it has none."""
    if not found.skip and not found.only:
        return
    names = [f"skip {each}" for each in found.skip] + [f"only {each}" for each in found.only]
    lines: list[RenderableType] = [", ".join(names)]
    for each in found.removed:
        ticks = (
            local.full(each.first)
            if each.count == 1
            else f"{each.count:,} ticks from {local.full(each.first)}"
        )
        fate = "left out" if each.moved_to is None else f"moves to {local.full(each.moved_to)}"
        lines.append(f"{ticks}: {fate} ({', '.join(each.calendars)})")
    yield from labelled("calendars", lines)
