"""``evenbeat calendars``: named sets of days and times that schedules skip, or run only in."""

from __future__ import annotations

from evenbeat.cli.groups import Lazy, lazy_group

command = lazy_group(
    "calendars",
    "Keep days and times that schedules skip, or run only in: holidays, business hours.",
    {
        "list": Lazy("evenbeat.cli.commands.calendars.list", "List the calendars."),
        "show": Lazy(
            "evenbeat.cli.commands.calendars.show",
            "Show a calendar: what it contains, its next days, and the schedules that use it.",
        ),
        "set": Lazy("evenbeat.cli.commands.calendars.set", "Create a calendar, or replace what it contains."),
        "delete": Lazy("evenbeat.cli.commands.calendars.delete", "Delete a calendar that no schedule uses."),
    },
)
