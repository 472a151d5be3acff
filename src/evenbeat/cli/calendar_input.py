"""Failures about calendars, for the command line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from evenbeat.cli.failures import Failed
from evenbeat.errors import CalendarInUse, CalendarNotFound


@contextmanager
def finding_calendar() -> Iterator[None]:
    """Report a calendar that does not exist, with the nearest name, or that is in use."""
    try:
        yield
    except CalendarNotFound as error:
        problem = f'there is no calendar "{error.name}"'
        raise Failed(problem, error.hint or "'evenbeat calendars list' shows those that exist") from error
    except CalendarInUse as error:
        names = ", ".join(error.schedules[:5])
        hint = f"give them another trigger first: evenbeat schedules update {error.schedules[0]} --trigger …"
        raise Failed(f'calendar "{error.name}" is used by {names}', hint) from error
