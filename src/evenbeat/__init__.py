"""Evenbeat: every tick, exactly once."""

from evenbeat.errors import EvenbeatError, InvalidTrigger, InvalidValue
from evenbeat.triggers import At, Cron, Every, Trigger, at, cron, every, parse_trigger

__version__ = "0.1.0.dev0"

__all__ = [
    "At",
    "Cron",
    "EvenbeatError",
    "Every",
    "InvalidTrigger",
    "InvalidValue",
    "Trigger",
    "__version__",
    "at",
    "cron",
    "every",
    "parse_trigger",
]
