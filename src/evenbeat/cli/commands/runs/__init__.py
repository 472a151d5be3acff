"""``evenbeat runs``: one module per command of the group."""

from evenbeat.cli.groups import Lazy, lazy_group

_HERE = "evenbeat.cli.commands.runs"

command = lazy_group(
    "runs",
    "Look at runs, make them, try them again, cancel them.",
    {
        "list": Lazy(f"{_HERE}.list", "List runs, the newest first."),
        "show": Lazy(f"{_HERE}.show", "Show all about a run: when, how long, with what result or error."),
        "logs": Lazy(f"{_HERE}.logs", "Show what a run wrote to its log."),
        "enqueue": Lazy(f"{_HERE}.enqueue", "Queue a run of a task, now or for a time to come."),
        "retry": Lazy(f"{_HERE}.retry", "Try a failed or cancelled run again, now; or all that match."),
        "cancel": Lazy(
            f"{_HERE}.cancel", "Cancel a run: a queued one ends, a running one is told; or all that match."
        ),
    },
)
