"""``evenbeat alerts channels``: where announcements go."""

from __future__ import annotations

from evenbeat.cli.groups import Lazy, lazy_group

_HERE = "evenbeat.cli.commands.alerts.channels"

command = lazy_group(
    "channels",
    "List, add, change and delete channels.",
    {
        "list": Lazy(f"{_HERE}.list", "List alert channels, without their secrets."),
        "add": Lazy(f"{_HERE}.add", "Create an alert channel."),
        "update": Lazy(f"{_HERE}.update", "Change the kind, the URL or the secret of a channel."),
        "delete": Lazy(f"{_HERE}.delete", "Delete a channel that no rule uses."),
    },
)
