"""What a resume would do, in numbers and in words: ``ResumePreview`` from the plan of the change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, tzinfo

from evenbeat.core.instants import Instant, from_ms
from evenbeat.core.records import Reason, ScheduleRecord
from evenbeat.core.results import ResumePreview
from evenbeat.observe.phrases import count, date_time, timespec
from evenbeat.observe.reasons import skip_reason
from evenbeat.rules.firing import Planned
from evenbeat.rules.ticks import next_start, readable_trigger, trigger_of
from evenbeat.triggers import OnSuccess


def resume_preview(
    before: ScheduleRecord, planned: Planned | None, now: Instant, zone: tzinfo | None = None
) -> ResumePreview:
    """Return what ``planned``, the plan of a resume at ``now``, does; None if the schedule is not paused.
    ``zone`` is the one of the times; None: that of the trigger."""
    after = before if planned is None else planned.schedule
    trigger = readable_trigger(after)
    zone = zone or (UTC if trigger is None else trigger.tzinfo)
    next_run = None if trigger is None else next_start(after)
    skipped: Counter[Reason] = Counter()
    for row in () if planned is None else planned.skipped:
        skipped[row.reason] += row.count
    coalesced = skipped.pop("coalesced", 0)
    runs = 0 if planned is None else len(planned.runs)
    left = 0 if planned is None else _left(after, now)
    if planned is None:
        words = [f"A resume does nothing: the schedule is {before.state}"]
    else:
        words = [*_words(before, skipped, runs, coalesced, left, zone, now)]
        words = words or ["No tick was missed in the pause"]
    if isinstance(trigger, OnSuccess) and planned is not None:
        words = [f"It fires with the next success of {trigger.schedule}; those in the pause do not run"]
    elif not left:
        words.append(
            "it has no tick to come" if next_run is None else f"it fires next at {_time(next_run, zone)}"
        )
    return ResumePreview(
        missed=runs + coalesced + skipped.total() + left,
        coalesced=coalesced,
        runs=runs,
        skipped=skipped.total(),
        next_run=None if next_run is None else from_ms(next_run, zone),
        sentence="; ".join(words) + ".",
    )


def _words(
    before: ScheduleRecord,
    skipped: Counter[Reason],
    runs: int,
    coalesced: int,
    left: int,
    zone: tzinfo,
    now: Instant,
) -> Iterator[str]:
    """Yield what becomes of the missed ticks."""
    paused = skipped["paused"]
    if paused:
        one, many = "The tick of the pause is", f"The {paused:,} ticks of the pause are"
        yield f"{one if paused == 1 else many} skipped"
    if runs:
        ticks = count(runs + coalesced, "tick")
        since = "of the pause"
        if before.paused_until is not None and before.paused_until <= now:
            # Nodes have not noticed yet that the pause is over.
            since = f"since the pause ended at {_time(before.paused_until, zone)}"
        yield f"{count(runs, 'run starts', 'runs start')} at once for {ticks} {since}"
    for reason, number in sorted(skipped.items()):
        if reason != "paused":
            why = skip_reason(reason, number, before.overlap)
            yield f"{count(number, 'tick is', 'ticks are')} skipped: {why}"
    if left:
        waits = count(left, "due tick waits", "due ticks wait")
        yield f"{waits} for a node, which goes by the catch-up and overlap policies"


def _left(after: ScheduleRecord, now: Instant) -> int:
    """Return how many due ticks a resume leaves to the nodes: it plans 500 runs at most, and an overlap
    policy may let ticks wait."""
    tick = after.next_tick
    if after.state != "active" or tick is None or tick > now:
        return 0
    return trigger_of(after).count_ms(tick + 1, now + 1) + 1


def _time(instant: Instant, zone: tzinfo) -> str:
    return date_time(from_ms(instant, zone), timespec([instant - instant % 1000]))
