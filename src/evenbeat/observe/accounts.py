"""The account of a schedule as users get it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from evenbeat.core.explanations import Account
from evenbeat.core.instants import Instant
from evenbeat.core.records import Reason, ScheduleRecord
from evenbeat.observe.run_explanations import Speaker
from evenbeat.rules.accounts import Period, TickTally
from evenbeat.rules.ticks import own_trigger

_MOST_LISTED = 1_000
_SKIPPED: tuple[Reason, ...] = tuple(reason for reason in get_args(Reason) if reason != "coalesced")


def account_view(
    row: ScheduleRecord,
    period: Period,
    expected: int,
    counted: TickTally,
    *,
    moved: int,
    missing: Sequence[Instant],
) -> Account:
    """Return the account of a schedule."""
    speaker = Speaker(row.tenant, own_trigger(row).tzinfo)
    outcomes = counted.outcomes
    return Account(
        schedule=row.name,
        tenant=row.tenant,
        trigger=row.trigger,
        counted_from=speaker.moment(period.start),
        counted_from_reason=period.reason,
        counted_until=speaker.moment(period.end),
        expected=expected,
        ran=outcomes["ran"],
        runs=dict(sorted(counted.states.items())),
        coalesced=outcomes["coalesced"],
        skipped={reason: outcomes[reason] for reason in _SKIPPED if outcomes[reason]},
        moved=moved,
        pending=outcomes["pending"],
        missing=len(missing),
        doubled=len(counted.doubled),
        missing_ticks=tuple(map(speaker.moment, missing[:_MOST_LISTED])),
        doubled_ticks=tuple(map(speaker.moment, counted.doubled[:_MOST_LISTED])),
        watermark=None if row.next_tick is None else speaker.moment(row.next_tick),
    )
