"""Explanations: why a schedule or a run is as it is, and the account of a schedule's ticks."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias

import msgspec

from evenbeat.core.records import Reason, RunState

Verdict: TypeAlias = Literal[
    # The schedule.
    "never_existed",
    "not_yet_created",
    "deleted",
    "paused",
    "finished",
    "unreadable",
    "code_only",
    # The trigger.
    "no_tick",
    "clock_skipped",
    "clock_repeated",
    "trigger_unknown",
    "calendar",
    # The ledger.
    "coalesced",
    "late",
    "limit",
    "overlap",
    "changed",
    "rescheduled",
    "dependency",
    "chain",
    # The run.
    "succeeded",
    "failed",
    "cancelled",
    "running",
    "later",
    "retry",
    "unfit",
    "no_worker",
    "no_task",
    "no_queue",
    "limited",
    "busy",
    "next",
    # A tick without a run.
    "not_due",
    "waits_for_run",
    "waits_for_success",
    "catching_up",
    "no_ticker",
    "quarantined",
    "deferred",
    "too_new",
    "due",
    "purged",
    "missing",
]
"""Why a tick, or a run, is as it is. The names of ledger reasons, run states and ``WaitReason`` mean the same
here. ``no_tick``: the trigger has no tick then. ``clock_skipped``, ``clock_repeated``: because of a clock
change. ``trigger_unknown``: the trigger was given later. ``rescheduled``: a user moved the tick. ``due``: a
node fires the tick any moment. ``waits_for_success``: another schedule has to succeed. ``catching_up``:
``catch_up_rate`` holds the tick back. ``no_ticker``: no live node fires schedules. ``code_only``:
nodes plan the schedule in memory. ``quarantined``, ``deferred``, ``unreadable``, ``too_new``: nodes cannot
plan the schedule. ``missing``: the tick left no record."""

CountedFrom: TypeAlias = Literal["asked", "created", "trigger", "purged"]
"""Why an account begins where it does. ``asked``: the caller gave the start. ``created``, ``trigger``: the
schedule was created then, or got its present trigger. ``purged``: older history is deleted."""


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of evidence."""

    text: str
    at: datetime | None = None
    """The instant that the fact is about, where there is one."""


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """Why a schedule or a run did, or did not do, something."""

    verdict: Verdict
    sentence: str
    """The answer for people."""
    evidence: tuple[Fact, ...] = ()
    remedy: str | None = None
    """A command or a step that helps; None where nothing is wrong, or nothing helps."""
    schedule: str | None = None
    asked: datetime | None = None
    """The time that was asked about; None for the present."""
    tick: datetime | None = None
    """The tick that the answer is about."""
    run: str | None = None
    """The id of the run that the answer is about: of the tick, of the run that stands for it, or of the one
    it waits for."""
    before: datetime | None = None
    """The tick before, where there is one; of an answer about a time."""
    after: datetime | None = None
    """The tick after."""


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """What became of each tick of a schedule in a period.

    ``expected`` is ``ran + coalesced + moved + pending + missing`` and the sum of ``skipped``.
    """

    schedule: str
    tenant: str
    trigger: str
    counted_from: datetime
    counted_from_reason: CountedFrom
    counted_until: datetime
    """The end of the period, which is not part of it; the deletion of the schedule, if that was earlier."""
    expected: int
    """The ticks of the trigger in the period."""
    ran: int
    """Ticks that became runs."""
    runs: dict[RunState, int]
    """These runs by their present state."""
    coalesced: int
    """Ticks that the run of a later tick stands for."""
    skipped: dict[Reason, int]
    """Ticks that the ledger records as skipped, by reason."""
    moved: int
    """Ticks that a user moved to an earlier time, at which another record stands for them."""
    pending: int
    """Ticks that have not fired yet: they lie in the future, wait, or fall into the present pause."""
    missing: int
    """Ticks without any record: 0, unless records were lost."""
    doubled: int
    """Ticks with two records: 0, unless something is wrong."""
    missing_ticks: tuple[datetime, ...]
    """The first 1,000 of the missing ticks."""
    doubled_ticks: tuple[datetime, ...]
    """The first 1,000 of the doubled ticks."""
    watermark: datetime | None
    """All ticks before this one have been recorded; None if no tick is to come."""

    @property
    def adds_up(self) -> bool:
        """Whether each tick was recorded exactly once."""
        return not self.missing and not self.doubled
