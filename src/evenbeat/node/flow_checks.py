"""Flows whose lease has ended: no step ended for a while. Cancels those that should end, and finds those that
stand still, which is a defect."""

from __future__ import annotations

import logging
from collections.abc import Callable
from uuid import uuid4

from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord
from evenbeat.node.flow_work import FlowReports
from evenbeat.node.flows import FlowEnd, FlowSettling
from evenbeat.node.signals import Signals
from evenbeat.observe.logs import run_fields
from evenbeat.rules import flows
from evenbeat.rules.flow_parts import flow_part, is_begun
from evenbeat.stores.base import Store
from evenbeat.stores.refusals import REFUSALS

_BATCH = 500

_log = logging.getLogger("evenbeat.node.flow_checks")


class FlowWatch:
    """Looks at flows whose lease has ended: the part of the reaper that virtual time needs."""

    def __init__(self, store: Store, reports: FlowReports, signals: Signals) -> None:
        self._store = store
        self._reports = reports
        self._settling = FlowSettling(store, "reaper", signals=signals)

    def step(self, now: Instant) -> Instant | None:
        """Look at the flows that are due for it; return when the next one is."""
        lost, next_end = self._store.lost_runs(now, _BATCH)
        flows_due = [run for run in lost if is_begun(run)]
        is_written = False
        for row in flows_due:
            ended = check_flow(self._store, self._settling, row, lambda: uuid4().hex, now)
            is_written = is_written or ended is not None
            self._reports.report(ended or [], now)
        return now if is_written else next_end


def check_flow(
    store: Store, settling: FlowSettling, row: RunRecord, new_token: Callable[[], str], now: Instant
) -> list[FlowEnd] | None:
    """Look at a flow that has begun and whose lease has ended; return the flows that ended thereby. None if
    the database refuses to write it: the others must be looked at nevertheless."""
    try:
        return _check_flow(store, settling, row, new_token, now)
    except REFUSALS as error:
        _log.error("a flow can't be written: %s", error, extra={**run_fields(row), "component": "reaper"})
        return None


def _check_flow(
    store: Store, settling: FlowSettling, row: RunRecord, new_token: Callable[[], str], now: Instant
) -> list[FlowEnd]:
    state = flow_part(row).state
    assert state is not None
    if row.cancel_requested or state.stop:
        ended = settling.stop(row, "cancelled", now)
    elif state.deadline is not None and now >= state.deadline:
        _log.error("a flow has timed out", extra={**run_fields(row), "component": "reaper"})
        ended = settling.stop(row, "timeout", now)
    else:
        ended = []
    if ended:
        return ended
    repaired = settling.recount(row, now)
    if repaired is not None:
        fields = {**run_fields(row), "component": "reaper"}
        _log.error("a flow stood still: the ends of steps were not counted", extra=fields)
        return repaired
    store.settle_runs([flows.checked(row, new_token(), now)])
    return []
