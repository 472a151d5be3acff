"""``evenbeat alerts windows``: times in which alerts are muted."""

from __future__ import annotations

from evenbeat.cli.groups import Lazy, lazy_group

_HERE = "evenbeat.cli.commands.alerts.windows"

command = lazy_group(
    "windows",
    "List, add and delete maintenance windows.",
    {
        "list": Lazy(f"{_HERE}.list", "List maintenance windows that are not over."),
        "add": Lazy(f"{_HERE}.add", "Mute the alerts of some schedules, or of all, until a time."),
        "delete": Lazy(f"{_HERE}.delete", "End a maintenance window before its time."),
    },
)
