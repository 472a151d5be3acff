"""``evenbeat flows``: graphs of tasks, and runs of them."""

from __future__ import annotations

from evenbeat.cli.groups import Lazy, lazy_group

_HERE = "evenbeat.cli.commands.flows"

command = lazy_group(
    "flows",
    "List, draw, run and resume flows: graphs of tasks.",
    {
        "list": Lazy(f"{_HERE}.list", "List the flows that an app registers."),
        "show": Lazy(f"{_HERE}.show", "Draw a flow, or a run of one with the state of each step."),
        "run": Lazy(f"{_HERE}.run", "Start a flow, now or later."),
        "resume": Lazy(f"{_HERE}.resume", "Run again what failed and what came after it."),
        "retry": Lazy(f"{_HERE}.retry", "Run a step again, and what came after it."),
        "cancel": Lazy(f"{_HERE}.cancel", "Cancel a run of a flow, with its steps."),
    },
)
