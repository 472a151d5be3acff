"""Tenants: the stored form of quotas, and which records belong to a tenant alone. Pure."""

from __future__ import annotations

import msgspec

from evenbeat.core.records import Record
from evenbeat.core.tenants import MOST_QUOTA, Quota
from evenbeat.rules.alert_records import CHANNEL, INCIDENT, LOG, PAST, PENDING, RULE, SIGNAL, WINDOW
from evenbeat.rules.backfills import KINDS as BACKFILLS
from evenbeat.rules.calendar_records import KIND as CALENDAR
from evenbeat.rules.templates import TEMPLATE

QUOTA = "quota"
"""The kind of the record with a tenant's quota. It has the tenant of the quota, and the key KEY."""
KEY = "quota"
DEFAULT = "default"
"""The tenant with which the store also keeps what belongs to no tenant, such as tokens and limits."""

_OF_RUNS = ("lock", "progress", "quarantine", "deferred", "idempotency", QUOTA)
_OF_SCHEDULES = (TEMPLATE, CALENDAR, "success", "owed", "dependencies", *BACKFILLS)
_OF_OTHERS = (RULE, CHANNEL, WINDOW, SIGNAL, INCIDENT, PAST, PENDING, LOG, "retention")


def kinds_of(tenant: str) -> tuple[str, ...]:
    """Return the kinds of records that a purge of the tenant deletes.

    The audit is not one of them. For the tenant ``default``, nor are alert and retention rules: those that
    cover all tenants are kept with it.
    """
    others = () if tenant == DEFAULT else _OF_OTHERS
    return (*_OF_RUNS, *_OF_SCHEDULES, *others)


def quota_record(tenant: str, quota: Quota, version: int) -> Record:
    """Return a quota as it is stored."""
    body = msgspec.json.encode(quota).decode()
    return Record(kind=QUOTA, tenant=tenant, key=KEY, body=body, version=version)


def read_quota(record: Record) -> Quota | None:
    """Return the quota of a record; None if the record was damaged: it then bounds nothing."""
    try:
        quota = msgspec.json.decode(record.body, type=Quota)
    except (msgspec.MsgspecError, UnicodeError):
        return None
    numbers = (quota.schedules, quota.queued_runs)
    return quota if all(number is None or 0 <= number <= MOST_QUOTA for number in numbers) else None
