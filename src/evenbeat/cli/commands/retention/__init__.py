"""``evenbeat retention``: how long, and how many, ended runs are kept."""

from __future__ import annotations

from evenbeat.cli.groups import Lazy, lazy_group

command = lazy_group(
    "retention",
    "Set how long, and how many, ended runs are kept.",
    {
        "list": Lazy("evenbeat.cli.commands.retention.list", "List the retention rules."),
        "set": Lazy("evenbeat.cli.commands.retention.set", "Create a retention rule, or replace it."),
        "remove": Lazy("evenbeat.cli.commands.retention.remove", "Delete a retention rule."),
    },
)
