"""``evenbeat templates``: named sets of options that schedules inherit."""

from __future__ import annotations

from evenbeat.cli.groups import Lazy, lazy_group

_HERE = "evenbeat.cli.commands.templates"

command = lazy_group(
    "templates",
    "Named sets of options that schedules inherit: list, show, set and delete them.",
    {
        "list": Lazy(f"{_HERE}.list", "List the templates, built-in ones, too."),
        "show": Lazy(f"{_HERE}.show", "Show a template, and the schedules that inherit from it."),
        "set": Lazy(f"{_HERE}.set", "Set a template, and change the schedules that inherit from it."),
        "delete": Lazy(f"{_HERE}.delete", "Delete a template that no schedule uses."),
    },
)
