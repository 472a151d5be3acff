"""Triggers: from text to instants. Pure: they read no clock and store nothing."""

from evenbeat.triggers.at import At, at
from evenbeat.triggers.base import Trigger
from evenbeat.triggers.calendared import Calendared
from evenbeat.triggers.cron import Cron, cron
from evenbeat.triggers.every import Every, every
from evenbeat.triggers.text import check_trigger, parse_trigger

__all__ = [
    "At",
    "Calendared",
    "Cron",
    "Every",
    "Trigger",
    "at",
    "check_trigger",
    "cron",
    "every",
    "parse_trigger",
]
