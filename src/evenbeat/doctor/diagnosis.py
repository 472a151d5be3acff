"""All checks of a store and its nodes.

Everything here uses the protocol of stores alone, so it works with every database. ``now`` is the store's
time.
"""

from __future__ import annotations

from evenbeat.app.limits import read_usage
from evenbeat.core.instants import Instant
from evenbeat.core.records import ScheduleRecord
from evenbeat.doctor.delivery import alert_findings
from evenbeat.doctor.findings import Finding
from evenbeat.doctor.flows import flow_findings
from evenbeat.doctor.nodes import clock_finding, fallback_findings, nodes_finding, self_check_findings
from evenbeat.doctor.runs import (
    duplicates_finding,
    expired_finding,
    limit_findings,
    task_findings,
    waiting_finding,
)
from evenbeat.doctor.schedules import (
    calendar_findings,
    deferred_findings,
    dependency_findings,
    overdue_finding,
    quarantine_finding,
    template_findings,
    unread_finding,
)
from evenbeat.errors import EvenbeatError
from evenbeat.node.presence import live_nodes
from evenbeat.stores.base import ScheduleQuery, Store
from evenbeat.stores.pages import every_schedule

_PAGE = 500


def diagnose(store: Store, local: Instant) -> list[Finding]:
    """Return the results of all checks of an open store; ``local`` is the clock of this machine."""
    now = store.now()
    alive = live_nodes(store)
    rows: list[ScheduleRecord] = []
    unread: list[Finding] = []
    try:
        rows = list(every_schedule(store, ScheduleQuery(limit=_PAGE)))
    except EvenbeatError as error:
        unread = [unread_finding(error)]
    limits = read_usage(store)
    return [
        clock_finding(now, local, rows),
        nodes_finding(alive, rows),
        *fallback_findings(alive, now),
        *(unread or [overdue_finding(rows, now)]),
        waiting_finding(store, alive, now, limits),
        *task_findings(alive, rows),
        *flow_findings(store, alive, now, limits),
        *limit_findings(store, alive, now, limits),
        expired_finding(store, now),
        *self_check_findings(store, alive, now),
        *([] if unread else [quarantine_finding(store, rows)]),
        *deferred_findings(store),
        *dependency_findings(rows),
        *calendar_findings(store, rows, now),
        *alert_findings(store),
        *template_findings(store, rows),
        duplicates_finding(store),
    ]
