"""``evenbeat schedules``: one module per command of the group."""

from evenbeat.cli.groups import Lazy, lazy_group

_HERE = "evenbeat.cli.commands.schedules"

command = lazy_group(
    "schedules",
    "List, show, create and change schedules.",
    {
        "list": Lazy(f"{_HERE}.list", "List schedules with their state, next run and last result."),
        "show": Lazy(f"{_HERE}.show", "Show a schedule in full, with the ticks that were skipped and why."),
        "add": Lazy(f"{_HERE}.add", "Create a schedule."),
        "update": Lazy(f"{_HERE}.update", "Change some options of a schedule; or of all that match."),
        "pause": Lazy(
            f"{_HERE}.pause", "Pause a schedule until it is resumed, or until a time; or all that match."
        ),
        "resume": Lazy(f"{_HERE}.resume", "Resume a paused schedule; or all that match."),
        "reset": Lazy(f"{_HERE}.reset", "Undo edits by hand: the schedule becomes what is declared."),
        "run": Lazy(f"{_HERE}.run", "Run a schedule's task now; or those of all that match."),
        "backfill": Lazy(f"{_HERE}.backfill", "Add a run for each tick of a past range."),
        "reschedule": Lazy(f"{_HERE}.reschedule", "Move the next run of a schedule, and only that one."),
        "delete": Lazy(f"{_HERE}.delete", "Delete a schedule, and leave its runs; or all that match."),
        "cells": Lazy(
            f"{_HERE}.cells",
            "Show the past and coming ticks of a schedule as a heat map: hours by day, or days by week.",
        ),
        "history": Lazy(f"{_HERE}.history", "Show who changed a schedule, and how it was before."),
    },
)
