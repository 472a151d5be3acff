"""Stores what running jobs report about their progress, and the last value when they have ended.

Progress is for people who watch. If the store refuses a record, the error is logged and the record dropped:
leases, logs and the ends of runs must not wait for it.
"""

from __future__ import annotations

import logging
import secrets

from evenbeat.core.instants import LAST, Instant
from evenbeat.errors import StoreUnavailable
from evenbeat.observe.run_progress import KIND, Reported, ReportedProgress, attempt_of
from evenbeat.stores.base import Store

_log = logging.getLogger("evenbeat.node.progress")


def store_progress(store: Store, progress: ReportedProgress, now: Instant) -> None:
    """Write the last value that the job has reported, unless the store has it already.

    A worker that lost the run must not replace the value of the next attempt: it finds a record of a higher
    attempt, and writes nothing.
    """
    value = progress.value
    if value is None or progress.is_stored:
        return
    try:
        _write(store, progress, value, now)
    except StoreUnavailable:
        raise
    except Exception as error:
        progress.stored = value
        _log_refused(progress, error)


def keep_progress(store: Store, progress: ReportedProgress, now: Instant, kept: int) -> None:
    """Write the last value of an attempt that has ended, for ``kept`` ms: as long as its run is kept."""
    if progress.value is None:
        return
    try:
        at = progress.stored_at if progress.is_stored else now
        _write(store, progress, progress.value, at, min(now + kept, LAST))
    except StoreUnavailable:
        raise
    except Exception as error:
        _log_refused(progress, error)


def _write(
    store: Store, progress: ReportedProgress, value: Reported, at: Instant, expires: Instant | None = None
) -> None:
    # A version is never used twice: the record may expire and be written again.
    record = progress.record(value, at, secrets.randbits(53), expires)
    if not store.put_record(record, progress.version):
        # An earlier attempt left a record behind, or the reply to the last write was lost.
        present = store.get_record(KIND, record.tenant, record.key)
        is_newer = present is not None and attempt_of(present) > progress.run.attempt
        if is_newer or not store.put_record(record, None if present is None else present.version):
            return
    progress.version, progress.stored, progress.stored_at = record.version, value, at


def _log_refused(progress: ReportedProgress, error: Exception) -> None:
    fields = {"component": "worker", "job_id": progress.run.id}
    _log.error("the progress of a run can't be stored: %s", error, extra=fields)
