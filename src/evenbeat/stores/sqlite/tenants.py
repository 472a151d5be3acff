"""Tenants: which there are, and the deletion of the rows of one."""

from __future__ import annotations

from collections.abc import Sequence

from evenbeat.stores.base import TenantCounts
from evenbeat.stores.queue_counts import with_tenants
from evenbeat.stores.sqlite.json_values import json_list
from evenbeat.stores.sqlite.session import Session

_COUNTS = """
SELECT tenant, count(*), count(*) FILTER (WHERE state = 'active'), count(*) FILTER (WHERE state = 'paused')
FROM evenbeat_schedules WHERE state <> 'deleted'
"""
_COUNT_SCHEDULES = f"{_COUNTS} GROUP BY tenant"
_COUNT_SCHEDULES_OF_TENANT = f"{_COUNTS} AND tenant = ? GROUP BY tenant"
# Walks from each tenant to the next one in the index of ended runs.
SELECT_TENANTS = """
WITH RECURSIVE owner (tenant) AS (
    SELECT min(tenant) FROM evenbeat_runs WHERE state <> 'queued' AND state <> 'running'
    UNION ALL
    SELECT (
        SELECT min(tenant) FROM evenbeat_runs
        WHERE state <> 'queued' AND state <> 'running' AND tenant > owner.tenant
    )
    FROM owner WHERE owner.tenant IS NOT NULL
)
SELECT tenant FROM owner WHERE tenant IS NOT NULL
"""
SELECT_TENANT = """
SELECT tenant FROM evenbeat_runs WHERE state <> 'queued' AND state <> 'running' AND tenant = ? LIMIT 1
"""

_DELETE_SKIPPED = """
DELETE FROM evenbeat_skipped
WHERE rowid IN (SELECT rowid FROM evenbeat_skipped WHERE tenant = ? LIMIT ?)
"""
_DELETE_STATISTICS = """
DELETE FROM evenbeat_statistics WHERE (tenant, schedule) IN (
    SELECT tenant, schedule FROM evenbeat_statistics WHERE tenant = ? LIMIT ?
)
"""
_DELETE_RECORDS = """
DELETE FROM evenbeat_records WHERE (kind, tenant, key) IN (
    SELECT record.kind, record.tenant, record.key
    FROM json_each(?) AS wanted CROSS JOIN evenbeat_records AS record
    WHERE record.kind = wanted.value AND record.tenant = ? LIMIT ?
)
"""
_FIELDS = TenantCounts.__struct_fields__


def count(session: Session, tenant: str | None) -> list[TenantCounts]:
    if tenant is None:
        rows = session.rows("count schedules", _COUNT_SCHEDULES)
        others = session.rows("select tenants", SELECT_TENANTS)
    else:
        rows = session.rows("count schedules", _COUNT_SCHEDULES_OF_TENANT, (tenant,))
        others = [] if rows else session.rows("select tenants", SELECT_TENANT, (tenant,))
    counts = [TenantCounts(**dict(zip(_FIELDS, row, strict=True))) for row in rows]
    return with_tenants(counts, (row[0] for row in others))


def purge(session: Session, tenant: str, kinds: Sequence[str], limit: int) -> int:
    gone = session.run("delete skipped", _DELETE_SKIPPED, (tenant, limit))
    if gone < limit:
        gone += session.run("delete statistics", _DELETE_STATISTICS, (tenant, limit - gone))
    if gone < limit:
        values = (json_list(kinds), tenant, limit - gone)
        gone += session.run("delete records", _DELETE_RECORDS, values)
    return gone
