"""Tenants: which there are, and the deletion of the rows of one."""

from __future__ import annotations

from collections.abc import Sequence

from evenbeat.stores.base import TenantCounts
from evenbeat.stores.postgres.encoding import is_kept, json_list
from evenbeat.stores.postgres.session import Session, Transaction
from evenbeat.stores.postgres.statements import listed
from evenbeat.stores.queue_counts import with_tenants

_COUNTS = """
SELECT tenant, count(*), count(*) FILTER (WHERE state = 'active'), count(*) FILTER (WHERE state = 'paused')
FROM evenbeat.schedules WHERE state <> 'deleted'
"""
_COUNT_SCHEDULES = f"{_COUNTS} GROUP BY tenant"
_COUNT_SCHEDULES_OF_TENANT = f"{_COUNTS} AND tenant = %(tenant)s GROUP BY tenant"
# Walks from each tenant to the next one in the index of ended runs.
SELECT_TENANTS = """
WITH RECURSIVE owner (tenant) AS (
    (SELECT tenant FROM evenbeat.runs WHERE state NOT IN ('queued', 'running') ORDER BY tenant LIMIT 1)
    UNION ALL
    SELECT (
        SELECT tenant FROM evenbeat.runs
        WHERE state NOT IN ('queued', 'running') AND tenant > owner.tenant ORDER BY tenant LIMIT 1
    )
    FROM owner WHERE tenant IS NOT NULL
)
SELECT tenant FROM owner WHERE tenant IS NOT NULL
"""
SELECT_TENANT = """
SELECT tenant FROM evenbeat.runs WHERE state NOT IN ('queued', 'running') AND tenant = %(tenant)s LIMIT 1
"""
_FIELDS = TenantCounts.__struct_fields__


def _delete(table: str, more: str = "") -> str:
    """Return a statement that deletes rows of a tenant. SKIP LOCKED: it does not wait for a settlement that
    counts statistics, nor for the holder of a lock."""
    return f"""
WITH gone AS (
    DELETE FROM evenbeat.{table} WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM evenbeat.{table} WHERE tenant = %(tenant)s{more} LIMIT %(limit)s
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING 1
)
SELECT count(*) FROM gone
"""


_DELETES = (
    ("delete skipped", _delete("skipped")),
    ("delete statistics", _delete("statistics")),
    ("delete records", _delete("records", f" AND kind = {listed('kinds')}")),
)


def count(session: Session, tenant: str | None) -> list[TenantCounts]:
    if not is_kept(tenant):
        return []
    if tenant is None:
        rows = session.rows("count schedules", _COUNT_SCHEDULES, {})
        others = session.rows("select tenants", SELECT_TENANTS, {})
    else:
        rows = session.rows("count schedules", _COUNT_SCHEDULES_OF_TENANT, {"tenant": tenant})
        others = [] if rows else session.rows("select tenants", SELECT_TENANT, {"tenant": tenant})
    counts = [TenantCounts(**dict(zip(_FIELDS, row, strict=True))) for row in rows]
    return with_tenants(counts, (row[0] for row in others))


def purge(transaction: Transaction, tenant: str, kinds: Sequence[str], limit: int) -> int:
    """Delete rows of a tenant, one kind after the other, up to ``limit`` in total."""
    if not is_kept(tenant):
        return 0
    gone = 0
    for name, text in _DELETES:
        if gone < limit:
            values = {"tenant": tenant, "limit": limit - gone, "kinds": json_list(kinds)}
            ((number,),) = transaction.rows(name, text, values)
            gone += number
    transaction.commit("commit", [])
    return gone
