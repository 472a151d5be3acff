"""``evenbeat limits``: limits over all machines."""

from __future__ import annotations

from evenbeat.cli.groups import Lazy, lazy_group

command = lazy_group(
    "limits",
    "Limit how many runs are running at once, and how fast they start, over all machines.",
    {
        "list": Lazy("evenbeat.cli.commands.limits.list", "List the limits, and what waits for each."),
        "set": Lazy("evenbeat.cli.commands.limits.set", "Set a limit, or replace the one of the same names."),
        "show": Lazy("evenbeat.cli.commands.limits.show", "Show a limit, and the busiest values of its key."),
        "remove": Lazy("evenbeat.cli.commands.limits.remove", "Remove a limit."),
    },
)
