"""``evenbeat runs``: one module per command of the group."""

from evenbeat.cli.groups import Lazy, lazy_group

_HERE = "evenbeat.cli.commands.runs"

command = lazy_group(
    "runs",
    "List, show, enqueue, retry, cancel and move runs.",
    {
        "list": Lazy(f"{_HERE}.list", "List runs, the newest first."),
        "show": Lazy(f"{_HERE}.show", "Show a run in full: when it ran, for how long, its result or error."),
        "logs": Lazy(f"{_HERE}.logs", "Show the log of a run."),
        "history": Lazy(
            f"{_HERE}.history", "Show who enqueued, cancelled or retried a run by hand, and when."
        ),
        "enqueue": Lazy(f"{_HERE}.enqueue", "Enqueue a run of a task, now or for later."),
        "retry": Lazy(f"{_HERE}.retry", "Retry a failed or cancelled run now; or all that match."),
        "cancel": Lazy(
            f"{_HERE}.cancel", "Cancel a queued run, or ask a running one to stop; or all that match."
        ),
        "move": Lazy(f"{_HERE}.move", "Make the queued runs of a task runs of another one."),
    },
)
