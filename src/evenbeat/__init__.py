"""Evenbeat: every tick, exactly once."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evenbeat.app.acting import acting_as
    from evenbeat.app.scheduler import Scheduler
    from evenbeat.core.audits import AuditEntry, AuditPage
    from evenbeat.core.explanations import Account, Fact, Why
    from evenbeat.core.figures import (
        FailureGroup,
        FailureReport,
        FigurePoint,
        Figures,
        FigureSeries,
        NamedFigures,
        NodeView,
        Percentiles,
        QuarantineNote,
        TenantView,
    )
    from evenbeat.core.forecasts import (
        Forecast,
        ForecastPeak,
        QuietWindow,
        SpreadProposal,
        TriggerClockChange,
        TriggerExplanation,
        TriggerTick,
    )
    from evenbeat.core.results import (
        BulkResult,
        ChangedItem,
        LogLine,
        QueueStats,
        RefusedItem,
        Run,
        RunAttempt,
        RunPage,
        RunWait,
        Schedule,
        ScheduleStats,
        ScheduleWarning,
        SkippedTicks,
    )
    from evenbeat.core.tokens import NewToken, Role, Token
    from evenbeat.errors import (
        AppImportError,
        DamagedSchedule,
        DocumentLockLost,
        EvenbeatError,
        InvalidTrigger,
        InvalidValue,
        LockHeld,
        LockLost,
        RunCancelled,
        RunExists,
        RunNotFound,
        RunRefused,
        ScheduleChanged,
        ScheduleConflict,
        ScheduleExists,
        ScheduleNotFound,
        ScheduleTooNew,
        SchemaTooNew,
        StoreUnavailable,
        TokenNotFound,
        TooLarge,
        UnknownTriggerZone,
        UnknownZone,
    )
    from evenbeat.observe.events import Event
    from evenbeat.observe.logs import JsonFormatter, RunFields, TextFormatter
    from evenbeat.tasks.context import RunContext
    from evenbeat.tasks.task import Call, Task
    from evenbeat.triggers import At, Cron, Every, Trigger, at, cron, every, parse_trigger

__version__ = "0.1.0.dev0"

__all__ = [
    "Account",
    "AppImportError",
    "At",
    "AuditEntry",
    "AuditPage",
    "BulkResult",
    "Call",
    "ChangedItem",
    "Cron",
    "DamagedSchedule",
    "DocumentLockLost",
    "EvenbeatError",
    "Event",
    "Every",
    "Fact",
    "FailureGroup",
    "FailureReport",
    "FigurePoint",
    "FigureSeries",
    "Figures",
    "Forecast",
    "ForecastPeak",
    "InvalidTrigger",
    "InvalidValue",
    "JsonFormatter",
    "LockHeld",
    "LockLost",
    "LogLine",
    "NamedFigures",
    "NewToken",
    "NodeView",
    "Percentiles",
    "QuarantineNote",
    "QueueStats",
    "QuietWindow",
    "RefusedItem",
    "Role",
    "Run",
    "RunAttempt",
    "RunCancelled",
    "RunContext",
    "RunExists",
    "RunFields",
    "RunNotFound",
    "RunPage",
    "RunRefused",
    "RunWait",
    "Schedule",
    "ScheduleChanged",
    "ScheduleConflict",
    "ScheduleExists",
    "ScheduleNotFound",
    "ScheduleStats",
    "ScheduleTooNew",
    "ScheduleWarning",
    "Scheduler",
    "SchemaTooNew",
    "SkippedTicks",
    "SpreadProposal",
    "StoreUnavailable",
    "Task",
    "TenantView",
    "TextFormatter",
    "Token",
    "TokenNotFound",
    "TooLarge",
    "Trigger",
    "TriggerClockChange",
    "TriggerExplanation",
    "TriggerTick",
    "UnknownTriggerZone",
    "UnknownZone",
    "Why",
    "__version__",
    "acting_as",
    "at",
    "cron",
    "every",
    "parse_trigger",
]

# Imported when they are first asked for: what needs none of them, such as `evenbeat health`, starts at once.
_MODULES = {
    "evenbeat.app.acting": ("acting_as",),
    "evenbeat.app.scheduler": ("Scheduler",),
    "evenbeat.core.audits": ("AuditEntry", "AuditPage"),
    "evenbeat.core.figures": (
        "FailureGroup",
        "FailureReport",
        "FigurePoint",
        "Figures",
        "FigureSeries",
        "NamedFigures",
        "NodeView",
        "Percentiles",
        "QuarantineNote",
        "TenantView",
    ),
    "evenbeat.core.explanations": ("Account", "Fact", "Why"),
    "evenbeat.core.forecasts": (
        "Forecast",
        "ForecastPeak",
        "QuietWindow",
        "SpreadProposal",
        "TriggerClockChange",
        "TriggerExplanation",
        "TriggerTick",
    ),
    "evenbeat.core.results": (
        "BulkResult",
        "ChangedItem",
        "LogLine",
        "QueueStats",
        "RefusedItem",
        "Run",
        "RunAttempt",
        "RunPage",
        "RunWait",
        "Schedule",
        "ScheduleStats",
        "ScheduleWarning",
        "SkippedTicks",
    ),
    "evenbeat.core.tokens": ("NewToken", "Role", "Token"),
    "evenbeat.errors": (
        "AppImportError",
        "DamagedSchedule",
        "DocumentLockLost",
        "EvenbeatError",
        "InvalidTrigger",
        "InvalidValue",
        "LockHeld",
        "LockLost",
        "RunCancelled",
        "RunExists",
        "RunNotFound",
        "RunRefused",
        "ScheduleChanged",
        "ScheduleConflict",
        "ScheduleExists",
        "ScheduleNotFound",
        "ScheduleTooNew",
        "SchemaTooNew",
        "StoreUnavailable",
        "TokenNotFound",
        "TooLarge",
        "UnknownTriggerZone",
        "UnknownZone",
    ),
    "evenbeat.observe.events": ("Event",),
    "evenbeat.observe.logs": ("JsonFormatter", "RunFields", "TextFormatter"),
    "evenbeat.tasks.context": ("RunContext",),
    "evenbeat.tasks.task": ("Call", "Task"),
    "evenbeat.triggers": ("At", "Cron", "Every", "Trigger", "at", "cron", "every", "parse_trigger"),
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
