"""Evenbeat: every tick, exactly once."""

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
from evenbeat.views import AttemptInfo, LogLine, RunInfo, ScheduleHistory, ScheduleInfo, SkippedInfo

__version__ = "0.1.0.dev0"

__all__ = [
    "At",
    "AttemptInfo",
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
    "__version__",
    "at",
    "cron",
    "every",
    "parse_trigger",
]
