"""Why the ledger records a tick, in words."""

from __future__ import annotations

from evenbeat.core.dependencies import parse_after
from evenbeat.core.explanations import Fact
from evenbeat.core.records import Reason, ScheduleRecord, Skipped
from evenbeat.observe.phrases import count
from evenbeat.observe.reasons import skip_reason
from evenbeat.observe.run_explanations import Speaker, Words
from evenbeat.rules.dependencies import unmet
from evenbeat.rules.why import Outage, TickFacts


def skipped_words(facts: TickFacts, row: Skipped, outage: Outage | None, speaker: Speaker) -> Words:
    """Return the words for a tick that the ledger records."""
    schedule = facts.schedule
    tick = speaker.time(facts.place.tick or row.first)
    why = skip_reason(row.reason, 1, schedule.overlap)
    if row.reason == "coalesced" and row.run is not None:
        how = "(overlap queue)" if schedule.overlap == "queue" else "(catch-up latest)"
        why = f"run {row.run} stands for it {how}"
    if row.reason == "calendar":
        names = facts.calendars
        why = f"{f'the calendar {names[0]}' if len(names) == 1 else 'a calendar'} removed it, as it was then"
        why += "" if row.run is None else f", and run {row.run} stands for it"
    evidence = [row_fact(row, speaker)]
    if row.reason == "dependency" and schedule.after:
        names = _unmet_at(row, facts)
        why = f"{' or '.join(names)} had not succeeded in time (after {schedule.after})"
        evidence += [success_fact(name, facts, speaker) for name in names]
    words = f"the tick of {tick} did not run: {why}"
    if outage is not None:
        words = f"the tick of {tick} did not run: {_outage_words(outage, speaker)}; {why}"
        evidence.append(outage_fact(outage, speaker))
    return Words(words, evidence, _remedy(row.reason, schedule, speaker))


def _unmet_at(row: Skipped, facts: TickFacts) -> tuple[str, ...]:
    """Return the predecessors that had not succeeded when a tick was skipped.

    The statistics have the last success alone: of those that have succeeded since, it may have been any.
    """
    after = parse_after(facts.schedule.after)
    last = facts.last_successes
    since = tuple(name for name in after.schedules if (last.get(name) or 0) > row.recorded_at)
    return unmet(after, last, row.recorded_at) or since or after.schedules


def success_fact(name: str, facts: TickFacts, speaker: Speaker) -> Fact:
    """Return when a schedule that this one waits for last succeeded."""
    last = facts.last_successes.get(name)
    text = f"last success of {name}" if last is not None else f"{name} has never succeeded"
    if name in facts.gone:
        text = f"{name} does not exist any more" + ("" if last is None else "; its last success")
    return speaker.fact(text, last)


def row_fact(row: Skipped, speaker: Speaker) -> Fact:
    ticks = speaker.time(row.first)
    if row.count > 1:
        ticks = f"{count(row.count, 'tick')} from {ticks} to {speaker.time(row.last)}"
    return speaker.fact(f"recorded as {row.reason}: {ticks}", row.recorded_at)


def _outage_words(outage: Outage, speaker: Speaker) -> str:
    times = "" if outage.start is None else f" from {speaker.time(outage.start)}"
    times += "" if outage.end is None else f" until {speaker.time(outage.end)}"
    if outage.kind == "store_away":
        return f"the nodes could not reach the store{times}"
    return f"no node was alive{times}"


def outage_fact(outage: Outage, speaker: Speaker) -> Fact:
    return speaker.fact(_outage_words(outage, speaker), outage.start)


def _remedy(reason: Reason, schedule: ScheduleRecord, speaker: Speaker) -> str | None:
    """Return a change of the schedule after which such a tick runs; None if there is none."""
    name = schedule.name
    if reason == "paused" and schedule.state == "paused":
        return speaker.command(f"schedules resume {name}")
    if reason == "deleted" and schedule.state == "deleted":
        return f"to create it again: {speaker.command(f'schedules add {name} …')}"
    if reason == "chain":
        return f"to find a cycle: {speaker.command('doctor')}"
    if reason not in _OPTIONS or (reason == "coalesced" and schedule.overlap == "queue"):
        return None
    effect, option = _OPTIONS[reason]
    if reason == "late" and schedule.catch_up.kind != "skip":
        option = "--catch-up-max-age …"
    return f"to {effect}: {speaker.command(f'schedules update {name} {option}')}"


_OPTIONS: dict[Reason, tuple[str, str]] = {
    "coalesced": ("run each missed tick", "--catch-up all"),
    "late": ("allow later starts", "--grace …"),
    "limit": ("run more of them", "--catch-up-limit …"),
    "overlap": ("keep one tick waiting instead", "--overlap queue"),
    "dependency": ("wait longer, or allow an older success", "--after …"),
}
