"""``evenbeat schedules``: one module per command of the group."""

from evenbeat.cli.groups import Lazy, lazy_group

_HERE = "evenbeat.cli.commands.schedules"

command = lazy_group(
    "schedules",
    "Look at schedules, make and change them.",
    {
        "list": Lazy(f"{_HERE}.list", "List schedules: their state, next run and last result."),
        "show": Lazy(f"{_HERE}.show", "Show all about a schedule, also which ticks were skipped and why."),
        "add": Lazy(f"{_HERE}.add", "Make a schedule."),
        "update": Lazy(
            f"{_HERE}.update", "Change some of what was said about a schedule; the rest, and its pause, stay."
        ),
        "pause": Lazy(f"{_HERE}.pause", "Pause a schedule, until it is resumed or a time comes."),
        "resume": Lazy(f"{_HERE}.resume", "End the pause of a schedule."),
        "reset": Lazy(f"{_HERE}.reset", "Take edits by hand back: the schedule as the code declared it."),
        "run": Lazy(f"{_HERE}.run", "Run a schedule's task now; its next run stays where it is."),
        "reschedule": Lazy(f"{_HERE}.reschedule", "Move the next run of a schedule, and it alone."),
        "delete": Lazy(f"{_HERE}.delete", "Delete a schedule; its runs stay."),
    },
)
