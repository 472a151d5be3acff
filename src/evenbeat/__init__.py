"""Evenbeat: every tick, exactly once."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evenbeat.current import Run
    from evenbeat.errors import (
        Conflict,
        DamagedSchedule,
        EvenbeatError,
        InvalidTrigger,
        InvalidValue,
        LockHeld,
        LockLost,
        ModuleFailed,
        RunCancelled,
        RunExists,
        RunNotFound,
        RunRefused,
        ScheduleExists,
        ScheduleNotFound,
        ScheduleTooNew,
        SchemaTooNew,
        StoreUnavailable,
        TooLarge,
        UnknownTriggerZone,
        UnknownZone,
    )
    from evenbeat.observe.events import Event
    from evenbeat.scheduler import Scheduler
    from evenbeat.tasks import Call, Task
    from evenbeat.triggers import At, Cron, Every, Trigger, at, cron, every, parse_trigger
    from evenbeat.views import (
        AttemptInfo,
        BulkInfo,
        LogLine,
        QueueInfo,
        RefusedRun,
        RunInfo,
        ScheduleHistory,
        ScheduleInfo,
        SkippedInfo,
        WaitInfo,
    )

__version__ = "0.1.0.dev0"

__all__ = [
    "At",
    "AttemptInfo",
    "BulkInfo",
    "Call",
    "Conflict",
    "Cron",
    "DamagedSchedule",
    "EvenbeatError",
    "Event",
    "Every",
    "InvalidTrigger",
    "InvalidValue",
    "LockHeld",
    "LockLost",
    "LogLine",
    "ModuleFailed",
    "QueueInfo",
    "RefusedRun",
    "Run",
    "RunCancelled",
    "RunExists",
    "RunInfo",
    "RunNotFound",
    "RunRefused",
    "ScheduleExists",
    "ScheduleHistory",
    "ScheduleInfo",
    "ScheduleNotFound",
    "ScheduleTooNew",
    "Scheduler",
    "SchemaTooNew",
    "SkippedInfo",
    "StoreUnavailable",
    "Task",
    "TooLarge",
    "Trigger",
    "UnknownTriggerZone",
    "UnknownZone",
    "WaitInfo",
    "__version__",
    "at",
    "cron",
    "every",
    "parse_trigger",
]

# Imported when they are first asked for: what needs none of them, such as `evenbeat health`, starts at once.
_MODULES = {
    "evenbeat.current": ("Run",),
    "evenbeat.errors": (
        "Conflict",
        "DamagedSchedule",
        "EvenbeatError",
        "InvalidTrigger",
        "InvalidValue",
        "LockHeld",
        "LockLost",
        "ModuleFailed",
        "RunCancelled",
        "RunExists",
        "RunNotFound",
        "RunRefused",
        "ScheduleExists",
        "ScheduleNotFound",
        "ScheduleTooNew",
        "SchemaTooNew",
        "StoreUnavailable",
        "TooLarge",
        "UnknownTriggerZone",
        "UnknownZone",
    ),
    "evenbeat.observe.events": ("Event",),
    "evenbeat.scheduler": ("Scheduler",),
    "evenbeat.tasks": ("Call", "Task"),
    "evenbeat.triggers": ("At", "Cron", "Every", "Trigger", "at", "cron", "every", "parse_trigger"),
    "evenbeat.views": (
        "AttemptInfo",
        "BulkInfo",
        "LogLine",
        "QueueInfo",
        "RefusedRun",
        "RunInfo",
        "ScheduleHistory",
        "ScheduleInfo",
        "SkippedInfo",
        "WaitInfo",
    ),
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    for module, names in _MODULES.items():
        if name in names:
            found = globals()[name] = getattr(import_module(module), name)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
