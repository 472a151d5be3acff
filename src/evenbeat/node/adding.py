"""Add the runs of ticks, in smaller parts if the store raises: one bad run does not block the others."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord
from evenbeat.errors import RowRefused
from evenbeat.node.counting import Counting
from evenbeat.node.deferral_notes import write_note
from evenbeat.observe.logs import run_fields
from evenbeat.rules.refusals import refusal_text
from evenbeat.stores.base import Store
from evenbeat.stores.refusals import in_parts

_log = logging.getLogger("evenbeat.node.adding")


def add_in_parts(
    store: Store, runs: Sequence[RunRecord], component: str, counting: Counting, before: Instant | None = None
) -> list[bool | None]:
    """Add runs like ``add_runs``, and return for each whether it is new; None if the database refuses it.
    A note then says so.
    """

    def write(part: Sequence[RunRecord]) -> list[bool | None]:
        return [*store.add_runs(part, before)]

    def refuse(run: RunRecord, error: Exception) -> None:
        fields = {**run_fields(run), "component": component}
        _log.error("the database refuses the run of a tick, which is tried again: %s", error, extra=fields)
        counting.count("lock_failures", "schedules", "refused")
        if run.schedule is not None:
            reason = error.reason if isinstance(error, RowRefused) else str(error)
            write_note(store, (run.tenant, run.schedule), refusal_text(reason), store.now())

    return [answer for part in in_parts(write, runs, refuse) for answer in part] if runs else []
