"""``evenbeat quarantine``: schedules and runs that nodes can't process."""

from __future__ import annotations

from evenbeat.cli.groups import Lazy, lazy_group

command = lazy_group(
    "quarantine",
    "List, show, retry and drop schedules and runs that nodes can't process.",
    {
        "list": Lazy(
            "evenbeat.cli.commands.quarantine.list", "List schedules and runs that nodes can't process."
        ),
        "show": Lazy(
            "evenbeat.cli.commands.quarantine.show", "Show why a row is in quarantine, and what helps."
        ),
        "retry": Lazy(
            "evenbeat.cli.commands.quarantine.retry", "Wake a schedule, or queue a run, that can be read now."
        ),
        "drop": Lazy(
            "evenbeat.cli.commands.quarantine.drop", "Give up a row: delete its note, and a broken schedule."
        ),
    },
)
