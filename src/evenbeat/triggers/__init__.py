"""Triggers: from text to instants. Pure: they read no clock and store nothing."""

from evenbeat.triggers.at import At, at
from evenbeat.triggers.base import Trigger
from evenbeat.triggers.calendared import Calendared
from evenbeat.triggers.cron import Cron, cron
from evenbeat.triggers.every import Every, every
from evenbeat.triggers.on_success import OnSuccess, on_success_of
from evenbeat.triggers.text import check_trigger, parse_trigger

__all__ = [
    "At",
    "Calendared",
    "Cron",
    "Every",
    "OnSuccess",
    "Trigger",
    "at",
    "check_trigger",
    "cron",
    "every",
    "on_success_of",
    "parse_trigger",
]
