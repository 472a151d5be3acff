"""The progress of an attempt: the last value that the job reported, and its record."""

from __future__ import annotations

import msgspec

from evenbeat.core.ids import lasting_key
from evenbeat.core.instants import FIRST, LAST, Instant, from_ms
from evenbeat.core.json_text import encode
from evenbeat.core.records import Record, RunRecord
from evenbeat.core.results import RunProgress

KIND = "progress"
_KEPT = 7 * 86_400_000
"""A worker that dies leaves the record behind: it expires so many ms after the last report."""


class Reported(msgspec.Struct, frozen=True):
    """The progress that a job reported: how much is done, how much there is in all, and a note."""

    done: float
    note: str
    total: float | None

    def __str__(self) -> str:
        """Return ``4,312 of 10,000, sending``, or ``40 %, sending`` for a share."""
        words = amount(self.done, self.total)
        return f"{words}, {self.note}" if self.note else words


class _Body(msgspec.Struct, frozen=True):
    """The body of a record of progress."""

    attempt: int
    done: float | int
    total: float | int | None
    note: str
    at: Instant


class ReportedProgress:
    """The last value that the job of an attempt has reported, and what the store has of it.

    The job's threads call ``report``, which only replaces the value. The lease renewer stores it.
    """

    __slots__ = ("run", "stored", "stored_at", "value", "version")

    def __init__(self, run: RunRecord) -> None:
        self.run = run
        self.value: Reported | None = None
        self.stored: Reported | None = None
        self.stored_at: Instant = FIRST
        self.version: int | None = None
        """The version of the stored record; None if this attempt has stored none."""

    def report(self, done: float, note: str, total: float | None) -> None:
        self.value = Reported(done, note, total)

    @property
    def is_stored(self) -> bool:
        """Whether the store has the last value, or there is none."""
        return self.value is self.stored

    def record(self, value: Reported, at: Instant, version: int, expires: Instant | None = None) -> Record:
        """Return the record of a value that the store got ``at`` this instant."""
        body = _Body(self.run.attempt, value.done, value.total, value.note, at)
        return Record(
            kind=KIND,
            tenant=self.run.tenant,
            key=key_of(self.run),
            body=encode(body),
            version=version,
            expires=at + _KEPT if expires is None else expires,
        )


def key_of(run: RunRecord) -> str:
    """Return the key of the record of a run's progress. The record outlives a run that is purged early, and
    must not be taken for that of a later run of its id."""
    return lasting_key(run.id, run.created_at)


def attempt_of(record: Record) -> int:
    """Return the attempt that a record belongs to; 0 if it can't be read."""
    body = _read(record)
    return 0 if body is None else body.attempt


def progress_view(run: RunRecord, record: Record | None) -> RunProgress | None:
    """Return the progress of a run that runs or has ended; None if its last attempt has reported none."""
    body = None if record is None else _read(record)
    if body is None or run.state == "queued" or body.attempt != run.attempt:
        return None
    at = from_ms(min(max(body.at, FIRST), LAST))
    return RunProgress(done=body.done, total=body.total, note=body.note, at=at)


def amount(done: float, total: float | None) -> str:
    """Return ``4,312``, ``4,312 of 10,000 (43 %)``, or ``40 %`` where the total is 1."""
    if total is None:
        return number(done)
    share = f"{int(100 * done / total)} %" if total else ""
    if total == 1:
        return share
    return f"{number(done)} of {number(total)}" + (f" ({share})" if share else "")


def number(value: float) -> str:
    """Return ``4,312`` or ``0.25``."""
    return f"{value:,}" if isinstance(value, int) or value != int(value) else f"{int(value):,}"


def _read(record: Record) -> _Body | None:
    try:
        return msgspec.json.decode(record.body, type=_Body)
    except (msgspec.MsgspecError, UnicodeError):
        return None


# As in core/records.py: threads must not be the first to read one.
msgspec.json.Decoder(_Body)
