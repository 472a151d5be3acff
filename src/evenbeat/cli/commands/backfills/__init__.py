"""``evenbeat backfills``: runs for the ticks of past ranges."""

from __future__ import annotations

from evenbeat.cli.groups import Lazy, lazy_group

_HERE = "evenbeat.cli.commands.backfills"

command = lazy_group(
    "backfills",
    "List, show and cancel backfills. 'evenbeat schedules backfill' makes one.",
    {
        "list": Lazy(f"{_HERE}.list", "List the backfills, the newest first, and how far they are."),
        "show": Lazy(f"{_HERE}.show", "Show a backfill, and how far it is."),
        "cancel": Lazy(f"{_HERE}.cancel", "Cancel a backfill as a whole."),
    },
)
