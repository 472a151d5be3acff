"""Tenants: which there are, and the deletion of the rows of one."""

from __future__ import annotations

from collections.abc import Sequence

from evenbeat.core.records import FINAL_STATES
from evenbeat.stores.base import TenantCounts
from evenbeat.stores.queue_counts import with_tenants
from evenbeat.stores.redis.session import Session

# How many schedules one script looks at, or rows it deletes: at most 2 ms.
READ_LIMIT = 500


def count(session: Session, tenant: str | None) -> list[TenantCounts]:
    """Count the schedules of tenants. Reads the state of each schedule: 500 take 1 ms of the server."""
    start, end = ("-", "+") if tenant is None else (f"[{tenant} ", f"({tenant}!")
    found: dict[str, TenantCounts] = {}
    position: str | None = start
    while position is not None:
        last, rows = session.run("count_schedules", [position, end, READ_LIMIT])
        for owner, schedules, active, paused in rows:
            before = found.get(owner) or TenantCounts(tenant=owner)
            found[owner] = TenantCounts(
                tenant=owner,
                schedules=before.schedules + schedules,
                active=before.active + active,
                paused=before.paused + paused,
            )
        position = None if last is None else f"({last}"
    flat: dict[str, str] = session.execute("count runs", "HGETALL", f"{session.location.base}counts")
    ended = set()
    for field, number in flat.items():
        owner, _, state = field.partition(" ")
        if tenant in (None, owner) and state in FINAL_STATES and int(number) > 0:
            ended.add(owner)
    return with_tenants(found.values(), ended)


def purge(session: Session, tenant: str, kinds: Sequence[str], limit: int) -> int:
    gone = 0
    # First the rows of its schedules, then its records.
    position: str | bool | None = f"[{tenant} "
    while gone < limit:
        part = min(limit - gone, READ_LIMIT)
        asked = False if position is None else position
        deleted, position = session.run("purge_tenant", [tenant, list(kinds), part, READ_LIMIT, asked])
        session.committed()
        gone += deleted
        if asked is False and deleted < part:
            break
    return gone
