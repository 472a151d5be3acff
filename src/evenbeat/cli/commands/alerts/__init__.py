"""``evenbeat alerts``: rules, channels and maintenance windows of alerts, and what became of them."""

from __future__ import annotations

from evenbeat.cli.groups import Lazy, lazy_group

_HERE = "evenbeat.cli.commands.alerts"

command = lazy_group(
    "alerts",
    "Say what is announced when jobs fail or do not run; show what is wrong now.",
    {
        "open": Lazy(f"{_HERE}.open", "Show what is wrong now: since when, why, and what helps."),
        "log": Lazy(f"{_HERE}.log", "Show what was announced, and whether it arrived."),
        "list": Lazy(f"{_HERE}.list", "List alert rules with their state."),
        "show": Lazy(f"{_HERE}.show", "Show an alert rule, and what it has found."),
        "add": Lazy(f"{_HERE}.add", "Create an alert rule."),
        "update": Lazy(
            f"{_HERE}.update", "Change some fields of an alert rule; the others, and its mute, stay."
        ),
        "delete": Lazy(f"{_HERE}.delete", "Delete an alert rule."),
        "mute": Lazy(f"{_HERE}.mute", "Mute an alert rule until a time."),
        "unmute": Lazy(f"{_HERE}.unmute", "End the mute of an alert rule."),
        "test": Lazy(f"{_HERE}.test", "Send a test message, and wait until it arrived, for 20 s at most."),
        "channels": Lazy(f"{_HERE}.channels", "List, add, change and delete channels."),
        "windows": Lazy(f"{_HERE}.windows", "List, add and delete maintenance windows."),
    },
)
