"""Backfills as users see them, from their records. Pure."""

from __future__ import annotations

from datetime import UTC, tzinfo

from msgspec.structs import replace

from evenbeat.core.backfills import Backfill, BackfillPlan, BackfillState
from evenbeat.core.instants import from_ms
from evenbeat.core.json_text import from_json
from evenbeat.errors import InvalidTrigger
from evenbeat.rules.backfills import StoredBackfill, run_id, trigger_of_backfill


def backfill_view(tenant: str, key: str, stored: StoredBackfill) -> Backfill:
    """Return a backfill as users see it; its times are in the zone of the trigger."""
    zone = _zone(stored)
    ended = stored.succeeded + stored.failed + stored.cancelled + stored.purged
    is_cancelled = stored.state == "cancelled"
    state: BackfillState = "cancelling" if is_cancelled and not stored.is_over else stored.state
    return Backfill(
        id=key,
        tenant=tenant,
        schedule=stored.schedule,
        state=state,
        trigger=stored.trigger,
        start=from_ms(stored.start, zone),
        end=from_ms(stored.end, zone),
        order=stored.order,
        max_concurrent=stored.max_concurrent,
        priority=stored.priority,
        payload=None if stored.payload is None else from_json(stored.payload),
        missing_only=stored.missing_only,
        ticks=stored.ticks,
        total=stored.total,
        succeeded=stored.succeeded,
        failed=stored.failed,
        cancelled=stored.cancelled,
        purged=stored.purged,
        active=stored.outstanding,
        left=max(0, stored.total - ended - stored.outstanding),
        waits_for=stored.waits_for or None,
        failed_runs=tuple(run_id(tenant, stored.schedule, key, tick) for tick in stored.failed_ticks),
        note=stored.note,
        created_at=from_ms(stored.created_at, zone),
        created_by=stored.created_by,
        ended_at=None if stored.ended_at is None else from_ms(stored.ended_at, zone),
    )


def _zone(stored: StoredBackfill) -> tzinfo:
    """Return the zone of the trigger; UTC if this machine can't read the trigger."""
    try:
        return trigger_of_backfill(stored).tzinfo
    except InvalidTrigger:
        return UTC


def dry_run_view(
    tenant: str, key: str, stored: StoredBackfill, plan: BackfillPlan, present: StoredBackfill | None
) -> Backfill:
    """Return the result of a dry run: the backfill that was not made, and what it would do.

    ``present`` is the same backfill, if it was made before.
    """
    view = backfill_view(tenant, key, stored)
    since = None if present is None else from_ms(present.created_at, _zone(stored))
    return replace(view, state="dry_run", created_at=None, existed_since=since, plan=plan)
