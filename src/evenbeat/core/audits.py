"""The audit as users get it back: who changed what, when, and how it was before."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, TypeAlias, get_args

import msgspec

SubjectKind: TypeAlias = Literal[
    "schedule",
    "run",
    "backfill",
    "token",
    "limit",
    "template",
    "alert_rule",
    "alert_channel",
    "alert_window",
    "retention",
    "calendar",
    "tenant",
    "record",
]
AuditAction: TypeAlias = Literal[
    "add",
    "declare",
    "update",
    "reset",
    "pause",
    "resume",
    "reschedule",
    "run_now",
    "backfill",
    "delete",
    "cancel",
    "retry",
    "move",
    "enqueue",
    "repair",
    "create",
    "revoke",
    "mute",
    "unmute",
    "test",
    "set",
    "remove",
    "drop",
    "purge",
]
"""The method that made the change. The bulk forms record the method of one item: ``pause_all`` records a
``pause`` for each schedule. ``create`` and ``revoke`` are about tokens; ``mute``, ``unmute`` and ``test`` are
about alerts; ``set`` and ``remove`` about limits, templates, retention rules and quotas of tenants, ``set``
also about calendars; ``drop`` about quarantined runs; ``purge`` about everything of a tenant."""
ACTIONS: tuple[AuditAction, ...] = get_args(AuditAction)


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A change by hand of a schedule, a run, a token, a limit, an alert rule, channel or window, a retention
    rule or a tenant: who made it, when, and what it changed."""

    id: str
    """Unique; the ids of later entries sort before those of earlier ones."""
    at: datetime
    """When, by the store's clock."""
    actor: str
    """The person or program, as ``acting_as`` named it; else the user of the process: user@host."""
    via: str
    """``python``, ``cli`` or ``api``."""
    action: str
    """The method that made the change: ``pause``, ``update``, ``cancel``."""
    tenant: str
    kind: str
    """The kind of the subject: ``schedule``, ``run``, ``backfill``, ``token``, ``limit``, ``template``,
    ``alert_rule``, ``alert_channel``, ``alert_window``, ``retention``, ``calendar``, ``tenant``, or
    ``record`` for others."""
    subject: str
    """The name, or the id of a run or token."""
    before: dict[str, Any]
    """The fields that changed, with their old values; empty if the subject is new."""
    after: dict[str, Any]
    """The same fields with their new values; empty if the subject was deleted."""


class AuditPage(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the audit, the newest entries first."""

    entries: tuple[AuditEntry, ...]
    cursor: str | None
    """Continues after this page; None at the end. A page with a cursor may have fewer entries than the limit,
    even none: a search for rare entries reads a bounded number of them in one call."""
