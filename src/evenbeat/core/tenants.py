"""Tenants as users get them back: their counts, their quotas, and what a purge deleted."""

from __future__ import annotations

from datetime import datetime

import msgspec

MOST_QUOTA = 1_000_000_000
"""The largest number of a quota."""


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """How much a tenant may have. None: any number."""

    schedules: int | None = None
    """Schedules that are not deleted, also paused and finished ones."""
    queued_runs: int | None = None
    """Queued runs, due or not. Ticks of schedules count, and are never refused."""


class TenantView(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant that has schedules, runs or a quota."""

    name: str
    schedules: int
    """Schedules that are not deleted."""
    active_schedules: int
    paused_schedules: int
    due: int
    """Queued runs that are due."""
    later: int
    """Queued runs that are due later."""
    running: int
    quota: Quota | None
    """None: it may have any number of schedules and queued runs."""
    started: int
    """Attempts that began in the last 24 hours, by the figures that nodes write once a minute."""
    succeeded: int
    """Runs that succeeded in the last 24 hours."""
    failed: int
    """Runs that failed in the last 24 hours."""


class TenantDetails(TenantView, frozen=True, kw_only=True):
    """A tenant, with what ``list`` does not read."""

    ended: dict[str, int]
    """The ended runs that the store still keeps, by state."""
    oldest_due: datetime | None
    """When the longest waiting of the due runs became due."""
    next_fire: datetime | None
    """When the next of its schedules fires."""
    limits: tuple[str, ...]
    """The names of the limits that name it: see ``app.limits``."""


class TenantPurge(msgspec.Struct, frozen=True, kw_only=True):
    """What a purge deleted. Of a dry run: what it would delete."""

    tenant: str
    dry_run: bool
    schedules: int
    """Schedules that were deleted: they do not fire again."""
    cancelled: int
    """Queued runs that were cancelled, and then deleted."""
    stopping: int
    """Running runs that were asked to stop. Purge again when they have ended, to delete them, too."""
    runs: int
    """Ended runs that were deleted, with their logs. Counts the cancelled ones."""
    records: int
    """Locks, alert rules and other records. Of a dry run, only those; otherwise also rows of the ledger and
    statistics."""
    tokens: int
    """Tokens for this tenant alone that were revoked."""
    is_complete: bool
    """Whether nothing is left to delete. If False, purge again."""
    remains: tuple[str, ...]
    """Sentences: which rows the purge leaves, and why."""
